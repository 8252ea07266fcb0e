// What follows a product: D = cast(act(alpha·S·row_scale·col_scale + beta·C + bias) · multiply), stage by stage, each
// there only where the configuration has it. Waves turn their sums around in shared memory first, so that every lane
// finishes neighbouring columns and moves them with wide accesses.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/grid.hpp>
#include <wmma/tile/batch.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/derivative.hpp>
#include <wmma/tile/rounding.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// kCount neighbouring elements as they are in memory, read kVec at a time.
template <class T, int kCount, int kVec>
struct Raw {
  static constexpr int kPiece = kVec < kCount ? kVec : kCount;
  alignas(16) T values[kCount];

  WMMA_DEVICE void load(const T* from, int64_t stride) {
#pragma unroll
    for (int i = 0; i < kCount; i += kPiece) {
      arch::copy<kPiece>(values + i, from + i * (kPiece == 1 ? stride : 1));
    }
  }
};
template <int kCount, int kVec>
struct Raw<None, kCount, kVec> {};

// Which operand results are written to.
template <class Config>
struct ResultOf {
  static WMMA_DEVICE const GemmOperand& of(const GemmArguments& p) { return p.d; }
};

// The epilogue of one batch's matrix.
template <class Config, class Sum>
class Epilogue {
 public:
  using E = typename Config::Number;
  static constexpr int kVec = Config::kDVec;

  WMMA_DEVICE Epilogue(const GemmArguments& p, uint32_t batch) : p_(p), batch_(batch) {}

  // What columns bring with them, read once for all rows.
  struct Columns {
    Raw<typename Config::ColScale, kVec, 1> scale;
    Raw<typename Config::Bias, kVec, 1> bias;
  };
  WMMA_DEVICE Columns columns(int64_t column) const {
    Columns x;
    load(x.scale, p_.col_scale, 0, column);
    load(x.bias, p_.bias, 0, column);
    return x;
  }

  // What the elements themselves bring, read as early as there are registers for it.
  struct Elements {
    Raw<typename Config::RowScale, 1, 1> row_scale;
    Raw<typename Config::C, kVec, Config::kCVec> c;
    Raw<typename Config::Multiply, kVec, Config::kMultiplyVec> multiply;
  };
  WMMA_DEVICE void fetch(Elements& x, int64_t row, int64_t column) const {
    load(x.row_scale, p_.row_scale, row, 0);
    load(x.c, p_.c, row, column);
    load(x.multiply, p_.multiply, row, column);
  }

  // Asks for the tile's part of C and of the multiplier while its product is computed.
  template <int kRows, int kCols, int kThreads>
  WMMA_DEVICE void prefetch(int64_t row, int64_t column, uint32_t thread) const {
    prefetch_of<typename Config::C, Config::kCVec, kRows, kCols, kThreads>(p_.c, row, column, thread);
    prefetch_of<typename Config::Multiply, Config::kMultiplyVec, kRows, kCols, kThreads>(p_.multiply, row, column,
                                                                                         thread);
  }

  // What stands beside a sum: set is what there is.
  struct Beside {
    E row_scale, col_scale, c, bias, multiply;
  };
  // What the activation is given.
  WMMA_DEVICE E before_activation(Sum sum, const Beside& beside) const {
    E x = static_cast<E>(p_.alpha) * convert<E>(sum);
    if constexpr (!kIsNone<typename Config::RowScale>) x *= beside.row_scale;
    if constexpr (!kIsNone<typename Config::ColScale>) x *= beside.col_scale;
    if constexpr (!kIsNone<typename Config::C>) x = arch::fma(static_cast<E>(p_.beta), beside.c, x);
    if constexpr (!kIsNone<typename Config::Bias>) x += beside.bias;
    return x;
  }
  WMMA_DEVICE E after_activation(E x, const Beside& beside) const {
    x = activate<Config::kActivation, E>(x);
    if constexpr (!kIsNone<typename Config::Multiply>) x *= beside.multiply;
    return x;
  }
  // The result of a sum, and what is kept beside it.
  WMMA_DEVICE E finish(Sum sum, const Beside& beside, E& kept) const {
    if constexpr (kGivesSlopes<Config>) {
      E x = convert<E>(sum);
      if constexpr (!kIsNone<typename Config::Multiply>) {
        kept = x * activate<Config::kActivation, E>(beside.c);
        x *= beside.multiply;
      }
      if constexpr (Config::kActivation != kNone) x = times_derivative<Config::kActivation>(x, beside.c);
      return x;
    } else {
      kept = before_activation(sum, beside);
      return after_activation(kept, beside);
    }
  }

