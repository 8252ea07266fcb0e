"""A torch function mode under which torch's products and attention run as ours."""

import threading
from collections import Counter

import torch
from torch.overrides import TorchFunctionMode

from wmma_ops.nn import rules

_entered = threading.local()  # .modes: those of this thread, the innermost last


def _count_traced(name: str, reason: str | None) -> bool:
    """The compiler calls this while it traces, and never again."""
    modes = getattr(_entered, "modes", None)
    if modes:
        modes[-1]._count(name, reason)
    return True


# What torch.compiler.assume_constant_result does: to call it would import the compiler.
_count_traced._dynamo_marked_constant = True


class swapped(TorchFunctionMode):  # a context manager, named as one reads it
    """Within it, torch's products and attention are ours wherever types, devices and masks allow, whoever calls them.

    Taken are ``F.linear``, ``torch.matmul``, ``mm``, ``bmm``, ``addmm`` and ``baddbmm``, as functions, methods and ``@``,
    ``F.scaled_dot_product_attention`` and ``F.multi_head_attention_forward``. All else, and what lies inside of other
    functions (``torch.einsum``, recurrent layers), is left to torch. The backward pass may run outside; where it
    recomputes (activation checkpointing), run it within. ``torch.compile`` works within, and around.

    Args:
        (none): the mode counts for itself. ``.taken`` holds how many calls of each function were taken, ``.left`` how many
            were left, by function and reason; `print` it. What is compiled counts while it is traced, and what is
            entered inside of compiled code does not count.

    Examples:
        >>> import torch, wmma_ops
        >>> with wmma_ops.swapped() as calls:
        ...     y = torch.ones(2, 3) @ torch.ones(3, 4)
        ...     z = torch.ones(2, 3, dtype=torch.int64) @ torch.ones(3, 4, dtype=torch.int64)
        >>> print(calls)
        taken
          matmul  1
        left
          matmul  1  its first argument is int64; taken are float16, bfloat16, float32, float64
    """

    def __init__(self):
        super().__init__()
        self.taken: Counter[str] = Counter()
        self.left: Counter[tuple[str, str]] = Counter()

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        rule = rules.RULES.get(func)
        if func is torch.Tensor.unflatten:  # written with super(), which the compiler cannot follow from inside a mode
            return torch.unflatten(*args, **kwargs)
        if rule is None:
            return func(*args, **kwargs)
        name, function = rule
        call, reason = rules.decide(function, args, kwargs)
        if torch.compiler.is_compiling():
            _count_traced(name, reason)
        else:
            self._count(name, reason)
        return call() if reason is None else func(*args, **kwargs)

    def __enter__(self):
        if not torch.compiler.is_compiling():
            _entered.__dict__.setdefault("modes", []).append(self)
        return super().__enter__()

    def __exit__(self, *error):
        if not torch.compiler.is_compiling():
            _entered.modes.pop()
        return super().__exit__(*error)

    def _count(self, name: str, reason: str | None) -> None:
        if reason is None:
            self.taken[name] += 1
        else:
            self.left[name, reason] += 1

    def __str__(self) -> str:
        lines = ["taken", *(f"  {name}  {n}" for name, n in self.taken.items())]
        lines += ["left", *(f"  {name}  {n}  {reason}" for (name, reason), n in self.left.items())]
        return "\n".join(lines)
