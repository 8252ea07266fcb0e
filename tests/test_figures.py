"""The static figures of kernels: against counts made by hand, LLVM's and CUDA's documents, clang, and ptxas."""

import dataclasses
import json
import re
import shutil
import subprocess

import pytest
from rich.console import Console

from wmma_ops import arch, jit
from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.jit import elf
from wmma_ops.jit.compiler import CodeObject
from wmma_ops.plan.figures import figures
from wmma_ops.plan.figures_amd import amd_mix, cycles, lds_bytes, vmem_bytes
from wmma_ops.plan.figures_nvidia import PtxInstruction, ptx_bytes
from wmma_ops.plan.figures_record import Mix, limits
from wmma_ops.plan.occupancy import nvidia_occupancy, vgpr_file
from wmma_ops.report_view import show_rows

EVERY = pytest.mark.parametrize("target", [arch.target(name) for name in arch.EMULATED], ids=lambda row: row.name)
CYCLES = {  # of 16x16x16 in float16, as AMD's matrix instruction calculator prints them
    "gfx908": 32,
    "gfx90a": 32,
    "gfx942": 16,
    "gfx950": 16,
    "gfx1100": 32,
    "gfx1151": 32,
    "gfx1200": 16,
    "gfx1201": 16,
}

START = r"""
#include <wmma/fragment.hpp>
using namespace wmma;
using A = fragment<matrix_a, 16, 16, 16, half_t, row_major>;
using B = fragment<matrix_b, 16, 16, 16, half_t, col_major>;
using C = fragment<accumulator, 16, 16, 16, float>;
"""


def _compiled(body: str, target: arch.Target, *options: str) -> CodeObject:
    return jit.compile(START + body, target.name, options=options, name="figures.hip")


# A product of 32x32 whose A and B lie in shared memory: 4 products of 4 loaded fragments an iteration.
GEMM = r"""
extern "C" __global__ void gemm(const half_t* a, float* d, int steps) {
  __shared__ __attribute__((aligned(16))) half_t shared[2 * 32 * 264];
  for (int i = threadIdx.x; i < 2 * 32 * 264; i += blockDim.x) shared[i] = a[i];
  sync_workgroup();
  C sum[2][2];
  for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n) fill_fragment(sum[m][n], 0.0f);
  const half_t* at = shared;
#pragma unroll 1
  for (int k = 0; k < steps; ++k, at += 16) {
    A x[2];
    B y[2];
    for (int m = 0; m < 2; ++m) load_matrix_sync(x[m], at + m * 16 * 264, 264);
    for (int n = 0; n < 2; ++n) load_matrix_sync(y[n], at + (2 + n) * 16 * 264, 264);
    for (int m = 0; m < 2; ++m) for (int n = 0; n < 2; ++n) mma_sync(sum[m][n], x[m], y[n], sum[m][n]);
  }
  for (int m = 0; m < 2; ++m)
    for (int n = 0; n < 2; ++n) store_matrix_sync(d + m * 16 * 32 + n * 16, sum[m][n], 32, mem_row_major);
}
"""


@EVERY
def test_a_product_from_shared_memory(target):
    found = figures(_compiled(GEMM, target), target, threads=4 * target.wave, shared=1000)
    copies = 2 if target.family == "rdna3" else 1
    assert found.loop.matrix == 4
    assert found.loop.matrix_cycles == 4 * CYCLES[target.name]
    assert found.loop.lds_bytes == 4 * 16 * 16 * 2 * copies
    assert found.loop.vmem == found.loop.vmem_bytes == found.vmem_cycles == found.loop.smem == 0
    # Four waves: one a SIMD on CDNA, two on RDNA.
    assert found.matrix_cycles == 4 * CYCLES[target.name] * (1 if target.wave == 64 else 2)
    assert found.valu_cycles == found.loop.valu * (4 if target.wave == 64 else 2)
    assert found.lds_cycles == 4 * 2048 * copies / (256 if target.name == "gfx950" else 128)
    assert found.lds_ratio == found.lds_cycles / found.matrix_cycles
    assert found.valu_ratio == found.valu_cycles / found.matrix_cycles
    assert (found.static_lds, found.lds_bytes) == (2 * 32 * 264 * 2, 2 * 32 * 264 * 2 + 1000)
    assert (found.masked, found.wide_address, found.branches, found.spills, found.scratch_bytes) == (0, 0, 0, 0, 0)
    assert limits(found) == []
    assert 0 < found.loop.instructions < found.instructions


