"""What lanes of a wave and threads of a block do together, on whatever machine, against the same steps in NumPy."""

import functools

import numpy as np
import torch
from machine import Machine

import wmma_ops

HEAD = "#include <wmma/block.hpp>\nusing namespace wmma;\n"
SENTINEL = 77

TYPES = {
    "int": np.int32,
    "wmma::uint64_t": np.uint64,
    "signed char": np.int8,
    "unsigned short": np.uint16,
    "float": np.float32,
    "double": np.float64,
    "wmma::half_t": np.float16,
    "wmma::bf16_t": "bf16",
}

# The reductions and scans over the lanes of a mask, of which LANES are all.
WAVE = (
    HEAD
    + """
struct Later {  // associative, and of two values the order counts
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    return static_cast<float>(b) > 0.0f ? b : a;
  }
};

template <int kWidth, class T>
WMMA_DEVICE void of_width(T* y, T v) {
  constexpr int n = kWaveSize;
  y[0] = wave_sum<kWidth>(v);
  y[n] = wave_inclusive_sum<kWidth>(v);
  y[2 * n] = wave_exclusive_sum<kWidth>(v);
  y[3 * n] = wave_reduce<kWidth>(v, Later{});
  y[4 * n] = wave_exclusive_scan<kWidth>(v, Max{}, Max::first<T>());
}

extern "C" __global__ void wave(const TYPE* x, TYPE* y, TYPE* z, uint64_t mask) {
  constexpr int n = kWaveSize;
  const int lane = static_cast<int>(lane_id());
  const TYPE v = x[lane];
  y += lane;
  of_width<n>(y, v);
  of_width<8>(y + 5 * n, v);
  of_width<2>(y + 10 * n, v);
  of_width<32>(y + 15 * n, v);
  y[20 * n] = wave_min(v);
  y[21 * n] = wave_max<16>(v);
  y[22 * n] = wave_inclusive_scan(v, Later{});
  // The mask's lanes, and at once those of the rest among themselves.
  const uint64_t mine = mask >> lane & 1 ? mask : kAllLanes & ~mask;
  y[23 * n] = wave_sum_sync(mine, v);
  y[24 * n] = wave_inclusive_sum_sync(mine, v);
  y[25 * n] = wave_exclusive_sum_sync(mine, v);
  y[26 * n] = wave_reduce_sync(mine, v, Later{});
  y[27 * n] = wave_min_sync(mine, v);
  y[28 * n] = wave_max_sync(mine, v);
  y[29 * n] = wave_inclusive_scan_sync(mine, v, Later{});
  y[30 * n] = wave_exclusive_scan_sync(mine, v, Max{}, Max::first<TYPE>());
  y[31 * n] = wave_sum_sync(kAllLanes, v);
  if (mask >> lane & 1) z[lane] = wave_sum_sync(mask, v);  // the others are not there
  y += 32 * n;
  if constexpr (detail::kAtomicInteger<TYPE>) {
    y[0] = wave_and<4>(v);
    y[n] = wave_or(v);
    y[2 * n] = wave_xor<16>(v);
    y[3 * n] = wave_and_sync(mine, v);
    y[4 * n] = wave_or_sync(mine, v);
    y[5 * n] = wave_xor_sync(mine, v);
  }
}
"""
)
ROWS, INTEGER_ROWS = 32, 38


class Numbers:
    """Arithmetic of a type as the device library has it: sums in a carrier, rounded once."""

    def __init__(self, kind):
        self.bf16 = isinstance(kind, str)
        self.dtype = np.dtype(np.float32 if self.bf16 else kind)
        small = self.dtype.itemsize <= 2
        self.float = self.dtype.kind == "f"
        self.carrier = np.dtype(np.float32) if self.float and (small or self.bf16) else self.dtype
        self.torch = torch.bfloat16 if self.bf16 else torch.from_numpy(np.zeros(0, self.dtype)).dtype

    def rounded(self, values):
        """From the carrier."""
        if self.bf16:
            return torch.from_numpy(np.asarray(values, np.float32)).bfloat16().float().numpy()
        return np.asarray(values).astype(self.dtype)

    def lowest(self):
        return -np.inf if self.float else np.iinfo(self.dtype).min


