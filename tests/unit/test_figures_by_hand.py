"""The static figures of assembly written by hand: loops, masks, addresses, bytes, cycles."""

import pytest
from figure_kernels import MMA, WMMA, by_hand

from wmma_ops.analysis.figures_amd import amd_mix, cycles, lds_bytes, vmem_bytes
from wmma_ops.analysis.figures_record import Mix, limits
from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.hardware import arch


def test_of_nested_loops_the_inner_one_counts():
    found = by_hand(
        ".LBB0_1:\n\tv_mov_b32 v9, v8\n"
        f".LBB0_2:\n{MMA}{MMA}\ts_cbranch_scc0 .LBB0_2\n"
        "\tv_mov_b32 v9, v8\n\ts_cbranch_scc0 .LBB0_1\n"
    )
    assert found.loop == Mix(matrix=2, salu=1, matrix_cycles=32)
    assert (found.instructions, found.branches) == (7, 0)


def test_of_several_loops_the_one_with_the_most_products_counts():
    tail = f".LBB0_2:\n{MMA}\tv_mov_b32 v9, v8\n\tv_mov_b32 v9, v8\n\ts_cbranch_scc0 .LBB0_2\n"
    busy = f".LBB0_1:\n{MMA}{MMA}\ts_cbranch_scc0 .LBB0_1\n"
    copying = ".LBB0_3:\n" + "\tds_read_b128 v[0:3], v4\n" * 9 + "\ts_cbranch_scc0 .LBB0_3\n"
    for order in (tail + busy + copying, copying + busy + tail):
        assert by_hand(order).loop == Mix(matrix=2, salu=1, matrix_cycles=32)


def test_an_inner_loop_without_products_belongs_to_the_body():
    found = by_hand(
        f".LBB0_1:\n{MMA}.LBB0_2:\n\tds_read_b64 v[4:5], v8\n\ts_cbranch_scc0 .LBB0_2\n\ts_cbranch_scc1 .LBB0_1\n"
    )
    assert found.loop == Mix(matrix=1, lds=1, salu=2, matrix_cycles=16, lds_bytes=512)
    assert found.branches == 1


def test_a_loop_that_starts_in_its_middle_and_has_conditional_blocks():
    """As clang lays out rotated loops: the latch stands before the header, the exit in between."""
    found = by_hand(
        "\ts_branch .LBB0_2\n"
        f".LBB0_1:\n{MMA}\ts_cbranch_scc1 .LBB0_9\n"
        ".LBB0_2:\n\tv_mov_b32 v1, v2\n\ts_cbranch_vccnz .LBB0_1\n"
        "\tglobal_load_dwordx4 v[4:7], v[8:9], off\n\ts_branch .LBB0_1\n"
        ".LBB0_9:\n\tv_mov_b32 v1, v2\n"
    )
    assert found.loop == Mix(matrix=1, valu=1, vmem=1, salu=3, matrix_cycles=16, vmem_bytes=1024)
    assert found.branches == 1


def test_without_a_loop_there_is_none():
    found = by_hand(f"{MMA}\ts_branch .LBB0_1\n\ts_nop 0\n.LBB0_1:\n")
    assert found.loop is None
    assert limits(found) == []
    assert limits(found, share=0.5) == ["no loop has matrix instructions"]


def test_jumps_backwards_are_no_loop_where_the_target_does_not_lead_there():
    assert by_hand(f"\ts_branch .LBB0_2\n.LBB0_1:\n{MMA}\ts_endpgm\n.LBB0_2:\n\ts_branch .LBB0_1\n").loop is None


