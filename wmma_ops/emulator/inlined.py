"""Which calls an instruction was inlined through, where clang tells it in its debugging information alone.

clang 20 and later name the calls in a comment behind each .loc line. Before that they stand in the sections of debugging
information, which are read here as clang writes them: a value a line, what it means in the comment behind it.
"""

import bisect
import itertools
import re
from collections.abc import Iterator
from typing import NamedTuple


class Frame(NamedTuple):
    """A place in the source, or a call there."""

    path: str
    line: int
    column: int


class _Entry(NamedTuple):
    """A call that was inlined, with what it was inlined into."""

    depth: int
    values: dict[str, str]  # by attribute


_LABEL = re.compile(r"^(\.L[\w$]+):")
_ABBREVIATION = re.compile(r"\.byte\s+(\d+)\s+; Abbreviation Code\n.*DW_TAG_\w+\n.*DW_CHILDREN_(\w+)")
_TAG = re.compile(r"; Abbrev \[(\d+)\] \S+ DW_TAG_(\w+)")
_ATTRIBUTE = re.compile(r"^\s+\.\w+\s+(\S+)\s+; DW_AT_(\w+)")
_DISTANCE = re.compile(r"(\.L[\w$]+)-(\.L[\w$]+)")


def leb128(text: str) -> int:
    """A value as the assembler reads it: digits, or from 128 on, where its length varies, the bytes of a LEB128."""
    if not text.startswith('"'):
        return int(text, 0)
    written = text[1:-1].encode().decode("unicode_escape").encode("latin-1")
    return sum((byte & 127) << 7 * place for place, byte in enumerate(written))


def _section(text: str, name: str) -> str:
    start = text.find(f"\n\t.section\t.debug_{name},")
    end = text.find("\n\t.section\t", start + 1)
    return "" if start < 0 else text[start : end if end > 0 else None]


def _entries(text: str) -> Iterator[_Entry]:
    has_children = {code: answer == "yes" for code, answer in _ABBREVIATION.findall(_section(text, "abbrev"))}
    depth, entry = 0, None
    for line in _section(text, "info").splitlines():
        if tag := _TAG.search(line):
            entry = _Entry(depth, {})
            depth += has_children[tag[1]]
            if tag[2] == "inlined_subroutine":
                yield entry  # its values follow
        elif "; End Of Children Mark" in line:
            depth -= 1
        elif entry is not None and (found := _ATTRIBUTE.match(line)):
            entry.values[found[2]] = found[1]


def _lists(text: str) -> list[list[tuple[str, str]]]:
    """Of each list of ranges the labels that they start and end at."""
    found: list[list[tuple[str, str]]] = []
    start = ""
    for line in _section(text, "rnglists").splitlines():
        distance = _DISTANCE.search(line)
        if line.startswith(".Ldebug_ranges"):
            found.append([])
        elif distance and "starting offset" in line:
            start = distance[1]
        elif distance and "ending offset" in line:
            found[-1].append((start, distance[1]))
        elif distance and "length" in line and found:
            found[-1].append((distance[2], distance[1]))
    return found


class Calls:
    """The calls around each line of an assembly text."""

    def __init__(self, text: str, paths: dict[str, str]):
        """`paths` are those of the text's files, by their numbers."""
        at = {found[1]: number for number, line in enumerate(text.splitlines(), 1) if (found := _LABEL.match(line))}
        lists = _lists(text)
        events = []  # (line, whether it starts there, which, depth, call)
        for which, (depth, values) in enumerate(list(_entries(text))):
            distance = _DISTANCE.search(values.get("high_pc", ""))
            ranges = [(distance[2], distance[1])] if distance else lists[leb128(values["ranges"])]
            line, column = leb128(values.get("call_line", "0")), leb128(values.get("call_column", "0"))
            call = Frame(paths.get(values.get("call_file", ""), ""), line, column)
            for start, end in ranges:
                events += [(at[start], True, which, depth, call), (at[end], False, which, depth, call)]
        self._starts: list[int] = []
        self._calls: list[tuple[Frame, ...]] = []
        active: dict[int, tuple[int, Frame]] = {}
        for number, those in itertools.groupby(sorted(events, key=lambda event: event[:2]), key=lambda event: event[0]):
            for _, starts, which, depth, call in those:
                if starts:
                    active[which] = depth, call
                else:
                    active.pop(which, None)
            self._starts.append(number)
            innermost_first = sorted(active.values(), key=lambda one: -one[0])
            self._calls.append(tuple(call for _, call in innermost_first))

    def around(self, number: int) -> tuple[Frame, ...]:
        """Of a line of the text, the innermost first."""
        before = bisect.bisect_right(self._starts, number) - 1
        return self._calls[before] if before >= 0 else ()
