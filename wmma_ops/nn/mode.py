"""Torch function modes under which functions of torch's run as ours: `swapped` for all that has a rule, others for some."""

import sys
import threading
import weakref
from collections import Counter, deque
from typing import ClassVar

import torch
from torch.overrides import TorchFunctionMode

from wmma_ops import torch_internals
from wmma_ops.nn import activation, rules
from wmma_ops.torch_internals import constant_for_compiler, transforms_active

Tensor = torch.Tensor

_entered = threading.local()  # .modes: those of this thread, the innermost last


@constant_for_compiler
def _count_traced(name: str, reason: str | None) -> bool:
    """The compiler calls this while it traces, and never again."""
    modes = getattr(_entered, "modes", None)
    if modes:
        modes[-1]._tally(name, reason)
    return True


_SUMS = (Tensor.add, Tensor.__add__, Tensor.__radd__, torch.add)
_FACTORS = (Tensor.mul, Tensor.__mul__, Tensor.__rmul__, torch.mul)
# What an op of ours does to its product on the way out.
_EPILOGUES = {**activation.functions(), **dict.fromkeys(_SUMS, "add"), **dict.fromkeys(_FACTORS, "mul")}
_WITH_GRADIENTS = ("relu", "add")  # fused with them too: their backward pass needs no argument
_PRODUCTS_KEPT = 4
_ATTENTIONS = ("scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention")
_BACKWARD = (torch.Tensor.backward, torch.autograd.backward, torch.autograd.grad)


class _NoPlace(Exception):
    """A tensor without gradient, or of a kind that has its own way."""


def _places(tensors):
    """A tensor or several as their places in the graph; what is none stays."""
    if isinstance(tensors, dict):
        return {key: _places(x) for key, x in tensors.items()}
    if isinstance(tensors, (tuple, list)):
        return tuple(_places(x) for x in tensors)
    if not isinstance(tensors, torch.Tensor):
        return tensors
    if not tensors.requires_grad or tensors.is_nested or not rules.is_plain(tensors):
        raise _NoPlace
    if (
        torch.func.debug_unwrap(tensors, recurse=False) is not tensors
    ):  # of a transform that is over, as in vjp's function
        raise _NoPlace
    return torch.autograd.graph.get_gradient_edge(tensors)


class RuleMode(TorchFunctionMode):
    """Within it, calls of the functions in `_table` are ours where their rules allow; `_count` is told of each."""

    _table: ClassVar[dict]  # as rules.RULES: torch's function -> its name and its rule
    _flex_attention = None  # the operator that flex_attention calls, where that is to be ours

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        rule = self._table.get(func)
        if func is torch.Tensor.unflatten:  # written with super(), which the compiler cannot follow from inside a mode
            return torch.unflatten(*args, **kwargs)
        given = args
        # No key of a table, into which the compiler looks. Graphs that hold the operator call it again as they run.
        if func is self._flex_attention and torch.compiler.is_dynamo_compiling():
            rule, given = ("flex_attention", rules.flex_attention), (self._plain, *args)
        if rule is None:
            self._follows(func, args)
            return self._backward(func, args, kwargs) if func in _BACKWARD else func(*args, **kwargs)
        name, function = rule
        call, reason = rules.decide(function, given, kwargs)
        self._count(name, reason)
        return self._made(name, call()) if reason is None else func(*args, **kwargs)

    def _backward(self, func, args, kwargs):
        """Within the mode again: what is recomputed (activation checkpointing) is what was computed.

        torch's functions would come back to the mode, but not with tensors given as their places in the graph.
        """
        batched = kwargs.get("is_grads_batched") or transforms_active()
        if batched or kwargs.get("materialize_grads"):  # not with places
            return func(*args, **kwargs)
        try:
            places = [_places(x) for x in args]
            inputs = _places(kwargs.get("inputs"))
        except _NoPlace:
            return func(*args, **kwargs)
        keywords = kwargs if inputs is None else {**kwargs, "inputs": inputs}
        if func is torch.Tensor.backward:
            func, keywords = torch.autograd.backward, {**keywords, "grad_tensors": keywords.get("gradient")}
            keywords.pop("gradient", None)
        with self:
            return func(*places, **keywords)

    def _count(self, name: str, reason: str | None) -> None:
        raise NotImplementedError

    def _made(self, name: str, result):
        """Is given what a call of ours gave, and gives it back."""
        return result

    def _follows(self, func, args) -> None:
        """Is told of each call that is none of ours."""


