// What attention's warpgroups go through (loops/warpgroup.hpp): tiles of rows, one after the other through all heads,
// each with its queries, keys and values; where these lie in shared memory; and the thread that has the copy engine
// bring them.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/balanced/last_round.hpp>
#include <wmma/attention/balanced/tile_list.hpp>
#include <wmma/attention/rows/blocks.hpp>
#include <wmma/attention/rows/page_loaders.hpp>
#include <wmma/attention/rows/paged.hpp>
#include <wmma/attention/softmax/parts.hpp>
#include <wmma/attention/terms/window.hpp>
#include <wmma/attention/tiles/widened_tiles.hpp>
#include <wmma/tile/tile_queue.hpp>
#include <wmma/tile/warpgroup_tile.hpp>

namespace wmma {

// Where a box of 128 bytes a line starts in an operand; a head that others share, or a batch, is there once.
template <class T>
WMMA_DEVICE void box_coordinates(int32_t* at, const AttentionOperand& x, uint32_t batch, uint32_t head, uint32_t row,
                                 int box) {
  at[0] = box * (128 / static_cast<int>(sizeof(T)));
  at[1] = static_cast<int32_t>(row);
  at[2] = x.head_stride == 0 ? 0 : static_cast<int32_t>(head);
  at[3] = x.batch_stride == 0 ? 0 : static_cast<int32_t>(batch);
}

// A tile, from a row on, by boxes of so many of its lines.
template <class T, class Tile, int kBoxLines = Tile::kLines>
WMMA_DEVICE void copy_tile(uint32_t to, uint32_t barrier, const AttentionOperand& x, const TileMap& map, uint32_t batch,
                           uint32_t head, uint32_t row) {
#pragma unroll
  for (int box = 0; box < Tile::kBoxes; ++box) {
#pragma unroll
    for (int line = 0; line < Tile::kLines; line += kBoxLines) {
      int32_t at[4];
      box_coordinates<T>(at, x, batch, head, row + line, box);
      arch::copy_box<4, false, false>(to + box * Tile::kBoxBytes + line * 128, &map, barrier, at, 1);
    }
  }
}

template <class Config>
struct WarpgroupTiles {
  using Rules = typename Config::Rules;
  static constexpr bool kModified = Rules::kChanges || Rules::kHides;
  using Arguments = MappedArgumentsBy<Rules>;
  using Stored = StoredOf<Config>;
  // Whether keys and values become the queries' type on their way (tiles/widened_tiles.hpp).
  static constexpr bool kWidens = !Rules::kScaled && !kSame<Stored, typename Config::Element>;
  using T = Choose<kWidens, typename Config::Element, Stored>;  // of what is multiplied
  static constexpr int kGroups = Config::kGroups;
  static constexpr int kGroupThreads = 4 * arch::kWaveSize;
  static constexpr int kConsumers = kGroups * kGroupThreads;
  // One warpgroup is the producer: a wave of it; where keys and values are widened the others do that, and one more.
  static constexpr int kThreads = kConsumers + kGroupThreads * (kWidens ? 2 : 1);
  static constexpr int kWideners = (kThreads - kConsumers) / arch::kWaveSize - 1;
  // Heads that share keys may lie packed in a warpgroup's lines, one query's after the other's: as many whole queries
  // as there is room for.
  static constexpr int kPackedHeads = Config::kPackedHeads;
  static constexpr bool kPacked = kPackedHeads > 1;
  static constexpr int kLines = 64;
  static constexpr int kGroupRows = kLines / kPackedHeads * kPackedHeads;
  static constexpr int kBlockRows = kGroups * kGroupRows;
  static constexpr int kKeys = Config::kKeys;
  static_assert(kGroups <= 3, "as many as registers are there for");

