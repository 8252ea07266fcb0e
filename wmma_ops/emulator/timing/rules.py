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
    transcendental: int  # as `valu`; on RDNA it holds a unit of its own
    # RDNA: VALU and matrix instructions wait in a queue before their SIMD, and begin in order
    vector_queue: int  # so many at most; 0: they issue as they begin
    vector_address: (
        int  # from one's begin to memory's or LDS's issue that reads its result, or overwrites what it reads
    )
    vector_scalar: int  # … to a scalar one's that reads its result
    scalar_vector: int  # from a scalar one's issue to the begin of one that reads its result
    scalar_over_vector: int  # from the begin of one that reads scalars to the issue of a scalar one that writes any
    memory_start: int  # from a load's or store's issue to its begin
    memory_over: int  # … and from there to the issue of one that overwrites its address
    awaited_vector: int  # from one's begin to the end of an `s_wait_alu` for it
    awaited_scalar: int  # from a scalar one's issue, likewise
    condition: int  # from a scalar instruction to a branch that asks for its condition
    branch_taken: int  # from a branch to what follows
    branch_passed: int
    clause: int  # what `s_clause` waits before it issues
    scalar_nop: int  # from a scalar instruction to `s_nop`
    # Matrix instructions: how long one runs, arch.py knows.
    matrix_latency: int  # from a matrix instruction's end to one that adds to its result
    matrix_to_valu: int  # … to a VALU instruction, or one that multiplies the result; RDNA: as behind VALU
    matrix_switch: int  # RDNA: cycles of the pipe between a VALU instruction and a matrix one behind it
    matrix_start: int  # RDNA: from a matrix instruction's issue to its first cycle, at least
    matrix_sums: int  # … so many more where it adds to registers
    valu_beside: int  # cycles after a matrix instruction's issue before the SIMD's VALU may issue, on CDNA
    packed_behind: int  # cycles after a wave's matrix instruction before its packed float32 one
    # LDS
    lds_issue: int  # cycles that an instruction holds its SIMD's port to memory
    lds_bytes: int  # that all banks give in a cycle
    lds_path: int  # bytes a cycle to the SIMDs that share a path
    lds_sharing: int  # SIMDs that share one, with one queue
    lds_queue: int  # of instructions
    lds_latency: int  # beside what its path takes, from issue to the data
    lds_store_latency: int  # from a store to the end of a wait for it
    lds_write_address: int  # a write holds its wave for so long, and then for its data
    lds_write_bytes: int  # that a wave gives in a cycle
    lds_written: int  # bytes a cycle that all waves together write
    # Vector memory
    caches: int  # of a compute unit; of a WGP one for each half of its SIMDs. What follows is of one
    vmem_issue: int
    vmem_queue: int  # of instructions
    vmem_bytes: int  # on their way, beside those in the queue
    cache_bytes: int  # of the first cache
    cache_line: int
    cache_ways: int
    cache_latency: int  # of what it holds
    cache_path: int  # bytes a cycle that it gives
    l2_path: int  # bytes a cycle that it gets of what it does not hold
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
        "clrx: a SIMD has its turn every fourth cycle; tinygrad: stamps of gfx950, gfx1100, gfx1201",
        "cdna3 cdna4 rdna3 rdna4",
    ),
    "valu": ((4, 4, 4, 1, 1), "gluon, isa; tinygrad: 34,500 gaps", "cdna3 cdna4 rdna3 rdna4"),
    "valu_latency": ((4, 4, 4, 5, 5), "tinygrad: gfx950, gfx1100, gfx1200; AITER's loops", "cdna3 cdna4 rdna3 rdna4"),
    "transcendental": ((16, 16, 8, 4, 4), "gluon, isa; tinygrad: 184 on gfx1201", "cdna3 cdna4 rdna4"),
    "vector_queue": (
        (0, 0, 0, 8, 8),
        "tinygrad: of one wave, 1,656 gaps, or of eight, 9,600; gfx1100 by these",
        "rdna4",
    ),
    "vector_address": ((0, 0, 0, 16, 17), "tinygrad: 92 gaps on gfx1100, 112 on gfx1201", "rdna3 rdna4"),
    "vector_scalar": ((0, 0, 0, 15, 15), "tinygrad: 20 gaps on gfx1100", "rdna3"),
    "scalar_vector": ((0, 0, 0, 8, 8), "tinygrad: 20 gaps on either", "rdna3 rdna4"),
    "scalar_over_vector": ((0, 0, 0, 4, 6), "tinygrad: 357 gaps on gfx1100, 252 on gfx1200", "rdna3 rdna4"),
    "memory_start": ((0, 0, 0, 4, 4), "tinygrad: pipes' stamps", "rdna3 rdna4"),
    "memory_over": ((0, 0, 0, 5, 5), "tinygrad: 320 gaps on gfx1100; more where memory is busy", "rdna3 rdna4"),
    "awaited_vector": ((0, 0, 0, 15, 15), "tinygrad: 560 gaps on gfx1200 and gfx1201", "rdna4"),
    "awaited_scalar": ((0, 0, 0, 8, 8), "tinygrad: 352 gaps on gfx1200 and gfx1201", "rdna4"),
    "condition": ((4, 4, 4, 1, 10), "tinygrad: 640 gaps on gfx1201", "rdna3 rdna4"),
    "branch_taken": ((4, 4, 4, 27, 10), "tinygrad: 300 gaps on gfx1100, 942 of 9 to 14 on gfx1201", "rdna3 rdna4"),
    "branch_passed": ((4, 4, 4, 3, 3), "tinygrad", "rdna3 rdna4"),
    "clause": ((0, 0, 0, 2, 2), "tinygrad: 660 gaps on gfx1100, 528 on gfx1200", "rdna3 rdna4"),
    "scalar_nop": ((0, 0, 0, 4, 4), "tinygrad: gfx1201", "rdna4"),
    "matrix_latency": ((0, 0, 0, 0, 0), "gluon: loops of pairs that depend run at 96 to 99 %; triton says 2", "cdna4"),
    "matrix_to_valu": ((12, 12, 12, 0, 0), "LLVM's hazards: 8 passes, 11 wait states", "cdna3 cdna4"),
    "matrix_switch": ((0, 0, 0, 1, 1), "tinygrad: pipes' stamps of gfx1201, 2,936 products", "rdna4"),
    "matrix_start": ((0, 0, 0, 5, 5), "tinygrad: likewise", "rdna4"),
    "matrix_sums": ((0, 0, 0, 2, 2), "tinygrad: likewise, 376 products", "rdna4"),
    "valu_beside": ((8, 8, 8, 0, 0), "gluon", "cdna3 cdna4"),
    "packed_behind": ((12, 12, 12, 0, 0), "gluon", "cdna3 cdna4"),
    "lds_issue": ((4, 4, 4, 1, 1), "gluon", "cdna3 cdna4"),
    "lds_bytes": ((128, 128, 256, 256, 256), "gluon, isa", "cdna3 cdna4"),
    "lds_path": ((64, 64, 128, 128, 128), "omniperf: 64 for each pair of SIMDs; pyhip; gluon", "cdna2 cdna3 cdna4"),
    "lds_sharing": ((2, 2, 2, 2, 2), "omniperf, gluon", "cdna2 cdna3 cdna4"),
    "lds_queue": ((8, 8, 8, 8, 8), "gluon", "cdna3 cdna4"),
    "lds_latency": (
        (48, 48, 48, 31, 31),
        "mt4g; pyhip: 52 for 4 bytes a lane, 64 for 16, of which the path takes 4 and 16; tinygrad: 31 to 33",
        "cdna2 cdna3 cdna4 rdna3 rdna4",
    ),
    "lds_store_latency": ((0, 0, 0, 30, 30), "tinygrad: 33 with the wait, 80 gaps", "rdna3 rdna4"),
    "lds_write_address": ((4, 4, 4, 1, 1), "gluon", "cdna3"),
    "lds_write_bytes": ((64, 64, 64, 64, 64), "gluon: 16 cycles for 16 bytes a lane", "cdna3"),
    "lds_written": ((74, 74, 75, 256, 256), "mt4g: MI300A, MI350P", "cdna3 cdna4"),
    "caches": ((1, 1, 1, 2, 2), "isa", "cdna2 cdna3 cdna4 rdna3 rdna4"),
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
    "l2_latency": (
        (600, 600, 600, 435, 365),
        "gluon: a loop's, where few ask; tinygrad: the least of 1,648 and 1,675 loads",
        "cdna3 cdna4 rdna3 rdna4",
    ),
    "l2_miss": (
        (155648, 155648, 155648, 0, 0),
        "fitted to gluon's eight tiles, of which five are bound by memory and two nearly are",
        "cdna4",
    ),
    "l2_miss_latency": ((520, 520, 520, 0, 0), "fitted likewise; triton: HBM's 800 in all where few ask", "cdna4"),
    "scalar_latency": ((4, 4, 4, 1, 1), "isa; tinygrad: gfx1100, gfx1201", "rdna3 rdna4"),
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
