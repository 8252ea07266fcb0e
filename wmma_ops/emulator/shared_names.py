"""Which variable of shared memory lies where, and which one an access means, as far as clang tells.

Assembly has no names in shared memory: clang puts a kernel's variables into one struct just before it selects
instructions. With OPTIONS it prints its code before that step, where accesses name variables, and after it, where they
name fields of the struct. What of that text is not understood is left out: errors then name bytes alone.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from wmma_ops.emulator.placing import one_after_another

_PASS = "amdgpu-lower-module-lds"
OPTIONS = ("-mllvm", f"-print-before={_PASS}", "-mllvm", f"-print-after={_PASS}")

_DUMP = re.compile(rf"^.*\*\*\* IR Dump (Before|After) .*\({_PASS}\).*$", re.M)
_FUNCTION = re.compile(r"^define .*?@([\w.$]+)\(.*\{\n((?:[^}].*\n|\n)*)\}", re.M)
_TYPE_NAME = r'%(?:[\w.$]+|"[^"]+")'
_TYPE = re.compile(rf"^({_TYPE_NAME}) = type (.+)$", re.M)
_GLOBAL = re.compile(r"^@([\w.$]+) = .*\baddrspace\(3\) global (.+)$", re.M)
_STRUCT = re.compile(r"^@(llvm\.amdgcn\.[\w.$]+) = .*\baddrspace\(3\) global (%\S+) .*!absolute_symbol !(\d+)", re.M)
_NUMBERS = re.compile(r"^!(\d+) = !\{i32 (\d+), ", re.M)
_LOCATION = re.compile(
    r"^!(\d+) = (?:distinct )?!DILocation\(line: (\d+)(?:, column: (\d+))?, scope: !\d+(?:, inlinedAt: !(\d+))?", re.M
)
_USE = re.compile(
    r"\(([^()]+), ptr addrspace\(3\) @([\w.$]+)((?:, i32 -?\d+)+)\)"
    # So clang before 20 writes after its step what before it is as above.
    r"|getelementptr (?:\w+ )*?(i8), ptr addrspace\(3\) @([\w.$]+)((?:, i32 -?\d+)+)(?=, !|$)"
    r"|@([\w.$]+)",
    re.M,
)
_POINTER = re.compile(
    r"ptr addrspace\(3\)(?: \w+(?:\(\w+\))?)*? (%[\w.]+|@[\w.$]+|getelementptr [^()]*\([^()]*\(3\) @[^()]*\))"
)
_PRIVATE = "ptr addrspace(5)"
_SHARED_OR_PRIVATE = re.compile(r"ptr addrspace\([35]\)")
_RESULT = re.compile(r"^\s+(%[\w.]+) = (?:\w+ )*?(getelementptr|select|phi|freeze)\b(.*)$")
_ACCESS = re.compile(r"^\s+(?:%[\w.]+ = load|store) (?:volatile )?(.*)$")
_COPY = re.compile(r"@llvm\.mem(?:cpy|move)\.[^(]*\(.*, i(?:32|64) (\d+), i1 ")


@dataclass(frozen=True)
class Variable:
    name: str
    start: int
    size: int

    @property
    def stop(self) -> int:
        return self.start + self.size

    def __str__(self) -> str:
        return f"{self.name} (bytes {self.start} to {self.stop - 1})"


@dataclass(frozen=True)
class Meant:
    """What the accesses of one position in the source are meant for."""

    variables: tuple[Variable, ...]  # the only ones
    least: int  # bytes of the smallest of the accesses: what is no larger was not joined of several; 0 where not known


@dataclass(frozen=True)
class SharedNames:
    variables: tuple[Variable, ...]
    meant: dict[str, Meant]  # by an instruction's position

    def at(self, byte: int) -> str:
        """Where a byte lies, in words; nothing where that is not known."""
        found = next((v for v in self.variables if v.start <= byte < v.stop), None)
        return "" if found is None else f"byte {byte - found.start} of {found.name}"


def read(log: str, kernel: str) -> SharedNames | None:
    """The names of a kernel's shared memory, of what clang printed."""
    dumps = _DUMP.split(log)
    if dumps[1::2] != ["Before", "After"]:
        return None
    before, after = dumps[2::2]
    try:
        variables = _variables(before, after, kernel)
    except ValueError:  # a type that is not known here
        return None
    return SharedNames(tuple(sorted(variables.values(), key=lambda v: v.start)), _meant(before, variables))


