// A lane's rows of scores in the forward loops: what products become by all terms, and which scores count: the keys
// that a row may look at. And which weights do, where some are dropped.
#pragma once

#include <wmma/attention/terms/cap.hpp>
#include <wmma/attention/terms/dropout.hpp>
#include <wmma/attention/terms/mask.hpp>
#include <wmma/attention/terms/window.hpp>

namespace wmma {

// kOneByOne: so a window's edges are looked at; few of its tiles are at both, so that a comparison a score does.
template <class Config, class Link, class Number, bool kOneByOne = arch::kLooksAtEdges,
          class OfMask = MaskRows<typename Config::Mask, Config::kTilesM * Link::kLaneRows>>
class RowMask : public CapOf<Config>,
                Config::Rules::template Rows<Number, SoftmaxOf<Config, Number>, Config::kTilesM * Link::kLaneRows>,
                OfMask {
  using Rules = typename Config::Rules;
  using Sight = wmma::Sight<Config::kCausal, Rules>;
  static constexpr int kLaneRows = Config::kTilesM * Link::kLaneRows;
  using Cap = CapOf<Config>;
  using Rows = typename Rules::template Rows<Number, SoftmaxOf<Config, Number>, kLaneRows>;
  static constexpr bool kThere = !kIsNone<typename Config::Mask>;
  static constexpr bool kSharesReciprocals = Cap::kSharesReciprocals && !kThere && !Rules::kChanges && !Rules::kHides;
  static constexpr int kWaveRows = Config::kTilesM * Link::kRows;
  static constexpr bool kEdgesApart = kOneByOne && Rules::kWindowed && !kThere && !Rules::kScored;

 public:
  bool whole = false;  // the tile's block, of a block mask

  template <class Arguments, class Place>
  WMMA_DEVICE RowMask(const Arguments& p, const Place& place, uint32_t lane, uint32_t first_row, int keys_end)
      : Cap(p, false), Rows(p, place.batch), OfMask(p), seen_begin_(0), seen_end_(keys_end) {
    const auto query_of = [&](uint32_t row) { return place.query(row < place.rows ? row : place.rows - 1); };
    if constexpr (Config::kCausal) seen_end_ = Sight::keys_end(p, query_of(first_row), 0, keys_end);
    if constexpr (Rules::kWindowed) {
      seen_begin_ = Sight::first_key(p, query_of(first_row + kWaveRows - 1), 0, keys_end);
    }
    if constexpr (Rules::kDrops) threshold_ = p.rules.threshold;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      uint32_t row = first_row + i / Link::kLaneRows * Link::kRows + Link::row(lane, i % Link::kLaneRows);
      row = row < place.rows ? row : place.rows - 1;
      end_[i] = keys_end;
      const uint32_t query = place.query(row);
      if constexpr (Config::kCausal) {
        const int64_t seen = static_cast<int64_t>(query) + p.shift + 1;
        end_[i] = seen < keys_end ? static_cast<int>(seen) : keys_end;
      }
      if constexpr (Rules::kWindowed) begin_[i] = Sight::first_key(p, query, 0, keys_end);
      if constexpr (Rules::kAfterCap || Rules::kDrops || kThere) {
        const uint32_t head = place.head_of(row);
        if constexpr (Rules::kDrops) drawn_[i] = dropout_row_of(p, place.batch, head, query);
        queries_[i] = static_cast<int>(query);
        Rows::begin(p, place.batch, head, i);
        OfMask::begin(p, place.batch, head, query, i);
      }
    }
  }

  // Before the tile's scores are there.
  WMMA_DEVICE void ask(int first_key) { OfMask::ask(first_key); }

  // The keys that all of the wave's rows see: from here, to before there.
  WMMA_DEVICE int seen_begin() const { return seen_begin_; }
  WMMA_DEVICE int seen_end() const { return seen_end_; }

