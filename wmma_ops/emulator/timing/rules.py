"""The numbers of each family, each with its source. Cycles, bytes, or how many.

Sources:
    gluon       ROCm/gfx950-gluon-tutorials: traces on MI355X and MI300X, its docs and READMEs
    calculator  AMD's matrix instruction calculator (ROCm/amd_matrix_instruction_calculator)
    pyhip       tingqli/pyhip: microbenchmarks on MI300X
    banks       rocm.blogs.amd.com, "Avoiding LDS bank conflicts on AMD GPUs"
    hipkittens  HazyResearch/HipKittens, README and paper
    mt4g        caps-tum/mt4g: pointer chases on MI210, MI300X, MI300A, MI350P
    nod         nod-ai/SHARK-Platform, amdgpu_kernel_optimization_guide.md: MI300's caches
    omniperf    ROCm/rocprofiler-compute, pipeline descriptions
    clrx        CLRX, GcnTimings.md
    tinygrad    tinygrad's thread traces of gfx950, gfx1100 and gfx1200, decoded
    triton      facebookexperimental/triton#2507: microbenchmarks on MI355X
    isa         AMD's ISA documents of the family
    assumed     as its nearest relative has it: no public measurement is known
"""

import dataclasses
from dataclasses import dataclass

from wmma_ops.hardware import arch

FAMILIES = ("cdna2", "cdna3", "cdna4", "rdna3", "rdna4")


@dataclass(frozen=True)
class Rules:
    """Of one family."""

    simds: int  # of a compute unit; of RDNA's pair of them, a WGP
    issue: int  # cycles from a wave's instruction to its next
    # VALU
    valu: int  # cycles that an instruction holds its SIMD's port
    valu_latency: int  # from its issue to that of one that needs its result
    transcendental: int  # as `valu`
    # Matrix instructions: how long one runs, arch.py knows.
    matrix_latency: int  # from a matrix instruction's end to one that adds to its result
    matrix_to_valu: int  # … to a VALU instruction, or one that multiplies the result
    valu_beside: int  # cycles after a matrix instruction's issue before the SIMD's VALU may issue; 0: not while it runs
    packed_behind: int  # cycles after a wave's matrix instruction before its packed float32 one
    # LDS
    lds_issue: int  # cycles that an instruction holds its SIMD's port to memory
    lds_bytes: int  # that all banks give in a cycle
    lds_path: int  # bytes a cycle to the SIMDs that share a path
    lds_sharing: int  # SIMDs that share one, with one queue
    lds_queue: int  # of instructions
    lds_latency: int  # beside what its path takes, from issue to the data
    lds_write_address: int  # a write holds its wave for so long, and then for its data
    lds_write_bytes: int  # that a wave gives in a cycle
    lds_written: int  # bytes a cycle that all waves together write
    # Vector memory
    vmem_issue: int
    vmem_queue: int  # of instructions
    vmem_bytes: int  # on their way, beside those in the queue
    cache_bytes: int  # of the first cache, that a compute unit has
    cache_line: int
    cache_ways: int
    cache_latency: int  # of what it holds
    cache_path: int  # bytes a cycle that it gives
    l2_path: int  # bytes a cycle that a unit gets of what its cache does not hold
    l2_latency: int
    l2_miss: int  # of as many bytes from L2 one load, on the average, has to wait for what lies behind it; 0: none
    l2_miss_latency: int  # for so long, beside `l2_latency`
    # Others
    scalar_latency: int
    scalar_memory_latency: int
    barrier: int  # from the last arrival
    nop: int  # cycles of one wait state


