// Fragments from and to memory, by one wave or in shares by several, and fragments of one value.
#pragma once

#include <wmma/fragment_type.hpp>

namespace wmma {
namespace detail {

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

// A share of a cooperative load or store: pieces of consecutive runs, interleaved among the waves.
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
  constexpr int kPieceRun =
      run_length<Shape, true, elements_in<T>(16)>() > run_length<Shape, false, elements_in<T>(16)>()
          ? run_length<Shape, true, elements_in<T>(16)>()
          : run_length<Shape, false, elements_in<T>(16)>();
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
    const int row = tile / Shape::kTilesAcross * Shape::kTileRows + Shape::row(0, i % Shape::kElements);
    const int col = tile % Shape::kTilesAcross * Shape::kTileCols + Shape::col(0, i % Shape::kElements);
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
        for (int e = 0; e < kRun; ++e) x[i + e] = T{};
      }
    } else {
      if (inside) arch::copy<kRun>(at, x + i);
    }
  }
}

template <bool kLoad, class Fragment, bool kRowMajor, class T, class Memory, class Share>
WMMA_DEVICE void move(T* x, Memory* data, uint32_t ld, const Share& share) {
  constexpr int kRun = run_length<typename Fragment::Shape, kRowMajor, elements_in<T>(16)>();
  if (arch::is_aligned<bytes_of<T>(kRun)>(data, ld)) {
    move_runs<kLoad, Fragment, kRowMajor, kRun>(x, data, ld, share);
  } else {
    move_runs<kLoad, Fragment, kRowMajor, 1>(x, data, ld, share);
  }
}

// What of a fragment moves: its elements, or bytes that are pairs of 4-bit integers along K.
template <class Fragment, bool kInPairs = kIsInt4<typename Fragment::element_type>>
struct Moved {
  using Shape = typename Fragment::Shape;
  static constexpr int kPerUnit = 1;
  static constexpr int num_elements = Fragment::num_elements;
  template <class F>
  static WMMA_DEVICE auto* units(F& frag) {
    return frag.x;
  }
};
template <class Fragment>
struct Moved<Fragment, true> {
  using Whole = typename Fragment::Shape;
  static constexpr int kPerUnit = 2;
  static constexpr int num_elements = Fragment::num_elements / 2;
  static constexpr int kDown = kSame<typename FragmentOf<Fragment>::Kind, matrix_a> ? 1 : 2;  // rows to a pair
  static constexpr int kAcross = 2 / kDown;
  struct Lanes {
    static constexpr int kRows = Whole::kTileRows / kDown;
    static constexpr int kCols = Whole::kTileCols / kAcross;
    static constexpr int kElements = Whole::kElements / 2;
    static constexpr int kReplicas = Whole::kReplicas;
    static WMMA_CONSTEXPR int row(uint32_t lane, int e) { return Whole::row(lane, 2 * e) / kDown; }
    static WMMA_CONSTEXPR int col(uint32_t lane, int e) { return Whole::col(lane, 2 * e) / kAcross; }
  };
  using Shape = TiledShape<Whole::kRows / kDown, Whole::kCols / kAcross, Lanes>;
  template <class F>
  static WMMA_DEVICE auto* units(F& frag) {
    return frag.x.pairs;
  }
};

// Whether a fragment meets this memory: the layout is its own or, where it has none, the call's.
template <class Fragment, class Data, class Layout>
WMMA_CONSTEXPR bool moves() {
  using T = typename Fragment::element_type;
  constexpr bool kHasLayout = !kSame<Layout, void>;
  static_assert(kHasLayout, "wmma: give the fragment a layout, or the call one");
  constexpr bool kHasType = kSame<Plain<Data>, Plain<InMemory<T>>>;
  static_assert(kHasType || kIsInt4<T>, "wmma: the pointer is to the fragment's element type");
  static_assert(kHasType || !kIsInt4<T>, "wmma: memory of int4_t is of int4x2_t, memory of uint4_t of uint4x2_t");
  constexpr bool kIsA = kSame<typename FragmentOf<Fragment>::Kind, matrix_a>;
  constexpr bool kAlongK = !kIsInt4<T> || kSame<Layout, Choose<kIsA, row_major, col_major>>;
  static_assert(!kHasLayout || kAlongK, "wmma: pairs of 4-bit integers lie along K: A is row_major, B is col_major");
  return kHasLayout && kHasType && kAlongK;
}

template <bool kLoad, class Layout, class Fragment, class Data, class Share>
WMMA_DEVICE void move_fragment(Fragment& frag, Data* data, uint32_t ld, const Share& share) {
  using Units = Moved<Fragment>;
  using Element = InMemory<typename Fragment::element_type>;
  using Memory = Choose<kLoad, const Element, Element>;
  constexpr bool kRowMajor = kSame<Layout, row_major>;
  if constexpr (kSame<Data, Memory>) {
    move<kLoad, Units, kRowMajor>(Units::units(frag), data, ld / Units::kPerUnit, share);
  } else {  // the same by another name
    move<kLoad, Units, kRowMajor>(Units::units(frag), reinterpret_cast<Memory*>(data), ld / Units::kPerUnit, share);
  }
}

}  // namespace detail