  // Finishes kVec columns from `column` on, which are inside.
  WMMA_DEVICE void store(const Sum* sums, const Columns& columns, const Elements& elements, int64_t row,
                         int64_t column) const {
    using D = typename Config::D;
    alignas(16) D result[kVec], aux[kVec];
    E x[kVec];
#pragma unroll
    for (int e = 0; e < kVec; ++e) {
      Beside beside;
      if constexpr (!kIsNone<typename Config::RowScale>) beside.row_scale = convert<E>(elements.row_scale.values[0]);
      if constexpr (!kIsNone<typename Config::ColScale>) beside.col_scale = convert<E>(columns.scale.values[e]);
      if constexpr (!kIsNone<typename Config::C>) beside.c = convert<E>(elements.c.values[e]);
      if constexpr (!kIsNone<typename Config::Bias>) beside.bias = convert<E>(columns.bias.values[e]);
      if constexpr (!kIsNone<typename Config::Multiply>) beside.multiply = convert<E>(elements.multiply.values[e]);
      E kept;
      x[e] = finish(sums[e], beside, kept);
      if constexpr (kKeepsAux<Config>) aux[e] = finished<D>(kept);
    }
#pragma unroll
    for (int e = 0; e < kVec; ++e) result[e] = finished<D>(x[e]);
    if constexpr (kKeepsAux<Config>) arch::copy<kVec>(const_cast<D*>(at<D>(p_.aux, row, column)), aux);
    arch::copy<kVec>(const_cast<D*>(at<D>(ResultOf<Config>::of(p_), row, column)), result);
  }

  // A split's sums, to be finished by the reduction. Row and column are the tile's.
  WMMA_DEVICE void store_partial(const Sum* sums, uint32_t split, uint32_t tile, uint32_t row, uint32_t column) const {
    Sum* to = partials(tile, row, column) + split * p_.split_stride;
#pragma unroll
    for (int e = 0; e < kVec; e += kPartialVec) arch::copy<kPartialVec>(to + e, sums + e);
  }

  // The splits' sums, always added in the same order; some are on their way together.
  WMMA_DEVICE void load_partials(Sum* sums, uint32_t tile, uint32_t row, uint32_t column) const {
    const Sum* from = partials(tile, row, column);
#pragma unroll
    for (int e = 0; e < kVec; ++e) sums[e] = Sum(0);
    for (uint32_t split = 0; split < p_.splits; split += Config::kPartsInFlight) {
      alignas(16) Sum parts[Config::kPartsInFlight][kVec];
#pragma unroll
      for (int i = 0; i < Config::kPartsInFlight; ++i, from += p_.split_stride) {
        if (i > 0 && split + i >= p_.splits) break;
#pragma unroll
        for (int e = 0; e < kVec; e += kPartialVec) arch::copy<kPartialVec>(parts[i] + e, from + e);
      }
#pragma unroll
      for (int i = 0; i < Config::kPartsInFlight; ++i) {
        if (i > 0 && split + i >= p_.splits) break;
#pragma unroll
        for (int e = 0; e < kVec; ++e) sums[e] += parts[i][e];
      }
    }
  }

 private:
  static constexpr int kPartialVec = kVec * sizeof(Sum) > 16 ? 16 / sizeof(Sum) : kVec;

