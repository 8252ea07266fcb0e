"""The grids by which FlashAttention tests itself, asked of our attention: on the CPU, or by the emulator.

    python tests/flash_attention_grids.py [--pairs | --all] [--grid NAME …] [--count N] [--part 3/10]
    python tests/flash_attention_grids.py --target gfx942

Types, heads, head sizes, lengths and rules are those of tests/test_flash_attn.py of Dao-AILab/flash-attention, and so is
what is right, in its narrowest form: errors of out and of gradients against float32 are at most twice those of plain PyTorch
in the operands' type with the scale on the keys, and 1e-5; five times, and 1e-3,
for gradients of large scores. Caches come in bfloat16 and in pages of 16 and 64 besides.

Asked are so many cases of a grid that every value of each axis occurs, about 140 in all, without the longest lengths; with
--pairs so many that every two values of different axes meet, and with --all the whole, which takes days. --part 3/10 asks
the third of each ten cases, so that ten runs, in any order, ask them all. Emulated are few heads and short lengths, and a
few cases of each grid.

The weights that are dropped are those that `dropout_mask` says. Left out, since our ops have none: padding on a cache's
left, slopes that differ between packed sequences. Fails where a comparison does.
"""

import argparse
import contextlib
import itertools
import math
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from grid_runs import add_options, ask_all
from torch import Tensor

import wmma_ops

TIMES, BESIDE = 2, 1e-5
OVERFLOWING = 5, 1e-3  # theirs for gradients of weights near 0 and 1, where differences cancel
# Queries times keys, of all heads and sequences, where values alone are to occur. Gradients of packed
# sequences go on the CPU by way of all tokens times all.
MOST_SCORES = 2**26
SMALL = 128 * 256  # queries times keys where instructions are emulated


@dataclass(frozen=True)
class Case:
    grid: str
    dtype: torch.dtype
    d: int
    lengths: tuple[int, int]  # queries and keys of a sequence, of the longest where they differ
    batch: int
    heads: int
    kv_heads: int
    causal: bool
    local: bool
    alibi: bool = False
    softcap: float = 0.0
    dropout: float = 0.0
    packed: bool = False  # queries, keys and values lie in one tensor
    ragged: bool = False  # sequences of different lengths, one after the other
    page_size: int | None = None
    # New keys: as many as queries or fewer; which part of a head is turned, neighbours with each other or not
    appended: tuple[str, float, bool] | None = None
    large: tuple[float, float] = (1.0, 1.0)  # queries, and keys and values, are so large

    @property
    def in_one(self) -> bool:
        """Whether the sequences go by `varlen_attention`, which has a slope for each head and no more."""
        return self.ragged or self.grid == "cache"


@dataclass(frozen=True)
class Found:
    """A comparison: the largest error, and that of the same in plain PyTorch."""

    what: str
    error: float
    theirs: float
    times: float = TIMES
    beside: float = BESIDE

    @property
    def right(self) -> bool:
        return self.error <= self.times * self.theirs + self.beside  # NaN is not

    @property
    def share(self) -> float | None:
        return self.error / self.theirs if self.theirs else None

    def __str__(self) -> str:
        return f"{self.what}: {self.error:.3g}, plain PyTorch {self.theirs:.3g}"


_TYPES = (torch.float16, torch.bfloat16)
_SIZES = (32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256)
_BOTH = (False, True)
_RULES = {"causal": _BOTH, "local": _BOTH}
_DROPPED = {"alibi": _BOTH, "dropout": (0.0, 0.17), **_RULES}
_PAIRS = ((113, 203), (128, 217), (113, 211), (108, 256), (256, 512), (512, 256))
_LONG = ((1024, 1024), (1023, 1024), (1024, 1023), (2048, 2048))
_CAUSAL = ((1, 239), (3, 799), (127, 512), (127, 513), *_PAIRS[:5], (1023, 1024))
_CAUSAL += tuple((k, q) for q, k in _CAUSAL)  # swapped
_SPLIT = ((3, 1024), (1, 339), (64, 800), (3, 799), (64, 2048), (16, 20000), (16, 100000), (128, 128), (256, 256))
_SPLIT += tuple((k, q) for q, k in _SPLIT if q != k and k <= 2048)
_CACHED = ((1, 128), (1, 339), (3, 1024), (64, 800), (64, 256), (3, 799), (64, 2048), (16, 20000))
_CACHED += ((1, 131072), (16, 131072), (128, 128))
_APPENDED = (None, *itertools.product(("all", "fewer"), (0.5, 1.0), _BOTH), ("all", 0.0, False), ("fewer", 0.0, False))


