"""Reads the assembly text that clang writes: instructions, labels, source lines, and what the kernel descriptor says."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from wmma_ops.emulator.errors import malformed
from wmma_ops.emulator.inlined import Calls, Frame
from wmma_ops.jit.elf import named


class Instruction(NamedTuple):
    mnemonic: str
    operands: tuple[str, ...]
    modifiers: Mapping[str, str]
    text: str
    line: int  # in the assembly
    source: str  # "kernel.hip:12", or ""
    position: str = ""  # "19:17 12:5": line and column, then those of the calls that it was inlined into


@dataclass
class Argument:
    name: str
    offset: int
    size: int
    kind: str  # global_buffer, by_value, hidden_…, dynamic_shared_pointer


@dataclass
class Datum:
    """A constant or variable: its bytes, and where among them addresses of symbols stand (at, symbol, addend)."""

    parts: list[tuple[int, bytearray]] = field(default_factory=list)  # (at, bytes); between them are zeros
    addresses: list[tuple[int, str, int]] = field(default_factory=list)
    size: int = 0

    def extend(self, content: bytes) -> None:
        if not self.parts or self.parts[-1][0] + len(self.parts[-1][1]) != self.size:
            self.parts.append((self.size, bytearray()))
        self.parts[-1][1].extend(content)
        self.size += len(content)


@dataclass
class KernelText:
    name: str
    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    descriptor: dict[str, int] = field(default_factory=dict)  # .amdhsa_X -> value
    arguments: list[Argument] = field(default_factory=list)
    facts: dict[str, int] = field(default_factory=dict)  # of the metadata: .vgpr_count, .wavefront_size, …
    # Of the whole file: every function, every constant and variable (None where its text is not understood).
    functions: dict[str, "KernelText"] = field(default_factory=dict, repr=False)
    data: dict[str, "Datum | None"] = field(default_factory=dict, repr=False)


@dataclass
class Assembly:
    target: str
    kernels: dict[str, KernelText]
    symbols: dict[str, tuple[str, int]]  # of shared memory: name -> (kind, size)


_LABEL = re.compile(r"^([.\w$]+):")
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)")
_FILES = re.compile(r'^\s*\.file\s+(\d+)\s+(?:"([^"]*)"\s+)?"([^"]*)"', re.M)
_INLINED = re.compile(r"@\[\s*([^\s\[\]]+?):(\d+):(\d+)")
_LIBRARY = "kernels/wmma/"  # as jit/clang.py maps it
_HSA = re.compile(r"^\s*\.amdhsa_(\w+)\s+(.+?)\s*$")
_TARGET = re.compile(r'amdgcn_target\s+"amdgcn-amd-amdhsa-[-\w]*-(gfx\w+)')
_LDS = re.compile(r"^\s*\.amdgpu_lds\s+([\w.$]+),\s*(\d+)")

_ADDRESS = " // "

_DATA = re.compile(r"^\.(byte|short|long|quad|zero|ascii|asciz)\s+(.*)$")
_TEXT = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPE = re.compile(rb"\\([0-7]{1,3}|.)")
_ESCAPED = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"b": b"\b", b"f": b"\f"}
_DATA_SIZES = {"byte": 1, "short": 2, "long": 4, "quad": 8}

_COMMA = re.compile(r",(?![^\[(]*[\])])")
_BRACKET = re.compile(r"[(]|\[[^\d]")

# What follows the operands: name:value, or a bare word.
_NAMED = re.compile(r"\b([a-z_][a-z_0-9]*):(\[[\w,\s]*\]|swizzle\([^)]*\)|[\w.+-]+)")

# Those of a long number, and ranges.
_REGISTERS = re.compile(r"\b(?:[vas]|ttmp)(?:(\d{4,})(?![\w.$@])|\[(\d+):(\d+)\])")
MOST_REGISTERS = 512  # of a wave, of either kind


def split_operands(text: str) -> list[str]:
    """At commas outside brackets, which no instruction nests."""
    parts = text.split(",") if _BRACKET.search(text) is None else _COMMA.split(text)
    return [part for part in map(str.strip, parts) if part]


def parse_instruction(text: str, line: int = 0, source: str = "", position: str = "") -> Instruction:
    return Instruction(*_parsed(text), text, line, source, position)


@functools.lru_cache(maxsize=32768)
def _parsed(text: str) -> tuple[str, tuple[str, ...], Mapping[str, str]]:
    """(mnemonic, operands, modifiers). Most instructions of a kernel stand in others, too."""
    for one, first, last in _REGISTERS.findall(text):
        if one or not int(first) <= int(last) < MOST_REGISTERS:
            raise ValueError(f"{text!r}: registers that no wave has")
    mnemonic, _, rest = text.partition(" ")
    modifiers: dict[str, str] = {}
    if mnemonic.startswith(("s_wait", "s_delay", "s_sendmsg", "s_getreg", "s_setreg", "s_clause")):
        return mnemonic, tuple(split_operands(rest)), modifiers

    def take(match):
        modifiers[match.group(1)] = match.group(2)
        return " "

    rest = _NAMED.sub(take, rest) if ":" in rest else rest
    operands = split_operands(rest)
    if operands:
        # Bare modifiers stand after the last operand, separated by blanks alone.
        operands[-1], *words = operands[-1].split()
        modifiers |= dict.fromkeys(words, "1")
    return mnemonic, tuple(operands), modifiers


@functools.cache
def stem(mnemonic: str) -> str:
    """Without what says how an instruction is encoded."""
    for suffix in ("_e32", "_e64", "_dpp", "_sdwa", "_e64_dpp", "_dpp8"):
        mnemonic = mnemonic.removesuffix(suffix)
    return mnemonic.removesuffix("_e64")


@functools.cache
def class_of(mnemonic: str) -> str:
    if mnemonic.startswith(("v_mfma", "v_smfmac", "v_wmma", "v_swmmac")):
        return "matrix"
    if mnemonic.startswith("v_"):
        return "vector"
    if mnemonic.startswith("ds_"):
        return "shared"
    if mnemonic.startswith(("global_", "flat_", "buffer_", "scratch_")):
        return "memory"
    if mnemonic.startswith(("s_load", "s_buffer", "s_store", "s_atomic")):
        return "scalar memory"
    if mnemonic.startswith(("s_wait", "s_nop", "s_delay", "s_clause", "s_barrier")):
        return "wait"
    return "scalar"


def _unescaped(found: re.Match[bytes]) -> bytes:
    return bytes([int(found[1], 8)]) if found[1].isdigit() else _ESCAPED.get(found[1], found[1])


def _append_data(data: dict[str, Datum | None], name: str, kind: str, text: str) -> None:
    """One directive of a constant or variable."""
    if data[name] is None:
        return
    content = data[name]
    if kind == "zero":
        content.size += max(int(text.split(",")[0], 0), 0)
    elif kind in ("ascii", "asciz") and (literal := _TEXT.match(text.strip())):
        content.extend(_ESCAPE.sub(_unescaped, literal[1].encode()) + b"\0" * (kind == "asciz"))
    elif kind in _DATA_SIZES and re.fullmatch(r"-?(0x)?[\da-fA-F]+", text.strip()):
        size = _DATA_SIZES[kind]
        content.extend((int(text, 0) & ((1 << 8 * size) - 1)).to_bytes(size, "little"))
    elif kind == "quad" and (address := re.fullmatch(r"([\w.$]+)([+-]\d+)?", text.strip())):
        content.addresses.append((content.size, address[1], int(address[2] or 0)))
        content.extend(bytes(8))
    else:
        data[name] = None


@functools.lru_cache(maxsize=8192)
def _location(raw: str, path: str, around: tuple[Frame, ...]) -> tuple[str, str]:
    """(source, position) of a .loc line in a file of this path; nothing of line 0, which is the compiler's own."""
    line, column = map(int, _LOC.match(raw).groups()[1:])
    if line == 0:
        return "", ""
    named = (Frame(path, int(line), int(column)) for path, line, column in _INLINED.findall(raw))
    frames = (Frame(path, line, column), *(around or named))
    # The user's own line, then that of the library which it led to.
    own = next((frame for frame in frames if not frame.path.startswith(_LIBRARY)), frames[-1])
    source = _named(own) if own is frames[0] else f"{_named(own)} (in {_named(frames[0])})"
    return source, " ".join(f"{frame.line}:{frame.column}" for frame in frames)


