"""Products of floats of 8, 6 and 4 bits with and without scales, broadcast blocks and lanes, sparse operands.

The places of elements are those of the tables in AMD's ISA document of CDNA4 and of its matrix instruction calculator,
typed off; the values of codes are torch's where it has the type, else typed.
"""

import itertools

import numpy as np
import pytest
import torch
from test_matrix_instructions import begin_with

import wmma_ops
from wmma_ops.emulator import UnknownInstruction, assembly, launch, program
from wmma_ops.emulator.bits import WORD

FORMATS = ("fp8", "bf8", "fp6", "bf6", "fp4")  # by cbsz, blgp
BITS = {"fp8": 8, "bf8": 8, "fp6": 6, "bf6": 6, "fp4": 4}
BYTES = torch.arange(256, dtype=torch.uint8)
FP4 = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]
FP6 = [0.125 * i for i in range(16)] + [2 + 0.25 * i for i in range(8)] + [4 + 0.5 * i for i in range(8)]
BF6 = [0.0625 * i for i in range(8)] + [(1 + m / 4) * 2.0**e for e in range(-1, 5) for m in range(4)]
VALUES = {
    "fp8": BYTES.view(torch.float8_e4m3fn).double().numpy(),
    "bf8": BYTES.view(torch.float8_e5m2).double().numpy(),
    "fp6": np.array(FP6 + [-x for x in FP6]),
    "bf6": np.array(BF6 + [-x for x in BF6]),
    "fp4": np.array(FP4 + [-x for x in FP4]),
}
# Of each group of 16 lanes: where along k its first and second 16 elements begin.
PLACES = {
    (16, 8): [(0, 64), (16, 80), (32, 96), (48, 112)],
    (32, 8): [(0, 32), (0, 32), (16, 48), (16, 48)],
    (16, 6): [(0, 16), (32, 48), (64, 80), (96, 112)],
    (32, 6): [(0, 16), (0, 16), (32, 48), (32, 48)],
}
PLACES |= {(m, 4): PLACES[m, 6] for m in (16, 32)}
SHAPES = [(16, 128), (32, 64)]


def run(text: str, target: str, contents: dict[int, np.ndarray], result: tuple[int, int]) -> np.ndarray:
    """Rows of registers after one instruction; `contents` fills registers from a number on, [registers, lanes]."""
    kernel = assembly.KernelText("k", [assembly.parse_instruction(line) for line in (text, "s_endpgm")])
    kernel.facts = {"wavefront_size": 64, "vgpr_count": 128}
    built = program.build(kernel, target)

    def fill(st):
        built.registers[:] = 0x7FBAD000
        for first, rows in contents.items():
            rows = np.atleast_2d(rows)
            built.registers[first : first + len(rows)] = rows
        st.written.update((f"v{i}", WORD) for i in range(128))

    begin_with(built, fill)
    launch(built, (1, 1, 1), (64, 1, 1), b"", [])
    return built.registers[result[0] : sum(result)].copy()


