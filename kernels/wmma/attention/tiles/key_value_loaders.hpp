// How keys and values come to shared memory, a tile of each at a time: the next tile's keys are on their way while this
// one's scores become weights, its values while the next one's scores are computed. Tiles are gone through from the
// last to the first; only the last may be ragged.
#pragma once

#include <wmma/attention/tiles/key_value_starts.hpp>
#include <wmma/tile/chain.hpp>
#include <wmma/tile/staged_loader.hpp>
#ifdef WMMA_NVIDIA
#include <wmma/tile/async_loader.hpp>
#endif

namespace wmma {

// How far it is to the next tile, which starts before this one: of keys, which are a tile ahead, and of values.
template <bool kBlocks, int kKeys>
struct StepsBack {
  WMMA_DEVICE int key_step() const { return kKeys; }
  WMMA_DEVICE int value_step() const { return kKeys; }
};
template <int kKeys>
class StepsBack<true, kKeys> {
 public:
  // From a tile to the next one, and from that to the one behind it.
  WMMA_DEVICE void go(int to_next, int behind) {
    value_step_ = to_next;
    key_step_ = behind;
  }
  WMMA_DEVICE int key_step() const { return key_step_; }
  WMMA_DEVICE int value_step() const { return value_step_; }

 private:
  int key_step_ = 0;
  int value_step_ = 0;
};

// By way of registers, on every target. Values are turned on the way: their lines run along the keys. What is stored
// narrow becomes the queries' type there.
template <class Config, class Link, int kThreads>
class StagedKeyValueTiles : public StepsBack<Config::Rules::kBlocks, Config::kKeys> {
  using T = typename Config::Element;
  using Stored = StoredOf<Config>;
  static constexpr int kKeys = Config::kKeys;
  static constexpr bool kRaggedDepth = Config::kColumns % Config::kDepth != 0;

 public:
  using KeyTile = ChainTile<Link, kKeys, Config::kDepth * sizeof(T)>;
  using ValueTile = ChainTile<Link, Config::kSlice, kKeys * sizeof(T)>;
  using Address = unsigned char*;
  using Keys = ColumnReader<Link, KeyTile>;
  using Values = ColumnReader<Link, ValueTile>;
  static constexpr int kBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kDepths = (Config::kColumns + Config::kDepth - 1) / Config::kDepth;  // that a row comes in

  // `last` is the first key of the last tile, of which `keys` exist, `next` that of the one before it.
  template <class Arguments>
  WMMA_DEVICE StagedKeyValueTiles(const Arguments& p, const Stored* k, const Stored* v, unsigned char* tiles, int last,
                                  int next, int keys, int value_columns, uint32_t thread)
      : last_keys_(Places::template keys<KeyLoader>(p, k, last, p.k.column_stride, keys, thread)),
        keys_(Places::template keys<KeyLoader>(p, k, next, p.k.column_stride, kKeys, thread)),
        values_(Places::template values<ValueLoader>(p, v, last, p.v.column_stride, value_columns, thread)),
        tiles_(tiles),
        ragged_(keys) {}

  WMMA_DEVICE Address key_tile() const { return tiles_; }
  WMMA_DEVICE Address value_tile() const { return tiles_ + KeyTile::kBytes; }

  // The last tile is on its way; after `begin` its keys are there.
  WMMA_DEVICE void fetch() {
    if constexpr (kDepths == 1) last_keys_.template fetch<kRaggedDepth>(Config::kColumns);
  }
  WMMA_DEVICE void begin() {
    if constexpr (kDepths == 1) last_keys_.template store<false>(tiles_);
    values_.template fetch<true>(ragged_);
    arch::tile_barrier();
  }

  // Part `depth` of the columns of this tile's keys, where they come in several.
  template <bool kBounded>
  WMMA_DEVICE void next_depth(int depth, bool is_last) {
    const int left = Config::kColumns - depth * Config::kDepth;
    if (kBounded && is_last) {
      last_keys_.template fetch<true>(left);
      last_keys_.advance(Config::kDepth);
      last_keys_.template store<false>(tiles_);
    } else {
      keys_.template fetch<true>(left);
      keys_.advance(Config::kDepth);
      keys_.template store<false>(tiles_);
    }
  }

  template <bool kBounded>
  WMMA_DEVICE void before_scores(bool) {}
  template <bool kBounded>
  WMMA_DEVICE void after_scores(bool more) {
    values_.template store<false>(value_tile());
    if constexpr (kDepths == 1) {
      if (!kBounded || more) keys_.template fetch<kRaggedDepth>(Config::kColumns);
    }
    arch::schedule_barrier();
  }
  template <bool kBounded>
  WMMA_DEVICE void before_values(bool more) {
    arch::tile_barrier();
    if (!kBounded || more) {
      if constexpr (kDepths == 1) {
        keys_.template store<false>(tiles_);
        keys_.advance_lines(-this->key_step());
      }
      values_.advance(-this->value_step());
      values_.template fetch<false>();
    }
  }
  WMMA_DEVICE void after_values() { arch::tile_barrier(); }
  // Where a tile's keys came in parts: back to their first, and on to the next tile.
  WMMA_DEVICE void rewind(bool was_last) {
    if constexpr (kDepths > 1) {
      if (was_last) return;
      keys_.advance(-kDepths * Config::kDepth);
      keys_.advance_lines(-this->value_step());
    }
  }

