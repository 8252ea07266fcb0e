"""Bits that nothing has written, in instructions that move them: which bits of the result depend on them, tried out."""

import random

import pytest
import torch

import wmma_ops
from wmma_ops.emulator import bits, moving
from wmma_ops.emulator.assembly import parse_instruction

# With the result in v0 and operands in v1, v2 and v3; s40 holds the number behind.
INSTRUCTIONS = [
    ("v_mov_b32 v0, v1", 0),
    ("v_not_b32 v0, v1", 0),
    ("v_and_b32 v0, v1, v2", 0),
    ("v_and_b32 v0, 0xff00ff, v1", 0),
    ("v_and_b32 v0, s40, v1", 0xF0F),
    ("v_or_b32 v0, v1, v2", 0),
    ("v_or_b32 v0, 0xff00, v1", 0),
    ("v_or3_b32 v0, v1, s40, v2", 0x8001),
    ("v_xor_b32 v0, v1, v2", 0),
    ("v_xor_b32 v0, 15, v1", 0),
    ("v_and_or_b32 v0, v1, 15, v2", 0),
    ("v_and_or_b32 v0, v1, v2, s40", 0xFF00),
    ("v_lshl_or_b32 v0, v1, 16, v2", 0),
    ("v_lshl_or_b32 v0, v1, 3, s40", 0xF0),
    ("v_lshlrev_b32 v0, 8, v1", 0),
    ("v_lshlrev_b32 v0, s40, v1", 37),
    ("v_lshrrev_b32 v0, 16, v1", 0),
    ("v_ashrrev_i32 v0, 9, v1", 0),
    ("v_bfe_u32 v0, v1, 8, 8", 0),
    ("v_bfe_u32 v0, v1, 24, 16", 0),
    ("v_bfe_i32 v0, v1, 5, 14", 0),
    ("v_bfe_i32 v0, v1, 24, 16", 0),
    ("v_bfi_b32 v0, s40, v1, v2", 0xFF00FF),
    ("v_bfi_b32 v0, v1, v2, v3", 0),
    ("v_alignbit_b32 v0, v1, v2, 5", 0),
    ("v_alignbyte_b32 v0, v1, v2, 3", 0),
    ("v_perm_b32 v0, v1, v2, s40", 0x07060004),
    ("v_perm_b32 v0, v1, v2, s40", 0x0C0D0B08),
    ("v_perm_b32 v0, v1, v2, s40", 0x0A090301),
    ("v_pack_b32_f16 v0, v1, v2", 0),
    ("v_pack_b32_f16 v0, v1, v2 op_sel:[1,0,0]", 0),
    ("v_lshlrev_b16 v0, 8, v1", 0),
    ("v_lshrrev_b16 v0, 3, v1", 0),
    ("v_ashrrev_i16 v0, 3, v1", 0),
]
ON_GFX9 = [
    ("v_mov_b32_sdwa v0, v1 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:DWORD", 0),
    ("v_mov_b32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:BYTE_3", 0),
    ("v_or_b32_sdwa v0, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1", 0),
    ("v_lshlrev_b16_sdwa v0, v2, v1 dst_sel:BYTE_1 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0 src1_sel:BYTE_0", None),
]
ON_GFX11 = [("v_lshlrev_b16 v0.h, 8, v1.l", 0), ("v_lshrrev_b16 v0.l, 3, v1.h", 0), ("v_or_b16 v0.l, v1.h, v2.l", 0)]
CASES = [(target, *one) for target in ("gfx90a", "gfx1201") for one in INSTRUCTIONS]
CASES += [("gfx90a", *one) for one in ON_GFX9] + [("gfx1100", *one) for one in ON_GFX11]