MASKS = (
    "s_and_saveexec_b64 s[0:1], vcc",
    "s_or_b64 exec, exec, s[0:1]",
    "s_mov_b32 exec_lo, s0",
    "s_xor_b64 exec, exec, s[0:1]",
    "s_andn2_saveexec_b32 s0, s1",
    "s_and_not1_wrexec_b32 s0, s1",
    "v_cndmask_b32_e32 v0, v1, v2, vcc",
    "v_cmpx_gt_u32_e64 v0, v1",
    "v_dual_cndmask_b32 v0, v1, v2 :: v_dual_mov_b32 v3, v4",
    "v_dual_mov_b32 v3, v4 :: v_dual_cndmask_b32 v0, v1, v2",
)
NO_MASKS = ("s_and_b64 vcc, exec, s[0:1]", "v_cmp_gt_u32_e64 s[0:1], v0, v1", "s_cbranch_execz .LBB0_1")
WIDES = (
    "v_lshlrev_b64 v[0:1], 1, v[2:3]",
    "v_lshlrev_b64_e32 v[0:1], 1, v[2:3]",
    "v_lshl_add_u64 v[0:1], v[2:3], 0, 32",
    "v_mad_u64_u32 v[0:1], s[0:1], v2, v3, 0",
    "v_mad_co_u64_u32 v[0:1], null, v2, v3, 0",
    "v_add_co_u32 v0, vcc_lo, v1, v2",
    "v_add_co_ci_u32_e64 v0, null, v1, v2, vcc_lo",
    "v_addc_co_u32_e32 v0, vcc, v1, v2, vcc",
    "v_add_nc_u64_e32 v[0:1], v[2:3], v[4:5]",
    "v_ashrrev_i64 v[0:1], 2, v[2:3]",
)
NO_WIDES = (
    "v_add_nc_u32_e32 v0, v1, v2",
    "v_add_u32_e32 v0, v1, v2",
    "v_lshl_add_u32 v0, v1, 2, v3",
    "v_add_f64 v[0:1], v[2:3], v[4:5]",
    "s_add_u64 s[0:1], s[2:3], s[4:5]",
    "v_mov_b64_e32 v[0:1], v[2:3]",
    "v_dual_mov_b32 v3, v4 :: v_dual_add_nc_u32 v0, v1, v2",
)


@pytest.mark.parametrize("line", MASKS + NO_MASKS)
def test_what_masks(line):
    found = by_hand(f".LBB0_1:\n\t{line}\n{MMA}\ts_cbranch_scc0 .LBB0_1\n")
    assert found.masked == (line in MASKS)


@pytest.mark.parametrize("line", WIDES + NO_WIDES)
def test_what_is_wide(line):
    found = by_hand(f".LBB0_1:\n\t{line}\n{MMA}\ts_cbranch_scc0 .LBB0_1\n")
    assert found.wide_address == (line in WIDES)


# Widths and classes.

LDS_BYTES = {
    "ds_read_b32": 4,
    "ds_read_b64": 8,
    "ds_load_b96": 12,
    "ds_read_b128": 16,
    "ds_load_b128": 16,
    "ds_read2_b32": 8,
    "ds_read2_b64": 16,
    "ds_read2st64_b64": 16,
    "ds_load_2addr_b64": 16,
    "ds_load_2addr_stride64_b32": 8,
    "ds_write2_b32": 8,
    "ds_store_2addr_b64": 16,
    "ds_write_b8": 1,
    "ds_write_b8_d16_hi": 1,
    "ds_store_b16": 2,
    "ds_read_u8": 1,
    "ds_read_i8_d16": 1,
    "ds_load_u16_d16_hi": 2,
    "ds_read_u16": 2,
    "ds_read_b64_tr_b16": 8,
    "ds_read_b64_tr_b8": 8,
    "ds_read_b96_tr_b6": 12,
    "ds_load_tr16_b128": 16,
    "ds_bpermute_b32": 4,
    "ds_swizzle_b32": 4,
    "ds_add_u32": 4,
    "ds_add_rtn_f64": 8,
    "ds_pk_add_f16": 4,
    "ds_pk_add_rtn_bf16": 4,
    "ds_append": 4,
    "ds_nop": 0,
}
VMEM_BYTES = {
    "global_load_dword": 4,
    "global_load_dwordx2": 8,
    "global_load_dwordx3": 12,
    "global_load_dwordx4": 16,
    "global_load_b128": 16,
    "global_store_b96": 12,
    "buffer_load_dwordx4": 16,
    "buffer_store_b32": 4,
    "global_load_ubyte": 1,
    "global_load_sbyte_d16_hi": 1,
    "global_load_ushort": 2,
    "global_load_short_d16": 2,
    "global_load_short_d16_hi": 2,
    "global_store_byte": 1,
    "global_store_short_d16_hi": 2,
    "flat_load_u8": 1,
    "global_load_d16_u8": 1,
    "global_load_d16_b16": 2,
    "global_load_d16_hi_b16": 2,
    "global_store_d16_hi_b8": 1,
    "scratch_load_dwordx2": 8,
    "scratch_store_b64": 8,
    "global_load_lds_dwordx4": 16,
    "global_load_lds_ushort": 2,
    "global_load_tr_b128": 16,
    "buffer_load_format_xyz": 12,
    "buffer_store_format_d16_xyzw": 8,
    "global_atomic_add": 4,
    "global_atomic_add_x2": 8,
    "global_atomic_add_f64": 8,
    "global_atomic_pk_add_bf16": 4,
    "global_atomic_add_u32": 4,
    "global_atomic_cmpswap_b64": 8,
    "global_prefetch_b8": 0,
}


