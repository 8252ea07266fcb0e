"""The device library's atomics on whatever machine: all lanes of all blocks at one place, and values known exactly."""

import itertools
import math

import torch
from machine import Machine

import wmma_ops

BLOCKS, THREADS = 3, 40
LANES = BLOCKS * THREADS

HEAD = """
#include <wmma/grid.hpp>
using namespace wmma;
"""

# What all lanes do to the places of one type, one operation a place. `rank` is the thread's among all blocks' threads.
CONTENDED = (
    HEAD
    + """
constexpr int kPlaces = 16;

template <class T>
WMMA_DEVICE void contend(T* x, T* olds, int rank) {
  const T mine = static_cast<T>(static_cast<float>(rank % 50));
  olds[rank] = atomic_add(x + 0, 1);
  atomic_sub(x + 1, static_cast<T>(static_cast<float>(rank % 2)));
  atomic_min(x + 2, mine);
  atomic_max(x + 3, mine);
  // 4 gets what was exchanged at 5 beside what stays there: all ranks' values in whatever order.
  atomic_update(x + 4, [=](T old) { return old; });
  atomic_add(x + 4, atomic_exchange(x + 5, static_cast<T>(static_cast<float>(rank % 3))));
  if (rank < 6) atomic_mul(x + 6, 2);
  if (rank < 5) atomic_div(x + 7, 2);
  const T modulus = static_cast<T>(static_cast<float>(7));
  atomic_update(x + 8, [=](T old) { return static_cast<float>(old) >= 6.0f ? old - (modulus - 1) : old + 1; });
  if (rank % 8 == 0) {
    T expected = x[15];
    while (true) {  // 9 counts, by a loop of one's own
      const T seen = atomic_cas(x + 9, expected, static_cast<T>(expected + 1));
      if (static_cast<float>(seen) == static_cast<float>(expected)) break;
      expected = seen;
    }
  }
  if constexpr (detail::kAtomicInteger<T>) {
    atomic_and(x + 10, static_cast<T>(~(1 << rank % 4)));
    atomic_or(x + 11, static_cast<T>(1 << rank % 6));
    atomic_xor(x + 12, static_cast<T>(1 << rank % 7));
    atomic_inc(x + 13, 6);
    atomic_dec(x + 14, 6);
  }
}

template <class T>
WMMA_DEVICE void everywhere(T* x, T* olds, T* per_block) {
  __shared__ T s[kPlaces];
  const int thread = static_cast<int>(thread_rank());
  const int block = static_cast<int>(blockIdx.x);
  if (thread < kPlaces) s[thread] = x[kPlaces + thread];
  synchronize_workgroup();
  contend(x, olds, block * static_cast<int>(blockDim.x) + thread);
  contend(s, per_block + kPlaces * gridDim.x + block * blockDim.x, thread);
  synchronize_workgroup();
  if (thread < kPlaces) per_block[block * kPlaces + thread] = s[thread];
}

extern "C" __global__ void contended(TYPE* x, TYPE* olds, TYPE* per_block) { everywhere(x, olds, per_block); }
"""
)

TYPES = {
    "int": torch.int32,
    "unsigned": torch.uint32,
    "long long": torch.int64,
    "wmma::uint64_t": torch.uint64,
    "float": torch.float32,
    "double": torch.float64,
    "wmma::half_t": torch.float16,
    "wmma::bf16_t": torch.bfloat16,
    "signed char": torch.int8,
    "unsigned short": torch.uint16,
}


def _initial(dtype) -> list[int]:
    """Both the global places and, after them, the shared ones at the start."""
    last = 0 if dtype.is_floating_point else 15
    return [0, 100, 60, 0, 0, 0, 1, 64, 3, 0, last, 0, 0, 0, 0, 0]


