// What the two groups of waves in ping-pong (loops/ping_pong.hpp) bring to shared memory: the first group keys, the
// second values, each a tile ahead. Tiles come from the last to the first; `last` is the last one's first key, of which
// `keys` exist.
//
// A loader puts the last tile into the first buffer (`fetch_last`, `store_last`, `last_is_there`) and the one before it
// on its way (`begin`). Then the loop calls it around each phase of weights and beside each of a phase's kCount groups
// of products: at a tile whose values lie in `buffer` the keys that come next lie in the other one; `more` is whether a
// tile comes after that.
#pragma once

#include <wmma/attention/tiles/key_value_starts.hpp>
#include <wmma/tile/chain.hpp>
#include <wmma/tile/staged_loader.hpp>
#include <wmma/tile/transposed_columns.hpp>

namespace wmma {

template <class Config, class Link>
struct PingPongTiles;

// Whether a tile's rows are in several pages: its loader then finds them, and goes on by itself.
template <class Config>
inline constexpr bool kTilesInParts = Config::Rules::kPageSize % Config::kKeys != 0;

// Where tiles of keys or values start, from the last to the first: `start` is the last one's place, and next(there) how
// far it is from there, and then from each, to the one before it, in bytes; 0 where none is there.
template <class Config, int kPageSize = Config::Rules::kPageSize, bool kInParts = kTilesInParts<Config>>
class TileSteps {
  using T = typename Config::Element;
  using Pages = TilePages<T, kPageSize, Config::kKeys, 0, 1>;
  static_assert(Pages::kInOne, "a page is whole tiles");

 public:
  static WMMA_DEVICE const T* start(const PagesArguments& p, const AttentionOperand& x, int64_t page_stride,
                                    const T* first, int last) {
    const Pages pages({p.pages, first, page_stride, x.row_stride, p.skv}, last, row_of);
    return reinterpret_cast<const T*>(reinterpret_cast<const char*>(first) + pages.offset(0, row_of));
  }
  WMMA_DEVICE TileSteps(const PagesArguments& p, const AttentionOperand& x, int64_t page_stride, const T* first,
                        int last)
      : pages_({p.pages, first, page_stride, x.row_stride, p.skv}, last, row_of), at_(pages_.offset(0, row_of)) {
    pages_.go_back(Config::kKeys, row_of);
  }
  WMMA_DEVICE int64_t next(bool there) {
    if (!there) return 0;
    const int64_t from = at_;
    at_ = pages_.offset(0, row_of);
    pages_.go_back(Config::kKeys, row_of);
    return at_ - from;
  }

 private:
  static WMMA_DEVICE int row_of(int) { return 0; }

  Pages pages_;
  int64_t at_;  // the tile's, from the first page
};
// Of tiles whose parts are in several pages loaders know themselves.
template <class Config, int kPageSize>
struct TileSteps<Config, kPageSize, true> {
  template <class T>
  WMMA_DEVICE TileSteps(const PagesArguments&, const AttentionOperand&, int64_t, const T*, int) {}
};
template <class Config>
class TileSteps<Config, 0, false> {
  using T = typename Config::Element;

 public:
  static WMMA_DEVICE const T* start(const AttentionArguments&, const AttentionOperand& x, int64_t, const T* first,
                                    int last) {
    return first + last * x.row_stride;
  }
  WMMA_DEVICE TileSteps(const AttentionArguments&, const AttentionOperand& x, int64_t, const T*, int)
      : step_(Config::kKeys * x.row_stride * static_cast<int64_t>(sizeof(T))) {}
  WMMA_DEVICE int64_t next(bool there) const { return there ? -step_ : 0; }

 private:
  int64_t step_;  // of a tile
};

template <class Config, class Plain, bool kLines, bool kInParts = kTilesInParts<Config>>
struct LoaderOfParts {
  using Type = Plain;
};
template <class Config, class Plain, bool kLines>
struct LoaderOfParts<Config, Plain, kLines, true> {
  using Type = typename TilePlaces<Config>::template Staged<Plain, kLines>;
};
template <class Config, class Plain, bool kLines>
using PingPongLoader = typename LoaderOfParts<Config, Plain, kLines>::Type;

WMMA_DEVICE int64_t key_page_stride(const AttentionArguments&) { return 0; }
WMMA_DEVICE int64_t key_page_stride(const PagesArguments& p) { return p.pages.k_stride; }
WMMA_DEVICE int64_t value_page_stride(const AttentionArguments&) { return 0; }
WMMA_DEVICE int64_t value_page_stride(const PagesArguments& p) { return p.pages.v_stride; }

// By way of registers, stored while the group's weights are computed.
template <class Config, class Link>
class StagedKeys {
  using Tiles = PingPongTiles<Config, Link>;
  using T = typename Config::Element;
  using Steps = TileSteps<Config>;
  static constexpr bool kRaggedDepth = Config::kColumns % Config::kDepth != 0;

