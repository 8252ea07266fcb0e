// Block masks: for each block of scores, so many queries by so many keys, whether there is anything of it. No tile of a
// block that is not there is loaded. Tiles divide blocks, as the planner sees to.
#pragma once

#include <wmma/attention/terms/scores.hpp>
#include <wmma/lanes.hpp>

namespace wmma {

// What a block mask has for a block.
enum BlockState : int8_t {
  kBlockAbsent = 0,
  kBlockMasked = 1,  // what a mask function shows, if there is one
  kBlockWhole = 2,   // all of it
};

template <class Others, int kQueriesOfBlock, int kKeysOfBlock>
struct BlockRules : Others {
  static constexpr bool kBlocks = true;
  static constexpr int kBlockQueries = kQueriesOfBlock;
  static constexpr int kBlockKeys = kKeysOfBlock;
  using Arguments = ArgumentsBy<Others, RuledAttentionArguments>;
};

// A line of blocks of kSize places each: of a block of queries along the keys, or of a block of keys along the queries.
// A wave looks at 32 blocks at once; all its lanes know what they are.
template <int kSize>
class BlockLine {
  static constexpr int kWordBlocks = 32;

 public:
  WMMA_DEVICE BlockLine(const int8_t* line, int64_t stride, int places, uint32_t lane)
      : line_(line), stride_(stride), count_((places + kSize - 1) / kSize), lane_(static_cast<int>(lane)) {}

  WMMA_DEVICE bool is_whole(int place) {
    const int block = place / kSize;
    look_at(block / kWordBlocks);
    return (whole_ >> block % kWordBlocks & 1) != 0;
  }
  // The last one of `place`, `place` − kStep, … down to `from` whose block is there; else one before `from`.
  template <int kStep>
  WMMA_DEVICE int last(int place, int from) {
    static_assert(kSize % kStep == 0, "tiles divide blocks");
    while (place >= from) {
      const int block = place / kSize;
      look_at(block / kWordBlocks);
      const uint32_t before = there_ & (~0u >> (kWordBlocks - 1 - block % kWordBlocks));
      if ((before >> block % kWordBlocks & 1) != 0) break;
      const int group = block / kWordBlocks * kWordBlocks;
      place = (before == 0 ? group : group + arch::highest_bit(before) + 1) * kSize - kStep;
    }
    return place;
  }
  // The first one of `place`, `place` + kStep, … below `end` whose block is there; else `end` or one behind it.
  template <int kStep>
  WMMA_DEVICE int first(int place, int end) {
    static_assert(kSize % kStep == 0, "tiles divide blocks");
    while (place < end) {
      const int block = place / kSize;
      look_at(block / kWordBlocks);
      const uint32_t behind = there_ & (~0u << block % kWordBlocks);
      if ((behind >> block % kWordBlocks & 1) != 0) break;
      const int group = block / kWordBlocks * kWordBlocks;
      place = (behind == 0 ? group + kWordBlocks : group + arch::lowest_bit(behind)) * kSize;
    }
    return place;
  }

 private:
  WMMA_DEVICE void look_at(int group) {
    if (group == group_) return;
    group_ = group;
    const int block = group * kWordBlocks + lane_;
    const int state = lane_ < kWordBlocks && block < count_ ? line_[block * stride_] : int{kBlockAbsent};
    there_ = static_cast<uint32_t>(arch::ballot(state != kBlockAbsent));
    whole_ = static_cast<uint32_t>(arch::ballot(state == kBlockWhole));
  }

  const int8_t* line_;
  int64_t stride_;
  int count_;
  int lane_;
  int group_ = -1;
  uint32_t there_ = 0;
  uint32_t whole_ = 0;
};

// Where the line of a block of queries, or of keys, of a head starts.
WMMA_DEVICE const int8_t* block_line(const AttentionOperand& x, uint32_t batch, uint32_t head, int64_t offset) {
  return static_cast<const int8_t*>(x.data) + batch * x.batch_stride + head * x.head_stride + offset;
}

// The tiles of kKeys keys that rows of one block of queries, kRows from first_row on, look at: which one there is
// before another.
template <class Rules, int kRows, int kKeys, bool kThere = Rules::kBlocks>
class TilesOfBlocks {
 public:
  template <class Arguments, class Place>
  WMMA_DEVICE TilesOfBlocks(const Arguments&, const Place&, uint32_t, uint32_t) {}
  WMMA_DEVICE int last(int key, int) const { return key; }
};
template <class Rules, int kRows, int kKeys>
class TilesOfBlocks<Rules, kRows, kKeys, true> : public BlockLine<Rules::kBlockKeys> {
  using Line = BlockLine<Rules::kBlockKeys>;
  static_assert(Rules::kBlockQueries % kRows == 0, "a tile's rows are in one block");

 public:
  template <class Arguments, class Place>
  WMMA_DEVICE TilesOfBlocks(const Arguments& p, const Place& place, uint32_t first_row, uint32_t lane)
      : Line(block_line(p.rules.blocks, place.batch, place.head,
                        first_row / Rules::kBlockQueries * p.rules.blocks.row_stride),
             p.rules.blocks.column_stride, p.skv, lane) {}
  WMMA_DEVICE int last(int key, int from) { return Line::template last<kKeys>(key, from); }
};

}  // namespace wmma