def _variables(before: str, after: str, kernel: str) -> dict[str, Variable]:
    """By symbol."""
    types = dict(_TYPE.findall(before)) | dict(_TYPE.findall(after))
    sizes = {symbol: _extent(text, types)[0] for symbol, text in _GLOBAL.findall(before)}
    bases = dict(_NUMBERS.findall(after))
    fields = {}
    for symbol, type_name, number in _STRUCT.findall(after):
        if symbol in (f"llvm.amdgcn.kernel.{kernel}.lds", "llvm.amdgcn.module.lds"):
            fields[symbol] = [int(bases[number]) + at for at in _members(types[type_name], types)[0]]
    starts: dict[str, set[int]] = {}
    lowered = _lines(after)
    for name, lines in _lines(before).items():
        alike = lowered.get(name, [])
        if len(lines) != len(alike):  # the function's uses as a whole
            lines, alike = ["\n".join(lines)], ["\n".join(alike)]
        for line, line_after in zip(lines, alike, strict=True):
            named, placed = list(_uses(line, sizes)), list(_uses(line_after, fields))
            if len(named) != len(placed):
                continue
            for (symbol, own, own_type), (struct, given, type_name) in zip(named, placed, strict=True):
                in_bytes = own_type in ("", "i8")
                if type_name in ("", "i8") and in_bytes:
                    starts.setdefault(symbol, set()).add(fields[struct][0] + sum(given) - sum(own))
                elif type_name not in ("", "i8") and own_type != "i8":
                    starts.setdefault(symbol, set()).add(fields[struct][given[1]])
    found = {}
    for symbol, places in starts.items():
        if len(places) == 1 and sizes[symbol]:
            found[symbol] = Variable(_plain(symbol), places.pop(), sizes[symbol])
    return found


def _lines(text: str) -> dict[str, list[str]]:
    """Each function's lines that both dumps have."""
    return {
        name: [line for line in body.splitlines() if "@llvm.donothing" not in line]
        for name, body in _FUNCTION.findall(text)
    }


def _uses(line: str, symbols) -> Iterator[tuple[str, list[int], str]]:
    """(symbol, indices, type that they count in) of each use of the symbols in a line."""
    for match in _USE.finditer(line):
        if (symbol := match[2] or match[5] or match[7]) in symbols:
            indices = re.findall(r"i32 (-?\d+)", match[3] or match[6] or "")
            yield symbol, list(map(int, indices)), match[1] or match[4] or ""


def _meant(before: str, variables: dict[str, Variable]) -> dict[str, Meant]:
    """By position in the source: the variables that accesses there mean, where that is known of all of them."""
    positions, types = _positions(before), dict(_TYPE.findall(before))
    found: dict[str, set[Variable] | None] = {}
    least: dict[str, int] = {}
    for lines in _lines(before).values():
        results = {m[1]: m[3] for m in map(_RESULT.match, lines) if m}

        def meant(pointer: str, passed: frozenset[str], results=results) -> set[Variable] | None:
            symbol = re.search(r"@([\w.$]+)", pointer)
            if symbol:
                return {variables[symbol[1]]} if symbol[1] in variables else None
            if pointer in passed:
                return set()
            if pointer not in results:
                return None
            text = results[pointer]
            operands = re.findall(r"\[ (.+?), %[\w.]+ \]", text) if "[ " in text else _POINTER.findall(text)
            return _joined([meant(operand, passed | {pointer}) for operand in operands])

        for line in lines:
            if not _SHARED_OR_PRIVATE.search(line) or _RESULT.match(line) or "@llvm.lifetime." in line:
                continue
            number = re.search(r"!dbg !(\d+)", line)
            if number is None:
                return {}  # an instruction without a position would be taken to have that of the one before
            position = positions.get(number[1], "")
            # Clang may move an array of a thread's own into shared memory, later.
            here = None if _PRIVATE in line else _joined([meant(o, frozenset()) for o in _POINTER.findall(line)])
            found[position] = _joined([found.get(position, set()), here])
            size = _size(line, types)
            least[position] = min(least.get(position, size), size)
    return {
        position: Meant(tuple(sorted(those, key=lambda v: v.start)), least[position])
        for position, those in found.items()
        if position and those
    }


