// Fragments: an M×N×K product held in the registers of one wave, as users of rocWMMA and nvcuda::wmma know them.
//
//   fragment<matrix_a, M, N, K, T, row_major>     M×K, read from memory row by row or column by column
//   fragment<matrix_b, M, N, K, T, col_major>     K×N
//   fragment<accumulator, M, N, K, T>             M×N; of float, int32_t or double, or of a narrower type, which is
//                                                 converted to the compute type for the product and rounded back
//   fragment<accumulator_swapped, M, N, K, T>     M×N, computed as (Bᵀ·Aᵀ)ᵀ: to_matrix_a() of it costs no exchange
//                                                 between lanes on CDNA, RDNA4 and NVIDIA
//
// M and N: multiples of 16 (CDNA: blocks whose M and N are multiples of 32 use 32x32 instructions). K: a multiple of
// kMinimumK<T, M, N>; what lies between K and the depth of the instruction counts as zero. x[i] and num_elements give
// each lane its elements in an order that is the target's own. On NVIDIA wide loads need data and ld aligned to the
// access; others fall back to narrow ones. On AMD alignment to the element is enough.
#pragma once

#include <wmma/types.hpp>

#if defined(WMMA_NVIDIA)
#include <wmma/arch/sm80.hpp>
#elif defined(WMMA_CDNA)
#include <wmma/arch/cdna.hpp>
#elif defined(WMMA_RDNA3)
#include <wmma/arch/rdna3.hpp>
#else
#include <wmma/arch/rdna4.hpp>
#endif

#include <wmma/grid.hpp>

namespace wmma {

// The smallest block depth of a type, the same on every target.
template <class T, int kM, int kN>
inline constexpr int kMinimumK =
    (kM % 32 == 0 && kN % 32 == 0 && sizeof(T) < 8 ? 8 : 16) / (kSame<T, bf16_t> ? 2 : (sizeof(T) >= 4 ? 4 : 1));

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

// The matrix that a fragment holds, cut into the tiles of the target's instruction. row() and col() are within a tile.
template <class Kind, int kM, int kN, int kK, class T>
struct Shape {};

template <int kM, int kN, int kK, class T>
struct Shape<matrix_a, kM, kN, kK, T> {
  static_assert(takes_depth<kMinimumK<T, kM, kN>, kK>());
  using Operand = typename arch::Tile<T, kM, kN, kK>::Type::A;
  static constexpr int kRows = kM;
  static constexpr int kCols = kK;
  static constexpr int kTileRows = Operand::kOuterSize;
  static constexpr int kTileCols = Operand::kDepth;
  static constexpr int kElements = Operand::kElements;
  static constexpr int kReplicas = Operand::kReplicas;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Operand::outer(lane, e); }
  static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Operand::k(lane, e); }
};

template <int kM, int kN, int kK, class T>
struct Shape<matrix_b, kM, kN, kK, T> {
  static_assert(takes_depth<kMinimumK<T, kM, kN>, kK>());
  using Operand = typename arch::Tile<T, kM, kN, kK>::Type::B;
  static constexpr int kRows = kK;
  static constexpr int kCols = kN;
  static constexpr int kTileRows = Operand::kDepth;
  static constexpr int kTileCols = Operand::kOuterSize;
  static constexpr int kElements = Operand::kElements;
  static constexpr int kReplicas = Operand::kReplicas;
  static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Operand::k(lane, e); }
  static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Operand::outer(lane, e); }
};

template <int kM, int kN, class Layout>
struct AccumulatorShape : Layout {
  static constexpr int kTileRows = Layout::kRows;
  static constexpr int kTileCols = Layout::kCols;
  static constexpr int kRows = kM;
  static constexpr int kCols = kN;
  static constexpr int kReplicas = 1;

  // Who holds an element of the whole block.
  static WMMA_CONSTEXPR int block_owner_lane(int row, int col) {
    return Layout::owner_lane(row % kTileRows, col % kTileCols);
  }
  static WMMA_CONSTEXPR int block_owner_element(int row, int col) {
    return (row / kTileRows * (kCols / kTileCols) + col / kTileCols) * Layout::kElements +
           Layout::owner_element(row % kTileRows, col % kTileCols);
  }
};

template <int kM, int kN, int kK, class T>
struct Shape<accumulator, kM, kN, kK, T> : AccumulatorShape<kM, kN, typename arch::AccumulatorTile<T, kM, kN>::Type> {};

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
    : AccumulatorShape<
          kM, kN, typename SwappedLayout<arch::kSwapsOperands, typename arch::AccumulatorTile<T, kM, kN>::Type>::Type> {
};