_FIGURES: dict[str, tuple[tuple[int, int, int, int, int], str, str]] = {
    # name: (of each family, source, the families for which it was measured)
    "simds": ((4, 4, 4, 4, 4), "isa", "cdna2 cdna3 cdna4 rdna3 rdna4"),
    "issue": (
        (4, 4, 4, 1, 1),
        "clrx: a SIMD has its turn every fourth cycle; tinygrad: gfx950's stamps",
        "cdna3 cdna4",
    ),
    "valu": ((4, 4, 4, 1, 1), "gluon, isa", "cdna3 cdna4"),
    "valu_latency": ((4, 4, 4, 5, 5), "tinygrad: gfx950, gfx1100, gfx1200; AITER's loops", "cdna3 cdna4 rdna3 rdna4"),
    "transcendental": ((16, 16, 8, 4, 4), "gluon, isa", "cdna3 cdna4"),
    "matrix_latency": ((0, 0, 0, 0, 0), "gluon: loops of pairs that depend run at 96 to 99 %; triton says 2", "cdna4"),
    "matrix_to_valu": ((12, 12, 12, 0, 0), "LLVM's hazards: 8 passes, 11 wait states", "cdna3 cdna4"),
    "valu_beside": ((8, 8, 8, 0, 0), "gluon", "cdna3 cdna4"),
    "packed_behind": ((12, 12, 12, 0, 0), "gluon", "cdna3 cdna4"),
    "lds_issue": ((4, 4, 4, 1, 1), "gluon", "cdna3 cdna4"),
    "lds_bytes": ((128, 128, 256, 256, 256), "gluon, isa", "cdna3 cdna4"),
    "lds_path": ((64, 64, 128, 128, 128), "omniperf: 64 for each pair of SIMDs; pyhip; gluon", "cdna2 cdna3 cdna4"),
    "lds_sharing": ((2, 2, 2, 2, 2), "omniperf, gluon", "cdna2 cdna3 cdna4"),
    "lds_queue": ((8, 8, 8, 8, 8), "gluon", "cdna3 cdna4"),
    "lds_latency": (
        (48, 48, 48, 40, 43),
        "mt4g; pyhip: 52 for 4 bytes a lane, 64 for 16, of which the path takes 4 and 16; tinygrad: 37 to 45",
        "cdna2 cdna3 cdna4 rdna3 rdna4",
    ),
    "lds_write_address": ((4, 4, 4, 1, 1), "gluon", "cdna3"),
    "lds_write_bytes": ((64, 64, 64, 64, 64), "gluon: 16 cycles for 16 bytes a lane", "cdna3"),
    "lds_written": ((74, 74, 75, 256, 256), "mt4g: MI300A, MI350P", "cdna3 cdna4"),
    "vmem_issue": ((4, 4, 4, 1, 1), "gluon", "cdna3 cdna4"),
    "vmem_queue": ((12, 12, 12, 12, 12), "gluon", "cdna3 cdna4"),
    "vmem_bytes": ((16384, 32768, 32768, 32768, 32768), "gluon; the size of L1", "cdna3 cdna4"),
    "cache_bytes": ((16384, 32768, 32768, 32768, 32768), "isa", "cdna2 cdna3 cdna4 rdna3 rdna4"),
    "cache_line": ((64, 128, 128, 128, 128), "isa", "cdna2 cdna3 cdna4 rdna3 rdna4"),
    "cache_ways": ((64, 64, 64, 16, 16), "nod: 64 ways of 4 sets on MI300X", "cdna3"),
    "cache_latency": (
        (124, 116, 112, 116, 116),
        "mt4g: pointers followed on MI210, MI300X, MI350P",
        "cdna2 cdna3 cdna4",
    ),
    "cache_path": ((64, 64, 64, 64, 64), "isa", ""),
    "l2_path": (
        (54, 54, 54, 45, 45),
        "gluon's eight tiles, with what follows; CDNA3's white paper has 2 KB a cycle for 38 units. RDNA's is assumed",
        "cdna4",
    ),
    "l2_latency": ((600, 600, 600, 300, 300), "gluon: a loop's, where few ask", "cdna3 cdna4"),
    "l2_miss": (
        (155648, 155648, 155648, 0, 0),
        "fitted to gluon's eight tiles, of which five are bound by memory and two nearly are",
        "cdna4",
    ),
    "l2_miss_latency": ((520, 520, 520, 0, 0), "fitted likewise; triton: HBM's 800 in all where few ask", "cdna4"),
    "scalar_latency": ((4, 4, 4, 2, 2), "isa", ""),
    "scalar_memory_latency": (
        (175, 175, 167, 175, 175),
        "mt4g: 48 of what the cache holds, 119 to 127 more",
        "cdna2 cdna3 cdna4",
    ),
    "barrier": ((8, 8, 8, 14, 13), "gluon; tinygrad: gfx1100, gfx1200", "cdna3 cdna4 rdna3 rdna4"),
    "nop": ((4, 4, 4, 1, 1), "isa", "cdna3 cdna4"),
}


def family(target: str) -> str:
    """A target's row in the table."""
    base = target.split(":")[0]
    found = {"gfx90a": "cdna2", "gfx942": "cdna3", "gfx950": "cdna4"}.get(base) or arch.target(base).family
    if found not in FAMILIES:
        raise ValueError(f"{target}: there are no rules of its time; there are {', '.join(FAMILIES)}")
    return found


def rules(target: str) -> Rules:
    at = FAMILIES.index(family(target))
    return Rules(**{name: values[at] for name, (values, *_) in _FIGURES.items()})


def not_validated(target: str) -> tuple[str, ...]:
    """The rules that nothing measured on this family stands behind."""
    return tuple(name for name, (*_, measured) in _FIGURES.items() if family(target) not in measured.split())


def source(name: str) -> str:
    """Where a rule's numbers are from."""
    return _FIGURES[name][1]


assert [field.name for field in dataclasses.fields(Rules)] == list(_FIGURES)