def _heads(count: int, group_of: int) -> tuple[tuple[int, int], ...]:
    """One group a head, one for all, and groups: a grid's kinds of heads."""
    return (count, count), (count, 1), (count, group_of)


# Of each grid what all its cases have, and its axes. `heads` are queries' and keys'.
GRIDS = {
    "packed": (
        {"batch": 4, "packed": True},
        {"d": _SIZES, "lengths": tuple((n, n) for n in (97, 128, 200, 384, 768, 1024, 1025, 2048))}
        | {"heads": ((9, 9),), "dtype": _TYPES, **_DROPPED},
    ),
    "packed varlen": (
        {"batch": 5, "packed": True, "ragged": True},
        {"d": _SIZES, "lengths": tuple((n, n) for n in (97, 128, 200, 257, 384, 512, 768, 1025, 2048))}
        | {"heads": ((6, 6),), "dtype": _TYPES, **_DROPPED},
    ),
    "output": (
        {"batch": 4},
        {"d": _SIZES, "lengths": _PAIRS + _LONG, "heads": _heads(6, 2), "dtype": _TYPES, **_DROPPED},
    ),
    "softcap": (
        {"batch": 4, "softcap": 50.0, "large": (50.0, 1.0)},
        {"d": _SIZES, "lengths": _PAIRS + _LONG, "heads": _heads(4, 2), "dtype": _TYPES, "alibi": _BOTH, **_RULES},
    ),
    "varlen": (
        {"batch": 4, "ragged": True},
        {"d": _SIZES, "lengths": ((1, 147), *_PAIRS, *_LONG), "heads": _heads(6, 2), "dtype": _TYPES} | _DROPPED,
    ),
    "varlen softcap": (
        {"batch": 4, "ragged": True, "softcap": 50.0, "large": (50.0, 1.0)},
        {"d": _SIZES, "lengths": ((1, 147), *_PAIRS, *_LONG), "heads": _heads(4, 2), "dtype": _TYPES}
        | {"alibi": _BOTH, **_RULES},
    ),
    "causal": (
        {"batch": 8, "causal": True},
        {"d": _SIZES, "lengths": _CAUSAL, "heads": ((9, 9),), "dtype": _TYPES, "local": _BOTH},
    ),
    "varlen causal": (
        {"batch": 8, "causal": True, "ragged": True},
        {"d": _SIZES, "lengths": _CAUSAL, "heads": ((9, 9),), "dtype": _TYPES, "local": _BOTH}
        | {"page_size": (None, 16, 256, 512)},
    ),
    "split keys": (
        {"batch": 1},
        {"d": _SIZES, "lengths": _SPLIT, "heads": ((12, 12),), "dtype": _TYPES, "alibi": _BOTH, **_RULES},
    ),
    "cache": (
        {"batch": 2},
        {"d": (32, 59, 64, 80, 128, 256), "lengths": _CACHED, "heads": _heads(6, 3), "dtype": _TYPES, "alibi": _BOTH}
        | {"page_size": (None, 16, 64, 256), "appended": _APPENDED, **_RULES},
    ),
    "overflow": (
        {"batch": 2, "local": False, "large": (5.0, 3.0), "dtype": torch.float16},
        {"d": (16, 32, 64), "lengths": tuple((n, n) for n in (1, 2, 5, 17, 128)), "heads": ((5, 5),), "causal": _BOTH},
    ),
}


def cases(grid: str, extent: str = "values", small: bool = False) -> list[Case]:
    """Of a grid so many that each value of an axis occurs, that all `pairs` of them do, or `all`."""
    fixed, axes = GRIDS[grid]
    ragged = fixed.get("ragged", False)
    if small:
        fixed = fixed | {"batch": 2 if grid == "cache" or ragged else 1}
        short = tuple((q, k) for q, k in axes["lengths"] if q * k <= SMALL)
        axes = axes | {"lengths": short, "heads": tuple({_few(*heads): None for heads in axes["heads"]})}
    elif extent == "values":
        many = axes["heads"][0][0] * fixed["batch"] * (fixed["batch"] if ragged else 1)
        short = tuple((q, k) for q, k in axes["lengths"] if many * q * k <= MOST_SCORES)
        axes = axes | {"lengths": short}
    made = []
    for row in itertools.product(*axes.values()) if extent == "all" else covering(tuple(axes.values()), extent):
        of = dict(zip(axes, row, strict=True))
        heads, kv_heads = of.pop("heads")
        made.append(Case(grid, heads=heads, kv_heads=kv_heads, **fixed, **of))
    return made


