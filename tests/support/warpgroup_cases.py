"""Attention by sm_90a's warpgroups (kernels/wmma/attention/loops/warpgroup.hpp): what its tests on a GPU ask, and how they
judge gradients."""

import packed_scored
import pytest
import scored
import torch

import wmma_ops
from wmma_ops.plan.attention.loops import warpgroup
from wmma_ops.runtime import driver
from wmma_ops.testing import AttentionCase, Mismatch, VarlenAttentionCase
from wmma_ops.testing.operands import operands
from wmma_ops.testing.reference import unit

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or driver.target_of(0) != "sm_90a", reason="needs a GPU of sm_90a"
)

# One tile of keys, two, several; ragged ones; fewer rows than a warpgroup's; blind rows; scores that grow from tile to
# tile; scales that queries are multiplied by; heads that share keys; results that no copy engine takes.
CASES = [
    AttentionCase(heads=1, sq=40, skv=5, e=64, dtype="bfloat16"),
    AttentionCase(heads=1, sq=256, skv=128, e=128, dtype="float16"),
    AttentionCase(heads=2, sq=130, skv=129, e=128, dtype="bfloat16", scale=2.0),
    AttentionCase(batch=3, heads=5, sq=300, skv=633, e=64, dtype="float16", scale=2.0),
    AttentionCase(batch=2, heads=4, kv_heads=2, sq=150, skv=400, e=72, ev=96, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=4, heads=16, sq=640, skv=640, e=128, dtype="bfloat16", causal="top_left", scale=0.5),
    AttentionCase(heads=1, sq=400, skv=70, e=40, dtype="bfloat16", causal="bottom_right", layout="bshd"),
    AttentionCase(heads=1, sq=140, skv=350, e=64, dtype="float16", mask="blind"),
    AttentionCase(heads=1, sq=140, skv=350, e=128, dtype="bfloat16", mask="float"),
    AttentionCase(heads=2, sq=200, skv=140, e=64, dtype="float16", mask="plane", scale=-0.3),
    AttentionCase(heads=2, sq=200, skv=340, e=256, ev=200, dtype="bfloat16", scale=0.0),
    AttentionCase(heads=2, sq=200, skv=340, e=192, ev=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=2, sq=200, skv=340, e=64, ev=136, dtype="float16"),
    AttentionCase(heads=1, sq=100, skv=3000, e=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=1, skv=1000, e=128, dtype="bfloat16"),
    AttentionCase(batch=2, heads=14, kv_heads=2, sq=25, skv=700, e=64, dtype="float16", causal="bottom_right"),
    AttentionCase(batch=3, heads=142, kv_heads=2, sq=1, skv=1500, e=64, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=1, heads=6, kv_heads=2, sq=50, skv=200, e=80, dtype="bfloat16", mask="plane", layout="bshd"),
    # More tiles of rows than units.
    AttentionCase(batch=3, heads=60, kv_heads=30, sq=190, skv=633, e=64, dtype="bfloat16"),
]
# Windows that begin in a tile, end in it, leave tiles out or rows without keys; caps; sinks of heads that are packed and
# of split keys; slopes.
RULED = [
    AttentionCase(heads=2, sq=300, skv=633, e=64, dtype="float16", window=(100, 50)),
    AttentionCase(heads=2, sq=700, skv=700, e=128, dtype="bfloat16", window=(130, 0), sinks="heads"),
    AttentionCase(heads=1, sq=500, skv=200, e=128, dtype="float16", window=(40, -1), causal="bottom_right"),
    AttentionCase(heads=1, sq=90, skv=900, e=256, dtype="bfloat16", window=(300, 7), softcap=5.0),
    AttentionCase(batch=2, heads=3, sq=140, skv=350, e=64, dtype="bfloat16", softcap=3.0, scale=-0.5, slopes="each"),
    AttentionCase(heads=2, sq=200, skv=340, e=96, dtype="float16", slopes="heads", causal="bottom_right"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=3, skv=1000, e=128, dtype="bfloat16", sinks="own", window=(400, 0)),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=30, skv=700, e=64, dtype="float16", sinks="each", slopes="own"),
    AttentionCase(heads=2, sq=200, skv=340, e=64, dtype="bfloat16", mask="plane", window=(90, 90), softcap=2.0),
    # Rows that see no key of the tiles that come first; scores that are far apart; a cap that is no bound.
    AttentionCase(heads=1, sq=256, skv=512, e=64, dtype="bfloat16", causal="top_left", softcap=50.0, scale=2.0),
    AttentionCase(heads=2, sq=200, skv=900, e=128, dtype="bfloat16", softcap=45.0, scale=3.0),
    AttentionCase(heads=2, sq=210, skv=900, e=128, dtype="bfloat16", softcap=90.0, scale=5.0),
    AttentionCase(heads=1, sq=200, skv=900, e=64, dtype="float16", softcap=20.0, window=(200, 100), causal="top_left"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=2, skv=3000, e=128, dtype="bfloat16", softcap=20.0),
]
# Dropout, of heads that are packed and of keys that are split too.
DROPPED = [
    AttentionCase(heads=2, sq=300, skv=350, e=64, dtype="bfloat16", causal="bottom_right", dropout=0.3),
    AttentionCase(batch=2, heads=3, sq=140, skv=350, e=128, dtype="float16", dropout=0.5, sinks="heads", softcap=5.0),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=3, skv=1000, e=128, dtype="bfloat16", dropout=0.2),
    VarlenAttentionCase(queries=(300, 1, 0, 200), keys=(300, 400, 9, 633), e=64, dtype="float16", dropout=0.4),
]


