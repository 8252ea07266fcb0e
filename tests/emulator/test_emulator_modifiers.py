"""Modifiers and corner cases of single instructions, against values from the ISA's definition, and what is refused."""

import numpy as np
import pytest
from test_emulator import INF, NAN, bits, execute, half, result

from wmma_ops.emulator import EmulationError, Uninitialised, UnknownInstruction

GFX9, GFX908, GFX11, GFX12 = "gfx942", "gfx908", "gfx1100", "gfx1201"
NEGATIVE_NAN, SIGNALLING = 0xFFC00000, 0x7F800001
MINUS = 0x80000000


def two(low: int, high: int) -> int:
    return (low & 0xFFFF) | (high & 0xFFFF) << 16


def neg(x: int) -> int:
    return -x & 0xFFFFFFFF


# Of whole numbers: to the largest or smallest of the type.
CLAMPED = [
    (GFX9, "v_add_u32_e64 v5, v1, v2 clamp", (0xFFFFFFF0, 0x20), 0xFFFFFFFF),
    (GFX9, "v_add_u32_e64 v5, v1, v2 clamp", (0xFFFFFFF0, 0x0F), 0xFFFFFFFF),
    (GFX9, "v_add_u32_e64 v5, v1, v2 clamp", (7, 8), 15),
    (GFX9, "v_sub_u32_e64 v5, v1, v2 clamp", (1, 2), 0),
    (GFX9, "v_subrev_u32_e64 v5, v1, v2 clamp", (1, 3), 2),
    (GFX9, "v_add_i32 v5, v1, v2 clamp", (0x7FFFFFFF, 1), 0x7FFFFFFF),
    (GFX9, "v_add_i32 v5, v1, v2 clamp", (MINUS, neg(1)), MINUS),
    (GFX9, "v_sub_i32 v5, v1, v2 clamp", (neg(5), 0x7FFFFFFF), MINUS),
    (GFX12, "v_add_nc_u32_e64 v5, v1, v2 clamp", (0xFFFFFFFF, 2), 0xFFFFFFFF),
    (GFX12, "v_sub_nc_i32 v5, v1, v2 clamp", (0x7FFFFFFF, neg(1)), 0x7FFFFFFF),
    (GFX9, "v_add_u16_e64 v5, v1, v2 clamp", (0xFFFF, 1), 0xFFFF),
    (GFX9, "v_sub_u16_e64 v5, v1, v2 clamp", (3, 4), 0),
    (GFX9, "v_mov_b32_e32 v5, 0\nv_add_i16 v5, v1, v2 clamp", (0x7FFF, 1), 0x7FFF),
    (GFX9, "v_mov_b32_e32 v5, 0\nv_mad_u16 v5, v1, v2, v3 clamp", (256, 256, 0), 0xFFFF),
    (GFX9, "v_mov_b32_e32 v5, 0\nv_mad_i16 v5, v1, v2, v3 clamp", (0x8000, 2, 0), 0x8000),
    (GFX9, "v_mad_u32_u24 v5, v1, v2, v3 clamp", (0xFFFFFF, 0xFFFFFF, 0), 0xFFFFFFFF),
    (GFX9, "v_mad_i32_i24 v5, v1, v2, v3 clamp", (0xFFFFFF, 3, 5), 2),
    (GFX9, "v_mad_i32_i24 v5, v1, v2, v3 clamp", (0x800000, 0x7FFFFF, 0), MINUS),
    (GFX9, "v_sad_u8 v5, v1, v2, v3", (0x00FF1000, 0x0100FF05, 7), 1 + 255 + 239 + 5 + 7),
    (GFX9, "v_sad_u8 v5, v1, v2, v3 clamp", (0xFF, 0, 0xFFFFFFFE), 0xFFFFFFFF),
    (GFX9, "v_sad_u16 v5, v1, v2, v3", (0x00051000, 0x00071001, 1), 4),
    (GFX9, "v_sad_u32 v5, v1, v2, v3", (3, 10, 1), 8),
    (GFX9, "v_sad_hi_u8 v5, v1, v2, v3", (3, 10, 1), 7 << 16 | 1),
    (GFX9, "v_lerp_u8 v5, v1, v2, v3", (0xFF010203, 0xFF020406, 0x00010001), 0xFF020305),
    (GFX9, "v_msad_u8 v5, v1, v2, v3", (0x0909, 0x0400, 1), 6),
    (GFX9, "v_dot4_i32_i8 v5, v1, v2, v3 clamp", (0x7F7F7F7F, 0x7F7F7F7F, 0x7FFFFFFF), 0x7FFFFFFF),
    (GFX9, "v_dot4_i32_i8 v5, v1, v2, v3", (0x7F7F7F7F, 0x7F7F7F7F, 0x7FFFFFFF), 0x8000FC03),
    (GFX9, "v_dot4_u32_u8 v5, v1, v2, v3", (0xFF000002, 0xFF000003, 4), 255 * 255 + 10),
    (GFX9, "v_dot8_i32_i4 v5, v1, v2, v3", (0xF0000002, 0x20000003, 0), 4),
    (GFX9, "v_dot2_i32_i16 v5, v1, v2, v3", (two(-2, 3), two(5, 7), 1), 12),
    (GFX11, "v_dot4_i32_iu8 v5, v1, v2, v3 neg_lo:[1,0,0]", (0xFF, 0xFF, 0), neg(255)),
    (GFX9, "v_pk_add_u16 v5, v1, v2 clamp", (two(0xFFFF, 1), two(1, 2)), two(0xFFFF, 3)),
    (GFX9, "v_pk_sub_i16 v5, v1, v2 clamp", (two(0x8000, 5), two(1, 7)), two(0x8000, -2)),
    (GFX9, "v_pk_mad_i16 v5, v1, v2, v3 clamp", (two(-300, 2), two(300, 3), two(0, 4)), two(0x8000, 10)),
    (GFX9, "v_add_co_u32_e64 v5, vcc, v1, v2 clamp", (0xFFFFFFFF, 2), 0xFFFFFFFF),
    (GFX9, "v_sub_co_u32_e64 v5, vcc, v1, v2 clamp", (1, 2), 0),
    (GFX9, "v_mul_f32_e64 v5, v1, v2 clamp", (bits(-3.0), bits(2.0)), 0),
]

