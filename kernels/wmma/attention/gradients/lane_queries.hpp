// What is passed of each query beside a tile, lse or delta, as a lane of a warpgroup has them that owns keys: its sums
// are those of pairs of queries, which lie side by side. They are read ahead of products that whatever is read of
// shared memory later would wait for.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

template <class Link, int kSums>
class LaneQueries {
 public:
  WMMA_DEVICE LaneQueries(const float* passed, const float*, uint32_t lane) : from_(passed + Link::place(lane, 0)) {}
  WMMA_DEVICE void read() {
    static_assert(are_pairs(), "or they are read one by one");
#pragma unroll
    for (int f = 0; f < kSums; f += 4) {
      const Pair pair = *reinterpret_cast<const Pair*>(from_ + Link::place(0, f));
      numbers_[f / 2] = pair.numbers[0];
      numbers_[f / 2 + 1] = pair.numbers[1];
    }
  }
  // Of a lane's sum.
  WMMA_DEVICE float operator()(int f) const { return numbers_[f / 4 * 2 + f % 2]; }

 private:
  struct alignas(8) Pair {
    float numbers[2];
  };
  static constexpr bool are_pairs() {
    for (uint32_t lane = 0; lane < arch::kWaveSize; ++lane) {
      for (int f = 0; f < kSums; ++f) {
        if (Link::place(lane, f) != Link::place(lane, 0) + Link::place(0, f / 4 * 4) + f % 2) return false;
      }
    }
    return true;
  }

  const float* from_;
  float numbers_[kSums / 2];
};

}  // namespace wmma