def _has_whole_tiles(case) -> bool:
    """Of 16 bits, and in the blocks of its mask."""
    narrow = isinstance(case, packed_scored.PackedCase) and case.narrow
    shapes = (warpgroup._widened_shapes if narrow else warpgroup._shapes)(max(case.e, case.ev))
    rows, keys = case.blocks or (0, 0)
    divided = any(rows % (64 * groups) == keys % of == 0 for groups, of in shapes)
    return case.dtype in ("float16", "bfloat16") and max(case.e, case.ev) <= 256 and divided


# Functions of scores and masks, and block masks: tiles of keys that are not there, beside those of the same block.
MODIFIED = [case for case in (*scored.WITH_FUNCTIONS, *scored.WITH_BLOCKS, *scored.FOUND) if _has_whole_tiles(case)]
BLOCKS = scored.WITH_BLOCKS[1]
OF_SEQUENCES = [case for case in packed_scored.ALL if _has_whole_tiles(case)]
PACKED_BLOCKS = packed_scored.WITH_BLOCKS[1]
NARROW_SCORED = next(case for case in packed_scored.ALL if case.narrow)
# Tiles that end with their sequence or go on into the next, sequences without queries or keys, keys that are not there
# yet; heads that share keys, packed; keys that are split; bounds from the last key of each.
SEQUENCES = [
    VarlenAttentionCase(queries=(300, 1, 0, 200, 64), keys=(300, 400, 9, 633, 0), e=64, dtype="float16"),
    VarlenAttentionCase(queries=(300, 130, 700), keys=(300, 400, 700), e=64, dtype="bfloat16", window=(-1, 0), beyond=50),
    VarlenAttentionCase(
        queries=(640, 128, 500), keys=(640, 200, 555), heads=4, kv_heads=2, e=128, dtype="bfloat16", window=(-1, 0)
    ),
    VarlenAttentionCase(queries=(129, 400), keys=(700, 100), e=128, dtype="float16", number="int64", scale=-0.3),
    VarlenAttentionCase(
        queries=(1, 3, 1, 2), keys=(900, 300, 5, 1000), used=(700, 0, 5, 999), heads=8, kv_heads=2, e=128,
        dtype="bfloat16", sinks="heads", window=(-1, 0),
    ),
    VarlenAttentionCase(
        queries=(200, 333), keys=(350, 333), e=96, ev=72, dtype="bfloat16", window=(130, 20), softcap=3.0, layout="htd"
    ),
    VarlenAttentionCase(queries=(90, 200), keys=(900, 200), e=64, dtype="float16", slopes="own", window=(-1, 0)),
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=256, ev=200, dtype="bfloat16"),
    VarlenAttentionCase(queries=(150, 80) * 9, keys=(200, 90) * 9, e=64, dtype="bfloat16", softcap=5.0, beyond=9),
    # One query of each: with so many that blocks begin with some, and with so few that they write what no sequence has.
    VarlenAttentionCase(queries=(1, 0, 1, 1) * 80, keys=(130, 9, 37, 0) * 80, heads=6, e=64, dtype="bfloat16"),
    VarlenAttentionCase(queries=(1, 1, 0, 1), keys=(300, 17, 9, 1), heads=8, e=128, dtype="float16", beyond=40),
]  # fmt: skip
# Tiles of many pages, of one, and of a part of one; keys that are split, in pages; pages with a stride of their own.
PAGES = [
    VarlenAttentionCase(
        queries=(1, 3, 1, 2), keys=(900, 300, 5, 1000), used=(700, 0, 5, 999), heads=8, kv_heads=2, e=128,
        dtype="bfloat16", sinks="heads", window=(-1, 0), page_size=64,
    ),
    VarlenAttentionCase(queries=(300, 9, 200), keys=(300, 0, 633), e=64, dtype="float16", page_size=16, beyond=20),
    VarlenAttentionCase(
        queries=(200, 333), keys=(350, 333), heads=4, kv_heads=2, e=96, ev=72, dtype="bfloat16", window=(130, 20),
        softcap=3.0, layout="htd", page_size=48,
    ),
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=256, ev=200, dtype="bfloat16", page_size=256),
    VarlenAttentionCase(queries=(150, 80) * 9, keys=(200, 90) * 9, e=64, dtype="float16", window=(-1, 0), page_size=128),
    VarlenAttentionCase(
        queries=(1, 0, 1, 1) * 80, keys=(130, 9, 37, 0) * 80, heads=24, kv_heads=6, e=128, dtype="bfloat16", page_size=32
    ),
    VarlenAttentionCase(
        queries=(1, 1, 0, 1), keys=(300, 17, 9, 1), heads=8, e=64, dtype="float16", page_size=16, beyond=40
    ),
    # Tiles of 80 and 96 keys, with an odd number of pages, or of parts of some.
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=256, dtype="bfloat16", window=(-1, 0), page_size=32),
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=192, dtype="bfloat16", window=(-1, 0), page_size=32),
]  # fmt: skip
# The same with keys and values of 8 bits, which are widened: heads whose columns are a half of a box, one and a half, two.
NARROW_PAGES = [
    VarlenAttentionCase(
        queries=(1, 3, 1, 2), keys=(900, 300, 5, 1000), used=(700, 0, 5, 999), heads=8, kv_heads=2, e=128,
        dtype="bfloat16", sinks="heads", window=(-1, 0), page_size=64, stored="float8_e4m3fn", descale="heads",
    ),
    VarlenAttentionCase(
        queries=(300, 9, 200), keys=(300, 0, 633), e=64, dtype="float16", page_size=16, beyond=20,
        stored="float8_e4m3fn", descale="one",
    ),
    VarlenAttentionCase(
        queries=(200, 333), keys=(350, 333), heads=4, kv_heads=2, e=96, ev=64, dtype="bfloat16", window=(130, 20),
        softcap=3.0, layout="htd", page_size=48, stored="float8_e4m3fn", descale="each",
    ),
    VarlenAttentionCase(
        queries=(200, 70), keys=(340, 170), e=256, ev=192, dtype="bfloat16", page_size=256, stored="float8_e4m3fn",
        descale="heads",
    ),
    VarlenAttentionCase(
        queries=(150, 80) * 9, keys=(200, 90) * 9, e=128, dtype="float16", window=(-1, 0), page_size=128, scale=-0.3,
        stored="float8_e4m3fn", descale="heads",
    ),
    VarlenAttentionCase(
        queries=(200, 70), keys=(340, 170), e=192, dtype="bfloat16", window=(-1, 0), page_size=32,
        stored="float8_e4m3fn",
    ),
    VarlenAttentionCase(
        queries=(200, 3), keys=(340, 700), e=128, dtype="bfloat16", page_size=64, stored="float8_e4m3fn", descale="each",
        score_mod="suite_bias", mask_mod="suite_mask",
    ),
]  # fmt: skip
# The rows of the second one are there when those of the first one are.
LATE = VarlenAttentionCase(queries=(40, 30), keys=(2000, 10), heads=72, e=64, dtype="float16")
CAUSAL = AttentionCase(batch=2, heads=40, sq=300, skv=350, e=64, dtype="float16", causal="bottom_right", scale=1.0)
LAST = AttentionCase(heads=135, sq=128, skv=3000, e=64, dtype="bfloat16", softcap=9.0)  # by three more than units
SUNK = AttentionCase(heads=8, kv_heads=2, sq=3, skv=3000, e=128, dtype="bfloat16", sinks="heads", window=(1100, 0))
PASSED = AttentionCase(batch=2, heads=40, sq=576, skv=600, e=64, dtype="float16", causal="bottom_right")  # by three
CAPPED = AttentionCase(heads=2, sq=256, skv=512, e=64, dtype="bfloat16", causal="top_left", softcap=5.0)

