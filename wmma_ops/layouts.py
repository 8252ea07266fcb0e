"""The lane layouts of matrix instructions, by their public name."""

from wmma_ops.hardware.layouts import Layout, layout

__all__ = ["Layout", "layout"]
