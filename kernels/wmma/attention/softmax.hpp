// The softmax of attention's forward kernel as keys come tile by tile: each row's results are relative to the largest
// score so far, and follow it. RunningSoftmax is one of three:
//
//   FollowingSoftmax   a row's results follow before its scores become weights
//   SoftmaxAtOnce      the same, but where all keys count no score is looked at: sums of weights tell that one grew
//   DeferredSoftmax    results follow later, when the products that are under way meanwhile are there
#pragma once

#include <wmma/attention/terms/cap.hpp>
#include <wmma/attention/weights.hpp>

namespace wmma {

// A wave's rows: results not yet divided, and of each of a lane's rows the largest score and the lane's part of the sum
// of weights.
template <class Config, class Link, bool kPingPong>
class SoftmaxRows {
 protected:
  using T = typename Config::Element;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Rules = typename Config::Rules;
  // Where no branch may scale results, all are scaled each time.
  static constexpr int kRescaleThreshold = kSame<Number, float> && Config::kSlice <= arch::kMostScaledColumns ? 8 : 0;

 public:
  // Of small heads a tile's weights take longer than its products: when the last are computed the matrix unit rests,
  // and packed instructions sum them up, which do not run beside its own.
  static constexpr bool kWeightsAreLonger =
      arch::kProductRate >= 2 && kPingPong && Config::kDepth + Config::kSlice <= 128;
  // Whether all but the first weights are packed beside the products that they are for. gfx950's products take so
  // little time that the weights of larger heads, too, are the longer turn.
  static constexpr bool kPacksBeside = arch::kProductRate >= 4 || kWeightsAreLonger;

 protected:
  // Of a part's results that are stored at once: its row has whole ones, as that of the results has.
  static constexpr int kPartVec = detail::lower(Config::kOutVec, 4);
  using Cut = CutWeights<T, Number, kWeightsAreLonger, Rules::kDrops || Rules::kSinks>;
  static constexpr Number kExcess = Cut::kExcess;
  static constexpr Number kLogExcess = Cut::kLogExcess;
  static constexpr int kOutSums = Config::kSlice / Link::kCols * Link::kElements;
  // Rows may be relative to less than their largest score, so that weights of 8 bits have all of their numbers.
  static constexpr int kFp8Offset = Rules::kScaled ? 8 : 0;
  // Whether what a row's scores are relative to is kept as it is added to them.
  static constexpr bool kKeepsLeast = kPingPong && kRescaleThreshold > 0;

 public:
  // Whether weights are cut off, and whether keys that all count can be weighed `at_once`.
  static constexpr bool kCuts = Cut::kCuts;
  static constexpr bool kAtOnce = kCuts && !kWeightsAreLonger && kRescaleThreshold > 0 &&
                                  kIsNone<typename Config::Mask> && !Rules::kScored && !Rules::kDrops;

  Number out[Config::kTilesM][kOutSums];

  // What scores are multiples of, found anew: to know it all the while takes a register.
  WMMA_DEVICE void know(Number unit) { unit_ = unit; }