def rows_of(codes: np.ndarray, bits: int) -> np.ndarray:
    """Codes [lanes, elements] one after the other, as registers [n, lanes]."""
    out = []
    for lane in codes:
        whole = sum(int(code) << bits * e for e, code in enumerate(lane))
        out.append([whole >> 32 * i & 0xFFFFFFFF for i in range(len(lane) * bits // 32)])
    return np.array(out, dtype=np.uint32).T


def placed(matrix: np.ndarray, bits: int) -> np.ndarray:
    """Of a matrix of codes [row of A or column of B, k]: those of each lane."""
    m = len(matrix)
    lanes = []
    for lane in range(64):
        first, second = PLACES[m, bits][lane // 16]
        row = matrix[lane % m]
        lanes.append([*row[first : first + 16], *row[second : second + 16]])
    return rows_of(np.array(lanes), bits)


def result_of(rows: np.ndarray, m: int) -> np.ndarray:
    """The result [m, m] of registers: four rows of a column in a lane, then those beyond the other lanes'."""
    out = np.zeros((m, m))
    for lane in range(64):
        for e in range(m * m // 64):
            out[e // 4 * (256 // m) + 4 * (lane // m) + e % 4, lane % m] = rows.view(np.float32)[e, lane]
    return out


def codes_of(rng, kind: str, shape) -> np.ndarray:
    """Any but infinity and NaN, and of 8 bits those whose products are exact together."""
    known = VALUES[kind]
    usable = np.flatnonzero(np.isfinite(known) & (np.abs(known) <= 28) & ((np.abs(known) >= 1 / 64) | (known == 0)))
    return rng.choice(usable, shape)


def product(a: str, b: str, m: int, k: int, codes_a, codes_b, c=None, scales=None, modifiers: str = "") -> np.ndarray:
    na, nb = BITS[a], BITS[b]
    count = m * m // 64
    contents = {
        0: np.zeros((count, 64), np.uint32) if c is None else c,
        32: placed(codes_a, na),
        48: placed(codes_b, nb),
    }
    names = f"v[0:{count - 1}], v[32:{31 + na}], v[48:{47 + nb}], v[0:{count - 1}]"
    if scales is not None:
        contents |= {64: scales[0], 65: scales[1]}
    text = f"v_mfma_{'scale_' if scales is not None else ''}f32_{m}x{m}x{k}_f8f6f4 {names}"
    text += ", v64, v65" if scales is not None else ""
    text += f" {modifiers} cbsz:{FORMATS.index(a)} blgp:{FORMATS.index(b)}"
    return result_of(run(text, "gfx950", contents, (0, count)), m)


@pytest.mark.parametrize(("m", "k"), SHAPES, ids=["16x16", "32x32"])
def test_every_pair_of_formats(m, k):
    rng = np.random.default_rng(m)
    for a, b in itertools.product(FORMATS, FORMATS):
        codes_a, codes_b = codes_of(rng, a, (m, k)), codes_of(rng, b, (m, k))
        want = VALUES[a][codes_a] @ VALUES[b][codes_b].T
        assert np.array_equal(product(a, b, m, k, codes_a, codes_b), want.astype(np.float32)), (a, b)


@pytest.mark.parametrize(("m", "k"), SHAPES, ids=["16x16", "32x32"])
def test_scales(m, k):
    """One a row and 32 elements along k, in the byte that op_sel and op_sel_hi select; 2⁰ is 127."""
    rng = np.random.default_rng(m + 1)
    blocks = k // 32
    for a, b, byte_a, byte_b in [
        ("fp4", "fp4", 0, 1),
        ("fp8", "fp4", 2, 3),
        ("bf6", "bf8", 3, 0),
        ("fp6", "fp8", 1, 2),
    ]:
        codes_a, codes_b = codes_of(rng, a, (m, k)), codes_of(rng, b, (m, k))
        exponents = rng.integers(-6, 7, (2, m, blocks))
        rows = rng.integers(0, 2**32, (2, 64), dtype=np.uint32)  # the other bytes are of no concern
        for which, byte in enumerate((byte_a, byte_b)):
            for lane in range(64):
                code = int(exponents[which, lane % m, lane // m]) + 127
                rows[which, lane] = int(rows[which, lane]) & ~(255 << 8 * byte) | code << 8 * byte
        select = f"op_sel:[{byte_a & 1},{byte_b & 1},0] op_sel_hi:[{byte_a >> 1},{byte_b >> 1},0]"
        factors = np.repeat(2.0**exponents, 32, axis=2)
        want = (VALUES[a][codes_a] * factors[0]) @ (VALUES[b][codes_b] * factors[1]).T
        got = product(a, b, m, k, codes_a, codes_b, scales=rows, modifiers=select)
        assert np.array_equal(got, want.astype(np.float32)), (a, b)


def test_ends_of_the_scales():
    """0 is 2⁻¹²⁷, 254 is 2¹²⁷, and 255 is NaN for its row of the result."""
    ones = np.full((16, 128), 2)  # 1.0 in fp4
    scales = np.full((2, 64), 127, np.uint32)
    scales[0, 0], scales[1, 0] = 254, 254
    scales[0, 16 + 5] = 255
    scales[0, 6], scales[0, 22], scales[0, 38], scales[0, 54] = 0, 0, 0, 0
    got = product("fp4", "fp4", 16, 128, ones, ones, scales=scales)
    assert got[0, 0] == np.inf
    assert got[0, 1] == np.inf
    assert got[1, 0] == np.inf
    assert got[1, 1] == 128
    assert np.isnan(got[5]).all()
    assert not np.isnan(np.delete(got, 5, 0)).any()
    assert got[6, 1] == np.float32(128 * 2.0**-127)
    assert got[6, 0] == 32 + 96 * 2.0**-127


def test_the_sum_is_rounded_once_and_takes_c():
    small, one = np.zeros((16, 128), int), np.full((16, 128), 0x38)  # 1.0 in fp8
    small[0, 0] = 1  # 2⁻⁹
    c = np.zeros((4, 64), np.float32)
    c[0, 0] = 2.0**14
    got = product("fp8", "fp8", 16, 128, small, one, c=c.view(np.uint32))
    assert got[0, 0] == 2.0**14 + 2.0**-9
    assert got[0, 1] == 2.0**-9
    nan, infinite = np.zeros((16, 128), int), np.zeros((16, 128), int)
    nan[3, 70], infinite[4, 9] = 0x7F, 0xFC
    assert np.isnan(product("fp8", "fp8", 16, 128, nan, one)[3]).all()
    assert (product("bf8", "fp8", 16, 128, infinite, one)[4] == -np.inf).all()


def test_formats_that_are_none():
    with pytest.raises(UnknownInstruction, match="formats are 0 to 4"):
        run("v_mfma_f32_16x16x128_f8f6f4 v[0:3], v[4:11], v[12:19], v[0:3] cbsz:5", "gfx950", {}, (0, 1))


@pytest.mark.parametrize("target", ["gfx950"])  # which not every clang knows
def test_what_the_compiler_gives(target):
    """A row of A by a column of B in fp4, with scales from memory and the second byte of B's."""
    text = """
typedef int v8 __attribute__((ext_vector_type(8)));
typedef float v4 __attribute__((ext_vector_type(4)));
extern "C" __global__ void scaled(const int* a, const int* b, const int* s, float* d) {
  const int lane = threadIdx.x;
  v8 x = {}, y = {};
  for (int i = 0; i < 4; ++i) { x[i] = a[4 * lane + i]; y[i] = b[4 * lane + i]; }
  v4 z = {1.0f, 2.0f, 3.0f, 4.0f};
  z = __builtin_amdgcn_mfma_scale_f32_16x16x128_f8f6f4(x, y, z, 4, 4, 0, s[lane], 1, s[lane]);
  for (int i = 0; i < 4; ++i) d[4 * lane + i] = z[i];
}"""
    rng = np.random.default_rng(5)
    codes_a, codes_b = codes_of(rng, "fp4", (16, 128)), codes_of(rng, "fp4", (16, 128))
    scales = rng.integers(120, 135, (2, 64))
    d = torch.zeros(64, 4)
    of_lanes = [torch.from_numpy(placed(codes, 4).T.copy().view(np.int32)) for codes in (codes_a, codes_b)]
    with wmma_ops.emulate(target):
        kernel = wmma_ops.Kernel("#include <wmma/grid.hpp>\n" + text, "scaled")
        kernel[1, 64](*of_lanes, torch.from_numpy((scales[0] | scales[1] << 8).astype(np.int32)), d)
    factors = 2.0 ** (scales.reshape(2, 4, 16).transpose(0, 2, 1).repeat(32, axis=2) - 127)
    want = (VALUES["fp4"][codes_a] * factors[0]) @ (VALUES["fp4"][codes_b] * factors[1]).T
    got = result_of(d.numpy().T.copy().view(np.uint32), 16)
    assert np.array_equal(got, (want + np.arange(16)[:, None] % 4 + 1).astype(np.float32))


# Broadcasts.


def of_blocks(m: int, text: str, modifiers: str, target: str = "gfx942") -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(A, B, D) [block, …, k] of a product of several blocks of whole numbers in float16, k 4: 4 elements a lane."""
    rng = np.random.default_rng(m)
    a, b = rng.integers(-4, 5, (2, 64, 4)).astype(np.float16)
    count = m * m * (64 // m) // 64
    contents = {0: np.zeros((count, 64), np.uint32)}
    contents |= {first: x.view(np.uint32).T for first, x in ((64, a), (66, b))}
    line = f"{text} v[0:{count - 1}], v[64:65], v[66:67], v[0:{count - 1}] {modifiers}"
    rows = run(line, target, contents, (0, count)).view(np.float32)
    d = np.zeros((64 // m, m, m))
    for lane in range(64):
        for e in range(count):
            if m == 4:
                d[lane // 4, e, lane % 4] = rows[e, lane]
            else:
                block, e_in = divmod(e, m * m // 64)
                d[block, e_in // 4 * (256 // m) + 4 * (lane // m) + e_in % 4, lane % m] = rows[e, lane]
    return a.reshape(64 // m, m, 4), b.reshape(64 // m, m, 4), d


BLOCKS = [
    (4, "v_mfma_f32_4x4x4_16b_f16", 4, (0, 6, 15)),
    (16, "v_mfma_f32_16x16x4_4b_f16", 2, (0, 3)),
    (32, "v_mfma_f32_32x32x4_2b_f16", 1, (0, 1)),
]


def test_one_block_of_a_for_all():
    for m, name, cbsz, blocks in BLOCKS:
        for abid in blocks:
            a, b, d = of_blocks(m, name, f"cbsz:{cbsz} abid:{abid}")
            assert np.array_equal(d, np.matmul(a[abid].astype(float), b.transpose(0, 2, 1).astype(float))), (name, abid)


def test_lanes_of_b():
    """The group of 16 lanes from which each such group of B comes."""
    groups = [(0, 1, 2, 3), (0, 1, 0, 1), (2, 3, 2, 3), (1, 2, 3, 0), (0,) * 4, (1,) * 4, (2,) * 4, (3,) * 4]
    for m, name, *_ in BLOCKS:
        for blgp, order in enumerate(groups):
            a, b, d = of_blocks(m, name, f"blgp:{blgp}", "gfx950" if blgp % 2 else "gfx90a")
            moved = b.reshape(4, 16, 4)[list(order)].reshape(b.shape)
            assert np.array_equal(d, np.matmul(a.astype(float), moved.transpose(0, 2, 1).astype(float))), (name, blgp)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:2 abid:1", "one block for all"),
        ("v_mfma_f32_4x4x4_16b_f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1 abid:2", "abid:2"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] blgp:1", "does not heed it"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] cbsz:1", "of 1 blocks"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] neg:[1,0,0]", "float64"),
        ("v_mfma_f32_16x16x16_f16 v[0:3], v[4:5], v[6:7], v[0:3] clamp", "clamp"),
        ("v_smfmac_f32_16x16x64_f16 v[0:3], v[4:7], v[8:15], v20", "does not know"),
    ],
)
def test_what_is_refused(line, reason):
    with pytest.raises(UnknownInstruction, match=reason):
        run(line, "gfx950", {}, (0, 1))


def test_signs_of_float64():
    ones = np.ones(64).view(np.uint32).reshape(64, 2).T
    for signs in itertools.product((0, 1), repeat=3):
        contents = {0: np.tile(3 * np.ones(64), 1).view(np.uint32).reshape(64, 2).T, 8: ones, 10: ones}
        line = "v_mfma_f64_4x4x4_4b_f64 v[0:1], v[8:9], v[10:11], v[0:1] neg:[{},{},{}]".format(*signs)
        rows = run(line, "gfx942", contents, (0, 2))
        got = np.ascontiguousarray(rows.T).view(np.float64)
        assert (got == 4 * (-1) ** (signs[0] + signs[1]) + 3 * (-1) ** signs[2]).all(), signs


# Sparse.

SPARSE = [
    ("v_smfmac_f32_16x16x32_f16", 16, 32, np.float16, np.float32),
    ("v_smfmac_f32_32x32x16_f16", 32, 16, np.float16, np.float32),
    ("v_smfmac_i32_16x16x64_i8", 16, 64, np.int8, np.int32),
    ("v_smfmac_i32_32x32x32_i8", 32, 32, np.int8, np.int32),
]


@pytest.mark.parametrize(("name", "m", "k", "kind", "result"), SPARSE, ids=[row[0] for row in SPARSE])
def test_sparse(name, m, k, kind, result):
    """Two of four elements of A; a lane's packed elements and their indices go along k together."""
    rng = np.random.default_rng(k)
    count = m * m // 64
    sets = 4 if kind is np.float16 else 2
    groups = 64 // m
    a, b = np.zeros((m, k)), rng.integers(-3, 4, (m, k)).astype(kind)
    chosen = np.sort([[rng.permutation(4)[:2] for _ in range(k // 4)] for _ in range(m)], axis=2)
    packed = rng.integers(-3, 4, (m, k // 2)).astype(kind)
    for row, group, which in itertools.product(range(m), range(k // 4), (0, 1)):
        a[row, 4 * group + chosen[row, group, which]] = packed[row, 2 * group + which]
    each = k // 2 // groups  # packed elements a lane
    lanes = np.arange(64)
    rows_a = np.array([packed[lane % m, each * (lane // m) :][:each] for lane in lanes]).view(np.uint32).T
    rows_b = np.array([b[lane % m, 2 * each * (lane // m) :][: 2 * each] for lane in lanes]).view(np.uint32).T
    flat = chosen.reshape(m, k // 2)
    indices = [sum(int(x) << 2 * e for e, x in enumerate(flat[n % m, each * (n // m) :][:each])) for n in lanes]
    for abid, cbsz in [(which, 0) for which in range(sets)] + [(1, 1)]:
        at = 0 if cbsz else 32 // sets * abid
        noise = rng.integers(0, 2**32, 64, dtype=np.uint32) & np.uint32(0xFFFFFFFF ^ ((1 << 32 // sets) - 1 << at))
        c = rng.integers(-9, 10, (m, m))
        contents = {32: rows_a, 40: rows_b, 60: noise | np.array(indices, np.uint32) << np.uint32(at)}
        rows = np.zeros((count, 64), result)
        for lane, e in itertools.product(range(64), range(count)):
            rows[e, lane] = c[e // 4 * (256 // m) + 4 * (lane // m) + e % 4, lane % m]
        contents[0] = rows.view(np.uint32)
        line = f"{name} v[0:{count - 1}], v[32:{31 + len(rows_a)}], v[40:{39 + len(rows_b)}], v60"
        got = run(f"{line} cbsz:{cbsz} abid:{abid}", "gfx942", contents, (0, count)).view(result).astype(np.float32)
        assert np.array_equal(result_of(got.view(np.uint32), m), c + a @ b.T.astype(float)), (abid, cbsz)


def test_indices_in_the_wrong_order():
    contents = {first: np.zeros((n, 64), np.uint32) for first, n in ((0, 4), (8, 2), (12, 4), (20, 1))}
    with pytest.raises(RuntimeError, match="the first must be the lower"):
        run("v_smfmac_f32_16x16x32_f16 v[0:3], v[8:9], v[12:15], v20", "gfx942", contents, (0, 4))
