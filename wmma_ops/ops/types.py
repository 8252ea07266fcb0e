"""The element types: what each kind of operand gives. tests/ holds this against the C++ library's checks."""

import torch

FP8_OCP = (torch.float8_e4m3fn, torch.float8_e5m2)
FP8_FNUZ = (torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
FP8 = FP8_OCP + FP8_FNUZ

# Operand type -> the outputs it may have, the default first.
OUTPUTS: dict[torch.dtype, tuple[torch.dtype, ...]] = {
    torch.float16: (torch.float16, torch.float32),
    torch.bfloat16: (torch.bfloat16, torch.float32),
    torch.float32: (torch.float32,),
    torch.float64: (torch.float64,),
    torch.int8: (torch.int32, torch.int8, torch.float32, torch.float16, torch.bfloat16),
    **dict.fromkeys(FP8, (torch.bfloat16, torch.float16, torch.float32)),
}

DIFFERENTIABLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The floating type that products of `dtype` are added up and finished in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
