"""Fragments and narrow floats calculated with as people write it, beside the same on tensors."""

import torch
from fragment_machine import INTEGERS, SWAPPED, TYPES, Machine, converted, kernel, stored, whole

BROADCAST = """
#include <wmma/math.hpp>
extern "C" __global__ void broadcast(const TYPE* x, TYPE* out, int number) {
  const SCALAR s = static_cast<SCALAR>(number);
  fragment<KIND, 16, 16, 16, TYPE> a, b, c, t;
  load_matrix_sync(a, x, 16, mem_row_major);
  load_matrix_sync(b, x + 256, 16, mem_row_major);
  load_matrix_sync(c, x + 512, 16, mem_row_major);
  int place = 0;
  const auto keep = [&](const auto& result) { store_matrix_sync(out + 256 * place++, result, 16, mem_row_major); };
  EACH
}
"""
# What is written in the kernel, and the same on tensors that round each step to the type (T); s is 3.
OPERATIONS = {
    "a + b": lambda a, b, c, T: T(a + b),
    "a - b": lambda a, b, c, T: T(a - b),
    "a * b": lambda a, b, c, T: T(a * b),
    "a / b": lambda a, b, c, T: T(a / b),
    "-a": lambda a, b, c, T: T(-a),
    "+a": lambda a, b, c, T: a,
    "a + s": lambda a, b, c, T: T(a + 3),
    "s + a": lambda a, b, c, T: T(a + 3),
    "a - s": lambda a, b, c, T: T(a - 3),
    "s - b": lambda a, b, c, T: T(3 - b),  # on gfx9 clang 19 takes s - a of bytes for a - s where both stand
    "a * s": lambda a, b, c, T: T(a * 3),
    "2 * a": lambda a, b, c, T: T(2 * a),
    "a / s": lambda a, b, c, T: T(a / 3),
    "s / b": lambda a, b, c, T: T(torch.full_like(b, 3) / b),
    "t = a, t += b": lambda a, b, c, T: T(a + b),
    "t = a, t -= s": lambda a, b, c, T: T(a - 3),
    "t = a, t *= 2": lambda a, b, c, T: T(a * 2),
    "t = a, t /= b": lambda a, b, c, T: T(a / b),
    "a * 2 + b - c": lambda a, b, c, T: T(T(T(a * 2) + b) - c),
    "map(a, [](auto p) { return p + 1; })": lambda a, b, c, T: T(a + 1),
    "map(a, b, [](TYPE p, TYPE q) { return p - q; })": lambda a, b, c, T: T(a - b),
    "map([](auto p) { return 2 * p; }, a)": lambda a, b, c, T: T(2 * a),
    "map([](auto p, auto q, auto r) { return p * q + r; }, a, b, c)": lambda a, b, c, T: T(a * b + c),
    "map([](auto p, auto q, auto r, auto u) { return p + q * r - u; }, a, b, s, c)": lambda a, b, c, T: T(
        a + b * 3 - c
    ),
    "min(a, b)": lambda a, b, c, T: torch.minimum(a, b),
    "max(a, 2)": lambda a, b, c, T: a.clamp(min=2),
    "max(s, b)": lambda a, b, c, T: b.clamp(min=3),
    "clamp(a, 1, c)": lambda a, b, c, T: torch.minimum(a.clamp(min=1), c),
    "abs(a)": lambda a, b, c, T: a.abs(),
    "mul_add(a, s, c)": lambda a, b, c, T: T(a * 3 + c),
    "select(a < b, a, b)": lambda a, b, c, T: torch.where(a < b, a, b),
    "select(a >= 2, a, 0)": lambda a, b, c, T: torch.where(a >= 2, a, 0.0),
    "select(s == a, 7, b)": lambda a, b, c, T: torch.where(a == 3, 7.0, b),
    "select(a != b, 1 + c, c)": lambda a, b, c, T: torch.where(a != b, T(1 + c), c),
    "select(a <= b && b > c, a, c)": lambda a, b, c, T: torch.where((a <= b) & (b > c), a, c),
    "select(!(a < b) | (a == c), a, 5)": lambda a, b, c, T: torch.where(~(a < b) | (a == c), a, 5.0),
    "select((a < b) ^ (b < c), a, b)": lambda a, b, c, T: torch.where((a < b) ^ (b < c), a, b),
    "select(a < b || a < c, b, c)": lambda a, b, c, T: torch.where((a < b) | (a < c), b, c),
}


