"""What kernels print and assert, as it appears in Python."""

import struct

import numpy as np
import pytest
from kernel_features import ASSERTS, FAILED, HEAD, asserts, check_bounds, check_every_format, check_order, formats
from machine import Machine

import wmma_ops
from wmma_ops import jit
from wmma_ops.emulator import OutOfBounds, Trap
from wmma_ops.hardware import arch
from wmma_ops.runtime import printing
from wmma_ops.runtime.printing import FormatError, Item

TARGETS = pytest.mark.parametrize("target", arch.EMULATED)


@TARGETS
def test_every_format(target, capsys):
    check_every_format(Machine(target), capsys)


@TARGETS
def test_lines_come_by_block_and_thread_and_in_a_threads_own_order(target, capsys):
    check_order(Machine(target, "random"), capsys)


@TARGETS
def test_what_finds_no_room_is_dropped_and_told(target, capsys):
    check_bounds(Machine(target), capsys)


@TARGETS
def test_a_failed_assertion_says_all_of_itself(target, capsys):
    machine = Machine(target)
    for value, text in FAILED:
        wave = r"wave \d, "
        with pytest.raises(Trap, match=rf"^asserts on {target}: " + text.format(wave=wave) + "$"):
            asserts(machine, value)
        assert capsys.readouterr().out == "before 0\n"  # a trap ends all; what was printed before is there
    asserts(machine, 5)
    assert capsys.readouterr().out == "before 0\nbefore 1\n"
    asserts(machine, 200, "-DWMMA_NO_ASSERT")
    assert capsys.readouterr().out == "before 0\nbefore 1\n"


def test_no_assert_leaves_the_conditions_out():
    """Neither they nor what they read stays in the code."""
    source = (
        HEAD
        + 'extern "C" __global__ void one(int* x) {\n#ifdef KEEP\n  WMMA_ASSERT(x[7] > 3, "x is %d", x[7]);\n#endif\n'
        "  x[0] = 1;\n}"
    )
    for target in ("gfx942", "sm_90a"):

        def code(*options, target=target):
            compiled = jit.compile(source, target, options=options, name="one.hip")
            return [
                line.split(";")[0]
                for line in compiled.assembly.splitlines()
                if not line.strip().startswith((".", ";", "//"))
            ]

        assert code("-DKEEP", "-DWMMA_NO_ASSERT") == code() != code("-DKEEP")


def test_what_was_printed_comes_before_a_fault(capsys):
    source = HEAD + 'extern "C" __global__ void far(int* x) { print("at %d\\n", x[0]); x[100] = 1; }'
    import torch

    with wmma_ops.emulate("gfx942"), pytest.raises(OutOfBounds, match=r"far\.hip:4"):
        wmma_ops.Kernel(source, "far")[1, 2](torch.tensor([7], dtype=torch.int32))
    assert capsys.readouterr().out == "at 7\nat 7\n"


# What clang refuses as it compiles; what Python refuses, for a compiler that cannot look into a literal, as it formats.
REFUSED = [
    ("%y", "1", "has a letter that is none|has '%y'; after % come flags"),
    ("%d %", "1", "has a letter that is none|has '%'; after % come flags"),
    ("%5", "1", "has a letter that is none|has '%5'; after %"),
    ("%n", "x", "has a letter that is none|has '%n'"),
    ("%'d", "1", 'has a letter that is none|has "%\'"'),
    ("%1234d", "1", "has a letter that is none|has '%1234'"),
    ("%Lf", "1.0", "has a letter that is none|has '%L'"),
    ("%d", "", r"takes more values than there are|takes more values than there are \(%d\)"),
    ("%d", "1, 2", "takes fewer values than there are|takes 1 values; got 2"),
    ("%*d", "1.0f, 2", r"a \* in the format takes an integer|a \* in the format .* takes an integer; got a float"),
    ("%.*f", "1.0f, 2.0f", r"a \* in the format takes an integer|a \* in the format .* takes an integer; got a float"),
    ("%d", "1.0f", "does not fit its letter|%d in the format '%d' takes integers; got a float"),
    ("%f", "1", "does not fit its letter|%f in the format '%f' takes floats; got an integer"),
    ("%s", "x", "does not fit its letter|%s in the format '%s' takes text; got a pointer"),
    ("%p", '"a"', "does not fit its letter|%p in the format '%p' takes pointers; got text"),
    ("%d", "x", "does not fit its letter|%d in the format '%d' takes integers; got a pointer"),
    ("%x", "half_t(1.0f)", "does not fit its letter|%x in the format '%x' takes integers; got a float"),
]
ITEMS = {
    "1": Item("i", 4, struct.pack("<i", 1)), "2": Item("i", 4, struct.pack("<i", 2)),
    "x": Item("p", 8, bytes(8)),
    "1.0f": Item("f", 4, struct.pack("<f", 1)), "2.0f": Item("f", 4, struct.pack("<f", 2)),
    "1.0": Item("f", 8, struct.pack("<d", 1)),
    '"a"': Item("s", 2, b"a\0"), "half_t(1.0f)": Item("f", 4, struct.pack("<f", 1)),
}  # fmt: skip


