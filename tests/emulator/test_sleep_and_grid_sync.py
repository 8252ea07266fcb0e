"""Waiting by the clock and for the whole grid, and what waits in vain."""

import time

import pytest
import torch
from kernel_features import MEETS, SLEEPS, check_grid_sync, check_sleep
from machine import Machine

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import EndlessLoop, Race
from wmma_ops.hardware import arch

TARGETS = pytest.mark.parametrize("target", arch.EMULATED)
GRID = ("-DSYNC=sync_grid()",)


@TARGETS
def test_sleep(target):
    check_sleep(Machine(target))


@TARGETS
@pytest.mark.parametrize("order", ["forward", "random"])
def test_grid_sync(target, order):
    check_grid_sync(Machine(target, order))


@TARGETS
def test_without_the_barrier_blocks_race(target):
    """A barrier of the block alone lets a block read what others have not written."""
    x, seen = torch.zeros(6 * 64, dtype=torch.int32), torch.zeros(6 * 64, dtype=torch.int32)
    kernel = wmma_ops.Kernel(MEETS, "meets", options=("-DSYNC=sync_workgroup()",))
    with pytest.raises(
        Race, match=r"meets\.hip:\d+: .* element \d+ of x meets what .* nothing between that orders blocks"
    ):
        Machine(target).run(kernel, 6, 64, x, seen, 1, -1)


@TARGETS
def test_grids_that_do_not_fit_are_refused(target):
    """By registers and threads, and by shared memory: two of these blocks fit no unit."""
    kernel, x = wmma_ops.Kernel(MEETS, "meets", options=GRID), torch.zeros(64, dtype=torch.int32)
    units = wmma_ops.plan.model.CARDS[target].units
    lds = arch.target(target).lds_bytes
    for shared, room in ((0, r"\d+"), (lds - 4 * 192, str(units))):
        text = rf"^meets: grid .* has 999999 blocks, .*; {target} of {units} units takes up to {room} of block \(64, 1, 1\)$"
        with wmma_ops.emulate(target), pytest.raises(ValueError, match=text):
            kernel[999_999, 64](x, x, 1, -1, shared=shared)


def test_a_block_that_does_not_come_is_an_endless_loop():
    kernel, x = wmma_ops.Kernel(MEETS, "meets", options=GRID), torch.zeros(3 * 64, dtype=torch.int32)
    start = time.monotonic()
    with wmma_ops.emulate("gfx942", budget=50_000), pytest.raises(EndlessLoop, match=r"meets\.hip:\d+ \(in \w+\.hpp"):
        kernel[3, 64](x, torch.zeros_like(x), 1, 1)
    assert time.monotonic() - start < 20
    with wmma_ops.emulate("gfx942"):  # and leaves nothing to the next
        kernel[3, 64](x, torch.zeros_like(x), 2, -1)


def test_waves_of_a_block_may_wait_for_each_other_asleep():
    """A wave that sleeps lets the others of its block go on, without a barrier."""
    source = """#include <wmma/grid.hpp>
#include <wmma/sleep.hpp>
extern "C" __global__ void passes(int* x) {
  const int wave = wmma::wave_id(), waves = wmma::wave_count();
  if (wmma::lane_id() != 0) return;
  while (wmma::atomic_load(x) != waves - 1 - wave) wmma::nanosleep(100);
  wmma::atomic_add(x, 1);
}"""
    for order in ("forward", "reverse"):
        x = torch.zeros(1, dtype=torch.int32)
        with wmma_ops.emulate("gfx1201", order=order):
            wmma_ops.Kernel(source, "passes")[1, 128](x)
        assert x.item() == 4


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_nvidia_compiles_the_same(target):
    for source, name, instruction in ((SLEEPS, "sleeps", "nanosleep.u32"), (MEETS, "meets", "grid_arrivals")):
        code = jit.compile(source, target, options=GRID, name=f"{name}.hip")
        assert not code.log
        assert instruction in code.assembly
