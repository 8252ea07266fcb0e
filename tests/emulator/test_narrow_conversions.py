"""gfx950's conversions from and to floats of 8, 6 and 4 bits with a scale, by nearest even and by random bits.

Expected are values computed by hand from AMD's ISA document of CDNA4, tables typed off, and torch's 8-bit types.
"""

import numpy as np
import pytest
import torch
from test_emulator import execute
from test_matrix_formats import BITS, VALUES
from test_transposed_reads import packed

import wmma_ops
from wmma_ops.emulator import UnknownInstruction

NAN, INF = float("nan"), float("inf")
LANES = np.arange(64)
EIGHT = 8.0  # a scale


def f32(*values: float) -> np.ndarray:
    return np.array(values, np.float32).view(np.uint32)


def halves(values: np.ndarray, kind: str) -> np.ndarray:
    """[elements, lanes] as pairs of float16 or bfloat16 in words."""
    x = torch.from_numpy(np.asarray(values, np.float32)).to({"f16": torch.float16, "bf16": torch.bfloat16}[kind])
    bits = x.view(torch.int16).numpy().view(np.uint16).astype(np.uint32)
    bits[np.isnan(values)] = {"f16": 0x7E00, "bf16": 0x7FC0}[kind]  # torch sets its sign
    return bits[0::2] | bits[1::2] << np.uint32(16)


def of_halves(words: np.ndarray, kind: str) -> np.ndarray:
    both = np.stack([words & 0xFFFF, words >> 16], 1).reshape(-1, words.shape[-1]).astype(np.uint16)
    return (
        torch.from_numpy(both.view(np.int16)).view({"f16": torch.float16, "bf16": torch.bfloat16}[kind]).float().numpy()
    )


def one(line: str, *inputs: int, old: int = 0x44332211, register: int = 10, target: str = "gfx950") -> int:
    """v10 after an instruction on v1, v2, …; it held `old`."""
    built = execute(f"v_mov_b32 v10, {old}\n{line}", target, tuple(int(x) for x in inputs))
    return int(built.registers[register][7])


# From narrow floats.


@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["fp4", "fp8", "bf8"])
def test_pairs_of_every_code(kind, wide):
    bits = BITS[kind]
    codes = np.array([LANES * 4 & (1 << bits) - 1, LANES * 4 + 3 & (1 << bits) - 1])
    with np.errstate(over="ignore"):
        want = (VALUES[kind][codes] * EIGHT).astype(np.float16 if wide == "f16" else np.float32)
    for place in range(2 if bits == 8 else 4):
        select = f"op_sel:[{place},0,0]" if bits == 8 else f"op_sel:[{place & 1},{place >> 1},0]"
        word = (codes[0] | codes[1] << bits) << 2 * bits * place
        into = "v[10:11]" if wide == "f32" else "v10"
        body = f"v_cvt_scalef32_pk_{wide}_{kind} {into}, v1, v2 {select}"
        found = execute(body, "gfx950", (word, f32(EIGHT)[0])).registers
        got = found[10:12].view(np.float32) if wide == "f32" else of_halves(found[10:11], wide)
        assert np.array_equal(got, want, equal_nan=True), place


@pytest.mark.parametrize("kind", ["fp8", "bf8"])
def test_single_bytes(kind):
    codes = LANES * 4 + 1
    want = (VALUES[kind][codes] / EIGHT).astype(np.float32)
    for byte in range(4):
        select = f"op_sel:[{byte & 1},{byte >> 1},0]"
        body = f"v_mov_b32 v11, -1\nv_cvt_scalef32_f32_{kind} v10, v1, v2 {select}\n"
        body += f"v_cvt_scalef32_f16_{kind} v11, v1, v2 {select[:-2]}1]"
        found = execute(body, "gfx950", (codes << 8 * byte, f32(1 / EIGHT)[0])).registers
        assert np.array_equal(found[10].view(np.float32), want, equal_nan=True)
        low, high = of_halves(found[11:12], "f16")
        assert np.isnan(low).all()  # kept
        assert np.array_equal(high, want.astype(np.float16).astype(np.float32), equal_nan=True)