  using QueryTile = WarpgroupTile<kLines, Config::kDepth* static_cast<int>(sizeof(T))>;
  using KeyTile = WarpgroupTile<kKeys, Config::kDepth* static_cast<int>(sizeof(T))>;
  // Of 8 bits values are turned, with a line for each column.
  static constexpr bool kTransposed = sizeof(T) == 1;
  using ValueTile = Choose<kTransposed, WarpgroupTile<Config::kSlice, kKeys>,
                           WarpgroupTile<kKeys, Config::kSlice* static_cast<int>(sizeof(T))>>;
  using ResultTile = WarpgroupTile<kLines, Config::kSlice* static_cast<int>(sizeof(typename Config::Element))>;
  // A place of queries, one for each warpgroup, is as large as what comes to lie there afterwards.
  static constexpr int kQueryBytes =
      Config::kMappedOut && ResultTile::kBytes > QueryTile::kBytes ? ResultTile::kBytes : QueryTile::kBytes;
  using Queries = TileQueue<Config::kQueryStages, kQueryBytes>;
  using Keys = TileQueue<Config::kStages, KeyTile::kBytes>;
  using Values = TileQueue<Config::kStages, ValueTile::kBytes>;
  // Results lie where their rows' queries lay until the copy engine has taken them away.
  static constexpr bool kMappedOut = Config::kMappedOut;
  static_assert(!kMappedOut || !kPacked, "a box has rows of one head");
  static constexpr int kKeyStart = kGroups * Queries::kBytes;
  static constexpr int kValueStart = kKeyStart + Keys::kBytes;
  // Where tiles are scheduled dynamically: which one a place of queries has. The producer passes it to the consumers.
  static constexpr bool kBalanced = Config::kBalanced;
  static constexpr bool kLooksAhead = kGroups == 1;  // else the producer has too few registers
  static_assert(!kBalanced || !Config::kSplit, "what is listed is a whole tile");
  static constexpr bool kSplitsLast = Config::kSplitsLast;
  // Whether a block has the parts of a tile's keys one after the other.
  static constexpr bool kFolds = kFoldsParts<Config>;
  static_assert(!kFolds || !(kBalanced || Config::kSplit || kSplitsLast), "the block has all of them");
  static_assert(!kSplitsLast || !(kBalanced || Config::kSplit || Config::kCausal || kPacked),
                "tiles that are all alike");
  static constexpr int kNarrowColumns = detail::upper(Config::kDepth, Config::kSlice);
  using Narrow = NarrowTiles<typename Config::Element, kKeys, (kNarrowColumns + 127) / 128 * 128,
                             kWidens ? Config::kNarrowStages : 1, kWideners>;
  static constexpr int kNarrowStart = kValueStart + Values::kBytes;
  static constexpr int kPassed = kNarrowStart + (kWidens ? Narrow::Queue::kBytes : 0);
  static constexpr int kListed = kPassed + (kWidens ? Narrow::kPassedBytes : 0);
  static constexpr int kListedBytes =
      kBalanced ? kGroups * Config::kQueryStages * static_cast<int>(sizeof(ListedTile)) : 0;
  static constexpr int kBarriers = kListed + kListedBytes;
  static constexpr int kKeyBarriers = kBarriers + kGroups * Queries::kBarrierBytes;
  static constexpr int kValueBarriers = kKeyBarriers + Keys::kBarrierBytes;
  static constexpr int kNarrowBarriers = kValueBarriers + Values::kBarrierBytes;
  static constexpr int kSharedBytes = kNarrowBarriers + (kWidens ? Narrow::Queue::kBarrierBytes : 0);

  using Place = AttentionPlace<kPacked>;
  static constexpr bool kWindowed = Rules::kWindowed;
  static constexpr bool kSequences = Rules::kSequences;
  static constexpr bool kBlocks = Rules::kBlocks;
  static constexpr int kPageSize = Rules::kPageSize;
  static constexpr bool kPages = kPageSize > 0;
  // Few rows' tiles of a sequence come in parts, so that what lies behind its last key stays where it is.
  static constexpr int kPartLines = Config::kPartLines;
  static constexpr int kParts = kKeys / kPartLines;
  static_assert(kKeys % kPartLines == 0 && kParts <= static_cast<int>(arch::kWaveSize), "a part a lane");
  static_assert(!kPages || kPageSize % kPartLines == 0, "a part lies in one page");
  static constexpr bool kInParts = kPages || kParts > 1;
  static constexpr bool kProducesByWave = kBlocks || kInParts;  // who looks something up does so with all lanes
  static_assert(!kBlocks || !kPacked, "a tile's rows are in one block");
  using Present = TilesOfBlocks<Rules, kBlockRows, kKeys>;

