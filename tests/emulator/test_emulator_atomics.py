"""The emulator's atomics: each instruction against values computed by hand, in global, shared and flat memory."""

import struct

import numpy as np
import pytest
import torch
from test_emulator import execute

import wmma_ops
from wmma_ops.emulator import OutOfBounds, Uninitialised
from wmma_ops.hardware import arch


def f32(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def f64(x: float) -> int:
    return struct.unpack("<Q", struct.pack("<d", x))[0]


def pair(low: float, high: float) -> int:
    return int(np.array([low, high], np.float16).view(np.uint32)[0])


def bf16(low: float, high: float) -> int:
    return f32(low) >> 16 | f32(high) & 0xFFFF0000


NAN, INF, TINY = float("nan"), float("inf"), 2.0**-140  # the last is subnormal
M32, M64 = 2**32 - 1, 2**64 - 1

# (operation as the old targets' global form and as the shared form of the others name it, old, data, new).
WORDS = [
    ("add", "add_u32", M32, 3, 2),
    ("sub", "sub_u32", 1, 3, M32 - 1),
    ("smin", "min_i32", 5, M32 - 6, M32 - 6),
    ("smax", "max_i32", 5, M32 - 6, 5),
    ("umin", "min_u32", 5, M32 - 6, 5),
    ("umax", "max_u32", 5, M32 - 6, M32 - 6),
    ("and", "and_b32", 0b1100, 0b1010, 0b1000),
    ("or", "or_b32", 0b1100, 0b1010, 0b1110),
    ("xor", "xor_b32", 0b1100, 0b1010, 0b0110),
    ("inc", "inc_u32", 4, 5, 5),
    ("inc", "inc_u32", 5, 5, 0),
    ("inc", "inc_u32", 9, 5, 0),
    ("dec", "dec_u32", 3, 5, 2),
    ("dec", "dec_u32", 0, 5, 5),
    ("dec", "dec_u32", 6, 5, 5),
    ("add_f32", "add_f32", f32(1.5), f32(-4.0), f32(-2.5)),
    ("add_f32", "add_f32", f32(TINY), f32(TINY), f32(2 * TINY)),
    ("pk_add_f16", "pk_add_f16", pair(1.5, 2.0**-24), pair(2.0, -0.0), pair(3.5, 2.0**-24)),
    ("pk_add_f16", "pk_add_f16", pair(2048.0, -0.0), pair(1.0, -0.0), pair(2048.0, -0.0)),
    ("pk_add_bf16", "pk_add_bf16", bf16(256.0, -3.0), bf16(1.0, 1.5), bf16(256.0, -1.5)),
    ("pk_add_bf16", "pk_add_bf16", bf16(256.0, 0.0), bf16(3.0, -0.0), bf16(260.0, 0.0)),
]
FLOAT_EXTREMES = [
    ("min", f32(2.0), f32(-1.0), f32(-1.0)),
    ("max", f32(2.0), f32(-1.0), f32(2.0)),
    ("min", f32(0.0), f32(-0.0), f32(-0.0)),
    ("max", f32(-0.0), f32(0.0), f32(0.0)),
    ("min", f32(NAN), f32(3.0), f32(3.0)),
    ("max", f32(3.0), f32(NAN), f32(3.0)),
    ("max", f32(-INF), f32(-TINY), f32(-TINY)),
]
WIDE = [
    ("add_x2", "add_u64", M64, 3, 2),
    ("sub_x2", "sub_u64", 1 << 32, 1, M32),
    ("smin_x2", "min_i64", 5, M64 - 6, M64 - 6),
    ("umax_x2", "max_u64", 1 << 40, M32, 1 << 40),
    ("inc_x2", "inc_u64", M32, 1 << 40, 1 << 32),
    ("inc_x2", "inc_u64", 1 << 40, 1 << 40, 0),
    ("dec_x2", "dec_u64", 0, 1 << 40, 1 << 40),
    ("dec_x2", "dec_u64", 1 << 32, 1 << 40, M32),
    ("xor_x2", "xor_b64", 3 << 40, 1 << 40, 2 << 40),
    ("add_f64", "add_f64", f64(1.0), f64(2.0**-52), f64(1.0 + 2.0**-52)),
    ("min_f64", "min_f64", f64(-0.0), f64(0.0), f64(-0.0)),
    ("min_f64", "min_f64", f64(NAN), f64(-7.0), f64(-7.0)),
    ("max_f64", "max_f64", f64(-7.0), f64(NAN), f64(-7.0)),
    ("max_f64", "max_f64", f64(1e300), f64(INF), f64(INF)),
]
ONLY_RDNA4 = [("min_num_f32", f32(0.0), f32(-0.0), f32(-0.0)), ("max_num_f32", f32(NAN), f32(1.0), f32(1.0))]


def words(value: int, wide: bool) -> list[int]:
    return [value & M32, value >> 32] if wide else [value]


def group(first: int, wide: bool) -> str:
    """The registers of one value."""
    return f"v[{first}:{first + 1}]" if wide else f"v{first}"


def value(built, first: int, wide: bool) -> int:
    """Lane 3's."""
    return sum(int(built.registers[first + i][3]) << 32 * i for i in range(2 if wide else 1))


def shared(name: str, old: int, data: int, wide: bool, target: str, returns: bool) -> tuple[int, int]:
    """(the value after, what came back) of a shared place."""
    given = [*words(old, wide), *words(data, wide)]  # v1 and on
    n = 2 if wide else 1
    bits = "64" if wide else "32"
    stem, _, kind = name.rpartition("_")
    mnemonic = f"ds_{stem}_rtn_{kind}" if returns else f"ds_{name}"
    body = f"v_lshlrev_b32 v10, 3, v0\nds_write_b{bits} v10, {group(1, wide)}\n"
    back = group(12, wide) + ", " if returns else ""
    body += f"{mnemonic} {back}v10, {group(1 + n, wide)}\nds_read_b{bits} {group(14, wide)}, v10"
    built = execute(body, target, given, lds=8 * 64)
    return value(built, 14, wide), value(built, 12, wide) if returns else old


def far(name: str, old: int, data: int, wide: bool, target: str, returns: bool, space: str) -> tuple[int, int]:
    """The same of a place in global memory."""
    n = 2 if wide else 1
    given = [*words(old, wide), *words(data, wide)]
    # Where the arguments lie: the first 8 bytes a lane are its own place.
    body = "v_lshlrev_b32 v10, 3, v0\n"
    address = "v10"
    if space == "flat":
        body += "v_mov_b32 v11, s1\nv_add_co_u32 v10, vcc, s0, v10\nv_addc_co_u32 v11, vcc, 0, v11, vcc\n"
        address = "v[10:11]"
    base = ", s[0:1]" if space == "global" else ""
    asks = {"gfx90a": " glc", "gfx1201": " th:TH_ATOMIC_RETURN"}.get(target, " sc0") if returns else ""
    size = "dwordx2" if wide else "dword"
    body += f"{space}_store_{size} {address}, {group(1, wide)}{base}\n"
    back = group(12, wide) + ", " if returns else ""
    body += f"{space}_atomic_{name} {back}{address}, {group(1 + n, wide)}{base}{asks}\n"
    body += f"{space}_load_{size} {group(14, wide)}, {address}{base}"
    built = execute(body, target, given)
    return value(built, 14, wide), value(built, 12, wide) if returns else old


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "silent"])
def test_in_shared_memory(returns):
    cases = [(name, *rest, False) for _, name, *rest in WORDS] + [(name, *rest, True) for _, name, *rest in WIDE]
    cases += [(f"{name}_f32", *rest, False) for name, *rest in FLOAT_EXTREMES]
    for name, old, data, new, wide in cases:
        assert shared(name, old, data, wide, "gfx942", returns) == (new, old), (name, old, data)
    for name, old, data, new in ONLY_RDNA4:
        assert shared(name, old, data, False, "gfx1201", returns) == (new, old), (name, old, data)


