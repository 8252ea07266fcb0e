// Global memory to shared memory by way of registers, for any layout, alignment and conversion: `fetch` puts a tile's
// loads in flight, `store` writes what arrived, line by line with K along the lines. A tile's memory may run along K or
// across it; across, each thread transposes a small block in its registers.
#pragma once

#include <wmma/grid.hpp>
#include <wmma/tile/config.hpp>
#include <wmma/tile/float_parts.hpp>
#include <wmma/tile/shared_tile.hpp>
#include <wmma/tile/widening.hpp>

namespace wmma {

// What is done to an element on its way: nothing, unless the element types differ.
template <class Storage, class Element>
struct PlainStage {
  static constexpr bool kPlain = kSame<Storage, Element>;
  WMMA_DEVICE Element apply(Storage x, uint32_t) const { return convert<Element>(static_cast<float>(x)); }
  WMMA_DEVICE void advance(int64_t) {}
};

namespace detail {

WMMA_CONSTEXPR int power_of_two_up_to(int x) {
  int power = 1;
  while (power * 2 <= x) power *= 2;
  return power;
}

}  // namespace detail

// kOuter lines of kDepth elements. kVec as the planner promises: kVec elements from any multiple of kVec are aligned
// neighbours. kWide: offsets within the tile may pass 32 bits.
template <
    class Storage, class Element, Order kOrder, int kOuter, int kDepth, int kThreads, int kVec, bool kWide, class Stage,
    class TileType = TileOfParts<kOuter, bytes_of<typename InTile<Element>::Part>(kDepth), InTile<Element>::kParts>>
class StagedLoader {
  static constexpr bool kAlong = kOrder == Order::kAlongK;
  using Part = typename InTile<Element>::Part;
  static constexpr int kParts = InTile<Element>::kParts;
  static constexpr int kBytes = bytes_of<Part>(1);  // from one element of a line to the next
  static constexpr int kPerChunk = 16 / kBytes;
  // Elements of one load. Those that widen are more than a chunk of a line; across K they are, where a thread then
  // still has whole chunks to store.
  static constexpr bool kWidening = kWidens<Stage>;
  static constexpr int kAtOnce = elements_in<Storage>(16);
  static constexpr bool kTakesMore = kWidening && (kAlong || kOuter * kDepth / kThreads / kAtOnce >= kPerChunk);
  static constexpr int kPiece = detail::lower(kVec, kTakesMore ? kAtOnce : kPerChunk / kParts);
  static constexpr int kLines = kAlong ? 1 : kPiece;  // of a thread's block, and its length along K:
  static constexpr int kShare = kOuter * kDepth / kThreads / kLines;
  // Along K a run is one load, or a word of single elements: neighbouring threads then read neighbouring memory. Across
  // K it is as long as the threads' shares allow.
  static constexpr int kRun = kAlong ? (kPiece * kBytes >= 4 ? kPiece : 4 / kBytes)
                                     : detail::lower(kPerChunk, detail::power_of_two_up_to(kShare < 1 ? 1 : kShare));
  static constexpr int kLoads = kAlong ? kRun / kPiece : kRun;
  static constexpr int kOffsets = kAlong ? 1 : kLoads;
  static constexpr int kRuns = kDepth / kRun;      // along K
  static constexpr int kGroups = kOuter / kLines;  // across
  static constexpr int kTotal = kRuns * kGroups;
  static constexpr bool kExact = kTotal % kThreads == 0;
  static_assert(kDepth % kRun == 0 && kOuter % kLines == 0, "blocks fill the tile");
  static constexpr int kPieceBytes = bytes_of<Storage>(kPiece);
  static_assert(kRun * kBytes <= 16 || (kWidening && kRun % kPerChunk == 0), "a run is in a chunk, or is whole ones");

 public:
  using Offset = Choose<kWide, int64_t, uint32_t>;  // in bytes
  using Tile = TileType;
  static constexpr int kBlocks = (kTotal + kThreads - 1) / kThreads;  // of a thread
  static constexpr int kRegisters = kBlocks * kLoads * ((kPieceBytes + 3) / 4);
  static constexpr int kTransposing = kAlong ? 0 : kBitsOf<Storage> == 8 ? 256 : 16;  // registers, to turn around
  static constexpr bool kWhole = Stage::kPlain && kPieceBytes == 16;                  // goes as it is, by whole loads