 public:
  static constexpr bool kIsSecond = false;

  template <class Arguments>
  WMMA_DEVICE StagedKeys(const Arguments& p, const T* k, const T*, unsigned char* tiles, int last, int keys, int,
                         uint32_t thread)
      : last_(loader(p, k, last, keys, thread)),
        others_(loader(p, k, kTilesInParts<Config> ? last - Config::kKeys : last, Config::kKeys, thread)),
        tiles_(tiles),
        steps_(p, p.k, key_page_stride(p), k, last) {}

  WMMA_DEVICE void fetch_last() { last_.template fetch<kRaggedDepth>(Config::kColumns); }
  WMMA_DEVICE void store_last() { last_.template store<false>(tiles_); }
  WMMA_DEVICE void last_is_there() {}
  WMMA_DEVICE void begin() { fetch(true); }
  WMMA_DEVICE void before_weights(uint32_t buffer, bool more) {
    others_.template store<false>(tiles_ + (buffer ^ 1) * Tiles::kKeyBytes);
    fetch(more);
  }
  WMMA_DEVICE void after_weights() {}
  template <int kCount>
  WMMA_DEVICE void beside_products(uint32_t, bool, int) {}

 private:
  // The next tile, or, where there is none, the same again: what is loaded always is no choice of registers.
  WMMA_DEVICE void fetch(bool there) {
    if constexpr (!kTilesInParts<Config>) others_.move(steps_.next(there));
    others_.template fetch<kRaggedDepth>(Config::kColumns);
  }

  using Plain = StagedLoader<T, T, Config::kKeyOrder, Config::kKeys, Config::kDepth, Tiles::kGroupThreads,
                             Config::kKeyVec, false, PlainStage<T, T>, typename Tiles::KeyTile>;
  using Loader = PingPongLoader<Config, Plain, true>;
  // Of a tile, of which `count` keys exist, and those before it.
  template <class Arguments>
  static WMMA_DEVICE Loader loader(const Arguments& p, const T* k, int first, int count, uint32_t thread) {
    if constexpr (kTilesInParts<Config>) {
      return TilePlaces<Config>::template keys<Loader>(p, k, first, p.k.column_stride, count, thread);
    } else {
      return Loader(Steps::start(p, p.k, key_page_stride(p), k, first), p.k.row_stride, p.k.column_stride, count,
                    thread, {});
    }
  }
  Loader last_;
  Loader others_;
  unsigned char* tiles_;
  Steps steps_;
};

// The same, turned on the way: values' lines run along the keys.
template <class Config, class Link>
class StagedValues {
  using Tiles = PingPongTiles<Config, Link>;
  using T = typename Config::Element;
  using Steps = TileSteps<Config>;

 public:
  static constexpr bool kIsSecond = true;

  template <class Arguments>
  WMMA_DEVICE StagedValues(const Arguments& p, const T*, const T* v, unsigned char* tiles, int last, int keys,
                           int columns, uint32_t thread)
      : values_(loader(p, v, last, columns, thread)),
        tiles_(tiles + 2 * Tiles::kKeyBytes),
        steps_(p, p.v, value_page_stride(p), v, last),
        ragged_(keys) {}

  WMMA_DEVICE void fetch_last() { values_.template fetch<true>(ragged_); }
  WMMA_DEVICE void store_last() { values_.template store<false>(tiles_); }
  WMMA_DEVICE void last_is_there() {}
  WMMA_DEVICE void begin() { fetch(true); }
  WMMA_DEVICE void before_weights(uint32_t buffer, bool more) {
    values_.template store<false>(tiles_ + (buffer ^ 1) * Tiles::kValueBytes);
    fetch(more);
  }
  WMMA_DEVICE void after_weights() {}
  template <int kCount>
  WMMA_DEVICE void beside_products(uint32_t, bool, int) {}

 private:
  WMMA_DEVICE void fetch(bool there) {
    if constexpr (!kTilesInParts<Config>) values_.move(steps_.next(there));
    values_.template fetch<false>();
  }

