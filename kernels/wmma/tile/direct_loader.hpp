// Global memory to shared memory by loads that do not pass through registers (gfx950): a wave writes 1 KB at once, lane
// after lane. So each lane asks for the chunk that the swizzle has where the lane writes.
#pragma once

#include <wmma/tile/config.hpp>
#include <wmma/tile/shared_tile.hpp>
#include <wmma/tile/wave_tile.hpp>

namespace wmma {

// A tile whose lines run across K, of 16-bit elements, swizzled for reads that turn it: of four lines that follow each
// other 64 bytes each, or of those and of four that are eight lines further down 32 bytes, touch every bank once.
// kAlong: so do the lines that shared memory serves together where a chain's columns (chain_link.hpp) are read along
// them.
template <int kLineCount, int kLineBytes, bool kAlong = false>
struct TransposedTile {
  static_assert(kLineBytes % 32 == 0, "lines of whole products");
  static constexpr int kLines = kLineCount;
  static constexpr int kChunks = kLineBytes / 16;
  static constexpr int kPitch = kChunks;
  static constexpr int kBytes = kLineCount * kLineBytes;
  static constexpr bool kExchanges = true;
  static constexpr bool kReadAlong = kAlong;
  static constexpr int kPeriodChunks = kChunks < 16 ? kChunks : 16;
  static constexpr int kLinesOfRow = kChunks < 16 ? detail::lower(16 / kChunks, 4) : 1;

  static WMMA_CONSTEXPR uint32_t offset(uint32_t line, uint32_t chunk) {
    const uint32_t exchange =
        line / kLinesOfRow % (4 / kLinesOfRow) * 4 + line / 8 % 2 * 2 + (kAlong ? line / 4 % 2 : 0);
    return ((line * kPitch + chunk) ^ (kChunks < 8 ? exchange % kChunks : exchange)) * 16;
  }
  static WMMA_CONSTEXPR uint32_t along(uint32_t chunk) { return chunk * 16; }
};

// What a lane brings to a product of the 8 lines from `at` on: 16 lanes read 16 rows or columns of four lines, and each
// gets one of them.
template <class Tile>
WMMA_DEVICE void read_transposed_chunk(Chunk& x, const unsigned char* at) {
  arch::read_transposed(x.words, at);
  arch::read_transposed(x.words + 2, at + 4 * Tile::kPitch * 16);  // the exchange is the same four lines down
}

// Reads an operand's tiles from such a tile.
template <class Product, class Tile, bool kIsA, int kTiles, int kSteps>
class TransposingReader {
  static constexpr int kSide = kIsA ? Product::kRows : Product::kCols;
  static constexpr int kChunks = kIsA ? Product::kChunksA : Product::kChunksB;
  static_assert(kChunks == 1 && Product::kPerChunk == 8 && Product::kDepth % 16 == 0, "16 bits, a chunk a lane");

 public:
  WMMA_DEVICE TransposingReader(uint32_t lane, uint32_t first, uint32_t first_step, uint32_t step_stride) {
    const uint32_t group = lane / 16 * 16;
    const uint32_t within = lane % 16;
    const uint32_t chunk = kIsA ? Product::a_chunk(group, 0) : Product::b_chunk(group, 0);
    const uint32_t side = kIsA ? Product::a_line(group, 0) : Product::b_line(group, 0);
    const uint32_t line = first_step * Product::kDepth + chunk * 8 + within / 4;
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      const uint32_t outer = first + n * kSide + side + within % 4 * 4;
      at_[n] = Tile::offset(line, outer / 8) + outer % 8 * 2;
    }
    step_bytes_ = step_stride * Product::kDepth * Tile::kPitch * 16;
  }

  WMMA_DEVICE void read(Chunk (&x)[kTiles][kChunks], const unsigned char* tile, int step) const {
#pragma unroll
    for (int n = 0; n < kTiles; ++n) read_tile(x[n], tile, step, n);
  }
  WMMA_DEVICE void read_tile(Chunk (&x)[kChunks], const unsigned char* tile, int step, int n) const {
    read_transposed_chunk<Tile>(x[0], tile + at_[n] + step * step_bytes_);
  }

 private:
  uint32_t at_[kTiles];
  uint32_t step_bytes_;
};

// Where an operand's tile lies as its memory runs.
template <class T, Order kOrder, int kOuter, int kDepth>
using DirectTile = Choose<kOrder == Order::kAlongK, SharedTile<kOuter, bytes_of<T>(kDepth)>,
                          TransposedTile<kDepth, bytes_of<T>(kOuter)>>;

// kOuter rows or columns by kDepth of K, by whole chunks as they are: lines run as the operand's memory does.
template <class T, Order kOrder, int kOuter, int kDepth, int kThreads,
          class TileType = DirectTile<T, kOrder, kOuter, kDepth>>