# What is written here in assembly is all that the loop has beside its products and its counter.
COUNTED = r"""
#if defined(__GFX9__)
#define READ "ds_read_b64 "
#define LOAD "global_load_dwordx2 "
#else
#define READ "ds_load_b64 "
#define LOAD "global_load_b64 "
#endif
extern "C" __global__ void counted(const double* p, float* d, int steps) {
  __shared__ double unused[64];
  A a;
  B b;
  C sum;
  fill_fragment(a, half_t(1));
  fill_fragment(b, half_t(1));
  fill_fragment(sum, 0.0f);
  double x, y = 0;
  int z = threadIdx.x;
  unused[z % 64] = p[z];
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    asm volatile(READ "%0, %1 offset:8" : "=v"(x) : "v"(z));
    asm volatile(LOAD "%0, %1, off" : "=v"(y) : "v"(p));
    asm volatile("v_mov_b32 %0, %0\nv_mov_b32 %0, %0\nv_exp_f32 %0, %0" : "+v"(z));
    mma_sync(sum, a, b, sum);
    mma_sync(sum, a, b, sum);
  }
  store_matrix_sync(d, sum, 16, mem_row_major);
  d[z] = x + y;
}
"""


@EVERY
def test_counts_of_a_known_loop(target):
    found = figures(_compiled(COUNTED, target), target, threads=2 * target.wave)
    mix = found.loop
    assert (mix.matrix, mix.valu, mix.lds, mix.vmem, mix.smem) == (2, 3, 1, 1, 0)
    assert (mix.lds_bytes, mix.vmem_bytes) == (8 * target.wave, 8 * target.wave)
    assert mix.salu >= 3  # count, compare, branch
    assert mix.matrix_cycles == 2 * CYCLES[target.name]
    waves = 2 / target.simds
    busy = {
        "matrix": mix.matrix_cycles * waves,
        "valu": 3 * (4 if target.wave == 64 else 1) * waves,
        "lds": 2 * mix.lds_bytes / target.lds_bytes_per_clock,
        "vmem": 2 * mix.vmem_bytes / 64,
    }
    assert [found.matrix_cycles, found.valu_cycles, found.lds_cycles, found.vmem_cycles] == list(busy.values())
    if target.wave == 32:
        busy["both"] = busy["matrix"] + busy["valu"]
    assert found.share == busy["matrix"] / max(busy.values())


MASKED = r"""
extern "C" __global__ void masked(const half_t* p, float* d, int steps, int bound) {
  A a;
  B b;
  C sum;
  fill_fragment(b, half_t(1));
  fill_fragment(sum, 0.0f);
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
    fill_fragment(a, half_t(0));
    if (static_cast<int>(threadIdx.x) + k < bound) a.x[0] = p[threadIdx.x + k];
    mma_sync(sum, a, b, sum);
  }
  store_matrix_sync(d, sum, 16, mem_row_major);
}
"""


@EVERY
def test_a_masked_loop_is_seen(target):
    found = figures(_compiled(MASKED, target), target, threads=target.wave)
    assert found.masked > 0
    assert any("masked" in broken for broken in limits(found))


WIDE = r"""
extern "C" __global__ void wide(const half_t* p, float* d, long long stride, int steps) {
  A a;
  B b;
  C sum;
  fill_fragment(b, half_t(1));
  fill_fragment(sum, 0.0f);
  const half_t* at = p + threadIdx.x * stride;
#pragma unroll 1
  for (int k = 0; k < steps; ++k, at += stride) {
    fill_fragment(a, *at);
    mma_sync(sum, a, b, sum);
  }
  store_matrix_sync(d, sum, 16, mem_row_major);
}
"""


