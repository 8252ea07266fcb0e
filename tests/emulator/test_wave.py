"""Reductions, scans, masks, votes and matches of lanes on every emulated target; on a GPU: tests/gpu/test_device.py."""

import pytest
import torch
from device_wave import BLOCK, HEAD, MASKS, SHAPES, TYPES, WAVE, check_block, check_masks, check_wave
from machine import Machine, assert_compiles

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import Trap
from wmma_ops.hardware import arch

EVERY = pytest.mark.parametrize("target", arch.EMULATED)


@EVERY
def test_reductions_and_scans_of_waves(target):
    for name in TYPES:
        check_wave(Machine(target), name)


@EVERY
def test_reductions_and_scans_of_blocks(target):
    for shape, order in zip(SHAPES, ("forward", "forward", "reverse", "random"), strict=True):
        check_block(Machine(target, order), shape)


@EVERY
def test_masks_votes_and_matches(target):
    check_masks(Machine(target))


@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
def test_compiles(target):
    assert_compiles(target, BLOCK, MASKS, *(WAVE.replace("TYPE", name) for name in TYPES))


MISTAKES = {
    "y[0] = vote_ballot_sync(kAllLanes & ~lane_mask_eq(), true)": "names the lane that calls it",
    "if (lane_id() < 3) y[0] = wave_sum_sync(kAllLanes, 1)": "no absent lane",
    "if (lane_id() > 3) y[0] = shuffle_sync(uint64_t{255}, 1, 5)": "it is 0xff",
    "y[0] = shuffle(3, 1, n)": "a power of two, up to the wave's lanes: it is 12",
    "y[0] = shuffle_xor_sync(kAllLanes, 3, 1, 9 * n)": "a power of two, up to the wave's lanes: it is 108",
}


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_are_told(target, mistake):
    kernel = HEAD + 'extern "C" __global__ void k(long long* y, int n) { ' + mistake + "; }"
    line = rf"^k on {target}: k\.hip:{HEAD.count(chr(10)) + 1} \(in lanes\.hpp:\d+\): block"
    with pytest.raises(Trap, match=f"{line}.*{MISTAKES[mistake]}"):
        Machine(target).run(wmma_ops.Kernel(kernel, "k"), 1, 64, torch.zeros(1, dtype=torch.int64), 12)
    if "shuffle(3" not in mistake:
        kernel = wmma_ops.Kernel(kernel, "k", options=("-DWMMA_NO_ASSERT",))
        Machine(target).run(kernel, 1, 64, torch.zeros(1, dtype=torch.int64), 12)


@pytest.mark.parametrize(
    ("target", "call", "message"),
    [
        ("gfx942", "vote_ballot_sync(0xffffffffu, true)", "a mask of 64 lanes has 64 bits: give a uint64_t"),
        ("gfx1201", "wave_sum<12>(1)", "a width is a power of two, up to the wave's lanes"),
        ("gfx1201", "wave_exclusive_sum<64>(1)", "a width is a power of two, up to the wave's lanes"),
        ("sm_90a", "wave_max<64>(1)", "a width is a power of two, up to the wave's lanes"),
        ("sm_80", "wave_inclusive_sum<0>(1)", "a width is a power of two, up to the wave's lanes"),
        ("gfx942", "wave_and(1.5f)", "and, or and xor take integers"),
        ("sm_90a", "block_xor(half_t(1.0f))", "and, or and xor take integers"),
        ("gfx942", "wave_reduce(Sixteen{}, Sum{})", "what moves between lanes has 1, 2, 4 or 8 bytes"),
    ],
)
def test_refused(target, call, message):
    source = HEAD + 'struct Sixteen { double a, b; };\nextern "C" __global__ void k() { ' + call + "; }"
    with pytest.raises(jit.CompileError) as error:
        jit.compile(source, target)
    assert message in f"{error.value} {error.value.log}"
