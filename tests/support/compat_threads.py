"""Kernels whose threads meet, in the names of HIP and CUDA: atomics, shuffles, votes."""

import torch
from compat_kernels import HEAD, float_bits
from machine import Machine

import wmma_ops

# What THREADS threads do to the place of the row's number, which holds the first number before and the second after.
THREADS = 96
ATOMICS = [
    ("atomicAdd(at, i)", 5, 5 + THREADS * (THREADS - 1) // 2),
    ("atomicAdd_block(at, 1)", 0, THREADS),
    ("atomicAdd_system(at, -1)", 0, -THREADS),
    ("atomicSub(at, 2)", 7, 7 - 2 * THREADS),
    ("atomicMin(at, i - 4)", 7, -4),
    ("atomicMax(at, 3 * i)", 7, 3 * THREADS - 3),
    ("atomicMin((unsigned*)at, i + 9)", -1, 9),
    ("atomicAnd(at, ~(1 << i % 9))", 1023, 512),
    ("atomicOr(at, 1 << i % 9)", 512, 1023),
    ("atomicXor(at, 1 << i % 32)", 1, 0xFFFFFFFE - (1 << 32) if THREADS // 32 % 2 else 1),
    ("atomicInc((unsigned*)at, 9)", 0, THREADS % 10),
    ("atomicDec((unsigned*)at, 9)", 0, -THREADS % 10),
    ("atomicExch(at, 6 + (i > THREADS))", 1, 6),
    ("atomicCAS(at, 0, i + 1 > 0)", 0, 1),
    ("atomicCAS_block(at, 3, 4)", 5, 5),
    ("atomicAdd((float*)at, 0.5f)", 0, float_bits(THREADS / 2)),
    ("atomicMax_block(at, i)", 0, THREADS - 1),
    ("atomicAdd((__half2*)at, __floats2half2_rn(1, 2))", 0, 0x5A00 << 16 | 0x5600),
    ("atomicAdd(s, 1); __syncthreads(); if (i == 0) *at = *s", 0, THREADS),
    ("__nanosleep(20); if (i == 0) *at = 1", 0, 1),
    ("__threadfence(); __threadfence_block(); __threadfence_system(); atomicAdd(at, i % warpSize < 32)", 0, None),
]
_BODY = "\n".join(f"  {{ int* at = r + {n}; {line}; }}" for n, (line, _, _) in enumerate(ATOMICS))
ATOMICS_KERNEL = wmma_ops.Kernel(
    f"""{HEAD}
const int THREADS = {THREADS};
__global__ void __launch_bounds__(THREADS) atomics(int* r) {{
  __shared__ int s[1];
  const int i = threadIdx.x;
  if (i == 0) *s = 0;
  __syncthreads();
{_BODY}
}}""",
    "atomics",
)


def check_atomics(on: Machine):
    got = torch.tensor([before for _, before, _ in ATOMICS], dtype=torch.int32)
    on.run(ATOMICS_KERNEL, 1, THREADS, got)
    wanted = [after if after is not None else (THREADS if on.wave == 32 else 64) for _, _, after in ATOMICS]
    wrong = [
        f"{line} leaves {found} for {value}"
        for (line, _, _), found, value in zip(ATOMICS, got.tolist(), wanted, strict=True)
        if found != value
    ]
    assert not wrong, "\n".join(wrong)


# Of lane i of a wave, and the number w of lanes: an expression, and what it is in Python. `mask` names all
# lanes of a wave, `odd` those of odd numbers, which alone come to what follows an `odd ?`.
LANES = [
    ("__shfl(i, 5)", lambda i, w: 5),
    ("__shfl(i, 5, 8)", lambda i, w: i // 8 * 8 + 5),
    ("__shfl_up(i, 3)", lambda i, w: max(i - 3, i if i < 3 else 0)),
    ("__shfl_down(i, 2, 16)", lambda i, w: i + 2 if i % 16 < 14 else i),
    ("__shfl_xor(i, 9)", lambda i, w: i ^ 9),
    ("__shfl_sync(mask, i * 2, 7)", lambda i, w: 14),
    ("__shfl_up_sync(mask, i, 1, 8)", lambda i, w: i - 1 if i % 8 else i),
    ("__shfl_down_sync(mask, i, 1)", lambda i, w: min(i + 1, w - 1)),
    ("__shfl_xor_sync(mask, i, 1, 2)", lambda i, w: i ^ 1),
    ("__popcll(__ballot(i % 3 == 0)) + 1000 * __ffsll((long long)__ballot(i > 4))", lambda i, w: (w + 2) // 3 + 6000),
    ("__popcll(__ballot_sync(mask, i < 5))", lambda i, w: 5),
    ("__any(i == 5) + 10 * __any(i > 64) + 100 * __all(i < 64) + 1000 * __all(i == 5)", lambda i, w: 101),
    ("__any_sync(mask, i == 5) + 100 * __all_sync(mask, i < 7)", lambda i, w: 1),
    ("i % 2 ? __popcll(__ballot_sync(odd, i > 3)) : -1", lambda i, w: (w - 4) // 2 if i % 2 else -1),
    ("i % 2 ? __popcll(__activemask()) : -1", lambda i, w: w // 2 if i % 2 else -1),
    ("i % 2 ? __shfl_xor_sync(odd, i, 2) : -1", lambda i, w: i ^ 2 if i % 2 else -1),
    ("__popcll(__match_any_sync(mask, i % 4))", lambda i, w: w // 4),
    ("__match_all_sync(mask, i / 64, &alike) == mask && alike", lambda i, w: 1),
    ("__match_all_sync(mask, i / 2, &alike) != 0 || alike", lambda i, w: 0),
    ("__reduce_add_sync(mask, i)", lambda i, w: w * (w - 1) // 2),
    ("__reduce_min_sync(mask, i + 3) + __reduce_max_sync(mask, i) * 100", lambda i, w: 3 + 100 * (w - 1)),
    ("__reduce_and_sync(mask, i | 8) + __reduce_or_sync(mask, i)", lambda i, w: 8 + w - 1),
    ("__reduce_xor_sync(mask, i == 3 ? 4 : 0)", lambda i, w: 4),
    ("(__syncwarp(), __syncwarp(mask), (int)__lane_id())", lambda i, w: i),
    ("__syncthreads_count(threadIdx.x % 3 == 0)", lambda i, w: (2 * w + 2) // 3),
    ("__syncthreads_and(threadIdx.x < 9) + 10 * __syncthreads_or(threadIdx.x == 9)", lambda i, w: 10),
]
_LANE_LINES = "\n".join(f"  r[{n} * warpSize + i] = {line};" for n, (line, _) in enumerate(LANES))
LANES_KERNEL = wmma_ops.Kernel(
    f"""{HEAD}
#ifdef __CUDACC_RTC__
using Lanes = unsigned;  // CUDA's masks have 32 bits
#else
using Lanes = unsigned long long;
#endif
__global__ void lanes(int* given) {{
  const int i = threadIdx.x % warpSize;
  int* const r = given + threadIdx.x / warpSize * {len(LANES)} * warpSize;
  int alike;
  const Lanes mask = warpSize == 64 ? ~0ull : 0xffffffffull;
  const Lanes odd = mask & 0xaaaaaaaaaaaaaaaaull;
{_LANE_LINES}
}}""",
    "lanes",
)


def check_lanes(on: Machine):
    got = torch.full((2, len(LANES), on.wave), 77, dtype=torch.int32)
    on.run(LANES_KERNEL, 1, 2 * on.wave, got)
    wrong = []
    for (line, formula), *rows in zip(LANES, *got, strict=True):
        wanted = [formula(lane, on.wave) for lane in range(on.wave)]
        wrong += [f"{line} is {row.tolist()} for {wanted}" for row in rows if row.tolist() != wanted]
    assert not wrong, "\n".join(wrong)


KERNELS = {"atomics": ATOMICS_KERNEL, "lanes": LANES_KERNEL}