  static WMMA_DEVICE Queries queries_of(uint32_t start, uint32_t group) {
    return Queries(start + group * Queries::kBytes, start + kBarriers + group * Queries::kBarrierBytes);
  }
  static WMMA_DEVICE Keys keys_at(uint32_t start) { return Keys(start + kKeyStart, start + kKeyBarriers); }
  static WMMA_DEVICE Values values_at(uint32_t start) { return Values(start + kValueStart, start + kValueBarriers); }
  static WMMA_DEVICE typename Narrow::Queue narrow_at(uint32_t start) {
    return typename Narrow::Queue(start + kNarrowStart, start + kNarrowBarriers);
  }
  static WMMA_DEVICE uint32_t* passed() {
    return reinterpret_cast<uint32_t*>(dynamic_shared<unsigned char>() + kPassed);
  }

  using Sight = wmma::Sight<Config::kCausal, Rules>;

  // From the keys that may count, those that do for rows first … before `after`: whole tiles from the same key on.
  template <class Bounds, class Own>
  static WMMA_DEVICE void bound(Bounds& x, const Own& p, const Place& place, uint32_t first, uint32_t after) {
    const auto last_query = [&] { return place.query((after < place.rows ? after : place.rows) - 1); };
    int seen = x.end;
    if constexpr (kWindowed) {
      x.begin += (Sight::first_key(p, place.query(first), x.begin, x.end) - x.begin) / kKeys * kKeys;
    }
    if constexpr (Config::kCausal) {
      x.end = Sight::keys_end(p, last_query(), x.begin, x.end);
      seen = Sight::keys_end(p, place.query(first), x.begin, x.end);
    }
    x.whole = x.begin + (seen - x.begin) / kKeys * kKeys;
    x.whole_begin = x.begin;
    if constexpr (kWindowed) {
      x.whole_begin += (Sight::first_key(p, last_query(), x.begin, x.end) - x.begin + kKeys - 1) / kKeys * kKeys;
    }
  }

  // A tile of rows and the keys that it looks at, or a part of them; the last tile of keys comes first.
  using OfAll = NoSequence<Choose<kModified, typename Rules::Arguments, RuledAttentionArguments>>;
  using Of = Choose<kSequences, OneSequence<T, float, Rules>, OfAll>;
  struct Work : Of {
    using Of::own;
    TilePart part;
    Place place;
    Present present;
    uint32_t first_row;
    int begin = 0;
    int end;
    int whole_begin;  // every key from here on …
    int whole;        // … and before this counts for every row
    int tiles = 0;    // of a block mask some are not there
    int last = 0;
    uint32_t parts = 1;  // of its keys, that a block has one after the other

    WMMA_DEVICE Work(const Arguments& p, uint32_t index, uint32_t split = 0) : Work(p, part_of(p, index, split)) {}
    WMMA_DEVICE Work(const Arguments& p, const ListedTile& at)
        : Of(p, at.queries, at.keys),
          part{0, 0, false},
          place(own, at.sequence, at.head, at.tile),
          present(own, place, place.tile * kBlockRows, lane_id()) {
      find(p);
    }

    // Where tiles are not scheduled dynamically there are as many for each sequence as for the longest.
    WMMA_DEVICE bool is_there() const { return !kSequences || kBalanced || first_row < place.rows; }

   private:
    WMMA_DEVICE Work(const Arguments& p, const TilePart& of) : Work(p, of, tile_of(p, of.tile)) {}
    WMMA_DEVICE Work(const Arguments& p, const TilePart& of, const HeadTile& at)
        : Of(p, kSequences ? static_cast<int>(at.head / heads_of(p)) : 0),
          part(of),
          place(own, at),
          present(own, place, place.tile * kBlockRows, lane_id()) {
      find(p);
    }

