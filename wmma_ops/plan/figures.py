"""The static figures of a compiled kernel: registers, occupancy, and what its hot loop asks of each unit.

Nothing is run. The registers are those of the code object's metadata, the instructions those of the assembly that the
code object was made from: of the kernel's own text, without functions that it calls.

**The model** is one iteration of the hot loop, by one block, on one CU, with each unit at its published peak:

- matrix: the cycles of `arch.py`'s table; VALU: 4 cycles an instruction of 64 lanes on CDNA, 1 of 32 lanes on RDNA. Every
  VALU instruction takes as long as every other, transcendental, 64-bit and cross-lane ones too; v_dual_… is one. Moves to
  and from AGPRs are VALU. The block's waves spread evenly over the CU's SIMDs: 4 on CDNA, 2 on RDNA.
- LDS: the bytes that all lanes of all waves move, without bank conflicts, over the bytes that a CU's LDS moves in a clock.
- vector memory: the bytes that all lanes ask for, over 64 a clock.

`share` is the matrix units' part of the busiest unit's time: 1 where nothing but the matrix units can limit the loop. RDNA
issues matrix and VALU instructions to one unit: there the two add up. Waiting, latency and issue limits are left out, so
this is a bound, not a forecast.

**Occupancy** is waves per SIMD with as many whole blocks as fit by registers, LDS, barriers and wave slots. On RDNA a block
has both CUs of a work-group processor, unless the code was compiled for one. VGPRs are given out in granules, of a file
that has so many for each lane of a SIMD: 4 of 256 on gfx908 (and as many AGPRs), 8 of 512 on gfx90a and later, 24 of 1536
on gfx1100, gfx1101, gfx1151, gfx1200 and gfx1201, 16 of 1024 elsewhere (LLVM's AMDGPUUsage, getVGPRAllocGranule and
getTotalNumVGPRs). LDS is given out by 512 bytes, 1280 on gfx950, 2048 on gfx1250, 1024 on other RDNA (AMDGPUUsage's
GRANULATED_LDS_SIZE; Mesa's lds_alloc_granularity). clang's own "Occupancy" rounds neither LDS nor to whole blocks, and so
may be higher.
"""

import dataclasses
import functools
import math
import re
import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from wmma_ops import arch
from wmma_ops.emulator.assembly import Instruction, KernelText, parse
from wmma_ops.emulator.machine import class_of
from wmma_ops.jit import elf
from wmma_ops.jit.compiler import CodeObject

_VMEM_BYTES_PER_CLOCK = 64  # of a CU's first cache


@dataclass(frozen=True)
class Mix:
    """What one wave executes in one iteration of a loop, conditional blocks included."""

    matrix: int = 0
    valu: int = 0
    lds: int = 0
    vmem: int = 0  # global, buffer, flat, scratch
    salu: int = 0
    smem: int = 0
    wait: int = 0  # barriers and what they do to caches too
    matrix_cycles: int | None = 0
    lds_bytes: int = 0  # of all lanes of the wave
    vmem_bytes: int = 0

    @property
    def instructions(self) -> int:
        return self.matrix + self.valu + self.lds + self.vmem + self.salu + self.smem + self.wait


@dataclass(frozen=True)
class Figures:
    """None where it is not known: hiprtc gives no assembly, NVIDIA publishes no cycles."""

    kernel: str
    target: str
    threads: int
    vgprs: int | None  # NVIDIA: registers of a thread
    agprs: int | None
    sgprs: int | None
    spills: int | None  # registers; NVIDIA: estimated from the stack
    scratch_bytes: int | None  # of a lane
    static_lds: int | None
    lds_bytes: int | None
    occupancy: float | None  # waves per SIMD; 0 where no block fits
    instructions: int | None = None
    loop: Mix | None = None
    # One iteration of one block on one CU.
    matrix_cycles: float | None = None
    valu_cycles: float | None = None
    lds_cycles: float | None = None
    vmem_cycles: float | None = None
    share: float | None = None
    valu_ratio: float | None = None
    lds_ratio: float | None = None
    # In the hot loop.
    masked: int | None = None  # writes of the exec mask, and v_cndmask
    wide_address: int | None = None  # 64-bit integer arithmetic of the VALU
    branches: int | None = None  # conditional ones that stay in the loop

    def __str__(self) -> str:
        parts = [f"{_text(self.vgprs)} VGPRs"]
        if self.agprs:
            parts.append(f"{self.agprs} AGPRs")
        if self.spills or self.scratch_bytes:
            parts.append(f"{_text(self.spills)} spilled, {_text(self.scratch_bytes)} B scratch")
        parts.append(f"{_text(self.lds_bytes)} B LDS, occupancy {_text(self.occupancy)}")
        if mix := self.loop:
            counts = ((mix.matrix, "matrix"), (mix.valu, "VALU"), (mix.lds, "LDS"), (mix.vmem, "memory"))
            parts.append("loop " + " + ".join(f"{count} {name}" for count, name in counts))
        if self.share is not None:
            parts.append(f"share {self.share:.0%}, VALU {self.valu_ratio:.2f}, LDS {self.lds_ratio:.2f}")
        for count, name in ((self.masked, "masked"), (self.wide_address, "wide"), (self.branches, "branches")):
            if count:
                parts.append(f"{count} {name}")
        return f"{self.kernel} on {self.target}: " + "; ".join(parts)

    def as_dict(self) -> dict:
        return dataclasses.asdict(self)


