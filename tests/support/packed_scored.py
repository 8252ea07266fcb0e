"""Attention of packed sequences with functions of scores and masks: cases, ours, and a formula, one sequence at a time."""

import dataclasses
from dataclasses import dataclass
from typing import Any

import scored
import torch
from scored import BOTH, CAP, DOCUMENTS, EVEN, FIRST, LEAST, NEAR, PREFIX, SEED, SLOPES, TABLE, Case

import wmma_ops

Tensor = torch.Tensor
DESCALES = {"k_descale": 2.0, "v_descale": 0.5}  # of keys and values that are kept as numbers of 8 bits


@dataclass(frozen=True)
class PackedCase:
    dtype: str
    score_mod: str | None = None
    mask_mod: str | None = None
    queries: tuple[int, ...] = (19, 0, 3, 2)
    keys: tuple[int, ...] = (37, 9, 5, 0)
    used: tuple[int, ...] | None = None  # of the keys
    page_size: int | None = None  # keys and values lie in pages, the last of a sequence first, and have no gradients
    narrow: bool = False  # as numbers of 8 bits
    beyond: int = 0  # tokens of no sequence
    heads: int = 2
    kv_heads: int | None = None
    e: int = 24
    ev: int = 16
    window: tuple[int, int] = (-1, -1)
    softcap: float = 0.0
    sinks: bool = False
    slopes: bool = False
    dropout_p: float = 0.0
    blocks: tuple[int, int] | None = None
    blocks_alike: bool = False

    def __str__(self) -> str:
        extras = (
            "used",
            "page_size",
            "narrow",
            "beyond",
            "kv_heads",
            "softcap",
            "sinks",
            "slopes",
            "dropout_p",
            "blocks",
        )
        window = "windowed" if self.window != (-1, -1) else None
        names = (name for name in extras if getattr(self, name))
        return "-".join(filter(None, (self.dtype, self.score_mod, self.mask_mod, window, *names)))

    @property
    def skv(self) -> int:
        return max(self.keys)

    @property
    def longest(self) -> tuple[int, int, int]:
        """How many there are, and the most queries and keys of one."""
        return len(self.queries), max(self.queries), self.skv

    @property
    def mods(self) -> tuple[Tensor, ...]:
        """As of a batch of sequences that all are as long as the longest."""
        longest = max(*self.queries, *self.keys)
        names = (self.dtype, self.score_mod, self.mask_mod)
        return scored.mods_of(Case(*names, batch=(len(self.queries),), heads=self.heads, skv=longest))

    def alone(self, i: int) -> Case:
        """Sequence `i` by itself."""
        shared = {field.name for field in dataclasses.fields(Case)} & {field.name for field in dataclasses.fields(self)}
        lengths = {"sq": self.queries[i], "skv": (self.used or self.keys)[i]}
        same = {name: getattr(self, name) for name in shared}
        return Case(**same, **lengths, batch=(), first_batch=i, sequences=self.longest)