  // Scores will be multiples of `unit`, in our unit.
  WMMA_DEVICE void clear(Number unit) {
    unit_ = unit;
    if constexpr (kFp8Offset > 0) fp8_offset_ = finite(Number(kFp8Offset) * Math::inverse(unit));
    far_ = 0;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < kOutSums; ++i) out[m][i] = Number(0);
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        largest_[m][i] = -Math::infinity();
        sum_[m][i] = Number(0);
      }
      keep_least(m);
    }
  }

  // A sink is as a key that was seen before all others and whose value is 0: all of a row's lanes know it, one counts
  // it.
  template <class Arguments, class Place>
  WMMA_DEVICE void begin_with_sinks(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        const uint32_t row = first_row + m * Link::kRows + Link::row(lane, i);
        const uint32_t there = row < place.rows ? row : place.rows - 1;
        const Number sink = Rules::template sink_of<Number, Math>(p, place, there);
        largest_[m][i] = finite(sink * inverse_unit());
        const bool is_far_number = is_far(largest_[m][i]) && arch::abs(sink) < Math::infinity();
        const Number weight = is_far_number ? Number(1) : Math::ratio(sink, below(largest_[m][i]) * unit_);
        sum_[m][i] = Link::place(lane, 0) == 0 ? kExcess * weight : Number(0);
      }
      keep_least(m);
    }
    find_far();
  }

  // Which scores count; afterwards they are multiples of what this returns, in our unit.
  template <bool kBounded, int kSums, class Mask>
  static WMMA_DEVICE Number mask(Number (&scores)[Config::kTilesM][kSums], const Mask& mask, int key, uint32_t lane,
                                 Number factor) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) mask.template apply<kBounded, kSums>(scores[m], m, key, lane, factor);
    return score_unit<Config>(mask, factor);
  }

  WMMA_DEVICE void multiply(Number factor) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) out[m][f] *= factor;
    }
  }

  // The results, divided, where they are, and lse.
  template <class Arguments, class Place>
  WMMA_DEVICE void divide(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) {
    Number factors[Config::kTilesM][Link::kLaneRows];
    bool blind[Config::kTilesM][Link::kLaneRows];
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      blind[m][i] = sum == Number(0);  // NaN is not
      factors[m][i] = Math::share(sum);
      if (Link::place(lane, 0) != 0 || first_row + line >= place.rows) return;
      *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + place.offset(p.lse, first_row + line)) =
          blind[m][i] ? -Math::infinity() : Math::log_sum(half_score(p, largest), sum);
    });
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) {
        const int i = Link::row_of(f);
        out[m][f] = blind[m][i] ? Number(0) : out[m][f] * factors[m][i];
      }
    }
  }

  // The results, divided, and lse.
  template <class Arguments, class Place>
  WMMA_DEVICE void store(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) const {
    const int first_column = place.slice * Config::kSlice;
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      const uint32_t row = first_row + line;
      if (row >= place.rows) return;
      const bool blind = sum == Number(0);  // NaN is not
      if (Link::place(lane, 0) == 0 && place.slice == 0) {
        *(static_cast<Number*>(const_cast<void*>(p.lse.data)) + place.offset(p.lse, row)) =
            blind ? -Math::infinity() : Math::log_sum(half_score(p, largest), sum);
      }
      const Number factor = blind ? Number(0) : Math::share(sum);
      T* to = static_cast<T*>(const_cast<void*>(p.out.data)) + place.offset(p.out, row);
      store_sums<Link, Config::kOutVec, kOutSums>(to, p.out.column_stride, p.ev, first_column, lane, i,
                                                  [&](int f) { return blind ? Number(0) : out[m][f] * factor; });
    });
  }

  // Where keys are split, what attention_combine puts together: half of the largest score, the sum of weights, and the
  // results.
  template <class Arguments, class Place>
  WMMA_DEVICE void store_partial(const Arguments& p, const Place& place, uint32_t split, uint32_t first_row,
                                 uint32_t lane) const {
    store_parts_of_rows(p, place, first_row, lane, [&](uint32_t row) {
      const int64_t index = (static_cast<int64_t>(split) * p.batch + place.batch) * p.heads + place.head_of(row);
      return index * most_queries(p) + place.query(row);
    });
  }
  // `index_of` a row: where its part stands.
  template <class Arguments, class Place, class IndexOf>
  WMMA_DEVICE void store_parts_of_rows(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane,
                                       const IndexOf& index_of) const {
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      const uint32_t row = first_row + line;
      if (row >= place.rows) return;
      Number* to = static_cast<Number*>(p.partial) + index_of(row) * (kPartHead + p.ev);
      store_part(to + kPartHead - 2, m, i, half_score(p, largest), sum, p.ev, place.slice, lane);
    });
  }

  // The same for the blocks of a cluster, in shared memory, rows `pitch` apart.
  template <class Arguments>
  WMMA_DEVICE void store_parts(const Arguments& p, Number* to, int pitch, uint32_t lane) const {
    each_row(lane, [&](int m, int i, uint32_t line, Number largest, Number sum) {
      store_part(to + line * pitch, m, i, half_score(p, largest), sum, Config::kSlice, 0, lane);
    });
  }

 protected:
  // While a row has seen no key, its weights are those of −∞ beside 0.
  static WMMA_DEVICE Number below(Number largest) { return largest == -Math::infinity() ? Number(0) : -largest; }
  // What is added to a row's scores before they become weights: nothing where they are differences.
  static WMMA_DEVICE Number least_of(Number largest, Number factor) {
    const Number score = largest * factor;
    const Number least = Math::kFused ? (is_near(score) ? -score : Number(0)) : below(largest);
    return kCuts ? least + kLogExcess * Math::kTwo : least;
  }
  WMMA_DEVICE void keep_least(int m) {
    if constexpr (kKeepsLeast) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) least_[m][i] = least_of(largest_[m][i], unit_);
    }
  }

  // A row's largest score, if infinite as the largest finite one: weights of infinite scores are infinite beside it.
  static WMMA_DEVICE Number finite(Number largest) { return Math::min(largest, Math::most()); }
  WMMA_DEVICE Number inverse_unit() const { return finite(Math::inverse(unit_)); }
  // A row is far whose largest score in our unit is. One that has seen no key is neither.
  static WMMA_DEVICE bool is_near(Number score) { return arch::abs(score) < Math::kFar; }
  WMMA_DEVICE bool is_far(Number largest) const {
    return Math::kFused && !is_near(largest * unit_) && largest != -Math::infinity();
  }
  WMMA_DEVICE void find_far() {
    far_ = 0;
    if constexpr (!Math::kFused) return;
    bool far = false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) far = far || is_far(largest_[m][i]);
    }
    far_ = arch::ballot(far);
  }
  // Scores of far rows become what they are above the largest one, before they are scaled.
  template <int kSums>
  WMMA_DEVICE void become_differences(Number (&scores)[kSums], int m) const {
    Number shift[Link::kLaneRows];
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) shift[i] = is_far(largest_[m][i]) ? largest_[m][i] : Number(0);
#pragma unroll
    for (int f = 0; f < kSums; ++f) scores[f] -= shift[Link::row_of(f)];
  }

  static WMMA_DEVICE Number larger(Number x, Number y) { return Math::max(x, y); }
  template <int kSums>
  static WMMA_DEVICE Number most_of(const Number (&scores)[kSums], int row) {
    Number most = -Math::infinity();
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      if (Link::row_of(f) == row) most = Math::max(most, scores[f]);
    }
    return most;
  }
  // What a row is relative to follows the largest score seen, or stays; gives what its results are multiplied by.
  WMMA_DEVICE Number follow_row(int m, int i, Number seen, bool follows) {
    const Number largest = follows ? Math::max(largest_[m][i], finite(seen)) : largest_[m][i];
    const Number change = Math::change(largest_[m][i], below(largest), unit_);
    largest_[m][i] = largest;
    return change;
  }

  // Half of a row's largest score, in our unit.
  template <class Arguments>
  WMMA_DEVICE Number half_score(const Arguments& p, Number largest) const {
    const Number half = largest * (Number(0.5) * unit_);
    if constexpr (kCountsFromCap<Config>) {
      return half + Number(0.5) * cap_of<Number, Math>(p);
    } else {
      return half;
    }
  }

  // Each of a lane's rows, by its place among the wave's: its largest score and its sum of weights.
  template <class Act>
  WMMA_DEVICE void each_row(uint32_t lane, const Act& act) const {
    const auto plus = [](Number x, Number y) { return x + y; };
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        Number sum = Link::fold(sum_[m][i], plus);
        if (kCuts) sum *= Number(1) / kExcess;
        act(m, i, m * Link::kRows + Link::row(lane, i), largest_[m][i], sum);
      }
    }
  }

  WMMA_DEVICE void store_part(Number* to, int m, int i, Number largest, Number sum, int columns, uint32_t slice,
                              uint32_t lane) const {
    if (Link::place(lane, 0) == 0 && slice == 0) {
      to[0] = largest;
      to[1] = sum;
    }
    const bool blind = sum == Number(0);
    store_sums<Link, kPartVec, kOutSums>(to + 2, 1, columns, slice * Config::kSlice, lane, i,
                                         [&](int f) { return blind ? Number(0) : out[m][f]; });
  }

  Number largest_[Config::kTilesM][Link::kLaneRows];
  Number sum_[Config::kTilesM][Link::kLaneRows];
  Number least_[Config::kTilesM][kKeepsLeast ? Link::kLaneRows : 1];
  Number start_[Config::kTilesM][kAtOnce ? Link::kElements : 1];
  Number unit_;
  Number fp8_offset_;
  uint64_t far_;  // lanes with far rows
};

