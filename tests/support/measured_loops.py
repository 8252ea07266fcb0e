"""Loops whose share of the matrix pipe was measured on the hardware and published: what is in them, in order.

Rebuilt from what their documents print or say of them; `source` names the document. A word is a kind of instruction and how
many of it follow each other; 8(R M2) repeats what is in the brackets.

    M  multiplies (16x16x16 on gfx942, 16x16x32 on gfx950; float16)
    R  reads 16 bytes a lane from shared memory          W  writes as many
    G  loads 16 bytes a lane: gfx942 to registers, gfx950 straight to shared memory, with M0 set before
    B  a barrier        C  v_accvgpr_mov        S  a scalar instruction        V  a vector one
    vm3, lg0  waits until so many loads, accesses to shared memory are on their way     p1  a priority     n6  s_nop 6
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.timing import Executed, operation, rules, run, shared_memory

CDNA3, CDNA4 = "gfx942", "gfx950"


@dataclass(frozen=True)
class Loop:
    name: str
    target: str
    step: str
    measured: float  # percent
    source: str
    waves: int = 4
    late: bool = False  # half of the waves pass a barrier more at first
    reads: str = "free"  # where in shared memory: of PLACES


def _place(row: int, phases: int | None = None) -> np.ndarray:
    """Of 64 lanes that read 16 lines of `row` bytes, 16 bytes each; lines that share a phase of eight are neighbours."""
    line, piece = np.arange(64) % 16, np.arange(64) // 16
    return line * row + (piece if phases is None else piece ^ line // phases % 8) * 16


# Lines of 64 half-precision numbers.
PLACES = {
    "free": np.arange(64) * 16,
    "plain": _place(128),
    "swizzled by lines": _place(128, 1),
    "swizzled by pairs of lines": _place(128, 2),
}


def words(step: str) -> list[str]:
    """A step's words, one an instruction."""
    while found := re.search(r"(\d+)\(([^()]*)\)", step):
        step = step[: found.start()] + f" {found[2]} " * int(found[1]) + step[found.end() :]
    return [
        word if word[0].islower() else word[0]
        for word in step.split()
        for _ in range(1 if word[0].islower() else int(word[1:] or 1))
    ]


