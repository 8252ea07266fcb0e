// A bool mask as sm_90a's loops look at it: of 128 keys of a row (for gradients, queries of a key) each of the four
// lanes that have its scores has a word, a bit a score in their order. A mask that says the same to all queries becomes
// words by votes of the lanes; of others words are made first (passes/mask_words.hpp).
#pragma once

#include <wmma/attention/math.hpp>
#include <wmma/attention/rows/dense.hpp>

namespace wmma {

// Whether a mask hides keys from all queries, or from some.
enum class Hidden { kNone, kKeys, kPairs };

// Which lane of a row's, and which bit of its word, a column has.
struct LaneWords {
  static constexpr int kColumns = 128;
  static constexpr int kLanes = 4;
  static WMMA_CONSTEXPR int lane_of(int column) { return column % 8 / 2; }
  static WMMA_CONSTEXPR int bit_of(int column) { return column / 8 * 2 + column % 2; }

  template <class Link, int kSums>
  static WMMA_CONSTEXPR bool are_of() {
    for (uint32_t lane = 0; lane < arch::kWaveSize; ++lane) {
      for (int f = 0; f < kSums; ++f) {
        const int column = static_cast<int>(Link::place(lane, f));
        if (lane_of(column) != static_cast<int>(lane % kLanes) || bit_of(column) != bit_of<Link>(f)) return false;
      }
    }
    return true;
  }
  // Of a lane's score, the same in all lanes.
  template <class Link>
  static WMMA_CONSTEXPR int bit_of(int f) {
    return bit_of(static_cast<int>(Link::place(0, f)));
  }
};

// Where the words lie of 128 columns from `column` on, of the first row.
template <class Arguments>
WMMA_DEVICE const uint32_t* mask_words_of(const Arguments& p, int batch, int head, int column) {
  const int matrix = batch * p.words.batch_stride + head * p.words.head_stride;
  const int64_t row = matrix + column / LaneWords::kColumns * p.words.rows;
  return static_cast<const uint32_t*>(p.words.data) + row * LaneWords::kLanes;
}

// Four keys' bytes of a mask, of which so many are there.
constexpr int kKeysOfWord = 4;
WMMA_DEVICE uint32_t four_keys_of(const uint8_t* from, int64_t stride, int left) {
  uint32_t four = 0;
  if (stride == 1 && reinterpret_cast<uint64_t>(from) % kKeysOfWord == 0 && kKeysOfWord <= left) {
    arch::copy<1>(&four, reinterpret_cast<const uint32_t*>(from));
  } else {
#pragma unroll
    for (int i = 0; i < kKeysOfWord; ++i) {
      if (i < left) four |= static_cast<uint32_t>(from[i * stride]) << (8 * i);
    }
  }
  return four;
}

// What a lane of the forward loop asks for before a tile's products, and looks at afterwards.
template <Hidden kHidden, class Link, int kKeys>
class HiddenKeys {
 public:
  template <class Arguments, class Place>
  WMMA_DEVICE void begin(const Arguments&, const Place&, uint32_t, uint32_t) {}
  template <class Arguments>
  WMMA_DEVICE void ask(const Arguments&, int) {}
  template <int kSums>
  WMMA_DEVICE void hide(float (&)[kSums], int) const {}
};

template <class Link, int kKeys>
class HiddenKeys<Hidden::kKeys, Link, kKeys> {
 public:
  template <class Arguments, class Place>
  WMMA_DEVICE void begin(const Arguments& p, const Place& place, uint32_t, uint32_t lane) {
    mask_ = matrix_of<const uint8_t>(p.mask, place.batch, place.head) + kAsked * lane * p.mask.column_stride;
    left_ = p.skv - static_cast<int>(kAsked * lane);
  }
  template <class Arguments>
  WMMA_DEVICE void ask(const Arguments& p, int key) {
    asked_ = four_keys_of(mask_ + key * p.mask.column_stride, p.mask.column_stride, left_ - key);
  }
  template <int kSums>
  WMMA_DEVICE void hide(float (&scores)[kSums], int) const {
    static_assert(LaneWords::are_of<Link, kSums>(), "as words have the scores");
    uint32_t votes[kAsked];
#pragma unroll
    for (int i = 0; i < kAsked; ++i) {
      votes[i] = static_cast<uint32_t>(arch::ballot((asked_ >> (8 * i) & 0xff) != 0));
    }
    // Key 4·l + i is bit l of vote i. A lane has two neighbours of every eight keys: of two votes every second bit.
    const uint32_t lane = lane_id() % LaneWords::kLanes;
    const bool odd = lane % 2 != 0;
    const uint32_t even_keys = (odd ? votes[2] : votes[0]) >> (lane / 2);
    const uint32_t odd_keys = (odd ? votes[3] : votes[1]) >> (lane / 2);
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const int bit = LaneWords::bit_of<Link>(f);
      const uint32_t word = bit % 2 == 0 ? even_keys : odd_keys;
      scores[f] = (word >> (bit / 2 * 2) & 1) != 0 ? scores[f] : -Softmax<float>::infinity();
    }
  }

 private:
  static constexpr int kAsked = kKeysOfWord;  // by each lane
  static_assert(kAsked * arch::kWaveSize >= kKeys, "together a tile's");
  const uint8_t* mask_;
  int left_;
  uint32_t asked_;
};

template <class Link, int kKeys>
class HiddenKeys<Hidden::kPairs, Link, kKeys> {
 public:
  template <class Arguments, class Place>
  WMMA_DEVICE void begin(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane) {
    static_assert(LaneWords::kColumns % kKeys == 0, "a tile's bits are in one word");
    words_ = mask_words_of(p, place.batch, place.head, 0) + (first_row + Link::row(lane, 0)) * LaneWords::kLanes +
             lane % LaneWords::kLanes;
  }
  template <class Arguments>
  WMMA_DEVICE void ask(const Arguments& p, int key) {
    const uint32_t* from = words_ + static_cast<int64_t>(key / LaneWords::kColumns) * p.words.rows * LaneWords::kLanes;
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      asked_[i] = from[(Link::row(0, i) - Link::row(0, 0)) * LaneWords::kLanes];
    }
  }
  template <int kSums>
  WMMA_DEVICE void hide(float (&scores)[kSums], int key) const {
    static_assert(LaneWords::are_of<Link, kSums>(), "as words have the scores");
    uint32_t words[Link::kLaneRows];
#pragma unroll
    for (int i = 0; i < Link::kLaneRows; ++i) {
      words[i] = asked_[i] >> LaneWords::bit_of(key % LaneWords::kColumns);
    }
#pragma unroll
    for (int f = 0; f < kSums; ++f) {
      const bool is_shown = (words[Link::row_of(f)] >> LaneWords::bit_of<Link>(f) & 1) != 0;
      scores[f] = is_shown ? scores[f] : -Softmax<float>::infinity();
    }
  }

 private:
  const uint32_t* words_;  // of the lane's first row
  uint32_t asked_[Link::kLaneRows];
};

}  // namespace wmma
