"""How a call may be spread over one dimension of a device mesh: for each op a list of offers.

A rule names the dimensions of every tensor ("rows", "columns", "batch 0" …) and says which of them may be divided. What is
right follows from the names: a tensor that has the dimension is sharded along it, one that lacks it (or repeats along it) is
replicated, and a result that lacks it is a partial sum. Partial sums are offered where the result is linear in the divided
product: never before an activation. What is added to the product (C, bias, residual) is then a partial sum as well, so that
it enters the total once; of a replicated one, each of n devices takes the n-th part.

Each device rounds its partial sum to the result's type before they are added up, as in torch's own products; with
``out_dtype=torch.float32`` the sums stay as wide as the accumulator. Partial sums in integers are offered where they are
exact: int8 saturates, and int32 rounds wherever a factor may enter.

The rules depend on shapes, types and codes alone, never on alpha, beta or scale: DTensor remembers a choice by the former.
"""

import itertools
import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch.distributed.tensor import Partial, Placement, Replicate, Shard

from wmma_ops.ops import score_functions
from wmma_ops.ops.attention_call import tensors_of
from wmma_ops.ops.sizes import is_matrix_scale
from wmma_ops.ops.types import OUTPUTS

# The names of a tensor's dimensions; None for one of size 1, which repeats.
Names = tuple[str | None, ...]


class Operand(NamedTuple):
    """What a rule may know of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype


Operands = dict[str, Operand | None]


@dataclass(frozen=True)
class Offer:
    """One way to spread a call, with placements in the schema's order (None for a tensor that is missing)."""

    name: str
    outputs: tuple[Placement, ...]
    inputs: tuple[Placement | None, ...]