def _few(heads: int, kv_heads: int) -> tuple[int, int]:
    """The same kind of heads, two of queries or groups."""
    return (2, 2) if heads == kv_heads else (2, 1) if kv_heads == 1 else (4, 2)


def covering(axes: tuple[tuple, ...], extent: str) -> Iterator[tuple]:
    """Rows in which all values of the axes occur, or all pairs of two axes' values: rather few, the same in every run."""
    order = random.Random(0)
    values = {(i, place) for i, axis in enumerate(axes) for place in range(len(axis))}
    pairs = {(a, b) for a, b in itertools.product(sorted(values), repeat=2) if a[0] < b[0]}
    while pairs if extent == "pairs" else values:
        # Axis by axis the value that brings most of what has not occurred: values first, then pairs.
        row: list[tuple[int, int]] = []
        for i in order.sample(range(len(axes)), len(axes)):
            new = {
                place: (
                    ((i, place) in values),
                    sum(tuple(sorted(((i, place), other))) in pairs for other in row),
                )
                for place in range(len(axes[i]))
            }
            row.append((i, order.choice([place for place in new if new[place] == max(new.values())])))
        row.sort()
        values -= set(row)
        pairs -= set(itertools.combinations(row, 2))
        yield tuple(axes[i][place] for i, place in row)


def reference(operands, case: Case, window: tuple[int, int], slopes: Tensor | None, kept: Tensor | None, low: bool):
    """One sequence's out, from [tokens, heads, size]: in float32, or in the type that it has, and rounded to that."""
    q, k, v = operands
    dtype, root, group = q.dtype, math.sqrt(q.shape[-1]), q.shape[1] // k.shape[1]
    q, k, v = (x.transpose(0, 1) if low else x.transpose(0, 1).float() for x in (q, k, v))
    k, v = (x.repeat_interleave(group, 0) for x in (k, v))
    scores = _product(q, (k / root).mT) if low else _product(q / root, k.mT)
    if case.softcap:
        scores = (scores / case.softcap).tanh() * case.softcap
    # From each key to where a query stands: the last one at the last key.
    steps = torch.arange(q.shape[1])[:, None] + k.shape[1] - q.shape[1] - torch.arange(k.shape[1])
    hidden = torch.zeros_like(steps, dtype=torch.bool)
    for size, way in zip(window, (steps, -steps), strict=True):
        hidden |= (way > size) & (size >= 0)
    scores = scores.masked_fill(hidden, -torch.inf)
    if slopes is not None:
        scores = scores - slopes[:, None, None] * steps.abs()
    weights = scores.softmax(-1).to(v.dtype).masked_fill(hidden.all(-1, keepdim=True), 0.0)
    if kept is not None:
        weights, v = weights.masked_fill(~kept, 0.0), v / (1 - case.dropout)
    return _product(weights, v).transpose(0, 1).to(dtype)


def _product(a: Tensor, b: Tensor) -> Tensor:
    """Summed in float32 and rounded once, as GPUs do it; torch's own of float16 is slow on a CPU."""
    return (a.float() @ b.float()).to(a.dtype)


@dataclass
class Sequences:
    """Queries, keys and values `[sequences, tokens, heads, size]`, of which each sequence has the first so many."""

    tensors: list[Tensor]
    lengths: tuple[list[int], list[int], list[int]]
    window: tuple[int, int]
    slopes: Tensor | None  # of each sequence's heads
    seed: Tensor
    kept: Tensor | None  # of the weights of each sequence's heads, were they all as long as the longest

    def of_each(self, tensors) -> list[tuple[Tensor, ...]]:
        """Of tensors like ours, what belongs to a sequence."""
        counts = zip(*self.lengths, strict=True)
        return [tuple(x[i, :n] for x, n in zip(tensors, ns, strict=True)) for i, ns in enumerate(counts)]

    def after_another(self) -> list[Tensor]:
        return [torch.cat(parts) for parts in zip(*self.of_each(self.tensors), strict=True)]


