"""Kinds of configurations of a product, for tests that force or draw them."""

from wmma_ops.plan.gemm.loops.warpgroup import has_own_width

KINDS = {
    "walking": lambda x: x.walks,
    "clusters": lambda x: x.cluster > 1,
    "splits": lambda x: x.splits > 1,
    "a split last round": lambda x: x.last > 1,
    "a width of its own": has_own_width,
    "three warpgroups": lambda x: x.waves == 12,
}
WITHOUT_WARPGROUPS = {
    "straight": lambda x: x.loop == "straight",
    "asynchronous": lambda x: x.loop == "async_copy",
}
