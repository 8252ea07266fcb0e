"""Norms by root mean squares that a model spells call by call, as torch's one function, whose gradient is one kernel too.

What a forward computes is found out by running it on a stand-in; nothing is taken on the word of a name.
"""

import torch
import torch.nn.functional as F
from torch import nn

from wmma_ops.torch_internals import Named, stand_in

Tensor = torch.Tensor

_EPSILONS = ("variance_epsilon", "eps", "epsilon")
_DRAWS = ((torch.float64, 1e-6), (torch.float32, 1e-5), (torch.bfloat16, 2e-2))  # and how far apart they may be


class RMSNorm(Named):
    """Mixed into somebody's class, whose forward is ``F.rms_norm`` in several calls."""

    def forward(self, *args, **kwargs):
        x = args[0] if len(args) == 1 and not kwargs else None
        # A compiler makes one kernel of either; of two types the class may have its own.
        if type(x) is not Tensor or x.dtype != self.weight.dtype or torch.compiler.is_compiling():
            return super().forward(*args, **kwargs)
        return F.rms_norm(x, self.weight.shape, self.weight, getattr(self, _epsilon_of(self)))


def is_norm(module: nn.Module) -> bool:
    """Whether its forward is ``F.rms_norm`` with its weight and the number that it has, in training and outside."""
    if type(module).__module__.startswith("torch.") or isinstance(module, torch.jit.ScriptModule):
        return False
    parameters = dict(module.named_parameters(recurse=False))
    weight = parameters.get("weight")
    if len(parameters) != 1 or weight is None or weight.dim() != 1:
        return False
    if any(next(found, None) is not None for found in (module.buffers(recurse=False), module.children())):
        return False
    if _epsilon_of(module) is None:
        return False
    return all(_agrees(module, weight.shape[0], *draw, training) for draw in _DRAWS for training in (False, True))


def _epsilon_of(module: nn.Module) -> str | None:
    return next((name for name in _EPSILONS if isinstance(module.__dict__.get(name), float)), None)


def _agrees(module: nn.Module, size: int, dtype: torch.dtype, bound: float, training: bool) -> bool:
    draw = torch.Generator().manual_seed(0)
    weight, x = (torch.randn(*shape, generator=draw, dtype=dtype) for shape in ((size,), (2, 3, size)))
    x[0] *= 0.1  # so that the number matters
    parameters = {"weight": nn.Parameter(weight, requires_grad=False)}
    other = stand_in(module, parameters, **{_epsilon_of(module): 0.03}, training=training)
    try:
        with torch.no_grad():
            got = type(module).forward(other, x)
    except Exception:  # whatever a foreign forward raises when it is given a stand-in: it is no such norm
        return False
    if not isinstance(got, Tensor) or got.shape != x.shape or got.dtype != dtype:
        return False
    return torch.allclose(got, F.rms_norm(x, (size,), weight, 0.03), rtol=bound, atol=bound)
