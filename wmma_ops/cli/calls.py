"""A call of an op from its sizes alone, for the command line."""

import dataclasses
from collections.abc import Callable

import torch

import wmma_ops
from wmma_ops.cli.arguments import TAKES, called
from wmma_ops.ops import activations
from wmma_ops.ops.errors import translate
from wmma_ops.ops.order import allow_unordered_sums
from wmma_ops.ops.types import OUTPUTS, accumulator
from wmma_ops.ops.types import name as type_name


def call(op: str, sizes: dict[str, int], options, device: str | None = None) -> tuple[tuple, dict]:
    """The arguments and keywords of a call on contiguous tensors; without a device on the CPU, their memory untouched."""
    for name, takes in TAKES.items():
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
    if getattr(options, "backward", False):  # not every command takes it
        return _product_gradients(op, a, n, options, tensor)
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
    keywords |= {"gate": tensor(*batch, k, n, columns=options.b_columns)} if getattr(options, "gate", False) else {}
    return (a, b), keywords


def function(options) -> Callable:
    """What takes them: the op, or the raw one of its gradients."""
    op = called(options)
    if not options.backward:
        return getattr(wmma_ops, op)
    raw = getattr(torch.ops.wmma, f"_{'gemm' if op == 'matmul' else op}_backward")

    def gradients(*arguments, **keywords) -> tuple[torch.Tensor, ...]:
        try:
            return raw(*arguments, **keywords)
        except RuntimeError as error:
            raise translate(op, error, {}) from None

    return gradients


def _product_gradients(op: str, a: torch.Tensor, n: int, options, tensor) -> tuple[tuple, dict]:
    """A call of the gradients of a product of `a` and n columns, as the raw op takes it."""
    for beside in ("multiply", "gate"):
        if getattr(options, beside, False):
            raise ValueError(f"gemm has no --backward with --{beside}; its gradients are several calls")
    *batch, m, k = a.shape
    b = tensor(n, k) if op == "linear" else tensor(*batch, k, n, columns=options.b_columns)
    g = tensor(*batch, m, n)
    keywords = {"bias_dtype": g.dtype} if options.bias else {}
    if not options.activation:
        return (g, a, b), keywords
    keywords["activation"] = activations.code(op, "activation", options.activation)
    return (g, a, b, tensor(*batch, m, n)), keywords | ({"of_s": True} if options.residual else {})


def _attention(batch, heads, kv_heads, queries, keys, head_size, *, options, tensor) -> tuple[tuple, dict]:
    """A call of attention, or of its gradients, as the raw op takes it."""
    q = tensor(*batch, heads, queries, head_size)
    k, v = (tensor(*batch, kv_heads, keys, head_size) for _ in "kv")
    keywords = {"is_causal": options.causal} | _rules(heads, kv_heads, q, options, tensor)
    if options.mask:
        shape = {"padding": (*batch, 1, 1, keys), "bool": (*batch, 1, queries, keys), "numbers": (heads, queries, keys)}
        keywords["mask"] = tensor(*shape[options.mask], of=q.dtype if options.mask == "numbers" else torch.bool)
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
    if options.mask:
        raise ValueError("attention has no --mask with --packed or --pages; takes --window and --causal there")
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
    return {key: type_name(x) if isinstance(x, torch.dtype) else x for key, x in fields.items() if key != "device"}
