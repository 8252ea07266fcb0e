"""The score and mask functions by which PyTorch tests FlexAttention, asked of our attention.

    python tests/flex_attention_grids.py [--grid NAME …] [--all] [--count N] [--part 3/10]
    python tests/flex_attention_grids.py --target gfx942
    python tests/flex_attention_grids.py --device cuda

Functions, types, heads and how lengths relate are those of test/inductor/test_flex_attention.py of pytorch/pytorch (commit
00125ef3); on a GPU batches, heads, lengths and block sizes are theirs too, on the CPU shorter, and emulated shorter still.
What theirs says of a compiled FlexAttention is asked of ours, of out, log-sum-exp and gradients by both together: the mean
error to FlexAttention in float64 is at most so many times that of FlexAttention, not compiled, in the operands' type: 1.1 in
16 bits, 10 in float32, for gradients as for values. (Theirs had 2.5, 4 and 4 times that for gradients once.) The log-sum-exp
is float32 in every type, so it has 10.

Beside that is a floor. FlexAttention's error may be 0 where its sums happen to be exact, as of one key; and where scores are
flat it may lie below what rounding a number of that size costs. So an error is right if it is below a sixteenth of a unit of
the result's type, times the mean of what is right: in 16 bits a third of what rounding alone costs on average (about 0.18 of
it), so that no other mistake fits below. In float32, where all sums are in another order, it is a whole unit; log-sum-exp's
counts from 1, as it is the sum of a score and a logarithm that may cancel.

Each case has numbers of its own, the same in every run. By default types take turns; --all asks each case in each type.
FlexAttention refuses gradients on a CPU, though what it does when not compiled runs there: the refusal is taken out.
What ours cannot express, or does not have, is printed as not asked. Fails where a comparison does.
"""

import argparse
import contextlib
import itertools
import sys
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from unittest import mock

import torch
from grid_runs import add_options, ask_all
from torch import Tensor
from torch.nn.attention import flex_attention as flex

import wmma_ops

TYPES = (torch.float16, torch.bfloat16, torch.float32)
TIMES = {torch.float16: 1.1, torch.bfloat16: 1.1, torch.float32: 10.0}
UNITS = {torch.float16: 1 / 16, torch.bfloat16: 1 / 16, torch.float32: 1.0}  # of the floor
HIDDEN = "log(0.f)"  # an expression has no other name for what theirs writes as -inf
NOT_ASKED = {
    "a sum over what a tensor holds for a place": "no elementwise function; their test expects a failure",
    "biases that are learned": "tensors that functions read have no gradients; they are masks, attention(mask=)",
    "an autograd.Function as score_mod": "by values it is inverse_causal, which is asked",
    "PagedAttention's masks and functions": "pages are varlen_attention's, by a table of blocks",
    "max_scores": "attention returns no largest scores",
    "kernel_options, dynamic shapes, sliced block masks": "of how FlexAttention is compiled, and of no values",
}


@dataclass(frozen=True)
class Size:
    """What theirs calls B, H, S and D, and the least block."""

    batch: int
    heads: int
    length: int
    d: int
    block: int


THEIRS, CPU, EMULATED = Size(4, 8, 2048, 64, 128), Size(2, 8, 192, 64, 32), Size(2, 2, 96, 32, 32)


@dataclass(frozen=True)
class Case:
    grid: str
    dtype: torch.dtype
    batch: int
    heads: int
    sq: int
    skv: int
    d: int
    dv: int
    score: str = "identity"
    mask: str = "all"
    kv_heads: int | None = None
    kv_batch: int | None = None
    blocks: tuple[int, int] | None = None  # of a block mask; None: ours has the mask function alone
    strides: str = "bhsd"  # dimensions in memory, the outermost first

    @property
    def gqa(self) -> bool:
        return self.kv_heads not in (None, self.heads)