def offers(op: str, operands: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    """The ways to spread a call of `op`. `operands` holds all its tensors, `mesh` the sizes of the mesh's dimensions."""
    if op in _PRODUCTS:
        return _product(op, operands, scalars)
    rule = {
        "gemm_gemm": _two_products,
        "attention": _attention,
        "_attention_backward": _attention_backward,
        "scaled_attention": _scaled_attention,
        "varlen_attention": _varlen_attention,
        "_varlen_attention_backward": _varlen_attention_backward,
        "kv_append": _kv_append,
    }[op]
    return rule(operands, scalars, mesh)


def _offers(
    inputs: dict[str, Names | None], outputs: list[Names], divided: Names, added: tuple[str, ...] = ()
) -> list[Offer]:
    """An offer for every name in `divided` that occurs; the arguments in `added` are partial sums where a result is."""
    replicate = tuple(None if names is None else Replicate() for names in inputs.values())
    found = [Offer("replicate", tuple(Replicate() for _ in outputs), replicate)]
    for name in divided:
        if not any(name in names for names in inputs.values() if names):
            continue
        results = tuple(Shard(names.index(name)) if name in names else Partial() for names in outputs)
        placements = []
        for argument, names in inputs.items():
            if names is None:
                placements.append(None)
            elif name in names:
                placements.append(Shard(names.index(name)))
            else:
                placements.append(Partial() if argument in added and Partial() in results else Replicate())
        found.append(Offer(name, results, tuple(placements)))
    return found


def _along(x: Operand | None, names: Names) -> Names | None:
    """The names of the dimensions of x, which broadcasts to `names`."""
    if x is None:
        return None
    tail = names[len(names) - len(x.shape) :]
    return tuple(None if size == 1 else name for name, size in zip(tail, x.shape, strict=True))


def _whole(x: Operand | None) -> Names | None:
    """What every device needs as it is."""
    return None if x is None else (None,) * len(x.shape)


def _result(names: Names, inputs: dict[str, Names | None]) -> Names:
    """The names of a result's dimensions: what no input has is of size 1."""
    known = {name for x in inputs.values() if x is not None for name in x}
    return tuple(name if name in known else None for name in names)


def _batch(*operands: Operand) -> Names:
    return tuple(f"batch {i}" for i in range(max(len(x.shape) for x in operands) - 2))


def _adds_up(op: str, first: Operand, scalars: dict, default: torch.dtype | None = None) -> bool:
    """Whether the results of parts of a product are parts of the result."""
    out = scalars.get("out_dtype") or default or OUTPUTS[first.dtype][0]
    exact = out.is_floating_point or (op == "matmul" and out == torch.int32)
    return exact and scalars.get("activation", 0) == 0


# D = act(α·(pro(A)·B + A2·B2)·row_scale·col_scale + β·C + bias)·multiply, and the ops that are a part of it

# What each argument broadcasts to.
_PRODUCTS = {
    "matmul": {"a": "a", "b": "b"},
    "addmm": {"input": "result", "a": "a", "b": "b"},
    "addmm_": {"input": "result", "a": "a", "b": "b"},
    "baddbmm": {"input": "result", "a": "a", "b": "b"},
    "gemm": {"a": "a", "b": "b", "c": "result", "bias": "columns"}
    | {"row_scale": "rows", "col_scale": "columns", "a_scale": "sum", "multiply": "result", "a2": "a", "b2": "b"}
    | {"gate": "b", "gate_bias": "columns"},
    "linear": {"x": "a", "weight": "weight", "bias": "columns", "residual": "result"},
    "scaled_mm": {"a": "a", "b": "b", "scale_a": "rows", "scale_b": "columns", "bias": "columns"},
}
_ADDED = ("input", "c", "bias", "residual")
# Scales that may have a dimension of one more: of which operand they are, and which dimension it is.
_SCALES = {"scale_a": ("a", -1), "scale_b": ("b", -2)}


def _product(op: str, t: Operands, scalars: dict) -> list[Offer]:
    roles = _PRODUCTS[op]
    operands = [t[argument] for argument, role in roles.items() if role in ("a", "b", "weight")]
    a, b = operands[:2]
    batch = _batch(*(x for x in operands if x is not None))
    rows = ("rows",) if len(a.shape) > 1 else ()
    columns = ("columns",) if len(b.shape) > 1 else ()
    names = {
        "a": (*batch, *rows, "sum"),
        "b": (*batch, "sum", *columns),
        "weight": ("columns", "sum"),
        "rows": (*batch, *rows),
        "columns": (*batch, *columns),
        "sum": (*batch, "sum"),
        "result": (*batch, *rows, *columns),
    }
    in_place = op == "addmm_"
    inputs = {}
    for argument, role in roles.items():
        if argument in _SCALES:
            operand, one = _SCALES[argument]
            inputs[argument] = _scale(t[argument], t[operand], names[role], one)
        else:
            inputs[argument] = _along(t[argument], names[role])

    default = t["input"].dtype if in_place else torch.bfloat16 if op == "scaled_mm" else None
    # A multiplier may be infinite, and infinity times a part of the sum that is 0 is not a part of the result.
    is_factor = t.get("multiply") is not None or t.get("gate") is not None
    adds_up = not is_factor and _adds_up(op, a, scalars, default) and _both_divide(a, t.get("a2"))
    divided = (*batch, "rows", "columns", *(("sum",) if adds_up else ()))
    if in_place:
        return _in_place(inputs, divided)
    return _offers(inputs, [_result(names["result"], inputs)], divided, _ADDED)


def _both_divide(a: Operand, a2: Operand | None) -> bool:
    """Whether what both pairs sum up can be divided: a length of 1 would be summed up on every device."""
    return a2 is None or (a.shape[-1] != 1 and a2.shape[-1] != 1)


def _in_place(inputs: dict[str, Names | None], divided: Names) -> list[Offer]:
    """The result is the first argument, which therefore takes its placement."""
    first = next(iter(inputs))
    found = _offers(inputs, [inputs[first]], divided, (first,))
    return [Offer(offer.name, (), offer.inputs) for offer in found]


def _scale(x: Operand, operand: Operand, names: Names, one: int) -> Names:
    """The names of a scale's dimensions, `one` among them or not."""
    if math.prod(x.shape) == 1:
        return (None,) * len(x.shape)
    if not is_matrix_scale(x.shape, operand.shape, one):
        return _along(x, names)
    at = len(x.shape) + one
    short = _along(Operand(x.shape[:at] + x.shape[at + 1 :], x.dtype), names)
    return (*short[:at], None, *short[at:])


# D1 = α1·D0·B1 + β1·C + bias1 with D0 = act(α0·A·B0 + bias0)·(A·gate)


def _two_products(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    batch = _batch(t["a"], t["b0"], t["b1"])
    result = (*batch, "rows", "columns")
    names = {
        "a": (*batch, "rows", "inner"),
        "b0": (*batch, "inner", "hidden"),
        "b1": (*batch, "hidden", "columns"),
        "c": result,
        "bias0": (*batch, "hidden"),
        "bias1": (*batch, "columns"),
        "gate": (*batch, "inner", "hidden"),
    }
    inputs = {argument: _along(t[argument], names[argument]) for argument in names}
    # The activation stands before the sum over H, so it may stay.
    adds_up = _adds_up("gemm_gemm", t["a"], {"out_dtype": scalars.get("out_dtype")})
    divided = (*batch, "rows", "columns", *(("hidden",) if adds_up else ()))
    return _offers(inputs, [_result(result, inputs)], divided, ("c", "bias1"))


# out = softmax(scale·Q·Kᵀ + mask)·V and its log-sum-exp


def _attention_names(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> tuple[dict[str, Names | None], Names]:
    """The names of every tensor's dimensions and which of them may be divided."""
    q, k = t["q"], t["k"]
    rank = len(q.shape)
    batch = tuple(f"batch {i}" for i in range(rank - 3))
    heads = ("heads",) if rank > 2 else ()
    outer = (*batch, *heads)
    names = {
        "q": _along(q, (*outer, "queries", "size")),
        "k": _along(k, (*outer, "keys", "size")),
        "v": _along(t["v"], (*outer, "keys", "value size")),
        "mask": _along(t.get("mask"), (*outer, "queries", "keys")),
        "sinks": _along(t.get("sinks"), outer),
        "alibi_slopes": _along(t.get("alibi_slopes"), outer),
        "dropout_seed": _whole(t.get("dropout_seed")),
        "block_mask": _along(t.get("block_mask"), (*outer, "blocks of queries", "blocks of keys")),
        "out": _along(q, (*outer, "queries", "value size")),
        "lse": _along(Operand(q.shape[:-1], q.dtype), (*outer, "queries")),
    }
    names["g_out"], names["g_lse"] = names["out"], names["lse"] if t.get("g_lse") is not None else None
    names |= {argument: _whole(t.get(argument)) for argument in score_functions.ARGUMENTS}
    if _has_functions(scalars):
        return names, ()
    # Where the first query stands among the keys is taken from the lengths.
    placed = scalars.get("is_causal", 0) or max(scalars.get(f"window_{side}", -1) for side in ("left", "right")) >= 0
    placed = placed or any(t.get(x) is not None for x in ("alibi_slopes", "block_mask"))
    queries = () if placed else ("queries",)
    divide = heads and _heads_divide(q.shape[-3], k.shape[-3], mesh)
    # What is dropped is told by indices of the whole.
    divided = () if t.get("dropout_seed") is not None else (*batch, *(heads if divide else ()), *queries)
    return names, divided


def _has_functions(scalars: dict) -> bool:
    """Which count batches, heads and rows from the first."""
    return any(scalars.get(function, 0) for function in ("score_mod", "mask_mod"))


def _heads_divide(q_heads: int, kv_heads: int, mesh: tuple[int, ...]) -> bool:
    """Whether every device gets the key heads of its query heads: equally many, one, or in every division whole groups."""
    if q_heads == kv_heads or kv_heads == 1:
        return True
    ways = {math.prod(part) for n in range(len(mesh)) for part in itertools.combinations(mesh, n + 1)}
    return all(kv_heads % way == 0 for way in ways if way <= kv_heads)


def _attention(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    names, divided = _attention_names(t, scalars, mesh)
    return _offers({x: names[x] for x in tensors_of("attention")}, [names["out"], names["lse"]], divided)


def _attention_backward(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    names, divided = _attention_names(t, scalars, mesh)
    inputs = {x: names[x] for x in tensors_of("_attention_backward")}
    return _offers(inputs, [names["q"], names["k"], names["v"]], divided)


def _scaled_attention(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    names, divided = _attention_names(t, scalars, mesh)
    outer = names["lse"][:-1]
    inputs = {x: names[x] for x in ("q", "k", "v")} | {
        x: _along(t.get(x), outer) for x in ("scale_q", "scale_k", "scale_v")
    }
    return _offers(inputs, [names["out"], names["lse"]], divided)


def _varlen_names(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> tuple[dict[str, Names | None], Names]:
    """By heads alone: where a token's sequence is, every device would have to know of all."""
    keys = ("keys",) if t.get("block_table") is None else ("pages", "keys")
    names = {
        "query": ("queries", "heads", "size"),
        "key": (*keys, "heads", "size"),
        "value": (*keys, "heads", "value size"),
        "cu_seq_q": ("ends",),
        "cu_seq_k": ("ends",),
        "sinks": ("heads",),
        "alibi_slopes": ("heads",),
        "seqused_k": ("sequences",),
        "block_table": ("sequences", "columns"),
        "k_descale": ("sequences", "heads"),
        "v_descale": ("sequences", "heads"),
        "block_mask": ("sequences", "heads", "blocks of queries", "blocks of keys"),
    }
    found = {argument: _along(t.get(argument), of) for argument, of in names.items()}
    query, key = t["query"], t["key"]
    found["out"] = found["g_out"] = _along(query, ("queries", "heads", "value size"))
    found["lse"] = _along(Operand(query.shape[1::-1], query.dtype), ("heads", "queries"))
    found["g_lse"] = None if t.get("g_lse") is None else found["lse"]
    found |= {argument: _whole(t.get(argument)) for argument in ("dropout_seed", *score_functions.ARGUMENTS)}
    counts = found["dropout_seed"] is not None or _has_functions(scalars)
    divide = not counts and _heads_divide(query.shape[1], key.shape[-2], mesh)
    return found, ("heads",) if divide else ()


def _varlen_attention(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    names, divided = _varlen_names(t, scalars, mesh)
    return _offers({x: names[x] for x in tensors_of("varlen_attention")}, [names["out"], names["lse"]], divided)


def _varlen_attention_backward(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    names, divided = _varlen_names(t, scalars, mesh)
    inputs = {x: names[x] for x in tensors_of("_varlen_attention_backward")}
    return _offers(inputs, [names["query"], names["key"], names["value"]], divided)


# New keys and values into pages


def _kv_append(t: Operands, scalars: dict, mesh: tuple[int, ...]) -> list[Offer]:
    """By heads alone, as attention reads the pages."""
    names = {
        "key": ("tokens", "heads", "size"),
        "value": ("tokens", "heads", "value size"),
        "key_pages": ("pages", "keys", "heads", "size"),
        "value_pages": ("pages", "keys", "heads", "value size"),
        "k_descale": ("sequences", "heads"),
        "v_descale": ("sequences", "heads"),
    }
    inputs = {x: _along(t[x], names[x]) if x in names else _whole(t[x]) for x in t}
    return _offers(inputs, [], ("heads",))
