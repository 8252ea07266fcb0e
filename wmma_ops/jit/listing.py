"""A code object as the assembly that it could have been made from: what the emulator reads of kernels that others compiled.

Branches get labels, addresses that code computes from its own place get symbols, and all that the kernel's descriptor and
the metadata tell stands as the assembler's directives. Behind each instruction stands its address, as llvm-objdump shows it.
"""

import bisect
import re
from collections.abc import Iterator
from typing import NamedTuple

from wmma_ops.jit import descriptor, disassembler, elf, metadata

_ABS64, _RELATIVE64 = 3, 13  # relocations
_BRANCH = re.compile(r"^(s_branch|s_cbranch_\w+) (\d+)$")
_ADD = re.compile(r"^(s_add_u32|s_add_co_u32|s_addc_u32|s_add_co_ci_u32) (s\d+), (s\d+), (-?(?:0x)?[\da-f]+)$")
_GETPC = re.compile(r"^s_getpc_b64 s\[(\d+):(\d+)\]$")
_BETWEEN = ("s_wait", "s_sext_i32_i16", "s_nop", "s_delay_alu")
_SPELLINGS = {"s_barrier_wait 0xffff": "s_barrier_wait -1"}  # the compiler's
_PADDING = ("s_nop", "s_code_end", disassembler.UNDECODED)


def listing(code: bytes, target: str) -> str:
    """The assembly of a code object for `target`."""
    return "\n".join(_Listing(code, target).lines()) + "\n"


class _Listing:
    def __init__(self, code: bytes, target: str):
        self.code, self.target = code, target
        self.kernels = metadata.kernels(code)
        self.symbols = elf.symbols(code)
        self.data = _data(code, self.symbols)
        self.starts = [one.address for one in self.data]
        self.decoded = disassembler.decode(code, target)
        self.places = {one.address: index for index, one in enumerate(self.decoded)}
        self.descriptors = {name: self._descriptor(kernel[".symbol"]) for name, kernel in self.kernels.items()}
        self.computed = list(self._computed())
        self.functions = self._functions()
        self.function_starts = list(self.functions)
        self.edits: dict[int, str] = {}  # of instructions, by their index
        self.labels: dict[int, list[str]] = {}  # by address
        self._branches()
        self._addresses()

    def _descriptor(self, symbol: str) -> tuple[int, dict[str, int]]:
        """Its address, and its fields."""
        address = next((one.address for one in self.symbols if one.name == symbol), None)
        content = None if address is None else _bytes_at(self.code, address, descriptor.SIZE)
        if content is None:
            raise ValueError(f"its kernel descriptor {symbol} is not in the file")
        return address, descriptor.read(content, self.target)

    def _functions(self) -> dict[int, str]:
        """Where each begins: kernels, what symbols name, and what code takes the address of."""
        found = {one.address: one.name for one in self.symbols if one.kind == elf.FUNC and one.address in self.places}
        for name, (address, fields) in self.descriptors.items():
            if address + fields["entry"] not in self.places:
                raise ValueError(f"{name} begins at 0x{address + fields['entry']:x}, where no code is")
            found[address + fields["entry"]] = name
        for _, _, far, place in self.computed:
            if not far and place in self.places:
                found.setdefault(place, f"code_{place:x}")
        return dict(sorted(found.items()))

    # Places in the code.

    def _branches(self) -> None:
        for index, one in enumerate(self.decoded):
            if match := _BRANCH.match(one.text):
                skipped = int(match[2]) - (1 << 16) * (int(match[2]) >> 15)
                place = one.address + one.size + 4 * skipped
                if place not in self.places:
                    raise ValueError(
                        f"0x{one.address:x}: `{one.text}` goes to 0x{place:x}, where no instruction begins"
                    )
                self.edits[index] = f"{match[1]} {self._label(place)}"

    def _label(self, place: int) -> str:
        name = f".L{place:x}"
        if name not in self.labels.setdefault(place, []):
            self.labels[place].append(name)
        return name

    def _computed(self) -> Iterator[tuple[int, list[int], bool, int]]:
        """Addresses that code computes from its own: (s_getpc_b64, the two adds, whether it jumps there, the address)."""
        for start, one in enumerate(self.decoded):
            pair = _GETPC.match(one.text)
            if not pair:
                continue
            adds, values = [], []
            at = start + 1
            while at < len(self.decoded) and len(adds) < 2 and at - start < 9:
                text = self.decoded[at].text
                match = _ADD.match(text)
                if match and match[2] == match[3] == f"s{pair[1 + len(adds)]}":
                    adds.append(at)
                    values.append(int(match[4], 0) & 0xFFFFFFFF)
                elif not text.startswith(_BETWEEN):
                    break
                at += 1
            if len(adds) == 2:
                while at < len(self.decoded) and self.decoded[at].text.startswith(_BETWEEN):
                    at += 1
                far = at < len(self.decoded) and self.decoded[at].text == f"s_setpc_b64 s[{pair[1]}:{pair[2]}]"
                distance = values[0] | values[1] << 32
                yield start, adds, far, (one.address + one.size + distance) & (1 << 64) - 1

    def _addresses(self) -> None:
        for start, adds, far, place in self.computed:
            if (
                far
                and place in self.places
                and self._function_of(place) == self._function_of(self.decoded[start].address)
            ):
                self._far(start, adds, place)
                continue
            name, offset = self._symbol(place)
            if name is None:
                continue  # the emulator says what it does not take
            passed = 0  # as emulator/linking.py counts
            for at in range(start + 1, adds[1] + 1):
                if at in adds:
                    part = "lo" if at == adds[0] else "hi"
                    head = self.decoded[at].text.rpartition(", ")[0]
                    self.edits[at] = f"{head}, {name}@rel32@{part}{offset + passed + 4:+d}"
                passed += 8 if at in adds else 4

    def _far(self, start: int, adds: list[int], place: int) -> None:
        """A branch within the function, as the compiler writes those that no branch reaches."""
        behind = self.decoded[start].address + self.decoded[start].size
        after = f".Lpost_getpc{start}"
        self.labels.setdefault(behind, []).append(after)
        for at, part in zip(adds, ("&4294967295", ">>32"), strict=True):
            head = self.decoded[at].text.rpartition(", ")[0]
            self.edits[at] = f"{head}, ({self._label(place)}-{after}){part}"

    def _function_of(self, place: int) -> int:
        return bisect.bisect_right(self.function_starts, place)

    def _symbol(self, place: int) -> tuple[str | None, int]:
        """What lies at an address: a name, and how far behind its beginning."""
        if place in self.functions:
            return self.functions[place], 0
        at = bisect.bisect_right(self.starts, place) - 1
        if at >= 0 and place <= self.data[at].address + self.data[at].size:
            return self.data[at].name, place - self.data[at].address
        return None, 0

    # What is written.

    def lines(self) -> Iterator[str]:
        yield f'\t.amdgcn_target "amdgcn-amd-amdhsa--{self.target}"'
        starts = self.function_starts
        for start, stop in zip(starts, [*starts[1:], None], strict=True):
            yield from self._function(start, stop)
        for name, (_, fields) in self.descriptors.items():
            yield f"\t.amdhsa_kernel {name}"
            yield from (f"\t\t.amdhsa_{field} {value}" for field, value in fields.items() if field != "entry")
            yield "\t.end_amdhsa_kernel"
        relocations = elf.relocations(self.code)
        yield '\t.section .data,"aw"'
        for one in self.data:
            yield f"{one.name}:"
            if one.content:
                yield from self._contents(one.address, one.content, relocations)
            else:
                yield f"\t.zero {one.size}"
        yield from self._metadata()

    def _function(self, start: int, stop: int | None) -> Iterator[str]:
        first = self.places[start]
        last = self.places[stop] if stop in self.places else len(self.decoded)
        while last > first + 1 and self.decoded[last - 1].text.startswith(_PADDING) and not self._reached(last - 1):
            last -= 1
        yield "\t.text"
        yield f"{self.functions[start]}:"
        for index in range(first, last):
            one = self.decoded[index]
            yield from (f"{label}:" for label in self.labels.get(one.address, ()))
            text = self.edits.get(index) or _SPELLINGS.get(one.text, one.text)
            yield f"\t{text} // {one.address:012X}"

    def _reached(self, index: int) -> bool:
        return self.decoded[index].address in self.labels

    def _contents(self, start: int, content: bytes, relocations: dict) -> Iterator[str]:
        at = 0
        for place in sorted(address - start for address in relocations if start <= address < start + len(content)):
            yield from _bytes(content[at:place])
            kind, name, addend = relocations[start + place]
            if kind == _RELATIVE64:
                name, addend = self._symbol(addend)
            yield f"\t.quad {name}{addend:+d}" if kind in (_ABS64, _RELATIVE64) and name else "\t.quad 0"
            at = place + 8
        yield from _bytes(content[at:])

    def _metadata(self) -> Iterator[str]:
        yield from ("\t.amdgpu_metadata", "---", "amdhsa.kernels:")
        for kernel in self.kernels.values():
            yield "  - .args:"
            for argument in kernel.get(".args", ()):
                yield f"      - .name: {argument.get('.name', '')}"
                yield from (f"        {key}: {argument[key]}" for key in (".offset", ".size", ".value_kind"))
            told = {
                key: value for key, value in kernel.items() if isinstance(value, int) or key in (".name", ".symbol")
            }
            yield from (f"    {key}: {value}" for key, value in told.items())
        yield "\t.end_amdgpu_metadata"


