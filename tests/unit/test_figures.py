"""The static figures of compiled kernels: against counts made by hand, LLVM's documents, clang, and ptxas."""

import dataclasses
import json
import re
import shutil
import subprocess

import pytest
from figure_kernels import GEMM, MMA, SPILLING, by_hand, compiled, text_of
from rich.console import Console

from wmma_ops.analysis.figures import figures
from wmma_ops.analysis.figures_nvidia import PtxInstruction, ptx_bytes
from wmma_ops.analysis.figures_record import Mix, limits
from wmma_ops.cli.report import show_rows
from wmma_ops.hardware import arch
from wmma_ops.jit import elf

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


@EVERY
def test_a_product_from_shared_memory(target):
    found = figures(compiled(GEMM, target), target, threads=4 * target.wave, shared=1000)
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
    found = figures(compiled(COUNTED, target), target, threads=2 * target.wave)
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
    found = figures(compiled(MASKED, target), target, threads=target.wave)
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
    found = figures(compiled(WIDE, target), target, threads=target.wave)
    # One addition: an instruction of its own on gfx942 and gfx950, a pair with carry elsewhere.
    assert found.wide_address == (1 if target.name in ("gfx942", "gfx950") else 2)
    assert found.loop.vmem_bytes == 2 * target.wave
    assert any("64-bit" in broken for broken in limits(found))


# 64 live values in registers for 24.


@EVERY
def test_spills_are_seen(target):
    found = figures(compiled(SPILLING, target), target, threads=target.wave)
    assert found.vgprs <= (
        48 if target.name in ("gfx90a", "gfx942", "gfx950") else 24
    )  # the attribute counts twice there
    assert found.spills >= 16
    assert found.scratch_bytes >= 4 * 16
    assert {"registers are spilled", "bytes of scratch"} <= {line.split(" ", 1)[1] for line in limits(found)}
    assert found.loop is None
    assert found.masked is found.share is found.matrix_cycles is None


# Without assembly, and bad input.


@EVERY
def test_the_note_of_a_code_object_without_assembly(target):
    code = compiled(GEMM, target)
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
    code = text_of("gfx942", MMA)
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
    found = figures(compiled(GEMM, target), target, threads=128, shared=256)
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
        code = compiled(body, target)
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
    roomy = figures(compiled(SPILLING, target), target, 128)
    tight = figures(compiled(SPILLING, target, "--maxrregcount=32"), target, 128)
    assert (roomy.spills, roomy.scratch_bytes) == (0, 0)
    assert roomy.vgprs > 64
    assert tight.vgprs <= 32
    assert tight.spills >= 30
    assert limits(tight)[0] == f"{tight.spills} registers are spilled"


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
    code = dataclasses.replace(compiled(GEMM, target), assembly=PTX)
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
    return by_hand(f".LBB0_1:\n{MMA * 8}\tds_read_b128 v[0:3], v4\n\tv_mov_b32 v1, v2\n\ts_cbranch_scc0 .LBB0_1\n")


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
    assert "\n" not in str(figures(compiled(SPILLING, arch.target("gfx1201")), arch.target("gfx1201"), 64))


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
