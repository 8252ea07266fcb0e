"""The figures of AMD's code.

**The model** is one iteration of the hot loop, by one block, on one CU, with each unit at its published peak:

- matrix: the cycles of `arch.py`'s table; VALU: 4 cycles an instruction of 64 lanes on CDNA, 1 of 32 lanes on RDNA. Every
  VALU instruction takes as long as every other, transcendental, 64-bit and cross-lane ones too; v_dual_… is one. Moves to
  and from AGPRs are VALU. The block's waves spread evenly over the CU's SIMDs: 4 on CDNA, 2 on RDNA.
- LDS: the bytes that all lanes of all waves move, without bank conflicts, over the bytes that a CU's LDS moves in a clock.
- vector memory: the bytes that all lanes ask for, over 64 a clock.

`share` is the matrix units' part of the busiest unit's time: 1 where nothing but the matrix units can limit the loop. RDNA
issues matrix and VALU instructions to one unit: there the two add up. Waiting, latency and issue limits are left out, so
this is a bound, not a forecast.
"""

import dataclasses
import functools
import re
from collections import Counter
from collections.abc import Iterable

from wmma_ops.analysis.figures_record import Figures, Mix
from wmma_ops.analysis.hot_loop import hot_loop
from wmma_ops.emulator.assembly import Instruction, KernelText, class_of, parse
from wmma_ops.emulator.timing.operations import matrix_cycles
from wmma_ops.hardware import arch
from wmma_ops.hardware.occupancy import amd_occupancy_of
from wmma_ops.jit import metadata
from wmma_ops.jit.compiler import CodeObject

_VMEM_BYTES_PER_CLOCK = 64  # of a CU's first cache


def figures(code: CodeObject, target: arch.Target, threads: int, shared: int, name: str) -> Figures:
    text = parse(code.assembly).kernels[name] if code.assembly else None
    facts = text.facts if text and text.facts else metadata.of_kernels(code.code).get(name, {})
    total, agprs = facts.get("vgpr_count"), facts.get("agpr_count", 0)
    static, spills = facts.get("group_segment_fixed_size"), [facts.get(f"{kind}gpr_spill_count") for kind in "vs"]
    lds = None if static is None else static + shared
    occupancy = None
    if None not in (total, lds):
        occupancy = amd_occupancy_of(target, threads, facts, text.descriptor if text else {}, lds)
    found = Figures(
        kernel=name,
        target=target.name,
        threads=threads,
        vgprs=_own_vgprs(code, target, name, total, agprs),
        agprs=agprs if total is not None else None,
        sgprs=facts.get("sgpr_count"),
        spills=None if None in spills else sum(spills),
        scratch_bytes=facts.get("private_segment_fixed_size"),
        static_lds=static,
        lds_bytes=lds,
        occupancy=occupancy,
    )
    return dataclasses.replace(found, **_loop(text, target, threads)) if text else found


def _loop(text: KernelText, target: arch.Target, threads: int) -> dict:
    found = {"instructions": len(text.instructions)}
    flow = [_flow(one) for one in text.instructions]
    loop = hot_loop(flow, text.labels, [_class(one.mnemonic) == "matrix" for one in text.instructions])
    if loop is None:
        return found
    body = [text.instructions[i] for i in loop.body]
    mix = amd_mix(body, target)
    return found | {
        "loop": mix,
        "masked": sum(map(_is_masked, body)),
        "wide_address": sum(bool(_WIDE.match(half)) for one in body for half in _halves(one)),
        "branches": loop.branches,
        **cycles(mix, target, threads),
    }


def cycles(mix: Mix, target: arch.Target, threads: int) -> dict[str, float | None]:
    """The model of this file: what one iteration by one block of `threads` takes of each unit of one CU."""
    if target.lds_bytes_per_clock is None or mix.matrix_cycles is None:
        return {}
    waves = threads / target.wave
    cdna = target.family == "cdna"
    matrix = mix.matrix_cycles * waves / target.simds
    valu = mix.valu * (4 if cdna else 1) * waves / target.simds
    lds = mix.lds_bytes * waves / target.lds_bytes_per_clock
    vmem = mix.vmem_bytes * waves / _VMEM_BYTES_PER_CLOCK
    busiest = max(matrix, valu, lds, vmem) if cdna else max(matrix + valu, lds, vmem)
    return {
        "matrix_cycles": matrix,
        "valu_cycles": valu,
        "lds_cycles": lds,
        "vmem_cycles": vmem,
        "share": matrix / busiest,
        "valu_ratio": valu / matrix,
        "lds_ratio": lds / matrix,
    }


