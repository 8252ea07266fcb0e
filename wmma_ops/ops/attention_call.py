"""A call of one of attention's ops, whole: each option by its name, once, with the default that the schemas give it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from wmma_ops import torch_internals
from wmma_ops.ops.library import overload, tensor_names

OPS = ("attention", "varlen_attention", "scaled_attention", "_attention_backward", "_varlen_attention_backward")
_SHORT = {"query": "q", "key": "k", "value": "v"}  # operands of packed ops


@lru_cache
def tensors_of(op: str) -> tuple[str, ...]:
    """The names of an op's tensors, in the order of its schema."""
    return tuple(tensor_names(overload(op)))


@lru_cache
def _fields_of(op: str) -> tuple[str, ...]:
    """Those tensors by the names that they have in a call."""
    return tuple(_SHORT.get(name, name) for name in tensors_of(op))


@lru_cache
def required_of(op: str) -> tuple[str, ...]:
    """Those of its tensors that it cannot do without."""
    return tuple(one.name for one in torch_internals.schema(overload(op)).arguments if str(one.type) == "Tensor")


@lru_cache
def _scalars_of(op: str) -> tuple[str, ...]:
    return tuple(one.name for one in torch_internals.schema(overload(op)).arguments if one.kwarg_only)


@lru_cache
def _defaults() -> dict[str, Any]:
    """Of all ops' arguments; None of those that have none."""
    arguments = [one for op in OPS for one in torch_internals.schema(overload(op)).arguments]
    found: dict[str, Any] = {}
    for one in arguments:
        found.setdefault(_SHORT.get(one.name, one.name), one.default_value if one.has_default_value() else None)
    return found


@dataclass(frozen=True, eq=False)
class AttentionCall:
    """`call.mask`, `call.window_left`, …: as given, or the default. Operands are q, k and v, whatever the op calls them."""

    overload: str  # as it is registered
    given: Mapping[str, Any]

    @classmethod
    def of(cls, op: str, tensors: Sequence[Any] | Mapping[str, Any], scalars: Mapping[str, Any]) -> "AttentionCall":
        """`tensors` by name, or in the order of the op's schema, where the last may be missing."""
        if isinstance(tensors, Mapping):
            named = {_SHORT.get(name, name): x for name, x in tensors.items()}
        else:
            named = dict(zip(_fields_of(op), tensors, strict=False))
        named |= {_SHORT.get(name, name): x for name, x in scalars.items()}
        return cls(op, {**_defaults(), **named})

    def __getattr__(self, name: str) -> Any:
        try:
            return self.given[name]
        except KeyError:
            raise AttributeError(f"attention has no option {name}") from None

    @property
    def op(self) -> str:
        """As errors name it."""
        return self.overload.removeprefix("_").removesuffix("_backward")

    @property
    def is_packed(self) -> bool:
        return self.op == "varlen_attention"

    @property
    def tensors(self) -> dict[str, Any]:
        """All of them, by the names that the op has for them."""
        return {name: self[name] for name in tensors_of(self.overload)}

    @property
    def required(self) -> dict[str, Any]:
        return {name: self[name] for name in required_of(self.overload)}

    def __getitem__(self, name: str) -> Any:
        """By the op's own name."""
        return self.given[_SHORT.get(name, name)]

    def for_op(self, op: str, **beside: Any) -> tuple[list[Any], dict[str, Any]]:
        """The tensors and the scalars with which another of the ops is called for the same, and with what stands beside."""
        given = {**self.given, **beside}
        return [given[name] for name in _fields_of(op)], {name: given[name] for name in _scalars_of(op)}
