// Who has what of attention's gradients where blocks own keys and add to the queries' as well. Teams of blocks, all of
// them on the device at once, have a head's keys at a time; where these are more than the team's blocks, in passes,
// every second one dealt the other way round, as under a causal mask some keys are seen by more queries than others.
//
// A block goes through the tiles of queries from a place of its own on and round, so that a team's blocks meet at no
// tile. What they add to a tile is added in the order in which they would come if all were as quick, whatever the time:
// sums are the same from run to run, and nobody waits for one who waits for him.
//
// (Blocks of one team wait for each other, those of another do not: dealing keys through all heads, without teams,
// fills the units better and was a quarter slower.)
#pragma once

#include <wmma/attention/rows.hpp>

namespace wmma {

// kKeys of a block, kQueries of a tile.
template <bool kCausal, int kKeys, int kQueries>
class GradientTeams {
 public:
  WMMA_DEVICE explicit GradientTeams(const MappedAttentionArguments& p)
      : p_(p), key_blocks_((p.skv + kKeys - 1) / kKeys), shift_(clamped(p.shift, -p.sq, p.skv)) {}

  // Some keys of a head, and the tiles of queries that see them.
  struct Part {
    int key_head;  // of all in the batch
    int key_block;
    int begin;   // the first tile
    int count;   // how many
    int start;   // the one to start with, from `begin` on
    int member;  // the block of the team that has it
    int before;  // steps of that block before this part
  };

  template <class Work>
  WMMA_DEVICE void for_each_part(const Work& work) const {
    const int heads = p_.heads / p_.group * p_.batch;
#pragma unroll 1
    for (int head = blockIdx.x / p_.team; head < heads; head += gridDim.x / p_.team) {
#pragma unroll 1
      for (int pass = 0; pass < p_.passes; ++pass) {
        const int key_block = key_block_of(blockIdx.x % p_.team, pass);
        if (key_block < key_blocks_) work(part(head, key_block));
      }
    }
  }

  // Of a wave's lanes: how many parts add to a tile of a query head before `own`, which does so at `step`; and how many
  // do in all.
  struct Turn {
    int before;
    int all;
  };
  WMMA_DEVICE Turn turn(const Part& own, int head, int tile, int step, uint32_t lane) const {
    uint32_t counts = 0;  // all in the upper half
#pragma unroll 1
    for (int key_block = lane; key_block < key_blocks_; key_block += arch::kWaveSize) {
      const Part x = part(own.key_head, key_block);
      if (tile < x.begin) continue;
      const int since_start = tile - x.begin - x.start;  // less than 0: those come last
      const int at = x.before + head * x.count + (since_start < 0 ? since_start + x.count : since_start);
      counts += 1u << 16;
      if (at < step || (at == step && x.member < own.member)) ++counts;
    }
#pragma unroll
    for (int mask = 1; mask < arch::kWaveSize; mask *= 2) counts += shuffle_xor(counts, mask);
    return {static_cast<int>(counts & 0xffff), static_cast<int>(counts >> 16)};
  }

 private:
  WMMA_DEVICE int key_block_of(int member, int pass) const {
    return pass * p_.team + (pass % 2 == 0 ? member : p_.team - 1 - member);
  }
  // The first tile that sees a block's keys. Some keys are those of all tiles, so that each has sums, if of nothing.
  WMMA_DEVICE int begin_of(int key_block) const {
    if (!kCausal || key_block == 0) return 0;
    return clamped(key_block * kKeys - shift_, 0, p_.tiles * kQueries) / kQueries;
  }

  WMMA_DEVICE Part part(int key_head, int key_block) const {
    Part x{key_head, key_block, begin_of(key_block)};
    x.count = p_.tiles - x.begin;
    const int pass = key_block / p_.team;
    const int inside = key_block - pass * p_.team;
    x.member = pass % 2 == 0 ? inside : p_.team - 1 - inside;
    x.before = 0;
#pragma unroll 1
    for (int i = 0; i < pass; ++i) x.before += (p_.tiles - begin_of(key_block_of(x.member, i))) * p_.group;
    x.start = x.count > 0 ? (x.before + x.member * p_.tiles / p_.team) % x.count : 0;
    return x;
  }

  const MappedAttentionArguments& p_;
  int key_blocks_;
  int shift_;
};

// A part's way: the tiles for each of the heads that share its keys.
template <class Part>
struct GradientSteps {
  const Part& part;
  int left;
  int step;
  int head = 0;  // of the group
  int tile;

  WMMA_DEVICE GradientSteps(const Part& of, int group)
      : part(of), left(of.count * group), step(of.before), tile(of.begin + of.start) {}
  WMMA_DEVICE bool more() const { return left > 0; }
  WMMA_DEVICE void next() {
    --left;
    ++step;
    ++tile;
    if (tile == part.begin + part.count) tile = part.begin;
    if (tile == part.begin + part.start) ++head;
  }
};

}  // namespace wmma