@pytest.mark.parametrize("returns", [True, False], ids=["returns", "silent"])
@pytest.mark.parametrize("space", ["global", "flat"])
def test_in_global_memory(space, returns):
    cases = [(name, *rest, False) for name, _, *rest in WORDS] + [(name, *rest, True) for name, _, *rest in WIDE]
    for name, old, data, new, wide in cases:
        assert far(name, old, data, wide, "gfx942", returns, space) == (new, old), (name, old, data)
    for _, name, old, data, new in WORDS:
        if space == "global":  # flat addresses are made in another way there
            assert far(name, old, data, False, "gfx1201", returns, space) == (new, old), (name, old, data)
    for name, old, data, new in ONLY_RDNA4:
        if space == "global":
            assert far(name, old, data, False, "gfx1201", returns, space) == (new, old), (name, old, data)


def test_flat_addresses_of_shared_memory():
    body = """
v_lshlrev_b32 v10, 2, v0
ds_write_b32 v10, v1
s_mov_b64 s[4:5], src_shared_base
v_mov_b32 v11, s5
flat_atomic_pk_add_f16 v12, v[10:11], v2 sc0
ds_read_b32 v14, v10
"""
    built = execute(body, "gfx942", (pair(1.0, 2.0), pair(0.5, -0.0)), lds=256)
    assert [int(built.registers[i][9]) for i in (12, 14)] == [pair(1.0, 2.0), pair(1.5, 2.0)]


def test_compare_and_swap():
    """cmpst has the comparand first, cmpstore and the global forms the new value."""
    begin = "v_lshlrev_b32 v10, 2, v0\nds_write_b32 v10, v1\n"
    for target, form in (
        ("gfx942", "ds_cmpst_rtn_b32 v12, v10, v2, v3"),
        ("gfx1100", "ds_cmpstore_rtn_b32 v12, v10, v3, v2"),
    ):
        built = execute(
            f"{begin}{form}\nds_read_b32 v14, v10",
            target,
            (7, np.arange(64)[: 64 if target == "gfx942" else 32], 9),
            lds=256,
        )
        assert [int(built.registers[14][lane]) for lane in (6, 7, 8)] == [7, 9, 7], form
        assert set(built.registers[12].tolist()) == {7}


