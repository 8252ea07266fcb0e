"""What commands take: ops and their sizes, types, a kernel's arguments.

Nothing here imports torch, nor does main.py, so that help is there at once.
"""

import argparse
import sys
from collections.abc import Callable, Sequence


class OneOf:
    """A type of argparse's: one of names that are looked up when it is parsed, as torch is imported where they stand."""

    def __init__(self, names: Callable[[], Sequence[str]]):
        self.names = names

    def __call__(self, text: str) -> str:
        if text not in (known := self.names()):
            raise argparse.ArgumentTypeError(f"invalid choice: {text!r} (choose from {', '.join(known)})")
        return text


def _dtypes() -> tuple[str, ...]:
    from wmma_ops.ops.types import OUTPUTS, name

    return tuple(map(name, OUTPUTS))


def _orders() -> tuple[str, ...]:
    from wmma_ops.runtime.emulation import ORDERS

    return ORDERS


DTYPES, OUT_DTYPES = OneOf(_dtypes), OneOf(lambda: (*_dtypes(), "int32"))
ORDERS = OneOf(_orders)

PRODUCTS = ("matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "scaled_mm")
OPS = (*PRODUCTS, "gemm_gemm", "attention", "scaled_attention")
BENCHED = ("matmul", "linear", "addmm")
MASKS = ("padding", "bool", "numbers")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh", "leaky_relu")  # those of ops/activations.py
_OF_ATTENTION: dict[str, int | str] = {
    "heads": 16, "kv_heads": "heads", "queries": 4096, "keys": "queries", "head_size": 128
}  # fmt: skip
# The sizes that an op has, and what they are by default: a number, or another size.
_SIZES: dict[str, dict[str, int | str]] = {
    **{op: {"m": 4096, "n": 4096, "k": 4096} for op in PRODUCTS},
    "gemm_gemm": {"m": 4096, "k": 4096, "h": 256, "n": 4096},
    "attention": _OF_ATTENTION,
    "scaled_attention": _OF_ATTENTION,
}
# Which ops take an option that not all take.
TAKES = {
    "bias": ("gemm", "linear", "gemm_gemm", "scaled_mm"),
    "activation": ("gemm", "linear", "gemm_gemm"),
    "residual": ("gemm", "linear", "gemm_gemm"),
    "multiply": ("gemm",),
    "gate": ("gemm", "gemm_gemm"),
    "causal": ("attention", "scaled_attention"),
    "window": ("attention",),
    "softcap": ("attention",),
    "sinks": ("attention",),
    "alibi": ("attention",),
    "dropout": ("attention",),
    "packed": ("attention",),
    "pages": ("attention",),
    "mask": ("attention",),
    "backward": ("matmul", "gemm", "linear", "attention"),
    "batch": ("matmul", "baddbmm", "gemm", "linear", "gemm_gemm", "scaled_mm", "attention", "scaled_attention"),
    "out_dtype": ("matmul", "addmm", "baddbmm", "gemm", "gemm_gemm", "scaled_mm", "scaled_attention"),
    "a_columns": (*PRODUCTS, "gemm_gemm"),
    "b_columns": (*(op for op in PRODUCTS if op != "linear"), "gemm_gemm"),
}


def add_options(parser, dtype: str | None = "float16", types: str = "float16 (default), bfloat16, …") -> None:
    """What a call is made of, but its sizes."""
    parser.add_argument("--dtype", type=DTYPES, default=dtype, metavar="TYPE", help=types)
    parser.add_argument("--out-dtype", type=OUT_DTYPES, metavar="TYPE", help="the result's type")
    parser.add_argument("--batch", type=size, metavar="B", help="a batch of B products")
    parser.add_argument("--activation", metavar="NAME", help=", ".join(ACTIVATIONS))
    parser.add_argument("--bias", action="store_true", help="add a bias")
    parser.add_argument("--residual", action="store_true", help="add a matrix: linear's residual, gemm's c")
    parser.add_argument("--multiply", action="store_true", help="multiply by a matrix (gemm)")
    parser.add_argument("--a-columns", action="store_true", help="A is column-major")
    parser.add_argument("--b-columns", action="store_true", help="B is column-major, as a linear layer's weight")


def add_sizes(parser) -> None:
    """The sizes of every op, and the options that products alone do not have."""
    products = parser.add_argument_group("sizes of products: A is M×K, B is K×N; gemm_gemm goes from K over H to N")
    for name, what in (("m", "4096"), ("k", "4096"), ("n", "4096"), ("h", "256")):
        products.add_argument(f"--{name}", type=size, metavar="SIZE", help=f"{what} by default")
    products.add_argument(
        "--gate", action="store_true", help="multiply by A times a gate; of gemm_gemm what is between"
    )
    attention = parser.add_argument_group("sizes of attention")
    attention.add_argument("--heads", type=size, metavar="COUNT", help="of the queries; 16 by default")
    attention.add_argument("--kv-heads", type=size, metavar="COUNT", help="of keys and values; as many by default")
    attention.add_argument("--queries", type=size, metavar="LENGTH", help="4096 by default")
    attention.add_argument("--keys", type=size, metavar="LENGTH", help="as many as queries by default")
    attention.add_argument("--head-size", type=size, metavar="SIZE", help="128 by default")
    attention.add_argument("--causal", action="store_true", help="a query sees no later key")
    attention.add_argument(
        "--window", type=int, nargs=2, metavar=("LEFT", "RIGHT"), help="keys seen beside a query's own; -1: all"
    )
    attention.add_argument("--softcap", type=float, metavar="CAP", help="scores are CAP·tanh(score/CAP)")
    attention.add_argument("--sinks", action="store_true", help="one more score for each of a head's rows")
    attention.add_argument("--alibi", action="store_true", help="scores fall with the keys' distance")
    attention.add_argument("--dropout", type=float, metavar="SHARE", help="of the weights")
    attention.add_argument("--packed", action="store_true", help="the batch's sequences in one row (varlen_attention)")
    attention.add_argument("--pages", type=size, metavar="SIZE", help="the same, with keys in pages of SIZE")
    attention.add_argument(
        "--mask",
        choices=MASKS,
        help="of keys that are there, of pairs that count, or of numbers, of each head, that are added",
    )
    attention.add_argument("--backward", action="store_true", help="the gradients instead; matmul, gemm and linear too")
    attention.add_argument(
        "--unordered", action="store_true", help="sums may be in any order (wmma_ops.allow_unordered_sums)"
    )


def called(options) -> str:
    """The op that a call is of: attention of packed sequences has a name of its own."""
    packed = getattr(options, "packed", False) or getattr(options, "pages", None)
    return "varlen_attention" if options.op == "attention" and packed else options.op


def sizes_of(op: str, options) -> dict[str, int]:
    """The sizes of an op as its options say, those that are not said by default."""
    others = {name for known in _SIZES.values() for name in known} - set(_SIZES[op])
    if wrong := sorted(name for name in others if getattr(options, name, None) is not None):
        takes = " ".join(f"--{name.replace('_', '-')}" for name in ("batch", *_SIZES[op]) if op in _takes(name))
        raise ValueError(f"{op} has no --{wrong[0].replace('_', '-')}; its sizes are {takes}")
    found: dict[str, int] = {}
    for name, default in _SIZES[op].items():
        said = getattr(options, name)
        found[name] = said if said is not None else found[default] if isinstance(default, str) else default
    return found


def _takes(option: str) -> tuple[str, ...]:
    return TAKES.get(option, OPS)


def add_shape(parser, several: bool = False) -> None:
    """The sizes of products alone; `several`: each may have several values, one for each product."""
    more, count = (", or several, one for each product", "+") if several else ("", None)
    sizes = parser.add_argument_group("sizes of a product: A is M×K, B is K×N")
    for name in "mnk":
        sizes.add_argument(f"--{name}", type=size, nargs=count, metavar="SIZE", help=f"4096 by default{more}")


def shape_of(command: str, options) -> tuple[int, int, int]:
    """M, N and K of a product, in the options of `add_shape` or, deprecated, by their places."""
    if not options.places:
        found = sizes_of(options.op, options)
        return found["m"], found["n"], found["k"]
    if len(options.places) != 3 or any(getattr(options, name) for name in "mnk"):
        raise ValueError(f"sizes came by place: {' '.join(map(str, options.places))}; takes --m M --n N --k K")
    _deprecated(command, " ".join(map(str, options.places)), [options.places])
    return tuple(options.places)


def shapes_of(command: str, options) -> list[tuple[int, int, int]]:
    """The same of several products; none where no size was named."""
    named = {name: getattr(options, name) for name in "mnk"}
    if options.places:
        if any(named.values()):
            raise ValueError(f"sizes came by place as well: {_by_x(options.places)}; takes --m M … --n N … --k K …")
        _deprecated(command, _by_x(options.places), options.places)
        return options.places
    count = max((len(values) for values in named.values() if values), default=0)
    if wrong := [name for name, values in named.items() if values and len(values) not in (1, count)]:
        raise ValueError(f"--{wrong[0]} has {len(named[wrong[0]])} sizes; takes one, or {count} as another size has")
    default = _SIZES[options.op]
    columns = [
        values * (count // len(values)) if (values := named[name]) else [default[name]] * count for name in "mnk"
    ]
    return list(zip(*columns, strict=True))


def _by_x(shapes: Sequence[tuple[int, ...]]) -> str:
    return " ".join("x".join(map(str, shape)) for shape in shapes)


def _deprecated(command: str, said: str, shapes: Sequence[Sequence[int]]) -> None:
    columns = [column if len(set(column)) > 1 else column[:1] for column in zip(*shapes, strict=True)]
    named = (f"--{name} {' '.join(map(str, column))}" for name, column in zip("mnk", columns, strict=True))
    print(f"{command}: sizes as {said} are deprecated; write {' '.join(named)}", file=sys.stderr)


def size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; takes 1, 2, 3, …")
    return int(text)


def product(text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; takes MxNxK, such as 4096x4096x4096")
    return tuple(map(size, sizes))


def extent(text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if len(sizes) > 3:
        raise argparse.ArgumentTypeError(f"{text!r} is no grid or block; takes one to three sizes, such as 8x4")
    return tuple(map(size, sizes))


# A kernel's arguments as one types them, which values.py reads.
VALUE_TYPES = {
    "f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "bool": "bool",
    "i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64",
    "u8": "uint8", "u16": "uint16", "u32": "uint32", "u64": "uint64",
    "e4m3": "float8_e4m3fn", "e5m2": "float8_e5m2", "e4m3fnuz": "float8_e4m3fnuz", "e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
VALUES = (
    "NUMBER as i32:5, f32:0.5, bf16:1 (types: "
    + " ".join(VALUE_TYPES)
    + "); a tensor as bf16[128,64]=random, zeros (default), "
    "ones, arange, nan or a number; x.npy, or bf16:x.npy, which converts; null; hex:00ff…, bytes; "
    "'struct(ARG, …)'; each by its place, or as NAME=ARG"
)