def broadcasting(on: Machine) -> None:
    """Every operation on accumulators of several types: fragments with fragments and with numbers."""
    each = " ".join(f"keep(({text}));" for text in OPERATIONS)
    rows = [("float", "float"), ("half_t", "half_t"), ("bf16_t", "float"), ("double", "int"), ("int32_t", "int8_t")]
    rows.append(("uint8_t", "int"))
    for place, (name, scalar) in enumerate(rows):
        integer = name in INTEGERS
        low = 0 if name == "uint8_t" else -8
        x = whole(3, 16, 16, low=low, high=10) / (1 if integer else 4)
        x[1][x[1] == 0] = 1  # the divisor
        wide = torch.float64 if name == "double" or integer else torch.float32

        def rounded(y, name=name, integer=integer):
            if integer:
                return y.trunc().to(TYPES[name] if name != "uint8_t" else torch.int64).to(TYPES[name]).to(torch.float64)
            return y.to(TYPES[name]).to(y.dtype)

        source = BROADCAST.replace("EACH", each)
        options = [f"-DTYPE={name}", f"-DSCALAR={scalar}", f"-DKIND={SWAPPED[place % 2]}"]
        out = torch.zeros(len(OPERATIONS), 16, 16).to(TYPES[name])
        _, out, _ = on.run(kernel(source, "broadcast", *options), stored(x, name), out, 3)
        a, b, c = x.to(wide)
        for text, got in zip(OPERATIONS, out, strict=True):
            on.same(got, rounded(OPERATIONS[text](a, b, c, rounded)), f"{name}: {text}")


OPERANDS = """
extern "C" __global__ void operands(const half_t* a, const int8_t* b, const int4x2_t* c, const float* f, half_t* a_out,
                                    int8_t* b_out, int4x2_t* c_out, half_t* widened) {
  fragment<matrix_a, 16, 16, 16, half_t, row_major> x;
  fragment<matrix_b, 16, 16, 16, int8_t, col_major> y;
  fragment<matrix_a, 16, 16, 32, int4_t, row_major> z;
  fragment<accumulator, 16, 16, 16, float> w;
  fragment<accumulator, 16, 16, 16, half_t> h;
  load_matrix_sync(x, a, 16);
  load_matrix_sync(y, b, 16);
  load_matrix_sync(z, c, 32);
  load_matrix_sync(w, f, 16, mem_row_major);
  load_matrix_sync(h, a, 16, mem_row_major);
  store_matrix_sync(a_out, select(x > 0, 2.5f * x, x - 1), 16);
  store_matrix_sync(b_out, y * 2 - y / 3, 16);
  store_matrix_sync(c_out, max(-z, z) - 1, 32);
  z[0] = z[1];
  // Types that lie alike meet in map and select; the first fragment's is the result's.
#ifdef WMMA_AMD
  fragment<accumulator, 16, 16, 16, _Float16> clangs;  // the compiler's own half meets ours
  load_matrix_sync(clangs, a, 16, mem_row_major);
  clangs = (clangs + h) / static_cast<_Float16>(2);
  h = convert_fragment<half_t>(max(clangs, h - 1));
#endif
  store_matrix_sync(widened, select(w < 0.0f, h, map([](half_t p, float q) { return p + q; }, h, w)), 16, mem_row_major);
}
"""


