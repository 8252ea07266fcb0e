// The first kernel of attention's gradients: delta[row] = Σ g_out·out − g_lse.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/gradients/fixed_point.hpp>

namespace wmma {

// Some lanes of a wave for each row. kVec neighbours of g_out are loaded at once, and of `out`, where it allows as
// many: nobody promised that. kCleared words of each tile of rows are 0 afterwards: what blocks of the next kernel add
// to, or the count by which they take turns. kFixed: they are whole numbers (gradients/fixed_point.hpp), and the first
// blocks look for the largest keys and values.
template <class Config, class Arguments>
WMMA_DEVICE void attention_delta(const Arguments& p) {
  using T = typename Config::Element;
  using Number = typename ComputeType<T>::Type;
  constexpr int kVec = Config::kVec;
  constexpr int kLanes = Config::kLanes;  // of a row
  arch::await_previous();
  arch::let_next_start();
  int64_t block = blockIdx.x;
  if constexpr (Config::kFixed) {
    using Places = FixedPlaces<Config::kCleared>;
    const int64_t waves = static_cast<int64_t>(p.batch) * (p.heads / p.group) * Places::kShares * 2;
    const int64_t blocks = waves / (Config::kThreads / arch::kWaveSize);
    if (block < blocks) {
      fixed::find_peaks<Config>(p, Places(p), static_cast<uint32_t>(block));
      return;
    }
    block -= blocks;
  }
  const int64_t thread = block * Config::kThreads + threadIdx.x;
  if constexpr (Config::kCleared > 0) {
    constexpr int kAtOnce = Config::kCleared % 4 == 0 ? 4 : 1;
    const int64_t words = static_cast<int64_t>(p.batch) * p.heads * p.tiles * Config::kCleared;
    const int64_t blocks = (rows_of_all(p) * kLanes + Config::kThreads - 1) / Config::kThreads;
    const int64_t step = blocks * Config::kThreads * kAtOnce;
    const uint32_t zeros[kAtOnce] = {};
    for (int64_t at = thread * kAtOnce; at < words; at += step) {
      arch::copy_value<kAtOnce>(static_cast<uint32_t*>(p.partial) + at, zeros);
    }
  }
  const int64_t row = thread / kLanes;
  const bool is_there = is_row(p, row);
  const auto offset = offsets_of(p, is_there ? row : 0);
  const T* out = static_cast<const T*>(p.out.data) + offset(p.out);
  const T* g_out = static_cast<const T*>(p.g_out.data) + offset(p.g_out);
  const bool at_once =
      kVec > 1 && p.out.column_stride == 1 && reinterpret_cast<uint64_t>(out) % (kVec * sizeof(T)) == 0;
  Number sum(0);
  [[maybe_unused]] int size = 0;
  [[maybe_unused]] bool are_numbers = true;
  for (int column = static_cast<int>(thread % kLanes) * kVec; column < p.ev; column += kLanes * kVec) {
    alignas(16) T left[kVec];
    alignas(16) T right[kVec];
    arch::copy<kVec>(right, g_out + column * (kVec > 1 ? int64_t{1} : p.g_out.column_stride));
    if (at_once) {
      arch::copy<kVec>(left, out + column);
    } else {
#pragma unroll
      for (int i = 0; i < kVec; ++i) left[i] = out[(column + i) * p.out.column_stride];
    }
#pragma unroll
    for (int i = 0; i < kVec; ++i) sum = arch::fma(convert<Number>(left[i]), convert<Number>(right[i]), sum);
    if constexpr (Config::kFixed) {
      static_assert(kLanes * kVec == Config::kValueDepth, "a row is its lanes' at once");
      size = fixed::size_of_row<kLanes>(right, are_numbers);
    }
  }
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) sum += shuffle_xor(sum, mask);
  if (!is_there) return;
  if (p.g_lse.data != nullptr) {
    const Number g_lse = static_cast<const Number*>(p.g_lse.data)[offset(p.g_lse)];
    sum -= g_lse;
    if constexpr (Config::kFixed) size = detail::upper(size, fixed::size_of(g_lse));
  }
  if constexpr (Config::kFixed) {
    if (thread % kLanes == 0) {
      const FixedPlaces<Config::kCleared> places(p);
      // Of a query that sees nothing lse is −∞, and all its weights are 0.
      const Number lse = static_cast<const Number*>(p.lse.data)[offset(p.lse)];
      are_numbers = are_numbers && fixed::is_number(sum) && (fixed::is_number(lse) || lse < Number(0));
      reinterpret_cast<int*>(places.sizes)[row] = size;
      reinterpret_cast<uint32_t*>(places.marks)[row] = are_numbers ? 0u : fixed::kNaN;
    }
  }
  if (thread % kLanes == 0) static_cast<Number*>(const_cast<void*>(p.delta.data))[offset(p.delta)] = sum;
}

}  // namespace wmma
