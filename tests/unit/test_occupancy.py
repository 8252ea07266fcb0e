"""How many waves a unit holds: against clang, LLVM's and CUDA's documents."""

import re

import pytest
import torch
from figure_kernels import GEMM, compiled

import wmma_ops
from wmma_ops.analysis.figures import figures
from wmma_ops.analysis.figures_record import limits
from wmma_ops.hardware import arch
from wmma_ops.hardware.occupancy import amd_occupancy, nvidia_occupancy
from wmma_ops.runtime import tuned


def _taking(target: str, threads: int, vgprs: int = 8, lds: int = 0, agprs: int = 0, options: tuple = ()):
    clobbers = [f'"v{vgprs - 1}"'] + ([f'"a{agprs - 1}"'] if agprs else [])
    store = f"""__shared__ unsigned char s[{lds}];
      ((volatile __attribute__((address_space(3))) unsigned char*)s)[i] = i;"""
    body = f"""extern "C" __attribute__((amdgpu_flat_work_group_size({threads}, {threads}))) __global__
    void taking(int i) {{ {store if lds else ""} asm volatile("" ::: {", ".join(clobbers)}); }}"""
    row = arch.target(target)
    return figures(compiled(body, row, *options), row, threads)


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
    assert arch.target(target).vgpr_file == (granule, total)


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
    code = compiled(body, row)
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
    more = figures(compiled(GEMM, arch.target("gfx942")), arch.target("gfx942"), 256, shared=65536)
    assert found.occupancy > 0
    assert more.occupancy == 0
    assert "no block fits a CU" in limits(more)


def test_dynamic_shared_memory_counts():
    target = arch.target("gfx942")
    code = compiled(GEMM, target)  # 33792 bytes of its own
    assert figures(code, target, 256).occupancy == 1
    assert figures(code, target, 256, shared=20000).lds_bytes == 53792


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


@pytest.mark.parametrize("target", arch.EMULATED)
def test_kernels_take_no_registers_that_keep_others_out(target):
    """A small tile, and the sum of parts: as many waves as their own registers and shared memory let there be."""
    row = arch.target(target)
    a = torch.empty(128, 4096, dtype=torch.float16)
    found = wmma_ops.explain("matmul", a, a.mT, target=target)
    with tuned.forced(found.problem, found.config.ordered(splits=4, last=1)):
        product, its_sum = wmma_ops.explain("matmul", a, a.mT, target=target).launches
    for launch in (product, its_sum):
        figures = launch.figures
        registers = figures.vgprs + figures.agprs if target != "gfx908" else max(figures.vgprs, figures.agprs)
        asked = figures.threads, registers, figures.sgprs, figures.lds_bytes, row.family.startswith("rdna")
        assert figures.occupancy == amd_occupancy(row, *asked)
    assert its_sum.figures.occupancy > 2
