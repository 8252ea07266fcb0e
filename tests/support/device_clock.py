"""The clocks that kernels read, on whatever machine."""

import torch
from machine import Machine

import wmma_ops

SOURCE = """
#include <wmma/grid.hpp>
extern "C" __global__ void clocks(wmma::uint64_t* cycles, wmma::uint64_t* wall, unsigned* between, unsigned* low) {
  for (int i = 0; i < 6; ++i) {
    cycles[i] = wmma::clock_cycles();
    wall[i] = wmma::wall_clock();
    const unsigned start = wmma::cycle_counter();
    low[i] = start;
    between[i] = wmma::cycles_between(start, wmma::cycle_counter());
  }
}"""


def check_clocks(on: Machine):
    """64 bits that never run backwards, and short stretches exactly, while what the registers hold wraps."""
    cycles, wall = torch.zeros(6, dtype=torch.int64), torch.zeros(6, dtype=torch.int64)
    between, low = torch.zeros(6, dtype=torch.int32), torch.zeros(6, dtype=torch.int32)
    on.run(wmma_ops.Kernel(SOURCE, "clocks"), 1, 1, cycles, wall, between, low)
    steps = cycles.diff()
    assert (steps > 0).all(), cycles
    assert (steps < 1 << 20).all(), cycles
    assert (wall.diff() >= 0).all(), wall
    assert ((between > 0) & (between < 1 << 20)).all(), between
    if on.cuda:
        return
    if on.target.startswith("gfx11"):
        assert (low >> 20 == 0).all(), low
    unsigned = low.long() & 0xFFFFFFFF
    assert (unsigned.diff() < 0).any(), "the emulated counter is meant to wrap here"
    assert (between == between[0]).all(), between  # the emulator's readings are equally far apart
