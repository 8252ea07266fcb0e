// The fragment itself: the matrix that it holds, cut into the tiles of the target's instruction, and who holds what.
#pragma once

#include <wmma/arch/tile.hpp>
#include <wmma/grid.hpp>
#include <wmma/int4.hpp>

namespace wmma {

// The smallest block depth of a type, the same on every target.
template <class T, int kM, int kN>
inline constexpr int kMinimumK = kIsInt4<T> ? 16
                                            : (kM % 32 == 0 && kN % 32 == 0 && kBitsOf<T> < 64 ? 8 : 16) /
                                                  (kSame<T, bf16_t> ? 2 : (kBitsOf<T> >= 32 ? 4 : 1));

namespace detail {

// A message is a literal: one for each value of kMinimumK.
template <int kMinimum, int kK>
WMMA_CONSTEXPR bool takes_depth() {
  constexpr bool kFits = kK > 0 && kK % kMinimum == 0;
  static_assert(kFits || kMinimum != 16, "wmma: a fragment of this type, M and N takes a K of 16, 32, 48, ...");
  static_assert(kFits || kMinimum != 8, "wmma: a fragment of this type, M and N takes a K of 8, 16, 24, 32, ...");
  static_assert(kFits || kMinimum != 4, "wmma: a fragment of this type, M and N takes a K of 4, 8, 12, 16, ...");
  static_assert(kFits || kMinimum != 2, "wmma: a fragment of this type, M and N takes a K of 2, 4, 6, 8, ...");
  return true;
}

template <int kM, int kN>
WMMA_CONSTEXPR bool takes_block() {
  constexpr bool kSixteens = kM > 0 && kN > 0 && kM % 16 == 0 && kN % 16 == 0;
  constexpr bool kEight = (kM == 8 && kN == 32) || (kM == 32 && kN == 8);
  static_assert(kSixteens || kEight, "wmma: M and N are multiples of 16; on NVIDIA 8x32 and 32x8 are there as well");
  static_assert(kSixteens || !kEight || arch::takes_eight(), "wmma: on AMD M and N are multiples of 16");
  return kSixteens || (kEight && arch::takes_eight());
}

template <class T>
WMMA_CONSTEXPR bool takes_accumulator() {
  constexpr bool kTakes = kSame<T, float> || kSame<T, double> || kIsNarrowFloat<T> || (kIsInteger<T> && !kIsInt4<T>);
  static_assert(kTakes,
                "wmma: accumulators are of float, double, half_t, bf16_t, an fp8 type, int32_t, uint32_t, int8_t or "
                "uint8_t");
  return kTakes;
}

// A kRows×kCols matrix of tiles. row() and col() are within a tile; the owner's are of the whole.
template <int kMatrixRows, int kMatrixCols, class Layout>
struct TiledShape {
  using Lanes = Layout;
  static constexpr int kRows = kMatrixRows;
  static constexpr int kCols = kMatrixCols;
  static constexpr int kTileRows = Layout::kRows;
  static constexpr int kTileCols = Layout::kCols;
  static constexpr int kTilesDown = (kRows + kTileRows - 1) / kTileRows;
  static constexpr int kTilesAcross = (kCols + kTileCols - 1) / kTileCols;
  static constexpr int kElements = Layout::kElements;
  static constexpr int kReplicas = Layout::kReplicas;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Layout::row(lane, e); }
  static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Layout::col(lane, e); }

  // Where element i of the whole lies.
  static WMMA_CONSTEXPR int block_row(uint32_t lane, int i) {
    return i / kElements / kTilesAcross * kTileRows + Layout::row(lane, i % kElements);
  }
  static WMMA_CONSTEXPR int block_col(uint32_t lane, int i) {
    return i / kElements % kTilesAcross * kTileCols + Layout::col(lane, i % kElements);
  }
  static WMMA_CONSTEXPR int block_owner_lane(int row, int col) {
    return Layout::owner_lane(row % kTileRows, col % kTileCols);
  }
  static WMMA_CONSTEXPR int block_owner_element(int row, int col) {
    return (row / kTileRows * kTilesAcross + col / kTileCols) * kElements +
           Layout::owner_element(row % kTileRows, col % kTileCols);
  }
};

template <class Kind, int kM, int kN, int kK, class T>
struct Shape {
  static_assert(sizeof(T) == 0, "wmma: a fragment is a matrix_a, matrix_b, accumulator or accumulator_swapped");
};