SELECTED = [
    (GFX9, "v_pack_b32_f16 v5, -v1, |v2|", (half(1.0), half(-2.0)), two(half(-1.0), half(2.0))),
    (GFX9, "v_pack_b32_f16 v5, v1, v2 op_sel:[1,0,0]", (two(1, 9), 5), two(9, 5)),
    (GFX9, "s_mov_b64 vcc, 8\nv_cndmask_b32_e64 v5, -v1, |v2|, vcc", (bits(3.0), bits(-4.0)), bits(4.0)),
    (GFX9, "v_cvt_f32_fp8_sdwa v5, v1 src0_sel:BYTE_2", (0x00400000,), bits(1.0)),
    (GFX12, "v_cvt_f32_fp8_e64 v5, v1 byte_sel:2", (0x00380000,), bits(1.0)),
    (GFX12, "v_mov_b32_e32 v5, 7\nv_cvt_pk_fp8_f32 v5.h, v1, v2", (bits(1.0), bits(2.0)), 0x40380007),
    (GFX12, "v_mov_b32_e32 v5, 0\nv_cvt_pk_fp8_f32 v5.l, v1, v2", (bits(1.0), bits(2.0)), 0x4038),
    (GFX12, "v_cvt_pk_f32_fp8_e32 v[4:5], v1.h", (0x40380000,), bits(2.0)),
    (GFX12, "v_cvt_pk_f32_fp8_e32 v[4:5], v1.l", (0x40380000,), 0),
    (GFX11, "v_alignbit_b32 v5, v1, v2, v3.h", (0x11223344, 0xAABBCCDD, two(0, 8)), 0x44AABBCC),
    # On gfx9 some results of 16 bits leave the high half alone.
    (GFX9, "v_mov_b32_e32 v5, -1\nv_fma_f16 v5, v1, v1, v1", (half(1.0),), 0xFFFF0000 | half(2.0)),
    (GFX9, "v_mov_b32_e32 v5, -1\nv_add_f16_e32 v5, v1, v1", (half(1.0),), half(2.0)),
]

# A part of the result of a selection, and of its operands.
CHOSEN = "v_mov_b32_e32 v5, -1\ns_mov_b64 vcc, {}\nv_cndmask_b32_sdwa v5, v1, v2, vcc dst_sel:{} dst_unused:{} {}"
PARTS = "src0_sel:WORD_1 src1_sel:DWORD"
SELECTED += [
    (GFX9, CHOSEN.format(0, "WORD_1", "UNUSED_PAD", PARTS), (two(3, 7), two(5, 9)), two(0, 7)),
    (GFX9, CHOSEN.format(8, "WORD_1", "UNUSED_PAD", PARTS), (two(3, 7), two(5, 9)), two(0, 5)),
    (GFX9, CHOSEN.format(0, "WORD_0", "UNUSED_PRESERVE", PARTS), (two(3, 7), two(5, 9)), two(7, -1)),
    (GFX9, CHOSEN.format(8, "BYTE_2", "UNUSED_PAD", "src0_sel:DWORD src1_sel:BYTE_3"), (0, 0xAB000000), 0x00AB0000),
]