// Results follow before scores become weights.
template <class Config, class Link, bool kPingPong>
class FollowingSoftmax : public SoftmaxRows<Config, Link, kPingPong> {
 protected:
  using Rows = SoftmaxRows<Config, Link, kPingPong>;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Rows::become_differences, Rows::far_, Rows::find_far, Rows::follow_row, Rows::kKeepsLeast, Rows::kOutSums,
      Rows::kRescaleThreshold, Rows::kWeightsAreLonger, Rows::keep_least, Rows::larger, Rows::largest_, Rows::least_,
      Rows::least_of, Rows::most_of, Rows::sum_;

 public:
  // Scores, multiples of `factor`, become weights relative to the largest so far; what was summed up before follows.
  // `beside(i)` is done before the i-th score of a lane's first tile of rows does.
  template <int kSums, class Beside>
  WMMA_DEVICE void weigh(Number (&scores)[Config::kTilesM][kSums], Number factor, const Beside& beside) {
    follow(scores, factor, [] {});
    exponentiate(scores, factor, beside);
  }

 protected:
  // What rows are relative to follows their largest score, and what was summed up before follows it: at once, or,
  // where lanes are asked quickly, once the score has grown by kRescaleThreshold, so that weights stay below
  // 2^kRescaleThreshold.
  template <int kSums, class Then>
  WMMA_DEVICE void follow(Number (&scores)[Config::kTilesM][kSums], Number factor, const Then& then) {
    Number most[Config::kTilesM][Link::kLaneRows];
    bool grew = false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        most[m][i] = most_of(scores[m], i);
        grew = grew || grows(most[m][i] - largest_[m][i], factor);
      }
    }
    if (kRescaleThreshold > 0 && (arch::ballot(grew) | far_) == 0) return;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      Number factors[Link::kLaneRows];
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        const Number seen = Link::fold(most[m][i], larger);
        // A row follows only its own scores: its results are the same whatever the wave's others are.
        factors[i] = follow_row(m, i, seen, kRescaleThreshold == 0 || grows(seen - largest_[m][i], factor));
        sum_[m][i] *= factors[i];
      }
      keep_least(m);
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) this->out[m][f] *= factors[Link::row_of(f)];
    }
    find_far();
    if (__builtin_expect(far_ != 0, 0)) {
#pragma unroll
      for (int m = 0; m < Config::kTilesM; ++m) become_differences(scores[m], m);
    }
    then();
  }
  // Whether a row follows a score that is so much larger than its largest. Where none was seen, −∞ has no difference.
  static WMMA_DEVICE bool grows(Number difference, Number factor) {
    return difference * factor > Number(kRescaleThreshold) * Math::kTwo;
  }

  template <int kSums, class Beside>
  WMMA_DEVICE void exponentiate(Number (&scores)[Config::kTilesM][kSums], Number factor, const Beside& beside) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      Number least[Link::kLaneRows];
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        if constexpr (kKeepsLeast) {
          least[i] = least_[m][i];
        } else {
          least[i] = least_of(arch::unshared(largest_[m][i]), factor);
        }
      }
