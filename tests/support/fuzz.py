"""Calls of every op of the library, drawn at random by its schema: each gives a value, or one line of ours.

    python tests/support/fuzz.py --calls 100000 --seed 3        # or --seconds 3600
    python tests/support/fuzz.py --seed 3 --only 4711           # one of them again

A call is that of its seed and its number alone. Most are nearly right: sizes, types and numbers that fit, of which a few are
exchanged for others. A part of them is planned for a GPU, as far as its kernels' arguments.
"""

import argparse
import contextlib
import itertools
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from wmma_ops.hardware import arch
from wmma_ops.ops import library
from wmma_ops.runtime import launching

FLOATS = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
EIGHTS = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)
TYPES = (*FLOATS, *EIGHTS, torch.int8, torch.int32, torch.int64, torch.bool, torch.uint8, torch.int16, torch.complex64)
SIZES = (0, 1, 1, 2, 3, 4, 5, 8, 16, 17, 32, 33, 48)
INTEGERS = (0, 1, -1, 2, 3, 7, 8, 16, 31, 32, 64, 255, 256, 1 << 31, -(1 << 31), 1 << 40, (1 << 63) - 1, -(1 << 63))
NUMBERS = (
    0.0,
    1.0,
    -1.0,
    0.5,
    -0.0,
    2.0,
    1e-320,
    1e38,
    1e300,
    -1e300,
    float("nan"),
    float("inf"),
    -float("inf"),
    2.0**63,
)
TOO_LARGE = 1 << 63  # torch's own to refuse
REGISTERED = 1 << 50  # codes that nothing else draws
TARGETS = tuple(arch.TARGETS)

# How an error of ours starts; torch's own parser names the op as well.
OURS = re.compile(r"wmma(_raw)?(\.\w+)?: \S|wmma(_raw)?::\w+\(\) (Expected a value of type|expected)")
PARSERS = ("Overflow when unpacking long", "Could not run 'wmma", "There were no tensor arguments to this function")
ANSWERS = ("wmma::_plan", "wmma::_emulate", "wmma::_score_function", "wmma::_registered_activation")
NEVER = ("INTERNAL ASSERT", "inner call", "please report", "Traceback")