def _expected(dtype, ranks: int) -> list[int]:
    count = [[rank % m for rank in range(ranks)] for m in (2, 3, 7)]
    out = [ranks, 100 - sum(count[0]), 0, min(ranks, 50) - 1, None, None, 64, 2, (3 + ranks) % 7, -(-ranks // 8)]
    if dtype.is_floating_point:
        return [*out, 0, 0, 0, 0, 0]
    flips = sum((count[2].count(bit) % 2) << bit for bit in range(7))
    return [*out, 0, 0b111111, flips, ranks % 7, -ranks % 7]


def check_contended(on: Machine, name: str):
    dtype = TYPES[name]
    start = torch.tensor(_initial(dtype) * 2).to(dtype)
    olds, per_block = torch.zeros(LANES).to(dtype), torch.zeros(BLOCKS * (16 + THREADS)).to(dtype)
    on.run(wmma_ops.Kernel(CONTENDED.replace("TYPE", name), "contended"), BLOCKS, THREADS, start, olds, per_block)
    places, blocks = per_block[: 16 * BLOCKS].double().view(BLOCKS, 16), per_block[16 * BLOCKS :].view(BLOCKS, THREADS)
    for what, found, ranks, seen in [
        ("global", start[:16].double(), LANES, olds),
        *((f"shared, block {i}", places[i], THREADS, blocks[i]) for i in range(BLOCKS)),
    ]:
        got, want = found.tolist(), _expected(dtype, ranks)
        assert got[4] + got[5] == sum(rank % 3 for rank in range(ranks)), (name, what)
        assert got[:4] + got[6:15] == want[:4] + want[6:15], (name, what)
        # Each lane saw another number of those before it.
        assert sorted(seen.double().tolist()) == list(range(ranks)), (name, what)


SPECIAL = (
    HEAD
    + """
template <class T>
WMMA_DEVICE void both(T* least, T* greatest, T* olds, const T* values, int i, int n) {
  __shared__ T s[2 * 128];
  if (i >= n) return;
  s[i] = least[i];
  s[i + 128] = greatest[i];
  olds[i] = atomic_min(least + i, values[i]);
  olds[i + n] = atomic_max(greatest + i, values[i]);
  olds[i + 2 * n] = atomic_min(s + i, values[i]);
  olds[i + 3 * n] = atomic_max(s + i + 128, values[i]);
  least[i + n] = s[i];
  greatest[i + n] = s[i + 128];
}
extern "C" __global__ void special(TYPE* least, TYPE* greatest, TYPE* olds, const TYPE* values, int n) {
  both(least, greatest, olds, values, static_cast<int>(threadIdx.x), n);
}
"""
)


def check_special_floats(on: Machine, name: str):
    """atomic_min and atomic_max: NaN of either sign, both zeros, infinities and subnormal numbers, each with each."""
    dtype = TYPES[name]
    tiny = torch.finfo(dtype).smallest_normal / 4
    numbers = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.5, -1.5, tiny, -tiny, 2.5]
    signs = torch.tensor([-1.0 if i == 0 else 1.0 for i in range(len(numbers) + 1)], dtype=dtype)
    every = torch.tensor([math.nan, *numbers], dtype=dtype).copysign(signs)
    every[2:] = torch.tensor(numbers[1:], dtype=dtype)
    pairs = list(itertools.product(range(len(every)), repeat=2))
    old, value = every[[p[0] for p in pairs]], every[[p[1] for p in pairs]]
    n = len(pairs)
    least, greatest, olds = old.repeat(2), old.repeat(2), torch.zeros(4 * n, dtype=dtype)
    on.run(wmma_ops.Kernel(SPECIAL.replace("TYPE", name), "special"), 1, 128, least, greatest, olds, value, n)

    def key(x):  # −0 lies below +0
        return x, math.copysign(1.0, x)

    for half, (where, found) in itertools.product((0, n), (("min", least), ("max", greatest))):
        for i, (a, b) in enumerate(zip(old.tolist(), value.tolist(), strict=True)):
            got = found[half + i].item()
            numbers_of = [x for x in (a, b) if not math.isnan(x)]
            if not numbers_of:
                assert math.isnan(got), (name, where, a, b)
                continue
            want = (min if where == "min" else max)(numbers_of, key=key)
            assert key(got) == key(want), (name, where, a, b, got)
    bits = {2: torch.int16, 4: torch.int32, 8: torch.int64}[every.element_size()]
    assert torch.equal(olds.view(bits), old.repeat(4).view(bits))


NEIGHBOURS = (
    HEAD
    + """
// Lanes add to places that lie in the same words; the last one lies alone in its word.
template <class T>
WMMA_DEVICE void spread(T* x, int n, int rank) {
  atomic_add(x + rank % n, 1);
  if (rank % n == n - 1) atomic_update(x + n - 1, [](T old) { return old + 2; });
}
extern "C" __global__ void neighbours(half_t* h, bf16_t* b, signed char* c, unsigned short* s, float* out) {
  __shared__ half_t alone;
  __shared__ bf16_t alone_too;
  const int rank = static_cast<int>(threadIdx.x + blockIdx.x * blockDim.x);
  if (threadIdx.x == 0) alone = half_t(3.0f), alone_too = bf16_t(5.0f);
  sync_workgroup();
  spread(h, 5, rank);
  spread(b, 5, rank);
  spread(c, 7, rank);
  spread(s, 3, rank);
  atomic_add(&alone, 1.0f);
  atomic_add(&alone_too, 0.5f);
  sync_workgroup();
  if (threadIdx.x == 0) out[blockIdx.x] = static_cast<float>(alone) + 1000.0f * static_cast<float>(alone_too);
}
"""
)


def check_neighbours(on: Machine):
    """Small types at the end of tensors that do not fill their last word, among neighbours that change at once."""
    dtypes = {torch.float16: 5, torch.bfloat16: 5, torch.int8: 7, torch.uint16: 3}
    # Each is a part of a tensor whose next value is to stay.
    whole = [torch.tensor([0] * n + [-0.0 if dtype.is_floating_point else 77]).to(dtype) for dtype, n in dtypes.items()]
    parts = [x[:-1] for x in whole]
    out = torch.zeros(2)
    on.run(wmma_ops.Kernel(NEIGHBOURS, "neighbours"), 2, 40, *parts, out)
    for x, n in zip(whole, dtypes.values(), strict=True):
        ranks = [rank % n for rank in range(80)]
        assert x[:-1].tolist() == [ranks.count(i) * (3 if i == n - 1 else 1) for i in range(n)], x
        assert key_of(x[-1]) == key_of(torch.tensor(-0.0 if x.is_floating_point() else 77)), x
    assert out.tolist() == [43 + 1000 * 25] * 2


def key_of(x) -> tuple[float, float]:
    return x.item(), math.copysign(1.0, x.item())


HANDING_ON = (
    HEAD
    + """
// A block hands on what it wrote; the others wait for nothing, as blocks run in any order: the last to come sums up.
extern "C" __global__ void hand_on(int* data, int* ready, int* sum) {
  data[blockIdx.x] = 10 + blockIdx.x;
  if (atomic_inc<memory_order::acq_rel>((unsigned*)ready, gridDim.x - 1) + 1 == gridDim.x) {
    int total = 0;
    for (int i = 0; i < gridDim.x; ++i) total += atomic_load<memory_order::acquire>(data + i);
    atomic_store<memory_order::release, memory_scope::system>(sum, total);
    atomic_fence<memory_order::seq_cst, memory_scope::system>();
  }
  struct Pair { short a, b; };
  atomic_update((Pair*)sum + 1, [](Pair x) { return Pair{short(x.a + 1), short(x.b - 2)}; });
}"""
)


def check_handing_on(on: Machine):
    data, ready, total = (torch.zeros(n, dtype=torch.int32) for n in (5, 1, 2))
    on.run(wmma_ops.Kernel(HANDING_ON, "hand_on"), 5, 1, data, ready, total)
    assert (total[0].item(), ready.item()) == (sum(range(10, 15)), 0)
    assert total[1:].view(torch.int16).tolist() == [5, -10]