template <int kM, int kN, int kK, class T>
struct Shape<matrix_a, kM, kN, kK, T> : TiledShape<kM, kK, OperandLayout<typename arch::Tile<T, kM, kN, kK>::Type::A>> {
  static_assert(takes_depth<kMinimumK<T, kM, kN>, kK>());
};

template <int kM, int kN, int kK, class T>
struct Shape<matrix_b, kM, kN, kK, T>
    : TiledShape<kK, kN, TransposedLayout<OperandLayout<typename arch::Tile<T, kM, kN, kK>::Type::B>>> {
  static_assert(takes_depth<kMinimumK<T, kM, kN>, kK>());
};

template <int kM, int kN, int kK, class T>
struct Shape<accumulator, kM, kN, kK, T> : TiledShape<kM, kN, typename arch::AccumulatorTile<T, kM, kN>::Type> {
  static_assert(takes_accumulator<T>());
};

template <bool kSwaps, class Layout>
struct SwappedLayout {
  using Type = Layout;
};
template <class Layout>
struct SwappedLayout<true, Layout> {
  using Type = TransposedLayout<Layout>;
};

template <int kM, int kN, int kK, class T>
struct Shape<accumulator_swapped, kM, kN, kK, T>
    : TiledShape<kM, kN,
                 typename SwappedLayout<arch::kSwapsOperands, typename arch::AccumulatorTile<T, kM, kN>::Type>::Type> {
  static_assert(takes_accumulator<T>());
};

// Where a lane's elements are kept: an array, or pairs of 4-bit integers that look like one.
template <class T, int kCount>
struct Elements {
  using Type = T[kCount];
};
template <int kCount>
struct Elements<int4_t, kCount> {
  using Type = Int4Array<int4_t, kCount>;
};
template <int kCount>
struct Elements<uint4_t, kCount> {
  using Type = Int4Array<uint4_t, kCount>;
};

}  // namespace detail

// A matrix of an M×N×K product in the registers of a wave.
template <class Kind, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(detail::takes_block<M, N>());
  static_assert(kSame<Layout, void> || kSame<Layout, row_major> || kSame<Layout, col_major>,
                "wmma: a fragment's layout is row_major, col_major or none");
  using Shape = detail::Shape<Kind, M, N, K, Plain<T>>;
  using element_type = T;
  static constexpr int num_elements = Shape::kTilesDown * Shape::kTilesAcross * Shape::kElements;

  typename detail::Elements<T, num_elements>::Type x;

  WMMA_DEVICE decltype(auto) operator[](int i) { return (x[i]); }
  WMMA_DEVICE decltype(auto) operator[](int i) const { return (x[i]); }
  static WMMA_DEVICE constexpr int size() { return num_elements; }

  // Where this lane's element i lies in the block.
  static WMMA_DEVICE int row(int i) {
    return i / Shape::kElements / Shape::kTilesAcross * Shape::kTileRows +
           Shape::row(arch::lane_id(), i % Shape::kElements);
  }
  static WMMA_DEVICE int col(int i) {
    return i / Shape::kElements % Shape::kTilesAcross * Shape::kTileCols +
           Shape::col(arch::lane_id(), i % Shape::kElements);
  }
};

namespace detail {

// What a fragment is of.
template <class T>
struct FragmentOf {
  static constexpr bool kIs = false;
};
template <class FragmentKind, int M, int N, int K, class T, class FragmentLayout>
struct FragmentOf<fragment<FragmentKind, M, N, K, T, FragmentLayout>> {
  static constexpr bool kIs = true;
  static constexpr int kM = M;
  static constexpr int kN = N;
  static constexpr int kK = K;
  static constexpr bool kAccumulates = kSame<FragmentKind, accumulator> || kSame<FragmentKind, accumulator_swapped>;
  using Kind = FragmentKind;
  using Element = T;
  using Layout = FragmentLayout;
};
template <class T>
struct FragmentOf<const T> : FragmentOf<T> {};

// Whether two fragments' elements lie in the same places of the same lanes.
template <class F, class G>
inline constexpr bool kLieAlike = kSame<typename F::Shape::Lanes, typename G::Shape::Lanes> &&
                                  F::Shape::kRows == G::Shape::kRows && F::Shape::kCols == G::Shape::kCols;

}  // namespace detail

// Whether T is a fragment.
template <class T>
inline constexpr bool kIsFragment = detail::FragmentOf<T>::kIs;

}  // namespace wmma