CORNERS = [
    # Carry is bit 64 of the sum.
    (GFX9, "v_mad_u64_u32 v[6:7], vcc, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc", (2, 3, neg(5), neg(1)), 1),
    (GFX9, "v_mad_u64_u32 v[6:7], vcc, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc", (2, 3, neg(7), neg(1)), 0),
    (GFX9, "v_mad_i64_i32 v[6:7], vcc, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc", (neg(1), 3, 1, 0), 1),
    (GFX9, "v_mad_i64_i32 v[6:7], vcc, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc", (1, 3, 0, 0), 0),
    # 2³¹ · (2³¹ − 1)·… past the largest: the sign of the exact sum counts.
    (GFX9, "v_mad_i64_i32 v[6:7], vcc, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc", (1, 1, neg(1), 0x7FFFFFFF), 0),
    (
        GFX9,
        "v_mad_i64_i32 v[6:7], vcc, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc",
        (neg(1), 1, 0, MINUS),
        1,
    ),
    (
        GFX12,
        "v_mad_co_u64_u32 v[6:7], vcc_lo, v1, v2, v[3:4]\nv_cndmask_b32_e64 v5, 0, 1, vcc_lo",
        (2, 3, neg(5), neg(1)),
        1,
    ),
    ("gfx942", "s_wqm_b64 s[4:5], s[6:7]\nv_mov_b32_e32 v5, s4", (), 0),
    ("gfx942", "s_mov_b32 s6, 0x10208\ns_wqm_b32 s4, s6\nv_mov_b32_e32 v5, s4", (), 0xF0F0F),
    # Classes: 0 signalling NaN, 1 quiet NaN, 4 and 7 subnormal.
    (GFX9, "v_cmp_class_f32_e64 vcc, v1, 1\nv_cndmask_b32_e64 v5, 0, 1, vcc", (SIGNALLING,), 1),
    (GFX9, "v_cmp_class_f32_e64 vcc, v1, 2\nv_cndmask_b32_e64 v5, 0, 1, vcc", (SIGNALLING,), 0),
    (GFX9, "v_cmp_class_f32_e64 vcc, v1, 2\nv_cndmask_b32_e64 v5, 0, 1, vcc", (NEGATIVE_NAN,), 1),
    (GFX9, "v_cmp_class_f32_e64 vcc, v1, 16\nv_cndmask_b32_e64 v5, 0, 1, vcc", (MINUS | 1,), 1),
    (GFX9, "v_cmp_class_f16_e64 vcc, v1, 1\nv_cndmask_b32_e64 v5, 0, 1, vcc", (0x7C01,), 1),
    # Below 1, also where the difference rounds to 1.
    (GFX9, "v_fract_f32_e32 v5, v1", (bits(-1e-12),), 0x3F7FFFFF),
    (GFX9, "v_fract_f32_e32 v5, v1", (bits(-1.25),), bits(0.75)),
    (GFX9, "v_fract_f16_e32 v5, v1", (half(-1e-7),), 0x3BFF),
    # +0 lies above −0.
    (GFX9, "v_max_f32_e32 v5, v1, v2", (MINUS, 0), 0),
    (GFX9, "v_max_f32_e32 v5, v1, v2", (0, MINUS), 0),
    (GFX9, "v_min_f32_e32 v5, v1, v2", (MINUS, 0), MINUS),
    (GFX9, "v_min_f32_e32 v5, v1, v2", (0, MINUS), MINUS),
    (GFX9, "v_max_f16_e32 v5, v1, v2", (0x8000, 0), 0),
    (GFX9, "v_min_f16_e32 v5, v1, v2", (0, 0x8000), 0x8000),
    (GFX9, "v_max_f64 v[4:5], v[1:2], v[3:4]", (0, MINUS, 0, 0), 0),
    (GFX9, "v_pk_min_f16 v5, v1, v2", (two(0, 0x8000), two(0x8000, 0)), two(0x8000, 0x8000)),
    (GFX9, "v_max3_f32 v5, v1, v2, v3", (MINUS, 0, MINUS), 0),
    (GFX9, "v_min3_f32 v5, v1, v2, v3", (0, 0, MINUS), MINUS),
    (GFX9, "v_med3_f32 v5, v1, v2, v3", (0, MINUS, bits(1.0)), 0),
    (GFX12, "v_maximum_f32 v5, v1, v2", (MINUS, 0), 0),
    (GFX12, "v_minimum_f32 v5, v1, v2", (0, MINUS), MINUS),
    (GFX12, "v_maximum_f32 v5, v1, v2", (bits(1.0), bits(NAN)), bits(NAN)),
    (GFX12, "v_minimummaximum_f32 v5, v1, v2, v3", (bits(1.0), bits(2.0), bits(5.0)), bits(5.0)),
    # A signalling NaN: made quiet before gfx12, left out after.
    (GFX9, "v_max_f32_e32 v5, v1, v2", (SIGNALLING, bits(1.0)), SIGNALLING | 0x400000),
    (GFX11, "v_min_f32_e32 v5, v1, v2", (bits(1.0), SIGNALLING), SIGNALLING | 0x400000),
    (GFX12, "v_max_num_f32_e32 v5, v1, v2", (SIGNALLING, bits(1.0)), bits(1.0)),
    # Outside the domain: a negative quiet NaN.
    (GFX9, "v_sqrt_f32_e32 v5, v1", (bits(-4.0),), NEGATIVE_NAN),
    (GFX9, "v_rsq_f32_e32 v5, v1", (bits(-4.0),), NEGATIVE_NAN),
    (GFX9, "v_log_f32_e32 v5, v1", (bits(-1.0),), NEGATIVE_NAN),
    (GFX9, "v_log_f32_e32 v5, v1", (bits(-INF),), NEGATIVE_NAN),
    (GFX9, "v_log_f32_e32 v5, v1", (MINUS,), bits(-INF)),
    (GFX9, "v_sqrt_f32_e32 v5, v1", (MINUS,), MINUS),
    # These flush subnormals in every mode.
    (GFX9, "v_rcp_f32_e32 v5, v1", (MINUS | 1,), bits(-INF)),
    (GFX9, "v_rcp_f32_e32 v5, v1", (bits(2.0**127),), 0),
    (GFX9, "v_exp_f32_e32 v5, v1", (bits(-130.0),), 0),
    (GFX9, "v_log_f32_e32 v5, v1", (5,), bits(-INF)),
    (GFX12, "s_mov_b32 s4, 1\nv_s_rcp_f32 s5, s4\nv_mov_b32_e32 v5, s5", (), bits(INF)),
    # float8 beyond the largest: 464 is as near to 448 as to the next, 480; 248 as near to 240 as to 256, which is NaN.
    (GFX12, "v_mov_b32_e32 v5, 0\nv_cvt_pk_fp8_f32 v5, v1, v2", (bits(464.0), bits(-465.0)), 0xFF7E),
    (GFX12, "v_mov_b32_e32 v5, 0\nv_cvt_pk_bf8_f32 v5, v1, v2", (bits(61439.0), bits(-61440.0)), 0xFC7B),
    (GFX9, "v_mov_b32_e32 v5, 0\nv_cvt_pk_fp8_f32 v5, v1, v2", (bits(247.9), bits(248.0)), 0x807F),
    (GFX9, "v_ffbh_i32_e32 v5, v1", (0xFFFF0000,), 16),
    (GFX9, "v_ffbh_i32_e32 v5, v1", (0xFFFFFFFF,), 0xFFFFFFFF),
    # v_mad_f32 rounds twice and flushes subnormals.
    (GFX908, "v_mad_f32 v5, v1, v1, v2", (bits(1 + 2.0**-23), bits(-(1 + 2.0**-22))), 0),
    (GFX908, "v_mad_f32 v5, v1, 1.0, 0", (5,), 0),
    # SCC of the larger and the smaller, where both are the same.
    ("gfx942", "s_max_i32 s4, 3, 3\ns_cselect_b32 s5, 1, 2\nv_mov_b32_e32 v5, s5", (), 1),
    ("gfx942", "s_min_i32 s4, 3, 3\ns_cselect_b32 s5, 1, 2\nv_mov_b32_e32 v5, s5", (), 2),
    ("gfx942", "s_max_u32 s4, -1, 3\ns_cselect_b32 s5, s4, 2\nv_mov_b32_e32 v5, s5", (), 0xFFFFFFFF),
    ("gfx942", "s_mov_b32 s8, 77\ns_mov_b32 m0, 2\ns_movrels_b32 s4, s6\nv_mov_b32_e32 v5, s4", (), 77),
    ("gfx942", "s_mov_b64 s[8:9], 5\ns_mov_b32 m0, 2\ns_movreld_b64 s[10:11], s[8:9]\nv_mov_b32_e32 v5, s12", (), 5),
    ("gfx942", "s_quadmask_b32 s4, 0x10f0\nv_mov_b32_e32 v5, s4", (), 0b1010),
    ("gfx942", "s_ff0_i32_b32 s4, 0xff\nv_mov_b32_e32 v5, s4", (), 8),
    ("gfx942", "s_ff0_i32_b32 s4, -1\nv_mov_b32_e32 v5, s4", (), 0xFFFFFFFF),
    ("gfx950", "v_cvt_f32_bf16_e32 v5, v1", (0x12343FC0,), bits(1.5)),
    (GFX9, "v_mul_hi_i32_i24_e32 v5, v1, v2", (0x800000, 0x7FFFFF), 0xFFFFC000),
    # The difference wraps before its sign is taken.
    ("gfx942", "s_brev_b32 s4, 1\ns_absdiff_i32 s5, 0x7fffffff, s4\nv_mov_b32_e32 v5, s5", (), 1),
    (GFX9, "v_lshl_add_u64 v[4:5], v[1:2], v3, v[1:2]\nv_mov_b32 v5, v4", (1, 0, 0x42), 5),
    (GFX9, "v_cvt_rpi_i32_f32_e32 v5, v1", (bits(0.5 - 2.0**-25),), 1),
    # Where the sign ends; −1 for all bits alike.
    ("gfx942", "s_flbit_i32 s4, 0xffff0000\nv_mov_b32_e32 v5, s4", (), 16),
    ("gfx942", "s_flbit_i32 s4, 1\nv_mov_b32_e32 v5, s4", (), 31),
    ("gfx942", "s_flbit_i32_b32 s4, 0\nv_mov_b32_e32 v5, s4", (), 0xFFFFFFFF),
    ("gfx942", "s_flbit_i32_b32 s4, 5\nv_mov_b32_e32 v5, s4", (), 29),
    ("gfx942", "s_flbit_i32 s4, -1\nv_mov_b32_e32 v5, s4", (), 0xFFFFFFFF),
    ("gfx942", "s_mov_b64 s[6:7], -2\ns_flbit_i32_i64 s4, s[6:7]\nv_mov_b32_e32 v5, s4", (), 63),
    (GFX11, "s_cls_i32 s4, 0x00800000\nv_mov_b32_e32 v5, s4", (), 8),
    (
        "gfx942",
        "s_mov_b32 s6, 0x80000000\ns_mov_b32 s7, 0xab\ns_bfe_i64 s[4:5], s[6:7], 0x9001f\nv_mov_b32_e32 v5, s4",
        (),
        0xFFFFFF57,
    ),
    (
        "gfx942",
        "s_mov_b32 s6, 0x80000000\ns_mov_b32 s7, 0xab\ns_bfe_u64 s[4:5], s[6:7], 0x9001f\nv_mov_b32_e32 v5, s4",
        (),
        0x157,
    ),
    (GFX12, "s_mov_b32 s4, 0x3fc00000\ns_fmaak_f32 s5, s4, s4, 0x40000000\nv_mov_b32_e32 v5, s5", (), bits(4.25)),
    (GFX12, "s_mov_b32 s4, 0xbfc00000\ns_floor_f32 s5, s4\nv_mov_b32_e32 v5, s5", (), bits(-2.0)),
]