def amd_mix(instructions: Iterable[Instruction], target: arch.Target) -> Mix:
    counts, lds, vmem, taken = Counter(), 0, 0, []
    for one in instructions:
        kind = _class(one.mnemonic)
        counts[kind] += 1
        if kind == "matrix":
            taken.append(matrix_cycles(one, target))
        elif kind == "lds":
            lds += lds_bytes(one.mnemonic)
        elif kind == "vmem":
            moved = vmem_bytes(one.mnemonic)
            vmem += moved
            # What is loaded straight into LDS is written there too.
            if "_lds" in one.mnemonic or "lds" in one.modifiers:
                lds += moved
    return Mix(
        **counts,
        matrix_cycles=None if None in taken else sum(taken),
        lds_bytes=lds * target.wave,
        vmem_bytes=vmem * target.wave,
    )


_CLASSES = {
    "matrix": "matrix",
    "vector": "valu",
    "shared": "lds",
    "memory": "vmem",
    "scalar": "salu",
    "scalar memory": "smem",
    "wait": "wait",
}


_CACHES = re.compile(r"(global|buffer)_(wb|gl\d_|inv)")  # written back or invalidated, at barriers


@functools.lru_cache(maxsize=4096)
def _class(mnemonic: str) -> str:
    if mnemonic.startswith(("v_smfmac", "v_swmmac")):  # sparse
        return "matrix"
    if _CACHES.match(mnemonic):
        return "wait"
    return _CLASSES[class_of(mnemonic)]


_TYPE = re.compile(r"_(?:bf|[bfiu])(\d+)")
_OLD_TYPE = re.compile(r"_(?:dword(?:x(\d))?|[us]?(byte|short))(?![a-z])")
_FORMAT = re.compile(r"_format_(d16_)?(?:hi_)?(x|xy|xyz|xyzw)$")
_NO_DATA = re.compile(r"ds_(nop|gws)|\w+_prefetch")


@functools.lru_cache(maxsize=1024)
def lds_bytes(mnemonic: str) -> int:
    """That one lane reads or writes. Shuffles through LDS count: they take its data path."""
    if _NO_DATA.match(mnemonic):
        return 0
    width = _TYPE.search(mnemonic)
    bits = int(width[1]) if width else 32  # ds_append, ds_consume
    twice = "_pk_" in mnemonic or re.match(r"ds_(read|write|wrxchg)2|ds_\w+_2addr", mnemonic)
    return bits // 8 * (2 if twice else 1)


@functools.lru_cache(maxsize=1024)
def vmem_bytes(mnemonic: str) -> int:
    """That one lane loads, stores, or sends to an atomic."""
    if _NO_DATA.match(mnemonic):
        return 0
    if form := _FORMAT.search(mnemonic):
        return len(form[2]) * (2 if form[1] else 4)
    if old := _OLD_TYPE.search(mnemonic):
        return {"byte": 1, "short": 2}.get(old[2]) or 4 * int(old[1] or 1)
    if width := _TYPE.search(mnemonic):
        return int(width[1]) // 8 * (2 if "_pk_" in mnemonic else 1)
    return 8 if mnemonic.endswith("_x2") else 4


_WIDE = re.compile(
    r"v_(lsh[lr]rev_b64|ashrrev_i64|lshl_add_u64|mad_(co_|nc_)?(u64_u32|i64_i32)|(add|sub|subrev|mul)_(nc_)?u64"
    r"|(add|sub|subrev|addc|subb|subbrev)_co_)"
)


def _halves(instruction: Instruction) -> list[str]:
    """The one or two operations (v_dual_a … :: v_dual_b …), written as if each stood alone."""
    return [half.strip().replace("v_dual_", "v_", 1) for half in instruction.text.split("::")]


def _is_masked(instruction: Instruction) -> bool:
    if any(half.startswith(("v_cndmask", "v_cmpx")) for half in _halves(instruction)):
        return True
    if "_saveexec_" in instruction.mnemonic or "_wrexec_" in instruction.mnemonic:
        return True
    return instruction.operands[:1] in (("exec",), ("exec_lo",), ("exec_hi",))


def _flow(instruction: Instruction) -> tuple[str | None, bool]:
    """The label that it may jump to, and whether the next instruction may follow."""
    if instruction.mnemonic == "s_branch":
        return instruction.operands[0], False
    if instruction.mnemonic.startswith("s_cbranch"):
        return instruction.operands[-1], True
    return None, not instruction.mnemonic.startswith(("s_endpgm", "s_setpc"))


def _own_vgprs(code: CodeObject, target: arch.Target, name: str, total: int | None, agprs: int) -> int | None:
    told = re.search(rf"^\s*\.set {re.escape(name)}\.num_vgpr, (\d+)$", code.assembly or "", re.MULTILINE)
    if told:
        return int(told[1])
    if total is None or target.name == "gfx908":  # whose files are two, of which the count is the greater's
        return total
    return total - agprs
