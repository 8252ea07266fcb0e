// Which scores count: the keys that a row may look at, and what a mask adds.
#pragma once

#include <wmma/attention/rows.hpp>

namespace wmma {

// False where the mask forbids the key; otherwise the score has what it adds.
template <class Mask, class Number>
WMMA_DEVICE bool add_mask(Number& score, const Mask* mask) {
  if constexpr (kSame<Mask, uint8_t>) {
    return *mask != 0;
  } else {
    score += convert<Number>(*mask);
    return true;
  }
}

// The rows of a lane. kCausal: row i sees the keys up to i + shift.
template <class Config, class Link, class Number>
class RowMask {
  static constexpr int kLaneRows = Config::kTilesM * Link::kLaneRows;
  static constexpr bool kThere = !kIsNone<typename Config::Mask>;

 public:
  template <class Place>
  WMMA_DEVICE RowMask(const AttentionArguments& p, const Place& place, uint32_t lane, uint32_t first_row, int keys_end)
      : stride_(p.mask.column_stride) {
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      uint32_t row = first_row + i / Link::kLaneRows * Link::kRows + Link::row(lane, i % Link::kLaneRows);
      row = row < place.rows ? row : place.rows - 1;
      end_[i] = keys_end;
      if constexpr (Config::kCausal) {
        const int64_t seen = static_cast<int64_t>(place.query(row)) + p.shift + 1;
        end_[i] = seen < keys_end ? static_cast<int>(seen) : keys_end;
      }
      if constexpr (kThere) rows_[i] = static_cast<const Stored*>(p.mask.data) + place.offset(p.mask, row);
    }
  }

  // The scores of keys first … of rows' tile m, which come as products. Without a mask they stay products; otherwise
  // they are scaled.
  template <bool kBounded, int kSums>
  WMMA_DEVICE void apply(Number* scores, int m, int first_key, uint32_t lane, Number factor) const {
    const Number kNever = -Softmax<Number>::infinity();
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int i = m * Link::kLaneRows + Link::row_of(f);
      const int key = first_key + static_cast<int>(Link::place(lane, f));
      const bool inside = !kBounded || key < end_[i];
      if constexpr (kThere) {
        Number x = scores[f] * factor;
        if (inside && !add_mask(x, rows_[i] + key * stride_)) x = kNever;
        scores[f] = inside ? x : kNever;
      } else if (kBounded) {
        scores[f] = inside ? scores[f] : kNever;
      }
    }
  }

 private:
  using Stored = typename Config::Mask;

  const Stored* rows_[kLaneRows];
  int end_[kLaneRows];
  int64_t stride_;
};

}  // namespace wmma
