"""Attention as models call it, each kind beside its peers: what bench_draw.py draws."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import attention_peers
import bench_attention
import running
import torch
from bench_attention import Packed, Shape
from bench_train import padding
from model_sizes import Sizes
from running import check, matrix

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls

CAP = 30.0
MEAN = 0.6  # of packed sequences' lengths, of the longest


@dataclass(frozen=True)
class Kind:
    """What is asked, the group of its figures, and how the call and its peers are made."""

    name: str
    group: str
    make: Callable[["Drawn"], Calls]
    peers: tuple[str, ...] = ()  # torch's and FlashAttention-4, unless given
    page: int = 0

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Drawn:
    of: Sizes
    batch: int
    length: int
    kind: Kind

    def __str__(self) -> str:
        return f"{self.batch}x{self.of.heads}/{self.of.kv_heads}x{self.length}x{self.of.head_size} {self.kind}"

    @property
    def queries(self) -> int:
        return 1 if self.kind.name == "one query" or self.kind.page else self.length

    @property
    def window(self) -> int | None:
        return self.length // 4 if self.kind.name == "window" else None

    @property
    def causal(self) -> bool:
        return self.kind.name == "causal"

    @property
    def grouped(self) -> bool:
        return self.of.heads != self.of.kv_heads

    @property
    def shape(self) -> Shape:
        of, kv_heads = self.of, self.of.kv_heads if self.grouped else None
        return Shape(self.batch, of.heads, self.queries, self.length, of.head_size, kv_heads=kv_heads)

    @property
    def packed(self) -> Packed:
        of, kv_heads = self.of, self.of.kv_heads if self.grouped else None
        sequences = max(self.batch, 2)
        return Packed(
            round(sequences * self.length * MEAN), sequences, self.length, of.heads, of.head_size, True, kv_heads
        )

    @property
    def flops(self) -> float:
        of = self.of
        return 4 * self.batch * of.heads * self.queries * self.length * of.head_size / (2 if self.causal else 1)

    def ours(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
        rules = {"is_causal": self.causal} if self.window is None else {"window": (self.window, 0)}
        return wmma_ops.attention(q, k, v, mask=mask, enable_gqa=self.grouped, **rules)[0]


def _dense(of: Drawn) -> Calls:
    q, k, v = bench_attention.operands(of.shape)
    mask = _mask(of)
    ours = partial(of.ours, q, k, v, mask)
    peers, missing = attention_peers.peers(q, k, v, mask, of.causal, of.window)
    errors = [check(ours(), call()) for call in peers.values()]
    return Calls({OURS: ours, **peers}, missing, of.flops, error=max(errors, default=None))


def _mask(of: Drawn) -> torch.Tensor | None:
    kind, length = of.kind.name, of.length
    if kind == "bias":
        return matrix(1, of.of.heads, length, length)
    if kind not in ("padding", "bool"):
        return None
    places = torch.arange(length, device=running.DEVICE)
    of_keys = padding(of.batch, length)
    return of_keys if kind == "padding" else of_keys & (places <= places[:, None])


def _capped(of: Drawn) -> Calls:
    """Causal, as Gemma 2 has it."""
    shape = dataclasses.replace(of.shape, window=of.length, softcap=CAP)
    q, k, v = bench_attention.operands(shape)

    def ours() -> torch.Tensor:
        return wmma_ops.attention(q, k, v, is_causal=True, softcap=CAP, enable_gqa=of.grouped)[0]

    peer = bench_attention.flex(shape, q, k, v)
    try:
        want = peer()
    except RuntimeError as error:  # it has no kernel for some short ones
        return Calls(
            {OURS: ours}, {"flex": str(error).strip().partition("\n")[0]}, error=check(ours(), _by_rows(q, k, v))
        )
    return Calls({OURS: ours, "flex": peer}, error=check(ours(), want))


def _by_rows(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """The same with its scores in memory."""
    k, v = (x.float().repeat_interleave(q.shape[1] // k.shape[1], 1) for x in (k, v))
    scores = CAP * torch.tanh(q.float() @ k.mT * q.shape[-1] ** -0.5 / CAP)
    hidden = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
    return (scores.masked_fill(hidden, -torch.inf).softmax(-1) @ v).to(q.dtype)


def _packed(of: Drawn) -> Calls:
    return bench_attention.packed(of.packed)


def _paged(of: Drawn) -> Calls:
    return bench_attention.paged(of.shape, page=of.kind.page)


_PLAIN, _MASKED, _ONE, _PIECE = "attention", "attention, masks", "one query", ("in one piece",)
KINDS = (
    Kind("full", _PLAIN, _dense),
    Kind("causal", _PLAIN, _dense),
    Kind("causal", _PLAIN, _dense),
    Kind("window", _PLAIN, _dense),
    Kind("padding", _MASKED, _dense),
    Kind("bool", _MASKED, _dense),
    Kind("bias", _MASKED, _dense),
    Kind("cap", "attention, caps", _capped, ("flex",)),
    Kind("packed", "attention, packed", _packed, ("varlen_attn",)),
    Kind("one query", _ONE, _dense),
    Kind("pages of 16", "one query, pages of 16", _paged, _PIECE, 16),
    Kind("pages of 32", "one query, larger pages", _paged, _PIECE, 32),
    Kind("pages of 128", "one query, larger pages", _paged, _PIECE, 128),
)


def alone(of: Drawn) -> Callable[[], torch.Tensor]:
    """Our call, without peers; of one that `attention` has."""
    q, k, v = bench_attention.operands(of.shape)
    return partial(of.ours, q, k, v, _mask(of))


DENSE = tuple(kind for kind in KINDS if kind.make is _dense)  # what `attention` has, and `alone`


def call(of: Drawn) -> tuple[str, tuple, dict]:
    """The op and its operands, made on the CPU, of which nothing but sizes and places is looked at."""
    sizes, grouped = of.of, {"enable_gqa": of.grouped}

    def tensor(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    if of.kind.page or of.kind.name == "packed":
        tokens, count = (of.batch, of.batch) if of.kind.page else (of.packed.tokens, of.packed.sequences)
        q, ends = tensor(tokens, sizes.heads, sizes.head_size), torch.zeros(count + 1, dtype=torch.int32)
        if not of.kind.page:
            k = tensor(tokens, sizes.kv_heads, sizes.head_size)
            return "varlen_attention", (q, k, k, ends, ends, of.length, of.length), grouped | {"window_size": (-1, 0)}
        row = -(-of.length // of.kind.page)
        k = tensor(of.batch * row, of.kind.page, sizes.kv_heads, sizes.head_size)
        table = {"block_table": torch.zeros(of.batch, row, dtype=torch.int32), "seqused_k": ends[1:]}
        return "varlen_attention", (q, k, k, ends, None, 1, None), grouped | table
    q = tensor(of.batch, sizes.heads, of.queries, sizes.head_size)
    k = tensor(of.batch, sizes.kv_heads, of.length, sizes.head_size)
    shapes = {
        "padding": (of.batch, 1, 1, of.length),
        "bool": (of.batch, 1, of.length, of.length),
        "bias": (1, sizes.heads, of.length, of.length),
    }
    keywords: dict[str, object] = grouped | {"is_causal": of.causal}
    if of.kind.name in shapes:
        dtype = torch.bfloat16 if of.kind.name == "bias" else torch.bool
        keywords["mask"] = tensor(*shapes[of.kind.name], dtype=dtype)
    if of.kind.name == "cap":
        keywords |= {"is_causal": True, "softcap": CAP}
    return "attention", (q, k, k), keywords | ({"window": (of.window, 0)} if of.window is not None else {})