@EVERY
def test_64_bit_addresses_are_seen(target):
    found = figures(_compiled(WIDE, target), target, threads=target.wave)
    # One addition: an instruction of its own on gfx942 and gfx950, a pair with carry elsewhere.
    assert found.wide_address == (1 if target.name in ("gfx942", "gfx950") else 2)
    assert found.loop.vmem_bytes == 2 * target.wave
    assert any("64-bit" in broken for broken in limits(found))


# 64 live values in registers for 24.
SPILLING = r"""
#if defined(__CUDACC__)
#define FEW
#else
#define FEW __attribute__((amdgpu_num_vgpr(24)))
#endif
extern "C" __global__ FEW void spilling(volatile float* d, int steps) {
  float x[64];
#pragma unroll
  for (int i = 0; i < 64; ++i) x[i] = d[i * 64 + threadIdx.x];
#pragma unroll 1
  for (int k = 0; k < steps; ++k) {
#pragma unroll
    for (int i = 0; i < 64; ++i) x[i] = x[i] * x[(i + 7) % 64] + d[k];
  }
#pragma unroll
  for (int i = 0; i < 64; ++i) d[i * 64 + threadIdx.x] = x[i];
}
"""


@EVERY
def test_spills_are_seen(target):
    found = figures(_compiled(SPILLING, target), target, threads=target.wave)
    assert found.vgprs <= (
        48 if target.name in ("gfx90a", "gfx942", "gfx950") else 24
    )  # the attribute counts twice there
    assert found.spills >= 16
    assert found.scratch_bytes >= 4 * 16
    assert {"registers are spilled", "bytes of scratch"} <= {line.split(" ", 1)[1] for line in limits(found)}
    assert found.loop is None
    assert found.masked is found.share is found.matrix_cycles is None


# Loops, in assembly written by hand.


def _text(target: str, body: str) -> CodeObject:
    start, end = f'\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"\nk:\n', "\t.amdhsa_kernel k\n\t.end_amdhsa_kernel\n"
    text = f"{start}{body}\ts_endpgm\n{end}"
    return CodeObject(target=target, compiler="hand", code=b"", assembly=text, log="", kernels=("k",))


MMA = "\tv_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3]\n"
WMMA = "\tv_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[12:15], v[0:7]\n"


def _hand(body: str, target: str = "gfx942", threads: int = 256):
    return figures(_text(target, body), arch.target(target), threads)