@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["fp6", "bf6"])
def test_thirty_two_of_every_code(kind, wide):
    codes = (LANES[:, None] + 5 * np.arange(32)) % 64
    count = 32 if wide == "f32" else 16
    body = f"v_cvt_scalef32_pk32_{wide}_{kind} v[10:{9 + count}], v[1:6], v7"
    found = execute(body, "gfx950", (*packed(codes, 6), f32(EIGHT)[0])).registers[10 : 10 + count]
    got = found.view(np.float32) if wide == "f32" else of_halves(found, wide)
    assert np.array_equal(got.T, VALUES[kind][codes] * EIGHT)


def test_ends_of_the_scale():
    """The exponent alone counts: 0 is 2⁻¹²⁷, 255 NaN. Results beyond the wide type are infinite, below it rounded once."""
    assert one("v_cvt_scalef32_f32_fp8 v10, v1, v2", 0x38, f32(-3.9)[0]) == f32(2.0)[0]
    assert one("v_cvt_scalef32_f32_fp8 v10, v1, v2", 0x38, 5) == f32(2.0**-127)[0]
    assert one("v_cvt_scalef32_f32_fp8 v10, v1, v2", 0x01, 0) == f32(2.0**-136)[0]
    assert one("v_cvt_scalef32_f32_fp8 v10, v1, v2", 0x38, 0x7F800000) & 0x7FFFFFFF > f32(INF)[0]
    assert one("v_cvt_scalef32_f32_fp8 v10, v1, v2", 0x7E, f32(2.0**127)[0]) == f32(INF)[0]
    assert one("v_cvt_scalef32_f32_fp8 v10, v1, 0.5", 0x38, 0) == f32(0.5)[0]
    # 1.5 · 2⁻²⁴ lies between two of float16's least, and goes to the even one.
    assert one("v_cvt_scalef32_f16_fp8 v10, v1, v2", 0x3C, f32(2.0**-24)[0], old=0) == 2
    assert one("v_cvt_scalef32_f16_bf8 v10, v1, v2", 0xFB, f32(2.0)[0], old=0) == 0xFC00


# To narrow floats, nearest even.

FP4 = [
    (0.25, 0), (0.26, 1), (0.75, 2), (1.25, 2), (1.75, 4), (2.5, 4), (2.6, 5), (3.5, 6), (5.0, 6), (5.1, 7), (7.0, 7),
    (100.0, 7), (INF, 7), (NAN, 7), (-0.0, 8), (-0.3, 9), (-3.5, 14), (-INF, 15),
]  # fmt: skip
FP6 = [
    (0.0625, 0),
    (0.07, 1),
    (0.1875, 2),
    (1.0625, 8),
    (7.25, 30),
    (7.3, 31),
    (7.8, 31),
    (INF, 31),
    (-1.0, 40),
    (NAN, 31),
]
BF6 = [(0.03125, 0), (0.04, 1), (0.09375, 2), (0.25, 4), (26.0, 30), (26.1, 31), (30.0, 31), (-INF, 63), (-0.25, 36)]
FP8 = [
    (448.0, 0x7E),
    (464.0, 0x7E),
    (465.0, 0x7F),
    (-INF, 0xFF),
    (NAN, 0x7F),
    (2.0**-10, 0),
    (2.0**-9, 1),
    (-1.0, 0xB8),
]
BF8 = [(57344.0, 0x7B), (61439.0, 0x7B), (61440.0, 0x7C), (-INF, 0xFC), (2.0**-17, 0), (2.0**-16, 1), (-1.0, 0xBC)]