@dataclass(frozen=True)
class Function:
    """In C++ and in torch, with what it reads; `derivative`: None of masks."""

    expression: str
    derivative: str | None
    function: Callable[..., Tensor]
    tensors: Callable[[Case], tuple[Tensor, ...]] = lambda case: ()

    def register(self, name: str) -> None:
        places = 4 if self.derivative is None else 5
        common = {"expression": self.expression, "function": self.function}
        common["operands"] = self.function.__code__.co_argcount - places
        if self.derivative is None:
            wmma_ops.register_mask_mod(f"grids_{name}", **common)
        else:
            wmma_ops.register_score_mod(f"grids_{name}", derivative=self.derivative, **common)

    def reading(self, tensors: tuple[Tensor, ...]) -> Callable[..., Tensor]:
        """As FlexAttention takes it, which counts arguments."""
        if self.derivative is None:
            return lambda b, h, q, k: self.function(b, h, q, k, *tensors)
        return lambda score, b, h, q, k: self.function(score, b, h, q, k, *tensors)


def where(shown: str, function: Callable[..., Tensor], tensors=lambda case: ()) -> Function:
    """A score function that hides by −inf."""
    return Function(f"({shown}) ? score : {HIDDEN}", f"({shown}) ? 1 : 0", function, tensors)


def added(what: str, function: Callable[..., Tensor], tensors=lambda case: ()) -> Function:
    return Function(f"score + {what}", "1", function, tensors)


def hidden_unless(shown: Tensor, score: Tensor) -> Tensor:
    return torch.where(shown, score, -torch.inf)


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> tuple[Tensor]:
    return (torch.randn(shape).to(dtype),)