class DirectLoader {
  static constexpr bool kAlong = kOrder == Order::kAlongK;
  static constexpr int kWaves = kThreads / arch::kWaveSize;
  static constexpr int kPerChunk = elements_in<T>(16);

 public:
  using Tile = TileType;
  template <class Product, bool kIsA, int kTiles, int kSteps>
  using Reader = Choose<kAlong, LineReader<Product, Tile, kIsA, kTiles, kSteps>,
                        TransposingReader<Product, Tile, kIsA, kTiles, kSteps>>;

 private:
  static constexpr int kPieceBytes = arch::kWaveSize * 16;
  static constexpr int kPieces = Tile::kBytes / kPieceBytes;
  static constexpr bool kExact = kPieces % kWaves == 0;
  static_assert(Tile::kExchanges && Tile::kBytes % kPieceBytes == 0, "lines without gaps, by whole pieces");

 public:
  static constexpr int kCopies = (kPieces + kWaves - 1) / kWaves;  // of a wave, or one less
  static constexpr int kLeastCopies = kPieces / kWaves;

  // `data` is the tile's first element at k = 0. Rows or columns beyond `rows` are the last ones again. No stage:
  // chunks go as they are.
  template <class Stage = None>
  WMMA_DEVICE DirectLoader(const T* data, int64_t outer_stride, int64_t k_stride, int64_t rows, uint32_t thread,
                           Stage = {})
      : from_(reinterpret_cast<const char*>(data)),
        k_step_(bytes_of<T>(kAlong ? 1 : k_stride)),
        line_step_(static_cast<uint32_t>(bytes_of<T>(kAlong ? outer_stride : k_stride))),
        wave_(arch::uniform(thread / arch::kWaveSize)),
        lane_(thread % arch::kWaveSize) {
    const uint32_t last = rows < kOuter ? static_cast<uint32_t>(rows) - 1 : kOuter - 1;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      const Place at = place(i);
      offset_[i] = kAlong ? detail::lower(at.line, last) * line_step_ + at.chunk * 16
                          : at.line * line_step_ + detail::lower(at.chunk, last / kPerChunk) * 16;
    }
  }

  WMMA_DEVICE void advance(int64_t k) { from_ += k * k_step_; }
  WMMA_DEVICE void move(int64_t bytes) { from_ += bytes; }
  // Goes on with a tile whose first element is elsewhere.
  WMMA_DEVICE void start_at(const char* data) { from_ = data; }

  // Puts the i-th of a wave's copies in flight.
  WMMA_DEVICE void copy(unsigned char* tile, int i) const {
    if (kExact || piece(i) < kPieces) {
      arch::load_to_shared(from_, offset_[i], arch::shared_address(tile) + piece(i) * kPieceBytes);
    }
  }

  WMMA_DEVICE void copy(unsigned char* tile) const {
#pragma unroll
    for (int i = 0; i < kCopies; ++i) copy(tile, i);
  }

  // The tile of which only the first `limit` of K exist, the rest being zero, by way of registers. All is loaded before
  // any of it is waited for: what does not exist, as what the first of K has there.
  WMMA_DEVICE void fill(unsigned char* tile, int limit) const {
    Chunk x[kCopies];
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (kExact || piece(i) < kPieces) {
        const Place at = place(i);
        const uint32_t back = kAlong ? at.chunk * 16 : at.line * line_step_;
        const uint32_t offset = offset_[i] - (at.k < limit ? 0 : back);
        arch::copy_value<4>(x[i].words, reinterpret_cast<const uint32_t*>(from_ + offset));
      }
    }
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (kExact || piece(i) < kPieces) {
        const bool there = place(i).k < limit;
#pragma unroll
        for (int word = 0; word < 4; ++word) x[i].words[word] = there ? x[i].words[word] : 0;
        *reinterpret_cast<Chunk*>(tile + piece(i) * kPieceBytes + lane_ * 16) = x[i];
      }
    }
  }

 private:
  struct Place {
    uint32_t line;
    uint32_t chunk;
    int k;
  };

  WMMA_DEVICE uint32_t piece(int i) const { return i * kWaves + wave_; }
  // What belongs where the lane writes. The exchange undoes itself: its terms are bits that it leaves as they are.
  WMMA_DEVICE Place place(int i) const {
    const uint32_t to = piece(i) * arch::kWaveSize + lane_;
    const uint32_t at = Tile::offset(to / Tile::kPitch, to % Tile::kPitch) / 16;
    const uint32_t line = at / Tile::kPitch;
    const uint32_t chunk = at % Tile::kPitch;
    return {line, chunk, static_cast<int>(kAlong ? chunk * kPerChunk : line)};
  }

  const char* from_;
  int64_t k_step_;      // in bytes
  uint32_t line_step_;  // likewise
  uint32_t wave_;
  uint32_t lane_;
  uint32_t offset_[kCopies];
};

}  // namespace wmma
