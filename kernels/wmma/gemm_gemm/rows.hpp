// A wave's rows of A as the first product's operand, without other waves: on AMD they are loaded to registers as the
// matrix unit takes them, on NVIDIA they arrive in shared memory of the wave's own by asynchronous copies.
#pragma once

#include <wmma/tile/chain.hpp>
#include <wmma/tile/config.hpp>
#ifdef WMMA_NVIDIA
#include <wmma/tile/async_loader.hpp>
#endif

namespace wmma {

#ifdef WMMA_AMD

template <class Config>
class Rows {
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;
  static constexpr int kTiles = Config::kTilesM;
  static constexpr int kSteps = Config::kBlockK / Link::kDepth;
  static constexpr bool kAlong = Config::kAOrder == Order::kAlongK;
  static constexpr int kPiece = kAlong ? detail::lower(Config::kAVec, Link::kPerChunk) : 1;

 public:
  static constexpr int kWaveBytes = 0;
  static constexpr int kAhead = 1;  // tiles that are asked for before they are needed

  // `a` is the matrix' first element, with `rows` rows of `k` elements.
  WMMA_DEVICE Rows(const T* a, const GemmOperand& at, int64_t rows, int64_t k, unsigned char*, uint32_t)
      : a_(a), row_step_(at.row_stride), k_step_(at.column_stride), rows_(rows), k_(static_cast<int>(k)) {}

  // Rows beyond the last repeat it.
  WMMA_DEVICE void ask(int64_t row, uint32_t lane) {
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      const int64_t mine = row + tile * Link::kRows + Link::row_line(lane, 0);
      const T* line = a_ + (mine < rows_ ? mine : rows_ - 1) * row_step_;
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int i = 0; i < Link::kRowChunks; ++i) {
          const int chunk = step * (Link::kDepth / Link::kPerChunk) + Link::row_chunk(lane, i);
          load(chunks_[step][tile][i], line, chunk * Link::kPerChunk);
        }
      }
    }
  }
  WMMA_DEVICE void arrive() {}
  WMMA_DEVICE void read(Chunk* x, int tile, int step) const {
#pragma unroll
    for (int i = 0; i < Link::kRowChunks; ++i) x[i] = chunks_[step][tile][i];
  }

 private:
  WMMA_DEVICE void load(Chunk& chunk, const T* line, int k) const {
    alignas(16) T x[Link::kPerChunk];
    constexpr uint32_t kZero[4] = {};
    arch::copy_bytes<16>(x, kZero);
#pragma unroll
    for (int e = 0; e < Link::kPerChunk; e += kPiece) {
      if (!Config::kRaggedK || k + e < k_) arch::copy<kPiece>(x + e, line + (k + e) * (kPiece > 1 ? 1 : k_step_));
    }
    arch::copy_bytes<16>(&chunk, x);
  }

  const T* a_;
  int64_t row_step_;
  int64_t k_step_;
  int64_t rows_;
  int k_;
  Chunk chunks_[kSteps][kTiles][Link::kRowChunks];
};

#else

template <class Config>
class Rows {
  using T = typename Config::Element;
  using Link = ChainLink<MatrixProduct<T, 16>>;
  using Loader = AsyncLoader<T, Order::kAlongK, Config::kTilesM * 16, Config::kBlockK, arch::kWaveSize>;
  using Tile = typename Loader::Tile;

 public:
  static constexpr int kAhead = Config::kStages;
  static constexpr int kWaveBytes = kAhead * Tile::kBytes;

  WMMA_DEVICE Rows(const T* a, const GemmOperand& at, int64_t rows, int64_t k, unsigned char* shared, uint32_t lane)
      : a_(a),
        row_step_(at.row_stride),
        rows_(rows),
        k_(static_cast<int>(k)),
        shared_(shared),
        asked_(0),
        read_(kAhead - 1),
        reader_(lane, 0) {}

  // Rows beyond the last are zero.
  WMMA_DEVICE void ask(int64_t row, uint32_t lane) {
    arch::wave_barrier();  // every lane is done with what lay there
    if (row < rows_) {
      const Loader loader(a_ + row * row_step_, row_step_, 1, rows_ - row, lane);
      loader.template copy<Config::kRaggedK>(arch::shared_address(shared_ + asked_ * Tile::kBytes), k_);
    }
    arch::commit_async();
    asked_ = asked_ + 1 == kAhead ? 0 : asked_ + 1;
  }
  WMMA_DEVICE void arrive() {
    arch::wait_async<kAhead - 1>();
    arch::wave_barrier();
    read_ = read_ + 1 == kAhead ? 0 : read_ + 1;
  }
  WMMA_DEVICE void read(Chunk* x, int tile, int step) const {
    reader_.read(x, shared_ + read_ * Tile::kBytes, tile, step);
  }

 private:
  const T* a_;
  int64_t row_step_;
  int64_t rows_;
  int k_;
  unsigned char* shared_;
  int asked_;
  int read_;
  RowReader<Link, Tile> reader_;
};

#endif

}  // namespace wmma