def operands_element_by_element(on: Machine) -> None:
    """A of half_t and int4_t and B of int8_t before a product, and accumulators of two types."""
    a, b, c = whole(16, 16) / 2, whole(16, 16, low=-60, high=60, seed=1), whole(16, 32, low=-7, high=8, seed=2)
    f = whole(16, 16, seed=3) / 4
    outs = torch.zeros(16, 16).half(), torch.zeros(16, 16, dtype=torch.int8), torch.zeros(16, 16, dtype=torch.uint8)
    given = stored(a, "half_t"), stored(b, "int8_t"), stored(c, "int4_t"), f.float()
    *_, a_out, b_out, c_out, widened = on.run(kernel(OPERANDS, "operands"), *given, *outs, torch.zeros(16, 16).half())
    on.same(a_out, torch.where(a > 0, 2.5 * a, a - 1), "A of half_t")
    on.same(b_out, 2 * b - (b / 3).trunc(), "B of int8_t")
    on.same(c_out, stored(c.abs() - 1, "int4_t"), "A of int4_t")
    on.same(widened, torch.where(f < 0, a, a + f), "half_t and float")


SCALARS = """
#include <wmma/math.hpp>
extern "C" __global__ void scalars(const TYPE* x, float* out) {
  if (threadIdx.x >= 32) return;
  const TYPE a = x[threadIdx.x], b = x[threadIdx.x + 32];
  int place = 0;
  const auto keep = [&](float y) { out[32 * place++ + threadIdx.x] = y; };
  TYPE t = a;
  EACH
}
"""
SCALAR_OPERATIONS = {
    "a + b": lambda a, b, T: a + b,
    "a - 1": lambda a, b, T: a - 1,
    "2 * a": lambda a, b, T: 2 * a,
    "a / 2.0f": lambda a, b, T: a / 2,
    "a * 0.5": lambda a, b, T: a / 2,
    "1u + a": lambda a, b, T: 1 + a,
    "-a": lambda a, b, T: -a,
    "+a": lambda a, b, T: a,
    "t = a, t += b": lambda a, b, T: T(a + b),
    "t = a, t -= 1": lambda a, b, T: T(a - 1),
    "t = a, t *= 0.5f": lambda a, b, T: T(a / 2),
    "t = a, t /= 4.0": lambda a, b, T: T(a / 4),
    "t = a, ++t": lambda a, b, T: T(a + 1),
    "t = a, --t": lambda a, b, T: T(a - 1),
    "t = a, t++": lambda a, b, T: a,
    "t = a, t++, t": lambda a, b, T: T(a + 1),
    "t = a, t--, t": lambda a, b, T: T(a - 1),
    "a == b": lambda a, b, T: (a == b).float(),
    "a != 1": lambda a, b, T: (a != 1).float(),
    "a < b": lambda a, b, T: (a < b).float(),
    "a >= 0.5": lambda a, b, T: (a >= 0.5).float(),
    "a && !b": lambda a, b, T: ((a != 0) & (b == 0)).float(),
    "int(a)": lambda a, b, T: a.trunc(),
    "double(a)": lambda a, b, T: a,
    "t = 3": lambda a, b, T: torch.full_like(a, 3),
    "t = half_t(a), t": lambda a, b, T: a,
    "half_t(a + 0.125f)": lambda a, b, T: (a + 0.125).half().float(),
    "bf16_t(a)": lambda a, b, T: a.bfloat16().float(),
    "half_t(bf16_t(fp8_e5m2_t(a)))": lambda a, b, T: a.to(torch.float8_e5m2).float(),
    "half_t(1) + a": lambda a, b, T: 1 + a,
}


def scalars(on: Machine) -> None:
    """Narrow floats as people calculate with them."""
    each = " ".join(f"keep(({text}));" for text in SCALAR_OPERATIONS)
    for name in ("half_t", "bf16_t", "fp8_e4m3_t", "fp8_e5m2fnuz_t"):
        x = converted(whole(64, low=-40, high=41) / 16, name)
        x[:32:5] = x[32::5]  # some that are equal

        def rounded(y, name=name):
            return y.to(TYPES[name]).float()

        out = torch.zeros(len(SCALAR_OPERATIONS), 32)
        compiled = kernel(SCALARS.replace("EACH", each), "scalars", f"-DTYPE={name}")
        out = on.run(compiled, stored(x, name), out)[1]
        a, b = x.float().chunk(2)
        for text, got in zip(SCALAR_OPERATIONS, out, strict=True):
            on.same(got, SCALAR_OPERATIONS[text](a, b, rounded), f"{name}: {text}")
