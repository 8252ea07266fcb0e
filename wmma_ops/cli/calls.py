"""A call of an op from its sizes alone, for the command line."""

import argparse
import dataclasses

import torch

from wmma_ops.ops import activations
from wmma_ops.ops.types import OUTPUTS
from wmma_ops.ops.types import name as type_name

DTYPES = (
    "float16",
    "bfloat16",
    "float32",
    "float64",
    "int8",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
)
OPS = ("matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "gemm_gemm", "scaled_mm")
# Which of --bias, --activation, --residual and --multiply an op takes.
_EXTRAS = {
    "gemm": {"bias", "activation", "residual", "multiply"},
    "linear": {"bias", "activation", "residual"},
    "gemm_gemm": {"bias", "activation", "residual"},
    "scaled_mm": {"bias"},
}


def add_options(parser) -> None:
    """What a call is made of, but its sizes."""
    parser.add_argument(
        "--dtype", choices=DTYPES, default="float16", metavar="TYPE", help="float16 (default), bfloat16, …"
    )
    parser.add_argument("--out-dtype", choices=(*DTYPES, "int32"), metavar="TYPE", help="the result's type")
    parser.add_argument("--batch", type=size, metavar="B", help="a batch of B products")
    parser.add_argument(
        "--activation", metavar="NAME", help=", ".join(row.name for row in activations.BUILTIN if row.code)
    )
    parser.add_argument("--bias", action="store_true", help="add a bias")
    parser.add_argument("--residual", action="store_true", help="add a matrix: linear's residual, gemm's c")
    parser.add_argument("--multiply", action="store_true", help="multiply by a matrix (gemm)")
    parser.add_argument("--a-columns", action="store_true", help="A is column-major")
    parser.add_argument("--b-columns", action="store_true", help="B is column-major, as a linear layer's weight")


def size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; takes 1, 2, 3, …")
    return int(text)


def shape(text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; takes MxNxK, such as 4096x4096x4096")
    return tuple(map(size, sizes))


def call(op: str, m: int, n: int, k: int, options, device: str | None = None) -> tuple[tuple, dict]:
    """The arguments and keywords of a call on contiguous tensors; without a device on the CPU, their memory untouched."""
    for name in ("bias", "activation", "residual", "multiply"):
        if getattr(options, name) and name not in _EXTRAS.get(op, ()):
            takes = [one for one, extras in _EXTRAS.items() if name in extras]
            raise ValueError(f"{op} has no --{name}; {', '.join(takes)} {'has' if len(takes) == 1 else 'have'} one")
    dtype = getattr(torch, options.dtype)
    out = getattr(torch, options.out_dtype) if options.out_dtype else None
    beside = out or (torch.bfloat16 if op == "scaled_mm" else OUTPUTS[dtype][0])
    batch = [options.batch or 1] if options.batch or op == "baddbmm" else []

    def tensor(*shape: int, of: torch.dtype = dtype, columns: bool = False) -> torch.Tensor:
        shape = shape[:-2] + shape[:-3:-1] if columns else shape
        if device is None:
            made = torch.empty(shape, dtype=of)
        elif of.is_floating_point:
            made = torch.randn(shape, device=device).to(of)
        else:
            made = torch.randint(-100, 100, shape, dtype=of, device=device)
        return made.mT if columns else made

    a = tensor(*batch, m, k, columns=options.a_columns)
    keywords = {"out_dtype": out} if out else {}
    if options.activation:
        keywords["activation"] = options.activation
    if op == "linear":
        if out:
            raise ValueError("linear has no --out-dtype; gemm has one")
        keywords["residual"] = tensor(*batch, m, n, of=beside) if options.residual else None
        return (a, tensor(n, k), tensor(n, of=beside) if options.bias else None), keywords
    if op == "gemm_gemm":
        keywords |= {"bias0": tensor(n, of=beside)} if options.bias else {}
        keywords |= {"c": tensor(*batch, m, k, of=beside)} if options.residual else {}
        return (
            a,
            tensor(*batch, k, n, columns=options.b_columns),
            tensor(*batch, n, k, columns=options.b_columns),
        ), keywords
    b = tensor(*batch, k, n, columns=options.b_columns)
    if op in ("addmm", "addmm_", "baddbmm"):
        if op == "addmm_" and out:
            raise ValueError("addmm_ has no --out-dtype; addmm has one")
        if op != "baddbmm" and batch:
            raise ValueError(f"{op} has no --batch; baddbmm has one")
        return (tensor(*batch, m, n, of=beside), a, b), keywords
    if op == "scaled_mm":
        scales = torch.ones(m, device=device), torch.ones(n, device=device)
        return (a, b, *scales), keywords | ({"bias": tensor(n, of=beside)} if options.bias else {})
    keywords |= {"bias": tensor(n, of=beside)} if options.bias else {}
    keywords |= {"c": tensor(*batch, m, n, of=beside)} if options.residual else {}
    keywords |= {"multiply": tensor(*batch, m, n, of=beside)} if options.multiply else {}
    return (a, b), keywords


def plain(record) -> dict:
    """A problem or a configuration as JSON has it."""
    fields = dataclasses.asdict(record)
    return {key: type_name(x) if isinstance(x, torch.dtype) else x for key, x in fields.items() if key != "place"}