def _says(call: str) -> str:
    return HEAD + f'extern "C" __global__ void says(int* x) {{ {call} }}'


@pytest.mark.parametrize(("form", "values", "text"), REFUSED, ids=[f"{form}-{values}" for form, values, _ in REFUSED])
def test_a_bad_format_is_refused(form, values, text):
    by_clang, by_python = text.split("|")
    comma = ", " if values else ""
    for call in (f'print("{form}"{comma}{values});', f'WMMA_ASSERT(x[0] == 1, "{form}"{comma}{values});'):
        with pytest.raises(jit.CompileError, match=rf"says\.hip:4:\d+: error: wmma: .*{by_clang}"):
            jit.compile(_says(call), "gfx942", name="says.hip")
    with pytest.raises(FormatError, match=by_python):
        printing.formatted(form.encode(), [ITEMS[value] for value in values.split(", ")] if values else [])


@pytest.mark.parametrize("target", ["gfx942", "sm_80"])
def test_a_value_that_has_no_letter_is_refused(target):
    source = HEAD + "struct S { int x; };\n" + 'extern "C" __global__ void says(int* x) { print("%d", S{1}); }'
    with pytest.raises(jit.CompileError, match=r"takes integers, floats, text and pointers|does not fit its letter"):
        jit.compile(source, target, name="says.hip")


@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_nvidia_compiles_the_same(target):
    for name, source in (("asserts", ASSERTS), ("formats", formats())):
        code = jit.compile(source, target, name=f"{name}.hip")
        assert not code.log
        # Drivers find it by its name, also where a compiler hides it.
        assert f".global .align 8 .b8 {printing.SYMBOL}[32]" in code.assembly


@pytest.mark.parametrize("size", [0, 63, 2**33, 1.5, "1"])
def test_a_bad_size_is_refused(size):
    with pytest.raises(ValueError, match=r"print_bytes is .*; takes a number from 64 to"):
        wmma_ops.Kernel(ASSERTS, "asserts", print_bytes=size)


def test_widths_that_a_kernel_gives_are_bounded():
    number = Item("i", 4, struct.pack("<i", 2**31 - 1))
    assert len(printing.formatted(b"%*d", [number, number])) == 1000


def test_a_buffer_after_a_trap_has_what_was_told_since():
    """The size in use is lost then: what is read is what lies there, past what was begun and never finished."""
    words = np.zeros(40, np.uint32)
    buffer = printing.Buffer(words)

    def put(at: int, number: int) -> None:
        text = int.from_bytes(b"%d\0", "little")
        words[at : at + 8] = [8, 1, 0, 3, ord("s") | 3 << 8, text, ord("i") | 4 << 8, number]

    put(0, 5)
    put(8, 6)
    state = struct.pack("<QQ", 16, 2) + buffer.state()[16:]
    records, dropped = buffer.read(state)
    assert ([record.text for record in records], dropped) == (["5", "6"], 2)
    words[0] = 0  # begun
    put(4, 7)
    assert [record.text for record in buffer.read(None)[0]] == ["7"]