def limits(
    figures: Figures, *, share: float | None = None, valu: float | None = None, lds: float | None = None
) -> list[str]:
    """The rules that the kernel breaks: those of every kernel, and at least `share`, at most `valu` and `lds`."""
    broken = []
    if figures.spills:
        broken.append(f"{figures.spills} registers are spilled")
    if figures.scratch_bytes:
        broken.append(f"{figures.scratch_bytes} bytes of scratch")
    if figures.occupancy == 0:
        broken.append("no block fits a CU")
    if figures.masked:
        broken.append(f"{figures.masked} masked instructions in the hot loop")
    if figures.wide_address:
        broken.append(f"{figures.wide_address} 64-bit address instructions in the hot loop")
    if figures.loop is None and figures.instructions is not None and not (share is valu is lds is None):
        broken.append("no loop has matrix instructions")
    for name, value, most in (("VALU", figures.valu_ratio, valu), ("LDS", figures.lds_ratio, lds)):
        if None not in (value, most) and value > most:
            broken.append(f"{name}/matrix is {value:.3g}, more than {most:.3g}")
    if None not in (figures.share, share) and figures.share < share:
        broken.append(f"the matrix share is {figures.share:.3g}, less than {share:.3g}")
    return broken


def figures(code: CodeObject, target: arch.Target, threads: int, shared: int = 0, kernel: str | None = None) -> Figures:
    """Of one kernel of `code`, launched with `threads` a block and `shared` bytes of dynamic shared memory."""
    if code.target.partition(":")[0] != target.name:
        raise ValueError(f"figures: the code is for {code.target}, not for {target.name}")
    if kernel is None and len(code.kernels) != 1:
        raise ValueError(f"figures: name one of the kernels {', '.join(code.kernels) or '(none)'}")
    if threads < 1 or shared < 0:
        raise ValueError(f"figures: {threads} threads and {shared} bytes of shared memory are no launch")
    name = kernel or code.kernels[0]
    if name not in code.kernels:
        raise ValueError(f"figures: no kernel {name!r}; there are {', '.join(code.kernels) or 'none'}")
    return (_amd if target.vendor == "amd" else _nvidia)(code, target, threads, shared, name)


# AMD


def _amd(code: CodeObject, target: arch.Target, threads: int, shared: int, name: str) -> Figures:
    text = parse(code.assembly).kernels[name] if code.assembly else None
    facts = text.facts if text and text.facts else _note(code.code).get(name, {})
    total, agprs = facts.get("vgpr_count"), facts.get("agpr_count", 0)
    static, spills = facts.get("group_segment_fixed_size"), [facts.get(f"{kind}gpr_spill_count") for kind in "vs"]
    lds = None if static is None else static + shared
    occupancy = None
    if None not in (total, lds):
        # clang takes more registers than a kernel uses where more waves could not run anyway.
        taken = max(total, text.descriptor.get("next_free_vgpr", 0) if text else 0)
        occupancy = _amd_occupancy(target, threads, taken, facts.get("sgpr_count", 0), lds, _whole_wgp(target, facts))
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
    return dataclasses.replace(found, **_amd_loop(text, target, threads)) if text else found


