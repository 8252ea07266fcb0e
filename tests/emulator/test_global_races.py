"""Which accesses of two waves to global memory race, within a block and between blocks, and what orders them."""

import pytest
import torch
from user_kernels import HEAD

import wmma_ops
from wmma_ops.emulator import Race
from wmma_ops.hardware import arch

ORDERS = ("forward", "reverse", "random")
TARGETS = pytest.mark.parametrize("target", arch.EMULATED)
BLOCKS, THREADS = 3, 128
NEAR, FAR = "no barrier between", "nothing between that orders blocks"
VALUES = "const int i = threadIdx.x, b = blockIdx.x, all = b * 128 + i;"

# Each with one mistake: the blocks it runs as, what is told.
RACES = {
    "two waves store different values": (
        1,
        "x[i % 64] = i / 64;",
        rf"store at element \d+ of x .* stored another.*{NEAR}",
    ),
    "one stores, another loads": (
        1,
        "x[i] = n; x[256 + i] = x[127 - i];",
        rf"at element \d+ of x meets what wave \d (stored|loaded) .*{NEAR}",
    ),
    "one loads, another stores": (
        1,
        "int y = x[127 - i]; wmma::sync_wave(); x[i] = y + n;",
        rf"(store|load) at element \d+ of x meets what wave \d (loaded|stored) there with {NEAR}",
    ),
    "one loads and stores, another stores where it loaded": (
        1,
        "if (i < 64) x[i] = x[i + 64]; else x[i] = n;",
        rf"(store|load) at element \d+ of x meets what wave \d (loaded|stored) there with {NEAR}",
    ),
    "a barrier of long ago": (
        1,
        "x[i] = n; wmma::sync_workgroup(); x[i] = i; x[256 + i] = x[127 - i];",
        rf"at element \d+ of x meets what wave \d (stored|loaded) .*{NEAR}",
    ),
    "bytes of one word": (1, "((char*)x)[i % 64] = i / 64;", rf"store at element \d+ of x .*{NEAR}"),
    "a half in a word": (
        1,
        "if (i < 64) ((short*)x)[2 * i + 1] = n; else x[256 + i] = x[i - 64];",
        rf"(store|load) at element \d+ of x .*{NEAR}",
    ),
    "four words": (
        1,
        "typedef int four __attribute__((ext_vector_type(4))); ((four*)x)[i] = four{1, 2, 3, 4}; x[600] = x[5 + n];",
        rf"(store|load) at element 12 of x .*{NEAR}",
    ),
    "two blocks store different values": (
        BLOCKS,
        "x[i] = b;",
        rf"block \(1, 0, 0\), wave \d: lane \d+: this store at element \d+ of x meets what wave \d of block \(0, 0, 0\)"
        rf" stored another value there with {FAR}",
    ),
    "a block loads what another stored": (
        BLOCKS,
        "x[all] = n; x[512 + all] = x[(all + 128) % 384];",
        rf"at element \d+ of x meets what wave \d of block \(\d, 0, 0\) (stored|loaded) there with {FAR}",
    ),
    "a block stores what another loaded": (
        BLOCKS,
        "int y = x[(all + 128) % 384]; wmma::sync_workgroup(); x[all] = y + n;",
        rf"at element \d+ of x meets .* of block \(0, 0, 0\) (loaded|stored) there with {FAR}",
    ),
    "a block stores what another loaded after it had stored elsewhere": (
        BLOCKS,
        "x[512 + all] = n; int y = x[all]; wmma::sync_workgroup(); x[b == 2 ? i : 512 + all] = y;",
        rf"store at element \d+ of x meets what wave \d of block \(0, 0, 0\) loaded there with {FAR}",
    ),
    "read by three, then stored by one of them": (
        2,
        "int y = x[i % 64]; wmma::sync_workgroup(); if (b == 1 && i < 64) x[i] = y + n;",
        rf"store at element \d+ of x meets what wave \d of block \(0, 0, 0\) loaded there with {FAR}",
    ),
    "a scalar load": (BLOCKS, "int y = x[(b + 1) % 3]; if (i == 0) x[b] = y + n;", rf"at element \d of x .*{FAR}"),
    "a counter that one block sets and all add to": (
        BLOCKS,
        "if (b == 0 && i == 0) x[0] = n; wmma::sync_workgroup(); if (i == 0) wmma::atomic_add(x, 1);",
        rf"this atomic at element 0 of x .* stored there with {FAR}",
    ),
    "no release after the store": (
        BLOCKS,
        "if (i == 0) wmma::atomic_add<wmma::memory_order::acq_rel>(x, 1); wmma::sync_workgroup(); x[8 + all] = n;"
        " x[512 + all] = x[8 + (all + 128) % 384];",
        rf"at element \d+ of x meets .* of block .*{FAR}",
    ),
    "no acquire before the load": (
        BLOCKS,
        "x[8 + all] = n; wmma::sync_workgroup(); if (i == 0) wmma::atomic_add<wmma::memory_order::relaxed>(x, 1);"
        " wmma::sync_workgroup(); if (b == 2) x[600 + i] = x[8 + i];",
        rf"load at element \d+ of x .*{FAR}",
    ),
    "no barrier before the release": (
        BLOCKS,
        "x[8 + all] = n; if (i == 0 && wmma::atomic_add<wmma::memory_order::acq_rel>(x, 1) == 2)"
        " for (int j = 0; j < 384; ++j) x[600] += x[8 + j];",
        rf"load at element \d+ of x .*({FAR}|{NEAR})",
    ),
}