// How many elements of a lane, up to kLimit, are neighbours in memory of this order and start at a multiple of that.
template <class Shape, bool kRowMajor, int kLimit>
WMMA_CONSTEXPR int run_length() {
  int run = 1;
  for (int length = 2; length <= kLimit && length <= Shape::kElements; length *= 2) {
    if (Shape::kElements % length || (kRowMajor ? Shape::kCols : Shape::kRows) % length) break;
    for (int e = 0; e < Shape::kElements; ++e) {
      const int first = e / length * length;
      const int down = Shape::row(0, e) - Shape::row(0, first);
      const int right = Shape::col(0, e) - Shape::col(0, first);
      if (down != (kRowMajor ? 0 : e - first) || right != (kRowMajor ? e - first : 0)) return run;
    }
    run = length;
  }
  return run;
}

template <class Layout>
inline constexpr bool kIsRowMajor = kSame<Layout, row_major>;

}  // namespace detail

template <class Kind, int M, int N, int K, class T, class Layout = void>
struct fragment {
  static_assert(M % 16 == 0 && N % 16 == 0, "wmma: M and N are multiples of 16");
  using Shape = detail::Shape<Kind, M, N, K, T>;
  using element_type = T;
  static constexpr int kTilesDown = (Shape::kRows + Shape::kTileRows - 1) / Shape::kTileRows;
  static constexpr int kTilesAcross = (Shape::kCols + Shape::kTileCols - 1) / Shape::kTileCols;
  static constexpr int num_elements = kTilesDown * kTilesAcross * Shape::kElements;

  T x[num_elements];

  WMMA_DEVICE T& operator[](int i) { return x[i]; }
  WMMA_DEVICE const T& operator[](int i) const { return x[i]; }
  static WMMA_DEVICE constexpr int size() { return num_elements; }

  // Where this lane's element i lies in the block.
  static WMMA_DEVICE int row(int i) {
    return i / Shape::kElements / kTilesAcross * Shape::kTileRows + Shape::row(arch::lane_id(), i % Shape::kElements);
  }
  static WMMA_DEVICE int col(int i) {
    return i / Shape::kElements % kTilesAcross * Shape::kTileCols + Shape::col(arch::lane_id(), i % Shape::kElements);
  }
};

