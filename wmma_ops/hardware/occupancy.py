"""Occupancy: how many waves a SIMD has at once of a kernel.

It is waves per SIMD with as many whole blocks as fit by registers, LDS, barriers and wave slots. On RDNA a block
has both CUs of a work-group processor, unless the code was compiled for one. VGPRs are given out in granules, of a file
that has so many for each lane of a SIMD: 4 of 256 on gfx908 (and as many AGPRs), 8 of 512 on gfx90a and later, 24 of 1536
on gfx1100, gfx1101, gfx1151, gfx1200 and gfx1201, 16 of 1024 elsewhere (LLVM's AMDGPUUsage, getVGPRAllocGranule and
getTotalNumVGPRs). LDS is given out by 512 bytes, 1280 on gfx950, 2048 on gfx1250, 1024 on other RDNA (AMDGPUUsage's
GRANULATED_LDS_SIZE; Mesa's lds_alloc_granularity). clang's own "Occupancy" rounds neither LDS nor to whole blocks, and so
may be higher.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import up

_LARGE_FILE = ("gfx1100", "gfx1101", "gfx1151", "gfx1200", "gfx1201")


def vgpr_file(target: arch.Target) -> tuple[int, int]:
    """(granule, total) of the registers that one lane's waves on a SIMD share."""
    if target.family == "cdna":
        return (4, 256) if target.name == "gfx908" else (8, 512)
    return (24, 1536) if target.name in _LARGE_FILE else (16, 1024)


def _most_waves(target: arch.Target) -> int:
    if target.family == "cdna":
        return 10 if target.name == "gfx908" else 8
    return 16


def _waves_by_vgprs(target: arch.Target, vgprs: int) -> int:
    granule, total = vgpr_file(target)
    return min(total // up(max(vgprs, 1), granule), _most_waves(target))


def _waves_by_sgprs(target: arch.Target, sgprs: int) -> int:
    if target.family != "cdna":  # every wave has all of them
        return _most_waves(target)
    return min(next((waves for most, waves in ((80, 10), (88, 9), (100, 8)) if sgprs <= most), 7), _most_waves(target))


def _lds_file(target: arch.Target) -> tuple[int, int]:
    """(granule, bytes of a CU)."""
    special = {"gfx950": 1280, "gfx1250": 2048}
    return special.get(target.name, 512 if target.family == "cdna" else 1024), target.lds_bytes


def amd_occupancy(target: arch.Target, threads: int, vgprs: int, sgprs: int, lds: int, wgp: bool) -> float:
    units = 2 if wgp else 1  # CUs that a block's waves may run on
    granule, file = _lds_file(target)
    waves = math.ceil(threads / target.wave)
    by_registers = min(_waves_by_vgprs(target, vgprs), _waves_by_sgprs(target, sgprs))
    if lds > target.lds_bytes or threads > target.max_threads:
        return 0
    # A block of one wave needs no barrier; others take one of so many.
    barriers = math.inf if waves == 1 else 16 * units
    return _occupancy(target.simds * units, waves, by_registers, barriers, file * units, up(lds, granule))


def amd_occupancy_of(
    target: arch.Target, threads: int, facts: Mapping[str, int], descriptor: Mapping[str, int], lds: int
) -> float:
    """By what a kernel's metadata and descriptor tell of it; `lds` are all of a block's bytes."""
    # clang takes more registers than a kernel uses where more waves could not run anyway.
    vgprs = max(facts.get("vgpr_count", 0), descriptor.get("next_free_vgpr", 0))
    # Over both CUs of a work-group processor: clang's default on RDNA.
    whole = target.family.startswith("rdna") and bool(facts.get("workgroup_processor_mode", 1))
    return amd_occupancy(target, threads, vgprs, facts.get("sgpr_count", 0), lds, whole)


def waves_beside(target: arch.Target, waves: int, lds: int) -> int:
    """How many waves a SIMD of an AMD target has at most of blocks of so many waves and bytes of shared memory."""
    return math.ceil(amd_occupancy(target, waves * target.wave, 1, 0, lds, target.family.startswith("rdna")))


@dataclass(frozen=True)
class _Sm:
    """CUDA C Programming Guide, technical specifications per compute capability."""

    warps: int
    blocks: int


_SMS = {
    "sm_80": _Sm(64, 32),
    "sm_86": _Sm(48, 16),
    "sm_89": _Sm(48, 24),
    "sm_90": _Sm(64, 32),
    "sm_90a": _Sm(64, 32),
}
_REGISTERS = 65536 // 4  # of a quarter of an SM, given out to warps in granules of 256
RESERVED_SHARED = 1024  # bytes of shared memory that every block takes beside its own


def nvidia_occupancy(target: arch.Target, threads: int, registers: int, shared: int) -> float:
    sm, warps = _SMS[target.name], math.ceil(threads / target.wave)
    if shared > target.lds_bytes or threads > target.max_threads:
        return 0
    by_registers = min(_REGISTERS // up(registers * target.wave, 256), sm.warps // target.simds)
    file = target.lds_bytes + RESERVED_SHARED
    return _occupancy(target.simds, warps, by_registers, sm.blocks, file, up(shared + RESERVED_SHARED, 128))


def _occupancy(simds: int, waves: int, by_registers: int, most_blocks: float, file: int, lds: int) -> float:
    """Waves per SIMD with as many blocks as fit; a block's waves spread over the SIMDs evenly."""
    blocks = min(by_registers * simds // waves, most_blocks, file // lds if lds else math.inf)
    return blocks * waves / simds
