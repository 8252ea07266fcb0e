"""Reads that transpose between lanes: gfx950's ds_read_b64_tr_b16, b8, b4, ds_read_b96_tr_b6; gfx12's global_load_tr_b128.

gfx950: what 16 lanes read is a matrix of 16 columns, a lane gets a column (as AMD's rocRoller tests it on the hardware).
gfx12: of eight elements of 16 bits each in eight lanes, lane i gets every lane's i-th (as measured on gfx1201).
"""

import numpy as np
import pytest
import torch
from test_emulator import execute

import wmma_ops
from wmma_ops.emulator import EmulationError, OutOfBounds, Race, Uninitialised, UnknownInstruction

LANES = np.arange(64)


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [lanes, elements] as words [n, lanes]."""
    whole = [sum(int(code) << bits * e for e, code in enumerate(lane)) for lane in codes]
    return np.array([[x >> 32 * i & 0xFFFFFFFF for x in whole] for i in range(codes.shape[1] * bits // 32)], np.uint32)


@pytest.mark.parametrize(("size", "bits"), [(64, 16), (64, 8), (64, 4), (96, 6)])
def test_columns_of_sixteen_lanes(size, bits):
    """Each lane's own place holds a piece of a matrix's row; lanes read the pieces of another group than theirs."""
    count = size // bits
    matrices = np.random.default_rng(bits).integers(0, 1 << bits, (4, count, 16))  # [group, row, column]
    pieces = packed(matrices.reshape(64, count), bits)  # row after row: a lane has the next elements
    words = size // 32
    other = (LANES + 16) % 64  # whose place a lane reads
    step = 8 if size == 64 else 16
    body = f"ds_write_b{size} v1, v[3:{2 + words}] offset:{step}\n"
    body += f"ds_read_b{size}_tr_b{bits} v[10:{9 + words}], v2 offset:{step}"
    built = execute(body, "gfx950", (LANES * step, other * step, *pieces), lds=64 * step + step)
    want = packed(matrices.transpose(0, 2, 1).reshape(64, count), bits)[:, other]
    assert np.array_equal(built.registers[10 : 10 + words], want)


def test_each_lane_has_its_own_address():
    """Four rows of 16, of which every lane's piece lies elsewhere: only what it reads counts."""
    places = np.random.default_rng(1).permutation(64)
    values = np.arange(256).reshape(64, 4)
    body = "ds_write_b64 v1, v[2:3]\nds_read_b64_tr_b16 v[2:3], v1"
    built = execute(body, "gfx950", (places * 8, *packed(values, 16)), lds=512)
    want = packed(np.array([[64 * (n // 16) + 16 * r + n % 16 for r in range(4)] for n in LANES]), 16)
    assert np.array_equal(built.registers[2:4], want)


WRITE = "v_lshlrev_b32 v10, 3, v0\nds_write_b64 v10, v[1:2]\n"


@pytest.mark.parametrize(
    ("body", "error", "reason"),
    [
        ("ds_read_b64_tr_b16 v[4:5], v10 offset:8", OutOfBounds, "lane 63: a read of 8 bytes"),
        (
            "ds_read_b64_tr_b8 v[4:5], v10 offset:4",
            EmulationError,
            "lane 0: a transposed read at byte 4: no multiple of 8",
        ),
        ("ds_read_b96_tr_b6 v[4:6], v10", EmulationError, "lane 1: a transposed read at byte 8: no multiple of 16"),
        ("s_mov_b64 exec, 3\nds_read_b64_tr_b4 v[4:5], v10", EmulationError, "lane 2 is off at a transposed read"),
    ],
)
def test_what_is_told(body, error, reason):
    with pytest.raises(error, match=reason):
        execute(WRITE + body, "gfx950", (1, 2), lds=512)


def test_what_was_never_written_and_races():
    with pytest.raises(Uninitialised, match="never written"):
        execute("v_lshlrev_b32 v10, 3, v0\nds_read_b64_tr_b16 v[4:5], v10", "gfx950", (1,), lds=512)
    read = "v_mov_b32 v10, 0\nds_read_b64_tr_b16 v[4:5], v10"
    with pytest.raises(Race, match="meets what wave 0 wrote"):
        execute(WRITE + read, "gfx950", (1, 2), lds=1024, waves=2)
    execute(WRITE + "s_barrier\n" + read, "gfx950", (1, 2), lds=1024, waves=2)


def test_no_lane_at_all():
    """As compilers leave it around a branch: nothing is read or exchanged."""
    body = "s_mov_b64 exec, 0\nds_read_b64_tr_b16 v[1:2], v0 offset:4000"
    built = execute(body, "gfx950", (LANES, LANES), lds=8)
    assert np.array_equal(built.registers[1], LANES)


def test_from_global_memory():
    """Lane 8g + i gets element i of the eight lanes of its group."""
    values = np.random.default_rng(2).integers(0, 1 << 16, (32, 8))
    pieces = packed(values, 16)
    body = "v_lshlrev_b32 v10, 4, v0\nglobal_store_b128 v10, v[1:4], s[0:1]\n"
    body += "global_load_tr_b128 v[12:15], v10, s[0:1]"
    built = execute(body, "gfx1201", tuple(pieces))
    want = packed(values.reshape(4, 8, 8).transpose(0, 2, 1).reshape(32, 8), 16)
    assert np.array_equal(built.registers[12:16], want)
    with pytest.raises(EmulationError, match="lane 1 is off at a transposed read"):
        execute("s_mov_b32 exec_lo, 1\n" + body, "gfx1201", tuple(pieces))
    with pytest.raises(UnknownInstruction, match="global_load_tr_b64"):
        execute("v_lshlrev_b32 v10, 3, v0\nglobal_load_tr_b64 v[12:13], v10, s[0:1]", "gfx1201", (1,))


@pytest.mark.parametrize("target", ["gfx950"])  # which not every clang knows
def test_what_the_compiler_gives(target):
    text = """
typedef short v4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void turn(short* x) {
  __shared__ v4 tile[64];
  for (int i = 0; i < 4; ++i) tile[threadIdx.x][i] = x[4 * threadIdx.x + i];
  wmma::sync_workgroup();
  const v4 y = __builtin_amdgcn_ds_read_tr16_b64_v4i16((__attribute__((address_space(3))) v4*)&tile[threadIdx.x]);
  for (int i = 0; i < 4; ++i) x[4 * threadIdx.x + i] = y[i];
}"""
    x = torch.arange(256, dtype=torch.int16)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel("#include <wmma/grid.hpp>\n" + text, "turn")[1, 64](x)
    assert torch.equal(x.reshape(4, 16, 4), torch.arange(256).reshape(4, 4, 16).transpose(1, 2).to(torch.int16))
