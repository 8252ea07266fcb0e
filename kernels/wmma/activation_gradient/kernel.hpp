// g·act′(s) and the sums of its columns in one pass over memory, with a gate both its gradients: a block has some
// columns of a slab of rows, each thread a chunk of its own, row by row. What slabs sum up is added in their order, so
// that equal calls have equal bits.
#pragma once

#include <wmma/activation_gradient/arguments.hpp>
#include <wmma/arch/sm90.hpp>
#include <wmma/grid.hpp>
#include <wmma/tile/add_parts.hpp>
#include <wmma/tile/derivative.hpp>
#include <wmma/tile/rounding.hpp>

namespace wmma {

template <class Config>
class ActivationGradient {
  using T = typename Config::Element;
  using Sums = typename Config::Sums;  // None where nobody asks for them
  using Number = typename ComputeType<T>::Type;
  static constexpr bool kActivates = Config::kActivation != kNone;
  static constexpr bool kGates = Config::kGates;
  static constexpr bool kWrites = kActivates || kGates || Config::kCopies;
  static constexpr bool kAdds = !kIsNone<Sums>;
  static constexpr int kVec = Config::kVec;
  static constexpr int kAcross = Config::kAcross;  // threads of a row
  static constexpr int kDown = Config::kThreads / kAcross;
  static constexpr int kAhead = Config::kAhead;  // rows of a thread that are on their way together
  static constexpr int kColumns = kAcross * kVec;
  static_assert(kWrites || kAdds, "something to do");
  static_assert(Config::kThreads % kAcross == 0, "whole rows");

 public:
  static WMMA_DEVICE void run(const ActivationGradientArguments& p) {
    arch::await_previous();
    arch::let_next_start();
    const int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns, column = first + threadIdx.x % kAcross * kVec;
    const int64_t end = lower(p.rows, (blockIdx.y + int64_t{1}) * p.rows_of_slab);
    Number sums[kVec] = {};
    if (column < p.columns) {
      int64_t row = blockIdx.y * p.rows_of_slab + threadIdx.x / kAcross;
      for (; row + (kAhead - 1) * kDown < end; row += kAhead * kDown) step<kAhead>(p, row, column, sums);
      for (; row < end; row += kDown) step<1>(p, row, column, sums);
    }
    if constexpr (kAdds) {
      Number* const shared = dynamic_shared<Number>();
#pragma unroll
      for (int i = 0; i < kVec; ++i)
        shared[(threadIdx.x / kAcross) * kColumns + threadIdx.x % kAcross * kVec + i] = sums[i];
      arch::block_barrier();
      for (int i = threadIdx.x; i < kColumns && first + i < p.columns; i += Config::kThreads) {
        Number sum = shared[i];
#pragma unroll
        for (int down = 1; down < kDown; ++down) sum += shared[down * kColumns + i];
        if constexpr (Config::kIsWhole) {
          static_cast<Sums*>(p.sums)[first + i] = finished<Sums>(sum);
        } else {
          static_cast<Number*>(p.partial)[blockIdx.y * p.columns + first + i] = sum;
        }
      }
    }
  }

  // The slabs' sums, added up.
  static WMMA_DEVICE void add_up(const ActivationGradientArguments& p) {
    if constexpr (kAdds) {
      arch::await_previous();
      arch::let_next_start();
      add_parts<Sums, Config::kThreads>(static_cast<const Number*>(p.partial), p.slabs, p.columns,
                                        static_cast<Sums*>(p.sums));
    }
  }

 private:
  static WMMA_DEVICE int64_t lower(int64_t a, int64_t b) { return a < b ? a : b; }

  // Some rows, kDown apart.
  template <int kRows>
  static WMMA_DEVICE void step(const ActivationGradientArguments& p, int64_t row, int64_t column, Number* sums) {
    alignas(16) T g[kRows][kVec];
    [[maybe_unused]] alignas(16) T s[kRows][kVec], u[kRows][kVec];
    const int64_t at = row * p.columns + column, further = kDown * p.columns;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      arch::copy<kVec>(g[r], static_cast<const T*>(p.g) + at + r * further);
      if constexpr (kActivates || kGates) arch::copy<kVec>(s[r], static_cast<const T*>(p.s) + at + r * further);
      if constexpr (kGates) arch::copy<kVec>(u[r], static_cast<const T*>(p.u) + at + r * further);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int i = 0; i < kVec; ++i) {
        Number x = convert<Number>(g[r][i]);
        if constexpr (kGates) {
          const Number factor = convert<Number>(u[r][i]), before = convert<Number>(s[r][i]);
          u[r][i] = convert<T>(x * activate<Config::kActivation, Number>(before));
          x *= factor;
        }
        if constexpr (kActivates) x = times_derivative<Config::kActivation>(x, convert<Number>(s[r][i]));
        if constexpr (kActivates || kGates) g[r][i] = convert<T>(x);
        sums[i] += x;
      }
      const int64_t to = (row + r * kDown) * p.g_s_stride + column;
      if constexpr (kWrites) arch::copy<kVec>(static_cast<T*>(p.g_s) + to, g[r]);
      if constexpr (kGates) arch::copy<kVec>(static_cast<T*>(p.g_u) + to, u[r]);
    }
  }
};

}  // namespace wmma
