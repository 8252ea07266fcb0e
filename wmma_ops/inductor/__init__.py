"""Our ops in compiled graphs: chosen where they pay, each with its reason in a report.

    torch.compile(model, backend="wmma")            Inductor with the pass
    wmma_ops.inductor.enable()                      the pass in plain Inductor, until disable()
    with wmma_ops.inductor.enabled(): …             for what is compiled within
    print(wmma_ops.inductor.last_report())          what was rewritten, what was left, and why
    wmma_ops.inductor.preview(model, x, target=…)   the same for a GPU that is not here

The pass sees the graph before gradients are traced, as the model wrote it, so training and inference are one: our ops bring
their own gradients. It replaces a product with its bias, sum, activation and multiplier by `linear` or `gemm`, two products
by `gemm_gemm`, and scaled_dot_product_attention by `attention`.

    nodes.py     what a node computes, what happens between two
    patterns.py  the patterns, which grow from a product   attention.py   masks.py  that are rules   found.py  what they find
    profit.py    whether a rewriting pays
    ahead.py     compiles the kernels meanwhile
    layout.py    whether what follows takes our strides
    rewrite.py   the pass          slot.py  its place in Inductor, and its key          report.py
    elsewhere.py the pass for a GPU that is not here
"""

from wmma_ops.inductor.elsewhere import preview
from wmma_ops.inductor.report import Entry, Report, last_report, reports
from wmma_ops.inductor.rewrite import Settings, rewrite
from wmma_ops.inductor.slot import WmmaPass, backend, disable, disabled, enable, enabled, register

__all__ = [
    "Entry",
    "Report",
    "Settings",
    "WmmaPass",
    "backend",
    "disable",
    "disabled",
    "enable",
    "enabled",
    "last_report",
    "preview",
    "reports",
    "rewrite",
]

register()