 private:
  using Places = TilePlaces<Config>;
  using Stage = Choose<kSame<Stored, T>, PlainStage<T, T>, WideningStage<Stored, T> >;
  using KeyLoader =
      typename Places::template Staged<StagedLoader<Stored, T, Config::kKeyOrder, kKeys, Config::kDepth, kThreads,
                                                    Config::kKeyVec, Config::kWide, Stage, KeyTile>,
                                       true>;
  using ValueLoader =
      typename Places::template Staged<StagedLoader<Stored, T, Config::kValueOrder, Config::kSlice, kKeys, kThreads,
                                                    Config::kValueVec, Config::kWide, Stage, ValueTile>,
                                       false>;
  KeyLoader last_keys_;
  KeyLoader keys_;
  ValueLoader values_;
  unsigned char* tiles_;
  int ragged_;
};

#ifdef WMMA_NVIDIA

// Lines along the columns, read as an operand that is summed up across them: ldmatrix turns them.
template <class Link, class Tile>
class TransposedReader {
 public:
  WMMA_DEVICE explicit TransposedReader(uint32_t lane)
      : places_(Link::Product::b_depth_line(lane), Link::Product::b_outer_chunk(lane)) {}
  WMMA_DEVICE void read(Chunk* x, uint32_t tile, int n, int step) const {
    arch::ldmatrix_x4<true>(x->words, tile + places_.at(n, step * Link::kDepth));
  }

 private:
  StepPlaces<Tile, Link::kCols / Link::kPerChunk> places_;
};

// By asynchronous copies, where whole 16-byte chunks go to shared memory as they are.
template <class Config, class Link, int kThreads>
class AsyncKeyValueTiles : public StepsBack<Config::Rules::kBlocks, Config::kKeys> {
  using T = typename Config::Element;
  static constexpr int kKeys = Config::kKeys;
  static constexpr bool kRaggedDepth = Config::kColumns % Config::kDepth != 0;
  using Places = TilePlaces<Config>;
  using KeyLoader = typename Places::template Async<AsyncLoader<T, Order::kAlongK, kKeys, Config::kDepth, kThreads> >;
  using ValueLoader =
      typename Places::template Async<AsyncLoader<T, Order::kAcrossK, Config::kSlice, kKeys, kThreads> >;

 public:
  using KeyTile = typename KeyLoader::Tile;
  using ValueTile = typename ValueLoader::Tile;
  using Address = uint32_t;
  using Keys = ColumnReader<Link, KeyTile>;
  using Values = TransposedReader<Link, ValueTile>;
  static constexpr int kBytes = KeyTile::kBytes + ValueTile::kBytes;
  static constexpr int kDepths = 1;
  static_assert(Config::kDepth >= Config::kColumns, "a row comes at once");

  template <class Arguments>
  WMMA_DEVICE AsyncKeyValueTiles(const Arguments& p, const T* k, const T* v, unsigned char* tiles, int last, int next,
                                 int keys, int value_columns, uint32_t thread)
      : last_keys_(Places::template keys<KeyLoader>(p, k, last, 1, keys, thread)),
        keys_(Places::template keys<KeyLoader>(p, k, next, 1, kKeys, thread)),
        values_(Places::template values<ValueLoader>(p, v, last, 1, value_columns, thread)),
        tiles_(arch::shared_address(tiles)),
        limit_(keys) {}

  WMMA_DEVICE Address key_tile() const { return tiles_; }
  WMMA_DEVICE Address value_tile() const { return tiles_ + KeyTile::kBytes; }

  WMMA_DEVICE void fetch() {}
  WMMA_DEVICE void begin() {
    last_keys_.template copy<kRaggedDepth>(tiles_, Config::kColumns);
    arch::commit_async();
  }
  template <bool kBounded>
  WMMA_DEVICE void before_scores(bool) {
    arch::wait_async<0>();
    arch::block_barrier();
    values_.template copy<kBounded>(value_tile(), limit_);
    limit_ = kKeys;
    arch::commit_async();
    values_.advance(-this->value_step());
  }
  template <bool kBounded>
  WMMA_DEVICE void after_scores(bool more) {
    arch::wait_async<0>();
    arch::block_barrier();
    if (!kBounded || more) {
      keys_.template copy<kRaggedDepth>(tiles_, Config::kColumns);
      arch::commit_async();
      keys_.advance_lines(-this->key_step());
    }
  }
  template <bool kBounded>
  WMMA_DEVICE void before_values(bool) {}
  WMMA_DEVICE void after_values() {}
  WMMA_DEVICE void rewind(bool) {}

 private:
  KeyLoader last_keys_;
  KeyLoader keys_;
  ValueLoader values_;
  uint32_t tiles_;
  int limit_;
};

#endif

template <bool kAsync, class Config, class Link, int kThreads>
struct KeyValueTilesOf {
  using Type = StagedKeyValueTiles<Config, Link, kThreads>;
};
#ifdef WMMA_NVIDIA
template <class Config, class Link, int kThreads>
struct KeyValueTilesOf<true, Config, Link, kThreads> {
  using Type = AsyncKeyValueTiles<Config, Link, kThreads>;
};
#endif

}  // namespace wmma