  template <class T, int kCount, int kStep>
  WMMA_DEVICE void load(Raw<T, kCount, kStep>& x, const GemmOperand& operand, int64_t row, int64_t column) const {
    if constexpr (!kIsNone<T>) x.load(at<T>(operand, row, column), operand.column_stride);
  }

  template <class T, int kStep, int kRows, int kCols, int kThreads>
  WMMA_DEVICE void prefetch_of(const GemmOperand& x, int64_t row, int64_t column, uint32_t thread) const {
    if constexpr (!kIsNone<T> && kStep > 1) {
      constexpr int kLine = elements_in<T>(128);
      constexpr int kAcross = (kCols + kLine - 1) / kLine;
#pragma unroll
      for (int i = 0; i < (kRows * kAcross + kThreads - 1) / kThreads; ++i) {
        const uint32_t at_line = thread + i * kThreads;
        const int64_t r = row + at_line / kAcross;
        const int64_t c = column + at_line % kAcross * kLine;
        if (at_line < kRows * kAcross && r < p_.m && c < p_.n) arch::prefetch(at<T>(x, r, c));
      }
    }
  }

  template <class T>
  WMMA_DEVICE const T* at(const GemmOperand& x, int64_t row, int64_t column) const {
    return static_cast<const T*>(x.data) + batch_offset<Config::kBatchDims>(p_, x, batch_) + row * x.row_stride +
           column * x.column_stride;
  }

  WMMA_DEVICE Sum* partials(uint32_t tile, uint32_t row, uint32_t column) const {
    const uint32_t tiles = p_.tiles_m * p_.tiles_n - p_.whole;
    const int64_t at = static_cast<int64_t>(batch_) * tiles + (tile - p_.whole);
    return static_cast<Sum*>(p_.partial) + at * (Config::kBlockM * Config::kBlockN) + row * Config::kBlockN + column;
  }

  const GemmArguments& p_;
  uint32_t batch_;
};

// A product's sums into a slab of which so many rows are of use.
template <class Product>
struct SlabWriter {
  using Sum = typename Product::Compute;

  static WMMA_DEVICE void write(const Sum* sums, uint32_t lane, Sum* to, int pitch, int64_t) {
#pragma unroll
    for (int e = 0; e < Product::C::kElements; ++e) {
      to[Product::C::row(lane, e) * pitch + Product::C::col(lane, e)] = sums[e];
    }
  }
};

// As many slabs of sums as there are.
inline constexpr int kAllSlabs = 1 << 16;

// A wave's sums by way of shared memory, a slab of some products at a time, of up to kMostSums. Where waves shared K,
// or blocks of a cluster did, all their slabs lie there at once, or kMostSlabs of each, and each of them adds up and
// finishes a part of the lines.
template <class Config, class Product, int kM, int kN, int kMostSums = 1024, int kMostSlabs = kAllSlabs>
struct WaveStore {
  using Sum = typename Product::Compute;
  using Wave = WaveTile<Product, kM, kN>;
  using Finish = Epilogue<Config, Sum>;
  static constexpr int kVec = Config::kDVec;
  static constexpr int kSlabTiles =
      detail::divisor_up_to(Wave::kTilesN, detail::lower(64, kMostSums / Product::kRows) / Product::kCols);
  static constexpr int kSlabN = kSlabTiles * Product::kCols;
  static_assert(kSlabN % kVec == 0, "whole vectors");
  static constexpr int kSlabsN = Wave::kTilesN / kSlabTiles;
  static constexpr int kSlabs = Wave::kTilesM * kSlabsN;
  static constexpr int kPitch = kSlabN + 16 / static_cast<int>(sizeof(Sum));  // off the banks of the line above
  static constexpr int kSlabBytes = Product::kRows * kPitch * static_cast<int>(sizeof(Sum));
  static constexpr int kParts = Config::kWavesK * Config::kCluster;
  static constexpr int kAtOnce = kParts > 1 ? detail::divisor_up_to(kSlabs, kMostSlabs) : 1;
  static constexpr int kWaveBytes = kSlabBytes * kAtOnce;
  static constexpr int kAcross = detail::lower(kSlabN / kVec, arch::kWaveSize);  // lanes on one line
  static constexpr int kDown = arch::kWaveSize / kAcross * kParts;               // lines at once
  static constexpr int kColumnSteps = (kSlabN / kVec + kAcross - 1) / kAcross;
  static constexpr int kRowSteps = (Product::kRows + kDown - 1) / kDown;

