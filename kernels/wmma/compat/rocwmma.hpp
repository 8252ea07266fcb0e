// rocWMMA's names: namespace rocwmma, with its element types, fragments, calls and meta-data. float16_t is _Float16
// where the compiler has one; hfloat16_t is __half.
#pragma once

#include <wmma/compat/hip.hpp>
#include <wmma/fragment.hpp>

namespace rocwmma {

// Element types.
using float16_t = wmma::compat::float16_t;
using hfloat16_t = __half;
using bfloat16_t = wmma::bf16_t;
using float32_t = float;
using float64_t = double;
using wmma::int32_t;
using wmma::int8_t;
using wmma::uint32_t;
using wmma::uint8_t;

// What fragments are made of.
using wmma::accumulator;
using wmma::col_major;
using wmma::fragment;
using wmma::layout_t;
using wmma::matrix_a;
using wmma::matrix_b;
using wmma::mem_col_major;
using wmma::mem_row_major;
using wmma::row_major;

// Calls: each is the one of that name in namespace wmma.
using wmma::fill_fragment;
using wmma::load_matrix_coop_sync;
using wmma::load_matrix_sync;
using wmma::mma_sync;
using wmma::store_matrix_coop_sync;
using wmma::store_matrix_sync;
using wmma::synchronize_workgroup;

// Lanes of a wave: 64 or 32.
constexpr uint32_t AMDGCN_WAVE_SIZE = wmma::kWaveSize;

// n / d, rounded up.
template <class N, class D>
WMMA_CONSTEXPR auto ceilDiv(N n, D d) {
  return (n + d - 1) / d;
}

// What a vector of Elements holds.
template <class T, int Elements, bool IsNativeType = true>
struct VectorStorage {
  T data[Elements];
};

// A vector of registers: v[i], *v for what it holds, and + - * / by element.
template <class T, uint32_t VecSize>
struct VecT {
  using StorageT = VectorStorage<T, VecSize>;
  StorageT storage;

  static WMMA_DEVICE constexpr uint32_t size() { return VecSize; }
  WMMA_DEVICE T& operator[](uint32_t i) { return storage.data[i]; }
  WMMA_DEVICE const T& operator[](uint32_t i) const { return storage.data[i]; }
  WMMA_DEVICE StorageT& operator*() { return storage; }
  WMMA_DEVICE const StorageT& operator*() const { return storage; }
};

#define WMMA_VEC_OPERATOR(sign)                                                                      \
  template <class T, uint32_t VecSize>                                                               \
  WMMA_DEVICE VecT<T, VecSize> operator sign(const VecT<T, VecSize>& a, const VecT<T, VecSize>& b) { \
    VecT<T, VecSize> result;                                                                         \
    for (uint32_t i = 0; i < VecSize; ++i) result[i] = static_cast<T>(a[i] sign b[i]);               \
    return result;                                                                                   \
  }
// Vectors by element.
WMMA_VEC_OPERATOR(+)
WMMA_VEC_OPERATOR(-)
WMMA_VEC_OPERATOR(*)
WMMA_VEC_OPERATOR(/)
#undef WMMA_VEC_OPERATOR

// The shape of a fragment's matrix: BlockDim is the side of A's rows, of B's columns, of an accumulator's rows; KDim
// the other.
template <class MatrixT, uint32_t BlockM, uint32_t BlockN, uint32_t BlockK, class DataT, class DataLayoutT>
struct IOShape {
  using Shape = typename fragment<MatrixT, BlockM, BlockN, BlockK, DataT, DataLayoutT>::Shape;
  static constexpr uint32_t BlockHeight = Shape::kRows;
  static constexpr uint32_t BlockWidth = Shape::kCols;
  static constexpr uint32_t BlockDim = wmma::kSame<MatrixT, matrix_b> ? BlockWidth : BlockHeight;
  static constexpr uint32_t KDim = wmma::kSame<MatrixT, matrix_b> ? BlockHeight : BlockWidth;
};

// How a fragment goes to and from memory. Its Loader, Storer, CoopLoader, CoopStorer and Broadcaster are the calls of
// this namespace, as types with a function exec().
template <class MatrixT, uint32_t BlockM, uint32_t BlockN, uint32_t BlockK, class DataT, class DataLayoutT>
struct IOConfig {
  using Fragment = fragment<MatrixT, BlockM, BlockN, BlockK, DataT, DataLayoutT>;
  using IOShape = rocwmma::IOShape<MatrixT, BlockM, BlockN, BlockK, DataT, DataLayoutT>;
  static constexpr uint32_t BlockDim = IOShape::BlockDim;
  static constexpr uint32_t KDim = IOShape::KDim;
  static constexpr uint32_t CoopIndex = wmma::kSame<MatrixT, matrix_b> ? 1 : 0;
  // Elements that one instruction moves at most, and those that it moves of this layout.
  static constexpr uint32_t MaxVectorWidth = 16 / sizeof(DataT);
  static constexpr uint32_t VectorWidth =
      wmma::detail::run_length<typename Fragment::Shape, wmma::kSame<DataLayoutT, row_major>, MaxVectorWidth>();

  // Where this lane's element i lies.
  struct MatrixLayout {
    static WMMA_DEVICE int row(int i) { return Fragment::row(i); }
    static WMMA_DEVICE int col(int i) { return Fragment::col(i); }
  };
  struct Broadcaster {
    static WMMA_DEVICE void exec(Fragment& frag, DataT value) { fill_fragment(frag, value); }
  };
  struct Loader {
    static WMMA_DEVICE void exec(Fragment& frag, const DataT* data, uint32_t ldm) { load_matrix_sync(frag, data, ldm); }
  };
  struct Storer {
    static WMMA_DEVICE void exec(DataT* data, const Fragment& frag, uint32_t ldm) {
      store_matrix_sync(data, frag, ldm);
    }
  };
  struct CoopLoader {
    static WMMA_DEVICE void exec(Fragment& frag, const DataT* data, uint32_t ldm, uint32_t waveIndex,
                                 uint32_t waveCount, uint32_t splitCount) {
      load_matrix_coop_sync(frag, data, ldm, waveIndex, waveCount, splitCount);
    }
  };
  struct CoopStorer {
    static WMMA_DEVICE void exec(DataT* data, const Fragment& frag, uint32_t ldm, uint32_t waveIndex,
                                 uint32_t waveCount, uint32_t splitCount) {
      store_matrix_coop_sync(data, frag, ldm, waveIndex, waveCount, splitCount);
    }
  };
};

}  // namespace rocwmma