def drawn(case: Case) -> Sequences:
    queries, keys = case.lengths
    if case.packed:
        tensors = torch.randn(case.batch, queries, 3, case.heads, case.d, dtype=case.dtype).unbind(2)
    else:
        shapes = (queries, case.heads), (keys, case.kv_heads), (keys, case.kv_heads)
        sizes = case.large[0], case.large[1], case.large[1]
        tensors = [
            torch.randn(case.batch, *shape, case.d, dtype=case.dtype) * size
            for shape, size in zip(shapes, sizes, strict=True)
        ]
    lengths = [[n] * case.batch for n in case.lengths]
    if case.ragged:
        lengths = [torch.randint(max(1, n - 20), n + 1, (case.batch,)).tolist() for n in case.lengths]
    first, last = lengths[0], lengths[0] if case.packed else lengths[1]
    left, right = torch.randint(0, keys, (2,)).tolist() if case.local else (-1, -1)
    slopes = None
    if case.alibi:
        slopes = (torch.rand(1 if case.in_one else case.batch, case.heads) * 0.3).expand(case.batch, -1)
    seed, kept = torch.zeros((), dtype=torch.int64), None
    if case.dropout:
        seed = torch.randint(1 << 62, ())
        kept = wmma_ops.dropout_mask(seed, case.dropout, (case.batch, case.heads, *case.lengths))
    window = (left, 0 if case.causal else right)
    return Sequences(list(tensors), (first, last, last), window, slopes, seed, kept)


def compared(case: Case, given: Sequences, outs, gradients=(), above=()) -> Iterator[Found]:
    """Out and, where there are some, gradients, all sequences together."""
    names = ("out", "dq", "dk", "dv") if above else ("out",)
    ours = [(out, *of) for out, of in zip(outs, given.of_each(gradients) if above else [()] * case.batch, strict=True)]
    errors = {name: ([0.0], [0.0]) for name in names}
    for i, operands in enumerate(given.of_each(given.tensors)):
        results = []
        for low in (False, True):
            leaves = [x.detach().requires_grad_(bool(above)) for x in operands]
            slopes = None if given.slopes is None else given.slopes[i]
            kept = None if given.kept is None else given.kept[i, :, : operands[0].shape[0], : operands[1].shape[0]]
            out = reference(leaves, case, given.window, slopes, kept, low)
            results.append((out.detach(), *(torch.autograd.grad(out, leaves, above[i]) if above else ())))
        for both, got, want, plain in zip(errors.values(), ours[i], *results, strict=True):
            for found, x in zip(both, (got, plain), strict=True):
                found.append((x.detach().float() - want.float()).abs().max().item())
    # torch's maximum is NaN where one is.
    for name, both in errors.items():
        times, beside = OVERFLOWING if case.grid == "overflow" and name != "out" else (TIMES, BESIDE)
        error, theirs = (torch.tensor(of).max().item() for of in both)
        yield Found(name, error, theirs, times, beside)


def ends(lengths) -> Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).int()


def whole(case: Case) -> Iterator[Found]:
    """Sequences that lie in memory at once, forward and backward."""
    given = drawn(case)
    leaves = given.tensors = [x.detach().requires_grad_() for x in given.tensors]
    rules: dict = {"softcap": case.softcap, "enable_gqa": True}
    if case.dropout:
        rules |= {"dropout_p": case.dropout, "dropout_seed": given.seed}
    if case.ragged:
        slopes = None if given.slopes is None else given.slopes[0]
        q, k, v = given.after_another()
        out, _ = wmma_ops.varlen_attention(
            q, k, v, ends(given.lengths[0]), ends(given.lengths[1]), *case.lengths,
            window_size=given.window, alibi_slopes=slopes, **rules,
        )  # fmt: skip
        outs = out.split(given.lengths[0])
    else:
        q, k, v = (x.transpose(1, 2) for x in leaves)
        causal = "bottom_right" if case.causal else False
        rules |= {"is_causal": causal, "window": given.window, "alibi_slopes": given.slopes}
        outs = wmma_ops.attention(q, k, v, **rules)[0].transpose(1, 2).unbind()
    above = [torch.randn_like(out) for out in outs]
    return compared(case, given, outs, torch.autograd.grad(outs, leaves, above), above)


def in_pages(x: Tensor, table: Tensor, size: int) -> Tensor:
    """`[sequences, tokens, …]` in the pages that the table names; what no token lies in is NaN."""
    pages = torch.full((table.numel() + 3, size, *x.shape[2:]), torch.nan, dtype=x.dtype)
    padded = torch.full((x.shape[0], table.shape[1] * size, *x.shape[2:]), torch.nan, dtype=x.dtype)
    padded[:, : x.shape[1]] = x
    pages[table.long()] = padded.unflatten(1, (-1, size))
    return pages


def turned(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool) -> Tensor:
    """`[tokens, heads, size]` by the angles of each token, in float32."""
    count = 2 * cos.shape[1]
    first, second = (x[..., 0:count:2], x[..., 1:count:2]) if interleaved else x[..., :count].chunk(2, -1)
    cos, sin = cos[:, None].float(), sin[:, None].float()
    pair = first * cos - second * sin, first * sin + second * cos
    done = torch.stack(pair, -1).flatten(-2) if interleaved else torch.cat(pair, -1)
    return torch.cat([done.to(x.dtype), x[..., count:]], -1)