def scanned(values, f):
    """Inclusive, in the order that wave.hpp states: upper halves of ever larger groups take the lower halves' last."""
    out, step = list(values), 1
    while step < len(out):
        for i in [i for i in range(len(out)) if i & step]:
            out[i] = f(out[(i & ~(2 * step - 1)) | (step - 1)], out[i])
        step *= 2
    return out


def later(a, b):
    return b if b > 0 else a


def _of_groups(groups, values, f, how):
    """For each lane: the group's reduction ("all"), or its scan before it with what stands first, or up to it."""
    out = [None] * len(values)
    for group in groups:
        scan = scanned([values[lane] for lane in group], f)
        for rank, lane in enumerate(group):
            out[lane] = scan[-1] if how == "all" else scan[rank] if how == "in" else scan[rank - 1] if rank else how
    return out


def _widths(wave: int, width: int):
    return [range(first, first + width) for first in range(0, wave, width)]


def check_wave(on: Machine, name: str):
    numbers, wave = Numbers(TYPES[name]), on.wave
    rng = np.random.default_rng(7)
    if numbers.float:
        x = numbers.rounded(rng.standard_normal(wave).astype(numbers.carrier) * 3)
    else:
        x = rng.integers(-128 if numbers.dtype.kind == "i" else 0, 128, wave).astype(numbers.dtype)
    mask = int(rng.integers(1, 2**wave - 1, dtype=np.uint64))
    options = () if name == "int" else ("-DWMMA_NO_ASSERT",)  # which compile quicker
    kernel = wmma_ops.Kernel(WAVE.replace("TYPE", name), "wave", options=options)
    rows = ROWS if numbers.float else INTEGER_ROWS
    given, y, z = torch.from_numpy(x).to(numbers.torch), *(torch.full((n,), SENTINEL) for n in (rows * wave, wave))
    y, z = y.to(numbers.torch), z.to(numbers.torch)
    on.run(kernel, 1, wave, given, y, z, mask)
    got = (y.float() if numbers.bf16 else y).numpy().reshape(rows, wave)

    with np.errstate(over="ignore"):
        sums = functools.partial(_sums, numbers, x)
        of = functools.partial(_of_groups, values=list(x), f=later)
        least, greatest = (functools.partial(_of_groups, values=list(x), f=f) for f in (min, max))
        want = []
        for width in (wave, 8, 2, 32):
            groups = _widths(wave, width)
            want += [sums(groups, how) for how in ("all", "in", numbers.carrier.type(0))]
            want += [of(groups, how="all"), greatest(groups, how=numbers.lowest())]
        whole = _widths(wave, wave)
        want += [least(whole, how="all"), greatest(_widths(wave, 16), how="all"), of(whole, how="in")]
        masked = [[lane for lane in range(wave) if mask >> lane & 1 == bit] for bit in (1, 0)]
        want += [sums(masked, how) for how in ("all", "in", numbers.carrier.type(0))]
        want += [of(masked, how="all"), least(masked, how="all"), greatest(masked, how="all")]
        want += [of(masked, how="in"), greatest(masked, how=numbers.lowest())]
        want.append(want[0])
        if not numbers.float:
            bits = [functools.partial(_of_groups, values=list(x), how="all", f=f) for f in BITS]
            want += [f(_widths(wave, width)) for f, width in zip(bits, (4, wave, 16), strict=True)]
            want += [f(masked) for f in bits]
    for row, (found, expected) in enumerate(zip(got, want, strict=True)):
        assert found.tolist() == numbers.rounded(np.array(expected)).tolist(), (name, row)
    z = (z.float() if numbers.bf16 else z).numpy()
    alone = [value if mask >> lane & 1 else SENTINEL for lane, value in enumerate(got[23].tolist())]
    assert z.tolist() == alone, name


BITS = (np.bitwise_and, np.bitwise_or, np.bitwise_xor)


def _sums(numbers, x, groups, how):
    return _of_groups(groups, list(x.astype(numbers.carrier)), lambda a, b: a + b, how)


