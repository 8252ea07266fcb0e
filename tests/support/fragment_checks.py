"""Kernels over fragments and what they have to give, each a function of the machine that runs them. All are run by
tests/emulator/test_fragments.py and, on a GPU, by tests/gpu/test_fragments_on_gpu.py."""

import itertools

import torch
from fragment_arithmetic import broadcasting, operands_element_by_element, scalars
from fragment_machine import INTEGERS, SWAPPED, TYPES, Machine, converted, kernel, stored, whole

# --- conversions

CONVERT = """
#define TO(type, place)                                                                                    \\
  {                                                                                                        \\
    const auto to = convert_fragment<type>(from);                                                          \\
    store_matrix_sync(reinterpret_cast<type*>(out + place * 16 * 16 * 8), to, 16, mem_row_major);          \\
  }
extern "C" __global__ void convert_all(const FROM* x, uint8_t* out) {
  fragment<accumulator, 16, 16, 16, FROM> from;
  load_matrix_sync(from, x, 16, mem_row_major);
  EACH
}
"""


def conversions(on: Machine) -> None:
    """Accumulators of each type in each other one."""
    each = " ".join(f"TO({name}, {place})" for place, name in enumerate(TYPES))
    x = whole(16, 16, low=-400, high=400) / torch.tensor([1.0, 2.0, 4.0, 32.0]).repeat(4)
    for source in TYPES:
        values = x.abs() if source.startswith("u") else x
        given = converted(values, source).nan_to_num(3.0, 5.0, -5.0)
        out = torch.full((len(TYPES), 16 * 16 * 8), 0xA5, dtype=torch.uint8)
        compiled = kernel(CONVERT.replace("EACH", each), "convert_all", f"-DFROM={source}")
        _, out = on.run(compiled, stored(given, source), out)
        for place, (name, dtype) in enumerate(TYPES.items()):
            got = out[place][: 256 * dtype.itemsize].view(dtype).reshape(16, 16).double()
            defined = (given >= 0) | (name != "uint32_t")  # C++ has no unsigned of a negative float
            on.same(got[defined], converted(given, name)[defined], f"{source} to {name}")


CONVERT_OPERANDS = """
extern "C" __global__ void convert_operands(const half_t* a, const int8_t* b, fp8_e4m3_t* a8, float* b32,
                                            half_t* swapped) {
  fragment<matrix_a, 32, 32, 64, half_t, row_major> x;
  fragment<matrix_b, 16, 48, 32, int8_t, col_major> y;
  fragment<accumulator_swapped, 16, 48, 32, double> z;
  load_matrix_sync(x, a, 64);
  load_matrix_sync(y, b, 32);
  load_matrix_sync(z, reinterpret_cast<const double*>(swapped + 16 * 48), 48, mem_row_major);
  store_matrix_sync(a8, convert_fragment<fp8_e4m3_t>(x), 64);
  store_matrix_sync(b32, convert_fragment<float>(y), 32);
  store_matrix_sync(swapped, convert_fragment<half_t>(z), 48, mem_row_major);
}
"""


def operands_converted(on: Machine) -> None:
    """A and B, whose types lie in the lanes each in its own way, and a swapped accumulator of double."""
    a, b, z = whole(32, 64, low=-20, high=21) / 8, whole(48, 32, low=-128, high=128, seed=1), whole(16, 48, seed=2) / 16
    swapped = torch.cat([torch.zeros(16 * 48, dtype=torch.float16), z.flatten().view(torch.float16)])
    a8, b32 = torch.zeros(32, 64, dtype=torch.float8_e4m3fn), torch.zeros(48, 32)
    compiled = kernel(CONVERT_OPERANDS, "convert_operands")
    _, _, a8, b32, swapped = on.run(compiled, a.half(), b.to(torch.int8), a8, b32, swapped)
    on.same(a8, converted(a, "fp8_e4m3_t"), "A of half_t to fp8_e4m3_t")
    on.same(b32, b, "B of int8_t to float")
    on.same(swapped[: 16 * 48].reshape(16, 48), z, "swapped double to half_t")


# --- C and D of different types

