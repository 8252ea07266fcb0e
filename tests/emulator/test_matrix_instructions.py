"""Every matrix instruction of every emulated target, run by the emulator on registers filled and read through layouts.py.

The emulator has the lanes' layouts from its own description of the hardware (emulator/matrix.py), so the two check each
other: one-hot operands show where each element is, random whole numbers that nothing is lost.
"""

import numpy as np
import pytest

from wmma_ops.emulator import assembly, launch, narrow, numeric, program
from wmma_ops.emulator.bits import WORD
from wmma_ops.hardware import arch
from wmma_ops.hardware.layouts import layout

FP8 = {
    "float8_e4m3fn": "fp8",
    "float8_e5m2": "bf8",
    "float8_e4m3fnuz": "fp8_fnuz",
    "float8_e5m2fnuz": "bf8_fnuz",
}

ROWS = [
    (name, row)
    for name in arch.EMULATED
    for row in arch.target(name).instructions
    if "f8f6f4" not in row.name  # their types are modifiers: test_matrix_formats.py
]


def _codes(values: np.ndarray, kind: str) -> np.ndarray:
    """Whole numbers as the bits of a type."""
    if kind in ("float32", "xfloat32"):
        return values.astype(np.float32).view(np.uint32).astype(np.uint64)
    if kind == "float64":
        return values.astype(np.float64).view(np.uint64)
    if kind == "float16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint64)
    if kind == "bfloat16":
        return numeric.bf16_round(values.astype(np.float32)).astype(np.uint64)
    if kind in FP8:
        return narrow.encode(values.astype(np.float32), FP8[kind]).astype(np.uint64)
    return (values.astype(np.int64) & ((1 << arch.BITS[kind]) - 1)).astype(np.uint64)


def _fill(rows: np.ndarray, found, values: np.ndarray, kind: str) -> None:
    """Puts values [block, row, column] where the layout says."""
    codes = _codes(values, kind)
    for lane in range(found.lanes):
        for e in range(found.elements):
            row, column = found.element(lane, e)
            register, low = found.register(e)
            code = int(codes[found.block(lane, e), row, column])
            rows[register, lane] |= np.uint32((code << low) & 0xFFFFFFFF)
            if found.bits == 64:
                rows[register + 1, lane] = np.uint32(code >> 32)


def _read(rows: np.ndarray, found, kind: str) -> np.ndarray:
    out = np.full((found.blocks, *found.shape), np.nan)
    for lane in range(found.lanes):
        for e in range(found.elements):
            row, column = found.element(lane, e)
            register, low = found.register(e)
            code = int(rows[register, lane]) >> low
            if kind == "float64":
                value = numeric.sf64(code | int(rows[register + 1, lane]) << 32)
            elif kind == "float32":
                value = numeric.sf32(code)
            elif kind == "float16":
                value = numeric.sf16(code)
            elif kind == "bfloat16":
                value = numeric.sf32((code & 0xFFFF) << 16)
            else:
                value = numeric.signed(code)
            out[found.block(lane, e), row, column] = value
    return out


def _registers(found) -> int:
    last = found.register(found.elements - 1)[0] + (2 if found.bits == 64 else 1)
    return last


def _program(target: str, row, signed: tuple[int, int] = (1, 1)) -> tuple:
    layouts = {operand: layout(target, operand, row.builtin) for operand in "ABCD"}
    counts = {operand: _registers(found) for operand, found in layouts.items()}
    start, names, at = {}, {}, 4
    for operand in "ABCD":
        at += at % 2
        start[operand] = at
        count = counts[operand]
        names[operand] = f"v{at}" if count == 1 else f"v[{at}:{at + count - 1}]"
        at += count
    signs = f" neg_lo:[{signed[0]},{signed[1]},0]" if row.name.startswith("v_wmma") and row.a.startswith("int") else ""
    text = f"{row.name} {names['D']}, {names['A']}, {names['B']}, {names['C']}{signs}"
    kernel = assembly.KernelText("k", [assembly.parse_instruction(text), assembly.parse_instruction("s_endpgm")])
    kernel.facts = {"wavefront_size": row.wave, "vgpr_count": at + 4}
    return program.build(kernel, target), layouts, counts, start


def begin_with(built, function) -> None:
    """Has a program begin with a step of ours."""
    steps = built.blocks[0].steps
    for kept, first in (
        (steps.functions, function),
        (steps.arguments, ()),
        (steps.instructions, steps.instructions[0]),
    ):
        kept.insert(0, first)