ALL = CLAMPED + SELECTED + CORNERS


@pytest.mark.parametrize(
    ("target", "body", "inputs", "expected"), ALL, ids=[f"{i}-{row[1][:50]}" for i, row in enumerate(ALL)]
)
def test_value(target, body, inputs, expected):
    assert hex(result(body, inputs, target)) == hex(expected)


REFUSED = [
    (GFX9, "v_mul_f32_e64 v5, v1, v2 mul:2", "output factor"),
    (GFX9, "v_add_f32_e64 v5, v1, v2 div:2", "output factor"),
    (GFX9, "v_and_b32_e64 v5, v1, v2 clamp", "clamp"),
    (GFX9, "v_mul_lo_u32 v5, v1, v2 clamp", "clamp"),
    (GFX9, "v_lshl_add_u32 v5, v1, v2, v3 op_sel:[1,0,0,0]", "op_sel"),
    (GFX9, "v_pk_add_u16 v5, v1, v2 neg_lo:[1,0]", "neg_lo"),
    (GFX9, "v_add_u32_e64 v5, -v1, v2", "sign"),
    (GFX9, "v_add_u32_e64 v5, |v1|, v2", "sign"),
    (GFX9, "v_add_u32_sdwa v5, -v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:WORD_0 src1_sel:DWORD", "sign"),
    (GFX9, "v_cmp_lt_f32_e64 vcc, v1, v2 clamp", "clamp"),
    (GFX9, "v_readfirstlane_b32 s4, v1 something", "something"),
    (GFX9, "v_mad_u64_u32 v[4:5], vcc, v1, v2, v[3:4] clamp", "clamp"),
    (GFX9, "v_mov_b32_dpp v5, v1 wave_rol:1 row_mask:0xf bank_mask:0xf", "wave_rol"),
    (GFX9, "v_pk_mul_f32 v[4:5], v[1:2], 2.0", "high word"),
    (GFX9, "v_dot2_f32_f16 v5, v1, v2, v3 neg_lo:[1,0,0]", "neg_lo"),
    (GFX9, "v_mfma_f32_4x4x4_16b_f16 v[4:7], v[1:2], v[1:2], v[4:7] cbsz:2 abid:1", "mfma"),
    (GFX11, "v_wmma_i32_16x16x16_iu8 v[10:17], v[1:4], v[1:4], v[10:17] clamp", "wmma"),
    (GFX11, "v_wmma_f32_16x16x16_f16 v[20:27], v[1:8], v[1:8], v[20:27] op_sel:[0,0,1]", "wmma"),
    (GFX11, "v_mov_b32_e32 v5, v1.h", "half of a register"),
    (GFX11, "v_add_nc_u32_e32 v5, v1.l, v2", "half of a register"),
    (GFX12, "v_cvt_f32_fp8_e32 v5, v1.h", "half of a register"),
    (GFX9, "global_load_dword v5, v1, s[0:1] lds", "lds"),
    (GFX9, "global_load_dword v5, v1, s[0:1] tfe", "tfe"),
    (GFX9, "buffer_load_dword v5, v1, s[4:7], 0 offen lds", "lds"),
    (GFX9, "buffer_load_dword v5, v1, s[4:7], 0 addr64", "addr64"),
    (GFX9, "ds_write_b32 v1, v2 gds", "gds"),
    (GFX9, "ds_read_b32 v5, v1 glc", "glc"),
    (GFX9, "s_add_u32 s4, s4, s5 clamp", "clamp"),
    (GFX9, "v_mov_b32_dpp v5, v1 row_unknown:3 row_mask:0xf bank_mask:0xf", "row_unknown"),
    (GFX11, "v_permlane16_b32 v5, v1, s4, s5 op_sel:[0,0,1]", "op_sel"),
    (GFX9, "s_set_gpr_idx_on s4, gpr_idx(SRC0)\nv_add_u32_e32 v5, v1, v2\ns_set_gpr_idx_off", "indexed"),
    (GFX12, "s_barrier_signal 1", "s_barrier_signal"),
    (GFX12, "s_barrier_wait 1", "barrier"),
    (GFX12, "s_sendmsg_rtn_b32 s4, sendmsg(MSG_RTN_GET_TMA)", "s_sendmsg_rtn"),
    (GFX908, "v_mad_f16 v5, v1, v2, v3", "v_mad_f16"),
    (GFX9, "s_getpc_b64 s[4:5]\nv_mov_b32_e32 v5, s4", "s_getpc"),
    (GFX11, "v_add_f16_e64 v5, v1.h, v2.l op_sel:[1,0,0] mul:2", "output factor"),
]


