"""Occupancy: how many waves a SIMD has at once of a kernel.

It is waves per SIMD with as many whole blocks as fit by registers, LDS, barriers and wave slots. On RDNA a block
has both CUs of a work-group processor, unless the code was compiled for one. VGPRs and LDS are given out in granules,
which the rows of targets have (LLVM's AMDGPUUsage, getVGPRAllocGranule and getTotalNumVGPRs; its GRANULATED_LDS_SIZE;
Mesa's lds_alloc_granularity). clang's own "Occupancy" rounds neither LDS nor to whole blocks, and so may be higher.
"""

import math
from collections.abc import Mapping

from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import up


def _waves_by_vgprs(target: arch.Target, vgprs: int) -> int:
    granule, total = target.vgpr_file
    return min(total // up(max(vgprs, 1), granule), target.most_waves)


def _waves_by_sgprs(target: arch.Target, sgprs: int) -> int:
    if target.family != "cdna":  # every wave has all of them
        return target.most_waves
    return min(next((waves for most, waves in ((80, 10), (88, 9), (100, 8)) if sgprs <= most), 7), target.most_waves)


def amd_occupancy(target: arch.Target, threads: int, vgprs: int, sgprs: int, lds: int, wgp: bool) -> float:
    units = 2 if wgp else 1  # CUs that a block's waves may run on
    waves = math.ceil(threads / target.wave)
    by_registers = min(_waves_by_vgprs(target, vgprs), _waves_by_sgprs(target, sgprs))
    if lds > target.lds_bytes or threads > target.max_threads:
        return 0
    # A block of one wave needs no barrier; others take one of so many.
    barriers = math.inf if waves == 1 else 16 * units
    taken = up(lds, target.lds_granule)
    return _occupancy(target.simds * units, waves, by_registers, barriers, target.lds_bytes * units, taken)


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


_REGISTERS = 65536 // 4  # of a quarter of an SM, given out to warps in granules of 256
RESERVED_SHARED = 1024  # bytes of shared memory that every block takes beside its own


def nvidia_occupancy(target: arch.Target, threads: int, registers: int, shared: int) -> float:
    warps = math.ceil(threads / target.wave)
    if shared > target.lds_bytes or threads > target.max_threads:
        return 0
    by_registers = min(_REGISTERS // up(registers * target.wave, 256), target.most_waves)
    file = target.lds_bytes + RESERVED_SHARED
    return _occupancy(target.simds, warps, by_registers, target.most_blocks, file, up(shared + RESERVED_SHARED, 128))


# Registers by the planner's estimate, up to which compilers spill none of attention's forward loop and of its gradients':
# what they take beside it differs.
_ESTIMATED = {
    "cdna": (204, 400), "rdna3": (170, 190), "rdna4": (180, 200), "gfx1250": (184, 200),
    "sm80": (256, 255), "sm89": (256, 255), "sm90": (256, 255),
}  # fmt: skip


def most_estimated(target: arch.Target, gradients: bool = False) -> int:
    return _ESTIMATED[target.family][gradients]


def _occupancy(simds: int, waves: int, by_registers: int, most_blocks: float, file: int, lds: int) -> float:
    """Waves per SIMD with as many blocks as fit; a block's waves spread over the SIMDs evenly."""
    blocks = min(by_registers * simds // waves, most_blocks, file // lds if lds else math.inf)
    return blocks * waves / simds