def lines(step: str, target: str) -> list[str]:
    load = {
        CDNA3: ["buffer_load_dwordx4 v[20:23], v201, s[8:11], 0 offen"],
        CDNA4: ["s_mov_b32 m0, s4", "s_nop 0", "buffer_load_dwordx4 v201, s[8:11], 0 offen lds"],
    }[target]
    kinds = {
        "R": ["ds_read_b128 v[16:19], v200"], "W": ["ds_write_b128 v200, v[24:27]"], "G": load, "B": ["s_barrier"],
        "C": ["v_accvgpr_mov_b32 a250, a251"], "S": ["s_add_i32 s5, s6, s7"], "V": ["v_add_u32_e32 v30, v31, v32"],
    }  # fmt: skip
    told = {"vm": "s_waitcnt vmcnt({})", "lg": "s_waitcnt lgkmcnt({})", "p": "s_setprio {}", "n": "s_nop {}"}
    product = {CDNA3: "v_mfma_f32_16x16x16_f16 {0}, v[0:1], v[4:5], {0}",
               CDNA4: "v_mfma_f32_16x16x32_f16 {0}, v[0:3], v[4:7], {0}"}[target]  # fmt: skip
    found, products = [], 0
    for word in words(step):
        if word == "M":
            first = 4 * (products // 2 % 60)  # two in a row add to one sum, as Triton orders them on gfx950
            found.append(product.format(f"a[{first}:{first + 3}]"))
            products += 1
        elif word[0].islower():
            kind, count = re.fullmatch(r"([a-z]+)(\d+)", word).groups()
            found.append(told[kind].format(count))
        else:
            found += kinds[word]
    return found


def share(loop: Loop, few: int = 10, many: int = 100) -> float:
    """Percent of the matrix pipe, by the clock."""
    found = rules(loop.target)
    banks = shared_memory.cycles(found, PLACES[loop.reads], 16, False)
    step = [
        Executed(op, banks if op.text.startswith("ds_read") else None, number=number)
        for number, line in enumerate(lines(loop.step, loop.target))
        for op in [operation(parse_instruction(line), loop.target)]
    ]
    barrier = Executed(operation(parse_instruction("s_barrier"), loop.target), number=len(step))

    def waves(rounds: int) -> list[tuple[int, Sequence[Executed]]]:
        one = step * rounds
        if not loop.late:
            return [(0, one)] * loop.waves
        return [(0, [*one, barrier])] * (loop.waves // 2) + [(0, [barrier, *one])] * (loop.waves // 2)

    short, long = (run(waves(rounds), found, 64) for rounds in (few, many))
    return 100 * (long.matrix_cycles - short.matrix_cycles) / (long.cycles - short.cycles)


# In ROCm/gfx950-gluon-tutorials.
_TILES = "docs/tcp_bound_tile_model.md, its scheduler's rules"
_NOTE = "kernels/gemm/gfx942/intra_wave/note.md"
_EIGHT = "kernels/gemm/gfx942/inter_wave/README.md"
_STEPS = "kernels/gemm/intra_wave/a16w16, READMEs and dumps"


def _tile(regions: Sequence[str], counts: Sequence[int]) -> str:
    return " ".join(region.replace("w", f"vm{count} lg0 B", 1) for region, count in zip(regions, counts, strict=True))


_A, _B = "w R4 G M2 G M4 G M4 G M6", "w R3 M R M R M R M R M R M G M4 G M6"
_C, _D, _E, _F = "w R6 R M R M G M6", "w R2 G3 M2 G M6", "w R4 G M4", "w R2 G2 M4"
_SUMMED = "M2 w R M2 R2 M2 R2 M2 R2 M2 R G M4 G M4 G M4 G M10"

# A quarter of the step of gfx942's four waves, from its first read; 28 products are elsewhere.
_WRITTEN = "W M2 W M2 W M2 W M1 G M2 G M4 G M4 G M5"
_SPREAD = f"8(R M2) {_WRITTEN}"
_PARTED = "7(R M2) R {} M23 W M1 W M2 W M2 W M1 G M2 G M4 G M4 G M5"
_TWO_BARRIERS = " ".join(f"{head} {_PARTED.format('M2')}" for head in ("M2 lg0 B M2", "M4", "M2 lg4 B M2", "M4"))
_EIGHT_WAVES = "p1 G4 R8 p0 B lg0 M32 B p1 G4 R4 p0 B lg0 M32 B p1 R8 vm4 W4 p0 B lg0 M32 B p1 R4 vm0 W4 p0 B lg0 M32 B"
_AT_ONCE = "lg0 B 16(S V G) V vm0 B R16 V2 R16 lg0 M128"
_COPIED = "C4 n1 M2 n6"  # a sum that is copied to where it is added to
_PAIRS, _LINES = "swizzled by pairs of lines", "swizzled by lines"

LOOPS = (
    *(
        Loop(f"gfx950, tile {name}", CDNA4, _tile(regions, counts), measured, _TILES)
        for name, regions, counts, measured in (
            ("256x256", [_SUMMED] * 4, (20, 20, 20, 20), 96),
            ("256x128", [_B, _A, _A, _B], (14, 14, 16, 16), 83),
            ("128x256", [_A, _B, _B, _A], (16, 16, 14, 14), 84),
            ("128x128", ["w R4 G M2 G M6"] * 4, (10, 10, 10, 10), 69),
            ("256x64", [_C, _D, _D, _C], (11, 11, 14, 14), 55),
            ("64x256", [_D, _C, _C, _D], (14, 14, 11, 11), 57),
            ("128x64", [_E, _F, _F, _E], (7, 7, 8, 8), 47),
            ("64x128", [_F, _E, _E, _F], (8, 8, 7, 7), 47),
        )
    ),
    Loop("gfx942, 4 waves, as ported", CDNA3,
         "lg0 B R4 M1 R4 M3 lg0 B M1 R3 M1 vm15 W1 vm14 W2 vm12 W1 G2 M1 G2 W4 M1 G4 M23 R1 M1 R1 M46 "
         "R1 M1 R1 M1 R1 lg0 B W4 G3 W4 G5 M72 R3 M7 R3 M65 R3 M12 R3 M10 R3 M2 R1 M8",
         69.7, _NOTE, reads=_PAIRS),
    Loop("gfx942, 4 waves, interleaved", CDNA3,
         f"M1 lg0 B M25 8(R M2) M2 lg0 B {_WRITTEN} M25 {_SPREAD} M1 lg0 B M25 {_SPREAD} M25 {_SPREAD}",
         76.7, _NOTE, reads=_PAIRS),
    Loop("gfx942, 4 waves, products between reads and writes", CDNA3,
         f"M2 lg0 B M2 {_PARTED.format('M2 lg0 B')} M4 {_PARTED.format('M2')} M2 lg0 B M2 {_PARTED.format('M2')} "
         f"M4 {_PARTED.format('M2')}",
         84.0, _NOTE, reads=_PAIRS),
    Loop("gfx942, 4 waves, two barriers", CDNA3, _TWO_BARRIERS, 89.0, _NOTE, reads=_PAIRS),
    Loop("gfx942, 4 waves, two barriers, no conflicts", CDNA3, _TWO_BARRIERS, 89.3, _NOTE, reads=_LINES),
    Loop("gfx942, 4 waves, two barriers, nothing written", CDNA3, _TWO_BARRIERS.replace(" W ", " "), 96.3, _NOTE,
         reads=_PAIRS),
    Loop("gfx942, 8 waves in two groups, conflicts", CDNA3, _EIGHT_WAVES, 88.3, _EIGHT + ": 9.9 % more cycles",
         8, True, _PAIRS),
    Loop("gfx942, 8 waves in two groups", CDNA3, _EIGHT_WAVES, 98, _EIGHT, 8, True, _LINES),
    Loop("gfx950, 8 waves in two groups", CDNA4,
         " ".join(f"vm10 B p0 lg0 M16 p1 B R{reads} G2" for reads in (8, 4, 4, 8)),
         99.8, "kernels/gemm/inter_wave/a16w16", 8, True),
    Loop("gfx950, loads waited for, lines as they are", CDNA4, _AT_ONCE, 33.0, _STEPS, reads="plain"),
    Loop("gfx950, loads waited for, lines padded", CDNA4, _AT_ONCE, 41.7, _STEPS),
    Loop("gfx950, two buffers", CDNA4, "lg0 B 16(S V G) V vm16 lg0 B R16 V2 R16 lg14 8(M C3) lg0 M120", 57, _STEPS),
    Loop("gfx950, reads a step ahead", CDNA4, "vm0 lg0 B 14(S V G) M S G S V G M124 M3 R16 V3 R16", 57.7, _STEPS),
    Loop("gfx950, reads a step ahead, interleaved", CDNA4,
         "vm0 B M8 15(G M4) G M1 S5 B V2 16(R M1) V4 16(R M1) M3 V4 S5 lg14 15(C5) lg0 C5 M24", 80, _STEPS),
    Loop("gfx950, N sliced, interleaved, sums copied", CDNA4,
         f"lg0 M4 vm16 lg0 B 8(R M) M4 6(G {_COPIED} M2) 6(G M4) "
         f"lg0 6({_COPIED}) M8 vm16 lg0 B 24(R M) M2 G M4 G M4 G M4 G M6", 82.1, _STEPS),
    Loop("gfx950, N sliced, interleaved, sums in AGPRs", CDNA4,
         "lg0 M4 vm16 lg0 B 8(R M) M4 12(G M4) lg0 M20 vm16 lg0 B 24(R M) M2 G M4 G M4 G M4 G M6",
         98.0, _STEPS + "; with its scalars at the end of a round 95.5"),
)  # fmt: skip


@dataclass(frozen=True)
class Dump:
    """A kernel's assembly that others have published, or that Triton makes of their source."""

    path: str  # its end; the first that fits is meant
    name: str
    measured: float  # percent
    k: int = 0  # where the kernel has its value in it


DUMPS = (
    Dump("8-2-8/a16w16_inter_wave_gfx942.amdgcn", "gfx942, 8 waves in two groups, swizzle (8, 2, 8)", 88.3),
    Dump("a16w16_inter_wave_gfx942.amdgcn", "gfx942, 8 waves in two groups, swizzle (8, 1, 8)", 98),
    Dump("a16w16_intra_wave_gfx942.amdgcn", "gfx942, 4 waves, as Triton schedules it", 69.7),
    Dump("v2_async_copy.amdgcn", "gfx950, v2", 33.0),
    Dump("no_swizzling/v3_lds_swizzling.amdgcn", "gfx950, v3, as v2", 33.0),
    Dump("v3_lds_padding.amdgcn", "gfx950, v3", 41.7),
    Dump("v4_global_prefetch.amdgcn", "gfx950, v4", 51.9),
    Dump("_llirSched/v5_local_prefetch.amdgcn", "gfx950, v5, interleaved", 80),
    Dump("v5_local_prefetch.amdgcn", "gfx950, v5", 57.7),
    Dump("v7_sliceN/ir_dump_K8192_fp16_llirSched/v7_slice.amdgcn", "gfx950, v7, interleaved", 82.1, 8192),
    Dump("v7_slice/ir_dump_K8192_fp16_llirSched_RA/v7_slice.amdgcn", "gfx950, v7, sums in AGPRs", 95.5, 8192),
    Dump("v7_slice/ir_dump_K8192_fp16_llirSched_amdgcnas/v7_slice.amdgcn", "gfx950, v7, and scalars apart", 98.0, 8192),
    Dump("v8_sliceMN.amdgcn", "gfx950, v8, as Triton schedules it", 69),
    Dump("v9_cd_regclass_llirsched.amdgcn", "gfx950, v9, sums in AGPRs", 94),
    Dump("a16w16_kernel.amdgcn", "gfx950, 8 waves in two groups", 99.8),
)
