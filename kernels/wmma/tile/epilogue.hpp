// What follows a product: D = cast(act(alpha·S·row_scale·col_scale + beta·C + bias) · multiply), stage by stage, each
// there only where the configuration has it. Waves turn their sums around in shared memory first, so that every lane
// finishes neighbouring columns and moves them with wide accesses.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/tile/block_order.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// kCount neighbouring elements as numbers of type E, read kVec at a time.
template <class E, class T, int kCount, int kVec>
WMMA_DEVICE void load_numbers(E* x, const T* from, int64_t stride) {
  constexpr int kPiece = kVec < kCount ? kVec : kCount;
  alignas(16) T raw[kPiece];
#pragma unroll
  for (int i = 0; i < kCount; i += kPiece) {
    arch::copy<kPiece>(raw, from + i * (kPiece == 1 ? stride : 1));
#pragma unroll
    for (int e = 0; e < kPiece; ++e) x[i + e] = convert<E>(raw[e]);
  }
}

// The result in D's type: to nearest even; integers saturate, and a NaN becomes 0.
template <class D, class E>
WMMA_DEVICE D finished(E x) {
  if constexpr (kIsInteger<D> && !kIsInteger<E>) {
    constexpr E kLow = kSame<D, int8_t> ? E(-128) : E(-2147483648.0);
    constexpr E kHigh = kSame<D, int8_t> ? E(127) : E(2147483647.0);
    x = x == x ? arch::round_even(x) : E(0);
    x = x > kLow ? x : kLow;
    x = x < kHigh ? x : kHigh;
    return static_cast<D>(static_cast<int32_t>(x));
  } else {
    return convert<D>(x);
  }
}

// The epilogue of one batch's matrix.
template <class Config, class Sum>
class Epilogue {
 public:
  using E = typename Config::Number;
  static constexpr int kVec = Config::kDVec;

  WMMA_DEVICE Epilogue(const GemmArguments& p, uint32_t batch) : p_(p), batch_(batch) {}

  // Finishes kVec columns from `column` on, which are inside. The columns' own vectors are read here, once for all rows.
  struct Columns {
    E scale[kVec];
    E bias[kVec];
  };

  WMMA_DEVICE Columns columns(int64_t column) const {
    Columns x;
    if constexpr (!kIsNone<typename Config::ColScale>) {
      load_numbers<E, typename Config::ColScale, kVec, 1>(x.scale, at<typename Config::ColScale>(p_.col_scale, 0, column),
                                                          p_.col_scale.column_stride);
    }
    if constexpr (!kIsNone<typename Config::Bias>) {
      load_numbers<E, typename Config::Bias, kVec, 1>(x.bias, at<typename Config::Bias>(p_.bias, 0, column),
                                                      p_.bias.column_stride);
    }
    return x;
  }

