"""Kinds of configurations of a product, for tests that force or draw them."""

from wmma_ops.plan.gemm.loops.warpgroup import has_own_width

KINDS = {
    "persistent": lambda x: x.order.persistent,
    "clusters": lambda x: x.order.cluster > 1,
    "splits": lambda x: x.order.splits > 1,
    "a split last round": lambda x: x.order.last > 1,
    "a width of its own": has_own_width,
    "three warpgroups": lambda x: x.waves == 12,
}
WITHOUT_WARPGROUPS = {
    "straight": lambda x: x.loop == "straight",
    "asynchronous": lambda x: x.loop == "async_copy",
}