@pytest.mark.parametrize(("mnemonic", "expected"), LDS_BYTES.items())
def test_bytes_of_shared_memory(mnemonic, expected):
    assert lds_bytes(mnemonic) == expected


@pytest.mark.parametrize(("mnemonic", "expected"), VMEM_BYTES.items())
def test_bytes_of_vector_memory(mnemonic, expected):
    assert vmem_bytes(mnemonic) == expected


def _mix(target: str, *lines: str) -> Mix:
    return amd_mix(map(parse_instruction, lines), arch.target(target))


def test_classes():
    mix = _mix(
        "gfx942",
        "v_accvgpr_write_b32 a0, v0",
        "v_readfirstlane_b32 s0, v0",
        "s_load_dwordx4 s[0:3], s[4:5], 0x0",
        "s_waitcnt lgkmcnt(0)",
        "s_barrier",
        "buffer_inv sc1",
        "buffer_wbl2 sc1",
        "s_add_u32 s0, s0, s1",
        "flat_store_dword v[0:1], v2",
    )
    assert mix == Mix(valu=2, smem=1, wait=4, salu=1, vmem=1, vmem_bytes=256)
    mix = _mix(
        "gfx1201",
        "v_dual_mov_b32 v3, v4 :: v_dual_add_nc_u32 v0, v1, v2",
        "global_inv scope:SCOPE_SE",
        "s_barrier_signal -1",
        "s_wait_loadcnt 0x0",
        "s_delay_alu instid0(VALU_DEP_1)",
    )
    assert mix == Mix(valu=1, wait=4)


@pytest.mark.parametrize("line", ["global_load_lds_dwordx4 v[0:1], off", "buffer_load_dwordx4 v0, s[0:3], 0 offen lds"])
def test_loads_straight_into_shared_memory_are_written_there(line):
    assert _mix("gfx950", line) == Mix(vmem=1, vmem_bytes=1024, lds_bytes=1024)


@pytest.mark.parametrize("name", arch.EMULATED)
def test_cycles_of_every_matrix_instruction(name):
    target = arch.target(name)
    for row in target.instructions:
        if "f8f6f4" not in row.name:
            assert _mix(name, f"{row.name} v[0:15], v[16:23], v[24:31], v[0:15]").matrix_cycles == row.cycles


@pytest.mark.parametrize(
    ("formats", "expected"), [("", 32), (" cbsz:1 blgp:1", 32), (" cbsz:4", 32), (" cbsz:4 blgp:4", 16)]
)
def test_cycles_that_depend_on_the_formats(formats, expected):
    operands = "v[0:3], v[4:11], v[12:19], v[0:3]"
    assert _mix("gfx950", f"v_mfma_f32_16x16x128_f8f6f4 {operands}{formats}").matrix_cycles == expected
    scaled = f"v_mfma_scale_f32_16x16x128_f8f6f4 {operands}, v20, v21 op_sel_hi:[0,0,0]{formats}"
    assert _mix("gfx950", scaled).matrix_cycles == expected


def test_products_without_published_cycles_have_no_share():
    found = by_hand(f".LBB0_1:\n{WMMA.replace('16x16x16', '16x16x32')}\ts_cbranch_scc0 .LBB0_1\n", "gfx1250")
    assert (found.loop.matrix, found.loop.matrix_cycles, found.share) == (1, None, None)


@pytest.mark.parametrize(
    ("target", "mix", "threads", "expected"),
    [
        # Two waves a SIMD of CDNA; LDS is busiest.
        ("gfx942", Mix(matrix=8, valu=4, matrix_cycles=128, lds_bytes=8192, vmem_bytes=1024), 512, 256 / 512),
        # VALU is busiest: 40 * 4 against 128.
        ("gfx942", Mix(matrix=8, valu=40, matrix_cycles=128), 256, 128 / 160),
        ("gfx942", Mix(matrix=8, valu=4, matrix_cycles=128, lds_bytes=1024), 256, 1.0),
        # RDNA adds matrix and VALU: (128 + 32) * 2 waves, over vector memory's 4 * 2048 / 64.
        ("gfx1201", Mix(matrix=8, valu=32, matrix_cycles=128, vmem_bytes=2048), 128, 128 / 160),
        ("gfx1201", Mix(matrix=8, valu=32, matrix_cycles=128, vmem_bytes=8192), 128, 256 / 512),
    ],
)
def test_the_matrix_share(target, mix, threads, expected):
    assert cycles(mix, arch.target(target), threads)["share"] == pytest.approx(expected)
