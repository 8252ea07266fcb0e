"""What kernels say by `wmma::print` and WMMA_ASSERT: the host's side of kernels/wmma/print_buffer.hpp."""

import ctypes
import functools
import os
import re
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

SYMBOL = "_ZN4wmma6detail12print_bufferILi0EEE"  # wmma::detail::print_buffer<0>
_BUFFER = "<QQQQ"  # used, dropped, capacity, address: PrintBuffer
_PRINTED, _ASSERTED = 1, 2
_HEAD = 4  # words before a record's items
_GLANCE = 1 << 16  # words looked at together where nothing is written

_CONVERSION = re.compile(r"%([-+ #0]*)(\*|\d{0,3})(?:(\.)(\*|\d{0,3}))?(hh|h|ll|l|z|j|t|)(.|$)", re.S)
_INTEGERS, _FLOATS = "diuoxXc", "fFeEgGaA"
_TAKES = {**dict.fromkeys(_INTEGERS, "integers"), **dict.fromkeys(_FLOATS, "floats"), "s": "text", "p": "pointers"}
_ARE = {"i": "an integer", "u": "an unsigned integer", "f": "a float", "s": "text", "p": "a pointer"}
_MOST = 1000  # of a width or precision that a kernel gives


class FormatError(ValueError):
    """A format that its values do not fit."""


@dataclass(frozen=True)
class Item:
    letter: str  # as in print_buffer.hpp
    size: int
    content: bytes

    def integer(self, signed: bool) -> int:
        return int.from_bytes(self.content, "little", signed=signed)

    @property
    def text(self) -> bytes:
        return self.content.partition(b"\0")[0]

    @property
    def float(self) -> float:
        return struct.unpack("<f" if self.size == 4 else "<d", self.content)[0]


@dataclass(frozen=True)
class Record:
    what: int
    block: int
    thread: int
    items: tuple[Item, ...]

    @property
    def is_assertion(self) -> bool:
        return self.what == _ASSERTED

    @property
    def text(self) -> str:
        """What was printed; of an assertion its condition, message and place."""
        if not self.is_assertion:
            return formatted(self.items[0].text, self.items[1:])
        condition, file, line, message, *values = self.items
        said = formatted(message.text, values)
        place = f"{os.path.basename(file.text.decode(errors='replace'))}:{line.integer(True)}"
        return f"{place}: assertion `{condition.text.decode(errors='replace')}` failed" + (f": {said}" if said else "")