MIXED = """
// D and C by their types: for each D of the list a product with each C.
template <class D, class C, class A, class B>
__device__ void product(const A& a, const B& b, const C* c, D* d) {
  fragment<KIND, 16, 16, DEPTH, C> before;
  fragment<KIND, 16, 16, DEPTH, D> after;
  load_matrix_sync(before, c, 16, mem_row_major);
  mma_sync(after, a, b, before);
  store_matrix_sync(d, after, 16, mem_row_major);
}
extern "C" __global__ void mixed(const INPUT* a, const INPUT* b, const WIDE* c, const SMALL* c_small, WIDE* d,
                                 SMALL* d_small) {
  fragment<matrix_a, 16, 16, DEPTH, INPUT, row_major> x;
  fragment<matrix_b, 16, 16, DEPTH, INPUT, col_major> y;
  load_matrix_sync(x, a, DEPTH);
  load_matrix_sync(y, b, DEPTH);
  product(x, y, c, d);
  product(x, y, c_small, d + 256);
  product(x, y, c, d_small);
  product(x, y, c_small, d_small + 256);
}
"""


def mixed_accumulators(on: Machine) -> None:
    """Wide and narrow C and D in all four ways, the narrow one rounded or saturated."""
    ways = [("half_t", "float", "half_t"), ("half_t", "float", "fp8_e5m2_t"), ("bf16_t", "float", "bf16_t")]
    ways += [("int8_t", "int32_t", "int8_t"), ("uint8_t", "int32_t", "uint8_t")]
    for place, (source, wide, small) in enumerate(ways):
        kind = ("accumulator", "accumulator_swapped")[place % 2]
        low = 0 if source == "uint8_t" else -8
        a, b = whole(16, 32, low=low), whole(16, 32, low=low, seed=1)
        c = whole(16, 16, low=4 * low, high=40, seed=2)
        c_small = converted(whole(16, 16, low=4 * low, high=40, seed=3), small)
        d, d_small = torch.zeros(2, 16, 16, dtype=TYPES[wide]), torch.zeros(2, 16, 16).to(TYPES[small])
        options = [f"-DINPUT={source}", f"-DWIDE={wide}", f"-DSMALL={small}", f"-DKIND={kind}", "-DDEPTH=32"]
        given = [stored(x, n) for x, n in ((a, source), (b, source), (c, wide), (c_small, small))]
        *_, d, d_small = on.run(kernel(MIXED, "mixed", *options), *given, d, d_small)
        for i, before in enumerate((c, c_small)):
            want = a @ b.T + before
            on.same(d[i], converted(want, wide), f"{wide} of {source}, C {i}")
            on.same(d_small[i], converted(want, small), f"{small} of {source}, C {i}")


# --- operands in pairs of types

PAIR = """
extern "C" __global__ void pair(const InMemory<TYPE_A>* a, const InMemory<TYPE_B>* b, const int* c, SUM* d, int* copied) {
  fragment<matrix_a, SIZE_M, SIZE_N, DEPTH, TYPE_A, row_major> x;
  fragment<matrix_b, SIZE_M, SIZE_N, DEPTH, TYPE_B, col_major> y;
  fragment<KIND, SIZE_M, SIZE_N, DEPTH, SUM> sum;
  load_matrix_sync(x, a, DEPTH);
  load_matrix_sync(y, b, DEPTH);
  load_matrix_sync(sum, reinterpret_cast<const SUM*>(c), SIZE_N, mem_row_major);
  // Beyond K nothing counts.
  for (int i = 0; i < x.num_elements; ++i) {
    if (x.col(i) >= DEPTH) x[i] = 1;
  }
  for (int i = 0; i < y.num_elements; ++i) {
    if (y.row(i) >= DEPTH) y[i] = 1;
  }
  mma_sync(sum, x, y, sum);
  store_matrix_sync(d, sum, SIZE_N, mem_row_major);
  // Each element by its place; what lies beyond K is nowhere.
  for (int i = 0; i < x.num_elements; ++i) {
    if (x.col(i) < DEPTH) copied[x.row(i) * DEPTH + x.col(i)] = static_cast<int>(x[i]);
  }
  for (int i = 0; i < y.num_elements; ++i) {
    if (y.row(i) < DEPTH) copied[(SIZE_M + y.col(i)) * DEPTH + y.row(i)] = static_cast<int>(y.x[i]);
  }
}
"""
LIMITS = {"int8_t": (-128, 128), "uint8_t": (0, 256), "int4_t": (-8, 8), "uint4_t": (0, 16)}
OCP = ("", "fnuz")
EIGHT_BITS, FOUR_BITS = ("int8_t", "uint8_t"), ("int4_t", "uint4_t")