#pragma unroll
      for (int f = 0; f < kSums; ++f) {
        const int i = Link::row_of(f);
        if (m == 0) beside(f);
        scores[m][f] = Math::weight(scores[m][f], factor, least[i]);
        if (!kWeightsAreLonger) sum_[m][i] += scores[m][f];
      }
      if constexpr (kWeightsAreLonger) {
        arch::schedule_barrier();
        Number parts[4];
#pragma unroll
        for (int f = 0; f < kSums; ++f) parts[f % 4] = f < 4 ? scores[m][f] : parts[f % 4] + scores[m][f];
        sum_[m][0] += (parts[0] + parts[1]) + (parts[2] + parts[3]);
      }
      if (m + 1 < Config::kTilesM) arch::follows(largest_[m + 1][0], sum_[m][0]);
    }
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) arch::settle(sum_[m][i]);
    }
  }
};

// Where all keys count, weights are computed as if no row had to follow. Where one has, which their sum tells, the tile
// is computed again.
template <class Config, class Link, bool kPingPong>
class SoftmaxAtOnce : public FollowingSoftmax<Config, Link, kPingPong> {
  using Following = FollowingSoftmax<Config, Link, kPingPong>;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Following::find_far, Following::follow_row, Following::inverse_unit, Following::is_far, Following::is_near,
      Following::kLogExcess, Following::kOutSums, Following::kRescaleThreshold, Following::larger, Following::most_of,
      Following::largest_, Following::start_, Following::sum_, Following::unit_;