namespace detail {

// A share of a cooperative load or store: pieces of consecutive runs, dealt to the waves in turn.
struct WholeBlock {
  WMMA_DEVICE bool holds(int, int) const { return true; }
};
struct WaveShare {
  uint32_t wave_index;
  uint32_t wave_count;
  uint32_t split_count;
  WMMA_DEVICE bool holds(int run, int runs) const {
    // Runs [p·runs / split, (p + 1)·runs / split) make piece p.
    const uint32_t piece = ((run + 1) * split_count - 1) / runs;
    return piece % wave_count == wave_index;
  }
};

// Both directions: kLoad fills x from memory, otherwise memory is written. kRun elements move at a time; pieces are
// counted in runs of kPieceRun, which does not depend on the memory's order.
template <bool kLoad, class Fragment, bool kRowMajor, int kRun, class T, class Memory, class Share>
WMMA_DEVICE void move_runs(T* x, Memory* data, uint32_t ld, const Share& share) {
  using Shape = typename Fragment::Shape;
  constexpr int kPieceRun = run_length<Shape, true, 16 / sizeof(T)>() > run_length<Shape, false, 16 / sizeof(T)>()
                                ? run_length<Shape, true, 16 / sizeof(T)>()
                                : run_length<Shape, false, 16 / sizeof(T)>();
  constexpr int kPieceRuns = Fragment::num_elements / kPieceRun;
  const uint32_t lane = arch::lane_id();
  const uint32_t lane_row = Shape::row(lane, 0);
  const uint32_t lane_col = Shape::col(lane, 0);
  if (!kLoad && Shape::kReplicas > 1 && lane >= uint32_t{arch::kWaveSize / Shape::kReplicas}) return;
  Memory* const lane_data = data + (kRowMajor ? static_cast<uint64_t>(lane_row) * ld + lane_col
                                              : static_cast<uint64_t>(lane_col) * ld + lane_row);
#pragma unroll
  for (int i = 0; i < Fragment::num_elements; i += kRun) {
    const int tile = i / Shape::kElements;
    const int row = tile / Fragment::kTilesAcross * Shape::kTileRows + Shape::row(0, i % Shape::kElements);
    const int col = tile % Fragment::kTilesAcross * Shape::kTileCols + Shape::col(0, i % Shape::kElements);
    if (!share.holds(i / kPieceRun, kPieceRuns)) continue;
    bool inside = true;
    if constexpr (Shape::kRows % Shape::kTileRows != 0) inside = inside && row + lane_row < uint32_t{Shape::kRows};
    if constexpr (Shape::kCols % Shape::kTileCols != 0) inside = inside && col + lane_col < uint32_t{Shape::kCols};
    Memory* const at =
        lane_data + (kRowMajor ? static_cast<uint64_t>(row) * ld + col : static_cast<uint64_t>(col) * ld + row);
    if constexpr (kLoad) {
      if (inside) {
        arch::copy<kRun>(x + i, at);
      } else {
#pragma unroll
        for (int e = 0; e < kRun; ++e) x[i + e] = T(0);
      }
    } else {
      if (inside) arch::copy<kRun>(at, x + i);
    }
  }
}

template <bool kLoad, class Fragment, bool kRowMajor, class T, class Memory, class Share>
WMMA_DEVICE void move(T* x, Memory* data, uint32_t ld, const Share& share) {
  constexpr int kRun = run_length<typename Fragment::Shape, kRowMajor, 16 / sizeof(T)>();
  if (arch::is_aligned<kRun * sizeof(T)>(data, ld)) {
    move_runs<kLoad, Fragment, kRowMajor, kRun>(x, data, ld, share);
  } else {
    move_runs<kLoad, Fragment, kRowMajor, 1>(x, data, ld, share);
  }
}

// x[e] for e below the number of elements that this lane's share of a product may use: beyond K everything is zero.
template <class Fragment>
WMMA_DEVICE void zero_beyond_k(typename Fragment::element_type* x) {
  using Shape = typename Fragment::Shape;
#pragma unroll
  for (int i = 0; i < Fragment::num_elements; ++i) {
    if (Fragment::row(i) >= Shape::kRows || Fragment::col(i) >= Shape::kCols) {
      x[i] = typename Fragment::element_type(0);
    }
  }
}

}  // namespace detail

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void fill_fragment(fragment<Kind, M, N, K, T, Layout>& frag,
                               typename fragment<Kind, M, N, K, T, Layout>::element_type value) {
#pragma unroll
  for (int i = 0; i < frag.num_elements; ++i) frag.x[i] = value;
}

// ld: elements between the starts of rows (row_major) or of columns (col_major).
template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void load_matrix_sync(fragment<Kind, M, N, K, T, Layout>& frag, const T* data, uint32_t ld) {
  static_assert(!kSame<Layout, void>, "wmma: give the fragment a layout, or the call one");
  using Fragment = fragment<Kind, M, N, K, T, Layout>;
  constexpr bool kRowMajor = detail::kIsRowMajor<Layout>;
  if (arch::load_shared_tiles<Kind, Fragment, kRowMajor>(frag.x, data, ld)) return;
  detail::move<true, Fragment, kRowMajor>(frag.x, data, ld, detail::WholeBlock{});
}

