// The tiles of the target's matrix instructions.
#pragma once

#include <wmma/target.hpp>

#if defined(WMMA_CDNA)
#include <wmma/arch/cdna.hpp>
#elif defined(WMMA_RDNA3)
#include <wmma/arch/rdna3.hpp>
#elif defined(WMMA_RDNA4)
#include <wmma/arch/rdna4.hpp>
#else
#include <wmma/arch/sm80.hpp>
#endif

#if defined(WMMA_RDNA3) || defined(WMMA_RDNA4)
namespace wmma::arch {

// Tiles of wave32. Other: the type of B where it is not A's.
template <class T, int kM, int kN, int kK, class Other = T>
struct Tile {
  static_assert(kIsFp8<T>, "wmma: this target has no product of this element type");
  using Type = HalfConvertedTile<T, HalfTile, Other>;  // the FNUZ forms
};
template <int kM, int kN, int kK>
struct Tile<half_t, kM, kN, kK> {
  using Type = HalfTile;
};
template <int kM, int kN, int kK>
struct Tile<bf16_t, kM, kN, kK> {
  using Type = Bf16Tile;
};
template <int kM, int kN, int kK, class Other>
struct Tile<int8_t, kM, kN, kK, Other> {
  using Type = Int8Tile<int8_t, Other>;
};
template <int kM, int kN, int kK, class Other>
struct Tile<uint8_t, kM, kN, kK, Other> {
  using Type = Int8Tile<uint8_t, Other>;
};
template <int kM, int kN, int kK, class Other>
struct Tile<int4_t, kM, kN, kK, Other> {
  using Type = Int4Tile<int4_t, Other, kK>;
};
template <int kM, int kN, int kK, class Other>
struct Tile<uint4_t, kM, kN, kK, Other> {
  using Type = Int4Tile<uint4_t, Other, kK>;
};
template <int kM, int kN, int kK, class Other>
struct Tile<fp8_e4m3_t, kM, kN, kK, Other> {
  using Type = Fp8Tile<fp8_e4m3_t, Other>;
};
template <int kM, int kN, int kK, class Other>
struct Tile<fp8_e5m2_t, kM, kN, kK, Other> {
  using Type = Fp8Tile<fp8_e5m2_t, Other>;
};
template <int kM, int kN, int kK>
struct Tile<float, kM, kN, kK> {
  using Type = FmaTile<float, float, HalfTile::C>;
};
template <int kM, int kN, int kK>
struct Tile<double, kM, kN, kK> {
  using Type = FmaTile<double, double, HalfTile::C>;
};

template <class T, int kM, int kN>
struct AccumulatorTile {
  using Type = HalfTile::C;
};

}  // namespace wmma::arch
#endif