@pytest.mark.parametrize(
    ("target", "body", "text"), REFUSED, ids=[f"{i}-{row[1][:50]}" for i, row in enumerate(REFUSED)]
)
def test_what_is_not_read_is_refused(target, body, text):
    """By name: the instruction and what about it."""
    with pytest.raises(UnknownInstruction, match=text) as caught:
        execute(body, target, (1, 2, 3))
    assert any(line.split()[0] in str(caught.value) for line in body.split("\n"))


FORMS = {
    GFX9: """v_add_f32_e64 v5, v1, v2; v_fmac_f32_e32 v5, v1, v2; v_pk_add_f16 v5, v1, v2; v_cmp_lt_f32_e64 vcc, v1, v2
    v_cndmask_b32_e64 v5, v1, v2, vcc; v_add_co_u32_e64 v5, vcc, v1, v2; v_mad_u64_u32 v[4:5], vcc, v1, v2, v[3:4]
    v_fma_mix_f32 v5, v1, v2, v3; v_cvt_f32_fp8_e32 v5, v1; v_cvt_pk_f32_fp8_e32 v[4:5], v1; v_cvt_pk_fp8_f32 v5, v1, v2
    v_dot4_i32_i8 v5, v1, v2, v3; v_dot2_f32_f16 v5, v1, v2, v3; v_mfma_f32_4x4x4_16b_f16 v[4:7], v[1:2], v[1:2], v[4:7]
    global_load_dword v5, v1, s[0:1]; global_atomic_add v1, v2, s[0:1]; flat_load_dword v5, v[1:2]; ds_read_b32 v5, v1
    scratch_load_dword v5, off, s4; buffer_load_dword v5, v1, s[4:7], 0 offen; ds_write2_b32 v1, v2, v3
    s_add_u32 s4, s4, s5
    s_load_dword s4, s[0:1], 0x0; v_readlane_b32 s4, v1, 3; v_writelane_b32 v5, s4, 3; v_swap_b32 v1, v2; s_mov_b64 vcc, exec
    ds_bpermute_b32 v5, v1, v2; ds_swizzle_b32 v5, v1 offset:swizzle(SWAP,4); s_cmp_eq_u32 s4, s5
    v_div_scale_f32 v5, vcc, v1, v2, v3
    v_readfirstlane_b32 s4, v1; s_movrels_b32 s4, s5; v_bitop3_b32 v5, v1, v2, v3 bitop3:0x80""",
    GFX11: """v_permlane16_b32 v5, v1, s4, s5; v_movrels_b32_e32 v5, v1; v_permlane64_b32 v5, v1
    v_cndmask_b16 v5.l, v1.l, v2.l, s4
    v_wmma_f32_16x16x16_f16 v[20:27], v[1:8], v[1:8], v[20:27]; v_s_rcp_f32 s4, s5""",
}
EACH = [(target, form.strip()) for target, text in FORMS.items() for form in text.replace("\n", ";").split(";")]