 public:
  WMMA_DEVICE void clear(Number unit) {
    Following::clear(unit);
    start();
  }
  template <int kSums, class Beside>
  WMMA_DEVICE void weigh(Number (&scores)[Config::kTilesM][kSums], Number factor, const Beside& beside) {
    this->follow(scores, factor, [&] { start(); });
    this->exponentiate(scores, factor, beside);
  }

  // Keys that all count are weighed at once. Their scores start from what they are relative to, so that it is
  // subtracted when they are there; and no score is looked at: that one is too large for it the sum of the weights
  // tells.
  template <int kSums>
  WMMA_DEVICE void begin_at_once(Number (&scores)[Config::kTilesM][kSums]) const {
    begin_from(scores, start_);
  }
  // Such scores become weights. False where a row's are too large; nothing is summed up then, and `sums` tells which.
  template <int kSums>
  WMMA_DEVICE bool weigh_at_once(Number (&weights)[Config::kTilesM][kSums], Number (&sums)[Config::kTilesM],
                                 const Number (&scores)[Config::kTilesM][kSums], Number factor, bool anyway) {
    constexpr int kParts = 4;
    bool large = false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kSums; ++f) weights[m][f] = scores[m][f] * factor;
      arch::schedule_barrier();  // they pair
#pragma unroll
      for (int f = 0; f < kSums; ++f) weights[m][f] = Math::exp(weights[m][f]);
      Number parts[kParts];
#pragma unroll
      for (int f = 0; f < kSums; ++f) {
        parts[f % kParts] = f < kParts ? weights[m][f] : parts[f % kParts] + weights[m][f];
      }
      sums[m] = (parts[0] + parts[1]) + (parts[2] + parts[3]);
      large = large || is_large<kSums>(sums[m]);
    }
    if (!anyway && arch::ballot(large) != 0) return false;
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) sum_[m][0] += sums[m];
    return true;
  }
  // Where they were, scores begin again: with what is known of rows that have seen a key, so that those that stay have
  // the same bits.
  template <int kSums>
  WMMA_DEVICE void begin_again(Number (&scores)[Config::kTilesM][kSums]) const {
    Number from[Config::kTilesM][Link::kElements];
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) arch::spread<Link::kElements>(from[m], begun_from(m));
    begin_from(scores, from);
  }
  // Then what rows with too large ones are relative to, and no others, follows their scores. Results are to follow by
  // `factors`, in a branch of its own: where another has products too, compilers copy them each time.
  template <int kSums>
  WMMA_DEVICE void raise(Number (&scores)[Config::kTilesM][kSums], Number (&factors)[Config::kTilesM],
                         const Number (&sums)[Config::kTilesM]) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
      Number most = most_of(scores[m], 0);
      const Number from = begun_from(m);
      const bool follows = Link::fold(Number(is_large<kSums>(sums[m])), larger) != Number(0);
      most = Link::fold(most, larger);
      factors[m] = follow_row(m, 0, most - from, follows);
      sum_[m][0] *= factors[m];
      Number change = follows ? start_of(m) - from : Number(0);
      // A far row's become what they are above its largest, which may be one of them.
      if (is_far(largest_[m][0])) change = from == Number(0) ? -largest_[m][0] : -most;