template <class Kind, int M, int N, int K, class T>
WMMA_DEVICE void load_matrix_sync(fragment<Kind, M, N, K, T>& frag, const T* data, uint32_t ld, layout_t layout) {
  using Fragment = fragment<Kind, M, N, K, T>;
  if (layout == mem_row_major) {
    detail::move<true, Fragment, true>(frag.x, data, ld, detail::WholeBlock{});
  } else {
    detail::move<true, Fragment, false>(frag.x, data, ld, detail::WholeBlock{});
  }
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void store_matrix_sync(T* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld) {
  static_assert(!kSame<Layout, void>, "wmma: give the fragment a layout, or the call one");
  using Fragment = fragment<Kind, M, N, K, T, Layout>;
  detail::move<false, Fragment, detail::kIsRowMajor<Layout>>(frag.x, data, ld, detail::WholeBlock{});
}

template <class Kind, int M, int N, int K, class T>
WMMA_DEVICE void store_matrix_sync(T* data, const fragment<Kind, M, N, K, T>& frag, uint32_t ld, layout_t layout) {
  using Fragment = fragment<Kind, M, N, K, T>;
  if (layout == mem_row_major) {
    detail::move<false, Fragment, true>(frag.x, data, ld, detail::WholeBlock{});
  } else {
    detail::move<false, Fragment, false>(frag.x, data, ld, detail::WholeBlock{});
  }
}

// Each wave moves the pieces p of split_count with p % wave_count == wave_index; a store with the same three numbers
// writes what a load brought. The other elements of the fragment are left as they are.
template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void load_matrix_coop_sync(fragment<Kind, M, N, K, T, Layout>& frag, const T* data, uint32_t ld,
                                       uint32_t wave_index, uint32_t wave_count, uint32_t split_count) {
  using Fragment = fragment<Kind, M, N, K, T, Layout>;
  detail::move<true, Fragment, detail::kIsRowMajor<Layout>>(frag.x, data, ld,
                                                            detail::WaveShare{wave_index, wave_count, split_count});
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void load_matrix_coop_sync(fragment<Kind, M, N, K, T, Layout>& frag, const T* data, uint32_t ld,
                                       uint32_t wave_index, uint32_t wave_count) {
  load_matrix_coop_sync(frag, data, ld, wave_index, wave_count, wave_count);
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void store_matrix_coop_sync(T* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld,
                                        uint32_t wave_index, uint32_t wave_count, uint32_t split_count) {
  using Fragment = fragment<Kind, M, N, K, T, Layout>;
  detail::move<false, Fragment, detail::kIsRowMajor<Layout>>(frag.x, data, ld,
                                                             detail::WaveShare{wave_index, wave_count, split_count});
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void store_matrix_coop_sync(T* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld,
                                        uint32_t wave_index, uint32_t wave_count) {
  store_matrix_coop_sync(data, frag, ld, wave_index, wave_count, wave_count);
}

// Blocks of blockDim.x / wave size by blockDim.y waves: A is shared by the waves of one x, B by the waves of one y.
template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void load_matrix_coop_sync(fragment<Kind, M, N, K, T, Layout>& frag, const T* data, uint32_t ld) {
  constexpr bool kIsB = kSame<Kind, matrix_b>;
  load_matrix_coop_sync(frag, data, ld, arch::uniform(kIsB ? threadIdx.x / arch::kWaveSize : threadIdx.y),
                        kIsB ? blockDim.x / arch::kWaveSize : blockDim.y);
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE void store_matrix_coop_sync(T* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld) {
  constexpr bool kIsB = kSame<Kind, matrix_b>;
  store_matrix_coop_sync(data, frag, ld, arch::uniform(kIsB ? threadIdx.x / arch::kWaveSize : threadIdx.y),
                         kIsB ? blockDim.x / arch::kWaveSize : blockDim.y);
}

namespace detail {

// The tiles of depth kK and beyond. By recursion, because compilers leave long loops rolled, and a register file has no
// run-time index.
template <class Tile, class FragmentA, class FragmentB, class FragmentD, bool kSwapped, int kK, class Compute,
          class Input>
WMMA_DEVICE void multiply_tiles(Compute* sum, const Input* a, const Input* b) {
#pragma unroll
  for (int m = 0; m < FragmentD::kTilesDown; ++m) {
#pragma unroll
    for (int n = 0; n < FragmentD::kTilesAcross; ++n) {
      const Input* tile_a = a + (m * FragmentA::kTilesAcross + kK) * FragmentA::Shape::kElements;
      const Input* tile_b = b + (kK * FragmentB::kTilesAcross + n) * FragmentB::Shape::kElements;
      Compute* tile_d = sum + (m * FragmentD::kTilesAcross + n) * FragmentD::Shape::kElements;
      if constexpr (kSwapped) {
        Tile::mma(tile_d, tile_b, tile_a);
      } else {
        Tile::mma(tile_d, tile_a, tile_b);
      }
    }
  }
  if constexpr (kK + 1 < FragmentA::kTilesAcross) {
    multiply_tiles<Tile, FragmentA, FragmentB, FragmentD, kSwapped, kK + 1>(sum, a, b);
  }
}

template <class Kind, int M, int N, int K, class Input, class T, class LayoutA, class LayoutB, class LayoutC,
          class LayoutD>
WMMA_DEVICE void multiply(fragment<Kind, M, N, K, T, LayoutD>& d, const fragment<matrix_a, M, N, K, Input, LayoutA>& a,
                          const fragment<matrix_b, M, N, K, Input, LayoutB>& b,
                          const fragment<Kind, M, N, K, T, LayoutC>& c) {
  using FragmentA = fragment<matrix_a, M, N, K, Input, LayoutA>;
  using FragmentB = fragment<matrix_b, M, N, K, Input, LayoutB>;
  using FragmentD = fragment<Kind, M, N, K, T, LayoutD>;
  using Tile = typename arch::Tile<Input, M, N, K>::Type;
  using Compute = typename Tile::Compute;
  constexpr bool kSwapped = kSame<Kind, accumulator_swapped> && arch::kSwapsOperands;
  static_assert(FragmentD::Shape::kElements == Tile::C::kElements,
                "wmma: this accumulator type does not fit the operands' product");

  FragmentA masked_a = a;
  FragmentB masked_b = b;
  if constexpr (K % FragmentA::Shape::kTileCols != 0) {
    zero_beyond_k<FragmentA>(masked_a.x);
    zero_beyond_k<FragmentB>(masked_b.x);
  }
  Compute sum[FragmentD::num_elements];
#pragma unroll
  for (int i = 0; i < FragmentD::num_elements; ++i) sum[i] = convert<Compute>(c.x[i]);
  multiply_tiles<Tile, FragmentA, FragmentB, FragmentD, kSwapped, 0>(sum, masked_a.x, masked_b.x);
#pragma unroll
  for (int i = 0; i < FragmentD::num_elements; ++i) d.x[i] = convert<T>(sum[i]);
}

}  // namespace detail

// D = A·B + C; d and c may be one fragment.
template <int M, int N, int K, class Input, class T, class LayoutA, class LayoutB, class LayoutC, class LayoutD>
WMMA_DEVICE void mma_sync(fragment<accumulator, M, N, K, T, LayoutD>& d,
                          const fragment<matrix_a, M, N, K, Input, LayoutA>& a,
                          const fragment<matrix_b, M, N, K, Input, LayoutB>& b,
                          const fragment<accumulator, M, N, K, T, LayoutC>& c) {
  detail::multiply(d, a, b, c);
}

template <int M, int N, int K, class Input, class T, class LayoutA, class LayoutB, class LayoutC, class LayoutD>
WMMA_DEVICE void mma_sync(fragment<accumulator_swapped, M, N, K, T, LayoutD>& d,
                          const fragment<matrix_a, M, N, K, Input, LayoutA>& a,
                          const fragment<matrix_b, M, N, K, Input, LayoutB>& b,
                          const fragment<accumulator_swapped, M, N, K, T, LayoutC>& c) {
  detail::multiply(d, a, b, c);
}

// f applied to every element.
template <class Kind, int M, int N, int K, class T, class Layout, class F>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> map(const fragment<Kind, M, N, K, T, Layout>& frag, F f) {
  fragment<Kind, M, N, K, T, Layout> result;
#pragma unroll
  for (int i = 0; i < frag.num_elements; ++i) result.x[i] = static_cast<T>(f(frag.x[i]));
  return result;
}

template <class Kind, int M, int N, int K, class T, class Layout, class F>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> map(const fragment<Kind, M, N, K, T, Layout>& a,
                                                   const fragment<Kind, M, N, K, T, Layout>& b, F f) {
  fragment<Kind, M, N, K, T, Layout> result;
#pragma unroll
  for (int i = 0; i < a.num_elements; ++i) result.x[i] = static_cast<T>(f(a.x[i], b.x[i]));
  return result;
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> operator+(const fragment<Kind, M, N, K, T, Layout>& a,
                                                         const fragment<Kind, M, N, K, T, Layout>& b) {
  return map(a, b, [](T p, T q) { return p + q; });
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> operator-(const fragment<Kind, M, N, K, T, Layout>& a,
                                                         const fragment<Kind, M, N, K, T, Layout>& b) {
  return map(a, b, [](T p, T q) { return p - q; });
}

// Elementwise, as + is; the matrix product is mma_sync.
template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> operator*(const fragment<Kind, M, N, K, T, Layout>& a,
                                                         const fragment<Kind, M, N, K, T, Layout>& b) {
  return map(a, b, [](T p, T q) { return p * q; });
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> operator*(typename ComputeType<T>::Type factor,
                                                         const fragment<Kind, M, N, K, T, Layout>& frag) {
  return map(frag, [factor](T p) { return factor * p; });
}

template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> operator*(const fragment<Kind, M, N, K, T, Layout>& frag,
                                                         typename ComputeType<T>::Type factor) {
  return factor * frag;
}

// The accumulator in another type, each element rounded.
template <class To, class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE fragment<Kind, M, N, K, To, Layout> convert_fragment(const fragment<Kind, M, N, K, T, Layout>& frag) {
  using Result = fragment<Kind, M, N, K, To, Layout>;
  static_assert(Result::num_elements == frag.num_elements, "wmma: f64 accumulators have a layout of their own");
  Result result;
#pragma unroll
  for (int i = 0; i < frag.num_elements; ++i) result.x[i] = convert<To>(frag.x[i]);
  return result;
}

}  // namespace wmma

#include <wmma/relayout.hpp>