  // `slab` is the first of those of the waves that share K here; `wave_k` is this wave's place among them, `block_k`
  // this block's in its cluster. The tile starts at `row` and `column`, the wave's part of it at `wave_row` and
  // `wave_column`.
  WMMA_DEVICE WaveStore(const GemmArguments& p, unsigned char* slab, uint32_t lane, uint32_t wave_k, uint32_t block_k,
                        uint32_t batch, uint32_t tile, uint32_t split, int64_t row, int64_t column, uint32_t wave_row,
                        uint32_t wave_column)
      : p_(p),
        finish_(p, batch),
        slab_(slab),
        mine_(reinterpret_cast<Sum*>(slab + wave_k * kWaveBytes)),
        lane_(lane),
        across_(lane % kAcross),
        down_(lane / kAcross + (block_k * Config::kWavesK + wave_k) * (arch::kWaveSize / kAcross)),
        tile_(tile),
        split_(split),
        row_(row),
        column_(column),
        wave_row_(wave_row),
        wave_column_(wave_column) {}

  // kPartial: the sums are a part of K's, to be finished by another kernel.
  template <bool kPartial>
  WMMA_DEVICE void run(const Wave& wave) const {
    if constexpr (kParts > 1) {
      add_up<kPartial>(wave);
      if constexpr (Config::kCluster > 1) meet();  // nobody leaves while others read its shared memory
    } else {
#pragma unroll
      for (int i = 0; i < kSlabs; ++i) {
        Extras extras;
        fetch<kPartial>(extras, i);
        write(wave, i, mine_);
        meet();
        store<kPartial>(extras, i, slab_);
        meet();
      }
    }
  }

 private:
  struct Extras {
    typename Finish::Columns columns[kColumnSteps];
    typename Finish::Elements elements[kColumnSteps][kRowSteps];
  };