  using Plain = StagedLoader<T, T, Config::kValueOrder, Config::kSlice, Config::kKeys, Tiles::kGroupThreads,
                             Config::kValueVec, false, PlainStage<T, T>, typename Tiles::ValueTile>;
  using Loader = PingPongLoader<Config, Plain, false>;
  template <class Arguments>
  static WMMA_DEVICE Loader loader(const Arguments& p, const T* v, int first, int columns, uint32_t thread) {
    if constexpr (kTilesInParts<Config>) {
      return TilePlaces<Config>::template values<Loader>(p, v, first, p.v.column_stride, columns, thread);
    } else {
      return Loader(Steps::start(p, p.v, value_page_stride(p), v, first), p.v.column_stride, p.v.row_stride, columns,
                    thread, {});
    }
  }
  Loader values_;
  unsigned char* tiles_;
  Steps steps_;
  int ragged_;
};

// Straight to shared memory. Nobody reads a tile's keys any more when the first group starts with the products of the
// tile before it: from then on those of the tile after it are on their way, for two turns.
template <class Config, class Link>
class DirectKeys {
  using Tiles = PingPongTiles<Config, Link>;
  using T = typename Config::Element;
  using Steps = TileSteps<Config>;

 public:
  static constexpr bool kIsSecond = false;

  template <class Arguments>
  WMMA_DEVICE DirectKeys(const Arguments& p, const T* k, const T*, unsigned char* tiles, int last, int keys, int,
                         uint32_t thread)
      : last_(Steps::start(p, p.k, key_page_stride(p), k, last), p.k.row_stride, 1, keys, thread),
        others_(Steps::start(p, p.k, key_page_stride(p), k, last), p.k.row_stride, 1, Config::kKeys, thread),
        tiles_(tiles),
        steps_(p, p.k, key_page_stride(p), k, last) {}

  WMMA_DEVICE void fetch_last() { last_.copy(tiles_); }
  WMMA_DEVICE void store_last() {}
  WMMA_DEVICE void last_is_there() { arch::wait_copies<0>(); }
  WMMA_DEVICE void begin() {
    others_.move(steps_.next(true));
    others_.copy(tiles_ + Tiles::kKeyBytes);
  }
  WMMA_DEVICE void before_weights(uint32_t, bool) {}
  WMMA_DEVICE void after_weights() { arch::wait_copies<0>(); }
  // The next tile, or, where there is none, the same again, beside the products: they wait for no queue of copies.
  template <int kCount>
  WMMA_DEVICE void beside_products(uint32_t buffer, bool more, int i) {
    if (i == 0) others_.move(steps_.next(more));
#pragma unroll
    for (int copy = i * Loader::kCopies / kCount; copy < (i + 1) * Loader::kCopies / kCount; ++copy) {
      others_.copy(tiles_ + buffer * Tiles::kKeyBytes, copy);
    }
  }

 private:
  using Loader =
      DirectLoader<T, Order::kAlongK, Config::kKeys, Config::kDepth, Tiles::kGroupThreads, typename Tiles::KeyTile>;
  Loader last_;
  Loader others_;
  unsigned char* tiles_;
  Steps steps_;
};

// The same for values, a turn later: they are on their way for one. Those of keys that do not exist are zero, since
// their weight, which is, would make NaN of others.
template <class Config, class Link>
class DirectValues {
  using Tiles = PingPongTiles<Config, Link>;
  using T = typename Config::Element;
  using Steps = TileSteps<Config>;

 public:
  static constexpr bool kIsSecond = true;

  template <class Arguments>
  WMMA_DEVICE DirectValues(const Arguments& p, const T*, const T* v, unsigned char* tiles, int last, int keys,
                           int columns, uint32_t thread)
      : values_(Steps::start(p, p.v, value_page_stride(p), v, last), 1, p.v.row_stride, columns, thread),
        tiles_(tiles + 2 * Tiles::kKeyBytes),
        steps_(p, p.v, value_page_stride(p), v, last),
        ragged_(keys) {}

  WMMA_DEVICE void fetch_last() {
    if (ragged_ == Config::kKeys) {
      values_.copy(tiles_);
    } else {
      values_.fill(tiles_, ragged_);
    }
  }
  WMMA_DEVICE void store_last() {}
  WMMA_DEVICE void last_is_there() { arch::wait_copies<0>(); }
  WMMA_DEVICE void begin() {}
  WMMA_DEVICE void before_weights(uint32_t buffer, bool) {
    values_.move(steps_.next(true));
    values_.copy(tiles_ + (buffer ^ 1) * Tiles::kValueBytes);
  }
  WMMA_DEVICE void after_weights() { arch::wait_copies<0>(); }
  template <int kCount>
  WMMA_DEVICE void beside_products(uint32_t, bool, int) {}

 private:
  using Loader = DirectLoader<T, Order::kAcrossK, Config::kSlice, Config::kKeys, Tiles::kGroupThreads>;
  Loader values_;
  unsigned char* tiles_;
  Steps steps_;
  int ragged_;
};

template <class Config, class Link>
using KeyLoaderOf = Choose<Config::kAsync, DirectKeys<Config, Link>, StagedKeys<Config, Link>>;
template <class Config, class Link>
using ValueLoaderOf = Choose<Config::kAsync, DirectValues<Config, Link>, StagedValues<Config, Link>>;

}  // namespace wmma