def test_of_nested_loops_the_inner_one_counts():
    found = _hand(
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
        assert _hand(order).loop == Mix(matrix=2, salu=1, matrix_cycles=32)


def test_an_inner_loop_without_products_belongs_to_the_body():
    found = _hand(
        f".LBB0_1:\n{MMA}.LBB0_2:\n\tds_read_b64 v[4:5], v8\n\ts_cbranch_scc0 .LBB0_2\n\ts_cbranch_scc1 .LBB0_1\n"
    )
    assert found.loop == Mix(matrix=1, lds=1, salu=2, matrix_cycles=16, lds_bytes=512)
    assert found.branches == 1


def test_a_loop_that_starts_in_its_middle_and_has_conditional_blocks():
    """As clang lays out rotated loops: the latch stands before the header, the exit in between."""
    found = _hand(
        "\ts_branch .LBB0_2\n"
        f".LBB0_1:\n{MMA}\ts_cbranch_scc1 .LBB0_9\n"
        ".LBB0_2:\n\tv_mov_b32 v1, v2\n\ts_cbranch_vccnz .LBB0_1\n"
        "\tglobal_load_dwordx4 v[4:7], v[8:9], off\n\ts_branch .LBB0_1\n"
        ".LBB0_9:\n\tv_mov_b32 v1, v2\n"
    )
    assert found.loop == Mix(matrix=1, valu=1, vmem=1, salu=3, matrix_cycles=16, vmem_bytes=1024)
    assert found.branches == 1


def test_without_a_loop_there_is_none():
    found = _hand(f"{MMA}\ts_branch .LBB0_1\n\ts_nop 0\n.LBB0_1:\n")
    assert found.loop is None
    assert limits(found) == []
    assert limits(found, share=0.5) == ["no loop has matrix instructions"]


def test_jumps_backwards_are_no_loop_where_the_target_does_not_lead_there():
    assert _hand(f"\ts_branch .LBB0_2\n.LBB0_1:\n{MMA}\ts_endpgm\n.LBB0_2:\n\ts_branch .LBB0_1\n").loop is None


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
    found = _hand(f".LBB0_1:\n\t{line}\n{MMA}\ts_cbranch_scc0 .LBB0_1\n")
    assert found.masked == (line in MASKS)


@pytest.mark.parametrize("line", WIDES + NO_WIDES)
def test_what_is_wide(line):
    found = _hand(f".LBB0_1:\n\t{line}\n{MMA}\ts_cbranch_scc0 .LBB0_1\n")
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
    found = _hand(f".LBB0_1:\n{WMMA.replace('16x16x16', '16x16x32')}\ts_cbranch_scc0 .LBB0_1\n", "gfx1250")
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


# Occupancy.


def _taking(target: str, threads: int, vgprs: int = 8, lds: int = 0, agprs: int = 0, options: tuple = ()):
    clobbers = [f'"v{vgprs - 1}"'] + ([f'"a{agprs - 1}"'] if agprs else [])
    store = f"""__shared__ unsigned char s[{lds}];
      ((volatile __attribute__((address_space(3))) unsigned char*)s)[i] = i;"""
    body = f"""extern "C" __attribute__((amdgpu_flat_work_group_size({threads}, {threads}))) __global__
    void taking(int i) {{ {store if lds else ""} asm volatile("" ::: {", ".join(clobbers)}); }}"""
    row = arch.target(target)
    return figures(_compiled(body, row, *options), row, threads)


@pytest.mark.parametrize(
    ("target", "granule", "total"),
    [
        ("gfx908", 4, 256),
        ("gfx90a", 8, 512),
        ("gfx942", 8, 512),
        ("gfx950", 8, 512),
        ("gfx1100", 24, 1536),
        ("gfx1101", 24, 1536),
        ("gfx1102", 16, 1024),
        ("gfx1103", 16, 1024),
        ("gfx1150", 16, 1024),
        ("gfx1151", 24, 1536),
        ("gfx1200", 24, 1536),
        ("gfx1201", 24, 1536),
    ],
)
def test_register_files(target, granule, total):
    assert vgpr_file(arch.target(target)) == (granule, total)


@pytest.mark.parametrize("target", [*arch.EMULATED, "gfx1102"])
def test_occupancy_by_registers_is_what_clang_says(target):
    row = arch.target(target)
    counts = (8, 24, 25, 32, 33, 48, 64, 65, 72, 84, 96, 97, 120, 121, 128, 129, 168, 169, 192, 193, 240, 256)
    body = "".join(
        f'extern "C" __global__ void v{count}() {{ asm volatile("" ::: "v{count - 1}"); }}\n' for count in counts
    )
    body += "".join(
        f'extern "C" __global__ void s{count}() {{ asm volatile("" ::: "s{count}"); }}\n' for count in (73, 79, 90)
    )
    code = _compiled(body, row)
    names = re.findall(r"Begin function (\w+)", code.assembly)
    told = dict(zip(names, map(int, re.findall(r"; Occupancy: (\d+)", code.assembly)), strict=True))
    # A wave a SIMD, so that blocks do not matter.
    found = {name: figures(code, row, 4 * row.wave, kernel=name).occupancy for name in names}
    assert found == told


@pytest.mark.parametrize(
    ("target", "threads", "lds", "expected"),
    [
        ("gfx942", 256, 0, 8),
        ("gfx942", 256, 65536, 1),  # one block of a wave a SIMD
        ("gfx942", 256, 32768, 2),
        ("gfx942", 256, 21845, 2),  # three would fit were it not for the granules of 512
        ("gfx942", 256, 21504, 3),
        ("gfx942", 512, 32768, 4),
        ("gfx942", 128, 65536, 0.5),  # half of the SIMDs have no wave
        ("gfx942", 1024, 1024, 8),
        ("gfx908", 1024, 1024, 8),  # ten slots, two blocks of four waves a SIMD
        ("gfx950", 256, 65536, 2),  # 160 KiB
        ("gfx950", 256, 32768, 4),  # five of 33280 would not fit
        ("gfx1201", 128, 65536, 2),  # both CUs: two blocks of a wave a SIMD
        ("gfx1201", 256, 32768, 8),
        ("gfx1201", 128, 1024, 16),
        ("gfx1201", 64, 1024, 16),  # 32 blocks, as many barriers
        ("gfx1100", 128, 10241, 11),  # 131072 / 11264
    ],
)
def test_occupancy_by_shared_memory(target, threads, lds, expected):
    assert _taking(target, threads, lds=lds).occupancy == expected


def test_occupancy_in_cu_mode():
    """A block has one CU: 2 SIMDs and 64 KiB."""
    assert _taking("gfx1201", 128, lds=32768, options=("-mcumode",)).occupancy == 4
    assert _taking("gfx1201", 128, lds=65536, options=("-mcumode",)).occupancy == 2
    assert _taking("gfx1201", 64, lds=1024, options=("-mcumode",)).occupancy == 16


def test_agprs_share_the_file_from_gfx90a_on():
    found = _taking("gfx942", 256, vgprs=64, agprs=128)
    assert (found.vgprs, found.agprs, found.occupancy) == (64, 128, 2)  # 512 / 192
    found = _taking("gfx908", 256, vgprs=64, agprs=128)
    assert (found.vgprs, found.agprs, found.occupancy) == (64, 128, 2)  # 256 / 128


def test_what_fits_no_cu():
    found = _taking("gfx1201", 64, lds=60000)
    more = figures(_compiled(GEMM, arch.target("gfx942")), arch.target("gfx942"), 256, shared=65536)
    assert found.occupancy > 0
    assert more.occupancy == 0
    assert "no block fits a CU" in limits(more)


def test_dynamic_shared_memory_counts():
    target = arch.target("gfx942")
    code = _compiled(GEMM, target)  # 33792 bytes of its own
    assert figures(code, target, 256).occupancy == 1
    assert figures(code, target, 256, shared=20000).lds_bytes == 53792


# Without assembly, and bad input.


@EVERY
def test_the_note_of_a_code_object_without_assembly(target):
    code = _compiled(GEMM, target)
    found = figures(code, target, 4 * target.wave)
    bare = figures(dataclasses.replace(code, assembly=None), target, 4 * target.wave)
    for name in ("sgprs", "agprs", "spills", "scratch_bytes", "static_lds", "lds_bytes"):
        assert getattr(bare, name) == getattr(found, name), name
    assert abs(bare.vgprs - found.vgprs) < 4 + (found.agprs if target.name == "gfx908" else 0)
    assert bare.occupancy >= found.occupancy > 0
    assert bare.loop is bare.instructions is bare.share is bare.masked is None
    assert limits(bare, share=0.9) == []


def test_bad_input():
    target = arch.target("gfx942")
    code = _text("gfx942", MMA)
    with pytest.raises(ValueError, match="for gfx942, not for gfx950"):
        figures(code, arch.target("gfx950"), 64)
    with pytest.raises(ValueError, match="no kernel 'other'; there are k"):
        figures(code, target, 64, kernel="other")
    with pytest.raises(ValueError, match="0 threads"):
        figures(code, target, 0)
    with pytest.raises(ValueError, match="name one of the kernels a, b"):
        figures(dataclasses.replace(code, kernels=("a", "b")), target, 64)


# NVIDIA

SMS = pytest.mark.parametrize("target", [arch.target(name) for name in ("sm_80", "sm_90a")], ids=lambda row: row.name)


@SMS
def test_a_product_on_nvidia(target):
    found = figures(_compiled(GEMM, target), target, threads=128, shared=256)
    assert found.loop.matrix == 8  # of 16x8x16
    assert 32 <= found.vgprs <= 255
    assert (found.spills, found.scratch_bytes, found.agprs) == (0, 0, 0)
    assert (found.static_lds, found.lds_bytes) == (33792, 34048)
    assert found.loop.vmem_bytes == 0
    assert found.loop.matrix_cycles is found.share is found.masked is found.wide_address is None
    assert limits(found, share=0.9) == []


@SMS
def test_registers_and_stack_are_what_ptxas_says(target, tmp_path):
    """ptxas assembles NVRTC's PTX, says what it used, and we read its cubin."""
    ptxas = shutil.which("ptxas")
    if not ptxas:
        pytest.skip("no ptxas")
    for name, body, flags in (("gemm", GEMM, ()), ("spilling", SPILLING, ("--maxrregcount=32",))):
        code = _compiled(body, target)
        version = re.search(
            r"release (\d+)", subprocess.run([ptxas, "--version"], capture_output=True, text=True).stdout
        )
        if int(version[1]) < 13:
            pytest.skip("this ptxas is too old for NVRTC's PTX")
        # Of a newer toolkit, with nothing newer in it.
        (source := tmp_path / "k.ptx").write_text(re.sub(r"\.version \S+", ".version 9.0", code.assembly))
        made = tmp_path / "k.cubin"
        command = [ptxas, "-v", f"-arch={target.name}", *flags, str(source), "-o", str(made)]
        told = subprocess.run(command, capture_output=True, text=True, check=True)
        said = told.stdout + told.stderr
        ours = dataclasses.replace(code, code=made.read_bytes(), kernels=elf.kernels(made.read_bytes()))
        found = figures(ours, target, 128, kernel=name)
        assert found.vgprs == int(re.search(r"Used (\d+) registers", said)[1])
        assert found.scratch_bytes == int(re.search(r"(\d+) bytes stack frame", said)[1])
        smem = re.search(r"(\d+) bytes smem", said)
        assert found.static_lds == (int(smem[1]) if smem else 0)
        assert (found.spills > 0) == (int(re.search(r"(\d+) bytes spill stores", said)[1]) > 0)


@SMS
def test_spills_on_nvidia(target):
    roomy = figures(_compiled(SPILLING, target), target, 128)
    tight = figures(_compiled(SPILLING, target, "--maxrregcount=32"), target, 128)
    assert (roomy.spills, roomy.scratch_bytes) == (0, 0)
    assert roomy.vgprs > 64
    assert tight.vgprs <= 32
    assert tight.spills >= 30
    assert limits(tight)[0] == f"{tight.spills} registers are spilled"


@pytest.mark.parametrize(
    ("target", "registers", "threads", "shared", "expected"),
    [  # CUDA's occupancy calculator, in warps of an SM's quarter
        ("sm_80", 32, 256, 0, 16),
        ("sm_80", 33, 256, 0, 12),
        ("sm_80", 128, 128, 0, 4),
        ("sm_80", 255, 128, 0, 2),
        ("sm_86", 32, 256, 0, 12),
        ("sm_86", 40, 32, 0, 4),  # 16 blocks
        ("sm_89", 40, 32, 0, 6),  # 24
        ("sm_90", 168, 384, 0, 3),
        ("sm_80", 64, 256, 48 * 1024, 6),  # 164 / 49: three blocks
        ("sm_90a", 64, 128, 227 * 1024, 1),
        ("sm_90a", 64, 128, 228 * 1024, 0),
    ],
)
def test_occupancy_on_nvidia(target, registers, threads, shared, expected):
    assert nvidia_occupancy(arch.target(target), threads, registers, shared) == expected


PTX = """
.visible .entry gemm(
	.param .u64 gemm_param_0
)
.maxntid 128, 1, 1
{
	.local .align 16 .b8 	__local_depot0[64];
	.reg .b32 	%r<9>;
	ld.param.u64 	%rd1, [gemm_param_0]; // x; y {
$L__BB0_1:
	.pragma "nounroll";
	@%p2 bra 	$L__BB0_2;
	cp.async.cg.shared.global [%r1], [%rd1], 16, %r2;
	cp.async.commit_group;
$L__BB0_2:
	// begin inline asm
	{ .reg .b64 %tmp; cvta.to.shared.u64 %tmp, %rd4; }
	ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%r5];
	mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6},
	{%f1, %f2, %f3, %f4};
	// end inline asm
	ld.shared.v2.f32 	{%f5, %f6}, [%r7+8];
	st.global.v4.u32 	[%rd2], {%r1, %r2, %r3, %r4};
	cp.async.wait_group 0;
	bar.sync 	0;
	@%p1 bra 	$L__BB0_1;
	ret;

}
.visible .entry other() { ret; }
"""


def test_counts_of_ptx():
    target = arch.target("sm_80")
    code = dataclasses.replace(_compiled(GEMM, target), assembly=PTX)
    found = figures(code, target, 128, kernel="gemm")
    # 16 of cp.async and of ldmatrix each, 8 of ld.shared; 16 of cp.async and of st.global.
    assert found.loop == Mix(
        matrix=1, valu=1, lds=2, vmem=2, salu=2, wait=3, matrix_cycles=None, lds_bytes=40 * 32, vmem_bytes=32 * 32
    )
    assert (found.instructions, found.branches) == (13, 1)


def test_bytes_of_ptx():
    for mnemonic, operands, expected in (
        ("ld.global.nc.u8", "%rs1, [%rd1]", 1),
        ("ld.global.v4.f32", "{}, [%rd1]", 16),
        ("ld.global.L1::no_allocate.v2.b64", "{}, [%rd1]", 16),
        ("st.shared.v4.b32", "[%r1], {}", 16),
        ("atom.global.add.f32", "%f1, [%rd1], %f2", 4),
        ("red.global.add.noftz.f16x2", "[%rd1], %r1", 4),
        ("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", "{%r1, %r2}, [%r3]", 8),
        ("cp.async.ca.shared.global", "[%r1], [%rd1], 4", 4),
        ("cp.async.bulk.tensor.2d.shared::cluster.global.tile", "[%r1], [%rd1, {%r2, %r3}], [%r4]", 0),
    ):
        assert ptx_bytes(PtxInstruction("", mnemonic, operands)) == expected, mnemonic


# What is shown.


def _good():
    return _hand(f".LBB0_1:\n{MMA * 8}\tds_read_b128 v[0:3], v4\n\tv_mov_b32 v1, v2\n\ts_cbranch_scc0 .LBB0_1\n")


def test_limits():
    found = dataclasses.replace(_good(), spills=0, scratch_bytes=0)
    assert (found.matrix_cycles, found.valu_cycles, found.lds_cycles, found.share) == (128, 4, 32, 1.0)
    assert limits(found, share=0.95, valu=0.1, lds=0.5) == []
    assert limits(found, valu=0.03, lds=0.2) == [
        "VALU/matrix is 0.0312, more than 0.03",
        "LDS/matrix is 0.25, more than 0.2",
    ]
    worse = dataclasses.replace(found, spills=3, scratch_bytes=12, masked=2, wide_address=4, share=0.5)
    assert limits(worse, share=0.7) == [
        "3 registers are spilled",
        "12 bytes of scratch",
        "2 masked instructions in the hot loop",
        "4 64-bit address instructions in the hot loop",
        "the matrix share is 0.5, less than 0.7",
    ]


def test_one_line():
    line = str(_good())
    assert line == (
        "k on gfx942: ? VGPRs; ? B LDS, occupancy ?; loop 8 matrix + 1 VALU + 1 LDS + 0 memory; "
        "share 100%, VALU 0.03, LDS 0.25"
    )
    assert "\n" not in str(figures(_compiled(SPILLING, arch.target("gfx1201")), arch.target("gfx1201"), 64))


def test_report(capsys):
    target, found = arch.target("gfx942"), _good()
    entries = [("fine", target, found, []), ("bad", "gfx942", found, ["3 registers are spilled", "another"])]
    console = Console(width=200, record=True)
    assert show_rows(entries[:1], console=console) is False
    assert show_rows(entries, console=console) is True
    shown = console.export_text()
    assert "3 registers are spilled" in shown
    assert "fine" in shown
    capsys.readouterr()
    assert show_rows(iter(entries), as_json=True) is True
    rows = json.loads(capsys.readouterr().out)
    assert [row["label"] for row in rows] == ["fine", "bad"]
    assert rows[1]["broken"] == ["3 registers are spilled", "another"]
    assert rows[0]["figures"]["loop"]["matrix"] == 8
    assert rows[0]["target"] == "gfx942"