def _results(text: str, target: str, scalar: int, given: torch.Tensor, flips: torch.Tensor) -> torch.Tensor:
    """[flips, lanes], of v0 … v3 with some of their bits flipped."""
    asm = (
        "".join(f"v_mov_b32 v{i}, %{i + 1}\\n" for i in range(4))
        + f"s_mov_b32 s40, {scalar}\\n{text}\\nv_mov_b32 %0, v0"
    )
    operands = ", ".join(f'"v"(x[{64 * i} + lane] ^ flips[blockIdx.x * 4 + {i}])' for i in range(4))
    source = (
        '#include <wmma/grid.hpp>\nextern "C" __global__ void one(const int* x, const int* flips, int* y) {'
        f' int lane = threadIdx.x, found; asm volatile("{asm}" : "=&v"(found) : {operands} : "v0", "v1", "v2", "v3", "s40");'
        " y[blockIdx.x * 64 + lane] = found; }"
    )
    y = torch.zeros(len(flips), 64, dtype=torch.int32)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel(source, "one")[len(flips), 64](given, flips, y)
    return y


@pytest.mark.parametrize(("target", "text", "scalar"), CASES, ids=[f"{one[1]} {one[2]} {one[0]}" for one in CASES])
def test_these_bits_of_the_result_depend_on_a_bit_and_no_others(target, text, scalar):
    draw = random.Random(text)
    given = torch.tensor([draw.getrandbits(32) - 2**31 for _ in range(4 * 64)], dtype=torch.int32)
    tried = [(i, bit) for i in range(4) for bit in range(32)]
    flips = torch.zeros(1 + len(tried), 4, dtype=torch.int32)
    for row, (i, bit) in zip(flips[1:], tried, strict=True):
        row[i] = 1 << bit if bit < 31 else -(2**31)
    plain, *changed = _results(text, target, scalar or 0, given, flips)
    names = [f"v{i}" for i in range(4)]
    move = moving.move(parse_instruction(text), names, target.startswith("gfx9"))
    for (i, bit), y in zip(tried, changed, strict=True):
        depends = 0
        for difference in (y ^ plain).tolist():
            depends |= difference & bits.WORD
        known = dict.fromkeys(names, bits.WORD) | {f"v{i}": bits.WORD ^ 1 << bit}
        unwritten = bits.WORD & ~move.written(known["v0"], known, [scalar or 0] * 64, True)
        if i == 0 and move.beside:  # the half that is kept is of no concern, once the other is written
            assert unwritten == 0
            unwritten = bits.WORD & ~move.written(known["v0"], known | {"v1": 0}, [], True) & move.beside
        if scalar is None:
            assert depends & ~unwritten == 0, f"bit {bit} of v{i}"
        else:
            assert depends == unwritten, f"bit {bit} of v{i}"


@pytest.mark.parametrize(
    ("text", "full", "behind"),  # where bytes 0 and 2 of v0 are written before, and bytes 0 and 1 of v1
    [
        ("v_mov_b32_e32 v0, v1", True, 0x0000FFFF),
        ("v_mov_b32_e32 v0, v1", False, 0x00FFFFFF),
        ("v_mov_b32_dpp v0, v1 row_shr:1 row_mask:0xf bank_mask:0xf", True, 0x00FFFFFF),
        ("v_cndmask_b32_e32 v0, v1, v2, vcc", True, 0xFF00FFFF),
        ("v_cvt_f32_f16_e32 v0, v1", True, 0xFFFFFFFF),
        ("v_cvt_f32_i32_e32 v0, v1", True, 0),
        ("v_cvt_f32_i32_e32 v0, v1", False, 0x00FF00FF),
        ("v_cvt_f16_f32_sdwa v0, v1 dst_sel:WORD_1 dst_unused:UNUSED_PRESERVE src0_sel:DWORD", True, 0x00FF00FF),
    ],
)
def test_which_bits_are_written_behind(text, full, behind):
    known = {"v0": 0x00FF00FF, "v1": 0x0000FFFF, "v2": 0xFF000000}
    move = moving.move(parse_instruction(text), ["v1", "v2"] if "v2" in text else ["v1"], True)
    assert move.written(known["v0"], known, [], full) == behind