def _amd_loop(text: KernelText, target: arch.Target, threads: int) -> dict:
    found = {"instructions": len(text.instructions)}
    flow = [_amd_flow(one) for one in text.instructions]
    loop = _hot_loop(flow, text.labels, [_amd_class(one.mnemonic) == "matrix" for one in text.instructions])
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
        kind = _amd_class(one.mnemonic)
        counts[kind] += 1
        if kind == "matrix":
            taken.append(_matrix_cycles(one, target))
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
def _amd_class(mnemonic: str) -> str:
    if mnemonic.startswith(("v_smfmac", "v_swmmac")):  # sparse
        return "matrix"
    if _CACHES.match(mnemonic):
        return "wait"
    return _CLASSES[class_of(mnemonic)]


def _matrix_cycles(instruction: Instruction, target: arch.Target) -> int | None:
    name = instruction.mnemonic.replace("v_mfma_scale_", "v_mfma_")
    known = {row.cycles for row in target.instructions if row.name == name}
    if len(known) > 1:  # f8f6f4: 0 and 1 stand for the 8-bit formats, which take longer
        formats = [int(instruction.modifiers.get(operand, "0"), 0) for operand in ("cbsz", "blgp")]
        return max(known) if min(formats) < 2 else min(known)
    return next(iter(known), None)


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