    WMMA_DEVICE void find(const Arguments& p) {
      if constexpr (kWidens) multiply_by_key_descale(own, p, place);
      first_row = place.tile * kBlockRows;
      end = own.skv;
      if (!is_there()) return;
      if (part.is_part) {
        int share = p.keys_of_split;
        if constexpr (kFolds) {
          bound(*this, own, place, first_row, first_row + kBlockRows);
          parts = end > share ? (end + share - 1) / share : 1;
        } else if constexpr ((kWindowed || kSequences) && !kStandsAlone<Config>) {  // what is left of the keys is split
          bound(*this, own, place, first_row, first_row + kBlockRows);
          share = ((end - begin + kKeys - 1) / kKeys + p.splits - 1) / p.splits * kKeys;
        }
        begin += static_cast<int>(part.split) * share;
        end = end - begin < share ? end : begin + share;
      }
      bound(*this, own, place, first_row, first_row + kBlockRows);
      if (end > begin) {
        tiles = (end - begin + kKeys - 1) / kKeys;
        last = present.last(begin + (tiles - 1) * kKeys, begin);
        if (kBlocks && last < begin) tiles = 0;
      }
    }
  };

  static WMMA_DEVICE TilePart part_of(const Arguments& p, uint32_t index, [[maybe_unused]] uint32_t split = 0) {
    if constexpr (kFolds) return {index, split, true};
    if constexpr (Config::kSplit) return {index / p.splits, index % p.splits, true};
    if constexpr (kSplitsLast) return last_part_of(p, index);
    return {index, 0, false};
  }

  static WMMA_DEVICE uint32_t heads_of(const Arguments& p) { return static_cast<uint32_t>(p.heads) / kPackedHeads; }

  // Some heads together, and then others: their tiles from the longest on, or back again where an even number of such
  // parts is left, so that what blocks get changes little from one to the next.
  static WMMA_DEVICE HeadTile tile_of(const Arguments& p, uint32_t index) {
    const uint32_t heads = heads_of(p) * p.batch;
    HeadTile at(index, heads, p.tiles, p.head_group);
    if constexpr (Config::kCausal) {
      const uint32_t left = (heads - 1) / p.head_group - at.head / p.head_group;
      if (left % 2 == 1) at.tile = p.tiles - 1 - at.tile;
    }
    if constexpr (Config::kMaskInPairs) {  // one that all of the batch share comes from memory once
      if (p.mask.batch_stride == 0) at.head = at.head % p.batch * heads_of(p) + at.head / p.batch;
    }
    return at;
  }

  static WMMA_DEVICE uint32_t works_of(const Arguments& p) {
    const uint32_t tiles = static_cast<uint32_t>(p.tiles) * p.heads / kPackedHeads * p.batch;
    if constexpr (kSplitsLast) return p.whole + (tiles - p.whole) * p.splits;
    return Config::kSplit ? tiles * p.splits : tiles;
  }

  // The blocks' way through all of it: where rows see more keys than others, every second time from the other end.
  class Walk {
   public:
    WMMA_DEVICE explicit Walk(const Arguments& p) : all_(works_of(p)) {}
    WMMA_DEVICE bool more() const { return first_ < all_; }
    WMMA_DEVICE uint32_t index() const {
      const uint32_t back = first_ + gridDim.x - 1 - blockIdx.x;
      return Config::kCausal && odd_ && first_ + gridDim.x <= all_ ? back : first_ + blockIdx.x;
    }
    WMMA_DEVICE bool is_there() const { return index() < all_; }
    WMMA_DEVICE void next() {
      first_ += gridDim.x;
      odd_ = !odd_;
    }

   private:
    uint32_t all_;
    uint32_t first_ = 0;
    bool odd_ = false;
  };

  // By two waves that have nothing else to do: what no sequence has of the results.
  static constexpr int kFillers = 2;
  static WMMA_DEVICE void fill_rest(const Arguments& p, uint32_t thread) {
    const int blocks = static_cast<int>(gridDim.x), parts = p.sequences.count + blocks;
    for (int part = static_cast<int>(blockIdx.x); part < parts; part += blocks) {
      SequencesRest<Config, kFillers * arch::kWaveSize>(p.sequences, part, parts, thread).run(p);
    }
  }

