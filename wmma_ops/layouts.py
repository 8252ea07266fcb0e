"""The lane layouts of matrix instructions, by their public name."""

from wmma_ops.hardware.layouts import (
    Functions,
    Layout,
    forward,
    fragment_forward,
    functions,
    layout,
    replication,
    reverse,
    store_map,
)

__all__ = [
    "Functions",
    "Layout",
    "forward",
    "fragment_forward",
    "functions",
    "layout",
    "replication",
    "reverse",
    "store_map",
]