@pytest.mark.parametrize("scale", [1.0, EIGHT, 2.0**-20])
def test_pairs_to_nearest_even(scale):
    for kind, cases in (("fp4", FP4), ("fp8", FP8), ("bf8", BF8)):
        values, codes = (np.array(part) for part in zip(*cases, strict=True))
        at = LANES % len(values)
        other = (LANES + 1) % len(values)
        with np.errstate(over="ignore"):
            x, y = ((values[where] * scale).astype(np.float32).view(np.uint32) for where in (at, other))
        bits = BITS[kind]
        want = (codes[at] | codes[other] << bits).astype(np.uint32)
        for place in range(32 // (2 * bits)):
            select = f"op_sel:[0,0,0,{place}]" if bits == 8 else f"op_sel:[0,0,{place & 1},{place >> 1}]"
            body = f"v_mov_b32 v10, 0x44332211\nv_cvt_scalef32_pk_{kind}_f32 v10, v1, -v2, v3 {select}"
            shift, mask = 2 * bits * place, (1 << 2 * bits) - 1
            found = execute(body, "gfx950", (x, y ^ np.uint32(1 << 31), f32(scale)[0])).registers[10]
            nan = np.isnan(values[other])  # whose sign is of no concern
            got = found >> np.uint32(shift) & np.uint32(mask)
            assert np.array_equal(got[~nan], want[~nan]), (kind, place)
            kept = 0xFFFFFFFF ^ mask << shift
            assert set((found & np.uint32(kept)).tolist()) == {0x44332211 & kept}


@pytest.mark.parametrize("wide", ["f16", "bf16"])
@pytest.mark.parametrize("kind", ["fp4", "fp8", "bf8"])
def test_pairs_of_halves(kind, wide):
    """Every code there and back, beside a place that keeps what it had."""
    codes = np.array([LANES * 4 & (1 << BITS[kind]) - 1, LANES * 4 + 3 & (1 << BITS[kind]) - 1])
    usable = np.isfinite(VALUES[kind][codes]).all(axis=0)
    bits = BITS[kind]
    select = "op_sel:[0,0,1]" if bits == 8 else "op_sel:[0,0,1,1]"
    shift = 16 if bits == 8 else 24
    values = np.where(np.isfinite(VALUES[kind][codes]), VALUES[kind][codes], 0)
    body = f"v_mov_b32 v10, 5\nv_cvt_scalef32_pk_{kind}_{wide} v10, v1, v2 {select}"
    found = execute(body, "gfx950", (halves(values / 4, wide)[0], f32(0.25)[0])).registers[10]
    want = (codes[0] | codes[1] << bits) << shift | 5
    assert np.array_equal(found[usable], want[usable])


@pytest.mark.parametrize("wide", ["f32", "f16", "bf16"])
@pytest.mark.parametrize("kind", ["fp6", "bf6"])
def test_thirty_two_at_once(kind, wide):
    cases = FP6 if kind == "fp6" else BF6
    values, codes = (np.array(part) for part in zip(*cases, strict=True))
    exact = np.array([float(torch.tensor(v).to(torch.bfloat16)) == v or not np.isfinite(v) for v in values])
    values, codes = values[exact], codes[exact]
    at = (LANES[:, None] + np.arange(32)) % len(values)
    x = (values[at] * EIGHT).T.astype(np.float32)
    if wide == "f32":  # of two operands in turns
        inputs = (*x[0::2].view(np.uint32), *x[1::2].view(np.uint32), f32(EIGHT)[0])
        body = f"v_cvt_scalef32_2xpk16_{kind}_f32 v[40:45], v[1:16], v[17:32], v33"
    else:
        inputs = (*halves(x, wide), f32(EIGHT)[0])
        body = f"v_cvt_scalef32_pk32_{kind}_{wide} v[40:45], v[1:16], v17"
    assert np.array_equal(execute(body, "gfx950", inputs).registers[40:46], packed(codes[at], 6))


# By random bits: what is lost is added to the seed's highest bits, a carry rounds up.

HALF, LESS = 0x80000000, 0x7FFFFFFF


def test_random_numbers():
    for number, following in ((1, 2), (0x80000001, 2 ^ 197), (HALF, 197), (0x40000000, HALF), (0, 0)):
        assert one("v_prng_b32 v10, v1", number) == following


def test_single_values_by_random_bits():
    one_ = f32(1.0)[0]
    for wide in ("f32", "f16", "bf16"):
        given = f32(1.0625)[0] if wide == "f32" else halves(np.array([[1.0625], [0.0]]), wide)[0, 0]
        for seed, code in ((HALF, 0x39), (LESS, 0x38), (0, 0x38)):  # 1.0625 is midway from 1 to 1.125
            line = f"v_cvt_scalef32_sr_fp8_{wide} v10, v1, v2, v3 op_sel:[0,0,0,1]"
            assert one(line, given, seed, one_) == 0x44002211 | code << 16, (wide, seed)
    for seed, code in ((0xC0000000, 0xBD), (0xBFFFFFFF, 0xBC)):  # −1.0625, a quarter of the way from −1 to −1.25
        line = "v_cvt_scalef32_sr_bf8_f32 v10, v1, v2, v3 op_sel:[0,0,1,1]"
        assert one(line, f32(-1.0625 * EIGHT)[0], seed, f32(EIGHT)[0]) == 0x332211 | code << 24
    # Beyond the largest, and below the least.
    line = "v_cvt_scalef32_sr_fp8_f32 v10, v1, v2, v3"
    for value, seed, code in ((464.0, HALF, 0x7F), (464.0, LESS, 0x7E), (448.0, 0xFFFFFFFF, 0x7E), (2.0**-10, HALF, 1)):
        assert one(line, f32(value)[0], seed, one_, old=0) == code, (value, seed)
    assert one(line, f32(2.0**-10)[0], LESS, one_, old=0) == 0


def test_pairs_by_random_bits():
    """The second element's seed is the pseudo-random number that follows the first's."""
    for wide in ("f32", "f16", "bf16"):
        x = f32(1.25, 1.25) if wide == "f32" else halves(np.array([[1.25], [1.25]]), wide)[:, 0]
        names = "v[1:2], v3, v4" if wide == "f32" else "v1, v3, v4"
        inputs = (*x, *([0] if wide != "f32" else []))
        for seed, code in ((HALF, 0x23), (0x40000000, 0x32), (0xC0000000, 0x33), (0, 0x22)):
            line = f"v_cvt_scalef32_sr_pk_fp4_{wide} v10, {names} op_sel:[0,0,1,0]"
            assert one(line, *inputs, seed, f32(1.0)[0]) == 0x44330011 | code << 8, (wide, seed)


@pytest.mark.parametrize("kind", ["fp6", "bf6"])
def test_thirty_two_by_random_bits(kind):
    """Values midway between two codes go up where the highest bit of their seed is set."""
    middle = {"fp6": 1.0625, "bf6": 1.125}[kind]
    low = {"fp6": 8, "bf6": 12}[kind]
    seed, up = 0x9E3779B9, []
    for _ in range(32):
        up.append(seed >> 31)
        seed = (seed << 1 & 0xFFFFFFFF) ^ (197 if seed >> 31 else 0)
    assert 0 < sum(up) < 32
    want = packed(np.tile(low + np.array(up), (64, 1)), 6)
    for wide in ("f32", "f16", "bf16"):
        x = np.full((32, 64), middle, np.float32)
        rows = x.view(np.uint32) if wide == "f32" else halves(x, wide)
        n = len(rows)
        body = f"v_cvt_scalef32_sr_pk32_{kind}_{wide} v[40:45], v[1:{n}], v{n + 1}, v{n + 2}"
        assert np.array_equal(execute(body, "gfx950", (*rows, 0x9E3779B9, f32(1.0)[0])).registers[40:46], want), wide


def test_without_a_scale():
    """1.0625 in gfx942's own format, whose exponent is one more, and in OCP's."""
    for target, low in (("gfx942", 0x40), ("gfx950", 0x38)):
        for seed, up in ((HALF, 1), (LESS, 0)):
            line = "v_cvt_sr_fp8_f32 v10, v1, v2 op_sel:[0,0,1,0]"
            assert one(line, f32(1.0625)[0], seed, target=target) == 0x44330011 | low + up << 8
    assert one("v_cvt_sr_bf8_f32 v10, v1, v2 op_sel:[0,0,1,1]", f32(-1.125)[0], HALF) == 0x332211 | 0xBD << 24


# Others that gfx950 adds.


def test_shifted_and_brought_into_bytes():
    minus = -1000 & 0xFFFFFFFF
    assert one("v_ashr_pk_i8_i32 v10, v1, v2, v3", minus, 999, 2) == 0x44330000 | 0x7F << 8 | 0x80
    assert one("v_ashr_pk_i8_i32 v10, v1, v2, v3", minus, 999, 36) == 0x44330000 | 62 << 8 | (-63 & 255)
    assert one("v_ashr_pk_u8_i32 v10, v1, v2, v3 op_sel:[0,0,0,1]", minus, 999, 2) == 0x2211 | 0xF900 << 16
    assert one("v_ashr_pk_u8_i32 v10, v1, v2, v3", minus, 1024, 2) == 0x44330000 | 0xFF00


def test_dot_products_of_bfloat16():
    """The products first, then what they are added to; or each added to it in turn."""
    pair = halves(np.array([[2.0**12], [2.0**12]]), "bf16")[0, 0]
    signs = halves(np.array([[2.0**12], [-(2.0**12)]]), "bf16")[0, 0]
    assert one("v_dot2_f32_bf16 v10, v1, v2, v3", pair, signs, f32(0.5)[0]) == f32(0.5)[0]
    assert one("v_dot2c_f32_bf16 v10, v1, v2", pair, signs, old=int(f32(0.5)[0])) == 0
    with pytest.raises(UnknownInstruction, match="products of bfloat16"):
        execute("v_dot2_f32_bf16 v10, v1, v2, v3", "gfx1100", (1, 2, 3))


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("v_cvt_sr_f16_f32 v10, v1, v2", "v_cvt_sr_f16_f32"),  # which random bits count is not published
        ("v_cvt_sr_bf16_f32 v10, v1, v2", "v_cvt_sr_bf16_f32"),
        ("v_cvt_scalef32_sr_fp8_f16 v10, v1, v2, v3 op_sel:[1,0,0,0]", "op_sel on an operand"),
        ("v_cvt_scalef32_pk_f32_fp8 v[10:11], v1, v2 op_sel:[0,1,0]", "op_sel beyond"),
        ("v_cvt_scalef32_pk32_fp6_f16 v[10:15], v[1:4], v5", "8 elements"),
        ("v_cvt_scalef32_pk_fp4_f32 v10, v1, v2, v3 clamp", "clamp"),
    ],
)
def test_what_is_refused(line, reason):
    with pytest.raises(UnknownInstruction, match=reason):
        execute(line, "gfx950", (1, 2, 3, 4, 5))


