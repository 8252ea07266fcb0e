"""The element types, a row each; what an operand of each kind gives follows from them.

The rows stand in the order of kernels/wmma/elements.hpp; runtime/border.py holds the two, and the outputs that the C++
library allows, against each other.
"""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Element:
    dtype: torch.dtype
    device: str  # its name in kernels
    bits: int  # in memory: those of less than a byte lie packed
    outputs: tuple[
        torch.dtype, ...
    ] = ()  # that products of it may have, the default first; none: there are no products
    is_differentiable: bool = False


_OF_FP8 = (torch.bfloat16, torch.float16, torch.float32)
_OF_INT8 = (torch.int32, torch.int8, torch.float32, torch.float16, torch.bfloat16)

ELEMENTS = (
    Element(torch.float16, "wmma::half_t", 16, (torch.float16, torch.float32), is_differentiable=True),
    Element(torch.bfloat16, "wmma::bf16_t", 16, (torch.bfloat16, torch.float32), is_differentiable=True),
    Element(torch.float32, "float", 32, (torch.float32,), is_differentiable=True),
    Element(torch.float64, "double", 64, (torch.float64,), is_differentiable=True),
    Element(torch.int8, "wmma::int8_t", 8, _OF_INT8),
    Element(torch.int32, "wmma::int32_t", 32),
    Element(torch.float8_e4m3fn, "wmma::fp8_e4m3_t", 8, _OF_FP8),
    Element(torch.float8_e5m2, "wmma::fp8_e5m2_t", 8, _OF_FP8),
    Element(torch.float8_e4m3fnuz, "wmma::fp8_e4m3fnuz_t", 8, _OF_FP8),
    Element(torch.float8_e5m2fnuz, "wmma::fp8_e5m2fnuz_t", 8, _OF_FP8),
    Element(torch.bool, "wmma::uint8_t", 8),
    Element(torch.int64, "wmma::int64_t", 64),
)

FP8_OCP = (torch.float8_e4m3fn, torch.float8_e5m2)
FP8_FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
FP8 = FP8_OCP + FP8_FNUZ
# Keys and values in pages may be of the one beside queries, and new keys, of the others.
FP8_PAGES, NARROWED = torch.float8_e4m3fn, (torch.float16, torch.bfloat16)
FP8_ATTENTION = torch.float8_e4m3fn  # of queries, keys and values alike; results are of one of those

# Operand type -> the outputs it may have, the default first.
OUTPUTS: dict[torch.dtype, tuple[torch.dtype, ...]] = {row.dtype: row.outputs for row in ELEMENTS if row.outputs}
DIFFERENTIABLE = tuple(row.dtype for row in ELEMENTS if row.is_differentiable)


_BITS = {row.dtype: row.bits for row in ELEMENTS}


def bits(dtype: torch.dtype) -> int:
    """Of an element in memory."""
    return _BITS[dtype]


def bytes_of(dtype: torch.dtype, count: int = 1) -> int:
    """Of so many elements: of those of less than a byte, whole bytes of them."""
    return count * _BITS[dtype] // 8


def elements_in(dtype: torch.dtype, count: int) -> int:
    """How many fill so many bytes."""
    return count * 8 // _BITS[dtype]


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The floating type that products of `dtype` are added up and finished in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def listed(*dtypes: torch.dtype) -> str:
    """As in: bool, float32 or float16; each once."""
    *others, last = dict.fromkeys(map(name, dtypes))
    return f"{', '.join(others)} or {last}" if others else last