def _size(line: str, types: dict[str, str]) -> int:
    """Bytes of a load or store, or of those that a copy becomes; 0 of what is neither, or not known here."""
    if copy := _COPY.search(line):
        size = int(copy[1])
        return min(size, 16) if size % 16 == 0 or size in (1, 2, 4, 8) else 0
    access = _ACCESS.match(line)
    if access is None:
        return 0
    vector = re.match(r"<(\d+) x (.*)", access[1])  # whose size in memory may be more than what is accessed
    count, kind = (int(vector[1]), vector[2]) if vector else (1, access[1])
    try:
        return count * _extent(kind, types)[0]
    except ValueError:
        return 0


def _joined(parts: list[set[Variable] | None]) -> set[Variable] | None:
    return set().union(*parts) if parts and None not in parts else None


def _positions(text: str) -> dict[str, str]:
    """Of each location's number: its line and column and those of the calls that it was inlined into, as in assembly."""
    locations = {number: rest for number, *rest in _LOCATION.findall(text)}

    def position(number: str) -> str:
        line, column, outer = locations[number]
        return f"{line}:{column or 0}" + (f" {position(outer)}" if outer in locations else "")

    return {number: position(number) for number in locations}


def _plain(symbol: str) -> str:
    """A variable's own name, of its mangled one."""
    for match in reversed(list(re.finditer(r"\d+", symbol))):
        name, rest = symbol[match.end() :][: int(match[0])], symbol[match.end() + int(match[0]) :]
        if name.isidentifier() and re.fullmatch(r"(I.*)?E*(_\d*_?)?", rest):
            return name
    return symbol


# -------------------------------------------------------------------------------------------------------------- types


_SCALARS = {"half": 2, "bfloat": 2, "float": 4, "double": 8, "ptr": 8}
_NEAR = ("2", "3", "5", "6")  # address spaces whose pointers have 32 bits


def _extent(text: str, types: dict[str, str]) -> tuple[int, int, str]:
    """(size, alignment, the rest of the text) of the type at the start of a text."""
    text = text.lstrip()
    if match := re.match(r"ptr addrspace\((\d)\)", text):
        size = 4 if match[1] in _NEAR else 8
    elif match := re.match(r"i(\d+)", text):
        size = 1 << max(int(match[1]) - 1, 0).bit_length() >> 3 or 1
    elif match := re.match("|".join(_SCALARS), text):
        size = _SCALARS[match[0]]
    elif match := re.match(_TYPE_NAME, text):
        size, alignment, _ = _extent(types[match[0]], types) if match[0] in types else _unknown(text)
        return size, alignment, text[match.end() :]
    elif match := re.match(r"([\[<])(\d+) x ", text):
        size, alignment, rest = _extent(text[match.end() :], types)
        size *= int(match[2])
        if match[1] == "<":
            size = alignment = 1 << max(size - 1, 0).bit_length()
        return size, alignment, rest[1:]
    elif match := re.match(r"<?\{", text):
        *_, size, alignment, rest = _members(text, types)
        return size, alignment, rest
    else:
        _unknown(text)
    return size, size, text[match.end() :]


def _unknown(text: str):
    raise ValueError(f"a type that starts as {text[:40]!r}")


def _members(text: str, types: dict[str, str]) -> tuple[list[int], int, int, str]:
    """(where the members lie, size, alignment, the rest of the text) of the struct at the start of a text."""
    packed = text.startswith("<")
    rest, parts = text[1 + packed :].lstrip(), []
    while not rest.startswith("}"):
        size, alignment, rest = _extent(rest.lstrip(", "), types)
        parts.append((size, 1 if packed else alignment))
        rest = rest.lstrip()
    return *one_after_another(parts), rest[1 + packed :]
