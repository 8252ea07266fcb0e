// What follows a gated product: D = cast(act(S)·U) of both sums of an element, S = A·B + bias and U = A·gate +
// gate_bias. A lane has both, so it multiplies them before they go to memory as others do; where they are kept, they go
// first.
#pragma once

#include <wmma/tile/epilogue.hpp>

namespace wmma {

// What is finished but for its rounding, on its way to D, or to where either factor is kept.
template <class Config>
struct Finished : Config {
  using Bias = None;
  static constexpr int kActivation = kNone;
  static constexpr bool kAux = false;
};
template <class Config>
struct KeptFirst : Finished<Config> {};
template <class Config>
struct KeptGate : Finished<Config> {};
template <class Config>
struct ResultOf<KeptFirst<Config>> {
  static WMMA_DEVICE const GemmOperand& of(const GemmArguments& p) { return p.aux; }
};
template <class Config>
struct ResultOf<KeptGate<Config>> {
  static WMMA_DEVICE const GemmOperand& of(const GemmArguments& p) { return p.gate_aux; }
};

// Of a wave's sums, by way of shared memory; as WaveStore, which is given the columns of both.
template <class Config, class Product, int kM, int kN, int kMostSums>
class GatedStore {
  using Sum = typename Product::Compute;
  using Bias = typename Config::Bias;
  using GateBias = typename GateOf<Config>::Bias;
  using Half = WaveTile<Product, kM, kN / 2>;
  template <class Of>
  using Store = WaveStore<Of, Product, kM, kN / 2, kMostSums>;
  static_assert(kSame<Sum, typename Config::Number>, "sums are what the epilogue computes in");
  static_assert(Config::kWavesK == 1 && Config::kCluster == 1, "a wave has whole sums");

 public:
  static constexpr int kWaveBytes = Store<Finished<Config>>::kWaveBytes;

  WMMA_DEVICE GatedStore(const GemmArguments& p, unsigned char* slab, uint32_t lane, uint32_t, uint32_t, uint32_t batch,
                         uint32_t tile, uint32_t split, int64_t row, int64_t column, uint32_t wave_row,
                         uint32_t wave_column)
      : p_(p),
        slab_(slab),
        lane_(lane),
        batch_(batch),
        tile_(tile),
        split_(split),
        row_(row),
        column_(column),
        wave_row_(wave_row),
        wave_column_(wave_column / 2) {}

  template <bool kPartial>
  WMMA_DEVICE void run(WaveTile<Product, kM, kN>& sums) const {
    static_assert(!kPartial, "a wave has whole sums");
    Half s, u;
#pragma unroll
    for (int j = 0; j < Half::kTilesN; ++j) {
      Sum of_s[Half::C::kElements] = {}, of_u[Half::C::kElements] = {};
      load<Bias>(of_s, p_.bias, j);
      load<GateBias>(of_u, p_.gate_bias, j);
#pragma unroll
      for (int i = 0; i < Half::kTilesM; ++i) {
#pragma unroll
        for (int e = 0; e < Half::C::kElements; ++e) {
          s.sums[i][j][e] = sums.sums[i][2 * j][e];
          u.sums[i][j][e] = sums.sums[i][2 * j + 1][e];
          if constexpr (!kIsNone<Bias>) s.sums[i][j][e] += of_s[e];
          if constexpr (!kIsNone<GateBias>) u.sums[i][j][e] += of_u[e];
        }
      }
    }
    if constexpr (kKeepsAux<Config>) {
      store<KeptFirst<Config>>(s);
      store<KeptGate<Config>>(u);
    }
#pragma unroll
    for (int i = 0; i < Half::kTilesM; ++i) {
#pragma unroll
      for (int j = 0; j < Half::kTilesN; ++j) {
#pragma unroll
        for (int e = 0; e < Half::C::kElements; ++e) {
          s.sums[i][j][e] = activate<Config::kActivation, Sum>(s.sums[i][j][e]) * u.sums[i][j][e];
        }
      }
    }
    store<Finished<Config>>(s);
  }

 private:
  template <class Of>
  WMMA_DEVICE void store(const Half& half) const {
    const Store<Of> to(p_, slab_, lane_, 0, 0, batch_, tile_, split_, row_, column_, wave_row_, wave_column_);
    to.template run<false>(half);
  }

  // A bias as the sums of the j-th products across have it.
  template <class T>
  WMMA_DEVICE void load(Sum* of, const GemmOperand& x, int j) const {
    if constexpr (!kIsNone<T>) {
      const T* from = static_cast<const T*>(x.data) + batch_offset<Config::kBatchDims>(p_, x, batch_);
#pragma unroll
      for (int e = 0; e < Half::C::kElements; ++e) {
        const int64_t at = column_ + wave_column_ + j * Product::kCols + Half::C::col(lane_, e);
        if (at < p_.n) of[e] = convert<Sum>(from[at * x.column_stride]);
      }
    }
  }

  const GemmArguments& p_;
  unsigned char* slab_;
  uint32_t lane_;
  uint32_t batch_;
  uint32_t tile_;
  uint32_t split_;
  int64_t row_;
  int64_t column_;
  uint32_t wave_row_;
  uint32_t wave_column_;
};

}  // namespace wmma