  // By a wave that has nothing else to do: what tells where the block's first sequence lies, and in which pages, is on
  // its way while barriers are made. One is found by the other, and neither is near the unit.
  static WMMA_DEVICE void prefetch_places(const Arguments& p) {
    const uint32_t lane = lane_id();
    const int index = static_cast<int>(tile_of(p, part_of(p, blockIdx.x).tile).head / heads_of(p));
    if (lane < 2) {
      prefetch_number(p.sequences.starts_q, index + lane);
      prefetch_number(p.sequences.starts_k, index + lane);
      prefetch_number(p.sequences.used_k, index);
    }
    if constexpr (kPageSize > 0) prefetch_table(p, index, kPageSize, lane, arch::kWaveSize);
  }

  // A tile's parts.
  template <class Act>
  static WMMA_DEVICE void each_part(const Arguments& p, uint32_t index, const Act& act) {
    if constexpr (kFolds) {
      uint32_t parts = 1;
      for (uint32_t split = 0; split < parts; ++split) {
        const Work work(p, index, split);
        parts = work.parts;
        act(work, index);
      }
    } else {
      act(Work(p, index), index);
    }
  }

  // By one thread: every tile of all work, as soon as there is room. Where there is a block mask its wave looks at
  // that, and each of its lanes brings a part of a tile, where there are some.
  static WMMA_DEVICE void produce(const Arguments& p, uint32_t start) {
    const bool leads = !kProducesByWave || lane_id() == 0;
    const Keys keys = keys_at(start);
    const Values values = values_at(start);
    typename Queries::Item query(0);
    typename Keys::Item key(0);
    typename Values::Item value(0);
    const typename Narrow::Queue narrow = narrow_at(start);
    typename Narrow::Queue::Item item(0);
    if constexpr (kTransposed) arch::await_previous();  // which turns values
    // Of a tile's number, or of one of the list; `look` finds the next one of that before the last of this one comes.
    const auto produce_tile = [&](const Work& work, const auto& tile, const auto& look) {
      if (!kBalanced && work.tiles == 0) return;
#pragma unroll 1
      for (int group = 0; leads && group < kGroups; ++group) {
        const Queries queries = queries_of(start, group);
        const auto pass = [&] {
          if constexpr (kBalanced) *listed(query, group) = tile;
        };
        queries.open(query, kPacked ? QueryTile::kBoxes * kGroupRows * 128 : QueryTile::kBytes, pass);
        bring_queries(p, queries, query, work, work.first_row + group * kGroupRows);
      }
      query.next();
      if (kBalanced && work.tiles == 0) return look();
      const Pages pages(p, work);
      // As they are, for others to widen.
      const auto copy_narrow = [&](const AttentionOperand& x, const TileMap& map, const TileStart& at, uint32_t came) {
        const auto pass = [&] { passed()[item.stage()] = came; };
        copy<typename Narrow::Tile, Stored>(narrow, item, x, map, work, pages, at, pass);
        item.next();
      };
      const auto copy_keys = [&](const TileStart& at) {
        if constexpr (kWidens) {
          copy_narrow(p.k, p.k_map, at, Narrow::kKeysCame);
        } else {
          copy<KeyTile, T>(keys, key, p.k, p.k_map, work, pages, at);
          key.next();
        }
      };
      const auto copy_values = [&](const TileStart& at) {
        if constexpr (kWidens) {
          copy_narrow(p.v, p.v_map, at, Narrow::values_came(work.own.skv - at.row));
          return;
        }
        if constexpr (kTransposed) {
          if (leads) copy_transposed(values, value, p, work, at.row);
        } else {
          copy<ValueTile, T>(values, value, p.v, p.v_map, work, pages, at);
        }
        value.next();
      };
      TileStart at = pages.start(work.last);
      if constexpr (kBlocks) {
        copy_keys(at);
        Present present = work.present;
        for (int row = present.last(at.row - kKeys, work.begin); row >= work.begin;
             row = present.last(row - kKeys, work.begin)) {
          const TileStart next = pages.start(row);
          copy_keys(next);
          copy_values(at);
          at = next;
        }
      } else {
        TileStart next = pages.start(at.row - kKeys);  // which pages it has is on its way a tile ahead
        copy_keys(at);
#pragma unroll 1
        for (int i = 1; i < work.tiles; ++i) {
          copy_keys(next);
          copy_values(at);
          at = next;
          next = pages.start(at.row - kKeys);
        }
      }
      look();
      copy_values(at);
    };
    if constexpr (kBalanced) {
      const TileList list(p, static_cast<int>(heads_of(p)));
      ListedTile tile{};
      uint32_t next = 0, count = 0;
      bool is_listed = false, more = true;
      const auto look = [&] {
        if (!is_listed) {
          arch::await_previous();  // which writes the list
          count = list.count();
          if (leads) next = list.first();
          is_listed = true;
        }
        if constexpr (kProducesByWave) next = arch::shuffle_word(next, 0);
        more = next < count;
        if (kLooksAhead && more) tile = list.at(next);
      };
      if (!list.begins_with_list()) tile = unlisted_tile(p, blockIdx.x);
      if (tile.queries.length == 0) look();
      while (more) {
        const ListedTile own = kLooksAhead || !is_listed ? tile : list.at(next);
        if (is_listed && leads) next = list.next();  // it comes while the tiles of this one are asked for
        produce_tile(Work(p, own), own, look);
      }
      for (int group = 0; leads && group < kGroups; ++group) {
        queries_of(start, group).open(query, 0, [&] { listed(query, group)->queries.length = 0; });
      }
    } else {
      for (Walk walk(p); walk.more(); walk.next()) {
        if (!walk.is_there()) continue;
        each_part(p, walk.index(), [&](const Work& work, uint32_t index) { produce_tile(work, index, [] {}); });
      }
      if constexpr (kSequences) arch::await_previous();  // so that who waits for this one waits for that one too
    }
    if constexpr (kWidens) {
      if (leads) narrow.open(item, 0, [&] { passed()[item.stage()] = Narrow::kNoMore; });
    }
  }
  // By each of the waves that produce nothing.
  static WMMA_DEVICE void widen(uint32_t start, uint32_t wave) {
    Narrow::template widen<KeyTile, ValueTile>(narrow_at(start), passed(), keys_at(start), values_at(start), wave);
  }

