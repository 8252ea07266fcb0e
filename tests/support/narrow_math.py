"""The device library's math of 16-bit types, which goes through float, and the types that mixed arguments give."""

import contextlib
import math

import numpy as np
import torch

import wmma_ops

NARROW = """
#include <wmma/math.hpp>
using namespace wmma;
#ifdef WMMA_AMD
using Word = _Float16;
#else
using Word = half_t;
#endif
static_assert(kSame<decltype(wmma::pow(1.0f, 2)), float> && kSame<decltype(wmma::pow(1.0f, 2.0)), double>, "");
static_assert(kSame<decltype(wmma::sqrt(2)), double> && kSame<decltype(wmma::abs(-2)), int>, "");
static_assert(kSame<Real<half_t, int>, half_t> && kSame<Real<half_t, bf16_t>, float> && kSame<Real<bf16_t>, bf16_t>, "");
static_assert(kSame<Real<half_t, double>, double> && kSame<Real<int, uint8_t>, double> && kSame<Real<Word>, Word>, "");
template <class H>
__device__ void row_of(H v, float* y, int n) {
  H s, c, r;
  int e;
  wmma::sincos(v, &s, &c);
  const H all[] = {wmma::sin(v), s, c, wmma::exp(v), wmma::log(v), wmma::pow(v, 2), wmma::pow(v, v), wmma::erf(v),
                   wmma::erfinv(v), wmma::fmod(v, H(0.75f)), wmma::frexp(v, &e), wmma::modf(v, &r), r, wmma::floor(v)};
  for (int i = 0; i < 14; ++i) y[i * n] = static_cast<float>(all[i]);
  y[14 * n] = static_cast<float>(e);
  y[15 * n] = wmma::isnan(v) ? 1.0f : 0.0f;
}
extern "C" __global__ void narrow(const half_t* h, const bf16_t* b, float* y, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  row_of(h[i], y + i, n);
  row_of(b[i], y + 16 * n + i, n);
  row_of(static_cast<Word>(static_cast<float>(h[i])), y + 32 * n + i, n);
}
"""


def narrow_faults(target: str | None) -> list[str]:
    """Each value within 0.51 units in the last place of its 16 bits."""
    rng = np.random.default_rng(6)
    x = torch.from_numpy(np.concatenate([rng.uniform(-12, 12, 400), rng.standard_normal(400) * 0.01, [0, 1, np.nan]]))
    place = "cpu" if target else "cuda"
    half, bf16 = x.to(torch.float16), x.to(torch.bfloat16)
    found = torch.full((48, len(x)), math.nan, device=place)
    with wmma_ops.emulate(target) if target else contextlib.nullcontext():
        kernel = wmma_ops.Kernel(NARROW, "narrow")
        kernel[(len(x) + 127) // 128, 128](half.to(place), bf16.to(place), found, len(x))
    faults = []
    for part, (given, digits, least) in enumerate(((half, 11, -14), (bf16, 8, -126), (half, 11, -14))):
        v = given.double().numpy()
        with np.errstate(all="ignore"):
            erf = torch.special.erf(given.double()).numpy()
            inverse = torch.special.erfinv(given.double()).numpy()
            want = [np.sin(v), np.sin(v), np.cos(v), np.exp(v), np.log(v), v * v, v**v, erf, inverse]
            want += [
                np.fmod(v, 0.75),
                np.frexp(v)[0],
                np.modf(v)[0],
                np.modf(v)[1],
                np.floor(v),
                np.frexp(v)[1],
                np.isnan(v),
            ]
            for row, (exact, got) in enumerate(
                zip(want, found[16 * part : 16 * part + 16].double().cpu().numpy(), strict=True)
            ):
                unit = np.exp2(np.maximum(np.frexp(exact)[1], least + 1) - digits)
                overflow = np.abs(exact) >= 65520 if digits == 11 else False
                wrong = ~(
                    (np.abs(got - exact) <= 0.51 * unit) | (np.isnan(got) & np.isnan(exact)) | (got == exact) | overflow
                )
                wrong &= ~((row == 14) & np.isnan(v))
                if wrong.any():
                    at = int(np.argmax(wrong))
                    faults.append(
                        f"type {part}, row {row} of {v[at]!r}: {got[at]!r}, not {exact[at]!r}; {wrong.sum()} such"
                    )
    return faults