def _named(frame: Frame) -> str:
    return f"{frame.path.rsplit('/', 1)[-1]}:{frame.line}"


def _without_debugging(text: str) -> str:
    """Without the sections between the code and the metadata, which are most of the lines."""
    start = text.find("\n\t.section\t.debug_")
    end = text.find("\n\t.amdgpu_metadata", start)
    return text if min(start, end) < 0 else text[:start] + text[end:]


def parse(text: str) -> Assembly:
    """Raises Malformed for what no assembler takes."""
    with malformed("the assembly"):
        return _parse(text)


def _parse(text: str) -> Assembly:
    match = _TARGET.search(text)
    assembly = Assembly(match.group(1) if match else "", {}, {})
    paths = {number: "/".join(filter(None, parts)) for number, *parts in _FILES.findall(text)}
    calls = Calls(text, paths) if "@[" not in text else None
    functions: dict[str, KernelText] = {}
    current: KernelText | None = None
    described: KernelText | None = None
    source = position = ""
    data: dict[str, Datum | None] = {}
    datum: str | None = None
    in_data = False
    in_metadata = False
    metadata: list[str] = []
    for number, raw in enumerate(_without_debugging(text).splitlines(), 1):
        line = raw.split(";", 1)[0].rstrip() if ";" in raw and '"' not in raw else raw.rstrip()
        if in_metadata:
            if ".end_amdgpu_metadata" in raw:
                in_metadata = False
            else:
                metadata.append(raw)
            continue
        stripped = line.strip()
        if not stripped or stripped.startswith("//"):
            continue
        if not line[0].isspace() and (label := _LABEL.match(line)):
            name = label.group(1)
            if in_data:
                datum, current = name, None
                data[name] = Datum()
            elif current is not None and name.startswith((".L", "BB")):
                current.labels[name] = len(current.instructions)
            elif not name.startswith(".L"):
                current = functions.setdefault(name, KernelText(name))
                source = position = ""
            rest = line[label.end() :].strip()
            if not rest:
                continue
            stripped = rest
        if stripped.startswith("."):
            if loc := _LOC.match(line):
                around = calls.around(number) if calls else ()
                found, position = _location(raw, paths.get(loc.group(1), ""), around)
                source = found or source
            elif stripped.startswith(".amdhsa_kernel"):
                name = named(stripped.split()[1])
                described = functions.setdefault(name, KernelText(name))
                assembly.kernels[described.name] = described
            elif described is not None and (hsa := _HSA.match(line)):
                value = hsa.group(2)
                described.descriptor[hsa.group(1)] = int(value, 0) if re.fullmatch(r"-?(0x)?[\da-fA-F]+", value) else 0
            elif stripped.startswith(".end_amdhsa_kernel"):
                described = None
            elif lds := _LDS.match(line):
                assembly.symbols[lds.group(1)] = ("lds", int(lds.group(2)))
            elif stripped.startswith(".amdgpu_metadata"):
                in_metadata = True
            elif datum is not None and (found := _DATA.match(stripped)):
                _append_data(data, datum, *found.groups())
            elif stripped.startswith((".section", ".data", ".rodata", ".bss", ".text")):
                current = datum = None
                in_data = bool(re.match(r"^(\.section\s+)?\.(rodata|data|bss)", stripped))
            continue
        if current is not None:
            if _ADDRESS in stripped:  # of a code object that was disassembled
                stripped, _, address = stripped.partition(_ADDRESS)
                source = f"0x{int(address, 16):x}"
            current.instructions.append(parse_instruction(stripped, number, source, position))
    _read_metadata(metadata, assembly)
    for kernel in assembly.kernels.values():
        kernel.functions, kernel.data = functions, data
    return assembly


