"""The emulator: single instructions against values computed by hand, and what it refuses."""

import itertools
import math
import struct
from fractions import Fraction

import numpy as np
import pytest
import torch
from user_kernels import HEAD

import wmma_ops
from wmma_ops.emulator import (
    Race,
    Uninitialised,
    UnknownInstruction,
    assembly,
    launch,
    narrow,
    numeric,
    program,
)

INF, NAN = math.inf, math.nan


def bits(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def half(x: float) -> int:
    return int(np.float16(x).view(np.uint16))


TEMPLATE = """
	.amdgcn_target "amdgcn-amd-amdhsa--{target}"
	.text
k:
{body}
	s_endpgm
	.amdhsa_kernel k
		.amdhsa_group_segment_fixed_size {lds}
		.amdhsa_user_sgpr_count 2
		.amdhsa_user_sgpr_kernarg_segment_ptr 1
		.amdhsa_system_vgpr_workitem_id 0
		.amdhsa_next_free_vgpr 64
	.end_amdhsa_kernel
	.amdgpu_metadata
---
amdhsa.kernels:
  - .name:           k
    .vgpr_count:     64
    .wavefront_size: {wave}
	.end_amdgpu_metadata
"""


def execute(body: str, target: str = "gfx942", inputs=(), *, lds: int = 0, waves: int = 1, **options):
    """Runs instructions on one wave: `inputs` fill v1, v2, … in every lane (a number or one a lane); gives the registers."""
    wave = 64 if target.startswith("gfx9") else 32
    # What the inputs are is set by literal moves, so that they count as written.
    moves = []
    memory = np.zeros((max(len(inputs), 1), wave), dtype=np.uint32)
    for index, value in enumerate(inputs):
        memory[index] = value
        moves.append(
            f"v_lshlrev_b32 v{index + 1}, 2, v0\nglobal_load_dword v{index + 1}, v{index + 1}, s[0:1] offset:{256 * index}"
        )
    lines = [line if line.startswith(".L") else f"\t{line}" for line in [*moves, *body.strip().split("\n")]]
    text = TEMPLATE.format(target=target, body="\n".join(lines), lds=lds, wave=wave)
    parsed = assembly.parse(text)
    built = program.build(parsed.kernels["k"], target)
    arguments = np.zeros((max(len(inputs), 1), 64), dtype=np.uint32)
    arguments[:, :wave] = memory
    launch(built, (1, 1, 1), (wave * waves, 1, 1), arguments.tobytes(), [], **options)
    return built


def result(body: str, inputs, target: str = "gfx942", register: int = 5, lane: int = 3) -> int:
    return int(execute(body, target, inputs).registers[register][lane])


ONE = [
    # Plain float32, denormals kept.
    ("v_add_f32_e32 v5, v1, v2", (bits(1.5), bits(2.25)), bits(3.75)),
    ("v_mul_f32_e32 v5, v1, v2", (bits(2.0**-100), bits(2.0**-40)), bits(2.0**-140)),
    ("v_mul_f32_e32 v5, v1, v2", (bits(2.0**-100), bits(2.0**-60)), 0),
    ("v_sub_f32_e32 v5, v1, v2", (bits(INF), bits(1.0)), bits(INF)),
    ("v_max_f32_e32 v5, v1, v2", (bits(NAN), bits(1.0)), bits(1.0)),
    ("v_min_f32_e32 v5, v1, v2", (bits(3.0), bits(NAN)), bits(3.0)),
    ("v_add_f32_e64 v5, -v1, |v2|", (bits(1.0), bits(-4.0)), bits(3.0)),
    ("v_mul_f32_e64 v5, v1, v2 clamp", (bits(3.0), bits(2.0)), bits(1.0)),
    # One rounding: 1 + 2⁻²³ squared is 1 + 2⁻²² + 2⁻⁴⁶, and the last part survives the subtraction.
    ("v_fma_f32 v5, v1, v1, v2", (bits(1 + 2.0**-23), bits(-(1 + 2.0**-22))), bits(2.0**-46)),
    # Halfway between two float32 but for a bit far below: rounding twice would go to even.
    (
        "v_fma_f32 v5, v1, v2, v3",
        (bits(1 + 2.0**-12), bits(1 + 2.0**-12), bits(2.0**-60)),
        bits(1 + 2.0**-11 + 2.0**-23),
    ),
    ("v_fma_f32 v5, v1, v2, v3", (bits(1 + 2.0**-12), bits(1 + 2.0**-12), bits(-(2.0**-60))), bits(1 + 2.0**-11)),
    ("v_rcp_f32_e32 v5, v1", (bits(0.0),), bits(INF)),
    ("v_rcp_f32_e32 v5, v1", (bits(4.0),), bits(0.25)),
    ("v_exp_f32_e32 v5, v1", (bits(3.0),), bits(8.0)),
    ("v_log_f32_e32 v5, v1", (bits(8.0),), bits(3.0)),
    ("v_rndne_f32_e32 v5, v1", (bits(2.5),), bits(2.0)),
    ("v_ldexp_f32 v5, v1, v2", (bits(1.5), 4), bits(24.0)),
    ("v_med3_f32 v5, v1, v2, v3", (bits(1.0), bits(5.0), bits(3.0)), bits(3.0)),
    # Conversions: towards zero, saturating, NaN to 0; to nearest even.
    ("v_cvt_i32_f32_e32 v5, v1", (bits(-2.9),), (-2) & 0xFFFFFFFF),
    ("v_cvt_i32_f32_e32 v5, v1", (bits(1e20),), 0x7FFFFFFF),
    ("v_cvt_u32_f32_e32 v5, v1", (bits(-1.0),), 0),
    ("v_cvt_u32_f32_e32 v5, v1", (bits(NAN),), 0),
    ("v_cvt_f16_f32_e32 v5, v1", (bits(1 + 2.0**-11),), half(1.0)),
    ("v_cvt_f16_f32_e32 v5, v1", (bits(1 + 3 * 2.0**-11),), half(1 + 2.0**-9)),
    ("v_cvt_f16_f32_e32 v5, v1", (bits(65520.0),), half(INF)),
    ("v_cvt_f16_f32_e32 v5, v1", (bits(2.0**-24),), 1),
    ("v_cvt_f32_f16_e32 v5, v1", (1,), bits(2.0**-24)),
    (
        "v_cvt_pkrtz_f16_f32 v5, v1, v2",
        (bits(1 + 2.0**-10 + 2.0**-12), bits(70000.0)),
        half(1 + 2.0**-10) | 0x7BFF << 16,
    ),
    ("v_cvt_f32_ubyte2_e32 v5, v1", (0x00AB0000,), bits(0xAB)),
    ("v_cvt_pk_u16_u32 v5, v1, v2", (70000, 3), 0xFFFF | 3 << 16),
    ("v_cvt_pk_i16_i32 v5, v1, v2", ((-70000) & 0xFFFFFFFF, 5), 0x8000 | 5 << 16),
    # Integers wrap.
    ("v_add_u32_e32 v5, v1, v2", (0xFFFFFFFF, 2), 1),
    ("v_sub_u32_e32 v5, v1, v2", (1, 2), 0xFFFFFFFF),
    ("v_mul_lo_u32 v5, v1, v2", (0x10001, 0x10001), 0x20001),
    ("v_mul_hi_u32 v5, v1, v2", (0x80000000, 6), 3),
    ("v_mul_hi_i32 v5, v1, v2", (0x80000000, 6), (-3) & 0xFFFFFFFF),
    ("v_mul_i32_i24_e32 v5, v1, v2", (0xFFFFFF, 3), (-3) & 0xFFFFFFFF),
    ("v_lshlrev_b32_e32 v5, v1, v2", (36, 1), 16),
    ("v_ashrrev_i32_e32 v5, 4, v1", (0x80000000,), 0xF8000000),
    ("v_bfe_u32 v5, v1, 8, 4", (0xABCD,), 0xB),
    ("v_bfe_i32 v5, v1, 8, 4", (0xABCD,), 0xFFFFFFFB),
    ("v_bfi_b32 v5, v1, v2, v3", (0xFF00, 0x1234, 0x5678), 0x1278),
    ("v_perm_b32 v5, v1, v2, v3", (0x77665544, 0x33221100, 0x00040703), 0x00447733),
    ("s_mov_b32 s4, 0x00040703\nv_perm_b32 v5, v1, v2, s4", (0x77665544, 0x33221100), 0x00447733),
    ("s_mov_b32 s4, 0x0d0b0c03\nv_perm_b32 v5, v1, v2, s4", (0xF7665544, 0x33221100), 0xFFFF0033),
    ("v_alignbit_b32 v5, v1, v2, 8", (0x11223344, 0xAABBCCDD), 0x44AABBCC),
    ("v_lshl_add_u32 v5, v1, 4, v2", (3, 5), 53),
    ("v_and_or_b32 v5, v1, v2, v3", (0xF0, 0x3C, 0x01), 0x31),
    ("v_bcnt_u32_b32 v5, v1, v2", (0xFF, 1), 9),
    ("v_ffbh_u32_e32 v5, v1", (1,), 31),
    ("v_ffbh_u32_e32 v5, v1", (0,), 0xFFFFFFFF),
    ("v_ffbl_b32_e32 v5, v1", (8,), 3),
    ("v_bfrev_b32_e32 v5, v1", (1,), 0x80000000),
    ("v_mbcnt_lo_u32_b32 v5, -1, 0", (), 3),
    ("v_med3_i32 v5, v1, v2, v3", ((-5) & 0xFFFFFFFF, 7, 2), 2),
    # Halves, packed and selected.
    ("v_add_f16_e32 v5, v1, v2", (half(1.0), half(2.0**-11)), half(1.0)),
    (
        "v_pk_add_f16 v5, v1, v2",
        (half(1.0) | half(2.0) << 16, half(3.0) | half(4.0) << 16),
        half(4.0) | half(6.0) << 16,
    ),
    (
        "v_pk_fma_f16 v5, v1, v2, v3 op_sel_hi:[0,1,1]",
        (half(2.0) | half(9.0) << 16, half(3.0) | half(4.0) << 16, half(1.0) | half(1.0) << 16),
        half(7.0) | half(9.0) << 16,
    ),
    (
        "v_pk_mul_f16 v5, v1, v2 neg_lo:[1,0] neg_hi:[0,0]",
        (half(2.0) | half(2.0) << 16,) * 2,
        half(-4.0) | half(4.0) << 16,
    ),
    ("v_pack_b32_f16 v5, v1, v2", (half(1.0), half(2.0)), half(1.0) | half(2.0) << 16),
    ("v_fma_mix_f32 v5, v1, v2, v3 op_sel_hi:[1,0,0]", (half(2.0), bits(3.0), bits(4.0)), bits(10.0)),
    ("v_pk_add_u16 v5, v1, v2", (0xFFFF0001, 0x00020003), 0x00010004),
    # gfx9 clears the high half of a 16-bit result.
    ("v_mov_b32_e32 v5, -1\nv_add_u16_e32 v5, v1, v2", (1, 2), 3),
    # SDWA.
    (
        "v_add_u32_sdwa v5, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
        (0xAB00, 0x30000),
        0xAE,
    ),
    ("v_cvt_f32_i32_sdwa v5, sext(v1) dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_0", (0xFF,), bits(-1.0)),
    # Comparisons and selection.
    ("v_cmp_lt_f32_e32 vcc, v1, v2\nv_cndmask_b32_e32 v5, 7, v3, vcc", (bits(1.0), bits(NAN), 9), 7),
    ("v_cmp_ge_i32_e32 vcc, v1, v2\nv_cndmask_b32_e32 v5, v1, v2, vcc", (1, 0xFFFFFFFF), 0xFFFFFFFF),
    ("v_add_co_u32_e32 v5, vcc, v1, v2\nv_addc_co_u32_e32 v5, vcc, 0, v3, vcc", (0xFFFFFFFF, 1, 10), 11),
    ("v_mad_u64_u32 v[4:5], s[4:5], v1, v2, 0", (0x80000000, 6), 3),
    ("v_lshl_add_u64 v[4:5], v[1:2], 4, v[3:4]\nv_mov_b32 v5, v4", (0x10000000, 0, 7), 7),
    # Scalars reach vectors.
    ("s_mov_b32 s4, 0x40490fdb\ns_add_u32 s4, s4, 0\nv_mov_b32_e32 v5, s4", (), 0x40490FDB),
    ("s_mov_b32 s4, -1\ns_add_u32 s5, s4, 2\ns_addc_u32 s6, 0, 0\nv_mov_b32_e32 v5, s6", (), 1),
    ("s_bfe_i32 s4, 0xabcd, 0x40008\nv_mov_b32_e32 v5, s4", (), 0xFFFFFFFB),
    ("s_mul_hi_u32 s4, 0x80000000, 6\nv_mov_b32_e32 v5, s4", (), 3),
    ("s_cmp_lt_i32 -1, 1\ns_cselect_b32 s4, 5, 6\nv_mov_b32_e32 v5, s4", (), 5),
    ("s_ff1_i32_b64 s4, 0x100\nv_mov_b32_e32 v5, s4", (), 8),
]


ONE += [
    ("s_mov_b32 s4, -100\ns_cmpk_eq_i32 s4, 0xff9c\ns_cselect_b32 s5, 1, 2\nv_mov_b32_e32 v5, s5", (), 1),
    ("v_mul_f32_e64 v5, v1, v2 clamp", (bits(NAN), bits(2.0)), 0),
    ("v_med3_f32 v5, v1, v2, v3", (bits(NAN), bits(5.0), bits(3.0)), bits(3.0)),
    ("v_pk_mov_b32 v[4:5], v[1:2], v[3:4] op_sel:[1,0]", (10, 20, 30, 40), 30),
    (
        "s_mov_b64 exec, 8\nv_mov_b32_e32 v5, 9\nv_mov_b32_dpp v5, v1 row_shr:1 row_mask:0xf bank_mask:0xf bound_ctrl:1",
        (7,),
        0,
    ),
]


@pytest.mark.parametrize(("body", "inputs", "expected"), ONE, ids=[body.split("\n")[0] for body, _, _ in ONE])
def test_instruction(body, inputs, expected):
    assert result(body, inputs) == expected


LATER = [
    ("gfx1201", "v_add_nc_u32_e32 v5, v1, v2", (0xFFFFFFFF, 2), 1),
    ("gfx1201", "v_max_num_f32_e32 v5, v1, v2", (bits(NAN), bits(1.0)), bits(1.0)),
    ("gfx1201", "v_dual_mul_f32 v5, v1, v2 :: v_dual_mov_b32 v6, v5", (bits(2.0), bits(3.0)), bits(6.0)),
    ("gfx1201", "v_add_f16_e32 v5.h, v1.l, v2.l", (half(1.0), half(2.0)), half(3.0) << 16),
    ("gfx1100", "v_fmac_f32_e32 v5, v1, v2", (bits(2.0), bits(3.0)), bits(7.0)),
    ("gfx1100", "v_add3_u32 v5, v1, v2, v3", (1, 2, 3), 6),
    ("gfx1100", "v_xor3_b32 v5, v1, v2, v3", (1, 2, 4), 7),
    ("gfx1201", "s_add_f16 s4, 0x4000, 1.0\nv_mov_b32_e32 v5, s4", (), half(3.0)),
    ("gfx1201", "s_cvt_f32_f16 s4, 0.5\nv_mov_b32_e32 v5, s4", (), bits(0.5)),
    ("gfx1201", "s_cmp_lt_f16 0xffff3800, 1.0\ns_cselect_b32 s4, 5, 6\nv_mov_b32_e32 v5, s4", (), 5),
    ("gfx1151", "s_cmp_ge_f16 0x3800, 1.0\ns_cselect_b32 s4, 5, 6\nv_mov_b32_e32 v5, s4", (), 6),
    ("gfx1151", "s_cmp_u_f16 0x7e00, 1.0\ns_cselect_b32 s4, 5, 6\nv_mov_b32_e32 v5, s4", (), 5),
    ("gfx1151", "s_cmp_o_f16 0x7e00, 1.0\ns_cselect_b32 s4, 5, 6\nv_mov_b32_e32 v5, s4", (), 6),
    ("gfx1201", "s_mul_u64 s[4:5], s[6:7], s[8:9]\nv_mov_b32_e32 v5, s5", (), 0),
]


@pytest.mark.parametrize(
    ("target", "body", "inputs", "expected"), LATER, ids=[body.split("\n")[0] for _, body, _, _ in LATER]
)
def test_instruction_of_rdna(target, body, inputs, expected):
    before = "v_mov_b32_e32 v5, 1.0\n" if "fmac" in body else "v_mov_b32_e32 v5, 0\n"
    assert result(before + body, inputs, target) == expected


def test_dpp_moves_between_lanes():
    lanes = np.arange(64, dtype=np.uint32)
    cases = {
        "quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf": lanes ^ 1,
        "row_ror:1 row_mask:0xf bank_mask:0xf": lanes // 16 * 16 + (lanes - 1) % 16,
        "row_shr:1 row_mask:0xf bank_mask:0xf": np.where(lanes % 16 == 0, 99, lanes - 1),
        "row_shl:2 row_mask:0xf bank_mask:0xf bound_ctrl:0": np.where(lanes % 16 > 13, 0, lanes + 2),
        "row_half_mirror row_mask:0xf bank_mask:0xf": lanes // 8 * 8 + 7 - lanes % 8,
        "row_bcast:15 row_mask:0xa bank_mask:0xf": np.where(lanes // 16 % 2 == 1, lanes // 16 * 16 - 1, 99),
    }
    for modifiers, expected in cases.items():
        built = execute(f"v_mov_b32_e32 v5, 0x63\nv_mov_b32_dpp v5, v1 {modifiers}", "gfx942", [lanes])
        assert built.registers[5].tolist() == expected.tolist(), modifiers


def test_lanes_off_keep_their_values():
    built = execute(
        "v_mov_b32_e32 v5, 1\ns_mov_b64 s[4:5], exec\ns_mov_b64 exec, 0xf0\nv_mov_b32_e32 v5, 2\ns_mov_b64 exec, s[4:5]"
    )
    assert built.registers[5].tolist() == [2 if 4 <= lane < 8 else 1 for lane in range(64)]


def test_permutes_and_broadcasts():
    lanes = np.arange(64, dtype=np.uint32)
    built = execute(
        "ds_bpermute_b32 v5, v1, v2\nv_readlane_b32 s4, v2, 9\nv_mov_b32_e32 v6, s4",
        "gfx942",
        [(63 - lanes) * 4, lanes * 3],
    )
    assert built.registers[5].tolist() == [(63 - lane) * 3 for lane in range(64)]
    assert set(built.registers[6].tolist()) == {27}
    built = execute("ds_swizzle_b32 v5, v1 offset:swizzle(SWAP,4)", "gfx942", [lanes])
    assert built.registers[5].tolist() == (lanes ^ 4).tolist()
    built = execute("v_permlanex16_b32 v5, v1, s4, s5", "gfx1100", [lanes[:32]])
    assert built.registers[5].tolist() == [16] * 16 + [0] * 16


def test_fp8_conversions():
    for kind in ("fp8", "bf8", "fp8_fnuz", "bf8_fnuz"):
        values = narrow.decode(np.arange(256), kind)
        finite = np.isfinite(values)
        back = narrow.decode(narrow.encode(values[finite], kind), kind)
        assert np.array_equal(back, values[finite])
    dtypes = {
        "fp8": torch.float8_e4m3fn,
        "bf8": torch.float8_e5m2,
        "fp8_fnuz": torch.float8_e4m3fnuz,
        "bf8_fnuz": torch.float8_e5m2fnuz,
    }
    x = torch.randn(4000) * 3
    for kind, dtype in dtypes.items():
        assert np.array_equal(narrow.decode(narrow.encode(x.numpy(), kind), kind), x.to(dtype).float().numpy())
        codes = torch.arange(256, dtype=torch.uint8)
        assert np.array_equal(narrow.decode(codes.numpy(), kind), codes.view(dtype).float().numpy(), equal_nan=True)


def test_any_function_of_three_bits():
    a, b, c = np.array([[0, 0, 0, 0, 1, 1, 1, 1], [0, 0, 1, 1, 0, 0, 1, 1], [0, 1, 0, 1, 0, 1, 0, 1]], np.uint32)
    for table in range(256):
        found = numeric.bitop3(0xFFFF0000 + a, b, c, table) & np.uint32(1)
        assert found.tolist() == [table >> index & 1 for index in range(8)]


def test_any_bytes_of_two_words():
    a, b = np.array([0xA7A6A5A4], np.uint32), np.array([0xB3B2B1B0], np.uint32)
    of_both = [0xB0, 0xB1, 0xB2, 0xB3, 0xA4, 0xA5, 0xA6, 0xA7, 0xFF, 0xFF, 0xFF, 0xFF, 0, 0xFF]
    for chosen in itertools.product(range(14), repeat=4):
        if max(chosen) < 8 or chosen[0] == chosen[1]:  # few enough
            selector = int.from_bytes(bytes(chosen), "little")
            with np.errstate(over="ignore"):
                found = int(numeric.perm(a, b, np.uint32(selector))[0]).to_bytes(4, "little")
            assert list(found) == [of_both[one] for one in chosen]


def test_bf16_rounding_is_torchs():
    x = torch.cat([torch.randn(5000), torch.tensor([INF, -INF, 0.0, 3.4e38, 1e-40])])
    assert np.array_equal(numeric.bf16_round(x.numpy()), x.bfloat16().view(torch.int16).numpy().astype(np.uint16))
    assert numeric.bf16_round(np.float32(NAN)) & 0x7FFF > 0x7F80


def test_fma_rounds_once():
    """Against exact rational arithmetic."""
    rng = np.random.default_rng(0)
    a, b, c = (rng.standard_normal(3000).astype(np.float32) for _ in range(3))
    c = np.where(rng.random(3000) < 0.5, -(a.astype(np.float64) * b).astype(np.float32), c).astype(np.float32)
    got = numeric.fma32(a, b, c)
    for x, y, z, r in zip(a, b, c, got, strict=True):
        exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
        low, high = (Fraction(float(np.nextafter(r, np.float32(side), dtype=np.float32))) for side in (-INF, INF))
        error = abs(Fraction(float(r)) - exact)
        assert error <= abs(low - exact)
        assert error <= abs(high - exact)


def test_fma_rounds_once_beside_the_middle_of_two_numbers():
    """Where float64 has rounded to the middle: of normal and of subnormal numbers."""
    for fma, kind, bits, least in ((numeric.fma32, np.float32, 23, -126), (numeric.fma16, np.float16, 10, -14)):
        one, step = kind(1), kind(2.0**-bits)
        for base, odd, up, down in itertools.product((0, least - 1), (0, 1), (one + step, one), (one - step, one)):
            if kind is np.float16 and base:  # all sums of such are exact
                continue
            half = base - bits - 1 if base == 0 else -150
            b = np.ldexp(down, half - half // 2)
            a, c = np.ldexp(up, half // 2), np.ldexp(one, base) + kind(odd * 2.0 ** (half + 1))
            for x, y, z in ((a, b, c), (-a, b, -c), (a, b, -c)):
                exact = Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z))
                near = [np.nextafter(z, kind(side), dtype=kind) for side in (-INF, INF)] + [z]
                close = sorted(near, key=lambda n: (abs(Fraction(float(n)) - exact), int(n.view(f"u{n.itemsize}")) & 1))
                assert fma(x, y, z) == close[0], (x, y, z)


@np.errstate(all="ignore")
def test_fma64_rounds_once_where_the_product_leaves_the_range():
    """Against exact fractions: sums that cancel, near the overflow and where the product's error is subnormal."""
    rng = np.random.default_rng(0)
    for low, high in ((-1074, 1023), (-600, -400), (490, 520)):
        a, b = (np.ldexp(rng.uniform(-1, 1, 300), rng.integers(low, high, 300)) for _ in range(2))
        near = -a * b * (1 + rng.integers(-4, 5, 300) * 2.0**-52)
        c = np.where(np.isfinite(near) & (rng.random(300) < 0.6), near, rng.uniform(-1, 1, 300))
        for x, y, z, got in zip(a, b, c, numeric.fma64(a, b, c), strict=True):
            exact = Fraction(x) * Fraction(y) + Fraction(z)
            if abs(exact) < 2**1024 * (1 - Fraction(1, 2**54)):
                assert got == float(exact), (x, y, z)
            else:
                assert np.isinf(got)
                assert (got > 0) == (exact > 0)
    assert np.isnan(numeric.fma64(np.inf, 0.0, 1.0))
    assert numeric.fma64(np.inf, 2.0, 1.0) == np.inf
    assert numeric.fma64(2.0, 3.0, -np.inf) == -np.inf
    assert not np.signbit(numeric.fma64(-0.0, 2.0, 0.0))
    assert np.signbit(numeric.fma64(-0.0, 2.0, -0.0))


def test_modes_that_are_not_emulated_are_refused():
    with pytest.raises(UnknownInstruction, match="s_setreg_imm32_b32"):
        execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1")
    with pytest.raises(UnknownInstruction, match="s_denorm_mode"):
        execute("s_denorm_mode 3", "gfx1100")
    with pytest.raises(UnknownInstruction, match="s_round_mode"):
        execute("s_round_mode 1", "gfx1100")


REFUSED = [
    "v_mul_f32_e64 v5, v1, v2 mul:2",
    "v_dot2c_f32_f16_dpp v5, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v5, v1 wave_rol:1 row_mask:0xf bank_mask:0xf",
]


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_emulated_is_refused(body):
    with pytest.raises(UnknownInstruction):
        execute(body, "gfx942", (1, 2, 3))


def test_instructions_alike_share_a_function():
    """Those that differ in registers and numbers alone: each has its own as arguments."""
    adds = ("v5, v1, v2", "v6, v5, v5", "v7, 9, v6", "v8, 11, v7")
    body = "".join(f"v_add_u32_e32 {operands}\n" for operands in adds) + "v_sub_u32_e32 v9, v8, v1"
    built = execute(body, inputs=(3, 4))
    assert [int(built.registers[i][3]) for i in (5, 6, 7, 8, 9)] == [7, 14, 23, 34, 31]
    (steps,) = (block.steps for block in built.blocks)
    by_mnemonic = {}
    for ins, function in zip(steps.instructions, steps.functions, strict=True):
        by_mnemonic.setdefault(ins.mnemonic, set()).add(function)
    assert len(by_mnemonic["v_add_u32_e32"]) == 1
    assert by_mnemonic["v_add_u32_e32"] != by_mnemonic["v_sub_u32_e32"]


def test_a_block_is_decoded_when_it_is_first_run():
    """What is never reached stops nothing; what is reached stops the kernel, and names all that is not known of it."""
    unreached = "s_cbranch_scc1 .Lend\ns_unheard_of s4\n.Lend:\nv_mov_b32_e32 v5, 7"
    built = execute(f"s_cmp_eq_u32 s4, s4\n{unreached}")
    assert set(built.registers[5]) == {7}
    assert ["steps" in vars(block) for block in built.blocks] == [True, False, True]
    with pytest.raises(UnknownInstruction, match=r"on gfx942: .*v_never_heard_of.*; .*s_unheard_of"):
        execute(f"v_never_heard_of v5, v1\n{unreached}")
    with pytest.raises(UnknownInstruction, match="s_unheard_of"):
        execute(f"s_cmp_lg_u32 s4, s4\n{unreached}")


def test_private_memory_is_each_waves_own():
    body = """
  int a[300];
  for (int i = 0; i < 300; ++i) a[i] = x[i & 127] + (int)threadIdx.x * 1000;
  wmma::sync_workgroup();
  x[threadIdx.x] = a[n + threadIdx.x % 8];
"""
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void own(int* x, int n) {' + body + "}", "own")
    for target in ("gfx942", "gfx1201"):
        x = torch.zeros(128, dtype=torch.int32)
        with wmma_ops.emulate(target):
            kernel[1, 128](x, 0)
        assert x.tolist() == [1000 * i for i in range(128)], target


def test_halves_of_a_word_may_belong_to_two_waves():
    body = "__shared__ short s[128]; int w = threadIdx.x / 64, l = threadIdx.x % 64; s[2 * l + w] = threadIdx.x;"
    after = " wmma::sync_workgroup(); x[threadIdx.x] = s[threadIdx.x];"
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void halves(int* x) {' + body + after + "}", "halves")
    x = torch.zeros(128, dtype=torch.int32)
    with wmma_ops.emulate("gfx942"):
        kernel[1, 128](x)
    assert x.tolist() == [i // 2 + 64 * (i % 2) for i in range(128)]
    wrong = wmma_ops.Kernel(
        HEAD
        + 'extern "C" __global__ void halves(int* x) {'
        + body
        + after.replace("wmma::sync_workgroup();", "")
        + "}",
        "halves",
    )
    with wmma_ops.emulate("gfx942"), pytest.raises((Race, Uninitialised)):
        wrong[1, 128](x)
