// Which scores count: the keys that a row may look at, and what a mask adds. And which weights do, where some are
// dropped.
#pragma once

#include <wmma/attention/terms/rules.hpp>

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

// What rules say of a lane's rows: nothing, where there are none.
template <class Rules, class Scorer, int kLaneRows>
struct RowRules : Scorer {
  using typename Scorer::Number;
  int begin[kLaneRows];
  int places[kLaneRows];
  Number slopes[kLaneRows];
  DropoutRow drawn[kLaneRows];
  unsigned threshold;
  template <class Arguments>
  WMMA_DEVICE explicit RowRules(const Arguments& p) : Scorer(p, false) {}
  WMMA_DEVICE bool narrowed(bool inside, int key, int i) const {
    return Rules::kWindowed ? inside && key >= begin[i] : inside;
  }
};
template <class Scorer, int kLaneRows>
struct RowRules<PlainScores, Scorer, kLaneRows> : Scorer {
  template <class Arguments>
  WMMA_DEVICE explicit RowRules(const Arguments& p) : Scorer(p, false) {}
  static WMMA_DEVICE bool narrowed(bool inside, int, int) { return inside; }
};

template <class Config, class Link, class Number>
using RowRulesOf = RowRules<typename Config::Rules,
                            Scorer<typename Config::Rules, typename Config::Element, SoftmaxOf<Config, Number>>,
                            Config::kTilesM * Link::kLaneRows>;

// What functions of scores are told of a lane's rows, likewise.
template <class Rules, int kLaneRows, bool kThere = Rules::kChanges || Rules::kHides>
struct RowFunctions {
  const ScoreFunctionArguments& functions;
  int batch;
  int heads[kLaneRows];
  int queries[kLaneRows];
  template <class Arguments, class Place>
  WMMA_DEVICE RowFunctions(const Arguments& p, const Place& place)
      : functions(p.functions), batch(static_cast<int>(p.rules.first_batch + place.batch)) {}
  template <class Number>
  WMMA_DEVICE Number changed(Number score, int key, int i) const {
    return Rules::Functions::changed(functions, score, batch, heads[i], queries[i], key);
  }
  WMMA_DEVICE bool shows(int key, int i) const {
    return Rules::Functions::shows(functions, batch, heads[i], queries[i], key);
  }
};
template <class Rules, int kLaneRows>
struct RowFunctions<Rules, kLaneRows, false> {
  template <class Arguments, class Place>
  WMMA_DEVICE RowFunctions(const Arguments&, const Place&) {}
};

// Of a block mask: whether the tile's block is there as a whole.
template <bool kBlocks>
struct RowBlocks {
  static constexpr bool whole = false;
};
template <>
struct RowBlocks<true> {
  bool whole = false;
};

