"""Where kernels over fragments run, the element types by their names, and what conversions make of values."""

import contextlib
import functools

import torch

import wmma_ops
from wmma_ops.hardware import arch

HEAD = "#include <wmma/fragment.hpp>\nusing namespace wmma;\n"

# Element types: the name in C++ and torch's.
FLOATS = {
    "float": torch.float32,
    "double": torch.float64,
    "half_t": torch.float16,
    "bf16_t": torch.bfloat16,
    "fp8_e4m3_t": torch.float8_e4m3fn,
    "fp8_e5m2_t": torch.float8_e5m2,
    "fp8_e4m3fnuz_t": torch.float8_e4m3fnuz,
    "fp8_e5m2fnuz_t": torch.float8_e5m2fnuz,
}
INTEGERS = {"int32_t": torch.int32, "uint32_t": torch.uint32, "int8_t": torch.int8, "uint8_t": torch.uint8}
TYPES = FLOATS | INTEGERS
SWAPPED = ("accumulator", "accumulator_swapped")


@functools.cache
def kernel(source: str, name: str, *options: str) -> wmma_ops.Kernel:
    return wmma_ops.Kernel(HEAD + source, name, options=options)


class Machine:
    """Where kernels run: an emulated target or, as "cuda", the GPU. For other targets they are compiled alone."""

    def __init__(self, target: str):
        self.target = target
        self.cuda = target == "cuda"
        self.compiles = not self.cuda and target not in arch.EMULATED

    def run(self, compiled: wmma_ops.Kernel, *arguments) -> list:
        """The arguments as they are after a launch of one wave, on the CPU."""
        if self.compiles:
            assert compiled.compile(self.target).kernels
            return list(arguments)
        there = [x.to("cuda") if self.cuda and isinstance(x, torch.Tensor) else x for x in arguments]
        with contextlib.nullcontext() if self.cuda else wmma_ops.emulate(self.target):
            compiled[1, 32 if self.cuda else arch.target(self.target).wave](*there)
        return [x.cpu() if isinstance(x, torch.Tensor) else x for x in there]

    def same(self, got: torch.Tensor, want: torch.Tensor, what: str) -> None:
        """Nothing differs, NaN from NaN neither."""
        if self.compiles:
            return
        got, want = got.double(), want.double()
        differs = (got != want) & ~(got.isnan() & want.isnan())
        assert not differs.any(), f"{what}: at {differs.nonzero()[0].tolist()} {got[differs][0]} for {want[differs][0]}"


def whole(*shape, low=-8, high=9, seed=0) -> torch.Tensor:
    """Whole numbers in float64."""
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).double()


def stored(x: torch.Tensor, name: str) -> torch.Tensor:
    """Values that the type holds, in that type; pairs of 4-bit integers along the last dimension in bytes."""
    if name in ("int4_t", "uint4_t"):
        low, high = (x.long() & 15).unflatten(-1, (-1, 2)).unbind(-1)
        return (low | high << 4).to(torch.uint8)
    return x.to(TYPES[name])


def converted(x: torch.Tensor, to: str) -> torch.Tensor:
    """What convert() makes of values in float64, in float64."""
    if to in ("int8_t", "uint8_t", "int4_t", "uint4_t"):
        bits = 4 if "4" in to else 8
        low = 0 if to.startswith("u") else -(1 << bits - 1)
        return x.float().round().double().clamp(low, low + (1 << bits) - 1)
    if to in INTEGERS:
        return x.trunc()
    return x.float().to(TYPES[to]).double() if to != "double" else x
