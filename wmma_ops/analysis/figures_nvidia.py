"""The figures of NVIDIA's code: its cubin's attributes, and PTX, whose instructions have no published cycles."""

import dataclasses
import functools
import re
import struct
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from wmma_ops.analysis.figures_record import Figures, Mix
from wmma_ops.analysis.hot_loop import hot_loop
from wmma_ops.hardware import arch
from wmma_ops.hardware.occupancy import nvidia_occupancy
from wmma_ops.jit import elf, metadata
from wmma_ops.jit.compiler import CodeObject


@dataclass(frozen=True)
class PtxInstruction:
    predicate: str  # "@%p1", or ""
    mnemonic: str
    operands: str


@dataclass(frozen=True)
class _Ptx:
    instructions: list[PtxInstruction]
    labels: dict[str, int]
    local: int  # bytes of arrays in local memory


def figures(code: CodeObject, target: arch.Target, threads: int, shared: int, name: str) -> Figures:
    facts = _nv_info(code.code, name)
    kernel = _ptx(code.assembly, name) if code.assembly else None
    static, registers, frame = metadata.static_shared(code.code, name), facts.get(_REGCOUNT), facts.get(_FRAME_SIZE)
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
        occupancy=None if registers is None else nvidia_occupancy(target, threads, registers, static + shared),
        serialized=_is_serialized(code.log, name),
    )
    return dataclasses.replace(found, **_loop(kernel, target)) if kernel else found


def _loop(kernel: _Ptx, target: arch.Target) -> dict:
    found = {"instructions": len(kernel.instructions)}
    flow = [_ptx_flow(one) for one in kernel.instructions]
    loop = hot_loop(flow, kernel.labels, [_ptx_class(one.mnemonic) == "matrix" for one in kernel.instructions])
    if loop is None:
        return found
    mix = ptx_mix((kernel.instructions[i] for i in loop.body), target)
    return found | {"loop": mix, "branches": loop.branches}


def _is_serialized(log: str, name: str) -> bool:
    """Where ptxas cannot tell that registers are free of products under way, or has too few, it says so and waits."""
    return any("wgmma" in line and "serialized" in line and f"'{name}'" in line for line in log.splitlines())


_REGCOUNT, _FRAME_SIZE = 0x2F, 0x11
_SIZED = 4  # the format of an attribute with its size and data; others hold their value in place of the size


def _nv_info(code: bytes, name: str) -> dict[int, int]:
    """The attributes of .nv.info that give a number to this kernel's symbol."""
    symbols = elf.symbols(code, (elf.SYMTAB,))
    symbol = next((index for index, one in enumerate(symbols) if one.name == name), None)
    info = next((section.contents for section in elf.sections(code) if section.name == ".nv.info"), b"")
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
            instructions.append(PtxInstruction(match[1] or "", match[2], match[3].strip()))
    return _Ptx(instructions, labels, local)


def _ptx_body(text: str) -> str:
    depth = 0
    for brace in re.finditer(r"[{}]", text):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[text.index("{") + 1 : brace.start()]
    return ""


def _ptx_flow(instruction: PtxInstruction) -> tuple[str | None, bool]:
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


def ptx_mix(instructions: Iterable[PtxInstruction], target: arch.Target) -> Mix:
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


def ptx_bytes(instruction: PtxInstruction) -> int:
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