# As CASES, but for masks, which waves by themselves take.
GRADIENTS = [
    AttentionCase(heads=2, sq=128, skv=64, e=128, dtype="bfloat16"),
    AttentionCase(batch=2, heads=3, sq=300, skv=500, e=128, dtype="float16", causal="top_left"),
    AttentionCase(batch=2, heads=4, kv_heads=2, sq=257, skv=129, e=64, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=8, kv_heads=2, sq=70, skv=700, e=96, dtype="float16", causal="bottom_right", scale=-0.2),
    AttentionCase(heads=2, sq=200, skv=333, e=72, ev=104, dtype="bfloat16", layout="bshd"),
    AttentionCase(batch=40, heads=4, sq=130, skv=190, e=40, dtype="float16", scale=1.0),
    AttentionCase(heads=2, sq=700, skv=300, e=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=1, sq=90, skv=17500, e=64, dtype="bfloat16"),
]


def gradients(case, q, k, v, g_out):
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    grouped = case.kv_heads is not None
    out, _ = wmma_ops.attention(*given, is_causal=case.causal or False, scale=case.scale, enable_gqa=grouped)
    return torch.autograd.grad(out, given, g_out)


def check_gradients(case):
    """Against those of float64 on the CPU, by the norm: roundings of weights and of results add up like noise."""
    t = operands(case)
    q, k, v = (t[name] for name in "qkv")
    g_out = torch.randn(*q.shape[:-1], v.shape[-1], generator=torch.Generator().manual_seed(3)).to(q.dtype)
    want = gradients(case, *(x.double() for x in (q, k, v, g_out)))
    on_device = [x.cuda() for x in (q, k, v, g_out)]
    found = gradients(case, *on_device)
    for name, x, exact in zip("qkv", found, want, strict=True):
        error = ((x.cpu().double() - exact).norm() / exact.norm()).item()
        if not error <= 1.5 * unit(x.dtype):
            raise Mismatch(f"{case!r}\n  g_{name} is off by {error:.2g} of its norm")
    assert all(map(torch.equal, found, gradients(case, *on_device)))