def eighths(case: Case) -> tuple[Tensor]:
    return (torch.arange(max(case.sq, case.skv), dtype=torch.int32) // (case.skv // 8),)


def nested(case: Case) -> tuple[Tensor, Tensor]:
    """Which of three sequences a token is of, and where each begins."""
    n = case.skv
    begins = torch.tensor([0, n // 2, n * 3 // 4], dtype=torch.int32)
    return (torch.arange(max(case.sq, n))[:, None] >= begins).sum(-1).int() - 1, begins


def table(case: Case) -> tuple[Tensor, Tensor]:
    n = max(case.sq, case.skv)
    return (*randn(2 * n, dtype=case.dtype), torch.tensor(n))


def number(case: Case) -> tuple[Tensor]:
    return (torch.tensor(2, dtype=torch.int32),)


def lower(case: Case) -> tuple[Tensor]:
    return (torch.ones(case.batch, 1, case.sq, case.skv, dtype=torch.bool).tril(),)


def near_2d(q: Tensor, k: Tensor) -> Tensor:
    return ((q / 8 - k / 8).abs() <= 3) | ((q % 8 - k % 8).abs() <= 3)


NEAR_2D = "abs(query / 8.f - key / 8.f) <= 3 || abs(query % 8 - key % 8) <= 3"

BUILT_IN = {
    "identity": Function("score", "1", lambda s, b, h, q, k: s),
    "times_two": Function("score * 2", "2", lambda s, b, h, q, k: s * 2),
    "squared": Function("score * score", "2 * score", lambda s, b, h, q, k: s * s),
    "causal": where("query >= key", lambda s, b, h, q, k: hidden_unless(q >= k, s)),
    "inverse_causal": where("query <= key", lambda s, b, h, q, k: hidden_unless(q <= k, s)),
    "rel_bias": added("(query - key)", lambda s, b, h, q, k: s + (q - k)),
    "rel_causal": Function(
        f"query >= key ? score + (query - key) : {HIDDEN}",
        "query >= key ? 1 : 0",
        lambda s, b, h, q, k: hidden_unless(q >= k, s + (q - k)),
    ),
    "alibi_bias": added(
        "(key - query) * exp2(-(head + 1.f))", lambda s, b, h, q, k: s + (k - q) * torch.exp2(-(h + 1.0))
    ),
}
SCORES = BUILT_IN | {
    "head_offset": Function(
        "score * a(head)",
        "a(head)",
        lambda s, b, h, q, k, offset: s * offset[h],
        lambda case: (torch.rand(case.heads).to(case.dtype),),
    ),
    "trig": Function(
        "sin(cos(score)) + tan(batch * 1.f)",
        "-cos(cos(score)) * sin(score)",
        lambda s, b, h, q, k: torch.sin(torch.cos(s)) + torch.tan(b),
    ),
    "trig2": Function(
        "cos(score) * sin(score) + tan(batch * 1.f)",
        "cos(score) * cos(score) - sin(score) * sin(score)",
        lambda s, b, h, q, k: torch.cos(s) * torch.sin(s) + torch.tan(b),
    ),
    "document_causal": where(
        "query >= key && a(query) == a(key)",
        lambda s, b, h, q, k, ids: hidden_unless((q >= k) & (ids[q] == ids[k]), s),
        eighths,
    ),
    "index_multiple": added(
        "a(batch, query)", lambda s, b, h, q, k, bias: s + bias[b, q], lambda case: randn(case.batch, case.sq)
    ),
    "index_weird1": added(
        "a(0, batch, head, query)",
        lambda s, b, h, q, k, bias: s + bias[0, b, h, q],
        lambda case: randn(4, case.batch, case.heads, case.sq),
    ),
    "index_weird2": added(
        "a(batch, head, b(), query)",
        lambda s, b, h, q, k, bias, which: s + bias[b, h, which, q],
        lambda case: (*randn(case.batch, case.heads, 4, case.sq), torch.tensor(0)),
    ),
    "skip_odd_keys": where("key % 2 == 0", lambda s, b, h, q, k: hidden_unless(k % 2 == 0, s)),
    "composition": Function(
        f"query <= key ? score + (query - key) : {HIDDEN}",
        "query <= key ? 1 : 0",
        lambda s, b, h, q, k: hidden_unless(q <= k, s + (q - k)),
    ),
    "all_dims": added(
        "a(query) + b(batch) + c(head)",
        lambda s, b, h, q, k, of_query, of_batch, of_head: s + of_query[q] + of_batch[b] + of_head[h],
        lambda case: (*randn(case.sq), *randn(case.batch), *randn(case.heads)),
    ),
    "seq_masking": where(
        "a(query) == a(key)",
        lambda s, b, h, q, k, second: hidden_unless(second[q] == second[k], s),
        lambda case: (torch.arange(max(case.sq, case.skv)) >= case.skv // 2,),
    ),
    "bias_seq": added(
        "a(query, key)",
        lambda s, b, h, q, k, bias: s + bias[q, k],
        lambda case: randn(case.sq, case.skv, dtype=case.dtype),
    ),
    "bias_seq_batch": added(
        "a(batch, query, key)",
        lambda s, b, h, q, k, bias: s + bias[b, q, k],
        lambda case: randn(case.batch, case.sq, case.skv, dtype=case.dtype),
    ),
    "bias_head_seq_batch": added(
        "a(batch, head, query, key)",
        lambda s, b, h, q, k, bias: s + bias[b, h, q, k],
        lambda case: randn(case.batch, case.heads, case.sq, case.skv, dtype=case.dtype),
    ),
    "load_rel_bias": added("a(query - key + b())", lambda s, b, h, q, k, bias, middle: s + bias[q - k + middle], table),
    "view_buffer": added(
        "a(batch, head, query, key / 8)",
        lambda s, b, h, q, k, bias: s + bias[b, h, q, k // 8],
        lambda case: randn(case.batch, case.heads, case.sq, -(-case.skv // 8), dtype=case.dtype),
    ),
    "bidirectional": where(
        "query >= key || max(query, key) <= a(batch)",
        lambda s, b, h, q, k, n: hidden_unless(((q <= n[b]) & (k <= n[b])) | (q >= k), s),
        lambda case: (torch.randint(0, case.skv, (case.batch,), dtype=torch.int32),),
    ),
    "natten_2d": where(NEAR_2D, lambda s, b, h, q, k: hidden_unless(near_2d(q, k), s)),
    "floor_div": Function("score - query / (1 + key)", "1", lambda s, b, h, q, k: s - q // (1 + k)),
    "silu": Function(
        "score / (1 + exp(-score))",
        "(1 + exp(-score) * (1 + score)) / ((1 + exp(-score)) * (1 + exp(-score)))",
        lambda s, b, h, q, k: torch.nn.functional.silu(s),
    ),
    "softcap": Function(
        "20 * tanh(score / 20)",
        "1 - tanh(score / 20) * tanh(score / 20)",
        lambda s, b, h, q, k: 20 * torch.tanh(s / 20),
    ),
    "padded_dense_causal": where(  # hides by how large a score is, and a whole row at times
        "query >= key && score <= a(batch)",
        lambda s, b, h, q, k, n: hidden_unless((s <= n[b]) & (q >= k), s),
        lambda case: (torch.arange(case.batch, dtype=torch.int32) + 1,),
    ),
    "captured_scale": added("a()", lambda s, b, h, q, k, scale: s + scale, number),
    "captured_factor": Function("score * a()", "a()", lambda s, b, h, q, k, scale: s * scale, number),
    "njt_causal": where(
        "query - b(a(query)) >= key - b(a(key))",
        lambda s, b, h, q, k, of, begins: hidden_unless(q - begins[of[q]] >= k - begins[of[k]], s),
        nested,
    ),
    "bool_bias": added("a(batch, 0, query, key)", lambda s, b, h, q, k, ones: s + ones[b, 0, q, k], lower),
}
MASKS = {
    "causal": Function("query >= key", None, lambda b, h, q, k: q >= k),
    "inverse_causal": Function("query <= key", None, lambda b, h, q, k: q <= k),
    "sliding_window": Function("query >= key && query - key <= 32", None, lambda b, h, q, k: (q >= k) & (q - k <= 32)),
    "near": Function("abs(query - key) <= 20", None, lambda b, h, q, k: (q - k).abs() <= 20),
    "documents": Function(
        "a(batch, query) == a(batch, key)",
        None,
        lambda b, h, q, k, ids: ids[b, q] == ids[b, k],
        lambda case: (torch.randint(0, 4, (case.batch, max(case.sq, case.skv))).sort(-1).values,),
    ),
    "prefix": Function(
        "key < a(batch) || key <= query",
        None,
        lambda b, h, q, k, n: (k < n[b]) | (k <= q),
        lambda case: (torch.randint(1, case.skv, (case.batch,)),),
    ),
    "holes": Function("(query / 40 + key / 56) % 3 != 0", None, lambda b, h, q, k: (q // 40 + k // 56) % 3 != 0),
    "by_head": Function("head % 2 == 0 || query >= key", None, lambda b, h, q, k: (h % 2 == 0) | (q >= k)),
    "natten_2d": Function(NEAR_2D, None, lambda b, h, q, k: near_2d(q, k)),
    "rows_that_see_nothing": Function(
        "query < a()", None, lambda b, h, q, k, n: (q < n) & (k >= 0), lambda case: (torch.tensor(case.sq // 2),)
    ),
    "nothing": Function("query >= key && query < key", None, lambda b, h, q, k: (q >= k) & (q < k)),
    "by_a_tensor": Function("a(batch, 0, query, key)", None, lambda b, h, q, k, seen: seen[b, 0, q, k], lower),
    "causal_at_the_end": Function(
        "query + a() >= key", None, lambda b, h, q, k, n: q + n >= k, lambda case: (torch.tensor(case.skv - case.sq),)
    ),
}
for known in (SCORES, MASKS):
    for name, one in known.items():
        one.register(name)

LAYOUTS = ("bhsd", "hbsd", "bshd", "sbhd")


def rows(grid: str, size: Size) -> Iterator[dict]:
    """Of a grid's cases what is not as in most."""
    n, d = size.length, size.d
    built_in = [{"score": name} for name in BUILT_IN]
    double = 2 * size.block
    sizes_of_blocks = itertools.product((size.block, double), repeat=2)
    axes: dict[str, tuple] = {
        "scores": ([{"score": name} for name in SCORES],),
        "lengths": (built_in, [{"sq": q, "skv": k} for q, k in ((n // 2, n), (n - 1, n - 1), (n, n // 2 + 1))]),
        "sizes": (built_in, [{"d": d, "dv": d // 2}, {"d": d // 2, "dv": d}]),
        "heads": (built_in, [{"kv_heads": 2}, {"kv_heads": 1}], [{"heads": 4, "sq": n}, {"heads": 4, "sq": n // 8}]),
        "batches": (built_in, [{"batch": b, "kv_batch": 1, "heads": 4, "kv_heads": 2} for b in (3, 4, 5)]),
        "masks": ([{"mask": name} for name in MASKS], [{}, {"heads": 4, "kv_heads": 1, "sq": n // 2}]),
        "blocks": ([{"mask": name} for name in ("all", *MASKS)], [{"blocks": of} for of in sizes_of_blocks]),
        "decoding": (
            [*built_in, {"mask": "causal_at_the_end"}, {"mask": "causal_at_the_end", "blocks": (size.block, double)}],
            [{"sq": queries, "batch": 8 * size.batch} for queries in (1, 2, 16)],  # means of few numbers scatter
            [{"kv_heads": size.heads}, {"heads": 4, "kv_heads": 1}],
        ),
        "strides": ([{"score": "alibi_bias"}, {"mask": "causal"}], [{"strides": of} for of in LAYOUTS]),
    }
    for parts in itertools.product(*axes[grid]):
        yield {key: value for part in parts for key, value in part.items()}


GRIDS = ("scores", "lengths", "sizes", "heads", "batches", "masks", "blocks", "decoding", "strides")


def cases(grid: str, size: Size, in_all: bool) -> list[Case]:
    """Types take turns that no axis of 2, 3 or 4 follows."""
    usual = {"batch": size.batch, "heads": size.heads, "sq": size.length, "skv": size.length, "d": size.d, "dv": size.d}
    found = []
    for i, row in enumerate(rows(grid, size)):
        if grid == "blocks":
            row["score"] = list(BUILT_IN)[i % len(BUILT_IN)]
        turns = range(len(TYPES)) if in_all else [0]
        found += [Case(grid, TYPES[(i + i // 3 + i // 9 + turn) % 3], **usual | row) for turn in turns]
    return found


def laid_out(x: Tensor, order: str) -> Tensor:
    """The same numbers, with dimensions in this order in memory."""
    to = ["bhsd".index(name) for name in order]
    back = [order.index(name) for name in "bhsd"]
    return x.permute(to).contiguous().permute(back)


def drawn(case: Case, device: str) -> dict:
    """Operands, what is above them, and what each function reads."""
    torch.manual_seed(zlib.crc32(repr(case).encode()))
    kv = (case.kv_batch or case.batch, case.kv_heads or case.heads, case.skv)
    shapes = {"q": (case.batch, case.heads, case.sq, case.d), "k": (*kv, case.d), "v": (*kv, case.dv)}
    given: dict = {name: laid_out(torch.randn(shape), case.strides) for name, shape in shapes.items()}
    given["above"] = laid_out(torch.randn(case.batch, case.heads, case.sq, case.dv), case.strides)
    given = {name: x.to(device, case.dtype) for name, x in given.items()}
    given["above_lse"] = torch.randn(case.batch, case.heads, case.sq).to(device)
    for what, known, name in (("score", SCORES, case.score), ("mask", MASKS, case.mask)):
        read = () if name == "all" else known[name].tensors(case)
        given[what] = tuple(x.to(device) for x in read)
    return given


def block_mask_of(case: Case, tensors: tuple[Tensor, ...], device: str):
    function, outer = flex.noop_mask, (None, None)
    if case.mask != "all":
        of = MASKS[case.mask]
        function = of.reading(tensors)
        outer = (case.batch if "batch" in of.expression else None, case.heads if "head" in of.expression else None)
    if case.kv_batch:  # which FlexAttention takes only so
        outer = case.batch, outer[1]
    return flex.create_block_mask(function, *outer, case.sq, case.skv, device=device, BLOCK_SIZE=case.blocks or 128)


def theirs(case: Case, q: Tensor, k: Tensor, v: Tensor, given: dict, block_mask) -> tuple[Tensor, Tensor]:
    torch._dynamo.reset()  # it compiles a function that wraps another, and refuses after a few of them
    score = SCORES[case.score].reading(given["score"])
    options = {"enable_gqa": case.gqa, "return_aux": flex.AuxRequest(lse=True)}
    with mock.patch.object(flex, "_validate_device") if q.device.type == "cpu" else contextlib.nullcontext():
        out, beside = flex.flex_attention(q, k, v, score_mod=score, block_mask=block_mask, **options)
    return out, beside.lse


def ours(case: Case, q: Tensor, k: Tensor, v: Tensor, given: dict, block_mask) -> tuple[Tensor, Tensor]:
    if case.kv_batch:
        k, v = (x.expand(case.batch, -1, -1, -1) for x in (k, v))
    names = {"score_mod": f"grids_{case.score}", "mask_mod": None if case.mask == "all" else f"grids_{case.mask}"}
    blocks = block_mask if case.blocks else None
    read = given["score"] or given["mask"]
    return wmma_ops.attention(q, k, v, block_mask=blocks, mod_operands=read, enable_gqa=case.gqa, **names)


def results(compute, case: Case, given: dict, block_mask, dtype: torch.dtype) -> dict[str, Tensor]:
    leaves = [given[name].to(dtype).detach().requires_grad_() for name in "qkv"]
    out, lse = compute(case, *leaves, given, block_mask)
    # Of a row that sees nothing, the log-sum-exp has no gradient.
    above = given["above"].to(dtype), torch.where(lse.isfinite(), given["above_lse"], 0).to(lse.dtype)
    gradients = torch.autograd.grad((out, lse), leaves, above)
    return dict(zip(("out", "lse", "dq", "dk", "dv"), (out.detach(), lse.detach(), *gradients), strict=True))


@dataclass(frozen=True)
class Found:
    """A comparison: the mean errors, and what ours may be."""

    what: str
    error: float
    theirs: float
    most: float

    @property
    def right(self) -> bool:
        return self.error <= self.most  # NaN is not

    @property
    def share(self) -> float | None:
        return self.error / self.most if self.most else None

    def __str__(self) -> str:
        return f"{self.what}: {self.error:.3g}, at most {self.most:.3g}, FlexAttention {self.theirs:.3g}"


def compared(case: Case, got: dict, plain: dict, exact: dict) -> Iterator[Found]:
    for what, wanted in exact.items():
        seen = wanted.isfinite() if what == "lse" else torch.ones_like(wanted, dtype=torch.bool)
        count = max(int(seen.sum()), 1)
        error, of_plain = (((x[what].double() - wanted)[seen].abs().sum() / count).item() for x in (got, plain))
        if not torch.equal(got[what].isinf(), ~seen):
            error = torch.inf
        dtype = torch.float32 if what == "lse" else case.dtype
        magnitude = (wanted[seen].abs().sum() / count).item()
        floor = UNITS[dtype] * torch.finfo(dtype).eps * (max(magnitude, 1.0) if what == "lse" else magnitude)
        yield Found(what, error, of_plain, max(TIMES[dtype] * of_plain, floor))


def ask(case: Case, target: str | None = None, device: str = "cpu") -> list[Found]:
    given = drawn(case, device)
    block_mask = block_mask_of(case, given["mask"], device)
    exact = results(theirs, case, given, block_mask, torch.float64)
    plain = results(theirs, case, given, block_mask, case.dtype)
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        got = results(ours, case, given, block_mask, case.dtype)
    return list(compared(case, got, plain, exact))


def spread(found: list[Case], count: int | None) -> list[Case]:
    """So many, from all over the list."""
    return found[:: max(1, len(found) // count)][:count] if count else found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_options(parser, GRIDS)
    parser.add_argument("--all", action="store_true", help="each case in each type")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--count", type=int, help="so many cases of a grid, from all over it; emulated, 4 by default")
    options = parser.parse_args(arguments)
    size = EMULATED if options.target else THEIRS if options.device == "cuda" else CPU
    count = options.count or (4 if options.target else None)
    for what, why in NOT_ASKED.items():
        print(f"not asked: {what} ({why})")
    chosen = ((grid, spread(cases(grid, size, options.all)[options.part], count)) for grid in options.grid or GRIDS)
    return ask_all(chosen, lambda case: ask(case, options.target, options.device), "what they may be", 9)


if __name__ == "__main__":
    sys.exit(main())