  // Where there is one of each sequence and head.
  static WMMA_DEVICE ListedTile unlisted_tile(const typename Rules::Arguments& p, uint32_t index) {
    const uint32_t heads = static_cast<uint32_t>(p.heads) / kPackedHeads;
    const int sequence = static_cast<int>(index / heads), head = static_cast<int>(index % heads);
    return {wmma::queries_of(p.sequences, sequence), wmma::keys_of(p, sequence), sequence, head, 0, 0};
  }

  // What was passed with a place of queries, to all of a wave by the lane that gives the place back: what the others
  // had read by themselves, they would have to give back, too. No queries: none comes after it.
  static WMMA_DEVICE ListedTile listed_to(const typename Queries::Item& query, uint32_t group) {
    ListedTile tile{};
    if (lane_id() == 0) tile = *listed(query, group);
    return as_the_first_lane_has(tile);
  }
  static WMMA_DEVICE ListedTile* listed(const typename Queries::Item& query, uint32_t group) {
    return reinterpret_cast<ListedTile*>(dynamic_shared<unsigned char>() + kListed) + group * Config::kQueryStages +
           query.stage();
  }

  static WMMA_DEVICE void bring_queries(const Arguments& p, const Queries& queries, const typename Queries::Item& query,
                                        const Work& work, uint32_t row) {
    const Place& place = work.place;
    if constexpr (!kPacked) {
      bring<QueryTile>(queries, query, p.q, p.q_map, place.batch, place.head, work.query(row));
    } else {
#pragma unroll
      for (int box = 0; box < QueryTile::kBoxes; ++box) {
        int32_t at[5];
        box_coordinates<T>(at + 1, p.q, place.batch, place.key_head, work.query(place.query(row)), box);
        at[0] = at[1];
        at[1] = 0;  // of the heads that share keys, the first
        arch::copy_box<5, false, false>(queries.place(query) + box * QueryTile::kBoxBytes, &p.q_map,
                                        queries.full(query), at, 1);
      }
    }
  }