BLOCK = (
    HEAD
    + """
struct Later {
  template <class T>
  WMMA_DEVICE T operator()(T a, T b) const {
    return static_cast<float>(b) > 0.0f ? b : a;
  }
};
template <class T>
WMMA_DEVICE void all(const T* x, T* y) {
  const int n = static_cast<int>(block_threads()), i = static_cast<int>(thread_rank());
  const T v = x[i];
  y += i;
  y[0] = block_sum(v);
  y[n] = block_inclusive_sum(v);
  y[2 * n] = block_exclusive_sum(v);
  y[3 * n] = block_reduce(v, Later{});
  y[4 * n] = block_min(v);
  y[5 * n] = block_max(v);
  y[6 * n] = block_inclusive_scan(v, Later{});
  y[7 * n] = block_exclusive_scan(v, Max{}, Max::first<T>());
}
extern "C" __global__ void block(const int* i, int* j, const float* f, float* g, const half_t* h, half_t* k,
                                 const double* d, double* e) {
  all(i, j);
  all(f, g);
  all(h, k);
  all(d, e);
  const int n = static_cast<int>(block_threads()), at = static_cast<int>(thread_rank());
  j[8 * n + at] = block_and(i[at]);
  j[9 * n + at] = block_or(i[at]);
  j[10 * n + at] = block_xor(i[at]);
  j[11 * n + at] = block_reduce(i[at], BitAnd{});
  j[12 * n + at] = block_reduce(i[at], BitOr{});
  j[13 * n + at] = block_reduce(i[at], BitXor{});
  j[14 * n + at] = block_reduce(i[at], Min{});
}
"""
)
SHAPES = ((1,), (40,), (128,), (5, 3, 7))


def check_block(on: Machine, shape: tuple[int, ...]):
    n = int(np.prod(shape))
    rng, rows = np.random.default_rng(n), 8
    kinds = [Numbers(kind) for kind in (np.int32, np.float32, np.float16, np.float64)]
    inputs = [
        (rng.standard_normal(n) * 3).astype(k.dtype) if k.float else rng.integers(-(2**31), 2**31, n).astype(k.dtype)
        for k in kinds
    ]
    outputs = [torch.full(((rows + 7 * (not k.float)) * n,), SENTINEL).to(k.torch) for k in kinds]
    pairs = [t for x, y in zip(inputs, outputs, strict=True) for t in (torch.from_numpy(x), y)]
    on.run(wmma_ops.Kernel(BLOCK, "block"), 1, shape, *pairs)

    for numbers, x, y in zip(kinds, inputs, outputs, strict=True):
        got = y.numpy().reshape(-1, n)
        carried = x.astype(numbers.carrier)
        with np.errstate(over="ignore"):
            in_sum, before_sum = _of_block(carried, lambda a, b: a + b, on.wave, numbers.carrier.type(0))
            in_later, _ = _of_block(x, later, on.wave, None)
            _, before_most = _of_block(x, max, on.wave, numbers.lowest())
            whole = scanned(list(carried), lambda a, b: a + b)[-1]  # the same for any size of waves
        want = [[whole] * n, in_sum, before_sum, [in_later[-1]] * n, [min(x)] * n, [max(x)] * n, in_later, before_most]
        if not numbers.float:
            want += [[f.reduce(x)] * n for f in (*BITS, *BITS, np.minimum)]
        for row, (found, expected) in enumerate(zip(got, want, strict=True)):
            assert found.tolist() == numbers.rounded(np.array(expected)).tolist(), (numbers.dtype, row)


def _of_block(x, f, wave: int, first):
    """(inclusive, exclusive): within waves, with the scan of the waves before."""
    parts = [scanned(list(x[i : i + wave]), f) for i in range(0, len(x), wave)]
    ends = scanned([part[-1] for part in parts], f)
    inside, before = [], []
    for i, part in enumerate(parts):
        joined = part if i == 0 else [f(ends[i - 1], value) for value in part]
        before += [first if i == 0 else ends[i - 1], *joined[:-1]]
        inside += joined
    return inside, before