def _pair(on: Machine, a: str, b: str, m: int, n: int, k: int, kind: str, total: str) -> None:
    (low_a, high_a), (low_b, high_b) = LIMITS.get(a, (-6, 7)), LIMITS.get(b, (-6, 7))
    x, y, z = whole(m, k, low=low_a, high=high_a), whole(n, k, low=low_b, high=high_b, seed=1), whole(m, n, seed=2)
    d = torch.full((m, n), 77).to(TYPES[total])
    options = [f"-DTYPE_A={a}", f"-DTYPE_B={b}", f"-DSIZE_M={m}", f"-DSIZE_N={n}", f"-DDEPTH={k}"]
    compiled = kernel(PAIR, "pair", *options, f"-DKIND={kind}", f"-DSUM={total}")
    copied = torch.full((m + n, k), 99, dtype=torch.int32)
    c = stored(z, total).view(torch.int32)
    *_, d, copied = on.run(compiled, stored(x, a), stored(y, b), c, d, copied)
    what = f"{a}·{b} {m}x{n}x{k} {kind}"
    on.same(d, x @ y.T + z, what)
    on.same(copied, torch.cat([x, y]), f"elements of {what}")


def signed_and_unsigned(on: Machine) -> None:
    """8-bit integers over their whole range, each sign with each, blocks of 16 and 32, K that instructions lack."""
    for place, (a, b) in enumerate((a, b) for a in EIGHT_BITS for b in EIGHT_BITS):
        _pair(on, a, b, 16, 16, 48, SWAPPED[place % 2], "int32_t")
        _pair(on, a, b, 32, 32, (8, 16, 40, 64)[place], SWAPPED[1 - place % 2], "int32_t")