def _execute(target: str, row, a: np.ndarray, b: np.ndarray, c: np.ndarray, signed=(1, 1)) -> np.ndarray:
    built, layouts, counts, start = _program(target, row, signed)
    contents = np.zeros_like(built.registers)
    for operand, values, kind in (("A", a, row.a), ("B", b, row.b), ("C", c, row.d)):
        rows = contents[start[operand] : start[operand] + counts[operand]]
        _fill(rows, layouts[operand], values, kind)

    def fill(st):
        built.registers[:] = contents
        st.written.update((f"v{i}", WORD) for i in range(len(contents)))

    begin_with(built, fill)
    launch(built, (1, 1, 1), (built.wave, 1, 1), b"", [])
    rows = built.registers[start["D"] : start["D"] + counts["D"]]
    return _read(rows, layouts["D"], row.d)


def _ids(value):
    return value if isinstance(value, str) else value.name


@pytest.mark.parametrize(("target", "row"), ROWS, ids=_ids)
def test_random_product(target, row):
    rng = np.random.default_rng(7)
    a = rng.integers(-3, 4, (row.blocks, row.m, row.k))
    b = rng.integers(-3, 4, (row.blocks, row.k, row.n))
    c = rng.integers(-9, 10, (row.blocks, row.m, row.n))
    got = _execute(target, row, a, b, c)
    assert np.array_equal(got, a @ b + c)


@pytest.mark.parametrize(("target", "row"), ROWS, ids=_ids)
def test_identity_and_one_hot(target, row):
    """A·I is A (in pieces of K), and one 1 in A meets exactly its row of B."""
    rng = np.random.default_rng(8)
    zero = np.zeros((row.blocks, row.m, row.n), dtype=np.int64)
    a = rng.integers(-3, 4, (row.blocks, row.m, row.k))
    eye = np.broadcast_to(np.eye(row.k, row.n, dtype=np.int64), (row.blocks, row.k, row.n))
    want = np.zeros_like(zero)
    width = min(row.k, row.n)
    want[:, :, :width] = a[:, :, :width]
    assert np.array_equal(_execute(target, row, a, eye, zero), want)
    b = rng.integers(-3, 4, (row.blocks, row.k, row.n))
    m, k, block = int(rng.integers(row.m)), int(rng.integers(row.k)), int(rng.integers(row.blocks))
    hot = np.zeros((row.blocks, row.m, row.k), dtype=np.int64)
    hot[block, m, k] = 1
    want = np.zeros_like(zero)
    want[block, m] = b[block, k]
    assert np.array_equal(_execute(target, row, hot, b, zero), want)


WHOLE = [(name, row) for name, row in ROWS if row.name.startswith("v_wmma") and row.a.startswith("int")]


@pytest.mark.parametrize(("target", "row"), WHOLE, ids=_ids)
def test_each_operand_has_its_own_sign(target, row):
    """All bits set are −1, or 15 of 4 bits and 255 of 8; then every code beside every other."""
    most = (1 << arch.BITS[row.a]) - 1
    ones = np.full((1, 16, row.k), most), np.full((1, row.k, 16), most), np.full((1, 16, 16), 5)
    for signed, product in (((1, 1), 1), ((1, 0), -most), ((0, 1), -most), ((0, 0), most * most)):
        assert (_execute(target, row, *ones, signed) == 5 + row.k * product).all(), signed
    codes = np.random.default_rng(9).integers(0, most + 1, (2, 1, 16, row.k))
    a, b = codes[0], codes[1].transpose(0, 2, 1)
    for signed in ((1, 0), (0, 1)):
        x, y = (np.where(sign & (z > most // 2), z - most - 1, z) for sign, z in zip(signed, (a, b), strict=True))
        assert np.array_equal(_execute(target, row, a, b, ones[2], signed), x @ y + 5), signed


def test_accumulation_is_float32_and_results_are_rounded_once():
    row = next(r for r in arch.target("gfx942").instructions if r.name == "v_mfma_f32_16x16x16_f16")
    a, b = np.zeros((1, 16, 16)), np.zeros((1, 16, 16))
    a[0, 0, 0], b[0, 0, 0] = 2048, 2048
    a[0, 0, 1], b[0, 1, 0] = 1, 1
    got = _execute("gfx942", row, a, b, np.zeros((1, 16, 16)))
    assert got[0, 0, 0] == 2048 * 2048 + 1


def test_halves_that_differ_are_refused_on_gfx11():
    row = next(r for r in arch.target("gfx1100").instructions if r.name == "v_wmma_f32_16x16x16_f16")
    built, _, _, start = _program("gfx1100", row)

    def fill(st):
        built.registers[:] = 0
        st.written.update((f"v{i}", WORD) for i in range(len(built.registers)))
        built.registers[start["A"], 20] = 5

    begin_with(built, fill)
    with pytest.raises(RuntimeError, match="same in lanes 0–15 and 16–31"):
        launch(built, (1, 1, 1), (32, 1, 1), b"", [])