  WMMA_DEVICE void store(const Sum* sums, const Columns& columns, int64_t row, int64_t column) const {
    E x[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      x[e] = static_cast<E>(p_.alpha) * convert<E>(sums[e]);
    }
    if constexpr (!kIsNone<typename Config::RowScale>) {
      const E scale = convert<E>(*at<typename Config::RowScale>(p_.row_scale, row, 0));
#pragma unroll
      for (int e = 0; e < kVec; ++e) x[e] *= scale;
    }
    if constexpr (!kIsNone<typename Config::ColScale>) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) x[e] *= columns.scale[e];
    }
    if constexpr (!kIsNone<typename Config::C>) {
      E c[kVec];
      load_numbers<E, typename Config::C, kVec, Config::kCVec>(c, at<typename Config::C>(p_.c, row, column),
                                                               p_.c.column_stride);
#pragma unroll
      for (int e = 0; e < kVec; ++e) x[e] = arch::fma(static_cast<E>(p_.beta), c[e], x[e]);
    }
    if constexpr (!kIsNone<typename Config::Bias>) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) x[e] += columns.bias[e];
    }
    if constexpr (Config::kActivation != kNone) {
#pragma unroll
      for (int e = 0; e < kVec; ++e) x[e] = activate<Config::kActivation, E>(x[e]);
    }
    if constexpr (!kIsNone<typename Config::Multiply>) {
      E factor[kVec];
      load_numbers<E, typename Config::Multiply, kVec, Config::kMultiplyVec>(
          factor, at<typename Config::Multiply>(p_.multiply, row, column), p_.multiply.column_stride);
#pragma unroll
      for (int e = 0; e < kVec; ++e) x[e] *= factor[e];
    }
    using D = typename Config::D;
    alignas(16) D result[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) result[e] = finished<D>(x[e]);
    arch::copy<kVec>(const_cast<D*>(at<D>(p_.d, row, column)), result);
  }

  // A split's sums, to be finished by the reduction.
  WMMA_DEVICE void store_partial(const Sum* sums, uint32_t split, int64_t row, int64_t column) const {
    Sum* to = partial(split, row, column);
#pragma unroll
    for (int e = 0; e < kVec; e += kPartialVec) arch::copy<kPartialVec>(to + e, sums + e);
  }

  // The splits' sums, always added in the same order.
  WMMA_DEVICE void load_partials(Sum* sums, int64_t row, int64_t column) const {
#pragma unroll
    for (int e = 0; e < kVec; ++e) sums[e] = Sum(0);
    for (uint32_t split = 0; split < p_.splits; ++split) {
      const Sum* from = partial(split, row, column);
      alignas(16) Sum part[kVec];
#pragma unroll
      for (int e = 0; e < kVec; e += kPartialVec) arch::copy<kPartialVec>(part + e, from + e);
#pragma unroll
      for (int e = 0; e < kVec; ++e) sums[e] += part[e];
    }
  }

 private:
  static constexpr int kPartialVec = kVec * sizeof(Sum) > 16 ? 16 / sizeof(Sum) : kVec;

  template <class T>
  WMMA_DEVICE const T* at(const GemmOperand& x, int64_t row, int64_t column) const {
    return static_cast<const T*>(x.data) + batch_offset<Config::kBatchDims>(p_, x, batch_) + row * x.row_stride +
           column * x.column_stride;
  }

  WMMA_DEVICE Sum* partial(uint32_t split, int64_t row, int64_t column) const {
    return static_cast<Sum*>(p_.partial) +
           ((static_cast<int64_t>(split) * p_.batch + batch_) * p_.m + row) * p_.n + column;
  }

  const GemmArguments& p_;
  uint32_t batch_;
};

// One row of products at a time through shared memory, each wave in a slab of its own. Where waves shared K, or blocks of
// a cluster did, each of them adds up and finishes a part of the lines.
template <class Config, class Product, int kM, int kN>
struct WaveStore {
  using Sum = typename Product::Compute;
  using Wave = WaveTile<Product, kM, kN>;
  static constexpr int kVec = Config::kDVec;
  // Up to 1024 sums at a time.
  static constexpr int kSlabTiles =
      detail::divisor_up_to(Wave::kTilesN, detail::lower(64, 1024 / Product::kRows) / Product::kCols);
  static constexpr int kSlabN = kSlabTiles * Product::kCols;
  static_assert(kSlabN % kVec == 0, "whole vectors");
  static constexpr int kPitch = kSlabN + 16 / static_cast<int>(sizeof(Sum));  // off the banks of the line above
  static constexpr int kSlabBytes = Product::kRows * kPitch * static_cast<int>(sizeof(Sum));
  static constexpr int kParts = Config::kWavesK * Config::kCluster;
  static constexpr int kAcross = detail::lower(kSlabN / kVec, arch::kWaveSize);  // lanes on one line
  static constexpr int kDown = arch::kWaveSize / kAcross * kParts;               // lines at once
  static constexpr int kColumnSteps = (kSlabN / kVec + kAcross - 1) / kAcross;
  static constexpr int kRowSteps = (Product::kRows + kDown - 1) / kDown;