HEAD = "#include <wmma/grid.hpp>\n"


@pytest.mark.parametrize("target", arch.EMULATED)
def test_what_compilers_give(target):
    """Floats' atomics as clang takes them, in shared and global memory."""
    body = """
extern "C" __global__ void mixed(float* x, double* y, float* xs, double* ys) {
  __shared__ float s[3]; __shared__ double d[3];
  if (threadIdx.x < 3) { s[threadIdx.x] = 2.0f; d[threadIdx.x] = 2.0; }
  wmma::sync_workgroup();
  const int i = threadIdx.x;
  const float f = i - 5; const double g = i - 5;
#define ALL(way, fx, dx, k) \
  __hip_atomic_fetch_##way(fx + k, f, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT); \
  __hip_atomic_fetch_##way(dx + k, g, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  ALL(add, s, d, 0) ALL(min, s, d, 1) ALL(max, s, d, 2) ALL(add, x, y, 0) ALL(min, x, y, 1) ALL(max, x, y, 2)
  wmma::sync_workgroup();
  if (i < 3) { xs[i] = s[i]; ys[i] = d[i]; }
}"""
    lanes = arch.target(target).wave
    x, y = torch.full((3,), 2.0), torch.full((3,), 2.0, dtype=torch.float64)
    xs, ys = torch.zeros(3), torch.zeros(3, dtype=torch.float64)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel(HEAD + body, "mixed")[1, lanes](x, y, xs, ys)
    for found in (x, y, xs, ys):
        assert found.tolist() == [2 + sum(range(lanes)) - 5 * lanes, -5, lanes - 6]


HALF = """
extern "C" __global__ void half_of_a_word(unsigned short* x, int at) {
  if (threadIdx.x) return;
  unsigned* word = (unsigned*)((unsigned long long)(x + at) & ~3ull);
  unsigned old = atomicCAS_(word, 0, 0), next = 0;
  do { next = old; old = atomicCAS_(word, next, CHANGED); } while (old != next);
}"""


def test_words_that_reach_past_a_tensor():
    """A smaller type's atomic takes the whole word, and may: what it changes must lie in a tensor."""
    text = HALF.replace("atomicCAS_", "wmma::atomic_cas")
    inside = wmma_ops.Kernel(
        HEAD + text.replace("CHANGED", "(next & 0xffff0000u) | ((next + 5) & 0xffffu)"), "half_of_a_word"
    )
    outside = wmma_ops.Kernel(HEAD + text.replace("CHANGED", "next + 0x50000u"), "half_of_a_word")
    beyond = torch.arange(4, dtype=torch.int16)
    x = beyond[:3]
    with wmma_ops.emulate("gfx942"):
        inside[1, 64](x, 2)
        assert beyond.tolist() == [0, 1, 7, 3]
        with pytest.raises(OutOfBounds, match="atomic of 4 bytes"):
            outside[1, 64](x, 2)
        with pytest.raises(OutOfBounds, match="atomic of 4 bytes"):
            inside[1, 64](x, 4)
    assert beyond.tolist() == [0, 1, 7, 3]


def test_words_of_which_a_part_was_written():
    body = """
extern "C" __global__ void part(unsigned* x, int both) {
  __shared__ unsigned short s[4];
  if (threadIdx.x == 0) { s[both] = 3; if (both == 3) s[2] = 1; }
  wmma::sync_workgroup();
  if (threadIdx.x) return;
  unsigned* word = (unsigned*)s + WORD;
  unsigned old = wmma::atomic_cas(word, 0u, 0u) & 0xffffu;
  unsigned seen = wmma::atomic_cas(word, 0u, 0u);
  x[0] = wmma::atomic_cas(word, seen, (seen & KEEP) | ((seen + ADD) & ~KEEP)) & 0xffffu;
}"""
    low = wmma_ops.Kernel(HEAD + body.replace("WORD", "0").replace("KEEP", "0xffff0000u").replace("ADD", "1u"), "part")
    high = wmma_ops.Kernel(
        HEAD + body.replace("WORD", "0").replace("KEEP", "0xffffu").replace("ADD", "0x10000u"), "part"
    )
    none = wmma_ops.Kernel(HEAD + body.replace("WORD", "1").replace("KEEP", "0u").replace("ADD", "1u"), "part")
    x = torch.zeros(1, dtype=torch.int32)
    with wmma_ops.emulate("gfx1201"):
        low[1, 32](x, 0)
        assert x.item() == 3
        for kernel in (high, none):
            with pytest.raises(Uninitialised):
                kernel[1, 32](x, 0)