@dataclass
class Draw:
    """The choices of one call."""

    random: random.Random
    memory: list[torch.Tensor] = field(default_factory=list)  # that others may view
    dtype: torch.dtype = torch.float32

    def often(self, share: float) -> bool:
        return self.random.random() < share

    def one(self, choices):
        return self.random.choice(choices)

    def size(self) -> int:
        return self.one(SIZES)

    def batch(self) -> tuple[int, ...]:
        return tuple(self.one((1, 2, 3, 0)) for _ in range(self.one((0, 0, 1, 1, 2))))

    def smaller(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """One that broadcasts to it."""
        return tuple(1 if self.often(0.2) else n for n in shape[self.one((0, 0, 0, 1)) :])

    def tensor(self, shape: tuple[int, ...], dtype: torch.dtype, device: str = "cpu") -> torch.Tensor:
        if device == "meta":
            return torch.empty(shape, dtype=dtype, device=device)
        x = self.laid_out(shape, dtype)
        if self.often(0.02):
            x = x.to_sparse() if x.dim() and dtype in FLOATS[:1] else x
        return x

    def laid_out(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        way = self.one(("plain", "plain", "plain", "turned", "sliced", "expanded", "offset", "overlapping", "shared"))
        rank = len(shape)
        if way == "turned" and rank > 1:
            i, j = self.random.sample(range(rank), 2)
            other = list(shape)
            other[i], other[j] = other[j], other[i]
            return self.filled(tuple(other), dtype).transpose(i, j)
        if way == "sliced" and rank:
            i = self.random.randrange(rank)
            wide = tuple(n * 2 + 1 if j == i else n for j, n in enumerate(shape))
            return self.filled(wide, dtype)[(slice(None),) * i + (slice(1, None, 2),)]
        if way == "expanded" and rank:
            return self.filled(tuple(1 if self.often(0.5) else n for n in shape), dtype).expand(shape)
        count = 1
        for n in shape:
            count *= n
        if way == "offset":
            at = self.one((1, 2, 3, 7))
            return self.filled((count + at,), dtype)[at:].view(shape)
        if way == "overlapping" and count:
            strides = [self.one((0, 1, 2, 3)) for _ in shape]
            reach = 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
            return self.filled((reach,), dtype).as_strided(shape, strides)
        if way == "shared":
            fits = [x for x in self.memory if x.dtype == dtype and x.numel() >= count]
            if fits:
                base = self.one(fits)
                at = self.random.randint(0, min(base.numel() - count, 64))
                return base[at : at + count].view(shape)
        return self.filled(shape, dtype)

    def filled(self, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        count = 1
        for n in shape:
            count *= n
        generator = torch.Generator().manual_seed(self.random.getrandbits(32))
        if dtype == torch.bool:
            x = torch.randint(0, 2, (count,), generator=generator).bool()
        elif dtype.is_floating_point or dtype.is_complex:
            x = torch.randn(count, generator=generator)
            if count and self.often(0.15):
                x[self.random.randrange(count)] = self.one((float("nan"), float("inf"), -float("inf"), 1e38))
            x = x.to(dtype)
        else:
            x = torch.randint(-3, 100, (count,), generator=generator).to(dtype)
        self.memory.append(x)
        return x.view(shape)

    def numbers(self, values: list[int], dtype: torch.dtype) -> torch.Tensor:
        if values and self.often(0.08):
            values[self.random.randrange(len(values))] = self.one((-1, 0, 1, 5, 1000, (1 << 31) - 1, -(1 << 31)))
        return torch.tensor(values, dtype=dtype)


# What fits each op: its tensors by name, as shapes, or shapes with a type, or what makes one; its numbers by name.
Fitting = dict[str, Any]


def _beside(d: Draw, given: dict[str, tuple]) -> Fitting:
    """Optional ones: each is there now and then."""
    return {name: value for name, value in given.items() if d.often(0.25)}


def _product(d: Draw) -> Fitting:
    batch, m, n, k = d.batch(), d.size(), d.size(), d.size()
    return {"a": (*d.smaller(batch), m, k), "b": (*d.smaller(batch), k, n), "_sizes": (batch, m, n, k)}


def _gemm_backward(d: Draw) -> Fitting:
    found = _product(d)
    batch, m, n, _ = found["_sizes"]
    return found | {"g": (*batch, m, n)} | _beside(d, {"s": (*batch, m, n)})


def _gemm_slopes(d: Draw) -> Fitting:
    found = _product(d)
    batch, m, n, k = found["_sizes"]
    return found | {"g": (*batch, m, k), "s": (*batch, m, n)} | _beside(d, {"multiply": (*batch, m, n)})


def _linear_backward(d: Draw) -> Fitting:
    batch, m, n, k = d.batch(), d.size(), d.size(), d.size()
    return {"g": (*batch, m, n), "x": (*batch, m, k), "weight": (n, k)} | _beside(d, {"s": (*batch, m, n)})


def _gemm_aux(d: Draw) -> Fitting:
    found = _product(d)
    batch, m, n, _ = found["_sizes"]
    found |= _beside(d, {"c": d.smaller((*batch, m, n)), "bias": (n,)})
    return found if "c" in found else found | {"beta": 1.0}


def _gated(d: Draw) -> Fitting:
    found = _product(d)
    *_, n, k = found["_sizes"]
    return found | {"b": (k, n), "gate": (k, n)} | _beside(d, {"bias": (n,), "gate_bias": (n,)})


def _gemm(d: Draw) -> Fitting:
    found = _product(d)
    batch, m, n, k = found["_sizes"]
    k2 = d.size()
    beside = {"c": d.smaller((*batch, m, n)), "bias": (n,), "row_scale": (m,), "col_scale": (n,), "a_scale": (k,)}
    found |= _beside(d, beside | {"multiply": d.smaller((*batch, m, n))})
    if d.often(0.25):
        found |= {"a2": (m, k2), "b2": (k2, n)}
    if d.often(0.25):
        found |= {"b": (k, n), "gate": (k, n)} | _beside(d, {"gate_bias": (n,)})
        found = {name: x for name, x in found.items() if name not in ("multiply", "a_scale")}
    return found if "c" in found else found | {"beta": 1.0}


def _addmm(d: Draw) -> Fitting:
    m, n, k = d.size(), d.size(), d.size()
    return {"input": (m, n), "a": (m, k), "b": (k, n)}


def _baddbmm(d: Draw) -> Fitting:
    batch, m, n, k = d.one((0, 1, 2)), d.size(), d.size(), d.size()
    return {"input": d.smaller((batch, m, n)), "a": (batch, m, k), "b": (batch, k, n)}


def _linear(d: Draw) -> Fitting:
    batch, m, n, k = d.batch(), d.size(), d.size(), d.size()
    return {"x": (*batch, m, k), "weight": (n, k)} | _beside(d, {"bias": (n,), "residual": (*batch, m, n)})


def _gemm_gemm(d: Draw) -> Fitting:
    batch, m, n, k, h = d.batch(), d.size(), d.size(), d.size(), d.size()
    beside = {"c": (*batch, m, n), "bias0": (h,), "bias1": (n,), "gate": (k, h)}
    found = {"a": (*batch, m, k), "b0": (k, h), "b1": (h, n)} | _beside(d, beside)
    return found if "c" in found else found | {"beta1": 1.0}


def _scaled_mm(d: Draw) -> Fitting:
    m, n, k = d.size(), d.size(), d.size()
    number = torch.float32
    d.dtype = d.one((torch.int8, *EIGHTS))
    scales = {"scale_a": (d.one(((), (m,), (m, 1))), number), "scale_b": (d.one(((), (n,), (1, n))), number)}
    return {"a": (m, k), "b": (k, n)} | scales | _beside(d, {"bias": ((n,), number)})


def _heads(d: Draw) -> tuple[tuple[int, ...], int, int, bool]:
    grouped = d.often(0.4)
    kv = d.one((1, 2, 2, 0))
    return tuple(d.one((1, 2)) for _ in range(d.one((0, 1, 1)))), kv * d.one((1, 2, 3)) if grouped else kv, kv, grouped


def _attention(d: Draw, *, backward: bool = False) -> Fitting:
    batch, heads, kv, grouped = _heads(d)
    sq, skv, e, ev = d.size(), d.size(), d.size(), d.size()
    if d.dtype not in FLOATS:
        d.dtype = d.one(FLOATS)
    found: Fitting = {"q": (*batch, heads, sq, e), "k": (*batch, kv, skv, e), "v": (*batch, kv, skv, ev)}
    beside: dict = {"mask": ((*batch, heads, sq, skv), d.one((torch.bool, d.dtype)))}
    beside |= {"sinks": (heads,), "alibi_slopes": (heads,)}
    found |= _beside(d, beside)
    found |= {"enable_gqa": grouped, "is_causal": 0 if "mask" in found else d.one((0, 0, 1, 2))}
    found |= _dropout(d)
    if d.often(0.2):
        size = d.one((32, 64))
        states = (*batch, heads, -(-sq // size), -(-skv // size))
        found |= {"block_mask": (states, torch.int8), "block_q": size, "block_k": size}
    if backward:
        number = torch.float64 if d.dtype == torch.float64 else torch.float32
        rows = (*batch, heads, sq)
        found |= {"g_out": (*rows, ev), "out": (*rows, ev), "lse": (rows, number)} | _beside(
            d, {"g_lse": (rows, number)}
        )
    return found


def _dropout(d: Draw) -> Fitting:
    return {"dropout_seed": ((), torch.int64), "dropout_p": 0.3} if d.often(0.2) else {"dropout_p": 0.0}


def _scaled_attention(d: Draw) -> Fitting:
    batch, heads, kv, grouped = _heads(d)
    sq, skv, e, ev = d.size(), d.size(), d.size(), d.size()
    d.dtype = torch.float8_e4m3fn
    found: Fitting = {"q": (*batch, heads, sq, e), "k": (*batch, kv, skv, e), "v": (*batch, kv, skv, ev)}
    number = torch.float32
    beside = {
        "scale_q": ((*batch, heads), number),
        "scale_k": ((*batch, kv), number),
        "scale_v": ((*batch, kv), number),
    }
    return found | _beside(d, beside) | {"enable_gqa": grouped}


def _starts(lengths: list[int]) -> list[int]:
    return [0, *itertools.accumulate(lengths)]


def _varlen(d: Draw, *, backward: bool = False) -> Fitting:
    _, heads, kv, grouped = _heads(d)
    e, ev, count = d.size(), d.size(), d.one((0, 1, 2, 3))
    if d.dtype not in FLOATS:
        d.dtype = d.one(FLOATS)
    queries = [d.one((0, 1, 5, 20)) for _ in range(count)]
    keys = [d.one((0, 1, 7, 33)) for _ in range(count)]
    integer = d.one((torch.int32, torch.int64))
    found: Fitting = {"query": (sum(queries), heads, e), "cu_seq_q": d.numbers(_starts(queries), integer)}
    found |= {"max_q": max(queries, default=0), "max_k": max(keys, default=0), "enable_gqa": grouped}
    if not backward and d.often(0.4):
        size, pages, columns = d.one((16, 32)), d.one((1, 3, 4)), 3
        stored = torch.float8_e4m3fn if d.dtype in FLOATS[1:3] and d.often(0.3) else d.dtype
        table = d.numbers([d.random.randrange(pages) for _ in range(count * columns)], torch.int32)
        found |= {"key": ((pages, size, kv, e), stored), "value": ((pages, size, kv, ev), stored)}
        found |= {"block_table": table.view(count, columns), "seqused_k": d.numbers(keys, integer)}
        if stored != d.dtype:
            number = torch.float32
            found |= _beside(d, {"k_descale": ((count, kv), number), "v_descale": ((), number)})
    else:
        found |= {"key": (sum(keys), kv, e), "value": (sum(keys), kv, ev)}
        found |= {"cu_seq_k": d.numbers(_starts(keys), integer)}
        if d.often(0.2):
            found["seqused_k"] = d.numbers([d.random.randint(0, n) for n in keys], integer)
    found |= _beside(d, {"sinks": (heads,), "alibi_slopes": (heads,)}) | _dropout(d)
    if backward:
        number = torch.float64 if d.dtype == torch.float64 else torch.float32
        rows = (sum(queries), heads)
        found |= {"g_out": (*rows, ev), "out": (*rows, ev), "lse": (rows[::-1], number)}
        found |= _beside(d, {"g_lse": (rows[::-1], number)})
    return found


def _kv_append(d: Draw) -> Fitting:
    heads, e, ev, count = d.one((1, 2)), d.size(), d.size(), d.one((0, 1, 2))
    if d.dtype not in FLOATS:
        d.dtype = d.one(FLOATS)
    new = [d.one((0, 1, 4)) for _ in range(count)]
    used = [n + d.one((0, 1, 9)) for n in new]
    size, pages = d.one((1, 16, 5)), 6
    stored = torch.float8_e4m3fn if d.dtype in FLOATS[1:3] and d.often(0.3) else d.dtype
    integer, columns = d.one((torch.int32, torch.int64)), 16
    found: Fitting = {"key": (sum(new), heads, e), "value": (sum(new), heads, ev)}
    found |= {"key_pages": ((pages, size, heads, e), stored), "value_pages": ((pages, size, heads, ev), stored)}
    table = d.numbers([d.random.randrange(pages) for _ in range(count * columns)], torch.int32)
    found |= {"block_table": table.view(count, columns)}
    found |= {"cu_seq": d.numbers(_starts(new), integer), "seqused_k": d.numbers(used, integer)}
    if d.often(0.4):
        angles = (d.one((8, 16, 40)), d.random.randint(0, e // 2))
        found |= {"cos": angles, "sin": angles}
    if stored != d.dtype:
        found |= _beside(d, {"k_descale": ((count, heads), torch.float32), "v_descale": ((), torch.float32)})
    if d.often(0.3):  # the two halves of one piece of memory
        wide = d.filled((pages, size, heads, e + ev), stored)
        found |= {"key_pages": wide[..., :e], "value_pages": wide[..., e:]}
    return found


def _scores(d: Draw) -> Fitting:
    sizes = (d.one((1, 2)), d.one((1, 2)), d.size(), d.size())
    return {"scores": (sizes, torch.float32), "first": d.one((0, 3)), "first_batch": 0, "code": 0}


def _bytes(d: Draw) -> torch.Tensor:
    return torch.tensor([*(d.random.randrange(97, 123) for _ in range(d.one((1, 4, 9)))), 0], dtype=torch.uint8)


def _texts(d: Draw) -> Fitting:
    names = ("code", "name", "arguments", "data", "path")
    return {name: _bytes(d) for name in names} | {"device": 0, "shared": 0, "kind": d.one((0, 0, 1, 2))}


def _registration(d: Draw) -> Fitting:
    return {"code": REGISTERED + d.one(range(100)), "operands": d.one((0, 4)), "a": -1, "b": 2, "c": 4, "d": -1}


FITTING: dict[str, Callable[[Draw], Fitting]] = {
    "matmul": _product,
    "addmm": _addmm,
    "addmm_": _addmm,
    "baddbmm": _baddbmm,
    "gemm": _gemm,
    "linear": _linear,
    "gemm_gemm": _gemm_gemm,
    "scaled_mm": _scaled_mm,
    "attention": _attention,
    "scaled_attention": _scaled_attention,
    "varlen_attention": _varlen,
    "kv_append": _kv_append,
    "_gated_aux": _gated,
    "_gemm_aux": _gemm_aux,
    "_linear_aux": _linear,
    "_gemm_backward": _gemm_backward,
    "_gemm_slopes": _gemm_slopes,
    "_linear_backward": _linear_backward,
    "_attention_backward": lambda d: _attention(d, backward=True),
    "_varlen_attention_backward": lambda d: _varlen(d, backward=True),
    "_score_function": _scores,
    "_load": _texts,
    "_launch": _texts,
    "_read": _texts,
    "_write": _texts,
    "_use_driver": _texts,
    "_register_activation": _registration,
    "_register_score_function": _registration,
    "_registered_activation": lambda d: {"x": (d.size(),), "code": d.one((0, 1, 2, 3, 7))},
}
# Of what fits: codes and switches that change what is computed.
PLAUSIBLE: dict[str, tuple] = {
    "activation": (0, 0, 1, 2, 3, 4, 5, 6, 7),
    "a_activation": (0, 0, 0, 1, 2, 7),
    "is_causal": (0,),
    "window_left": (-1, -1, 0, 3),
    "window_right": (-1, -1, 0, 3),
    "softcap": (0.0, 0.0, 5.0),
    "score_mod": (0,),
    "mask_mod": (0,),
    "block_q": (0,),
    "block_k": (0,),
}


@dataclass
class Call:
    op: torch._ops.OpOverload
    arguments: dict[str, object]
    planned_for: str | None = None  # a GPU; None: it is called

    def __call__(self) -> object:
        positional = [x.name for x in self.op._schema.arguments if not x.kwarg_only]
        given = dict(self.arguments)
        tensors = [given.pop(name) for name in positional]
        if self.planned_for is None:
            return self.op(*tensors, **given)
        return launching.problems(lambda: self.op(*tensors, **given), arch.target(self.planned_for))

    def __str__(self) -> str:
        on = f" for {self.planned_for}" if self.planned_for else ""
        return f"{self.op}{on}({', '.join(f'{name}={_described(x)}' for name, x in self.arguments.items())})"


def _described(x: object) -> str:
    if not isinstance(x, torch.Tensor):
        return repr(x)
    text = f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}"
    if x.layout != torch.strided or x.device.type != "cpu":
        return f"{text} {x.layout} on {x.device}"
    text += f" by {list(x.stride())} from {x.storage_offset()} in {x.untyped_storage().data_ptr():x}"
    return f"{text} {x.tolist()}" if x.numel() <= 8 and x.dtype in (torch.int32, torch.int64) else text


def every_op() -> list[torch._ops.OpOverload]:
    schemas = [s for s in torch._C._jit_get_all_schemas() if s.name.split("::")[0] in library.NAMESPACES]
    names = sorted({schema.name for schema in schemas})
    found = [getattr(getattr(torch.ops, space), op).default for space, op in (name.split("::") for name in names)]
    # Those that take tensors of many kinds are drawn more often.
    return [
        op for op in found for _ in range(4 if len(op._schema.arguments) > 3 or "::_" not in op._schema.name else 1)
    ]


def call_of(ops: list, seed: int, number: int) -> Call:
    d = Draw(random.Random(f"{seed}:{number}"))
    op = d.one(ops)
    name = op._schema.name.split("::")[1]
    d.dtype = d.one(FLOATS) if d.often(0.7) else d.one(TYPES)
    fitting = FITTING.get(name, lambda d: {})(d)
    others = d.one((0.0, 0.0, 0.03, 0.1, 0.3))  # which share is exchanged for what need not fit
    device = "meta" if d.often(0.05) else "cpu"
    arguments = {}
    for argument in op._schema.arguments:
        kind = str(argument.type)
        fits = argument.name in fitting and not d.often(others)
        if fits:
            arguments[argument.name] = _fitting(d, fitting[argument.name], kind, device)
        elif argument.name in PLAUSIBLE and not d.often(others):
            arguments[argument.name] = d.one(PLAUSIBLE[argument.name])
        elif argument.has_default_value() and not d.often(others):
            arguments[argument.name] = argument.default_value
        else:
            arguments[argument.name] = _any(d, kind, argument)
    if name.startswith("_register_") and isinstance(arguments["code"], int) and arguments["code"] >= 256:
        arguments["code"] = max(arguments["code"], REGISTERED)
    is_planned = not name.startswith("_") or "backward" in name
    target = d.one(TARGETS) if is_planned and d.often(0.3) else None
    return Call(op, arguments, target)


def _fitting(d: Draw, given: object, kind: str, device: str) -> object:
    if not isinstance(given, tuple) or "Tensor" not in kind:
        return given.to(device) if isinstance(given, torch.Tensor) and device == "meta" else given
    shape, dtype = given if len(given) == 2 and isinstance(given[1], torch.dtype) else (given, d.dtype)
    return d.tensor(shape, dtype, device)


def _any(d: Draw, kind: str, argument) -> object:
    if kind.startswith("Optional") and d.often(0.3):
        return None
    if "List[Tensor]" in kind:
        return [_any_tensor(d) for _ in range(d.one((0, 1, 2)))]
    if "Tensor" in kind:
        return None if d.often(0.08) else _any_tensor(d)
    if "List[int]" in kind:
        return [d.one(INTEGERS) for _ in range(d.one((0, 1, 3, 3, 8)))]
    if argument.name.endswith("dtype"):  # a number that is none ends torch itself, on its way to a fake
        return d.one(TYPES)
    if "float" in kind:
        return d.one(NUMBERS)
    if "bool" in kind:
        return d.often(0.5)
    return TOO_LARGE if d.often(0.01) else d.one(INTEGERS)


def _any_tensor(d: Draw) -> torch.Tensor:
    if d.often(0.02):  # nothing, in many pieces
        return torch.empty(d.one(((1 << 40, 0), (0, 1 << 62), (2, 0, 1 << 40))), dtype=d.dtype)
    shape = tuple(d.size() for _ in range(d.one((0, 1, 2, 2, 3, 4, 5))))
    if torch.Size(shape).numel() > 1 << 18:
        shape = shape[:2]
    dtype = d.dtype if d.often(0.5) else d.one(TYPES)
    return d.tensor(shape, dtype, "meta" if d.often(0.1) else "cpu")


def finding(call: Call) -> tuple[str, str | None]:
    """How a call ends, and what is wrong with that."""
    try:
        answer = call()
        if call.op._schema.name in ANSWERS and answer[:1] in ([-1], [-2]):  # and the text of an error
            text = bytes(answer[1:]).decode()
            return "refused", text if any(word in text for word in NEVER) else None
        return "value", None
    except (RuntimeError, TypeError, ValueError) as error:
        text = str(error).split("\nException raised from", 1)[0]
        if any(known in text for known in PARSERS):
            return "torch's", None
        first = text.splitlines()[0] if text else ""
        if not any(word in text for word in NEVER) and OURS.match(first) and ("::" in first or text == first):
            return "refused", None
        return "else", f"{type(error).__name__}: {text}"
    except Exception as error:
        return "else", f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def undone(op: str) -> Iterator[None]:
    """Afterwards the process is as before."""
    try:
        yield
    finally:
        torch.ops.wmma._allow_unordered(False)
        while torch.ops.wmma._is_batch_invariant():
            torch.ops.wmma._ask_batch_invariant(False)
        if op.endswith("_count_mode"):
            _no_modes()


def _no_modes() -> None:
    while True:
        try:
            torch.ops.wmma._count_mode(-1)
        except RuntimeError:
            return


def run(seed: int, numbers, seconds: float, progress: int | None, names: str) -> tuple[int, list[str], Counter]:
    """How many calls were made, what was found, and how they ended."""
    ops = [op for op in every_op() if re.search(names, op._schema.name)]
    found, ends, count = [], Counter(), 0
    until = time.monotonic() + seconds
    for number in numbers:
        if time.monotonic() > until:
            break
        if progress is not None:
            os.pwrite(progress, f"{number:<20}".encode(), 0)
        call = call_of(ops, seed, number)
        with undone(call.op._schema.name):
            end, wrong = finding(call)
        count += 1
        ends[call.op._schema.name, end] += 1
        if wrong is not None:
            found.append(f"call {number} of seed {seed}: {call}\n  {wrong}")
            print(found[-1], flush=True)
    return count, found, ends


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--calls", type=int, default=None, help="how many (as many as there is time for)")
    parser.add_argument("--seconds", type=float, default=None, help="how long (as many calls as were asked for)")
    parser.add_argument("--first", type=int, default=0, help="the number of the first call")
    parser.add_argument("--only", type=int, default=None, help="one call, by its number")
    parser.add_argument("--ops", default="", help="those whose names match; other seeds' calls are others then")
    parser.add_argument("--each", action="store_true", help="say how each op's calls ended")
    parser.add_argument("--progress", type=Path, default=None, help="a file that has the number of the call that runs")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.only is not None:
        given.first, given.calls = given.only, 1
        print(call_of([op for op in every_op() if re.search(given.ops, op._schema.name)], given.seed, given.only))
    seconds = given.seconds if given.seconds is not None else (float("inf") if given.calls else 60.0)
    numbers = itertools.count(given.first) if given.calls is None else range(given.first, given.first + given.calls)
    progress = None if given.progress is None else os.open(given.progress, os.O_WRONLY | os.O_CREAT)
    began = time.monotonic()
    count, found, ends = run(given.seed, numbers, seconds, progress, given.ops)
    took = time.monotonic() - began
    if given.each:
        print("\n".join(f"{name} {end} {times}" for (name, end), times in sorted(ends.items())))
    ops, values = {name for name, _ in ends}, sum(times for (_, end), times in ends.items() if end == "value")
    print(
        f"seed {given.seed}: {count} calls of {len(ops)} ops in {took:.0f} s, of which {values} gave values; "
        f"{len(found)} findings"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