@pytest.mark.parametrize(("target", "form"), EACH, ids=[form for _, form in EACH])
def test_every_form_refuses_what_it_does_not_know(target, form):
    """A modifier of tomorrow, bare and with a value."""
    for modifier in ("unheard_of", "unheard_of:1"):
        with pytest.raises(UnknownInstruction, match="unheard_of"):
            execute(f"{form} {modifier}", target, (1, 2, 3))


def test_cache_policy_is_harmless():
    for target, text in ((GFX908, "glc slc"), (GFX9, "sc0 sc1 nt"), (GFX12, "scope:SCOPE_SYS th:TH_LOAD_NT")):
        execute(f"v_lshlrev_b32_e32 v5, 2, v0\nglobal_load_dword v5, v5, s[0:1] {text}", target, (1,))


# v30 and v31 are a pair of which only v30 was written.
HALF_WRITTEN = "v_mov_b32_e32 v30, 2.0\nv_mov_b32_e32 v4, 3.0\nv_mov_b32_e32 v5, 4.0\n"


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("v_pk_mul_f32 v[4:5], v[30:31], v[4:5] op_sel_hi:[0,1]", False),
        ("v_pk_fma_f32 v[4:5], v[30:31], v[4:5], v[4:5] op_sel_hi:[0,1,1]", False),
        ("v_pk_add_f32 v[4:5], v[4:5], v[30:31] op_sel_hi:[1,0]", False),
        ("v_pk_mul_f32 v[4:5], v[30:31], v[4:5]", True),
        ("v_pk_mul_f32 v[4:5], v[30:31], v[4:5] op_sel_hi:[1,0]", True),
        ("v_pk_mul_f32 v[4:5], v[30:31], v[4:5] op_sel:[1,0] op_sel_hi:[0,1]", True),
        ("v_pk_fma_f32 v[4:5], v[4:5], v[4:5], v[30:31] op_sel_hi:[0,0,1]", True),
    ],
)
def test_of_a_pair_only_the_selected_registers_are_read(text, reads):
    if reads:
        with pytest.raises(Uninitialised, match="v31"):
            execute(HALF_WRITTEN + text)
        return
    built = execute(HALF_WRITTEN + text)
    values = built.registers[4:6, 0].view(np.float32).tolist()
    assert values == {"mul": [6, 8], "fma": [9, 12], "add": [5, 6]}[text.split("_")[2]]