MASKS = (
    HEAD
    + """
extern "C" __global__ void masks(const int* x, const double* d, const signed char* c, long long* y, uint64_t mask) {
  constexpr int n = kWaveSize;
  const int lane = static_cast<int>(lane_id());
  const bool in = mask >> lane & 1;
  const uint64_t mine = in ? mask : kAllLanes & ~mask;
  y += lane;
  y[0] = lane_mask_lt();
  y[n] = lane_mask_le();
  y[2 * n] = lane_mask_gt();
  y[3 * n] = lane_mask_ge();
  y[4 * n] = lane_mask_eq();
  y[5 * n] = vote_ballot(x[lane] > 0);
  y[6 * n] = vote_ballot_sync(mine, x[lane] > 0);
  y[7 * n] = vote_any_sync(mine, x[lane] > 0) + 2 * vote_all_sync(mine, x[lane] > 0) + 4 * vote_any_sync(mine, lane >= n) +
             8 * vote_all_sync(mine, lane < n);
  y[8 * n] = match_any_sync(mine, x[lane]);
  sync_wave();  // after what two masks did apart, NVIDIA's lanes are together again
  y[9 * n] = match_any(d[lane]);
  y[10 * n] = match_any(c[lane]);
  y[11 * n] = match_all_sync(mine, in ? 5.0 : d[lane]);
  sync_wave();
  y[12 * n] = match_all(7) + match_all(lane);
  y[13 * n] = shuffle_sync(mine, x[lane], first_lane(mine));
  y[14 * n] = shuffle_xor_sync(kAllLanes, d[lane], 3, 4) > 0.0;
  if (in) {
    // The others are not there.
    y[15 * n] = active_mask();
    y[16 * n] = vote_ballot_sync(mask, x[lane] > 0) + shuffle_up_sync(mask, x[lane], 0) +
                shuffle_down_sync(mask, x[lane], 0);
    y[17 * n] = match_any_sync(mask, d[lane]);
    sync_wave(mask);
  }
}
"""
)


def check_masks(on: Machine):
    wave, lanes = on.wave, range(on.wave)
    rng = np.random.default_rng(3)
    x = rng.integers(-1, 3, wave).astype(np.int32)
    d = rng.choice(np.array([0.0, -0.0, 1.0, 1.0 + 2.0**-50, 2.0**300]), wave)
    c = rng.integers(-2, 2, wave).astype(np.int8)
    mask = int(rng.integers(1, 2**wave - 1, dtype=np.uint64))
    every = (1 << wave) - 1
    y = torch.full((18 * wave,), SENTINEL)
    given = [torch.from_numpy(v) for v in (x, d, c)]
    on.run(wmma_ops.Kernel(MASKS, "masks"), 1, wave, *given, y, mask)
    got = [[value % 2**64 for value in row] for row in y.view(18, wave).tolist()]

    def where(holds, among=every):
        return sum(1 << lane for lane in lanes if among >> lane & 1 and holds(lane))

    def same(values, lane, among=every):
        return where(lambda other: values[other].tobytes() == values[lane].tobytes(), among)

    mine = [mask if mask >> lane & 1 else every & ~mask for lane in lanes]
    alike = [[d[i].tobytes() for i in lanes if among >> i & 1] for among in mine]
    named = [lane for lane in lanes if mask >> lane & 1]
    positive = [where(lambda i: x[i] > 0, among) for among in mine]
    want = [
        [(1 << lane) - 1 for lane in lanes],
        [(2 << lane) - 1 for lane in lanes],
        [every & ~((2 << lane) - 1) for lane in lanes],
        [every & ~((1 << lane) - 1) for lane in lanes],
        [1 << lane for lane in lanes],
        [where(lambda i: x[i] > 0)] * wave,
        positive,
        [(p != 0) + 2 * (p == among) + 8 for p, among in zip(positive, mine, strict=True)],
        [same(x, lane, mine[lane]) for lane in lanes],
        [same(d, lane) for lane in lanes],
        [same(c, lane) for lane in lanes],
        [mine[lane] if lane in named or len(set(alike[lane])) == 1 else 0 for lane in lanes],
        [every] * wave,
        [int(x[(among & -among).bit_length() - 1]) % 2**64 for among in mine],
        [int(d[lane ^ 3] > 0) for lane in lanes],
        [mask] * wave,
        [(positive[lane] + 2 * int(x[lane])) % 2**64 for lane in lanes],
        [same(d, lane, mask) for lane in lanes],
    ]
    for row, (found, expected) in enumerate(zip(got, want, strict=True)):
        shown = lanes if row < 15 else named
        assert [found[i] for i in shown] == [expected[i] for i in shown], row
        assert all(found[i] == SENTINEL for i in set(lanes) - set(shown)), row
