"""A kernel of a code object that another compiler made: launched as one's own are, by what its metadata tells of it."""

import functools
import math
import re
from pathlib import Path

import torch

from wmma_ops.hardware import arch
from wmma_ops.jit import CodeObject, code_object, metadata
from wmma_ops.runtime import arguments
from wmma_ops.runtime.launched import Launched
from wmma_ops.runtime.parameters import Parameter

_PADDING = re.compile(r"_*pad(ding)?_?\d*", re.I)


class ForeignKernel(Launched):
    """See `Kernel.from_code_object`."""

    def __init__(self, code: CodeObject, name: str, strided: tuple[str, ...] = (), print_bytes: int = 1 << 20):
        self.code, self.symbol = code, code.entry(name)
        told = metadata.arguments(code.code, self.symbol)
        self._placed = [
            arguments.Slot(one["offset"], one["size"], one["value_kind"] == "global_buffer") for one in told
        ]
        named = [_parameter(number, one, told) for number, one in enumerate(told, 1)]
        self._taken = [slot for slot, one in zip(self._placed, named, strict=True) if one is not None]
        super().__init__(name, [tuple(one for one in named if one is not None)], strided, print_bytes)

    @property
    def placed(self) -> list[tuple[Parameter, arguments.Slot]]:
        """Each parameter with where it lies."""
        return list(zip(self.parameters, self._taken, strict=True))

    def __reduce__(self):
        return ForeignKernel, (self.code, self.name, self.strided, self.print_bytes)

    @functools.cached_property
    def assembly(self) -> str:
        """The code object's instructions, as what was disassembled reads."""
        return code_object.assembly(self.code)

    def compile(self, target: str) -> CodeObject:
        """The code object itself, where it is for the target."""
        if arch.target(target).name != self.code.target:
            raise ValueError(f"{self.name}: its code object is for {self.code.target}, and {target} was asked for")
        return self.code

    def _settled(self, code: CodeObject) -> list[arguments.Slot]:
        return self._taken

    def _segment(self, given, placed: list[arguments.Slot]) -> bytes:
        end = max((slot.offset + slot.size for slot in self._placed), default=0)
        return super()._segment(given, placed).ljust(end, b"\0")

    def _check_target(self, target: arch.Target, grid, block, static: int, shared: int) -> None:
        super()._check_target(target, grid, block, static, shared)
        facts = metadata.kernels(self.code.code)[self.symbol]
        required, most = facts.get(".reqd_workgroup_size"), facts.get(".max_flat_workgroup_size", target.max_threads)
        if required and list(block) != list(required):
            raise ValueError(f"{self.name}: block is {block}; its code object takes {tuple(required)}")
        if math.prod(block) > most:
            raise ValueError(
                f"{self.name}: block {block} has {math.prod(block)} threads; its code object takes up to {most}"
            )

    def _launch(self, grid, block, *given, shared: int = 0, **named) -> None:
        given = self.in_order(given, named)
        tensors = [value for value in given if isinstance(value, torch.Tensor)]
        nothing = torch.empty(0, dtype=torch.uint8, device=tensors[0].device if tensors else "cpu")
        super()._launch(
            grid,
            block,
            *(
                nothing if value is None and one.pointer else value
                for one, value in zip(self.parameters, given, strict=True)
            ),
            shared=shared,
        )

    def in_order(self, given: tuple, named: dict) -> tuple:
        """The arguments as the kernel has them, of which those behind the first may be given by name."""
        rest = [one.name for one in self.parameters[len(given) :]]
        missing, unknown = [name for name in rest if name not in named], [name for name in named if name not in rest]
        if missing or unknown or len(given) > len(self.parameters):
            what = f"no {', '.join(missing)}" if missing else f"{', '.join(unknown) or len(given)}"
            wanted = ", ".join(map(str, self.parameters)) or "none"
            raise TypeError(f"{self.name}: {what} among the arguments; takes {wanted}")
        return (*given, *(named[name] for name in rest))


def _parameter(number: int, told: dict, others: list[dict]) -> Parameter | None:
    """None of what only fills room. The metadata tells no types."""
    name = told.get("name") or f"argument_{number}"
    is_pointer = told["value_kind"] == "global_buffer"
    if not is_pointer and _PADDING.fullmatch(name):
        return None
    if [one.get("name") for one in others].count(name) > 1:
        name = f"{name}_{number}"
    return Parameter(name, "void" if is_pointer else f"{told['size']} bytes", is_pointer)


def read(file, name: str | None = None, *, strided: tuple[str, ...] = (), print_bytes: int = 1 << 20) -> ForeignKernel:
    """See `Kernel.from_code_object`."""
    code = code_object.read(file)
    if name is None and len(code.kernels) > 1:
        raise ValueError(
            f"{Path(file)}: has {len(code.kernels)} kernels; takes the name of one: {', '.join(code.kernels)}"
        )
    return ForeignKernel(code, name or code.kernels[0], strided, print_bytes)
