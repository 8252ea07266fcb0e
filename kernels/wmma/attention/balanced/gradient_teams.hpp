// Who has what of attention's gradients where blocks own keys and add to the queries' as well. Teams of blocks, all of
// them on the device at once, have a head's keys at a time; where these are more than the team's blocks, in passes,
// every second one in the other order, as under a causal mask some keys are seen by more queries than others. Beside a
// window each block of keys is seen by tiles from one to another.
//
// A block goes through the tiles of queries from a place of its own on and round, so that a team's blocks meet at no
// tile. What they add to a tile is added in the order in which they would come if all were as quick, whatever the time:
// sums are the same from run to run, and nobody waits for one who waits for him.
//
// Where there are too few keys for that, queries are split: a team has those of a slice of the tiles, and what slices
// give the same keys is added up by a kernel of its own (passes/key_parts.hpp).
//
// (Blocks of one team wait for each other, those of another do not: dealing keys through all heads, without teams,
// fills the units better and was a quarter slower.)
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

// kKeys of a block, kQueries of a tile.
template <bool kCausal, bool kWindowed, bool kSplitsQueries, int kKeys, int kQueries>
class GradientTeams {
  static constexpr bool kEnds = kWindowed || kSplitsQueries;  // before the last tile
  static_assert(!kSplitsQueries || (!kCausal && !kWindowed), "of which each has as many");

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
  // A block's way from part to part. It may lie in shared memory, where registers are few.
  struct Way {
    Part part;
    int share;  // a key head of all in the batch, or a slice of its queries
    int teams;  // how many there are
    int pass;
    int step;         // of the part
    uint32_t number;  // of that step among those of all parts
    uint32_t lot;     // of the steps that come next
  };
  // Each returns whether there is a part.
  WMMA_DEVICE bool begin(Way& way) const {
    way.share = blockIdx.x / p_.team;
    way.teams = gridDim.x / p_.team;
    way.pass = -1;
    way.number = way.lot = 0;
    return next_part(way);
  }
  WMMA_DEVICE bool next_part(Way& way) const {
    int key_block;
    do {
      if (++way.pass == p_.passes) {
        way.pass = 0;
        way.share += way.teams;
      }
      if (way.share >= p_.heads / p_.group * p_.batch * slices(p_)) return false;
      key_block = key_block_of(blockIdx.x % p_.team, way.pass);
    } while (key_block >= key_blocks());
    way.part = part(key_block, way.share);
    way.step = 0;
    return true;
  }

  static WMMA_DEVICE int slices(const MappedAttentionArguments& p) { return kSplitsQueries ? p.query_slices : 1; }
  static WMMA_DEVICE int key_head(const MappedAttentionArguments& p, int share) { return share / slices(p); }

  // A part's steps: its tiles for each of the heads that share its keys.
  WMMA_DEVICE int steps(const Part& part) const { return part.count * p_.group; }
  // How many come next: a lot of them is as many as a wave looks at together.
  WMMA_DEVICE int ahead(const Way& way) const {
    const int left = steps(way.part) - way.step;
    return left < arch::kWaveSize ? left : arch::kWaveSize;
  }
  WMMA_DEVICE void next_steps(Way& way) const {
    const int count = ahead(way);
    way.step += count;
    way.number += count;
    ++way.lot;
  }
  struct Place {
    int head;  // of those
    int tile;
  };
  WMMA_DEVICE Place place(const Part& part, int step) const {
    const int head = step / part.count;
    const int at = part.start + step - head * part.count;
    return {head, part.begin + (at < part.count ? at : at - part.count)};
  }

  // How many parts add to a tile before its turn comes; and how many do in all.
  struct Turn {
    uint32_t counts;
    WMMA_DEVICE int before() const { return counts & 0xffff; }
    WMMA_DEVICE int all() const { return counts >> 16; }
  };
  // Of as many steps as a wave has lanes, each lane's own: one after the other they would keep the block waiting.
  WMMA_DEVICE Turn turn(const Way& way, int step, const Place& at, int lane) const {
    const Part& own = way.part;
    uint32_t counts = 0;
#pragma unroll 1
    for (int first = 0; first < key_blocks(); first += arch::kWaveSize) {
      const Part of_lane = part(first + lane, way.share);
      const uint32_t tiles_of_lane = static_cast<uint32_t>(of_lane.count) << 16 | static_cast<uint32_t>(of_lane.begin);
      const int left = key_blocks() - first;
#pragma unroll 1
      for (int i = 0; i < arch::kWaveSize && i < left; ++i) {
        const int start = arch::shuffle_word(of_lane.start, i);
        int begin, count;
        if constexpr (kEnds) {
          const uint32_t tiles = arch::shuffle_word(tiles_of_lane, i);
          begin = tiles & 0xffff;
          count = tiles >> 16;
        } else {
          begin = arch::shuffle_word(of_lane.begin, i);
          count = p_.tiles - begin;
        }
        const int since_start = at.tile - begin - start;  // less than 0: those come last
        const int since = arch::shuffle_word(of_lane.before, i) + at.head * count +
                          (since_start < 0 ? since_start + count : since_start) - own.before - step;
        const bool first_of_two = arch::shuffle_word(of_lane.member, i) < own.member;
        const bool adds = at.tile >= begin && (!kEnds || at.tile < begin + count);
        if (adds) counts += (1u << 16) + (since < 0 || (since == 0 && first_of_two) ? 1 : 0);
      }
    }
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

  // Where those end that do. Some are those of all tiles from there on.
  WMMA_DEVICE int end_of(int key_block) const {
    if (!kWindowed || key_block >= key_blocks() - 1) return p_.tiles;
    const int after = (key_block + 1) * kKeys - static_cast<int>(p_.rules.from);  // the last query, and one
    return clamped(after + kQueries - 1, 0, p_.tiles * kQueries) / kQueries;
  }

  WMMA_DEVICE Part part(int key_block, int share) const {
    Part x{key_block, begin_of(key_block)};
    int end = end_of(key_block);
    if constexpr (kSplitsQueries) {
      const int slice = share % slices(p_);
      x.begin = slice * p_.tiles / slices(p_);
      end = (slice + 1) * p_.tiles / slices(p_);
    }
    x.count = clamped(end - x.begin, 0, p_.tiles);
    const int pass = key_block / p_.team;
    const int inside = key_block - pass * p_.team;
    x.member = pass % 2 == 0 ? inside : p_.team - 1 - inside;
    if constexpr (kEnds) {  // or more, which keeps the order: blocks of one tile are neighbours
      x.before = pass * p_.tiles * p_.group;
    } else {
      x.before = 0;
#pragma unroll 1
      for (int i = 0; i < pass; ++i) x.before += (p_.tiles - begin_of(key_block_of(x.member, i))) * p_.group;
    }
    x.start = x.count > 0 ? (x.before + x.member * (kSplitsQueries ? x.count : p_.tiles) / p_.team) % x.count : 0;
    return x;
  }

  const MappedAttentionArguments& p_;
};

}  // namespace wmma