def _amd_flow(instruction: Instruction) -> tuple[str | None, bool]:
    """The label that it may jump to, and whether the next instruction may follow."""
    if instruction.mnemonic == "s_branch":
        return instruction.operands[0], False
    if instruction.mnemonic.startswith("s_cbranch"):
        return instruction.operands[-1], True
    return None, not instruction.mnemonic.startswith(("s_endpgm", "s_setpc"))


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
    return min(total // _rounded(max(vgprs, 1), granule), _most_waves(target))


def _waves_by_sgprs(target: arch.Target, sgprs: int) -> int:
    if target.family != "cdna":  # every wave has all of them
        return _most_waves(target)
    return min(next((waves for most, waves in ((80, 10), (88, 9), (100, 8)) if sgprs <= most), 7), _most_waves(target))


def _lds_file(target: arch.Target) -> tuple[int, int]:
    """(granule, bytes of a CU)."""
    special = {"gfx950": 1280, "gfx1250": 2048}
    return special.get(target.name, 512 if target.family == "cdna" else 1024), target.lds_bytes


def _whole_wgp(target: arch.Target, facts: dict) -> bool:
    """Whether a block spreads over the two CUs of a work-group processor: clang's default on RDNA."""
    return target.family.startswith("rdna") and bool(facts.get("workgroup_processor_mode", 1))


def _amd_occupancy(target: arch.Target, threads: int, vgprs: int, sgprs: int, lds: int, wgp: bool) -> float:
    units = 2 if wgp else 1  # CUs that a block's waves may run on
    granule, file = _lds_file(target)
    waves = math.ceil(threads / target.wave)
    by_registers = min(_waves_by_vgprs(target, vgprs), _waves_by_sgprs(target, sgprs))
    if lds > target.lds_bytes or threads > target.max_threads:
        return 0
    # A block of one wave needs no barrier; others take one of so many.
    barriers = math.inf if waves == 1 else 16 * units
    return _occupancy(target.simds * units, waves, by_registers, barriers, file * units, _rounded(lds, granule))


def _occupancy(simds: int, waves: int, by_registers: int, most_blocks: float, file: int, lds: int) -> float:
    """Waves per SIMD with as many blocks as fit; a block's waves spread over the SIMDs evenly."""
    blocks = min(by_registers * simds // waves, most_blocks, file // lds if lds else math.inf)
    return blocks * waves / simds


def _rounded(value: int, granule: int) -> int:
    return -(-value // granule) * granule


def _own_vgprs(code: CodeObject, target: arch.Target, name: str, total: int | None, agprs: int) -> int | None:
    told = re.search(rf"^\s*\.set {re.escape(name)}\.num_vgpr, (\d+)$", code.assembly or "", re.MULTILINE)
    if told:
        return int(told[1])
    if total is None or target.name == "gfx908":  # whose files are two, of which the count is the greater's
        return total
    return total - agprs


def _note(code: bytes) -> dict[str, dict[str, int]]:
    """The metadata of each kernel, out of the ELF note in which the driver finds it."""
    sections = elf.sections(code) if code[:4] == b"\x7fELF" else ()
    for name, _, _, contents in sections:
        if name == ".note":
            owner, size, _ = struct.unpack_from("<III", contents)
            start = 12 + _rounded(owner, 4)
            root, _ = _unpack(contents[start : start + size], 0)
            return {
                kernel[".name"]: {key[1:]: int(value) for key, value in kernel.items() if isinstance(value, int)}
                for kernel in root.get("amdhsa.kernels", ())
            }
    return {}


_MSGPACK = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q", 0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q"}
_LENGTH = {0xD9: (">B", str), 0xDA: (">H", str), 0xDC: (">H", list), 0xDD: (">I", list), 0xDE: (">H", dict)}


def _unpack(data: bytes, at: int) -> tuple:
    """(value, end) of what MessagePack has at `at`: the kinds that LLVM writes."""
    head, at = data[at], at + 1
    if head < 0x80:
        return head, at
    if head in (0xC0, 0xC2, 0xC3):
        return {0xC0: None, 0xC2: False, 0xC3: True}[head], at
    if head in _MSGPACK:
        return struct.unpack_from(_MSGPACK[head], data, at)[0], at + struct.calcsize(_MSGPACK[head])
    if head in _LENGTH:
        form, kind = _LENGTH[head]
        (count,) = struct.unpack_from(form, data, at)
        at += struct.calcsize(form)
    else:
        kind, count = (str, head & 31) if head >= 0xA0 else (list, head & 15) if head >= 0x90 else (dict, head & 15)
    if kind is str:
        return data[at : at + count].decode(), at + count
    values = []
    for _ in range(count * (2 if kind is dict else 1)):
        value, at = _unpack(data, at)
        values.append(value)
    return (dict(zip(values[::2], values[1::2], strict=True)) if kind is dict else values), at


# Loops


@dataclass(frozen=True)
class _Loop:
    body: tuple[int, ...]  # instructions
    branches: int


def _hot_loop(flow: Sequence[tuple[str | None, bool]], labels: dict[str, int], matrix: Sequence[bool]) -> _Loop | None:
    """Of the loops with matrix instructions that have none such inside, the one with the most; then the largest."""
    blocks = _blocks(flow, labels)
    follows = _follows(blocks, flow, labels)
    loops = [loop for loop in _natural_loops(follows) if any(matrix[i] for b in loop for i in blocks[b])]
    innermost = [loop for loop in loops if not any(other < loop for other in loops)]
    if not innermost:
        return None

    def size(loop: frozenset[int]) -> tuple[int, int]:
        return sum(matrix[i] for b in loop for i in blocks[b]), sum(len(blocks[b]) for b in loop)

    best = max(innermost, key=size)
    body = tuple(i for b in sorted(best) for i in blocks[b])
    return _Loop(body, sum(len(follows[b] & best) > 1 for b in best))


def _blocks(flow: Sequence[tuple[str | None, bool]], labels: dict[str, int]) -> list[range]:
    starts = {0, *labels.values()}
    starts |= {i + 1 for i, (jump, falls) in enumerate(flow) if jump is not None or not falls}
    ordered = sorted(start for start in starts if start < len(flow))
    return [range(start, end) for start, end in zip(ordered, [*ordered[1:], len(flow)], strict=True)]


def _follows(
    blocks: list[range], flow: Sequence[tuple[str | None, bool]], labels: dict[str, int]
) -> list[frozenset[int]]:
    starting = {block.start: b for b, block in enumerate(blocks)}
    found = []
    for block in blocks:
        jump, falls = flow[block[-1]]
        after = {labels.get(jump), block.stop if falls else None}
        found.append(frozenset(starting[at] for at in after if at in starting))
    return found


def _natural_loops(follows: list[frozenset[int]]) -> list[frozenset[int]]:
    """Their blocks; loops of one header are one loop."""
    before: list[list[int]] = [[] for _ in follows]
    for b, after in enumerate(follows):
        for one in after:
            before[one].append(b)
    dominators = _dominators(follows, before)
    loops: dict[int, set[int]] = {}
    for b, after in enumerate(follows):
        for header in after:
            if dominators[b] >> header & 1 and dominators[b] != _ALL:
                loops.setdefault(header, {header}).update(_reaching(b, header, before))
    return [frozenset(loop) for loop in loops.values()]


_ALL = -1


def _dominators(follows: list[frozenset[int]], before: list[list[int]]) -> list[int]:
    """A bit set a block; that of what is never reached stays _ALL."""
    found = [_ALL] * len(follows)
    changed = True
    while changed:
        changed = False
        for b in range(len(follows)):
            common = functools.reduce(int.__and__, (found[one] for one in before[b]), _ALL) if b else 0
            new = common if common == _ALL else common | 1 << b
            changed |= new != found[b]
            found[b] = new
    return found


def _reaching(block: int, header: int, before: list[list[int]]) -> set[int]:
    seen, pending = {header}, [block]
    while pending:
        if (b := pending.pop()) not in seen:
            seen.add(b)
            pending.extend(before[b])
    return seen


# NVIDIA


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
_RESERVED = 1024  # bytes of shared memory that every block takes beside its own


@dataclass(frozen=True)
class _PtxInstruction:
    predicate: str  # "@%p1", or ""
    mnemonic: str
    operands: str


@dataclass(frozen=True)
class _Ptx:
    instructions: list[_PtxInstruction]
    labels: dict[str, int]
    local: int  # bytes of arrays in local memory


def _nvidia(code: CodeObject, target: arch.Target, threads: int, shared: int, name: str) -> Figures:
    facts = _nv_info(code.code, name)
    kernel = _ptx(code.assembly, name) if code.assembly else None
    static, registers, frame = _nv_shared(code.code, name), facts.get(_REGCOUNT), facts.get(_FRAME_SIZE)
    local = kernel.local if kernel else 0
    found = Figures(
        kernel=name,
        target=target.name,
        threads=threads,
        vgprs=registers,
        agprs=0,
        sgprs=None,
        # What the stack holds beside the arrays of the source: registers of 4 bytes.
        spills=None if frame is None or kernel is None else max(frame - local, 0) // 4,
        scratch_bytes=frame,
        static_lds=static,
        lds_bytes=static + shared,
        occupancy=None if registers is None else _nvidia_occupancy(target, threads, registers, static + shared),
    )
    return dataclasses.replace(found, **_nvidia_loop(kernel, target)) if kernel else found


def _nvidia_loop(kernel: _Ptx, target: arch.Target) -> dict:
    found = {"instructions": len(kernel.instructions)}
    flow = [_ptx_flow(one) for one in kernel.instructions]
    loop = _hot_loop(flow, kernel.labels, [_ptx_class(one.mnemonic) == "matrix" for one in kernel.instructions])
    if loop is None:
        return found
    mix = ptx_mix((kernel.instructions[i] for i in loop.body), target)
    return found | {"loop": mix, "branches": loop.branches}


def _nvidia_occupancy(target: arch.Target, threads: int, registers: int, shared: int) -> float:
    sm, warps = _SMS[target.name], math.ceil(threads / target.wave)
    if shared > target.lds_bytes or threads > target.max_threads:
        return 0
    by_registers = min(_REGISTERS // _rounded(registers * target.wave, 256), sm.warps // target.simds)
    file = target.lds_bytes + _RESERVED
    return _occupancy(target.simds, warps, by_registers, sm.blocks, file, _rounded(shared + _RESERVED, 128))


_REGCOUNT, _FRAME_SIZE = 0x2F, 0x11
_SIZED = 4  # the format of an attribute with its size and data; others hold their value in place of the size
_SYMTAB = 2


def _nv_info(code: bytes, name: str) -> dict[int, int]:
    """The attributes of .nv.info that give a number to this kernel's symbol."""
    sections = elf.sections(code)
    symbol = _symbol(sections, name)
    info = next((contents for title, _, _, contents in sections if title == ".nv.info"), b"")
    found, at = {}, 0
    while at + 4 <= len(info):
        form, attribute, size = struct.unpack_from("<BBH", info, at)
        at += 4
        if form != _SIZED:
            continue
        if size == 8:
            owner, value = struct.unpack_from("<II", info, at)
            if owner == symbol:
                found[attribute] = value
        at += size
    return found


def _symbol(sections: list, name: str) -> int | None:
    for _, kind, link, contents in sections:
        if kind == _SYMTAB:
            strings = sections[link][3]
            for index, row in enumerate(struct.iter_unpack("<IBBHQQ", contents)):
                if strings[row[0] : strings.index(0, row[0])].decode() == name:
                    return index
    return None


def _nv_shared(code: bytes, name: str) -> int:
    """The size of the kernel's shared memory: of a section without contents."""
    (start,) = struct.unpack_from("<Q", code, 0x28)
    (size,) = struct.unpack_from("<H", code, 0x3A)
    sections = elf.sections(code)
    reserved = _RESERVED if any(title.startswith(".nv.shared.reserved") for title, *_ in sections) else 0
    for i, (title, *_) in enumerate(sections):
        if title == f".nv.shared.{name}":
            (taken,) = struct.unpack_from("<Q", code, start + i * size + 0x20)
            # From sm_90 on, the section holds what every block takes, too.
            return max(taken - reserved, 0)
    return 0


_NOISE = re.compile(r"//[^\n]*|/\*.*?\*/|^\s*\.loc\b[^\n]*", re.DOTALL | re.MULTILINE)
_STATEMENT = re.compile(r"(?:(@!?%\w+)\s+)?([a-z][\w.:]*)\s*(.*)", re.DOTALL)
# Braces around a statement open and close scopes; those inside one hold vectors.
_BEFORE = re.compile(r"[\s{}]*(?:([$\w]+):(?!:))?")


def _ptx(text: str, name: str) -> _Ptx | None:
    start = re.search(rf"\.entry\s+{re.escape(name)}\s*\(", text)
    if start is None:
        return None
    instructions, labels, local = [], {}, 0
    for statement in _ptx_body(_NOISE.sub("", text[start.end() :])).split(";"):
        while (before := _BEFORE.match(statement)) and before[0]:
            if before[1]:
                labels[before[1]] = len(instructions)
            statement = statement[before.end() :]
        if array := re.match(r"\.local\b.*\[(\d+)\]", statement):
            local += int(array[1])
        elif match := _STATEMENT.fullmatch(statement):
            instructions.append(_PtxInstruction(match[1] or "", match[2], match[3].strip()))
    return _Ptx(instructions, labels, local)


def _ptx_body(text: str) -> str:
    depth = 0
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[text.index("{") + 1 : brace.start()]
    return ""


def _ptx_flow(instruction: _PtxInstruction) -> tuple[str | None, bool]:
    first = instruction.mnemonic.split(".")[0]
    if first == "bra":
        return instruction.operands, bool(instruction.predicate)
    return None, first not in ("ret", "exit", "trap") or bool(instruction.predicate)


_PTX_CLASSES = (
    ("matrix", r"mma\.|wgmma\.mma_async|wmma\.mma"),
    ("wait", r"(bar|barrier|fence|membar|mbarrier|nanosleep|wgmma)\b|cp\.async\.(bulk\.)?(wait|commit|mbarrier)"),
    ("lds", r"(ldmatrix|stmatrix|shfl)\b|(ld|st|atom|red)\.(\w+\.)*shared"),
    ("smem", r"ld\.(\w+\.)*(param|const)"),
    ("vmem", r"(ld|st|ldu|atom|red|cp|prefetch)\b"),
    ("salu", r"(bra|ret|exit|call)\b"),
)


@functools.lru_cache(maxsize=4096)
def _ptx_class(mnemonic: str) -> str:
    return next((kind for kind, pattern in _PTX_CLASSES if re.match(pattern, mnemonic)), "valu")


def ptx_mix(instructions: Iterable[_PtxInstruction], target: arch.Target) -> Mix:
    """PTX has no scalar unit: "salu" are its branches, "smem" its loads of parameters and constants."""
    counts, lds, vmem = Counter(), 0, 0
    for one in instructions:
        kind = _ptx_class(one.mnemonic)
        counts[kind] += 1
        if kind == "lds":
            lds += ptx_bytes(one)
        elif kind == "vmem":
            moved = ptx_bytes(one)
            vmem += moved
            if one.mnemonic.startswith("cp.async"):
                lds += moved
    return Mix(**counts, matrix_cycles=None, lds_bytes=lds * target.wave, vmem_bytes=vmem * target.wave)


def ptx_bytes(instruction: _PtxInstruction) -> int:
    """That one lane moves. Bulk copies are one thread's, of a size known when they run: they count as none."""
    mnemonic = instruction.mnemonic
    if mnemonic.startswith("cp.async.bulk") or mnemonic.startswith("prefetch"):
        return 0
    if mnemonic.startswith("cp.async"):
        return int(re.search(r",\s*(\d+)", instruction.operands)[1])
    parts = mnemonic.split(".")
    count = next((int(part[1:]) for part in parts if re.fullmatch(r"[vx][1248]", part)), 1)
    if mnemonic.startswith(("ldmatrix", "stmatrix")):
        return 4 * count
    width = re.search(r"\d+", parts[-1]) if re.fullmatch(r"(bf|[bfsu])\d+(x2)?", parts[-1]) else None
    return int(width[0]) // 8 * count * (2 if parts[-1].endswith("x2") else 1) if width else 4 * count


def _text(value: float | None) -> str:
    return "?" if value is None else f"{value:g}"
