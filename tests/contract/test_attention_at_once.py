"""Attention on RDNA, where keys that all count are weighed at once (kernels/wmma/attention/softmax/at_once.hpp)."""

from dataclasses import dataclass

import pytest
import torch
from cut_weights import check_that_nothing_is_taken
from planted import Planted, check_that_each_stands_once

import wmma_ops
from wmma_ops.emulator import EmulationError, Race, Uninitialised
from wmma_ops.testing import AttentionCase, Mismatch, run

TARGETS = ("gfx1100", "gfx1151", "gfx1200", "gfx1201")
# Several whole tiles; ragged ones; scores that grow by much; rows that see their first key in a tile that all see.
CASES = [
    AttentionCase(heads=1, sq=140, skv=333, e=64, dtype="float16", scale=2.0),
    AttentionCase(heads=1, sq=40, skv=260, e=128, dtype="bfloat16", scale=2.0),
    AttentionCase(heads=1, sq=130, skv=193, e=64, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=1, sq=66, skv=97, e=128, dtype="float16", causal="bottom_right", scale=-1.0),
    AttentionCase(heads=4, kv_heads=1, sq=12, skv=200, e=96, ev=32, dtype="bfloat16", layout="bshd"),
    AttentionCase(heads=1, sq=33, skv=200, e=128, dtype="bfloat16", special="inf_k"),
    AttentionCase(heads=1, sq=33, skv=200, e=64, dtype="float16", special="nan_q"),
    AttentionCase(heads=1, sq=20, skv=150, e=256, ev=192, dtype="float16", scale=2.0),
]
GROWING = CASES[0]


@pytest.mark.parametrize("half", range(2))
@pytest.mark.parametrize("target", TARGETS)
def test_half_of_the_values(target, half):
    for case in CASES[half::2]:
        run(case, f"emulated:{target}")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_largest_scores_that_come_last(target, dtype):
    """Tiles are gone through from the last key to the first: each has scores far above all before, or none."""
    side = torch.Generator().manual_seed(5)
    q, k, v = (torch.randn(1, 1, n, 64, generator=side).to(dtype) for n in (48, 448, 448))
    k = k * torch.tensor([40.0, 1, 20, 1, 4, 1, 1]).repeat_interleave(64)[:, None].to(dtype)
    with wmma_ops.emulate(target):
        out, lse = wmma_ops.attention(q, k, v)
    scores = q.double() @ k.double().mT / 8
    assert torch.allclose(out.double(), scores.softmax(-1) @ v.double(), atol=0.02 if dtype == torch.bfloat16 else 3e-3)
    assert torch.allclose(lse.double(), scores.logsumexp(-1), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_a_row_follows_its_own_scores_only(target):
    """Whatever the largest scores of a wave's other rows are, a row's results are the same bits."""
    side = torch.Generator().manual_seed(6)
    q, k, v = (torch.randn(1, 1, n, 64, generator=side).half() for n in (100, 400, 400))
    with wmma_ops.emulate(target):
        calm = wmma_ops.attention(q, k, v)
        q[:, :, 1::2] *= 30
        wild = wmma_ops.attention(q, k, v)
    assert all(torch.equal(x[:, :, ::2], y[:, :, ::2]) for x, y in zip(calm, wild, strict=True))


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_cutting_weights_off_takes_nothing_from_them(target):
    check_that_nothing_is_taken(target)


@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
@pytest.mark.parametrize("size", [64, 128])
def test_the_loop(target, size):
    """It waits for no bank of shared memory, empties no cache, drains no loads, and pairs what pairs."""
    q, k = (torch.zeros(1, 8, n, size).bfloat16() for n in (256, 512))
    found = wmma_ops.explain("attention", q, k, k, target=target)
    assert found.launches[0].figures.spills == 0
    assert "scratch_" not in found.launches[0].assembly
    timing = found.timing()
    loop = next(one for one in timing.loops if one.share)
    texts = [timing.instructions[i].text for i in loop.instructions]
    assert loop.conflicts < 0.02 * loop.cycles
    assert not any("gl0_inv" in text or "global_inv" in text for text in texts)
    assert sum(text.startswith("v_dual_mul_f32") for text in texts) >= 8


@dataclass(frozen=True)
class Wrong(Planted):
    caught: tuple[type[Exception], ...] = (Mismatch,)
    case: AttentionCase = GROWING
    target: str = "gfx1201"


SOFTMAX, FORWARD, TILES = (
    "attention/softmax/at_once.hpp",
    "attention/loops/forward.hpp",
    "attention/tiles/key_value_loaders.hpp",
)
RACES = (Race, Uninitialised, Mismatch, EmulationError)
WRONG = [
    Wrong("nothing_is_far", SOFTMAX, "return !(sum <= Number(kSums << kRescaleThreshold));", "return false;"),
    Wrong("sums_do_not_follow", SOFTMAX, "      sum_[m][0] *= factors[m];\n", ""),
    Wrong("results_do_not_follow", SOFTMAX, "out[m][f] *= factors[m];", "out[m][f] *= Number(1);"),
    Wrong("next_scores_start_as_before", SOFTMAX, "    find_far();\n    start();\n", "    find_far();\n"),
    Wrong(
        "rows_without_a_key_are_near",
        SOFTMAX,
        "-largest_[m][0]) : Math::infinity();",
        "-largest_[m][0]) : Number(-1e4);",
        case=CASES[2],
    ),
    Wrong(
        "keys_that_are_still_read",
        TILES,
        "before_values(bool more) {\n    arch::tile_barrier();",
        "before_values(bool more) {",
        RACES,
    ),
    Wrong("values_that_are_still_read", TILES, "after_values() { arch::tile_barrier(); }", "after_values() {}", RACES),
    Wrong(
        "first_keys_not_there",
        TILES,
        "values_.template fetch<true>(ragged_);\n    arch::tile_barrier();",
        "values_.template fetch<true>(ragged_);",
        RACES,
    ),
    Wrong(
        "halves_the_other_way_round",
        "tile/product.hpp",
        "to[i] = upper ? other : words[i];",
        "to[i] = upper ? words[i] : other;",
        target="gfx1100",
    ),
    Wrong(
        "panels_on_each_other",
        "tile/chain_tile.hpp",
        "chunk / Base::kRow * (kLineCount * Base::kRow)",
        "chunk / Base::kRow * Base::kRow",
        RACES,
        case=CASES[1],
    ),
]


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    of.plant(sources / "wmma")
    with pytest.raises(of.caught):
        run(of.case, f"emulated:{of.target}")