# Right, each by something else.
FINE = {
    "own places": (BLOCKS, "x[all] += n; x[all] *= 2;"),
    "the same value": (BLOCKS, "x[0] = n; x[i % 64] = n;"),
    "barriers between": (
        1,
        "for (int j = 0; j < 3; ++j) { x[i] += j; wmma::sync_workgroup(); x[128 + i] += x[127 - i];"
        " wmma::sync_workgroup(); }",
    ),
    "bytes side by side": (
        BLOCKS,
        "((char*)x)[all] = i; ((short*)(x + 200))[all] = b; x[500 + all] = ((char*)x)[all];",
    ),
    "readers": (BLOCKS, "x[256 + all] = x[i] + x[n] + x[b];"),
    "atomics": (BLOCKS, "wmma::atomic_add(x, i); wmma::atomic_max(x + 1, all); wmma::atomic_cas(x + 2, b, i);"),
    "a loop of compare and swap": (
        BLOCKS,
        "if (i % 64 == 0) { int old = x[0], seen; while ((seen = wmma::atomic_cas(x, old, old + n)) != old) old = seen; }",
    ),
    "the last block sums up": (
        BLOCKS,
        "__shared__ int last; x[8 + all] = n + i; wmma::sync_workgroup();"
        " if (i == 0) last = wmma::atomic_add<wmma::memory_order::acq_rel>(x, 1) == 2; wmma::sync_workgroup();"
        " if (last) { int sum = 0; for (int j = 0; j < 3; ++j) sum += x[8 + j * 128 + i]; x[600 + i] = sum; }",
    ),
    "the last block sums up, by fences": (
        BLOCKS,
        "__shared__ int last; x[8 + all] = n + i; wmma::atomic_fence<wmma::memory_order::seq_cst>();"
        " wmma::sync_workgroup(); if (i == 0) last = wmma::atomic_add(x, 1) == 2; wmma::sync_workgroup();"
        " wmma::atomic_fence<wmma::memory_order::seq_cst>();"
        " if (last) { int sum = 0; for (int j = 0; j < 3; ++j) sum += x[8 + j * 128 + i]; x[600 + i] = sum; }",
    ),
    "blocks in a chain of flags": (
        BLOCKS,
        "if (i == 0 && b > 0) while (wmma::atomic_load<wmma::memory_order::acquire>(x + b - 1) == 0) {}"
        " wmma::sync_workgroup(); x[8 + i] = x[8 + i] * 3 + b; wmma::sync_workgroup();"
        " if (i == 0) wmma::atomic_store<wmma::memory_order::release>(x + b, 1);",
    ),
    "a lock": (
        BLOCKS,
        "if (i % 64 == 0) { while (wmma::atomic_cas<wmma::memory_order::acquire>(x, 0, 1) != 0) {}"
        " x[8] = x[8] * 2 + i + b; wmma::atomic_store<wmma::memory_order::release>(x, 0); }",
    ),
    "a flag between waves": (
        1,
        "if (i == 0) { x[8] = n; wmma::atomic_store<wmma::memory_order::release>(x, 1); }"
        " if (i == 64) { while (wmma::atomic_load<wmma::memory_order::acquire>(x) == 0) __builtin_amdgcn_s_sleep(1);"
        " x[9] = x[8]; }",
    ),
    "the grid's barrier": (
        BLOCKS,
        "x[all] = n; wmma::sync_grid(); x[512 + all] = x[383 - all]; wmma::sync_grid(); x[(all + 64) % 384] = i;",
    ),
    "groups of waves in turns": (
        1,
        "const int group = i / 64; if (group) wmma::sync_workgroup(); for (int j = 0; j < 3; ++j) {"
        " x[i % 64] = 3 * x[i % 64] + group; wmma::sync_workgroup(); wmma::sync_workgroup(); }",
    ),
}