  // `data` is the tile's first element at k = 0 and `rows` how many of its lines exist: lines beyond repeat the last
  // block, and their products are never stored.
  WMMA_DEVICE StagedLoader(const void* data, int64_t outer_stride, int64_t k_stride, int64_t rows, uint32_t thread,
                           Stage stage)
      : base_(static_cast<const char*>(data)), thread_(thread), stage_(stage) {
    static_assert(!kIsPacked<Storage> || (kAlong && kPieceBytes % 4 == 0), "packed rows are read along K, by words");
    k_step_ = kIsPacked<Storage> ? 0 : bytes_of<Storage>(kAlong && kVec > 1 ? 1 : k_stride);
    const int64_t outer_step = bytes_of<Storage>(outer_stride);
    outer_step_ = outer_step;
    const uint32_t last = rows >= kOuter ? kOuter - kLines : static_cast<uint32_t>(rows) - kLines;
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const Place place = place_of(thread, i);
      const uint32_t line = place.line < last ? place.line : last;
#pragma unroll
      for (int j = 0; j < kOffsets; ++j) {
        offset_[i][j] = static_cast<Offset>(line) * static_cast<Offset>(outer_step) + along_k<Offset>(place.k + j);
      }
    }
  }

  // Moves the loads along K. The stage follows when what was loaded is stored.
  WMMA_DEVICE void advance(int64_t k) { base_ += along_k<int64_t>(k); }
  // Moves them across, by whole tiles where K is.
  WMMA_DEVICE void advance_lines(int64_t lines) { base_ += lines * outer_step_; }

  WMMA_DEVICE void move(int64_t bytes) { base_ += bytes; }
  // Goes on with a tile whose first element is elsewhere.
  WMMA_DEVICE void start_at(const void* data) { base_ = static_cast<const char*>(data); }

