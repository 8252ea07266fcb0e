// The tiles of the others that a block of attention's gradients goes through (loops/interleaved_gradients.hpp), whole
// ones alone: the last of a head skips what the one before has.
#pragma once

#include <wmma/attention/gradients/fixed_point.hpp>
#include <wmma/attention/gradients/rows.hpp>

namespace wmma {

// Its first row, from where on its rows count, and where they are: `first` of Q or K, `second` of g_out or V. Where the
// queries' gradients are added to (gradients/dq_partials.hpp), `dq`, and where these are whole numbers, `sizes` of
// queries.
struct GradientTile {
  const char* first;
  const char* second;
  const char* lse;
  const char* delta;
  char* dq;
  int sizes;  // in bytes from those of the first head
  int row;
  int skipped;
};

// In order, head by head.
template <class Config, class Number>
class GradientTiles {
  using T = typename Config::Element;
  static constexpr bool kOwnsKeys = Config::kOwnsKeys;
  static constexpr int kOthers = Config::kOthers;
  static constexpr bool kSeveral = kOwnsKeys && Config::kGrouped;  // heads

 public:
  using Span = OthersSpan<kOwnsKeys, Config::kCausal, typename Config::Rules>;

  WMMA_DEVICE GradientTiles(const AttentionArguments& p, const GradientPlace<kOwnsKeys>& place, const Span& span,
                            int count)
      : p_(p), span_(span), at_(span.begin), left_(count) {
    const uint32_t head = kOwnsKeys ? place.head * p.group : place.head / p.group;
    const auto start = [&](const AttentionOperand& x, int64_t size) {
      return static_cast<const char*>(x.data) + (place.batch * x.batch_stride + head * x.head_stride) * size;
    };
    first_ = start(firsts_of(p), kSize);
    second_ = start(seconds_of(p), kSize);
    lse_ = start(p.lse, kNumberSize);
    delta_ = start(p.delta, kNumberSize);
    if constexpr (Config::kStoresDq) {
      const int64_t of_all = static_cast<int64_t>(place.batch) * p.heads + head;
      dq_ = static_cast<char*>(p.partial) + of_all * head_dq();
      if constexpr (Config::kFixed) sizes_ = 0;
    }
  }

  static WMMA_DEVICE const AttentionOperand& firsts_of(const AttentionArguments& p) { return kOwnsKeys ? p.q : p.k; }
  static WMMA_DEVICE const AttentionOperand& seconds_of(const AttentionArguments& p) {
    return kOwnsKeys ? p.g_out : p.v;
  }

  // Behind the last one rows that exist come again.
  WMMA_DEVICE void advance() {
    at_ += kOthers;
    if constexpr (kSeveral) {
      left_ -= 1;
      const bool wraps = left_ > 0 && at_ >= span_.end;
      at_ = wraps ? span_.begin : at_;
      first_ += (wraps ? p_.q.head_stride : 0) * kSize;
      second_ += (wraps ? p_.g_out.head_stride : 0) * kSize;
      lse_ += (wraps ? p_.lse.head_stride : 0) * kNumberSize;
      delta_ += (wraps ? p_.delta.head_stride : 0) * kNumberSize;
      if constexpr (Config::kStoresDq) dq_ += wraps ? head_dq() : 0;
      if constexpr (Config::kFixed) sizes_ += wraps ? 4 * p_.sq : 0;
    }
  }

  // The tile, by kParts parts, each computed before what follows it.
  static constexpr int kParts = 3;
  WMMA_DEVICE void place(GradientTile& tile, int part) const {
    if (part == 0) {
      tile.row = arch::renewed(detail::lower(at_, span_.others - kOthers));
      tile.skipped = at_ - tile.row;
    } else if (part == 1) {
      tile.first = arch::renewed(first_ + rows_of(firsts_of(p_), kSize, tile.row));
      tile.second = arch::renewed(second_ + rows_of(seconds_of(p_), kSize, tile.row));
    } else if (kOwnsKeys) {
      tile.lse = arch::renewed(lse_ + rows_of(p_.lse, kNumberSize, tile.row));
      tile.delta = arch::renewed(delta_ + rows_of(p_.delta, kNumberSize, tile.row));
      if constexpr (Config::kStoresDq) tile.dq = dq_ + dq_before(at_);
      if constexpr (Config::kFixed) tile.sizes = arch::renewed(sizes_ + 4 * tile.row);
    }
  }
  WMMA_DEVICE GradientTile tile() const {
    GradientTile tile;
#pragma unroll
    for (int part = 0; part < kParts; ++part) place(tile, part);
    return tile;
  }

 private:
  static constexpr int64_t kSize = sizeof(T);
  static constexpr int64_t kNumberSize = sizeof(Number);

  // In bytes; the planner has promised that a row's are few.
  static WMMA_DEVICE int64_t rows_of(const AttentionOperand& x, int64_t size, int row) {
    return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(x.row_stride * size)) *
                                static_cast<uint32_t>(row));
  }

  // In bytes: a number for each column of Q.
  static WMMA_DEVICE int64_t dq_before(int row) {
    return static_cast<int64_t>(static_cast<uint64_t>(static_cast<uint32_t>(row)) *
                                static_cast<uint32_t>(Config::kDepth * kNumberSize));
  }
  WMMA_DEVICE int64_t head_dq() const { return dq_before(p_.tiles * kOthers); }

  const AttentionArguments& p_;
  const Span& span_;
  const char* first_;  // of the head
  const char* second_;
  const char* lse_;
  const char* delta_;
  char* dq_;
  int sizes_;
  int at_;
  int left_;
};

}  // namespace wmma