#pragma unroll
      for (int f = 0; f < kSums; ++f) scores[m][f] += change;
    }
  }
  WMMA_DEVICE void rescale_all(const Number (&factors)[Config::kTilesM]) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kOutSums; ++f) this->out[m][f] *= factors[m];
    }
    find_far();
    start();
  }

 private:
  // Whether a lane's kSums weights may be larger than 2^kRescaleThreshold. NaN is.
  template <int kSums>
  static WMMA_DEVICE bool is_large(Number sum) {
    return !(sum <= Number(kSums << kRescaleThreshold));
  }

  // Where scores start from. Not where the row has seen no key, or is far: all of its weights are too large then.
  WMMA_DEVICE Number start_of(int m) const {
    const bool near = is_near(largest_[m][0] * unit_);
    return near ? arch::fma(kLogExcess, inverse_unit(), -largest_[m][0]) : Math::infinity();
  }
  // Where they start once more.
  WMMA_DEVICE Number begun_from(int m) const { return start_[m][0] == Math::infinity() ? Number(0) : start_[m][0]; }
  template <int kSums, int kFrom>
  static WMMA_DEVICE void begin_from(Number (&scores)[Config::kTilesM][kSums],
                                     const Number (&from)[Config::kTilesM][kFrom]) {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) {
#pragma unroll
      for (int f = 0; f < kSums; ++f) scores[m][f] = from[m][f % kFrom];
    }
  }
  WMMA_DEVICE void start() {
#pragma unroll
    for (int m = 0; m < Config::kTilesM; ++m) arch::spread<Link::kElements>(start_[m], start_of(m));
  }
};

// Results follow when the products that are under way meanwhile are there.
template <class Config, class Link, bool kPingPong>
class DeferredSoftmax : public SoftmaxRows<Config, Link, kPingPong> {
  using Rows = SoftmaxRows<Config, Link, kPingPong>;
  using Number = typename Link::Sum;
  using Math = SoftmaxOf<Config, Number>;
  using Rows::become_differences, Rows::below, Rows::finite, Rows::inverse_unit, Rows::is_far, Rows::is_near,
      Rows::kFp8Offset, Rows::fp8_offset_, Rows::kOutSums, Rows::larger, Rows::largest_, Rows::least_of, Rows::most_of,
      Rows::sum_;
  // A soft cap bounds how far a row's scores are apart. Where bfloat16 has the weights, whose exponents are float's,
  // what a row is relative to may be left as the first keys had it: kCapHeadroom above them, so that nothing overflows.
  static constexpr bool kBoundedScores = kCountsFromCap<Config> && kSame<typename Config::Element, bf16_t>;
  static constexpr int kCapHeadroom = 40;
  static constexpr int kMostApart = 150;
  // Beside a mask the vote on far rows is taken before lanes compare their scores: on an H200 4 x 32 x 2048 x 64 with
  // one of bool took 864 µs, 1072 otherwise; without a mask it is taken afterwards, 525 µs and 538 of 4 x 16 x 4096
  // x 64.
  static constexpr bool kVotesEarly = !kIsNone<typename Config::Mask>;