def _bytes(content: bytes) -> Iterator[str]:
    if content and not any(content):
        yield f"\t.zero {len(content)}"
        return
    words, rest = divmod(len(content), 8)
    yield from (f"\t.quad 0x{int.from_bytes(content[8 * i : 8 * i + 8], 'little'):x}" for i in range(words))
    yield from (f"\t.byte {byte}" for byte in content[len(content) - rest :])


def _loaded(code: bytes) -> list[elf.Section]:
    return [one for one in elf.sections(code) if one.flags & elf.ALLOCATED and one.kind in (elf.PROGBITS, elf.NOBITS)]


class _Datum(NamedTuple):
    address: int
    name: str
    size: int
    content: bytes  # none where it is zeros that the file leaves out


def _data(code: bytes, symbols: list[elf.Symbol]) -> list[_Datum]:
    """Constants and variables by address: those that symbols name, and what lies between them."""
    named = {
        one.address: one for one in symbols if one.kind == elf.OBJECT and one.size and not one.name.endswith(".kd")
    }
    found = []

    def add(name: str, start: int, stop: int) -> None:
        first = start - section.address
        found.append(_Datum(start, name, stop - start, section.contents[first : stop - section.address]))

    for section in _loaded(code):
        if section.flags & elf.EXECUTABLE or not section.size:
            continue
        at, end = section.address, section.address + section.size
        for start in [*sorted(place for place in named if at <= place < end), end]:
            if at < start:
                add(f"data_{at:x}", at, start)
            if start < end:
                at = min(start + named[start].size, end)
                add(named[start].name, start, at)
    if sum(len(one.content) for one in found) > 2 * len(code):
        raise ValueError("its variables overlap")
    return sorted(found)


def _bytes_at(code: bytes, address: int, size: int) -> bytes | None:
    for section in _loaded(code):
        at = address - section.address
        if section.contents and 0 <= at <= len(section.contents) - size:
            return section.contents[at : at + size]
    return None