LANES = np.arange(64, dtype=np.uint32)
SHIFTED = "row_shr:1 row_mask:0xf bank_mask:0xf"


@pytest.mark.parametrize(
    "body",
    [
        f"v_cmp_eq_u32_dpp vcc, v1, v2 {SHIFTED}",
        "v_cmp_eq_u32_dpp vcc, v1, v2 quad_perm:[0,1,2,3] row_mask:0x1 bank_mask:0xf",
        f"v_add_co_u32_dpp v5, vcc, v1, v2 {SHIFTED}",
        "v_sub_co_u32_dpp v5, vcc, v1, v2 quad_perm:[0,1,2,3] row_mask:0xf bank_mask:0x3",
    ],
)
def test_masks_that_dpp_leaves_partly_unwritten_are_refused(body):
    with pytest.raises(EmulationError, match="source lane is off or absent"):
        execute(body, GFX9, (LANES, LANES))


def test_dpp_of_compares_and_carries():
    body = "v_cmp_eq_u32_dpp vcc, v1, v2 {}\nv_cndmask_b32_e64 v5, 0, 1, vcc"
    built = execute(body.format("quad_perm:[1,1,1,1] row_mask:0xf bank_mask:0xf"), GFX9, (LANES, LANES))
    assert built.registers[5].tolist() == (LANES % 4 == 1).astype(int).tolist()
    built = execute(body.format("row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1"), GFX9, (LANES, LANES * 0))
    assert built.registers[5].tolist() == ((LANES % 16 == 0) | (LANES == 1)).astype(int).tolist()
    # Lanes that are off need no source.
    execute(
        "s_mov_b64 exec, 6\nv_cmp_eq_u32_dpp vcc, v1, v2 row_shl:15 row_mask:0xf bank_mask:0xf bound_ctrl:0",
        GFX9,
        (LANES, LANES),
    )
    built = execute(
        "v_add_co_u32_dpp v5, vcc, v1, v2 quad_perm:[3,2,1,0] row_mask:0xf bank_mask:0xf\n"
        "v_cndmask_b32_e64 v6, 0, 1, vcc",
        GFX9,
        (LANES, np.full(64, neg(1), np.uint32)),
    )
    assert built.registers[5].tolist() == ((LANES ^ 3) - np.uint32(1)).tolist()
    assert built.registers[6].tolist() == ((LANES ^ 3) != 0).astype(int).tolist()


def test_dpp8_takes_zero_from_lanes_that_are_off():
    body = "v_mov_b32_e32 v5, 0x63\ns_mov_b32 exec_lo, 0xfffffffc\nv_mov_b32_dpp v5, v1 dpp8:[0,0,0,1,2,3,4,5]"
    lanes = LANES[:32]
    for fi, low in (("", 0), (" fi:1", 100)):
        built = execute(body + fi, GFX11, (lanes + 100,))
        assert built.registers[5][:6].tolist() == [99, 99, low, low and 101, 102, 103], fi


