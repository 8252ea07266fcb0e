"""Models whose every call is within `batch_invariant`: by hooks that ask for it before a forward and give it up after."""

import threading

from torch import nn

from wmma_ops.ops.invariance import batch_invariant

_ATTRIBUTE = "_wmma_alone"  # the hooks' handles, which copies of the model have for their own
_within = threading.local()  # .calls: the modules whose calls have begun, the innermost last


def _begin(module: nn.Module, arguments: tuple) -> None:
    batch_invariant().__enter__()
    _within.calls = [*getattr(_within, "calls", ()), module]


def _end(module: nn.Module, arguments: tuple, result: object) -> None:
    """Also where the forward raised; perhaps before it began."""
    calls = getattr(_within, "calls", [])
    if calls and calls[-1] is module:
        calls.pop()
        batch_invariant().__exit__()


def attach(model: nn.Module) -> None:
    if not hasattr(model, _ATTRIBUTE):
        begin = model.register_forward_pre_hook(_begin, prepend=True)
        setattr(model, _ATTRIBUTE, (begin, model.register_forward_hook(_end, always_call=True)))


def detach(model: nn.Module) -> None:
    for module in model.modules():
        for handle in module.__dict__.pop(_ATTRIBUTE, ()):
            handle.remove()