def _read_metadata(lines: list[str], assembly: Assembly) -> None:
    """The few facts wanted of the YAML: each kernel's arguments and counts. (It is always laid out this way.)"""
    kernel: dict | None = None
    argument: dict | None = None
    kernels: list[dict] = []
    for line in lines:
        entry = re.match(r"^(\s*)(- )?\.(\w+):\s*(.*)$", line)
        if not entry:
            continue
        indent, dash, key, value = len(entry.group(1)), entry.group(2), entry.group(3), entry.group(4).strip("'\" ")
        if indent <= 2 and dash:
            kernel = {"args": [], "facts": {}}
            kernels.append(kernel)
            argument = None
        elif kernel is not None and dash and indent > 2:
            argument = {}
            kernel["args"].append(argument)
        if kernel is None:
            continue
        if key == "args":
            continue
        in_argument = argument is not None and indent + (2 if dash else 0) > 4
        if in_argument:
            argument[key] = value
        else:
            argument = None if indent <= 4 and not dash else argument
            kernel["facts"][key] = value
    for kernel in kernels:
        text = assembly.kernels.get(kernel["facts"].get("name", ""))
        if text is None:
            continue
        text.facts = {k: int(v) for k, v in kernel["facts"].items() if re.fullmatch(r"\d+", v)}
        for argument in kernel["args"]:
            text.arguments.append(
                Argument(
                    named(argument["name"]) if argument.get("name") else "",
                    int(argument.get("offset", 0)),
                    int(argument.get("size", 0)),
                    argument.get("value_kind", "by_value"),
                )
            )