CASES = (
    PackedCase("float16", TABLE),
    PackedCase("bfloat16", None, DOCUMENTS, window=(-1, 0), e=64, ev=64, queries=(40, 20), keys=(40, 33)),
    PackedCase("float32", BOTH, EVEN, heads=4, kv_heads=2, sinks=True, used=(30, 9, 5, 0), beyond=3),
    PackedCase("bfloat16", BOTH, heads=4, kv_heads=1, window=(9, 4), dropout_p=0.3),
    PackedCase("float64", TABLE, PREFIX, queries=(5, 9), keys=(9, 3)),
    PackedCase("float16", CAP, NEAR, softcap=4.0, slopes=True, window=(12, -1)),
    PackedCase("bfloat16", LEAST, queries=(9, 20), keys=(21, 33)),
    PackedCase("float32", SLOPES, FIRST, queries=(9, 3), keys=(33, 3), window=(-1, 0), beyond=5),
    PackedCase(
        "float16", BOTH, queries=(1, 3, 1), keys=(90, 300, 5), heads=4, kv_heads=1, e=64, ev=64
    ),  # keys are split
)
IN_PAGES = (
    PackedCase("float16", CAP, DOCUMENTS, page_size=16, queries=(20, 33), keys=(20, 90), window=(-1, 0)),
    PackedCase("bfloat16", BOTH, EVEN, page_size=64, queries=(1, 3, 1), keys=(90, 300, 5), heads=4, kv_heads=1, e=64),
    PackedCase("float32", TABLE, PREFIX, page_size=48, queries=(5, 0, 9), keys=(60, 4, 0), used=(55, 2, 0), sinks=True),
    PackedCase("bfloat16", BOTH, NEAR, page_size=32, narrow=True, queries=(20, 130), keys=(90, 333), e=64, ev=64),
    PackedCase(
        "float16", CAP, EVEN, page_size=64, narrow=True, queries=(1, 3), keys=(90, 300), heads=4, kv_heads=1, e=128
    ),
)
WITH_BLOCKS = (
    PackedCase("float16", queries=(100, 0, 40, 3), keys=(150, 9, 20, 0), blocks=(32, 32)),
    PackedCase(
        "bfloat16",
        None,
        NEAR,
        queries=(200, 70),
        keys=(300, 90),
        heads=4,
        kv_heads=2,
        e=64,
        ev=64,
        window=(-1, 0),
        blocks=(64, 128),
    ),
    PackedCase(
        "float32",
        CAP,
        EVEN,
        queries=(70, 130),
        keys=(100, 66),
        used=(90, 66),
        beyond=3,
        sinks=True,
        softcap=3.0,
        blocks=(64, 32),
        blocks_alike=True,
    ),
    PackedCase("float64", queries=(70, 33), keys=(40, 90), blocks=(32, 64)),
    PackedCase(
        "float16", queries=(1, 3), keys=(90, 1500), heads=4, kv_heads=1, e=64, ev=64, blocks=(128, 64)
    ),  # keys are split
    PackedCase("bfloat16", TABLE, NEAR, queries=(33, 40), keys=(2400, 50), heads=1, blocks=(96, 32), dropout_p=0.3),
    PackedCase(
        "float16", None, EVEN, queries=(130, 60), keys=(290, 300), window=(200, 90), slopes=True, blocks=(128, 64)
    ),
    PackedCase("bfloat16", queries=(400, 190), keys=(500, 390), e=64, ev=64, blocks=(192, 128)),
)
BLOCKS_IN_PAGES = (
    PackedCase("float16", page_size=64, queries=(200, 9), keys=(250, 300), e=64, ev=64, blocks=(128, 64)),
    PackedCase("float16", CAP, NEAR, page_size=16, queries=(20, 70), keys=(20, 90), window=(-1, 0), blocks=(32, 32)),
    PackedCase(
        "bfloat16", page_size=64, queries=(1, 3, 100), keys=(90, 300, 5), heads=4, kv_heads=2, e=64, blocks=(64, 128)
    ),
    PackedCase(
        "bfloat16", CAP, page_size=16, narrow=True, queries=(200, 90), keys=(250, 300), e=64, ev=64, blocks=(128, 128)
    ),
)
ALL = (*CASES, *IN_PAGES, *WITH_BLOCKS, *BLOCKS_IN_PAGES)


def states_of(case: PackedCase) -> Tensor:
    """As many blocks for each sequence as for the longest."""
    count, sq, skv = case.longest
    sizes = Case(case.dtype, batch=(count,), heads=case.heads, sq=sq, skv=skv)
    return scored.states_of(dataclasses.replace(sizes, blocks=case.blocks, blocks_alike=case.blocks_alike))


def operands(case: PackedCase) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(0)
    dtype = getattr(torch, case.dtype)

    def tensor(*shape):
        return torch.randn(shape, generator=generator).to(dtype)

    kv = sum(case.keys) + case.beyond, case.kv_heads or case.heads
    t = {"q": tensor(sum(case.queries) + case.beyond, case.heads, case.e), "k": tensor(*kv, case.e)}
    t["v"] = tensor(*kv, case.ev)
    if case.narrow:
        for name, descale in zip("kv", DESCALES.values(), strict=True):
            t[name] = (t[name] / descale).to(torch.float8_e4m3fn).to(dtype) * descale
    if case.sinks:
        t["sinks"] = tensor(case.heads)
    if case.slopes:
        t["alibi_slopes"] = tensor(case.heads).float().abs()
    return t


def _ends(lengths: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0, dtype=torch.int32).to(device)