  // The slabs from kFirst on.
  template <bool kPartial, int kFirst = 0>
  WMMA_DEVICE void add_up(const Wave& wave) const {
    if constexpr (kFirst > 0) meet();  // those before have been read
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) write(wave, kFirst + i, mine_ + i * (kSlabBytes / sizeof(Sum)));
    meet();
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      Extras extras;
      fetch<kPartial>(extras, kFirst + i);
      store<kPartial>(extras, kFirst + i, slab_ + i * kSlabBytes);
    }
    if constexpr (kFirst + kAtOnce < kSlabs) add_up<kPartial, kFirst + kAtOnce>(wave);
  }

  WMMA_DEVICE uint32_t tile_column(int slab, int c) const {
    return wave_column_ + slab % kSlabsN * kSlabN + (across_ + c * kAcross) * kVec;
  }
  WMMA_DEVICE uint32_t tile_row(int slab, int r) const {
    return wave_row_ + slab / kSlabsN * Product::kRows + down_ + r * kDown;
  }
  WMMA_DEVICE int64_t column_of(int slab, int c) const { return column_ + tile_column(slab, c); }
  WMMA_DEVICE int64_t row_of(int slab, int r) const { return row_ + tile_row(slab, r); }
  WMMA_DEVICE bool has_column(int slab, int c) const {
    const bool idle = (arch::kWaveSize % kAcross != 0 && lane_ >= arch::kWaveSize / kAcross * kAcross) ||
                      (kSlabN / kVec % kAcross != 0 && (across_ + c * kAcross) * kVec >= kSlabN);
    return !idle && column_of(slab, c) < p_.n;
  }
  WMMA_DEVICE bool has_row(int slab, int r) const {
    return (Product::kRows % kDown == 0 || down_ + r * kDown < Product::kRows) && row_of(slab, r) < p_.m;
  }

  template <bool kPartial>
  WMMA_DEVICE void fetch(Extras& extras, int slab) const {
    if constexpr (!kPartial) {
#pragma unroll
      for (int c = 0; c < kColumnSteps; ++c) {
        if (!has_column(slab, c)) continue;
        extras.columns[c] = finish_.columns(column_of(slab, c));
#pragma unroll
        for (int r = 0; r < kRowSteps; ++r) {
          if (has_row(slab, r)) finish_.fetch(extras.elements[c][r], row_of(slab, r), column_of(slab, c));
        }
      }
    }
  }

  WMMA_DEVICE void write(const Wave& wave, int slab, Sum* to) const {
#pragma unroll
    for (int j = 0; j < kSlabTiles; ++j) {
      SlabWriter<Product>::write(wave.sums[slab / kSlabsN][slab % kSlabsN * kSlabTiles + j], lane_,
                                 to + j * Product::kCols, kPitch, p_.m - row_ - wave_row_);
    }
  }

  template <bool kPartial>
  WMMA_DEVICE void store(const Extras& extras, int slab, const unsigned char* from) const {
#pragma unroll
    for (int c = 0; c < kColumnSteps; ++c) {
      if (!has_column(slab, c)) continue;
#pragma unroll
      for (int r = 0; r < kRowSteps; ++r) {
        if (!has_row(slab, r)) continue;
        const uint32_t element = (down_ + r * kDown) * kPitch + (across_ + c * kAcross) * kVec;
        alignas(16) Sum parts[kParts][kVec];  // all on their way before the first is added
#pragma unroll
        for (int part = 0; part < kParts; ++part) read(parts[part], from, element, part);
#pragma unroll
        for (int part = 1; part < kParts; ++part) {
#pragma unroll
          for (int e = 0; e < kVec; ++e) parts[0][e] += parts[part][e];
        }
        if constexpr (kPartial) {
          finish_.store_partial(parts[0], split_, tile_, tile_row(slab, r), tile_column(slab, c));
        } else {
          finish_.store(parts[0], extras.columns[c], extras.elements[c][r], row_of(slab, r), column_of(slab, c));
        }
      }
    }
  }

  // kVec sums of one of the parts.
  static WMMA_DEVICE void read(Sum* sums, const unsigned char* slab, uint32_t element, int part) {
    constexpr int kPiece = kVec * sizeof(Sum) >= 16 ? 16 / static_cast<int>(sizeof(Sum)) : 1;
    const Sum* from = reinterpret_cast<const Sum*>(slab + part % Config::kWavesK * kWaveBytes) + element;
#pragma unroll
    for (int e = 0; e < kVec; e += kPiece) {
      if constexpr (Config::kCluster > 1) {
        arch::load_shared_of<kPiece>(part / Config::kWavesK, from + e, sums + e);
      } else {
        arch::copy_value<kPiece>(sums + e, from + e);
      }
    }
  }

  // A slab's writers and readers are one wave, unless several shared K.
  static WMMA_DEVICE void meet() {
    if constexpr (Config::kCluster > 1) {
      arch::cluster_barrier();
    } else if constexpr (Config::kWavesK > 1) {
      arch::block_barrier();
    } else {
      arch::wave_barrier();
    }
  }

  const GemmArguments& p_;
  Finish finish_;
  unsigned char* slab_;
  Sum* mine_;
  uint32_t lane_;
  uint32_t across_;
  uint32_t down_;
  uint32_t tile_;
  uint32_t split_;
  int64_t row_;
  int64_t column_;
  uint32_t wave_row_;
  uint32_t wave_column_;
};

}  // namespace wmma