  // kMasked: only the first `limit` of K exist; the rest is zero.
  template <bool kMasked>
  WMMA_DEVICE void fetch(int limit = 0) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) fetch_block<kMasked>(i, limit);
  }
  template <bool kMasked>
  WMMA_DEVICE void store(unsigned char* tile, int limit = 0) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) store_block<kMasked>(tile, i, limit);
    stored<kMasked>(limit);
  }

  // Of a tile whose parts lie apart: where each of a thread's blocks starts, and its loads from start(i) + offset(i)
  // bytes behind the tile's first element on.
  struct Place {
    uint32_t line;
    uint32_t k;
  };
  WMMA_DEVICE Place block_place(int i) const { return place_of(thread_, i); }
  static constexpr int kPassLines = kAlong && kThreads % kRuns == 0 ? kThreads / kRuns : 0;  // of all threads' block i
  template <bool kMasked, class Start, class OffsetOf>
  WMMA_DEVICE void fetch_blocks(const Start& start, const OffsetOf& offset, int limit) {
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      if (!kExact && thread_ + i * kThreads >= kTotal) return;
      const char* const at = base_ + start(i);
      const Offset within = offset(i);
#pragma unroll
      for (int j = 0; j < kLoads; ++j)
        load_from<kMasked>(i, j, at + along_k<int64_t>(kAlong ? j * kPiece : j) + within, limit);
    }
  }

  // Of a whole tile one thread's block after the other, once each; `stored` when all are.
  WMMA_DEVICE void fetch_block(int i) { fetch_block<false>(i, 0); }
  // Of these the loads one by one, of kBlockLoads each.
  static constexpr int kBlockLoads = kLoads;
  WMMA_DEVICE void fetch_load(int n) {
    const int i = n / kLoads;
    if (!kExact && thread_ + i * kThreads >= kTotal) return;
    const int j = n % kLoads;
    if (j < kOffsets) arch::renew(offset_[i][j]);
    load<false>(i, j, 0);
  }
  WMMA_DEVICE void store_block(unsigned char* tile, int i) { store_block<false>(tile, i, 0); }
  static constexpr int kBlockLines = kLines;
  WMMA_DEVICE void store_line(unsigned char* tile, int i, int line) {
    if (!kExact && thread_ + i * kThreads >= kTotal) return;
    store_line<false>(tile, place_of(thread_, i), i, line, 0);
  }
  WMMA_DEVICE void stored() { stored<false>(0); }

  // What was loaded across K as it lies in memory: each load is a chunk of a line of `Across`, of which there is one
  // for each k.
  template <class Across>
  WMMA_DEVICE void store_across(unsigned char* tile) const {
    static_assert(!kAlong && kWhole && kParts == 1 && kExact, "whole chunks");
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const Place place = place_of(thread_, i);
#pragma unroll
      for (int j = 0; j < kLoads; ++j) {
        arch::copy<kPiece>(reinterpret_cast<Element*>(tile + Across::offset(place.k + j, place.line / kPiece)),
                           reinterpret_cast<const Element*>(raw_[i][j]));
      }
    }
  }

 private:
  // Blocks of 8- and 16-bit elements turn around word by word.
  static constexpr bool kTurnsWords = !kAlong && (Stage::kPlain || kWidening) && kBitsOf<Storage> <= 16 &&
                                      kPieceBytes >= 4 && bytes_of<Storage>(kRun) >= 4;
  static constexpr bool kHoldsWords = arch::kHoldsWords && kPieceBytes % 4 == 0;
  using Held =
      Choose<kHoldsWords, arch::Words<kHoldsWords ? kPieceBytes / 4 : 1>, Choose<kIsPacked<Storage>, uint8_t, Storage>>;
  static constexpr int kHeld = kHoldsWords ? 1 : kIsPacked<Storage> ? kPieceBytes : kPiece;

  template <bool kMasked>
  WMMA_DEVICE void fetch_block(int i, int limit) {
    if (!kExact && thread_ + i * kThreads >= kTotal) return;
#pragma unroll
    for (int j = 0; j < kOffsets; ++j) arch::renew(offset_[i][j]);
#pragma unroll
    for (int j = 0; j < kLoads; ++j) load<kMasked>(i, j, limit);
  }

  // Bytes from an element to the one so many of K further on.
  template <class Count>
  WMMA_DEVICE Count along_k(Count k) const {
    if constexpr (kIsPacked<Storage>) return bytes_of<Storage>(k);
    return k * static_cast<Count>(k_step_);
  }

  template <bool kMasked>
  WMMA_DEVICE void load(int i, int j, int limit) {
    const int k = kAlong ? j * kPiece : j;
    load_from<kMasked>(i, j, kAlong ? base_ + along_k<int64_t>(k) + offset_[i][0] : base_ + offset_[i][j], limit);
  }
  template <bool kMasked>
  WMMA_DEVICE void load_from(int i, int j, const char* at, int limit) {
    const int k = kAlong ? j * kPiece : j;
    if (!kMasked || static_cast<int>(place_of(thread_, i).k) + k < limit) {
      if constexpr (kHoldsWords) {
        raw_[i][j][0] = arch::load_words<kPieceBytes / 4>(reinterpret_cast<const Storage*>(at));
      } else {
        arch::copy<kHeld>(raw_[i][j], reinterpret_cast<const Held*>(at));
      }
    } else {
#pragma unroll
      for (int e = 0; e < kHeld; ++e) raw_[i][j][e] = zero();
    }
  }

  template <bool kMasked>
  WMMA_DEVICE void store_block(unsigned char* tile, int i, int limit) {
    if (!kExact && thread_ + i * kThreads >= kTotal) return;
    const Place place = place_of(thread_, i);
#pragma unroll
    for (int line = 0; line < kLines; ++line) store_line<kMasked>(tile, place, i, line, limit);
  }

  template <bool kMasked>
  WMMA_DEVICE void store_line(unsigned char* tile, const Place& place, int i, int line, int limit) {
    Element run[kRun];
    if constexpr (kWidening) {
      Storage narrow[kRun];
      if constexpr (kTurnsWords) {
        turn(narrow, i, line);
      } else {
#pragma unroll
        for (int k = 0; k < kRun; ++k) narrow[k] = kAlong ? element(i, k / kPiece, k % kPiece) : element(i, k, line);
      }
      Stage::template widen<kRun>(run, narrow);
    } else if constexpr (kTurnsWords) {
      turn(run, i, line);
    } else if constexpr (kHoldsWords && kAlong && kWhole) {
      arch::copy_bytes<16>(run, raw_[i][0]);
    } else {
#pragma unroll
      for (int k = 0; k < kRun; ++k) {
        const Storage x = kAlong ? element(i, k / kPiece, k % kPiece) : element(i, k, line);
        if constexpr (Stage::kPlain) {
          run[k] = x;
        } else {
          // What lies beyond K stays zero, whatever the stage makes of it.
          run[k] = kMasked && static_cast<int>(place.k) + k >= limit ? Element(0) : stage_.apply(x, place.k + k);
        }
      }
    }
    const uint32_t byte = place.k * static_cast<uint32_t>(kBytes);
    unsigned char* const at = tile + Tile::offset(place.line + line, byte / 16) + byte % 16;
    if constexpr (kRun * kBytes > 16) {
#pragma unroll
      for (int k = 0; k < kRun; k += kPerChunk) {
        arch::copy<kPerChunk>(
            reinterpret_cast<Element*>(tile + Tile::offset(place.line + line, (byte + k * kBytes) / 16)), run + k);
      }
    } else if constexpr (kParts == 1) {
      arch::copy<kRun>(reinterpret_cast<Element*>(at), run);
    } else {
      store_parts(at, run);
    }
  }

  static WMMA_DEVICE void store_parts(unsigned char* at, const Element* run) {
    uint32_t first[(kRun + 1) / 2], second[(kRun + 1) / 2];
#pragma unroll
    for (int k = 0; k < kRun; k += 2) {
      const int next = k + 1 < kRun ? k + 1 : k;
      first[k / 2] = arch::bf16_pair_cut(run[k].first, run[next].first);
      second[k / 2] = arch::bf16_pair_cut(run[k].second, run[next].second);
    }
    arch::copy_bytes<kRun * kBytes>(at, first);
    arch::copy_bytes<kRun * kBytes>(at + Tile::kPartBytes, second);
  }

  template <bool kMasked>
  WMMA_DEVICE void stored(int limit) {
    stage_.advance(kMasked ? limit : kDepth);
  }

  // Along K, neighbouring threads take neighbouring runs of a line. Across, kSpread of them do, then the next lines:
  // wide enough apart in shared memory for their stores, near enough in global memory for whole segments.
  static WMMA_CONSTEXPR Place place_of(uint32_t thread, int i) {
    const uint32_t at = thread + i * kThreads;
    if (kAlong) return {at / kRuns, at % kRuns * kRun};
    const uint32_t low = at % kSpread;
    const uint32_t rest = at / kSpread;
    return {rest % kGroups * kLines, (rest / kGroups * kSpread + low) * kRun};
  }

  // The lanes that shared memory serves together write kRun elements each; how many cycles that takes, or some number
  // from `enough` on. Compilers' interpreters are slow: it counts no more than it must.
  static WMMA_CONSTEXPR int store_cycles(uint32_t spread, int enough) {
    constexpr uint32_t kOfRun = kRun * kBytes < 4 ? 4 : kRun * kBytes;
    constexpr uint32_t kLanes = detail::lower(arch::kBankBytes / static_cast<int>(kOfRun), arch::kWaveSize);
    constexpr uint32_t kBanks = arch::kBankBytes / 4;
    int worst = 0;
    for (uint32_t line = 0; line < detail::lower(kLines, 8); ++line) {
      int words[kBanks] = {};
      for (uint32_t lane = 0; lane < kLanes; ++lane) {
        const uint32_t rest = lane / spread;
        const uint32_t byte = (rest / kGroups * spread + lane % spread) * kRun * kBytes;
        const uint32_t at = (Tile::offset(rest % kGroups * kLines + line, byte / 16) + byte % 16) / 4;
        for (uint32_t word = 0; word < kOfRun / 4; ++word) {
          const int cycles = ++words[(at + word) % kBanks];
          if (cycles > worst) worst = cycles;
        }
        if (worst >= enough) return worst;
      }
    }
    return worst;
  }

  static WMMA_CONSTEXPR int best_spread() {
    int best = 1;
    int fewest = kRuns > 1 ? store_cycles(1, arch::kWaveSize * kRun) : 1;
    for (int spread = 2; spread <= kRuns && spread <= 16 && fewest > 1; spread *= 2) {
      const int cycles = kRuns % spread == 0 ? store_cycles(spread, fewest) : fewest;
      if (cycles < fewest) best = spread, fewest = cycles;
    }
    return best;
  }

  static constexpr int kSpread = kAlong ? 1 : best_spread();

  // The element of each of the run's k on line `line`.
  WMMA_DEVICE void turn(Storage* run, int i, int line) const {
    constexpr int kPerWord = elements_in<Storage>(4);
    uint32_t words[kRun / kPerWord];
    const auto word = [&](int k) -> uint32_t {
      if constexpr (kHoldsWords) {
        return raw_[i][k][0][line / kPerWord];
      } else {
        uint32_t x;
        arch::copy_bytes<4>(&x, &raw_[i][k][line / kPerWord * kPerWord]);
        return x;
      }
    };
#pragma unroll
    for (int k = 0; k < kRun; k += kPerWord) {
      if constexpr (kPerWord == 2) {
        words[k / 2] = line % 2 == 0 ? arch::pair_halves<false>(word(k), word(k + 1))
                                     : arch::pair_halves<true>(word(k), word(k + 1));
      } else {
        const uint32_t selectors = 0x0400u + static_cast<uint32_t>(line % 4) * 0x0101u;
        const uint32_t low = arch::pick_bytes(word(k), word(k + 1), selectors);
        const uint32_t high = arch::pick_bytes(word(k + 2), word(k + 3), selectors);
        words[k / 4] = arch::pair_halves<false>(low, high);
      }
    }
    arch::copy_bytes<bytes_of<Storage>(kRun)>(run, words);
  }

  // Of a piece its e-th.
  WMMA_DEVICE Storage element(int i, int j, int e) const {
    if constexpr (kIsPacked<Storage>) {
      constexpr int kOfHeld = kHoldsWords ? 8 : 2;
      if constexpr (kHoldsWords) {
        return Storage(static_cast<int32_t>(raw_[i][j][0][e / kOfHeld] >> e % kOfHeld * 4));
      } else {
        return Storage(raw_[i][j][e / kOfHeld] >> e % kOfHeld * 4);
      }
    } else if constexpr (!kHoldsWords) {
      return raw_[i][j][e];
    } else if constexpr (kBitsOf<Storage> == 8) {
      return arch::bit_cast<Storage>(static_cast<uint8_t>(raw_[i][j][0][e / 4] >> e % 4 * 8));
    } else if constexpr (kBitsOf<Storage> == 16) {
      return arch::bit_cast<Storage>(static_cast<uint16_t>(raw_[i][j][0][e / 2] >> e % 2 * 16));
    } else if constexpr (kBitsOf<Storage> == 32) {
      return arch::bit_cast<Storage>(static_cast<uint32_t>(raw_[i][j][0][e]));
    } else {
      const uint32_t low = raw_[i][j][0][2 * e], high = raw_[i][j][0][2 * e + 1];
      return arch::bit_cast<Storage>(static_cast<uint64_t>(high) << 32 | low);
    }
  }

  static WMMA_DEVICE Held zero() {
    if constexpr (sizeof(Held) == 1) {
      return arch::bit_cast<Held>(static_cast<uint8_t>(0));
    } else if constexpr (sizeof(Held) == 2) {
      return arch::bit_cast<Held>(static_cast<uint16_t>(0));
    } else {
      return Held{};
    }
  }

  const char* base_;

 protected:
  int64_t k_step_;
  int64_t outer_step_;

 private:
  Offset offset_[kBlocks][kOffsets];
  uint32_t thread_;
  Stage stage_;
  alignas(16) Held raw_[kBlocks][kLoads][kHeld];
};

}  // namespace wmma
