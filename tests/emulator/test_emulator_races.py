"""Which accesses of two waves to shared memory race: sequences of single accesses, with the barriers between them."""

import random

import numpy as np
import pytest
import torch

import wmma_ops
from wmma_ops.emulator import EmulationError, Race, Uninitialised
from wmma_ops.emulator.shared import SharedMemory

A, B, C = range(3)
LANES = 4


class Block:
    """Waves that touch one byte range at a time. `signal` and `wait` are a wave's halves of a barrier."""

    def __init__(self):
        self.memory = SharedMemory(64)
        self.memory.written[:] = True
        self.signals, self.waits = [0] * 3, [0] * 3

    def do(self, step):
        what, wave, *where = step
        if what == "barrier":
            for each in range(3):
                self.signals[each] += 1
                self.waits[each] += 1
            return
        if what in ("signal", "wait"):
            counts = self.signals if what == "signal" else self.waits
            counts[wave] += 1
            return
        byte, size = where or (0, 4)
        self.memory.wave, self.memory.signals, self.memory.waits = wave, self.signals[wave], self.waits[wave]
        mask = np.zeros(LANES, dtype=bool)
        mask[1] = True
        rows = tuple(np.zeros(LANES, dtype=np.uint32) for _ in range(max(size // 4, 1)))
        address = np.full(LANES, byte, dtype=np.uint32)
        kind = {1: "u8", 2: "u16"}.get(size, f"b{8 * size}")
        if what == "atomic":
            self.memory.atomic(address, 0, "add", rows, None, size == 8, mask)
        elif what == "read":
            self.memory.load(address, 0, rows, kind, False, mask)
        else:
            self.memory.store(address, 0, rows, kind, False, mask)


BARRIER = ("barrier", A)
RACES = {
    "write, read": [("write", A), ("read", B)],
    "read, write": [("read", A), ("write", B)],
    "write, write": [("write", A), ("write", B)],
    "two readers, then one writes": [("read", A), ("read", B), ("write", A)],
    "atomic, atomic, then one reads": [("atomic", A), ("atomic", B), ("read", B)],
    "atomic, atomic, then the first reads": [("atomic", A), ("atomic", B), ("read", A)],
    "atomic, atomic, then one writes": [("atomic", A), ("atomic", B), ("write", B)],
    "atomics of three, then one reads": [("atomic", A), ("atomic", B), ("atomic", C), ("read", B)],
    "write, own atomic, other's atomic": [("write", A), ("atomic", A), ("atomic", B)],
    "read, own atomic, other's atomic": [("read", A), ("atomic", A), ("atomic", B)],
    "atomic after a plain read": [("read", A), ("atomic", B)],
    "barrier of long ago": [("write", A), BARRIER, ("write", A), ("read", B)],
    "a byte of a word": [("write", A, 0, 4), ("write", B, 3, 1)],
    "a word over a byte": [("write", A, 3, 1), ("read", B, 0, 4)],
    "a byte that was read": [("read", A, 2, 1), ("write", B, 2, 1)],
    "a half that was read in a word": [("read", A, 0, 4), ("write", B, 2, 2)],
    "a word across two": [("write", A, 4, 4), ("read", B, 2, 4)],
    "a word across two, the first": [("write", A, 2, 4), ("read", B, 0, 4)],
    "a half across two words": [("write", A, 3, 2), ("write", B, 4, 1)],
    "the last word of four": [("write", A, 12, 4), ("read", B, 0, 16)],
    "unaligned, the last word of four": [("write", A, 18, 1), ("read", B, 4, 16)],
    "both words of an atomic": [("write", A, 4, 4), ("atomic", B, 0, 8)],
    # A signals, reads on, and waits no more than B does.
    "read after the signal": [
        ("signal", A),
        ("read", A),
        ("signal", B),
        ("wait", B),
        ("write", B),
    ],
    "write after the signal": [("signal", A), ("write", A), ("signal", B), ("wait", B), ("read", B)],
    "an early reader does not hide a late one": [
        ("signal", A),
        ("read", A),
        ("read", B),
        ("signal", B),
        ("signal", C),
        ("wait", C),
        ("write", C),
    ],
}
FINE = {
    "barrier between": [("write", A), BARRIER, ("read", B), BARRIER, ("write", C)],
    "readers": [("read", A), ("read", B), ("read", C)],
    "own accesses": [("write", A), ("read", A), ("atomic", A), ("write", A)],
    "atomics": [("atomic", A), ("atomic", B), ("atomic", A)],
    "atomics, barrier, read": [("atomic", A), ("atomic", B), BARRIER, ("read", A), ("read", B)],
    "read, then own write after others' old reads": [("read", A), ("read", B), BARRIER, ("read", A), ("write", A)],
    "bytes of one word": [("write", A, 0, 1), ("write", B, 1, 1), ("write", C, 2, 2), ("read", A, 0, 1)],
    "halves of one word": [("write", A, 0, 2), ("write", B, 2, 2), ("read", A, 0, 2), ("read", B, 2, 2)],
    "a word and the byte after": [("write", A, 0, 4), ("write", B, 4, 1)],
    "unaligned neighbours": [("write", A, 1, 4), ("write", B, 5, 4)],
    "before the signal": [("read", A), ("signal", A), ("signal", B), ("wait", B), ("write", B)],
    "own atomic after the signal": [
        ("atomic", A),
        ("atomic", B),
        ("signal", A),
        ("atomic", A),
        ("signal", B),
        ("signal", C),
        ("wait", A),
        ("read", A),
    ],
}


@pytest.mark.parametrize("name", RACES)
def test_race_is_reported(name):
    block = Block()
    for step in RACES[name][:-1]:
        block.do(step)
    with pytest.raises(Race, match="no barrier between"):
        block.do(RACES[name][-1])


@pytest.mark.parametrize("name", FINE)
def test_what_does_not_race_is_not_reported(name):
    block = Block()
    for step in FINE[name]:
        block.do(step)


def test_any_order_of_accesses_is_judged_as_by_a_list_of_all():
    rng, races, most = random.Random(1), 0, 0
    for _ in range(1500):
        block, done = Block(), []
        for _ in range(30):
            wave, signals, waits = rng.randrange(3), block.signals, block.waits
            what = rng.choice(["read"] * 4 + ["write"] * 2 + ["atomic"] + ["signal", "wait"] * 4)
            if (what == "signal" and signals[wave] > waits[wave]) or (what == "wait" and min(signals) == waits[wave]):
                continue
            place = 4 * rng.randrange(3)
            step = (what, wave) if what in ("signal", "wait") else (what, wave, place, 4)
            unordered = {
                kind for kind, other, at, s in done if (other != wave, at, s >= waits[wave]) == (True, place, True)
            }
            if len(step) == 4 and unordered - {"read": {"read"}, "write": set(), "atomic": {"atomic"}}[what]:
                with pytest.raises(Race):
                    block.do(step)
                races += 1
                break
            block.do(step)
            if len(step) == 4:
                done.append((what, wave, place, signals[wave]))
        most = max(most, len(done))
    assert races > 500
    assert most > 12


def test_lanes_are_told_apart_that_read_what_was_written():
    memory, lanes = SharedMemory(64), np.arange(4, dtype=np.uint32)
    everyone, odd = np.ones(4, bool), lanes % 2 == 1
    read = (np.zeros(4, np.uint32),)
    for there in (odd, everyone):
        memory.store(lanes * 4, 8, (lanes + 7,), "b32", bool(there.all()), there)
        memory.load(lanes * 4, 8, read, "b32", bool(there.all()), there)
        assert read[0][there].tolist() == (lanes[there] + 7).tolist()
        if there is odd:
            with pytest.raises(Uninitialised, match="lane 0: 4 bytes at byte 8 "):
                memory.load(lanes * 4, 8, read, "b32", True, everyone)
            with pytest.raises(Uninitialised, match="lane 0: 4 bytes at byte 4 "):
                memory.load(lanes * 4, 4, read, "b32", False, odd | (lanes == 0))


def test_unaligned_atomic_is_refused():
    with pytest.raises(EmulationError, match="unaligned"):
        Block().do(("atomic", A, 2, 4))


KERNEL = """
#include <wmma/grid.hpp>
extern "C" __global__ void kernel(int* x) {{
  __shared__ int s[4];
  if (threadIdx.x < 4) s[threadIdx.x] = 0;
  wmma::sync_workgroup();
  wmma::atomic_add(s, 1);
  {between}
  x[threadIdx.x] = *(volatile int*)s;
}}"""


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_counter_is_read_after_a_barrier(target):
    x = torch.zeros(128, dtype=torch.int32)
    with wmma_ops.emulate(target):
        with pytest.raises(Race, match="no barrier between"):
            wmma_ops.Kernel(KERNEL.format(between=""), "kernel")[1, 128](x)
        wmma_ops.Kernel(KERNEL.format(between="wmma::sync_workgroup();"), "kernel")[1, 128](x)
    assert x.tolist() == [128] * 128