def four_bits(on: Machine) -> None:
    """4-bit integers, each sign with each, at every depth that an instruction has and one that none has."""
    for place, (a, b) in enumerate((a, b) for a in FOUR_BITS for b in FOUR_BITS):
        _pair(on, a, b, 16, 16, (16, 32, 48, 64)[place], SWAPPED[place % 2], "int32_t")
        _pair(on, a, b, 32, 32, (64, 48, 32, 16)[place], SWAPPED[place // 2], "int32_t")


def two_fp8_formats(on: Machine) -> None:
    """e4m3 with e5m2, both ways, OCP and FNUZ."""
    for form in ("", "fnuz"):
        for place, (a, b) in enumerate((("e4m3", "e5m2"), ("e5m2", "e4m3"))):
            types = (f"fp8_{a}{form}_t", f"fp8_{b}{form}_t")
            _pair(on, *types, 16, 16, 32, SWAPPED[place], "float")
            if form == OCP[place]:
                _pair(on, *types, 32, 32, 16, SWAPPED[1 - place], "float")


# --- results as operands

RELAYOUT = """
// A result as A of a product with NEXT columns, and as B of one with NEXT rows.
extern "C" __global__ void relayout(const SUM* c, InMemory<TO>* a, InMemory<TO>* b) {
  fragment<KIND, SIZE_M, SIZE_N, 16, SUM> result;
  load_matrix_sync(result, c, SIZE_N, mem_row_major);
#ifndef ONLY_B
  store_matrix_sync(a, to_matrix_a<TO, NEXT>(result), SIZE_N);
#endif
#ifndef ONLY_A
  store_matrix_sync(b, to_matrix_b<TO, NEXT>(result), SIZE_M);
#endif
}
"""


def _relayout(
    on: Machine, source: str, to: str, m: int, n: int, kind: str, following: int = 0, only: str = "AB"
) -> None:
    c = whole(m, n, low=0 if to.startswith("u") else -30, high=31) / (1 if source in INTEGERS else 4)
    a, b = torch.zeros_like(stored(torch.zeros(m, n), to)), torch.zeros_like(stored(torch.zeros(n, m), to))
    options = [
        f"-DSUM={source}",
        f"-DTO={to}",
        f"-DSIZE_M={m}",
        f"-DSIZE_N={n}",
        f"-DKIND={kind}",
        f"-DNEXT={following}",
    ]
    options += [f"-DONLY_{only}"] if only != "AB" else []
    _, a, b = on.run(kernel(RELAYOUT, "relayout", *options), stored(c, source), a, b)
    want = converted(c, to)
    what = f"{kind} {m}x{n} of {source} as {to}"
    if "A" in only:
        on.same(a, stored(want, to), f"A from {what}")
    if "B" in only:
        on.same(b, stored(want.T, to), f"B from {what}")


def results_as_operands(on: Machine) -> None:
    """Types as A and as B, from both accumulators, in blocks of one tile and of several."""
    for place, to in enumerate(("half_t", "bf16_t", "fp8_e4m3_t", "float")):
        _relayout(
            on,
            "float",
            to,
            16,
            16,
            SWAPPED[place % 2],
            following=(0, 48)[place // 2],
            only=("AB", "A", "B", "A")[place],
        )
    for place, to in enumerate(("int8_t", "uint8_t", "int4_t", "uint4_t")):
        _relayout(on, "int32_t", to, 16, 16, SWAPPED[place % 2], only="AB"[place // 2 % 2])
    _relayout(on, "double", "double", 16, 16, "accumulator", only="B")
    _relayout(on, "half_t", "half_t", 32, 48, "accumulator_swapped", only="B")
    _relayout(on, "int32_t", "int8_t", 32, 48, "accumulator", only="A")


def large_results_as_operands(on: Machine) -> None:
    """Blocks of 64x64, which a lane of RDNA holds in 128 elements."""
    _relayout(on, "float", "half_t", 64, 64, "accumulator", only="A")
    _relayout(on, "float", "bf16_t", 64, 32, "accumulator_swapped", only="B")


# --- where elements are

PLACES = """
// Each element from the place that it names and back to it, and the whole stored as memory has it.
template <class Fragment>
__device__ void places(const float* x, float* by_place, typename Fragment::element_type* stored, uint32_t ld) {
  using T = typename Fragment::element_type;
  using Shape = typename Fragment::Shape;
  Fragment frag;
  for (int i = 0; i < frag.size(); ++i) {
    const int row = Fragment::row(i);
    const int col = frag.col(i);
    const bool inside = row < Shape::kRows && col < Shape::kCols;
    frag[i] = inside ? static_cast<T>(x[row * Shape::kCols + col]) : T(0);
    if (inside) by_place[row * Shape::kCols + col] = static_cast<float>(frag.x[i]) + 1;
  }
  store_matrix_sync(stored, frag, ld);
}
extern "C" __global__ void all_places(const float* x, float* by_place, TYPE* stored, ACCUMULATOR* results) {
  places<fragment<matrix_a, 32, 48, 32, TYPE, row_major>>(x, by_place, stored, 40);
  places<fragment<matrix_a, 16, 16, 64, TYPE, col_major>>(x, by_place + 2048, stored + 2048, 24);
  places<fragment<matrix_b, 48, 32, 32, TYPE, row_major>>(x, by_place + 4096, stored + 4096, 40);
  places<fragment<matrix_b, 16, 16, 64, TYPE, col_major>>(x, by_place + 6144, stored + 6144, 72);
  places<fragment<accumulator, 32, 32, 16, ACCUMULATOR, row_major>>(x, by_place + 8192, results, 40);
  places<fragment<accumulator_swapped, 48, 16, 16, ACCUMULATOR, col_major>>(x, by_place + 10240, results + 2048, 56);
}
"""


def places(on: Machine) -> None:
    """row() and col() of every kind, and stores of operands as well as of results, with leading dimensions."""
    shapes = [(32, 32, 40, False), (16, 64, 24, True), (32, 32, 40, False), (64, 16, 72, True)]
    shapes += [(32, 32, 40, False), (48, 16, 56, True)]
    for name, result in (("half_t", "float"), ("int8_t", "int32_t"), ("double", "double"), ("fp8_e4m3_t", "bf16_t")):
        x = whole(2048, low=-15, high=16)
        by_place = torch.zeros(6, 2048)
        operands, results = torch.zeros(4, 2048).to(TYPES[name]), torch.zeros(2, 2048).to(TYPES[result])
        compiled = kernel(PLACES, "all_places", f"-DTYPE={name}", f"-DACCUMULATOR={result}")
        _, by_place, operands, results = on.run(compiled, x.float(), by_place, operands, results)
        for i, (rows, cols, ld, column_major) in enumerate(shapes):
            want = x[: rows * cols].reshape(rows, cols)
            on.same(by_place[i, : rows * cols].reshape(rows, cols), want + 1, f"{name}: places of {i}")
            got = (operands[i] if i < 4 else results[i - 4]).double()
            lines = want.T if column_major else want
            memory = torch.zeros(2048, dtype=torch.float64)
            memory[: lines.shape[0] * ld].reshape(-1, ld)[:, : lines.shape[1]] = lines
            on.same(got, memory, f"{name}: memory of {i}")


# --- NVIDIA's shapes

SHARED = """
extern "C" __global__ void from_shared(const TYPE* a, const TYPE* b, float* d) {
  __shared__ __attribute__((aligned(16))) TYPE tile_a[64 * 72], tile_b[64 * 72];
  for (int i = threadIdx.x; i < 64 * 72; i += blockDim.x) {
    tile_a[i] = a[i];
    tile_b[i] = b[i];
  }
  sync_workgroup();
  fragment<matrix_a, SIZE_M, SIZE_N, 32, TYPE, LAYOUT_A> x;
  fragment<matrix_b, SIZE_M, SIZE_N, 32, TYPE, LAYOUT_B> y;
  fragment<accumulator, SIZE_M, SIZE_N, 32, float, col_major> sum;
  fill_fragment(sum, 0);
  load_matrix_sync(x, tile_a, 72);
  load_matrix_sync(y, tile_b, 72);
  mma_sync(sum, x, y, sum);
  store_matrix_sync(d, sum, SIZE_M);
}
"""


def eight_rows_or_columns(on: Machine) -> None:
    """8x32 and 32x8 blocks: every type, from global memory and by ldmatrix from shared, and as operands."""
    for m, n in ((8, 32), (32, 8)):
        for place, name in enumerate(("half_t", "bf16_t", "float", "double", "fp8_e4m3_t", "fp8_e5m2fnuz_t")):
            _pair(on, name, name, m, n, 16, SWAPPED[place % 2], "double" if name == "double" else "float")
        for a, b in (("int8_t", "int8_t"), ("uint8_t", "int8_t"), ("int4_t", "uint4_t")):
            _pair(on, a, b, m, n, 32, "accumulator", "int32_t")
        _pair(on, "fp8_e4m3_t", "fp8_e5m2_t", m, n, 32, "accumulator", "float")
        _relayout(on, "float", "half_t", m, n, "accumulator", only="A" if m == 8 else "B")
        for orders in itertools.product(("row_major", "col_major"), repeat=2):
            x, y = whole(m, 32), whole(32, n, seed=1)
            memory = []
            for matrix, order in zip((x, y), orders, strict=True):
                lines = matrix if order == "row_major" else matrix.T
                memory.append(torch.zeros(64, 72, dtype=torch.float16))
                memory[-1][: lines.shape[0], : lines.shape[1]] = lines
            options = [f"-DTYPE=half_t -DSIZE_M={m} -DSIZE_N={n} -DLAYOUT_A={orders[0]} -DLAYOUT_B={orders[1]}"]
            compiled = kernel(SHARED, "from_shared", *options[0].split())
            *_, d = on.run(compiled, *memory, torch.zeros(n, m))
            on.same(d.T, x @ y, f"{m}x{n} from shared memory, {orders}")


CHECKS = (
    conversions, operands_converted, mixed_accumulators, signed_and_unsigned, four_bits, two_fp8_formats,
    results_as_operands, large_results_as_operands, places, broadcasting, operands_element_by_element, scalars,
)  # fmt: skip
NVIDIA_CHECKS = (eight_rows_or_columns,)
