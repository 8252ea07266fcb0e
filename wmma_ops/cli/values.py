"""A kernel's arguments as one types them: i32:5, f32:0.5, bf16[128,64]=random, x.npy, null, struct(…)."""

import math
import re
from pathlib import Path

import numpy as np
import torch

from wmma_ops.cli.arguments import VALUE_TYPES, VALUES

TYPES: dict[str, torch.dtype] = {short: getattr(torch, name) for short, name in VALUE_TYPES.items()}
FILLS = ("random", "zeros", "ones", "arange", "nan")
_NAMED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.S)
_TENSOR = re.compile(r"(\w+)\[([\d,x ]*)\](?:=(.+))?")
_COMMA = re.compile(r",(?![^\[(]*[\])])")
_MOST = 1 << 36  # bytes of a tensor


def read(text: str, device: str = "cpu", generator: torch.Generator | None = None):
    """What `text` stands for. ValueError says what is taken."""
    text = text.strip()
    if text == "null":
        return None
    if match := re.fullmatch(r"struct\((.*)\)", text, re.S):
        return tuple(_member(part, device, generator) for part in _COMMA.split(match[1]))
    if match := _TENSOR.fullmatch(text):
        return _tensor(text, match[1], match[2], match[3], generator).to(device)
    kind, _, number = text.rpartition(":")
    if text.endswith(".npy"):
        typed = kind in TYPES
        return _loaded(text, number if typed else text, TYPES[kind] if typed else None).to(device)
    try:
        if kind == "hex":
            return bytes.fromhex(number)
        if kind in TYPES:
            return _number(TYPES[kind], number)
    except (ValueError, OverflowError) as error:
        raise ValueError(f"{text!r}: {error}") from None
    raise ValueError(f"{text!r} is no argument; takes {VALUES}")


def named(text: str) -> tuple[str | None, str]:
    """(name, the rest) of NAME=ARG."""
    match = _NAMED.fullmatch(text)
    return (match[1], match[2]) if match else (None, text)


def _member(text: str, device: str, generator: torch.Generator | None):
    found = read(text, device, generator)
    return torch.empty(0, device=device) if found is None else found


def _number(dtype: torch.dtype, text: str):
    """A NumPy number; its bytes where NumPy has none of the type."""
    if dtype.is_floating_point:
        found = torch.tensor([float(text)], dtype=torch.float64).to(dtype)
    elif dtype == torch.bool:
        found = torch.tensor([bool(int(text, 0))])
    else:
        value, limits = int(text, 0), torch.iinfo(dtype)
        if not limits.min <= value <= limits.max:
            raise OverflowError(f"takes {limits.min} to {limits.max}")
        found = torch.from_numpy(np.array([value], str(dtype).removeprefix("torch.")))
    try:
        return found.numpy()[0]
    except TypeError:
        return bytes(found.view(torch.uint8).tolist())


def _tensor(text: str, kind: str, sizes: str, fill: str | None, generator: torch.Generator | None) -> torch.Tensor:
    if kind not in TYPES:
        raise ValueError(f"{text!r}: {kind} is no type; takes {', '.join(TYPES)}")
    dtype, shape = TYPES[kind], tuple(int(size) for size in re.split(r"[,x ]+", sizes.strip(", ")) if size)
    if math.prod(shape) * dtype.itemsize > _MOST:
        raise ValueError(f"{text!r}: {math.prod(shape) * dtype.itemsize:,} bytes; takes tensors up to {_MOST:,}")
    if fill == "random":
        if dtype.is_floating_point:
            return torch.randn(shape, generator=generator).to(dtype)
        low, high = (0, 2) if dtype == torch.bool else (max(-100, torch.iinfo(dtype).min), 101)
        return torch.randint(low, high, shape, generator=generator).to(dtype)
    if fill == "arange":
        return torch.arange(math.prod(shape)).to(dtype).reshape(shape)
    value = {"zeros": 0, "ones": 1, "nan": math.nan, None: 0}.get(fill)
    if value is None:
        try:
            value = float(fill) if dtype.is_floating_point else int(fill, 0)
        except ValueError:
            raise ValueError(f"{text!r}: {fill!r} fills none; takes {', '.join(FILLS)} or a number") from None
    if isinstance(value, float) and not dtype.is_floating_point:
        raise ValueError(f"{text!r}: {fill} is no value of {kind}")
    return torch.full(shape, value, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype)


def _loaded(text: str, file: str, dtype: torch.dtype | None) -> torch.Tensor:
    try:
        found = torch.from_numpy(np.ascontiguousarray(np.load(Path(file), allow_pickle=False)))
    except (OSError, ValueError, TypeError, EOFError) as error:
        raise ValueError(f"{text!r}: {str(error).splitlines()[0]}") from None
    return found if dtype is None else found.to(dtype)


def saved(tensor: torch.Tensor) -> np.ndarray:
    """What a file of NumPy's has of it: types that NumPy lacks as float32."""
    tensor = tensor.cpu()
    try:
        return tensor.numpy()
    except TypeError:
        return tensor.float().numpy()
