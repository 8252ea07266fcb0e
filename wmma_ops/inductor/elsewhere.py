"""What the pass would do with a model on a GPU that is not here."""

import copy
from collections.abc import Callable

import torch

from wmma_ops import torch_internals
from wmma_ops.hardware import arch
from wmma_ops.inductor.report import Report
from wmma_ops.inductor.rewrite import Settings, rewrite
from wmma_ops.runtime import emulation


def preview(function: Callable, *arguments, target: str, force: bool = False, **keywords) -> list[Report]:
    """What ``torch.compile(function, backend="wmma")`` would rewrite on a target, graph by graph, each with its reason.

    The function runs once, as it is, and no kernel is compiled: this needs no GPU. Gradients are counted where the arguments
    or parameters require them and ``torch.no_grad`` is not on.

    Args:
        function: a module or a function, and what it is called with, on the CPU.
        target: an AMD or NVIDIA target, such as gfx942 or sm_90a, or a card's name, such as "RX 7900 XTX".
        force: also rewrite what does not pay.

    Examples:
        >>> import torch, wmma_ops.inductor
        >>> layer = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.GELU()).bfloat16()
        >>> with torch.no_grad():
        ...     (report,) = wmma_ops.inductor.preview(layer, torch.randn(256, 1024).bfloat16(), target="MI300X")
        >>> [(entry.pattern, entry.op) for entry in report.entries]
        [('linear + gelu', 'linear')]
    """
    found: list[Report] = []
    there = emulation.Emulation(arch.target(target).name, execute=False)

    def backend(graph_module, inputs):
        with emulation.entered(there):
            found.append(rewrite(copy.deepcopy(graph_module), Settings(force=force)))
        return graph_module.forward

    with torch_internals.compiled_often():  # each preview is a compilation
        torch.compile(function, backend=backend, dynamic=False)(*arguments, **keywords)
    return found
