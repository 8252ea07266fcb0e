"""A call of an op from its sizes alone, for the command line."""

import argparse
import dataclasses

import torch

from wmma_ops.ops import activations
from wmma_ops.ops.order import allow_unordered_sums
from wmma_ops.ops.types import OUTPUTS, accumulator
from wmma_ops.ops.types import name as type_name

DTYPES = tuple(map(type_name, OUTPUTS))
PRODUCTS = ("matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "scaled_mm")
OPS = (*PRODUCTS, "gemm_gemm", "attention", "scaled_attention")
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
_TAKES = {
    "bias": ("gemm", "linear", "gemm_gemm", "scaled_mm"),
    "activation": ("gemm", "linear", "gemm_gemm"),
    "residual": ("gemm", "linear", "gemm_gemm"),
    "multiply": ("gemm",),
    "gate": ("gemm_gemm",),
    "causal": ("attention", "scaled_attention"),
    "window": ("attention",),
    "softcap": ("attention",),
    "sinks": ("attention",),
    "alibi": ("attention",),
    "dropout": ("attention",),
    "packed": ("attention",),
    "pages": ("attention",),
    "backward": ("attention",),
    "batch": ("matmul", "baddbmm", "gemm", "linear", "gemm_gemm", "scaled_mm", "attention", "scaled_attention"),
    "out_dtype": ("matmul", "addmm", "baddbmm", "gemm", "gemm_gemm", "scaled_mm", "scaled_attention"),
    "a_columns": (*PRODUCTS, "gemm_gemm"),
    "b_columns": (*(op for op in PRODUCTS if op != "linear"), "gemm_gemm"),
}


def add_options(parser, dtype: str | None = "float16", types: str = "float16 (default), bfloat16, …") -> None:
    """What a call is made of, but its sizes."""
    parser.add_argument("--dtype", choices=DTYPES, default=dtype, metavar="TYPE", help=types)
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


def add_sizes(parser) -> None:
    """The sizes of every op, and the options that products alone do not have."""
    products = parser.add_argument_group("sizes of products: A is M×K, B is K×N; gemm_gemm goes from K over H to N")
    for name, what in (("m", "4096"), ("k", "4096"), ("n", "4096"), ("h", "256")):
        products.add_argument(f"--{name}", type=size, metavar="SIZE", help=f"{what} by default")
    products.add_argument("--gate", action="store_true", help="multiply what is between by A times a gate (gemm_gemm)")
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
    attention.add_argument("--backward", action="store_true", help="the gradients instead")
    attention.add_argument(
        "--unordered", action="store_true", help="sums may be in any order (wmma_ops.allow_unordered_sums)"
    )


def called(options) -> str:
    """The op that a call is of: attention of packed sequences has a name of its own."""
    packed = getattr(options, "packed", False) or getattr(options, "pages", None)
    return "varlen_attention" if options.op == "attention" and packed else options.op


def sizes(op: str, options) -> dict[str, int]:
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
    return _TAKES.get(option, OPS)


def size(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; takes 1, 2, 3, …")
    return int(text)


def shape(text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError(f"{text!r} is no shape; takes MxNxK, such as 4096x4096x4096")
    return tuple(map(size, sizes))


def extent(text: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if len(sizes) > 3:
        raise argparse.ArgumentTypeError(f"{text!r} is no grid or block; takes one to three sizes, such as 8x4")
    return tuple(map(size, sizes))


def call(op: str, sizes: dict[str, int], options, device: str | None = None) -> tuple[tuple, dict]:
    """The arguments and keywords of a call on contiguous tensors; without a device on the CPU, their memory untouched."""
    for name, takes in _TAKES.items():
        if getattr(options, name, None) and op not in takes:
            have = f"{', '.join(takes)} {'has' if len(takes) == 1 else 'have'} one"
            raise ValueError(f"{op} has no --{name.replace('_', '-')}; {have}")
    dtype = getattr(torch, options.dtype)
    out = getattr(torch, options.out_dtype) if options.out_dtype else None
    beside = out or (torch.bfloat16 if op == "scaled_mm" else OUTPUTS[dtype][0])
    batch = [options.batch or 1] if options.batch or op in ("baddbmm", "attention", "scaled_attention") else []

    def tensor(*shape: int, of: torch.dtype = dtype, columns: bool = False) -> torch.Tensor:
        shape = shape[:-2] + shape[:-3:-1] if columns else shape
        if device is None:
            made = torch.empty(shape, dtype=of)
        elif of.is_floating_point:
            made = torch.randn(shape, device=device).to(of)
        else:
            made = torch.randint(-100, 100, shape, dtype=of, device=device)
        return made.mT if columns else made

    if op == "attention":
        allow_unordered_sums(options.unordered)
        make = _attention if called(options) == op else _varlen_attention
        return make(batch, **sizes, options=options, tensor=tensor)
    keywords = {"out_dtype": out} if out else {}
    if op == "scaled_attention":
        arguments, rules = _scaled_attention(batch, **sizes, options=options, tensor=tensor)
        return arguments, rules | keywords
    if options.activation:
        keywords["activation"] = options.activation
    m, n, k = sizes["m"], sizes["n"], sizes["k"]
    a = tensor(*batch, m, k, columns=options.a_columns)
    if op == "linear":
        keywords["residual"] = tensor(*batch, m, n, of=beside) if options.residual else None
        return (a, tensor(n, k), tensor(n, of=beside) if options.bias else None), keywords
    if op == "gemm_gemm":
        h = sizes["h"]
        b0, b1 = (tensor(*batch, *shape, columns=options.b_columns) for shape in ((k, h), (h, n)))
        keywords |= {"gate": tensor(*batch, k, h, columns=options.b_columns)} if options.gate else {}
        keywords |= {"bias0": tensor(h, of=beside)} if options.bias else {}
        keywords |= {"c": tensor(*batch, m, n, of=beside)} if options.residual else {}
        return (a, b0, b1), keywords
    b = tensor(*batch, k, n, columns=options.b_columns)
    if op in ("addmm", "addmm_", "baddbmm"):
        return (tensor(*batch, m, n, of=beside), a, b), keywords
    if op == "scaled_mm":
        scales = torch.ones(m, device=device), torch.ones(n, device=device)
        return (a, b, *scales), keywords | ({"bias": tensor(n, of=beside)} if options.bias else {})
    keywords |= {"bias": tensor(n, of=beside)} if options.bias else {}
    keywords |= {"c": tensor(*batch, m, n, of=beside)} if options.residual else {}
    keywords |= {"multiply": tensor(*batch, m, n, of=beside)} if options.multiply else {}
    return (a, b), keywords


def _attention(batch, heads, kv_heads, queries, keys, head_size, *, options, tensor) -> tuple[tuple, dict]:
    """A call of attention, or of its gradients, as the raw op takes it."""
    q = tensor(*batch, heads, queries, head_size)
    k, v = (tensor(*batch, kv_heads, keys, head_size) for _ in "kv")
    keywords = {"is_causal": options.causal} | _rules(heads, kv_heads, q, options, tensor)
    window = options.window or (-1, -1)
    if not options.backward:
        return (q, k, v), keywords | ({"window": tuple(window)} if options.window else {})
    lse = tensor(*batch, heads, queries, of=accumulator(q.dtype))
    keywords |= {"is_causal": int(options.causal), "window_left": window[0], "window_right": window[1]}
    return (torch.empty_like(q), q, k, v, torch.empty_like(q), lse), keywords


def _scaled_attention(batch, heads, kv_heads, queries, keys, head_size, *, options, tensor) -> tuple[tuple, dict]:
    q = tensor(*batch, heads, queries, head_size)
    k, v = (tensor(*batch, kv_heads, keys, head_size) for _ in "kv")
    scales = (tensor(*batch, count, of=torch.float32) for count in (heads, kv_heads, kv_heads))
    return (q, k, v, *scales), {"is_causal": options.causal, "enable_gqa": kv_heads != heads}


def _varlen_attention(batch, heads, kv_heads, queries, keys, head_size, *, options, tensor) -> tuple[tuple, dict]:
    """A call of packed sequences, equally long, or of their gradients, as the raw op takes it."""
    if options.pages and options.backward:
        raise ValueError("attention has no --backward with --pages; keys in pages have no gradients")
    (count,) = batch
    query = tensor(count * queries, heads, head_size)
    keywords = _rules(heads, kv_heads, query, options, tensor)
    left, right = options.window or (-1, -1)
    right = 0 if options.causal else right
    numbers = {"dtype": torch.int32, "device": query.device}
    ends, key_ends = (torch.arange(count + 1, **numbers) * length for length in (queries, keys))
    if options.pages:
        columns = -(-keys // options.pages)
        key, value = (tensor(count * columns, options.pages, kv_heads, head_size) for _ in "kv")
        table = torch.arange(count * columns, **numbers).view(count, columns)
        keywords |= {"block_table": table, "seqused_k": torch.full((count,), keys, **numbers)}
        key_ends = None
    else:
        key, value = (tensor(count * keys, kv_heads, head_size) for _ in "kv")
    if not options.backward:
        arguments = (query, key, value, ends, key_ends, queries, keys)
        return arguments, keywords | {"window_size": (left, right)}
    lse = tensor(heads, count * queries, of=accumulator(query.dtype))
    keywords |= {"max_q": queries, "max_k": keys, "window_left": left, "window_right": right}
    return (torch.empty_like(query), query, key, value, torch.empty_like(query), lse, ends, key_ends), keywords


def _rules(heads, kv_heads, q, options, tensor) -> dict:
    """What attention of either kind may be told beside its tensors."""
    keywords = {"enable_gqa": kv_heads != heads}
    for name, wanted in (("sinks", options.sinks), ("alibi_slopes", options.alibi)):
        keywords |= {name: tensor(heads, of=accumulator(q.dtype))} if wanted else {}
    keywords |= {"softcap": options.softcap} if options.softcap else {}
    if options.dropout:
        keywords |= {"dropout_p": options.dropout, "dropout_seed": torch.zeros(1, dtype=torch.int64, device=q.device)}
    return keywords


def plain(record) -> dict:
    """A problem or a configuration as JSON has it."""
    fields = dataclasses.asdict(record)
    return {key: type_name(x) if isinstance(x, torch.dtype) else x for key, x in fields.items() if key != "place"}