def _in_pages(case: PackedCase, x: Tensor, counts: list[int]) -> Tensor:
    """Those of a sequence one after the other, the last first; what none has is NaN."""
    pages = []
    for keys, count in zip(x.split([*case.keys, case.beyond]), counts, strict=False):
        padding = x.new_full((count * case.page_size - keys.shape[0], *x.shape[1:]), torch.nan)
        pages.extend(reversed(torch.cat([keys, padding]).unflatten(0, (count, case.page_size)).unbind()))
    return torch.stack(pages)


def ours(q, k, v, case: PackedCase, mods: tuple[Tensor, ...], **beside: Tensor) -> tuple[Tensor, Tensor]:
    options: dict[str, Any] = {
        "window_size": case.window,
        "softcap": case.softcap,
        "enable_gqa": case.kv_heads is not None,
    }
    options |= {"score_mod": case.score_mod, "mask_mod": case.mask_mod, "mod_operands": mods}
    if case.dropout_p:
        options |= {"dropout_p": case.dropout_p, "dropout_seed": SEED.to(q.device)}
    if case.blocks:
        options["block_mask"] = wmma_ops.Blocks(states_of(case).to(q.device), *case.blocks)
    if case.used or case.page_size:
        options["seqused_k"] = torch.tensor(case.used or case.keys, dtype=torch.int32, device=q.device)
    ends_q, ends_k, max_k = _ends(case.queries, q.device), _ends(case.keys, q.device), max(case.keys)
    if case.page_size:
        counts = [-(-keys // case.page_size) for keys in case.keys]
        k, v = (_in_pages(case, x.detach(), counts) for x in (k, v))
        last = torch.tensor(counts, dtype=torch.int32, device=q.device).cumsum(0, dtype=torch.int32)[:, None] - 1
        options["block_table"] = last - torch.arange(max(counts), dtype=torch.int32, device=q.device)
        q, ends_k, max_k = q.detach(), None, None
    if case.narrow:
        k, v = ((x / descale).to(torch.float8_e4m3fn) for x, descale in zip((k, v), DESCALES.values(), strict=True))
        options |= {name: torch.tensor(descale, device=q.device) for name, descale in DESCALES.items()}
    return wmma_ops.varlen_attention(q, k, v, ends_q, ends_k, max(case.queries), max_k, **options, **beside)


def formula(q, k, v, case: PackedCase, mods, **beside) -> tuple[Tensor, Tensor]:
    """By torch alone, one sequence after the other."""
    outs, lses = [], []
    starts = zip(_ends(case.queries, q.device).tolist(), _ends(case.keys, q.device).tolist(), strict=True)
    for i, (query, key) in enumerate(list(starts)[:-1]):
        alone = case.alone(i)
        own = q[query : query + alone.sq], *(x[key : key + alone.skv] for x in (k, v))
        out, lse = scored.formula(*(x.transpose(0, 1) for x in own), alone, mods, **beside)
        outs.append(out.transpose(0, 1))
        lses.append(lse)
    outs.append(q.new_zeros(case.beyond, case.heads, case.ev))
    lses.append(lses[0].new_full((case.heads, case.beyond), -torch.inf))
    return torch.cat(outs), torch.cat(lses, -1)


def results(case: PackedCase, compute, dtype: torch.dtype | None = None, device: str = "cpu") -> dict[str, Tensor]:
    """Both results, and gradients where there are any."""
    t = operands(case)
    if not case.page_size:
        return scored.differentiated(case, t, case.mods, compute, dtype, device)
    t = {name: scored.on(device, x.to(dtype or x.dtype)) for name, x in t.items()}
    out, lse = compute(t.pop("q"), t.pop("k"), t.pop("v"), case, tuple(scored.on(device, x) for x in case.mods), **t)
    return {"out": out.cpu(), "lse": lse.cpu()}


def check(case: PackedCase, got: dict[str, Tensor]) -> None:
    scored.compare(case, got, results(case, formula, torch.float64), results(case, formula))


def emulated(case: PackedCase, target: str) -> dict[str, Tensor]:
    with wmma_ops.emulate(target) as emulation:
        got = results(case, ours)
    # Forward, and what no sequence has; gradients of queries and of keys, what comes before them, and what none has.
    assert len(emulation.launches) >= (2 if case.page_size else 6)
    return got