// Every element is the value.
template <class Kind, int M, int N, int K, class T, class Layout, class Value>
WMMA_DEVICE void fill_fragment(fragment<Kind, M, N, K, T, Layout>& frag, Value value) {
  static_assert(!kIsInteger<T> || detail::kIsWhole<Value>, "wmma: a fragment of integers is filled with an integer");
  const T element = static_cast<T>(value);
#pragma unroll
  for (int i = 0; i < frag.num_elements; ++i) frag.x[i] = element;
}

// Fills the fragment from memory. ld: elements between the starts of rows (row_major) or of columns (col_major).
template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void load_matrix_sync(fragment<Kind, M, N, K, T, Layout>& frag, const Data* data, uint32_t ld) {
  using Fragment = fragment<Kind, M, N, K, T, Layout>;
  if constexpr (detail::moves<Fragment, Data, Layout>()) {
    using Units = detail::Moved<Fragment>;
    if (arch::load_shared_tiles<Kind, Units, kSame<Layout, row_major>>(Units::units(frag), data, ld)) return;
    detail::move_fragment<true, Layout>(frag, data, ld, detail::WholeBlock{});
  }
}

// The same for a fragment without a layout, in the order that the call names.
template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void load_matrix_sync(fragment<Kind, M, N, K, T, Layout>& frag, const Data* data, uint32_t ld,
                                  layout_t layout) {
  static_assert(kSame<Layout, void>, "wmma: this fragment has its layout: leave out the call's");
  if constexpr (detail::moves<fragment<Kind, M, N, K, T>, Data, row_major>()) {
    if (layout == mem_row_major) {
      detail::move_fragment<true, row_major>(frag, data, ld, detail::WholeBlock{});
    } else {
      detail::move_fragment<true, col_major>(frag, data, ld, detail::WholeBlock{});
    }
  }
}

// Writes the fragment to memory, as load_matrix_sync reads it; operands as well as results.
template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void store_matrix_sync(Data* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld) {
  if constexpr (detail::moves<fragment<Kind, M, N, K, T, Layout>, Data, Layout>()) {
    detail::move_fragment<false, Layout>(frag, data, ld, detail::WholeBlock{});
  }
}

template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void store_matrix_sync(Data* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld,
                                   layout_t layout) {
  static_assert(kSame<Layout, void>, "wmma: this fragment has its layout: leave out the call's");
  if constexpr (detail::moves<fragment<Kind, M, N, K, T>, Data, row_major>()) {
    if (layout == mem_row_major) {
      detail::move_fragment<false, row_major>(frag, data, ld, detail::WholeBlock{});
    } else {
      detail::move_fragment<false, col_major>(frag, data, ld, detail::WholeBlock{});
    }
  }
}

// Each wave moves the pieces p of split_count with p % wave_count == wave_index; a store with the same three numbers
// writes what a load brought. The other elements of the fragment are left as they are.
template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void load_matrix_coop_sync(fragment<Kind, M, N, K, T, Layout>& frag, const Data* data, uint32_t ld,
                                       uint32_t wave_index, uint32_t wave_count, uint32_t split_count) {
  if constexpr (detail::moves<fragment<Kind, M, N, K, T, Layout>, Data, Layout>()) {
    detail::move_fragment<true, Layout>(frag, data, ld, detail::WaveShare{wave_index, wave_count, split_count});
  }
}

template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void load_matrix_coop_sync(fragment<Kind, M, N, K, T, Layout>& frag, const Data* data, uint32_t ld,
                                       uint32_t wave_index, uint32_t wave_count) {
  load_matrix_coop_sync(frag, data, ld, wave_index, wave_count, wave_count);
}

// Writes this wave's pieces, as load_matrix_coop_sync brings them.
template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void store_matrix_coop_sync(Data* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld,
                                        uint32_t wave_index, uint32_t wave_count, uint32_t split_count) {
  if constexpr (detail::moves<fragment<Kind, M, N, K, T, Layout>, Data, Layout>()) {
    detail::move_fragment<false, Layout>(frag, data, ld, detail::WaveShare{wave_index, wave_count, split_count});
  }
}

template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void store_matrix_coop_sync(Data* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld,
                                        uint32_t wave_index, uint32_t wave_count) {
  store_matrix_coop_sync(data, frag, ld, wave_index, wave_count, wave_count);
}

// Blocks of blockDim.x / wave size by blockDim.y waves: A is shared by the waves of one x, B by the waves of one y.
template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void load_matrix_coop_sync(fragment<Kind, M, N, K, T, Layout>& frag, const Data* data, uint32_t ld) {
  constexpr bool kIsB = kSame<Kind, matrix_b>;
  load_matrix_coop_sync(frag, data, ld, arch::uniform(kIsB ? threadIdx.x / arch::kWaveSize : threadIdx.y),
                        kIsB ? blockDim.x / arch::kWaveSize : blockDim.y);
}

template <class Kind, int M, int N, int K, class T, class Layout, class Data>
WMMA_DEVICE void store_matrix_coop_sync(Data* data, const fragment<Kind, M, N, K, T, Layout>& frag, uint32_t ld) {
  constexpr bool kIsB = kSame<Kind, matrix_b>;
  store_matrix_coop_sync(data, frag, ld, arch::uniform(kIsB ? threadIdx.x / arch::kWaveSize : threadIdx.y),
                         kIsB ? blockDim.x / arch::kWaveSize : blockDim.y);
}

}  // namespace wmma