class Buffer:
    """Memory for records, as `state` tells a kernel of it. `words` is an array of zeros that the device sees."""

    def __init__(self, words: np.ndarray):
        self.words = words

    def state(self) -> bytes:
        return struct.pack(_BUFFER, 0, 0, self.words.size, self.words.ctypes.data)

    def read(self, state: bytes | None) -> tuple[list[Record], int]:
        """(the records by block and thread, the number of those that found no room). `state` is the kernel's, after it ran;
        None where it was lost. What was read is gone."""
        used, dropped, *_ = struct.unpack(_BUFFER, state) if state is not None else (self.words.size, 0)
        used = min(used, self.words.size)
        records = sorted(self._records(used), key=lambda record: (record.block, record.thread))
        self.words[:used] = 0
        return records, dropped

    def _records(self, used: int) -> Iterator[Record]:
        at = 0
        while at < used:
            total, what, block, thread = self.words[at : at + _HEAD].tolist() if at + _HEAD <= used else (0,) * 4
            if total == 0:  # asked for, and never finished: a trap came before
                near = self.words[at : min(at + _GLANCE, used)] != 0
                at += int(near.argmax()) if near.any() else near.size
                continue
            items, place, end = [], at + _HEAD, at + total
            while place < end:
                kind = int(self.words[place])
                size = kind >> 8
                content = self.words[place + 1 : place + 1 + -(-size // 4)].tobytes()[:size]
                items.append(Item(chr(kind & 255), size, content))
                place += 1 + -(-size // 4)
            yield Record(what, block, thread, tuple(items))
            at = end


@functools.cache
def _snprintf():
    found = ctypes.CDLL(None).snprintf
    found.restype = ctypes.c_int
    return found


def _converted(spec: bytes, value) -> bytes:
    """One conversion, by C's own function."""
    size = _snprintf()(None, ctypes.c_size_t(0), spec, value)
    buffer = ctypes.create_string_buffer(size + 1)
    _snprintf()(buffer, ctypes.c_size_t(size + 1), spec, value)
    return buffer.raw[:size]


def formatted(form: bytes, values: Sequence[Item]) -> str:
    """The values as printf would write them; raises FormatError where they do not fit, which clang says earlier."""
    text, left = form.decode("utf-8", "surrogateescape"), list(values)

    def take(what: str) -> Item:
        if not left:
            raise FormatError(f"wmma::print: the format {text!r} takes more values than there are ({what})")
        return left.pop(0)

    def star(given: str | None, what: str) -> str:
        if given != "*":
            return given or ""
        item = take(what)
        if item.letter not in "iu":
            raise FormatError(f"wmma::print: a * in the format {text!r} takes an integer; got {_ARE[item.letter]}")
        return str(max(-_MOST, min(item.integer(True), _MOST)))

    def convert(found: re.Match) -> str:
        if found[0] == "%%":
            return "%"
        flags, width, point, precision, modifier, letter = found.groups()
        if letter not in _TAKES or letter == "":
            raise FormatError(
                f"wmma::print: the format {text!r} has {found[0]!r}; after % come flags of -+ #0, width and precision of up "
                f"to three digits or *, and a letter of {' '.join(_TAKES)}, or %"
            )
        wide, exact = star(width, "a width"), star(precision, "a precision")
        # A negative precision counts as none, a negative width as the flag -.
        spec = f"%{flags}{wide}" + (f".{exact}" if point and not exact.startswith("-") else "")
        return _one(spec, modifier, letter, take(found[0]), text)

    out = _CONVERSION.sub(convert, text)
    if left:
        raise FormatError(f"wmma::print: the format {text!r} takes {len(values) - len(left)} values; got {len(values)}")
    return out


def _one(spec: str, modifier: str, letter: str, item: Item, form: str) -> str:
    fits = {"i": _INTEGERS, "u": _INTEGERS, "f": _FLOATS}.get(item.letter, item.letter)
    if letter not in fits:
        raise FormatError(
            f"wmma::print: %{letter} in the format {form!r} takes {_TAKES[letter]}; got {_ARE[item.letter]}"
        )
    if letter in _FLOATS:
        found = _converted(f"{spec}{letter}".encode(), ctypes.c_double(item.float))
    elif letter == "s":
        found = _converted(f"{spec}s".encode(), ctypes.c_char_p(item.text))
    elif letter == "p":
        found = _converted(f"{spec}p".encode(), ctypes.c_void_p(item.integer(False)))
    elif letter == "c":
        found = _converted(f"{spec}c".encode(), ctypes.c_int(item.integer(False) & 255))
    else:
        kept = {"hh": 1, "h": 2}.get(modifier, item.size)
        number = int.from_bytes(item.content[:kept], "little", signed=letter in "di")
        found = _converted(f"{spec}ll{letter}".encode(), ctypes.c_longlong(number))
    return found.decode("utf-8", "surrogateescape")


def place(record: Record, grid, block, wave: int | None = None) -> str:
    """A record's block and thread, and its wave where that is asked for."""
    at = [
        tuple(rank // before % size for size, before in zip(sizes, (1, sizes[0], sizes[0] * sizes[1]), strict=True))
        for rank, sizes in ((record.block, grid), (record.thread, block))
    ]
    return f"block {at[0]}, " + (f"wave {record.thread // wave}, " if wave else "") + f"thread {at[1]}"


def at_the_kernels_line(failed: str, place: str) -> str:
    """What an assertion of the library's headers says, at the line of the kernel that called them. `place` is the trap's."""
    header, _, said = failed.partition(": ")
    line, _, inner = place.partition(" (in ")
    return f"{line} (in {header}): {said}" if inner and line != header else failed


def tell(kernel: str, records: Sequence[Record], dropped: int, bytes_given: int, place: Callable[[Record], str]) -> str:
    """Writes what was printed to Python's standard output; gives what the first failed assertion says, or nothing.
    `place` names a record's block and thread."""
    texts = []
    try:
        texts += (record.text for record in records if not record.is_assertion)
    finally:
        sys.stdout.write("".join(texts).encode("utf-8", "surrogateescape").decode("utf-8", "replace"))
        if dropped:
            sys.stdout.write(
                f"[{kernel}: {dropped} more calls of print found no room in {bytes_given} bytes; "
                "Kernel(…, print_bytes=…) gives more]\n"
            )
    failed = [record for record in records if record.is_assertion]
    if not failed:
        return ""
    more = f" (and in {len(failed) - 1} more threads)" if len(failed) > 1 else ""
    at, _, said = failed[0].text.partition(": ")
    return f"{at}: {place(failed[0])}: {said}{more}"
