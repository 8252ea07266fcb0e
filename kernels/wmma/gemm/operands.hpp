// What a GEMM's main loops are given: A by way of its prologue, B, and where the second pair stands, if there is one.
#pragma once

#include <wmma/tile/arguments.hpp>
#include <wmma/tile/epilogue.hpp>
#include <wmma/tile/loader_pair.hpp>
#include <wmma/tile/staged_loader.hpp>
#include <wmma/tile/tile_order.hpp>

namespace wmma {

// pro(A) = act(A·a_scale), rounded to A's type as the matrix unit takes it.
template <class Config>
struct Prologue {
  static constexpr bool kPlain = false;
  using Number = typename Config::Number;
  using Scale = typename Config::AScale;
  const Scale* scale;
  int64_t stride;

  template <class Storage>
  WMMA_DEVICE typename Config::Element apply(Storage x, uint32_t k) const {
    Number y = convert<Number>(x);
    if constexpr (!kIsNone<Scale>) y *= convert<Number>(scale[k * stride]);
    if constexpr (Config::kAActivation != kNone) y = activate<Config::kAActivation, Number>(y);
    return rounded<Storage>(y);
  }
  WMMA_DEVICE void advance(int64_t k) {
    if constexpr (!kIsNone<Scale>) scale += k * stride;
  }

 private:
  template <class Storage>
  static WMMA_DEVICE typename Config::Element rounded(Number y) {
    const Storage stored = finished<Storage>(y);
    if constexpr (kSame<Storage, typename Config::Element>) {
      return stored;
    } else {
      return convert<typename Config::Element>(static_cast<float>(stored));
    }
  }
};

template <bool kThere, class Config>
struct StageOf {
  using Type = PlainStage<typename Config::A, typename Config::Element>;
  static WMMA_DEVICE Type make(const GemmArguments&, uint32_t, int64_t) { return {}; }
};
template <class Config>
struct StageOf<true, Config> {
  using Type = Prologue<Config>;
  static WMMA_DEVICE Type make(const GemmArguments& p, uint32_t batch, int64_t k) {
    Type stage{nullptr, 0};
    if constexpr (!kIsNone<typename Config::AScale>) {
      stage.stride = p.a_scale.column_stride;
      stage.scale = static_cast<const typename Config::AScale*>(p.a_scale.data) +
                    batch_offset<Config::kBatchDims>(p, p.a_scale, batch) + k * stage.stride;
    }
    return stage;
  }
};

// B as it is, or converted: scales of its own along K would come in here, as A's do in its prologue.
template <class Config>
using StageOfB = PlainStage<typename Config::B, typename Config::Element>;

// What the loops take of the second pair: its own orders and widths, and A2 as it is.
template <class Config>
struct SecondPair : Config {
  using AScale = None;
  static constexpr int kAActivation = kNone;
  static constexpr Order kAOrder = Config::kA2Order;
  static constexpr Order kBOrder = Config::kB2Order;
  static constexpr int kAVec = Config::kA2Vec;
  static constexpr int kBVec = Config::kB2Vec;
};

// Which operands a configuration is about.
template <class Config>
struct OperandsOf {
  static WMMA_DEVICE const GemmOperand& a(const GemmArguments& p) { return p.a; }
  static WMMA_DEVICE const GemmOperand& b(const GemmArguments& p) { return p.b; }
};
template <class Config>
struct OperandsOf<SecondPair<Config>> {
  static WMMA_DEVICE const GemmOperand& a(const GemmArguments& p) { return p.a2; }
  static WMMA_DEVICE const GemmOperand& b(const GemmArguments& p) { return p.b2; }
};

// How a loop's loaders start: at a row of A and a column of B, at `k`, in the batch's matrix.
template <class Config, class Stage, class LoaderA_, class LoaderB_>
struct WalkingLoaders {
  using Arguments = GemmArguments;
  using LoaderA = LoaderA_;
  using LoaderB = LoaderB_;
  using A = typename Config::A;
  using B = typename Config::B;

  static WMMA_DEVICE LoaderA a(const Arguments& p, uint32_t batch, int64_t row, int64_t k, uint32_t thread) {
    const GemmOperand& x = OperandsOf<Config>::a(p);
    const A* matrix = element_at<A>(x.data, batch_offset<Config::kBatchDims>(p, x, batch));
    const A* from = element_at<A>(element_at<A>(matrix, row * x.row_stride), k * x.column_stride);
    return LoaderA(from, x.row_stride, x.column_stride, p.m - row, thread, Stage::make(p, batch, k));
  }
  static WMMA_DEVICE LoaderB b(const Arguments& p, uint32_t batch, int64_t column, int64_t k, uint32_t thread) {
    const GemmOperand& x = OperandsOf<Config>::b(p);
    if constexpr (kIsGated<Config>) {
      using Half = typename LoaderB::Half;
      return LoaderB{columns_of<Half>(p, x, batch, column, k, thread),
                     columns_of<Half>(p, p.gate, batch, column, k, thread)};
    } else {
      return columns_of<LoaderB>(p, x, batch, column, k, thread);
    }
  }

 private:
  template <class Loader>
  static WMMA_DEVICE Loader columns_of(const Arguments& p, const GemmOperand& x, uint32_t batch, int64_t column,
                                       int64_t k, uint32_t thread) {
    const B* matrix = element_at<B>(x.data, batch_offset<Config::kBatchDims>(p, x, batch));
    const B* from = element_at<B>(element_at<B>(matrix, column * x.column_stride), k * x.row_stride);
    return Loader(from, x.column_stride, x.row_stride, p.n - column, thread, StageOfB<Config>{});
  }
};

// How a kernel runs by a loop, which its header says for its own struct: `Product`, `Loaders`, `Type` (the loop
// itself), and as many sums as a wave lays into its slab at a time.
template <class Loop, class Config, class Stage, int kThreads, int kM, int kN>
struct LoopsOf;

}  // namespace wmma
