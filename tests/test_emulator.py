"""The emulator: single instructions against values computed by hand, what it watches for, and how it reports."""

import math
import struct

import numpy as np
import pytest
import torch

import wmma_ops
from wmma_ops.emulator import (
    DivergentBarrier,
    EmulationError,
    EndlessLoop,
    OutOfBounds,
    Race,
    Region,
    Trap,
    Uninitialised,
    UnknownInstruction,
    assembly,
    launch,
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
        values = numeric.from_fp8(np.arange(256), kind)
        finite = np.isfinite(values)
        back = numeric.from_fp8(numeric.to_fp8(values[finite], kind), kind)
        assert np.array_equal(back, values[finite])
    dtypes = {
        "fp8": torch.float8_e4m3fn,
        "bf8": torch.float8_e5m2,
        "fp8_fnuz": torch.float8_e4m3fnuz,
        "bf8_fnuz": torch.float8_e5m2fnuz,
    }
    x = torch.randn(4000) * 3
    for kind, dtype in dtypes.items():
        assert np.array_equal(numeric.from_fp8(numeric.to_fp8(x.numpy(), kind), kind), x.to(dtype).float().numpy())
        codes = torch.arange(256, dtype=torch.uint8)
        assert np.array_equal(numeric.from_fp8(codes.numpy(), kind), codes.view(dtype).float().numpy(), equal_nan=True)


def test_bf16_rounding_is_torchs():
    x = torch.cat([torch.randn(5000), torch.tensor([INF, -INF, 0.0, 3.4e38, 1e-40])])
    assert np.array_equal(numeric.bf16_round(x.numpy()), x.bfloat16().view(torch.int16).numpy().astype(np.uint16))
    assert numeric.bf16_round(np.float32(NAN)) & 0x7FFF > 0x7F80


def test_fma_rounds_once():
    """Against exact rational arithmetic."""
    from fractions import Fraction

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


def test_modes_that_are_not_emulated_are_refused():
    with pytest.raises(UnknownInstruction, match="s_setreg_imm32_b32"):
        execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0")
    execute("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 3\ns_nop 0")
    execute("s_denorm_mode 15", "gfx1100")
    with pytest.raises(UnknownInstruction, match="s_denorm_mode"):
        execute("s_denorm_mode 12", "gfx1100")
    kernel = wmma_ops.Kernel(SCALE, "scale", options=("-fgpu-flush-denormals-to-zero",))
    with wmma_ops.emulate("gfx942"), pytest.raises(UnknownInstruction, match="denorm_mode_32 is 0"):
        kernel[1, 64](torch.ones(64), torch.ones(64), 64, 1.0)


REFUSED = [
    "v_mul_f32_e64 v5, v1, v2 mul:2",
    "v_dot2c_f32_f16_dpp v5, v1, v2 quad_perm:[1,0,3,2] row_mask:0xf bank_mask:0xf",
    "v_mov_b32_dpp v5, v1 wave_rol:1 row_mask:0xf bank_mask:0xf",
]


@pytest.mark.parametrize("body", REFUSED)
def test_what_is_not_emulated_is_refused(body):
    with pytest.raises(UnknownInstruction):
        execute(body, "gfx942", (1, 2, 3))


def test_a_block_is_decoded_when_it_is_first_run():
    """What is never reached stops nothing; what is reached stops the kernel, and names all that is not known of it."""
    unreached = "s_cbranch_scc1 .Lend\ns_unheard_of s4\n.Lend:\nv_mov_b32_e32 v5, 7"
    built = execute(f"s_cmp_eq_u32 s4, s4\n{unreached}")
    assert set(built.registers[5]) == {7}
    assert [bool(block.line_of) for block in built.blocks] == [True, False, True]
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


# What it watches for: each of these kernels has one mistake.

HEAD = "#include <wmma/grid.hpp>\n"
BUGS = {
    "race": (
        "__shared__ int s[128]; s[threadIdx.x] = 0; wmma::sync_workgroup(); s[threadIdx.x] = n;"
        " x[threadIdx.x] = s[127 - threadIdx.x];",
        Race,
        "no barrier between",
    ),
    "race, two writers": (
        "__shared__ int s[2]; s[threadIdx.x & 1] = n; wmma::sync_workgroup(); x[threadIdx.x] = s[0];",
        Race,
        "wrote",
    ),
    "race, read then written": (
        "__shared__ int s[128]; s[threadIdx.x] = n; wmma::sync_workgroup(); int y = s[127 - threadIdx.x];"
        " s[threadIdx.x] = y; x[threadIdx.x] = y;",
        Race,
        "no barrier between",
    ),
    "missing second barrier": (
        "__shared__ int s[128]; for (int i = 0; i < 3; ++i) { s[threadIdx.x] = i; wmma::sync_workgroup();"
        " x[threadIdx.x] += s[127 - threadIdx.x]; }",
        Race,
        "no barrier between",
    ),
    "store past the end": (
        "x[threadIdx.x + 1] = n;",
        OutOfBounds,
        r"lane 63: a store of 4 bytes .* nearest is x of 512 bytes",
    ),
    "store before the start": ("x[(int)threadIdx.x - 1] = n;", OutOfBounds, "lane 0: a store"),
    "load past the end": ("x[threadIdx.x] = x[threadIdx.x + 64 * (n > 0)];", OutOfBounds, "a load of 4 bytes"),
    "load far away": ("x[threadIdx.x] = x[(long long)n * 1000000007];", OutOfBounds, "load"),
    "atomic past the end": ("wmma::atomic_add(x + 128, n);", OutOfBounds, "atomic"),
    "shared memory past the end": (
        "__shared__ int s[128]; s[threadIdx.x + n] = 1; wmma::sync_workgroup(); x[0] = s[5];",
        OutOfBounds,
        "shared memory",
    ),
    "shared memory never written": (
        "__shared__ volatile int s[128]; wmma::sync_workgroup(); x[threadIdx.x] = s[threadIdx.x];",
        Uninitialised,
        "never written",
    ),
    "half of shared memory written": (
        "__shared__ int s[128]; if (threadIdx.x < 64) s[threadIdx.x] = n; wmma::sync_workgroup();"
        " x[threadIdx.x] = s[threadIdx.x];",
        Uninitialised,
        "never written",
    ),
    "a register never written": (
        'int y; asm volatile("v_add_u32_e32 %0, v40, v40" : "=v"(y)); x[threadIdx.x] = y;',
        Uninitialised,
        "register v40",
    ),
    "a barrier that half reach": (
        "if (threadIdx.x < 64) wmma::sync_workgroup(); x[threadIdx.x] = n;",
        DivergentBarrier,
        "never reach",
    ),
    "different barriers": (
        "__shared__ int s[128]; if (threadIdx.x < 64) { s[threadIdx.x] = 1; wmma::sync_workgroup(); x[0] = s[1]; }"
        " else { wmma::sync_workgroup(); x[1] = n; }",
        DivergentBarrier,
        "different barriers",
    ),
    "an endless loop": ("while (wmma::atomic_add(x, 0) >= 0) {} x[1] = 2;", EndlessLoop, "budget"),
    "a failed assertion": ("WMMA_ASSERT(n > 100); x[threadIdx.x] = n;", Trap, "assertion"),
    "an instruction unknown here": (
        'asm volatile("v_mqsad_u32_u8 v[0:3], v[4:5], v6, v[8:11]"); x[0] = n;',
        UnknownInstruction,
        "v_mqsad_u32_u8",
    ),
    "a misplaced layout": ("x[(threadIdx.x % 64) * 128 + threadIdx.x / 64] = n;", OutOfBounds, "store"),
    "a wrong leading dimension": ("for (int i = 0; i < 2; ++i) x[i * 128 + threadIdx.x] = n;", OutOfBounds, "store"),
}


@pytest.mark.parametrize("name", BUGS)
def test_planted_bug_is_reported_for_what_it_is(name):
    body, kind, text = BUGS[name]
    source = HEAD + 'extern "C" __global__ void buggy(int* x, int n) {\n' + body + "\n}"
    kernel = wmma_ops.Kernel(source, "buggy")
    x, other = torch.zeros(128, dtype=torch.int32), torch.zeros(128, dtype=torch.int32)
    with wmma_ops.emulate("gfx942", budget=100_000), pytest.raises(kind, match=text) as caught:
        kernel[1, 128](x, 7)
    if kind not in (DivergentBarrier, UnknownInstruction):
        assert "buggy on gfx942: " in str(caught.value)
        assert "wave" in str(caught.value)
    assert other.abs().max() == 0
    assert kind in (UnknownInstruction, Trap) or isinstance(caught.value, EmulationError)


def test_what_is_right_is_not_reported():
    source = (
        HEAD
        + """extern "C" __global__ void right(int* x, int n) {
  __shared__ int s[128];
  for (int i = 0; i < 3; ++i) {
    s[threadIdx.x] = i;
    wmma::sync_workgroup();
    x[threadIdx.x] += s[127 - threadIdx.x];
    wmma::sync_workgroup();
  }
}"""
    )
    kernel = wmma_ops.Kernel(source, "right")
    for target in wmma_ops.arch.EMULATED:
        for order in ("forward", "reverse", "random"):
            x = torch.zeros(128, dtype=torch.int32)
            with wmma_ops.emulate(target, order=order):
                kernel[1, 128](x, 0)
            assert x.tolist() == [3] * 128


# What it counts.


def _traffic(body: str, target: str = "gfx942", threads: int = 64):
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void counted(int* x, int n) {\n' + body + "\n}", "counted")
    x = torch.zeros(8192, dtype=torch.int32)
    with wmma_ops.emulate(target, count_traffic=True) as emulation:
        kernel[1, threads](x, 3)
    return emulation.launches[0]


def test_segments_are_counted():
    """64 lanes that store side by side fill 4 segments of 64 bytes; with a stride of 16 words each has its own."""
    lined = _traffic("x[threadIdx.x] = n;").traffic
    assert (lined.accesses, lined.segments, lined.wanted) in (
        (1, 4, 4),
        (1, 5, 4),
    )  # 5 where the tensor starts inside one
    spread = _traffic("x[threadIdx.x * 16] = n;").traffic
    assert spread.segments >= 64
    assert spread.wanted == 4


def test_bank_conflicts_are_counted():
    """Stride 1 has none; stride 32 puts 32 lanes on one bank; padding by one word mends it."""
    fill = "__shared__ volatile int s[64 * 33]; for (int i = 0; i < 33; ++i) s[threadIdx.x + 64 * i] = i;"
    for pitch, conflicts in ((1, 0), (2, 1), (32, 31), (33, 0)):
        read = f" wmma::sync_workgroup(); x[threadIdx.x] = s[threadIdx.x * {pitch}];"
        found = _traffic(fill + read).traffic
        assert found.shared_reads == 2  # two groups of 32 lanes
        assert found.shared_read_conflicts == 2 * conflicts, pitch
        assert found.shared_write_conflicts == 0


def test_one_word_for_all_is_no_conflict():
    fill = "__shared__ volatile int s[4]; if (threadIdx.x == 0) s[0] = n; wmma::sync_workgroup();"
    assert _traffic(fill + " x[threadIdx.x] = s[0];").traffic.shared_read_conflicts == 0


def test_instructions_are_counted_by_class():
    found = _traffic("x[threadIdx.x] = n;", threads=128)
    assert found.waves == 2
    assert found.by_class["memory"] == 2
    assert found.instructions == sum(found.by_class.values())
    assert found.traffic.accesses == 2


# The front: Kernel and emulate.

SCALE = HEAD + (
    'extern "C" __global__ void scale(float* x, const float* y, int n, float factor) {\n'
    "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n) x[i] = y[i] * factor;\n}"
)


@pytest.mark.parametrize("target", wmma_ops.arch.EMULATED)
def test_kernel_of_a_user(target):
    kernel = wmma_ops.Kernel(SCALE, "scale")
    x, y = torch.zeros(1000), torch.randn(1000)
    with wmma_ops.emulate(target) as emulation:
        kernel[4, 256](x, y, 1000, 2.5)
    assert torch.equal(x, y * 2.5)
    assert emulation.launches[0].instructions > 0
    assert emulation.launches[0].by_class["memory"] > 0


def test_one_kernel_in_many_threads():
    import threading

    kernel = wmma_ops.Kernel(SCALE, "scale")
    failures = []

    def work(factor):
        x, y = torch.zeros(256), torch.randn(256)
        with wmma_ops.emulate("gfx1201"):
            for _ in range(5):
                kernel[2, 128](x, y, 256, factor)
        if not torch.equal(x, y * factor):
            failures.append(factor)

    threads = [threading.Thread(target=work, args=(float(i),)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


BAD_LAUNCHES = [
    (lambda k, x: k[1, 64](x, x, 3), TypeError, "3 arguments came; takes 4: x, y, n, factor"),
    (lambda k, x: k[1, 64](x.double(), x, 3, 1.0), TypeError, "x is torch.float64; takes torch.float32"),
    (lambda k, x: k[1, 64](3, x, 3, 1.0), TypeError, "x is of type int; takes a tensor"),
    (lambda k, x: k[1, 64](x, x, 3.5, 1.0), TypeError, r"n is 3.5; takes a whole number \(int\)"),
    (lambda k, x: k[1, 64](x, x, 2**40, 1.0), ValueError, "n is 1099511627776; takes a int"),
    (lambda k, x: k[1, 64](x, x, x, 1.0), TypeError, "n is of type Tensor; takes a number"),
    (lambda k, x: k[1, 64](x, torch.ones(3, device="meta"), 3, 1.0), ValueError, "y is on meta; takes tensors on cpu"),
    (lambda k, x: k[0, 64](x, x, 3, 1.0), ValueError, r"grid is \(0, 1, 1\)"),
    (lambda k, x: k[1, (64, 0)](x, x, 3, 1.0), ValueError, r"block is \(64, 0, 1\)"),
    (lambda k, x: k[1, 2048](x, x, 3, 1.0), ValueError, "2048 threads; gfx942 takes up to 1024"),
    (lambda k, x: k[1, 64](x, x, 3, 1.0, shared=70000), ValueError, "shared memory .* takes up to 65536"),
    (lambda k, x: k[1, 64](x, x, 3, 1.0, shared=-1), ValueError, "shared is -1"),
    (lambda k, x: k[1](x, x, 3, 1.0), ValueError, r"kernel\[grid, block\]"),
]


@pytest.mark.parametrize(("launch_it", "kind", "text"), BAD_LAUNCHES, ids=[text for _, _, text in BAD_LAUNCHES])
def test_bad_launch_is_refused(launch_it, kind, text):
    kernel = wmma_ops.Kernel(SCALE, "scale")
    x = torch.ones(64)
    with wmma_ops.emulate("gfx942"), pytest.raises(kind, match=text):
        launch_it(kernel, x)
    assert torch.equal(x, torch.ones(64))


def test_cpu_tensors_need_an_emulation():
    with pytest.raises(ValueError, match=r"wmma_ops\.emulate"):
        wmma_ops.Kernel(SCALE, "scale")[1, 64](torch.ones(64), torch.ones(64), 64, 1.0)


def test_unknown_targets_and_names():
    with pytest.raises(ValueError, match="gfx942"), wmma_ops.emulate("gfx943"):
        pass
    with pytest.raises(ValueError, match="not emulated"), wmma_ops.emulate("sm_90a"):
        pass
    with pytest.raises(ValueError, match="order is"), wmma_ops.emulate("gfx942", order="sideways"):
        pass
    with pytest.raises(ValueError, match="no `__global__ void scales"):
        wmma_ops.Kernel(SCALE, "scales")


def test_source_that_does_not_compile_names_our_line():
    kernel = wmma_ops.Kernel(
        'extern "C" __attribute__((global)) void bad(int* x) {\n  x[0] = nonsense;\n}'.replace(
            "__attribute__((global))", "__global__"
        ),
        "bad",
    )
    with wmma_ops.emulate("gfx942"), pytest.raises(wmma_ops.jit.CompileError, match=r"bad\.hip:1|bad\.hip:2"):
        kernel[1, 64](torch.zeros(4, dtype=torch.int32))


def test_memory_beside_a_fault_is_untouched():
    store = torch.zeros(300, dtype=torch.int32)
    kernel = wmma_ops.Kernel(HEAD + 'extern "C" __global__ void over(int* x) { x[threadIdx.x] = 1; }', "over")
    with wmma_ops.emulate("gfx1201"), pytest.raises(OutOfBounds):
        kernel[1, 128](store[100:140])
    assert store[:100].abs().max() == 0
    assert store[140:].abs().max() == 0


def test_regions_may_start_anywhere():
    raw = np.zeros(64, dtype=np.uint8)
    region = Region(raw.ctypes.data + 3, 10, "odd", raw)
    assert region.start % 4 == 0
    assert region.start + len(region.bytes) >= region.base + region.size