  // The scores of keys first … of rows' tile m, which come as products. Without a mask and rules they stay products;
  // otherwise they are scaled.
  template <bool kBounded, int kSums>
  WMMA_DEVICE void apply(Number* scores, int m, int first_key, uint32_t lane, Number factor) const {
    const Number kNever = -Softmax<Number>::infinity();
    if constexpr (kBounded && kEdgesApart) {
      if (first_key + Config::kKeys > seen_end_) {
        hide<kSums>(scores, m, first_key, lane, [&](int key, int i) { return key < end_[i]; });
      }
      if (first_key < seen_begin_) {
        hide<kSums>(scores, m, first_key, lane, [&](int key, int i) { return key >= begin_[i]; });
      }
      return;
    }
    const int lane_first = first_key + static_cast<int>(Link::place(lane, 0));
    if constexpr (kSharesReciprocals) {
#pragma unroll
      for (int f = 0; f < kSums; ++f) {  // of keys that do not count one may be NaN
        const int key = first_key + static_cast<int>(Link::place(lane, f));
        const int i = m * Link::kLaneRows + Link::row_of(f);
        if (kBounded && !narrowed(key < end_[i], key, i)) scores[f] = Number(0);
      }
      static_assert(kSums % 8 == 0 && Link::row_of(0) == Link::row_of(5) && Link::row_of(2) == Link::row_of(7));
#pragma unroll
      for (int f = 0; f < kSums; f += f % 4 == 0 ? 2 : 6) {
        this->invert(scores[f], scores[f + 1], scores[f + 4], scores[f + 5]);
      }
    }
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int i = m * Link::kLaneRows + Link::row_of(f);
      const int key = first_key + static_cast<int>(Link::place(lane, f));
      const bool inside = !kBounded || narrowed(key < end_[i], key, i);
      if constexpr (kOnlyHides<Config>) {
        Number same = scores[f];
        scores[f] = inside && OfMask::add(same, key, i, f) ? scores[f] : kNever;
      } else if constexpr (kThere || (Rules::kScored && !kCountsFromCap<Config>)) {
        Number x, bend;
        if constexpr (kSharesReciprocals) {
          x = this->inverted_score(scores[f]);
        } else {
          x = Cap::template score<false>(scores[f], factor, bend);
        }
        if constexpr (Rules::kAfterCap) x = Rows::template changed<false>(x, bend, queries_[i], lane_first, key, i);
        if constexpr (kThere) {
          if (inside && !OfMask::add(x, key, i, f)) x = kNever;
        }
        if constexpr (Rules::kHides && (kBounded || !Rules::kBlocks)) {
          const bool shown = this->shows(queries_[i], key, i);  // whatever `whole` is: nothing waits for a branch
          x = whole || shown ? x : kNever;
        }
        scores[f] = inside ? x : kNever;
      } else if (kBounded) {
        scores[f] = inside ? scores[f] : kNever;
      }
    }
  }

  // Of the weights of keys first … of rows' tile m those that are not kept become 0.
  template <int kSums>
  WMMA_DEVICE void drop(Number* weights, int m, int first_key, uint32_t lane) const {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const DropoutRow& row = drawn_[m * Link::kLaneRows + Link::row_of(f)];
      const unsigned key = static_cast<unsigned>(first_key) + Link::place(lane, f);
      weights[f] = keeps(row, key, threshold_) ? weights[f] : Number(0);
    }
  }

 private:
  WMMA_DEVICE bool narrowed(bool inside, int key, int i) const {
    return Rules::kWindowed ? inside && key >= begin_[i] : inside;
  }
  template <int kSums, class Inside>
  static WMMA_DEVICE void hide(Number* scores, int m, int first_key, uint32_t lane, const Inside& inside) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int key = first_key + static_cast<int>(Link::place(lane, f));
      scores[f] = inside(key, m * Link::kLaneRows + Link::row_of(f)) ? scores[f] : -Softmax<Number>::infinity();
    }
  }

  int queries_[kLaneRows];
  int begin_[kLaneRows];
  int end_[kLaneRows];
  int seen_begin_;
  int seen_end_;
  DropoutRow drawn_[kLaneRows];
  unsigned threshold_;
};

}  // namespace wmma
