// Results to memory by way of sm_90's copy engine: a wave lays its sums, finished, into shared memory, and goes on
// while the engine writes them, clipped at the matrix' edges. For results of 16 bits that nothing is read for but a
// bias.
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/tile/epilogue.hpp>
#include <wmma/tile/panel_loader.hpp>

namespace wmma {

// Two neighbours of a row, as a lane of a warpgroup has them, rounded: a word.
template <class T>
WMMA_DEVICE uint32_t rounded_pair(float first, float second) {
  return kSame<T, half_t> ? arch::half_pair(first, second) : arch::bf16_pair(first, second);
}

// A wave's 16 rows, kN columns at a time.
template <class Config, int kN>
class PanelStore {
  using D = typename Config::D;
  using E = typename Config::Number;
  static constexpr int kColumns = 64;  // of a panel: lines of 128 bytes
  static constexpr int kPanelBytes = 16 * 128;
  static_assert(kN % kColumns == 0 && sizeof(D) == 2 && kIsNone<typename Config::C>, "whole panels, from sums alone");

 public:
  static constexpr int kWaveBytes = 2 * kPanelBytes;  // one is filled while the engine reads the other

  WMMA_DEVICE PanelStore(const GemmArguments& p, const TileMap& map, uint32_t shared, uint32_t lane)
      : p_(p),
        map_(&map),
        shared_(shared),
        line_(shared + (lane / 8 % 2 * 8 + lane % 8) * 128),
        lane_(lane),
        second_(0) {}

  WMMA_DEVICE void run(const float* sums, uint32_t batch, int64_t row, int64_t column) {
#pragma unroll
    for (int panel = 0; panel < kN / kColumns; ++panel) {
      int32_t at[2 + Config::kBatchDims];
      at[0] = static_cast<int32_t>(column) + panel * kColumns;
      at[1] = static_cast<int32_t>(row);
      batch_coordinates<Config::kBatchDims>(p_, p_.d, batch, at + 2);
      if (lane_ == 0) arch::await_stores_read<1>();  // those from this panel's place
      arch::wave_barrier();
#pragma unroll
      for (int i = 0; i < kColumns / 16; ++i) {
        uint32_t words[4];
        const float* from = sums + panel * (kColumns / 2) + i * 8;
#pragma unroll
        for (int j = 0; j < 2; ++j) {  // eight columns each
          const int64_t first = at[0] + i * 16 + j * 8 + lane_ % 4 * 2;
          E bias[2];
          load_bias(bias, batch, first);
#pragma unroll
          for (int half = 0; half < 2; ++half) {  // eight rows further down
            const float* two = from + j * 4 + half * 2;
            words[j * 2 + half] = rounded_pair<D>(static_cast<E>(p_.alpha) * two[0] + bias[0],
                                                  static_cast<E>(p_.alpha) * two[1] + bias[1]);
          }
        }
        const uint32_t chunk = i * 2 + lane_ / 16 ^ lane_ % 8;
        arch::store_matrices(line_ + second_ + chunk * 16, words);
      }
      arch::fence_matrix_unit();
      arch::wave_barrier();
      if (lane_ == 0) {
        arch::store_box<2 + Config::kBatchDims>(shared_ + second_, map_, at);
        arch::commit_stores();
      }
      second_ ^= kPanelBytes;
    }
  }

  // Nobody leaves while the engine reads.
  WMMA_DEVICE void close() const {
    if (lane_ == 0) arch::await_stores_read<0>();
  }

 private:
  WMMA_DEVICE void load_bias(E* bias, uint32_t batch, int64_t column) const {
    bias[0] = bias[1] = E(0);
    if constexpr (!kIsNone<typename Config::Bias>) {
      using Bias = typename Config::Bias;
      const Bias* from = static_cast<const Bias*>(p_.bias.data) + batch_offset<Config::kBatchDims>(p_, p_.bias, batch) +
                         column * p_.bias.column_stride;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if (column + i < p_.n) bias[i] = convert<E>(from[i * p_.bias.column_stride]);
      }
    }
  }

  const GemmArguments& p_;
  const TileMap* map_;
  uint32_t shared_;
  uint32_t line_;  // of the eight by eight that this lane gives the address of
  uint32_t lane_;
  uint32_t second_;  // 0, or where the second panel starts
};

// How a wave's sums go to memory, by the copy engine or by the wave itself.
template <bool kMapped, class Last, class Product, int kN>
struct PanelOrSlabStore {
  using Slabs = WaveStore<Last, Product, 16, kN, 512>;
  static constexpr int kWaveBytes = Slabs::kWaveBytes;

  const GemmArguments& p;
  unsigned char* shared;

  WMMA_DEVICE PanelOrSlabStore(const GemmArguments& arguments, const TileMap&, unsigned char* place)
      : p(arguments), shared(place) {}
  WMMA_DEVICE void run(const WaveTile<Product, 16, kN>& sums, uint32_t batch, int64_t row, int64_t column,
                       uint32_t wave_row, uint32_t wave_column) {
    const Slabs slabs(p, shared, lane_id(), 0, 0, batch, 0, 0, row, column, wave_row, wave_column);
    slabs.template run<false>(sums);
  }
  WMMA_DEVICE void close() const {}
};
template <class Last, class Product, int kN>
struct PanelOrSlabStore<true, Last, Product, kN> {
  using Panels = PanelStore<Last, kN>;
  static constexpr int kWaveBytes = Panels::kWaveBytes;

  Panels panels;

  WMMA_DEVICE PanelOrSlabStore(const GemmArguments& p, const TileMap& map, unsigned char* place)
      : panels(p, map, arch::shared_address(place), lane_id()) {}
  WMMA_DEVICE void run(const WaveTile<Product, 16, kN>& sums, uint32_t batch, int64_t row, int64_t column,
                       uint32_t wave_row, uint32_t wave_column) {
    panels.run(&sums.sums[0][0][0], batch, row + wave_row, column + wave_column);
  }
  WMMA_DEVICE void close() const { panels.close(); }
};

}  // namespace wmma