 public:
  // Whether rows need no second look at their scores.
  template <class Arguments>
  static WMMA_DEVICE bool looks_once(const Arguments& p) {
    if constexpr (kBoundedScores) return Number(2) * cap_of<Number, Math>(p) <= Number(kMostApart);
    return false;
  }

  // What rows are relative to follows the largest score; their results have to follow by these factors.
  template <int kSums>
  WMMA_DEVICE void look(Number (&scores)[kSums], Number factor, Number (&factors)[Link::kLaneRows], bool once) {
    if constexpr (kBoundedScores) {
      if (once) {
        look_once(scores);
#pragma unroll
        for (int i = 0; i < Link::kLaneRows; ++i) factors[i] = Number(1);
        return;
      }
    }
    Number most[Link::kLaneRows];
    bool far = false;
    if constexpr (kVotesEarly) {
#pragma unroll
      for (int i = 0; i < Link::kLaneRows; ++i) {
        most[i] = most_of(scores, i);
        far = far || is_far(Math::max(largest_[0][i], most[i]));
      }
    }
    bool differs = kVotesEarly && Math::kFused && arch::ballot(far) != 0;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      if constexpr (!kVotesEarly) most[i] = most_of(scores, i);
      const Number seen = finite(Link::fold(most[i], larger));
      const Number largest = Math::max(largest_[0][i], kFp8Offset > 0 ? seen - this->fp8_offset_ : seen);
      factors[i] = Math::change(largest_[0][i], below(largest), factor);
      largest_[0][i] = largest;
      sum_[0][i] *= factors[i];
      if constexpr (!kVotesEarly) far = far || !is_near(largest * factor);
    }
    if constexpr (!kVotesEarly && Math::kFused) differs = arch::ballot(far) != 0;
    if (__builtin_expect(differs, 0)) become_differences(scores, 0);
  }
  template <int kSums>
  WMMA_DEVICE void look_once(const Number (&scores)[kSums]) {
    bool known = true;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) known = known && largest_[0][i] != -Math::infinity();
    if (arch::ballot(!known) == 0) return;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      const Number largest = finite(largest_of(scores, i) + Number(kCapHeadroom) * inverse_unit());
      largest_[0][i] = largest_[0][i] == -Math::infinity() ? largest : largest_[0][i];
    }
  }
  template <int kSums>
  WMMA_DEVICE void exponentiate(Number (&scores)[kSums], Number factor) {
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int i = Link::row_of(f);
      scores[f] = Math::weight(scores[f], factor, least_of(largest_[0][i], factor));
      sum_[0][i] += scores[f];
    }
  }
  WMMA_DEVICE void rescale(const Number (&factors)[Link::kLaneRows]) {
#pragma unroll
    for (int f = 0; f < kOutSums; ++f) this->out[0][f] *= factors[Link::row_of(f)];
  }

  // Results follow the factors and a part of them is added, that was not there yet when these were found.
  WMMA_DEVICE void add(const Number (&part)[kOutSums], const Number (&factors)[Link::kLaneRows]) {
#pragma unroll
    for (int f = 0; f < kOutSums; ++f) this->out[0][f] = arch::fma(this->out[0][f], factors[Link::row_of(f)], part[f]);
  }

 private:
  template <int kSums>
  static WMMA_DEVICE Number largest_of(const Number (&scores)[kSums], int row) {
    return Link::fold(most_of(scores, row), larger);
  }
};

// When a loop's products are there that its results are made of.
enum class Products { kBefore, kInPingPong, kUnderWay };

template <class Config, class Link, Products kProducts, bool kPingPong = kProducts == Products::kInPingPong>
using RunningSoftmax =
    Choose<kProducts == Products::kUnderWay, DeferredSoftmax<Config, Link, false>,
           Choose<SoftmaxRows<Config, Link, kPingPong>::kAtOnce, SoftmaxAtOnce<Config, Link, kPingPong>,
                  FollowingSoftmax<Config, Link, kPingPong>>>;

}  // namespace wmma
