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
  WMMA_DEVICE explicit GradientTeams(const MappedAttentionArguments& p) : p_(p) {}

  // Some keys of a head, and the tiles of queries that see them.
  struct Part {
    int key_block;
    int begin;   // the first tile
    int count;   // how many
    int start;   // the one to start with, from `begin` on
    int member;  // the block of the team that has it
    int before;  // steps of that block before this part
  };
  // A block's way: the tiles of each part, for each of the heads that share its keys. It may lie in shared memory,
  // where registers are few.
  struct Way {
    Part part;
    int key_head;  // of all in the batch
    int pass;
    int left;  // of the part
    int step;
    int head;  // of those that share the keys
    int tile;
    uint32_t number;  // of all tiles

    WMMA_DEVICE bool has_tile() const { return left > 0; }
    WMMA_DEVICE void next_tile() {
      ++number;
      --left;
      ++step;
      ++tile;
      if (tile == part.begin + part.count) tile = part.begin;
      if (tile == part.begin + part.start) ++head;
    }
  };
  // Each returns whether there is a part.
  WMMA_DEVICE bool begin(Way& way) const {
    way.key_head = blockIdx.x / p_.team;
    way.pass = -1;
    way.number = 0;
    return next_part(way);
  }
  WMMA_DEVICE bool next_part(Way& way) const {
    int key_block;
    do {
      if (++way.pass == p_.passes) {
        way.pass = 0;
        way.key_head += gridDim.x / p_.team;
      }
      if (way.key_head >= p_.heads / p_.group * p_.batch) return false;
      key_block = key_block_of(blockIdx.x % p_.team, way.pass);
    } while (key_block >= key_blocks());
    way.part = part(key_block);
    way.left = way.part.count * p_.group;
    way.step = way.part.before;
    way.head = 0;
    way.tile = way.part.begin + way.part.start;
    return true;
  }

  // Of a wave's lanes: how many parts add to a way's tile before its own; and how many do in all.
  struct Turn {
    uint32_t counts;
    WMMA_DEVICE int before() const { return counts & 0xffff; }
    WMMA_DEVICE int all() const { return counts >> 16; }
  };
  WMMA_DEVICE Turn turn(const Way& way, uint32_t lane) const {
    uint32_t counts = 0;
#pragma unroll 1
    for (int key_block = lane; key_block < key_blocks(); key_block += arch::kWaveSize) {
      const Part x = part(key_block);
      if (way.tile < x.begin) continue;
      const int since_start = way.tile - x.begin - x.start;  // less than 0: those come last
      const int at = x.before + way.head * x.count + (since_start < 0 ? since_start + x.count : since_start);
      counts += 1u << 16;
      if (at < way.step || (at == way.step && x.member < way.part.member)) ++counts;
    }
#pragma unroll
    for (int mask = 1; mask < arch::kWaveSize; mask *= 2) counts += shuffle_xor(counts, mask);
    return {counts};
  }

 private:
  WMMA_DEVICE int key_blocks() const { return (p_.skv + kKeys - 1) / kKeys; }
  WMMA_DEVICE int key_block_of(int member, int pass) const {
    return pass * p_.team + (pass % 2 == 0 ? member : p_.team - 1 - member);
  }
  // The first tile that sees a block's keys. Some keys are those of all tiles, so that each has sums, if of nothing.
  WMMA_DEVICE int begin_of(int key_block) const {
    if (!kCausal || key_block == 0) return 0;
    return clamped(key_block * kKeys - clamped(p_.shift, -p_.sq, p_.skv), 0, p_.tiles * kQueries) / kQueries;
  }

  WMMA_DEVICE Part part(int key_block) const {
    Part x{key_block, begin_of(key_block)};
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
};

}  // namespace wmma