@pytest.mark.parametrize("target", ["gfx950"])  # which not every clang knows
def test_what_the_compiler_gives(target):
    """A block of 32 quantized to fp4 and fp6, and back."""
    text = """
typedef float f2 __attribute__((ext_vector_type(2)));
typedef float f16v __attribute__((ext_vector_type(16)));
typedef float f32v __attribute__((ext_vector_type(32)));
extern "C" __global__ void round_trip(const float* x, float* four, float* six, float scale) {
  x += 32 * threadIdx.x; four += 32 * threadIdx.x; six += 32 * threadIdx.x;
  for (int i = 0; i < 32; i += 8) {
    unsigned word = 0;
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[i], x[i + 1], scale, 0);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[i + 2], x[i + 3], scale, 1);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[i + 4], x[i + 5], scale, 2);
    word = __builtin_amdgcn_cvt_scalef32_pk_fp4_f32(word, x[i + 6], x[i + 7], scale, 3);
    f2 a = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(word, scale, 0);
    f2 b = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(word, scale, 1);
    f2 c = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(word, scale, 2);
    f2 d = __builtin_amdgcn_cvt_scalef32_pk_f32_fp4(word, scale, 3);
    four[i] = a.x; four[i + 1] = a.y; four[i + 2] = b.x; four[i + 3] = b.y;
    four[i + 4] = c.x; four[i + 5] = c.y; four[i + 6] = d.x; four[i + 7] = d.y;
  }
  f16v even, odd;
  for (int i = 0; i < 16; ++i) { even[i] = x[2 * i]; odd[i] = x[2 * i + 1]; }
  f32v back = __builtin_amdgcn_cvt_scalef32_pk32_f32_fp6(
      __builtin_amdgcn_cvt_scalef32_2xpk16_fp6_f32(even, odd, scale), scale);
  for (int i = 0; i < 32; ++i) six[i] = back[i];
}"""
    scale = 0.25
    x = torch.randn(64, 32, generator=torch.Generator().manual_seed(3))
    four, six = torch.empty_like(x), torch.empty_like(x)
    with wmma_ops.emulate(target):
        wmma_ops.Kernel("#include <wmma/grid.hpp>\n" + text, "round_trip")[1, 64](x, four, six, scale)
    for got, kind in ((four, "fp4"), (six, "fp6")):
        known = np.sort(VALUES[kind]) * scale
        distance = np.abs(x.numpy()[..., None].astype(float) - known)
        assert np.array_equal(np.abs(x.numpy() - got.numpy().astype(float)), distance.min(-1)), kind