def cached(case: Case) -> Iterator[Found]:
    """Queries of keys and values in a cache, which may lie in pages; new ones are written there before."""
    given = drawn(case)
    query, *caches = given.tensors
    queries, keys = case.lengths
    how, part, interleaved = case.appended or (None, 0.0, False)
    new = {None: 0, "all": queries, "fewer": int(torch.randint(1, queries + 1, ()))}[how]
    last = keys - (queries if part else new)  # there is an angle for each query
    before = given.lengths[1] if case.ragged else torch.randint(0 if new else 1, last + 1, (case.batch,)).tolist()
    used = [n + new for n in before]
    size = case.page_size or keys
    a_sequence = -(-keys // size)
    table = torch.randperm(case.batch * a_sequence).view(case.batch, -1).int()
    pages = [in_pages(x, table, size) for x in caches]
    given.lengths = given.lengths[0], used, used
    if new:
        key, value = (torch.randn(case.batch, new, *x.shape[2:], dtype=x.dtype) for x in caches)
        angles = torch.rand(keys, int(part * case.d) // 16 * 8) * 2 * math.pi
        cos, sin = angles.cos().to(case.dtype), angles.sin().to(case.dtype)
        for i, n in enumerate(before):
            caches[0][i, n : n + new] = turned(key[i], cos[n : n + new], sin[n : n + new], interleaved)
            caches[1][i, n : n + new] = value[i]
            # Where nothing is hidden by where a query stands, all stand at the first new place, as theirs do.
            at = torch.arange(n, n + queries) if case.causal or case.local else torch.full((queries,), n)
            query[i] = turned(query[i], cos[at], sin[at], interleaved) if part else query[i]
        rotary = {"cos": cos, "sin": sin, "interleaved": interleaved} if part else {}
        number = torch.tensor(used).int()
        wmma_ops.kv_append(
            key.flatten(0, 1), value.flatten(0, 1), *pages, table, ends([new] * case.batch), number, **rotary
        )
    for name, x, written in zip(("keys", "values"), caches, pages, strict=True):
        wanted = x[:, :keys].float()
        got = written[table.long()].flatten(1, 2)[:, :keys].float()
        # Turned keys may be rounded to a neighbour; all else is as it was.
        near = torch.finfo(case.dtype).eps * wanted.abs() + 1e-3 if part and name == "keys" else 0.0
        yield Found(name, ((got - wanted).abs() - near).max().item() + BESIDE, 0.0)
        x.copy_(got)
    options: dict = {"window_size": given.window, "softcap": case.softcap, "enable_gqa": True}
    options |= {
        "alibi_slopes": None if given.slopes is None else given.slopes[0],
        "seqused_k": torch.tensor(used).int(),
    }
    query = torch.cat([of[0] for of in given.of_each(given.tensors)])
    cu_seq_q = ends(given.lengths[0])
    if case.page_size:
        out, _ = wmma_ops.varlen_attention(query, *pages, cu_seq_q, None, queries, None, block_table=table, **options)
    else:
        cu_seq_k = ends([keys] * case.batch)
        key, value = (x.flatten(0, 1) for x in caches)
        out, _ = wmma_ops.varlen_attention(query, key, value, cu_seq_q, cu_seq_k, queries, keys, **options)
    yield from compared(case, given, out.split(given.lengths[0]))


def ask(case: Case, target: str | None = None) -> list[Found]:
    """What a case gives on the CPU, or by the emulator on a target."""
    torch.manual_seed(0)
    where = wmma_ops.emulate(target) if target else contextlib.nullcontext()
    with where:
        return list((cached if case.grid == "cache" or case.page_size else whole)(case))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, GRIDS)
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument(
        "--pairs", dest="extent", action="store_const", const="pairs", help="every two axes' values meet"
    )
    extent.add_argument("--all", dest="extent", action="store_const", const="all", help="all values of all axes meet")
    parser.add_argument("--count", type=int, help="so many cases of a grid; emulated, 4 where nothing is said")
    options = parser.parse_args(arguments)
    count = options.count or (4 if options.target else None)
    chosen = (
        (grid, cases(grid, options.extent or "values", small=options.target is not None)[options.part][:count])
        for grid in options.grid or GRIDS
    )
    return ask_all(chosen, lambda case: ask(case, options.target), "plain PyTorch's", 15)


if __name__ == "__main__":
    sys.exit(main())
