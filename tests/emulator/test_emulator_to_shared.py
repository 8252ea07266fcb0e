"""Loads straight to shared memory: where their words go, and that nothing meets them before their wave has waited."""

import numpy as np
import pytest
import torch
from test_emulator import execute
from test_emulator_buffers import lanes, resource

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import EmulationError, OutOfBounds, Race, Uninitialised, UnknownInstruction

CDNA = pytest.mark.parametrize("target", ["gfx908", "gfx90a", "gfx942", "gfx950"])
NEWEST = pytest.mark.parametrize("target", ["gfx942", "gfx950"])
WAIT = "s_waitcnt vmcnt(0)\n"
DATA = 100 + np.arange(64)


def shared(target: str, body: str, offset=(), *, words: int = 64, lds: int = 1024, data=DATA, **options) -> list[int]:
    """Words of shared memory, each read by a lane, after instructions with offsets in v2: memory's word i is 100 + i."""
    fill = "v_lshlrev_b32 v30, 2, v0\nv_mov_b32 v31, 7\n"
    fill += "".join(f"ds_write_b32 v30, v31 offset:{256 * i}\n" for i in range(lds // 256))
    look = "".join(f"ds_read_b32 v{32 + i}, v30 offset:{256 * i}\n" for i in range(words // 64))
    built = execute(resource(128) + fill + body + look, target, (data, lanes(offset, target)), lds=lds, **options)
    return built.registers[32 : 32 + words // 64].ravel().tolist()


@CDNA
def test_a_word_a_lane(target):
    """From M0 and the instruction's offset on, in the order of the lanes, whatever they read."""
    # The first 32 lanes read words 31 to 0, the others what lies before the buffer.
    back = 4 * np.arange(64)[::-1] - 128
    body = "s_mov_b32 m0, 64\nbuffer_load_dword v2, s[8:11], 0 offen lds\n" + WAIT
    got = shared(target, body, back, words=128)
    assert got == [7] * 16 + [131 - i for i in range(32)] + [0] * 32 + [7] * 48
    # The offset is that of both memories; the scalar one of the buffer alone.
    body = "s_mov_b32 m0, 64\ns_mov_b32 s3, 8\nbuffer_load_dword v2, s[8:11], s3 offen offset:16 lds\n" + WAIT
    got = shared(target, body, 4 * np.arange(64), words=128)
    assert got == [7] * 20 + [106 + i for i in range(26)] + [0] * 38 + [7] * 44
    body = "s_mov_b32 m0, 0\nbuffer_load_dword off, s[8:11], 0 offset:4 lds\n" + WAIT
    assert shared(target, body) == [7] + [101] * 63
    body = "s_mov_b32 m0, 0\nbuffer_load_dword v2, s[8:11], 0 idxen lds\n" + WAIT
    assert shared(target, body, [5]) == [100] * 64  # records without size


@CDNA
def test_lanes_that_are_off(target):
    body = (
        "s_mov_b32 m0, 0\ns_mov_b64 exec, 0x5\nbuffer_load_dword v2, s[8:11], 0 offen lds\ns_mov_b64 exec, -1\n" + WAIT
    )
    assert shared(target, body, 4 * np.arange(64)) == [100, 7, 102] + [7] * 61


@CDNA
def test_bytes_and_halves_take_a_word(target):
    data = np.zeros(64)
    data[:2] = 0x80FF7F01, 0xAA
    for kind, want in (
        ("ubyte", [0x01, 0x7F, 0xFF, 0x80]),
        ("sbyte", [0x01, 0x7F, 0xFFFFFFFF, 0xFFFFFF80]),
        ("ushort", [0x7F01, 0xFF7F, 0x80FF, 0xAA80]),
        ("sshort", [0x7F01, 0xFFFFFF7F, 0xFFFF80FF, 0xFFFFAA80]),
    ):
        body = f"s_mov_b32 m0, 0\nbuffer_load_{kind} v2, s[8:11], 0 offen lds\n" + WAIT
        assert shared(target, body, range(4), data=data)[:4] == want, kind


def test_twelve_and_sixteen_bytes_a_lane():
    for words in (3, 4):
        body = f"s_mov_b32 m0, 16\nbuffer_load_dwordx{words} v2, s[8:11], 0 offen lds\n" + WAIT
        # Lane i reads from word i; the buffer has 32.
        got = shared("gfx950", body, 4 * np.arange(64), words=320, lds=1280)
        want = [100 + lane + i if lane + i < 32 else 0 for lane in range(64) for i in range(words)]
        assert got == [7] * 4 + want + [7] * (316 - 64 * words), words
        with pytest.raises(UnknownInstruction, match="on gfx950 alone"):
            shared("gfx942", body)
        address = f"v_lshlrev_b32 v3, 2, v0\ns_mov_b32 m0, 16\nglobal_load_lds_dwordx{words} v3, s[0:1] offset:-16\n"
        with pytest.raises(OutOfBounds, match="lane 0: a load"):
            shared("gfx950", address + WAIT)
        got = shared("gfx950", address.replace("-16", "16") + WAIT, words=320, lds=1280)
        data = list(DATA) + [0] * 64
        data[64:128] = (4 * np.arange(64)).tolist()  # v2's, and then the padding of the arguments
        assert got[8 : 8 + 40 * words] == [data[4 + lane + i] for lane in range(40) for i in range(words)]


@NEWEST
def test_from_global_memory(target):
    by_base = (
        "v_sub_u32 v3, 63, v0\nv_lshlrev_b32 v3, 2, v3\ns_mov_b32 m0, 64\nglobal_load_lds_dword v3, s[0:1]\n" + WAIT
    )
    assert shared(target, by_base, words=128) == [7] * 16 + [163 - i for i in range(64)] + [7] * 48
    wide = """v_lshlrev_b32 v3, 2, v0
v_mov_b32 v5, s1
v_add_co_u32 v4, vcc, s0, v3
v_addc_co_u32 v5, vcc, 0, v5, vcc
s_mov_b32 m0, 64
s_mov_b64 exec, 0xff
global_load_lds_dword v[4:5], off offset:32
global_load_lds_ushort v[4:5], off offset:128
s_mov_b64 exec, -1
"""
    got = shared(target, wide + WAIT, words=128)
    want = [7] * 128
    want[24:32] = range(108, 116)
    want[48:56] = range(132, 140)
    assert got == want


@pytest.mark.parametrize("target", ["gfx908", "gfx90a"])
def test_from_global_memory_by_the_older_name(target):
    body = "v_lshlrev_b32 v3, 2, v0\ns_mov_b32 m0, 0\nglobal_load_dword v3, s[0:1] lds\n" + WAIT
    assert shared(target, body) == DATA.tolist()


# What meets it.

LOAD = "buffer_load_dword v2, s[8:11], 0 offen lds\n"
TWO = f"s_mov_b32 m0, 0\n{LOAD}s_mov_b32 m0, 256\n{LOAD}"
FIRST, SECOND = "ds_read_b32 v40, v30\n", "ds_read_b32 v40, v30 offset:256\n"
OTHER = "global_load_dword v41, v30, s[0:1]\n"
STORE = "global_store_dword v30, v31, s[0:1]\n"
EARLY = {
    "a read without a wait": TWO + FIRST,
    "a wait for something else": TWO + "s_waitcnt lgkmcnt(0)\n" + FIRST,
    "a wait that leaves both": TWO + "s_waitcnt vmcnt(2)\n" + FIRST,
    "a wait that leaves the second": TWO + "s_waitcnt vmcnt(1)\n" + SECOND,
    "a wait by number": TWO + "s_waitcnt 0xf71\n" + SECOND,
    "a wait by a large number": TWO + "s_waitcnt 0x4f70\n" + FIRST,
    "a wait by a named number beyond 15": TWO + "s_waitcnt vmcnt(16) lgkmcnt(0)\n" + FIRST,
    "caches do not count": TWO + "buffer_wbinvl1\ns_waitcnt vmcnt(1)\n" + SECOND,
    "one access more is under way": TWO + OTHER + "s_waitcnt vmcnt(2)\n" + SECOND,
    "a part of it": TWO + "ds_read_u8 v40, v30 offset:3\n",
    "the second word of two": f"s_mov_b32 m0, 256\n{LOAD}s_mov_b64 exec, 1\nds_read_b64 v[40:41], v30 offset:252\n",
    "a write": TWO + "ds_write_b32 v30, v31\n" + WAIT,
    "an atomic": TWO + "ds_add_u32 v30, v31\n" + WAIT,
    "a second load to the same place is under way": f"s_mov_b32 m0, 0\n{LOAD}{LOAD}s_waitcnt vmcnt(1)\n{FIRST}",
}
LATE = {
    "a wait for all": TWO + WAIT + FIRST + SECOND,
    "a wait for the first": TWO + "s_waitcnt vmcnt(1)\n" + FIRST,
    "a wait for two of three": TWO + OTHER + "s_waitcnt vmcnt(1) lgkmcnt(0)\n" + FIRST + SECOND,
    "stores count": TWO + STORE + "s_waitcnt vmcnt(1)\n" + SECOND,
    "caches do not count": TWO + "buffer_wbinvl1\ns_waitcnt vmcnt(1)\n" + FIRST,
    "a wait by number": TWO + "s_waitcnt 0xf71\n" + FIRST + "s_waitcnt 0\n" + SECOND,
    "another place": f"s_mov_b32 m0, 0\n{LOAD}{SECOND}",
    "two loads to one place": f"s_mov_b32 m0, 0\n{LOAD}{LOAD}{WAIT}{FIRST}",
    "a wait of before": TWO + WAIT + f"s_mov_b32 m0, 512\n{LOAD}" + FIRST + SECOND,
}


def told(target: str, body: str) -> str:
    """What race is reported."""
    try:
        shared(target, body + WAIT, np.arange(64))
    except Race as error:
        return str(error)
    return ""


@CDNA
def test_nothing_meets_a_load_that_is_under_way(target):
    for name, body in EARLY.items():
        assert "has not waited for: an s_waitcnt with vmcnt stands" in told(target, body), name
    for name, body in LATE.items():
        assert not told(target, body), name


# Two waves: the first one loads, both read.
BEGIN = (
    "s_mov_b32 m0, 0\nv_and_b32 v5, 63, v0\nv_lshlrev_b32 v5, 2, v5\nv_readfirstlane_b32 s20, v0\ns_cmp_lg_u32 s20, 0\n"
)
ORDERS = {
    "wait, barrier": (WAIT, "s_barrier\n", None),
    "barrier, wait": ("", f"s_barrier\n{WAIT}", "meets (what wave 0 wrote|a load straight)"),
    "wait, no barrier": (WAIT, "", "meets what wave 0 wrote|never written"),
    "neither": ("", "", "a load straight|never written|meets what wave 0"),
}


@CDNA
@pytest.mark.parametrize("order", ["forward", "reverse"])
def test_other_waves_need_a_barrier_after_the_wait(target, order):
    for name, (before, after, text) in ORDERS.items():
        load = f"s_cbranch_scc1 .Lbehind\n{LOAD}{before}.Lbehind:\n"
        body = resource(256) + BEGIN + load + after + "ds_read_b32 v40, v5\nv_not_b32 v40, v40\n" + WAIT
        run = {"lds": 256, "waves": 2, "order": order}
        if text is None:
            assert execute(body, target, (DATA, np.arange(64)), **run).registers[40][0] == ~100 & 0xFFFFFFFF, name
            continue
        with pytest.raises((Race, Uninitialised), match=text):
            execute(body, target, (DATA, np.arange(64)), **run)


@CDNA
def test_a_load_after_another_wave_s_read_needs_a_barrier(target):
    """The second round's load comes while the other wave may still read the first's."""
    load = f"s_cbranch_scc1 .Lbehind{{0}}\n{LOAD}{WAIT}.Lbehind{{0}}:\n"
    rounds = load.format(0) + "s_barrier\nds_read_b32 v40, v5\n{}" + load.format(1) + "s_barrier\nds_read_b32 v40, v5\n"
    for between, fails in (("", True), ("s_barrier\n", False)):
        body = resource(256) + BEGIN + rounds.format(between)
        for order in ("forward", "reverse"):
            run = {"lds": 256, "waves": 2, "order": order}
            if not fails:
                execute(body, target, (DATA, np.arange(64)), **run)
                continue
            with pytest.raises(Race, match=r"(read|wrote) there with no barrier between"):
                execute(body, target, (DATA, np.arange(64)), **run)


@CDNA
def test_what_is_wrong_is_told(target):
    with pytest.raises(OutOfBounds, match="lane 48: a write of 4 bytes at byte 1024 of the block's 1024"):
        shared(target, f"s_mov_b32 m0, 832\n{LOAD}{WAIT}")
    with pytest.raises(EmulationError, match=r"at byte 6: M0 \+ offset is no word's"):
        shared(target, f"s_mov_b32 m0, 6\n{LOAD}{WAIT}")
    with pytest.raises(Uninitialised, match="v40"):
        shared(target, f"s_mov_b32 m0, 0\n{LOAD.replace('v2', 'v40')}{WAIT}")
    with pytest.raises(UnknownInstruction, match="does not know"):
        shared(target, "s_mov_b32 m0, 0\nbuffer_load_dwordx2 v2, s[8:11], 0 offen lds\n")
    beside = f"s_mov_b32 m0, 0\n{LOAD}{WAIT}ds_read_b32 v40, v3 offset:4\nv_not_b32 v40, v40"
    with pytest.raises(Uninitialised, match="never written"):
        execute(resource(128) + beside, target, (0, 0, 252), lds=512)


COMPILED = """
#include <wmma/grid.hpp>
#define SHARED __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
extern "C" __global__ void brought(int* x, int* y) {
  const int kWords = SIZE / 4, first = threadIdx.x / 64 * 64 * kWords;
  __shared__ int s[128 * kWords], t[128 * kWords];
  __amdgpu_buffer_rsrc_t from = __builtin_amdgcn_make_buffer_rsrc(x, 0, 127 * SIZE, 0x00027000);
  __builtin_amdgcn_raw_ptr_buffer_load_lds(from, (SHARED void*)(s + first), SIZE, threadIdx.x * SIZE, 0, 0, 0);
  MORE
  WAIT
  const int other = (127 - threadIdx.x) * kWords;
  for (int i = 0; i < kWords; ++i) y[threadIdx.x * kWords + i] = s[other + i] + t[other + i];
}"""
BOTH = "__builtin_amdgcn_global_load_lds((GLOBAL int*)x + threadIdx.x * kWords, (SHARED int*)(t + first), SIZE, 0, 0);"
ONLY_ONE = "for (int i = 0; i < kWords; ++i) t[threadIdx.x * kWords + i] = x[threadIdx.x * kWords + i];"
WAITED = "__builtin_amdgcn_s_waitcnt(0); wmma::sync_workgroup();"
BARE = "__builtin_amdgcn_s_barrier();"


@pytest.fixture(scope="module")
def compiled():
    """Of the clangs, those before 20 do not know the builtin."""
    try:
        jit.compile(COMPILED.replace("SIZE", "4").replace("MORE", "").replace("WAIT", ""), "gfx942", name="brought.hip")
    except jit.CompileError as error:
        if "undeclared identifier '__builtin_amdgcn_raw_ptr_buffer_load_lds'" in str(error):
            pytest.skip(f"{error.compiler} has no __builtin_amdgcn_raw_ptr_buffer_load_lds")
        raise


def brought(target: str, size: int, more: str, wait: str, **options):
    """(what comes out, the traffic) of two waves that bring x to shared memory, and read what the other one brought."""
    source = COMPILED
    for name, value in (("SIZE", size), ("MORE", more), ("WAIT", wait)):
        source = source.replace(name, str(value))
    x, y = torch.arange(32 * size, dtype=torch.int32), torch.zeros(32 * size, dtype=torch.int32)
    with wmma_ops.emulate(target, **options) as emulation:
        wmma_ops.Kernel(source.replace("SIZE", str(size)), "brought")[1, 128](x, y)
    return y, emulation.launches[0].traffic


def test_conflicts_and_segments_are_counted(compiled):
    _, found = brought("gfx942", 4, ONLY_ONE, WAITED, count_traffic=True)
    assert found.shared_writes == 4 + 4  # two waves, each in two groups of lanes, by loads and by stores
    assert found.shared_write_conflicts == 0
    assert found.accesses == 2 * 3  # from x, twice, and to y


@pytest.mark.parametrize(
    ("target", "size"), [("gfx908", 4), ("gfx90a", 4), ("gfx942", 4), ("gfx950", 4), ("gfx950", 16)]
)
def test_what_compilers_give(compiled, target, size):
    """What lies beyond the buffer's 127 records gives 0."""
    direct = BOTH if target in ("gfx942", "gfx950") else ONLY_ONE
    got, _ = brought(target, size, direct, WAITED)
    x = torch.arange(32 * size)
    want = x.where(x < 127 * size // 4, 0) + x
    assert got.tolist() == want.reshape(128, -1).flip(0).ravel().tolist()
    if target == "gfx908":
        return  # where the compiler waits before every barrier
    with pytest.raises(Race, match=r"of [st]\).* a load straight to shared memory that wave"):
        brought(target, size, direct, BARE)


def test_a_load_outside_its_variable_is_told(compiled):
    source = """
#include <wmma/grid.hpp>
extern "C" __global__ void astray(int* x, int n) {
  __shared__ int s[64], t[64];
  t[threadIdx.x] = n;
  __builtin_amdgcn_raw_ptr_buffer_load_lds(
      __builtin_amdgcn_make_buffer_rsrc(x, 0, 256, 0x00027000), (__attribute__((address_space(3))) void*)(s + n), 4,
      threadIdx.x * 4, 0, 0, 0);
  __builtin_amdgcn_s_waitcnt(0);
  x[threadIdx.x] = s[threadIdx.x] + t[63 - threadIdx.x];
}"""
    kernel, x = wmma_ops.Kernel(source, "astray"), torch.arange(64, dtype=torch.int32)
    with wmma_ops.emulate("gfx942"):
        with pytest.raises(OutOfBounds, match=r"lane 63: this write of 4 bytes .* is outside s \(bytes 0 to 255\)"):
            kernel[1, 64](x, 1)
        kernel[1, 64](x, 0)
    assert x.tolist() == list(range(64))