  struct PassNothing {
    WMMA_DEVICE void operator()() const {}
  };
  // A tile of keys or values; where these lie in pages, what the table has for the lane's part of it.
  struct TileStart {
    int row;
    int32_t number;
  };
  static WMMA_DEVICE int first_line() { return static_cast<int>(lane_id()) % kParts * kPartLines; }

  // Where rows are one after the other nothing is looked up. `locate` says where a row is, or none is, for the copy
  // engine, which brings zeros of rows that are not there.
  struct NoPages {
    WMMA_DEVICE NoPages(const Arguments& p, const Work&) {
      if constexpr (kSequences) tokens = p.sequences.tokens_k;
    }
    WMMA_DEVICE TileStart start(int row) const { return {row, 0}; }
    WMMA_DEVICE void locate(int32_t* at, const Work& work, int row, bool is_there, const TileStart&) const {
      at[1] = is_there ? static_cast<int32_t>(work.key(row)) : tokens;
    }
    int tokens = 0;
  };
  // Of a sequence's keys.
  class PagesOfParts {
   public:
    WMMA_DEVICE PagesOfParts(const Arguments& p, const Work& work)
        : table_(pages_of(p, static_cast<int>(work.place.batch)), work.own.skv) {}
    WMMA_DEVICE TileStart start(int row) const { return {row, table_.number_of(row + first_line())}; }
    WMMA_DEVICE void locate(int32_t* at, const Work&, int row, bool is_there, const TileStart& tile) const {
      at[1] = is_there ? row % kPageSize : kPageSize;
      at[3] = table_.page(tile.number);
    }

   private:
    PageTable<kPageSize> table_;
  };
  using Pages = Choose<kPages, PagesOfParts, NoPages>;

  // To the queue's next place: one box high, or a part from each lane. `Of` is what memory has.
  template <class Tile, class Of, class Queue, class Item, class Pass = PassNothing>
  static WMMA_DEVICE void copy(const Queue& queue, const Item& item, const AttentionOperand& x, const TileMap& map,
                               const Work& work, const Pages& pages, const TileStart& tile, const Pass& pass = Pass()) {
    const bool leads = !kProducesByWave || lane_id() == 0;
    if (leads) queue.open(item, Tile::kBytes, pass);
    if constexpr (!kInParts) {
      if (leads) bring<Tile>(queue, item, x, map, work.place.batch, work.place.key_head, work.key(tile.row));
    } else {
      arch::wave_barrier();
      if (lane_id() >= kParts) return;
      const int line = first_line();
#pragma unroll
      for (int box = 0; box < Tile::kBoxes; ++box) {
        int32_t at[4];
        box_coordinates<Of>(at, x, work.place.batch, work.place.key_head, 0, box);
        pages.locate(at, work, tile.row + line, tile.row + line < work.end, tile);
        arch::copy_box<4, false, false>(queue.place(item) + box * Tile::kBoxBytes + line * 128, &map, queue.full(item),
                                        at, 1);
      }
    }
  }
  // Values that have a line for each column, of all heads.
  static WMMA_DEVICE void copy_transposed(const Values& queue, const typename Values::Item& item, const Arguments& p,
                                          const Work& work, int key) {
    queue.open(item, ValueTile::kBytes);
#pragma unroll
    for (int box = 0; box < ValueTile::kBoxes; ++box) {
      const int32_t at[4] = {key + box * 128, 0, static_cast<int32_t>(work.place.key_head),
                             static_cast<int32_t>(work.place.batch)};
      arch::copy_box<4, false, false>(queue.place(item) + box * ValueTile::kBoxBytes, &p.v_map, queue.full(item), at,
                                      1);
    }
  }
  template <class Tile, class Queue, class Item>
  static WMMA_DEVICE void bring(const Queue& queue, const Item& item, const AttentionOperand& x, const TileMap& map,
                                uint32_t batch, uint32_t head, uint32_t row) {
    copy_tile<T, Tile>(queue.place(item), queue.full(item), x, map, batch, head, row);
  }
};

}  // namespace wmma