// The rows of a lane. kOneByOne: so a window's edges are looked at; few of its tiles are at both, so that a comparison
// a score does.
template <class Config, class Link, class Number, bool kOneByOne = arch::kLooksAtEdges>
class RowMask : public RowBlocks<Config::Rules::kBlocks>,
                RowRulesOf<Config, Link, Number>,
                RowFunctions<typename Config::Rules, Config::kTilesM * Link::kLaneRows> {
  using OfRules = RowRulesOf<Config, Link, Number>;
  using Rules = typename Config::Rules;
  using Sight = wmma::Sight<Config::kCausal, Rules>;
  static constexpr int kLaneRows = Config::kTilesM * Link::kLaneRows;
  using OfFunctions = RowFunctions<Rules, kLaneRows>;
  static constexpr bool kThere = !kIsNone<typename Config::Mask>;
  static constexpr bool kModified = Rules::kChanges || Rules::kHides;
  static constexpr bool kTogether = OfRules::kTogether && !kThere && !kModified;
  static constexpr int kWaveRows = Config::kTilesM * Link::kRows;
  static constexpr bool kEdgesApart = kOneByOne && Rules::kWindowed && !kThere && !Rules::kScored && !kModified;

 public:
  template <class Arguments, class Place>
  WMMA_DEVICE RowMask(const Arguments& p, const Place& place, uint32_t lane, uint32_t first_row, int keys_end)
      : OfRules(p), OfFunctions(p, place), seen_begin_(0), seen_end_(keys_end), stride_(p.mask.column_stride) {
    const auto query_of = [&](uint32_t row) { return place.query(row < place.rows ? row : place.rows - 1); };
    if constexpr (Config::kCausal) seen_end_ = Sight::keys_end(p, query_of(first_row), 0, keys_end);
    if constexpr (Rules::kWindowed) {
      seen_begin_ = Sight::first_key(p, query_of(first_row + kWaveRows - 1), 0, keys_end);
    }
    if constexpr (Rules::kDrops) this->threshold = p.rules.threshold;
#pragma unroll
    for (int i = 0; i < kLaneRows; ++i) {
      uint32_t row = first_row + i / Link::kLaneRows * Link::kRows + Link::row(lane, i % Link::kLaneRows);
      row = row < place.rows ? row : place.rows - 1;
      end_[i] = keys_end;
      if constexpr (Config::kCausal) {
        const int64_t seen = static_cast<int64_t>(place.query(row)) + p.shift + 1;
        end_[i] = seen < keys_end ? static_cast<int>(seen) : keys_end;
      }
      if constexpr (Rules::kWindowed) this->begin[i] = Sight::first_key(p, place.query(row), 0, keys_end);
      if constexpr (Rules::kSlopes) {
        this->slopes[i] = OfRules::slope_of(p, [&](const AttentionOperand& x) { return place.offset(x, row); });
        this->places[i] = static_cast<int>(place.query(row) + p.rules.diagonal);
      }
      if constexpr (Rules::kDrops) {
        this->drawn[i] = dropout_row_of(p, place.batch, place.head_of(row), place.query(row));
      }
      if constexpr (kModified) {
        this->heads[i] = static_cast<int>(place.head_of(row));
        this->queries[i] = static_cast<int>(place.query(row));
      }
      if constexpr (kThere) rows_[i] = static_cast<const Stored*>(p.mask.data) + place.offset(p.mask, row);
    }
  }

  // The keys that all of the wave's rows see: from here, to before there.
  WMMA_DEVICE int seen_begin() const { return seen_begin_; }
  WMMA_DEVICE int seen_end() const { return seen_end_; }

  // What scores are multiples of, in our unit, once they have been `apply`-ed to.
  WMMA_DEVICE Number unit(Number factor) const {
    if constexpr (kCountsFromCap<Config>) {
      return this->twice_the_cap();
    } else {
      return kThere || Rules::kScored ? Number(1) : factor;
    }
  }

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
        hide<kSums>(scores, m, first_key, lane, [&](int key, int i) { return key >= this->begin[i]; });
      }
      return;
    }
    const uint32_t first_place = Link::place(lane, 0);
    Number steps[kLaneRows];  // from the lane's first key to where its rows' queries stand
    if constexpr (Rules::kSlopes) {
#pragma unroll
      for (int i = m * Link::kLaneRows; i < (m + 1) * Link::kLaneRows; ++i) {
        steps[i] = static_cast<Number>(this->places[i] - first_key - static_cast<int>(first_place));
      }
    }
    if constexpr (kTogether) {
#pragma unroll
      for (int f = 0; f < kSums; ++f) {  // of keys that do not count one may be NaN
        const int key = first_key + static_cast<int>(Link::place(lane, f));
        const int i = m * Link::kLaneRows + Link::row_of(f);
        if (kBounded && !this->narrowed(key < end_[i], key, i)) scores[f] = Number(0);
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
      const bool inside = !kBounded || this->narrowed(key < end_[i], key, i);
      if constexpr (kThere || (Rules::kScored && !kCountsFromCap<Config>)) {
        Number x;
        if constexpr (kTogether) {
          x = this->inverted_score(scores[f]);
        } else {
          x = this->score(scores[f], factor);
        }
        if constexpr (Rules::kSlopes)
          x = OfRules::distant(x, this->slopes[i], steps[i] - Number(Link::place(lane, f) - first_place));
        if constexpr (Rules::kChanges) x = this->changed(x, key, i);
        if constexpr (kThere) {
          if (inside && !add_mask(x, rows_[i] + key * stride_)) x = kNever;
        }
        if constexpr (Rules::kHides && (kBounded || !Rules::kBlocks)) {
          const bool shown = this->shows(key, i);  // whatever `whole` is: nothing waits for a branch
          x = this->whole || shown ? x : kNever;
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
      const DropoutRow& row = this->drawn[m * Link::kLaneRows + Link::row_of(f)];
      const unsigned key = static_cast<unsigned>(first_key) + Link::place(lane, f);
      weights[f] = keeps(row, key, this->threshold) ? weights[f] : Number(0);
    }
  }

 private:
  using Stored = typename Config::Mask;

  template <int kSums, class Inside>
  static WMMA_DEVICE void hide(Number* scores, int m, int first_key, uint32_t lane, const Inside& inside) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int key = first_key + static_cast<int>(Link::place(lane, f));
      scores[f] = inside(key, m * Link::kLaneRows + Link::row_of(f)) ? scores[f] : -Softmax<Number>::infinity();
    }
  }

  const Stored* rows_[kLaneRows];
  int end_[kLaneRows];
  int seen_begin_;
  int seen_end_;
  int64_t stride_;
};

}  // namespace wmma