class swapped(RuleMode):  # a context manager, named as one reads it
    """Within it, torch's products and attention are ours wherever types, devices and masks allow, whoever calls them.

    Taken are ``F.linear``, ``torch.matmul``, ``mm``, ``bmm``, ``addmm`` and ``baddbmm``, as functions, methods and ``@``,
    ``F.scaled_dot_product_attention``, ``F.multi_head_attention_forward`` and, without functions and block masks,
    ``flex_attention``, where its module is loaded before. All else, and what lies inside of other
    functions (``torch.einsum``, recurrent layers), is left to torch. The backward pass may run outside; where it
    recomputes (activation checkpointing), run it within. ``torch.compile`` works within, and around. DTensors are taken
    once ``wmma_ops.distributed`` is imported.

    Args:
        (none): the mode counts for itself. ``.taken`` holds how many calls of each function were taken, ``.left`` how many
            were left, by function and reason, and ``.unfused`` how many of those taken were followed by a function that
            could have been a part of them, for the mode sees one call at a time; `print` it. What is compiled counts
            while it is traced, and what is entered inside of compiled code does not count.

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

    _table = rules.RULES

    def __init__(self):
        super().__init__()
        self.taken: Counter[str] = Counter()
        self.left: Counter[tuple[str, str]] = Counter()
        self.unfused: Counter[tuple[str, str]] = Counter()
        self._products: deque = deque(maxlen=_PRODUCTS_KEPT)  # names and results of the last, as long as these live

    def _count(self, name: str, reason: str | None) -> None:
        if torch.compiler.is_compiling():
            _count_traced(name, reason)
        else:
            self._tally(name, reason)

    def _made(self, name, result):
        if not torch.compiler.is_compiling() and isinstance(result, Tensor) and name not in _ATTENTIONS:
            self._products.append((name, weakref.ref(result)))
        return result

    def _follows(self, func, args) -> None:
        if torch.compiler.is_compiling() or func not in _EPILOGUES or not self._products:
            return
        tensors, what = [x for x in args[:2] if isinstance(x, Tensor)], _EPILOGUES[func]
        if what in ("add", "mul") and len(tensors) < 2:  # a number: after a bias it has no place
            return
        for name, product in self._products:
            made = product()
            if made is not None and any(x is made for x in tensors):
                if not made.requires_grad or what in _WITH_GRADIENTS:
                    self.unfused[name, what] += 1
                return

    def __enter__(self):
        if not torch.compiler.is_compiling():
            if "torch.nn.attention.flex_attention" in sys.modules:  # which brings the compiler
                self._flex_attention = torch.ops.higher_order.flex_attention
                self._plain = torch_internals.plain_flex_attention()
            _entered.__dict__.setdefault("modes", []).append(self)
        return super().__enter__()

    def __exit__(self, *error):
        if not torch.compiler.is_compiling():
            _entered.modes.pop()
        return super().__exit__(*error)

    def _tally(self, name: str, reason: str | None) -> None:
        if reason is None:
            self.taken[name] += 1
        else:
            self.left[name, reason] += 1

    def __str__(self) -> str:
        lines = ["taken", *(f"  {name}  {n}" for name, n in self.taken.items())]
        lines += ["left", *(f"  {name}  {n}  {reason}" for (name, reason), n in self.left.items())]
        if self.unfused:
            lines.append(
                "could be fused, was not: one call is seen at a time (swap_ and torch.compile see what follows)"
            )
            lines += [f"  {name}, {what}  {n}" for (name, what), n in self.unfused.items()]
        return "\n".join(lines)