def _run(target: str, order: str, blocks: int, body: str, threads: int = THREADS) -> torch.Tensor:
    source = (
        HEAD
        + "#include <wmma/grid_sync.hpp>\n"
        + f'extern "C" __global__ void shared(int* x, int n) {{ {VALUES}\n{body}\n}}'
    )
    x = torch.zeros(1024, dtype=torch.int32)
    with wmma_ops.emulate(target, order=order, seed=3):
        wmma_ops.Kernel(source, "shared")[blocks, threads](x, 7)
    return x


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx1100", "gfx1201"])
@pytest.mark.parametrize("name", RACES)
def test_race_is_reported(target, name):
    blocks, body, text = RACES[name]
    for order in ORDERS:
        with pytest.raises(Race, match=text) as caught:
            _run(target, order, blocks, body)
        assert "shared.hip:4" in caught.value.place, order


@TARGETS
def test_what_is_ordered_is_not_reported(target):
    found = {name: [_run(target, order, *FINE[name]) for order in ORDERS] for name in FINE}
    assert found["the last block sums up"][0][600:728].tolist() == [3 * (7 + i) for i in range(128)]
    assert found["blocks in a chain of flags"][0][8:136].tolist() == [5] * 128
    assert found["the grid's barrier"][0][512:896].tolist() == [7] * 384


def test_without_barriers_groups_of_waves_race():
    body = FINE["groups of waves in turns"][1].replace("if (group) wmma::sync_workgroup();", "")
    for order in ORDERS:
        with pytest.raises(Race, match=NEAR):
            _run("gfx942", order, 1, body)


def test_blocks_of_one_wave_race():
    for threads in (1, 64):
        _run("gfx942", "forward", 1, "x[i] = b;", threads)
        with pytest.raises(Race, match=FAR):
            _run("gfx942", "forward", BLOCKS, "x[i] = b;", threads)


def test_many_loads_are_noted_before_the_store(monkeypatch):
    """More than are kept one by one."""
    body = "int y = 0; for (int j = 0; j < n; ++j) y += x[(j * 37 + i) & 255]; if (b) x[i] = y + 1;"
    for kept in (2, 4096):
        monkeypatch.setattr("wmma_ops.emulator.global_races._KEPT", kept)
        with pytest.raises(
            Race, match=rf"store at element \d+ of x meets what wave \d of block \(0, 0, 0\) loaded.*{FAR}"
        ):
            _run("gfx942", "forward", 2, body)