  // `slab` is the first of kWavesK slabs; `wave_k` and `block_k` are the wave's place among those that share K.
  static WMMA_DEVICE void run(const Wave& wave, const GemmArguments& p, unsigned char* slab, uint32_t lane,
                              uint32_t wave_k, uint32_t block_k, uint32_t split, uint32_t batch, int64_t first_row,
                              int64_t first_column) {
    const Epilogue<Config, Sum> epilogue(p, batch);
    Sum* mine = reinterpret_cast<Sum*>(slab + wave_k * kSlabBytes);
    const uint32_t across = lane % kAcross;
    const uint32_t down = lane / kAcross + (block_k * Config::kWavesK + wave_k) * (arch::kWaveSize / kAcross);
    const bool idle = arch::kWaveSize % kAcross != 0 && lane >= arch::kWaveSize / kAcross * kAcross;
#pragma unroll
    for (int i = 0; i < Wave::kTilesM; ++i) {
#pragma unroll
      for (int j0 = 0; j0 < Wave::kTilesN; j0 += kSlabTiles) {
#pragma unroll
        for (int j = 0; j < kSlabTiles; ++j) {
#pragma unroll
          for (int e = 0; e < Product::C::kElements; ++e) {
            const int line = Product::C::row(lane, e);
            mine[line * kPitch + j * Product::kCols + Product::C::col(lane, e)] = wave.sums[i][j0 + j][e];
          }
        }
        meet();
#pragma unroll
        for (int c = 0; c < kColumnSteps; ++c) {
          const uint32_t inner = (across + c * kAcross) * kVec;
          const int64_t column = first_column + j0 * Product::kCols + inner;
          if (idle || (kSlabN / kVec % kAcross != 0 && inner >= kSlabN) || column >= p.n) continue;
          typename Epilogue<Config, Sum>::Columns columns;
          if constexpr (!Config::kSplit) columns = epilogue.columns(column);
#pragma unroll
          for (int r = 0; r < kRowSteps; ++r) {
            const uint32_t line = down + r * kDown;
            const int64_t row = first_row + i * Product::kRows + line;
            if ((Product::kRows % kDown != 0 && line >= Product::kRows) || row >= p.m) continue;
            alignas(16) Sum sums[kVec];
            read(sums, slab, line * kPitch + inner, 0);
#pragma unroll
            for (int part = 1; part < kParts; ++part) {
              alignas(16) Sum more[kVec];
              read(more, slab, line * kPitch + inner, part);
#pragma unroll
              for (int e = 0; e < kVec; ++e) sums[e] += more[e];
            }
            if constexpr (Config::kSplit) {
              epilogue.store_partial(sums, split, row, column);
            } else {
              epilogue.store(sums, columns, row, column);
            }
          }
        }
        meet();
      }
    }
  }

 private:
  // kVec sums of one of the parts, from its slab.
  static WMMA_DEVICE void read(Sum* sums, const unsigned char* slab, uint32_t element, int part) {
    constexpr int kPiece = kVec * sizeof(Sum) >= 16 ? 16 / static_cast<int>(sizeof(Sum)) : 1;
    const Sum* from = reinterpret_cast<const Sum*>(slab + part % Config::kWavesK * kSlabBytes) + element;
#pragma unroll
    for (int e = 0; e < kVec; e += kPiece) {
      if constexpr (Config::kCluster > 1) {
        arch::load_shared_of<kPiece>(part / Config::kWavesK, from + e, sums + e);
      } else {
        arch::copy<kPiece>(sums + e, from + e);
      }
    }
  }

  // Slabs are written and read by one wave, unless several shared K.
  static WMMA_DEVICE void meet() {
    if constexpr (Config::kCluster > 1) {
      arch::cluster_barrier();
    } else if constexpr (Config::kWavesK > 1) {
      arch::block_barrier();
    } else {
      arch::wave_barrier();
    }
  }
};

}  // namespace wmma