def test_permlane16_and_lanes_that_are_off():
    """Lanes 0–3 of each row are off; everyone asks lane 1 of its row, or of the other row."""
    lanes = LANES[:32]
    head = "v_mov_b32_e32 v5, 0x63\ns_mov_b32 s4, 0x11111111\ns_mov_b32 s5, 0x11111111\ns_mov_b32 exec_lo, 0xfff0fff0\n"
    on = lanes % 16 >= 4
    for modifiers, got in (("", 99), (" op_sel:[0,1]", 0), (" op_sel:[1,0]", None), (" op_sel:[1,1]", None)):
        for name, across in (("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)):
            built = execute(f"{head}{name} v5, v1, s4, s5{modifiers}", GFX11, (lanes + 100,))
            taken = 101 + (lanes // 16 * 16 ^ across) if got is None else got
            assert built.registers[5].tolist() == np.where(on, taken, 99).tolist(), (name, modifiers)


@pytest.mark.parametrize("half", [16, 32])
def test_permlane_swap_and_lanes_that_are_off(half):
    """Odd rows of v5 trade places with even rows of v6; four lanes of the first two rows are off."""
    index, odd = LANES ^ half, LANES // half % 2 == 1
    start = "v_mov_b32_e32 v5, v1\nv_mov_b32_e32 v6, v2\ns_mov_b32 exec_lo, 0xfff0fff0\n"
    on = (LANES >= 32) | (LANES % 16 >= 4)
    for modifiers, kept in (("", True), (" bound_ctrl:1", False), (" bound_ctrl:1 fi:1", True)):
        built = execute(f"{start}v_permlane{half}_swap_b32_e64 v5, v6{modifiers}", "gfx950", (LANES + 100, LANES + 200))
        seen = kept | on[index]
        first = np.where(odd & on, np.where(seen, 200 + index, 0), 100 + LANES)
        second = np.where(~odd & on, np.where(seen, 100 + index, 0), 200 + LANES)
        assert built.registers[5].tolist() == first.tolist(), modifiers
        assert built.registers[6].tolist() == second.tolist(), modifiers


def test_swizzle_that_rotates_and_fft():
    cases = {
        "swizzle(ROTATE,0,3)": LANES // 32 * 32 + (LANES + 3) % 32,
        "swizzle(ROTATE,1,3)": LANES // 32 * 32 + (LANES - 3) % 32,
        "0xc0e7": LANES // 32 * 32 + (LANES % 32 & 7 | (LANES + 7) % 32 & ~np.uint32(7)),
        "swizzle(FFT,31)": LANES,
        "swizzle(FFT,0)": LANES // 32 * 32 + [int(f"{lane % 32:05b}"[::-1], 2) for lane in range(64)],
        "0xe010": LANES // 16 * 16 + [int(f"{lane % 16:04b}"[::-1], 2) for lane in range(64)],
    }
    for offset, expected in cases.items():
        built = execute(f"ds_swizzle_b32 v5, v1 offset:{offset}", GFX9, (LANES,))
        assert built.registers[5].tolist() == np.asarray(expected).tolist(), offset


def test_registers_by_an_index():
    fill = "\n".join(f"v_mov_b32_e32 v{10 + k}, {k + 30}" for k in range(4))
    nine = "s_mov_b32 s4, 2\ns_set_gpr_idx_on s4, gpr_idx({})\nv_mov_b32_e32 {}\ns_set_gpr_idx_off\n"
    built = execute(f"{fill}\n{nine.format('SRC0', 'v5, v10')}", GFX9)
    assert built.registers[5][0] == 32
    built = execute(f"{fill}\n{nine.format('DST', 'v10, 7')}v_mov_b32_e32 v5, v10", GFX9)
    assert built.registers[10:14, 0].tolist() == [30, 31, 7, 33]
    built = execute(f"{fill}\n{nine.format('SRC0,DST', 'v9, v10')}", GFX9)
    assert built.registers[11][0] == 32
    moves = "s_mov_b32 m0, 1\n"
    built = execute(f"{fill}\n{moves}v_movrels_b32_e32 v5, v10\nv_movreld_b32_e32 v12, v5", GFX11)
    assert built.registers[[5, 12, 13], 0].tolist() == [31, 32, 31]
    built = execute(f"{fill}\n{moves}v_movrelsd_b32_e32 v4, v11", GFX11)
    assert built.registers[5][0] == 32
    built = execute(f"{fill}\ns_mov_b32 m0, 0x20003\nv_movrelsd_2_b32_e32 v3, v10", GFX11)
    assert built.registers[5][0] == 33
    with pytest.raises(EmulationError, match="by an index"):
        execute("s_mov_b32 m0, 1000\nv_movrels_b32_e32 v5, v10", GFX11)
    # What an index wrote counts as written.
    execute(f"{moves}v_movreld_b32_e32 v20, v0\nv_add_nc_u32_e32 v5, v21, v21", GFX11)


@pytest.mark.parametrize(
    ("text", "reads"),
    [
        ("v_add_u32_e32 v5, v31, v31", False),
        ("v_readfirstlane_b32 s6, v31", True),
        ("v_mfma_f32_32x32x8f16 v[0:15], v[30:31], v[30:31], 0", True),
    ],
)
def test_where_no_lane_is_on_only_some_instructions_read(text, reads):
    text = f"s_mov_b64 exec, 0\n{text}"
    if not reads:
        execute(HALF_WRITTEN + text)
        return
    with pytest.raises(Uninitialised, match="never written"):
        execute(HALF_WRITTEN + text)
