"""Kinds of configurations of a product, for tests that force or draw them."""

KINDS = {
    "walking": lambda x: x.walks,
    "clusters": lambda x: x.cluster > 1,
    "splits": lambda x: x.splits > 1,
    "a split last round": lambda x: x.last > 1,
    "a width of its own": lambda x: x.has_own_width,
    "three warpgroups": lambda x: x.waves == 12,
}
WITHOUT_WARPGROUPS = {
    "straight": lambda x: x.direct,
    "asynchronous": lambda x: x.stages and not x.wgmma and not x.direct,
}
