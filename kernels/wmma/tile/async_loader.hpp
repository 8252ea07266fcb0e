// Global memory to shared memory by the asynchronous copies of sm_80 and later, whole 16-byte chunks as they are:
// nothing passes through registers, and lines run as the operand's memory does.
#pragma once

#include <wmma/tile/config.hpp>
#include <wmma/tile/shared_tile.hpp>

namespace wmma {

// kOuter rows or columns by kDepth of K.
template <class T, Order kOrder, int kOuter, int kDepth, int kThreads>
class AsyncLoader {
  static constexpr bool kAlong = kOrder == Order::kAlongK;
  static constexpr int kPerChunk = elements_in<T>(16);

 public:
  using Tile = SharedTile<kAlong ? kOuter : kDepth, bytes_of<T>(kAlong ? kDepth : kOuter)>;

 private:
  // Every thread keeps its chunk of the lines and goes down kPass of them with each copy.
  static constexpr int kAcross = detail::power_of_two_from(Tile::kChunks);
  static_assert(kThreads % kAcross == 0, "a pass is whole lines");

 public:
  static constexpr int kPass = kThreads / kAcross;
  static constexpr int kCopies = (Tile::kLines + kPass - 1) / kPass;  // of a thread

 private:
  static constexpr bool kExact = Tile::kLines % kPass == 0 && kAcross == Tile::kChunks;
  static constexpr uint32_t kPassBytes = Tile::offset(kPass, 0) - Tile::offset(0, 0);
  static_assert(kCopies <= 32, "a bit for each copy");

 public:
  // `data` is the tile's first element at k = 0; lines beyond `rows` are zero. No stage: chunks go as they are.
  template <class Stage = None>
  WMMA_DEVICE AsyncLoader(const T* data, int64_t outer_stride, int64_t k_stride, int64_t rows, uint32_t thread,
                          Stage = {})
      : line_(thread / kAcross), chunk_(thread % kAcross), there_(0) {
    k_step_ = bytes_of<T>(kAlong ? 1 : k_stride);
    outer_step_ = bytes_of<T>(kAlong ? outer_stride : 1);
    const int64_t line_step = bytes_of<T>(kAlong ? outer_stride : k_stride);
    pass_step_ = kPass * line_step;
    from_ = reinterpret_cast<const char*>(data) + line_ * line_step + chunk_ * 16;
    to_ = Tile::offset(line_, chunk_);
    const int last = rows < kOuter ? static_cast<int>(rows) : kOuter;
    const int first = static_cast<int>(kAlong ? line_ : chunk_ * kPerChunk);
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (first + (kAlong ? i * kPass : 0) < last) there_ |= 1u << i;
    }
    arch::renew(there_);
  }

  WMMA_DEVICE void advance(int64_t k) { from_ += k * k_step_; }
  WMMA_DEVICE void advance_lines(int64_t lines) { from_ += lines * outer_step_; }
  WMMA_DEVICE void move(int64_t bytes) { from_ += bytes; }

  // kMasked: only the first `limit` of K exist.
  template <bool kMasked>
  WMMA_DEVICE void copy(uint32_t tile, int limit = 0) const {
    const char* from = from_;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      copy_line<kMasked>(tile, i, from, limit);
      from += pass_step_;
    }
  }

  // Of a tile of whose lines kGroup that follow each other lie together, and others apart: which line each copy is
  // of, and each from what `start` says of its lines, in bytes from the tile's first.
  WMMA_DEVICE uint32_t copied_line(int i) const { return line_ + i * kPass; }
  template <bool kMasked, int kGroup, class Start>
  WMMA_DEVICE void copy_lines(uint32_t tile, const Start& start, int limit = 0) const {
    const int64_t line_step = pass_step_ / kPass;
    const char* from = from_;
#pragma unroll
    for (int i = 0; i < kCopies; ++i) {
      if (kGroup % kPass != 0) {
        from = from_ + start(i) + (copied_line(i) % kGroup - static_cast<int64_t>(line_)) * line_step;
      } else if (i * kPass % kGroup == 0) {
        from = from_ + start(i);
      }
      copy_line<kMasked>(tile, i, from, limit);
      from += pass_step_;
    }
  }

 private:
  template <bool kMasked>
  WMMA_DEVICE void copy_line(uint32_t tile, int i, const char* from, int limit) const {
    const uint32_t line = line_ + i * kPass;
    if (kExact || (line < Tile::kLines && chunk_ < Tile::kChunks)) {
      const int k = static_cast<int>(kAlong ? chunk_ * kPerChunk : line);
      const bool there = (there_ >> i & 1) != 0 && (!kMasked || k < limit);
      const uint32_t to = kPass % Tile::kPeriod == 0 ? to_ + i * kPassBytes : Tile::offset(line, chunk_);
      arch::copy_async(tile + to, from, there);
    }
  }

  const char* from_;
  int64_t pass_step_;
  int64_t k_step_;
  int64_t outer_step_;
  uint32_t to_;
  uint32_t line_;
  uint32_t chunk_;
  uint32_t there_;
};

}  // namespace wmma
