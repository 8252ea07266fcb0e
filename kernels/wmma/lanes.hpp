// The lanes of a wave (AMD) or warp (NVIDIA) among each other: shuffles, votes, matches, and masks of lanes.
//
// In a mask, bit l stands for lane l. The functions that end in _sync take one, as CUDA's do: it names the lanes that
// take part, each lane that calls is in its own mask, and all whom it names come to the call. A lane that has left the
// kernel or is past the block's end does not come: active_mask() names those that do. An assertion tells a mask without
// the lane itself, and on AMD, where lanes come together or not at all, one that names absent lanes. The functions
// without a mask are for all lanes of the wave; but votes and matches on AMD are of those that come.
#pragma once

#include <wmma/assert.hpp>
#include <wmma/types.hpp>
#ifdef WMMA_AMD
#include <wmma/arch/amd_lanes.hpp>
#else
#include <wmma/arch/nvidia_lanes.hpp>
#endif

namespace wmma {

// Lanes of a wave: 64 on CDNA, else 32.
constexpr int kWaveSize = arch::kWaveSize;

// The mask of all lanes of a wave.
constexpr uint64_t kAllLanes = kWaveSize == 64 ? ~uint64_t{0} : (uint64_t{1} << (kWaveSize % 64)) - 1;

// The lane within its wave (AMD) or warp (NVIDIA).
WMMA_DEVICE uint32_t lane_id() { return arch::lane_id(); }

// A value that is the same in all lanes, moved to a scalar register where the target has them.
WMMA_DEVICE uint32_t uniform(uint32_t value) { return arch::uniform(value); }

// The mask of this lane alone.
WMMA_DEVICE uint64_t lane_mask_eq() { return uint64_t{1} << lane_id(); }
// Of the lanes before it.
WMMA_DEVICE uint64_t lane_mask_lt() { return lane_mask_eq() - 1; }
// Of the lanes before it, and of itself.
WMMA_DEVICE uint64_t lane_mask_le() { return lane_mask_lt() | lane_mask_eq(); }
// Of the lanes after it.
WMMA_DEVICE uint64_t lane_mask_gt() { return kAllLanes & ~lane_mask_le(); }
// Of the lanes after it, and of itself.
WMMA_DEVICE uint64_t lane_mask_ge() { return kAllLanes & ~lane_mask_lt(); }

// The lanes that come to this call together.
WMMA_DEVICE uint64_t active_mask() { return arch::active_mask(); }

// How many bits are set.
WMMA_DEVICE int count_bits(uint64_t bits) { return arch::count_bits(bits); }

// The number of the lowest bit that is set in a mask that is not 0.
WMMA_DEVICE int first_lane(uint64_t mask) { return arch::lowest_bit(mask); }

namespace detail {

// A mask as it was given, with the lanes that there are.
template <class Mask>
WMMA_DEVICE uint64_t checked_mask(Mask given) {
  static_assert(sizeof(Mask) == 8 || kWaveSize == 32, "wmma: a mask of 64 lanes has 64 bits: give a uint64_t");
  const uint64_t mask = static_cast<uint64_t>(given) & kAllLanes;
  [[maybe_unused]] const uint64_t absent = arch::kLanesComeTogether ? mask & ~active_mask() : 0;
  [[maybe_unused]] const bool kept = (mask & lane_mask_eq()) != 0 && absent == 0;
  WMMA_ASSERT(kept, "a mask names the lane that calls it and no absent lane: it is 0x%llx", mask);
  return mask;
}

template <class Width>
WMMA_DEVICE void check_width([[maybe_unused]] Width width) {
  [[maybe_unused]] const bool kept = width > 0 && width <= kWaveSize && (width & (width - 1)) == 0;
  WMMA_ASSERT(kept, "a width is a power of two, up to the wave's lanes: it is %d", width);
}

template <class T>
using BitsOf =
    Choose<sizeof(T) == 8, uint64_t, Choose<sizeof(T) == 4, uint32_t, Choose<sizeof(T) == 2, uint16_t, uint8_t>>>;

// A value of 1, 2, 4 or 8 bytes by way of words, each of which `move` hands from lane to lane.
template <class T, class Move>
WMMA_DEVICE T by_words(T value, Move move) {
  static_assert(sizeof(T) == sizeof(BitsOf<T>), "wmma: what moves between lanes has 1, 2, 4 or 8 bytes");
  const BitsOf<T> bits = arch::bit_cast<BitsOf<T>>(value);
  if constexpr (sizeof(T) == 8) {
    const uint64_t low = move(static_cast<uint32_t>(bits));
    const uint64_t high = move(static_cast<uint32_t>(bits >> 32));
    return arch::bit_cast<T>(low | high << 32);
  } else {
    return arch::bit_cast<T>(static_cast<BitsOf<T>>(move(bits)));
  }
}

template <class T>
WMMA_DEVICE T shuffle_from(T value, uint32_t source_lane) {
  return by_words(value, [=](uint32_t word) { return arch::shuffle_word(word, source_lane); });
}
template <class T>
WMMA_DEVICE T shuffle_among(uint64_t mask, T value, uint32_t source_lane) {
  return by_words(value, [=](uint32_t word) { return arch::shuffle_word_among(mask, word, source_lane); });
}

// The lanes that shuffles read from.
WMMA_DEVICE int lane_at(int source, int width) {
  return (static_cast<int>(lane_id()) & ~(width - 1)) | (source & (width - 1));
}
WMMA_DEVICE int lane_above(int delta, int width) {
  const int lane = static_cast<int>(lane_id());
  return (lane & (width - 1)) < delta ? lane : lane - delta;
}
WMMA_DEVICE int lane_below(int delta, int width) {
  const int lane = static_cast<int>(lane_id());
  return (lane & (width - 1)) + delta >= width ? lane : lane + delta;
}
WMMA_DEVICE int lane_across(int flips, int width) {
  const int lane = static_cast<int>(lane_id());
  const int source = lane ^ flips;
  return (lane & ~(width - 1)) == (source & ~(width - 1)) ? source : lane;
}

}  // namespace detail

// The value of the lane `source`. Shuffles move 1, 2, 4 or 8 bytes, in the whole wave or in groups of `width` lanes, a
// power of two. All lanes of the wave take part. Where the source lies outside the group, a lane keeps its own value.
template <class T>
WMMA_DEVICE T shuffle(T value, int source) {
  return detail::shuffle_from(value, detail::lane_at(source, kWaveSize));
}
template <class T>
WMMA_DEVICE T shuffle(T value, int source, int width) {
  detail::check_width(width);
  return detail::shuffle_from(value, detail::lane_at(source, width));
}
// The value of the lane that comes `delta` before this one.
template <class T>
WMMA_DEVICE T shuffle_up(T value, int delta) {
  return detail::shuffle_from(value, detail::lane_above(delta, kWaveSize));
}
template <class T>
WMMA_DEVICE T shuffle_up(T value, int delta, int width) {
  detail::check_width(width);
  return detail::shuffle_from(value, detail::lane_above(delta, width));
}
// The value of the lane that comes `delta` after this one.
template <class T>
WMMA_DEVICE T shuffle_down(T value, int delta) {
  return detail::shuffle_from(value, detail::lane_below(delta, kWaveSize));
}
template <class T>
WMMA_DEVICE T shuffle_down(T value, int delta, int width) {
  detail::check_width(width);
  return detail::shuffle_from(value, detail::lane_below(delta, width));
}
// The value of the lane whose number differs from this one's in the bits of `mask`.
template <class T>
WMMA_DEVICE T shuffle_xor(T value, int mask) {
  return detail::shuffle_from(value, detail::lane_across(mask, kWaveSize));
}
template <class T>
WMMA_DEVICE T shuffle_xor(T value, int mask, int width) {
  detail::check_width(width);
  return detail::shuffle_from(value, detail::lane_across(mask, width));
}

// The value of the lane `source`, among the lanes of a mask. What is read from a lane that it does not name means
// nothing.
template <class Mask, class T>
WMMA_DEVICE T shuffle_sync(Mask mask, T value, int source, int width = kWaveSize) {
  detail::check_width(width);
  return detail::shuffle_among(detail::checked_mask(mask), value, detail::lane_at(source, width));
}
// The value of the lane that comes `delta` before this one.
template <class Mask, class T>
WMMA_DEVICE T shuffle_up_sync(Mask mask, T value, int delta, int width = kWaveSize) {
  detail::check_width(width);
  return detail::shuffle_among(detail::checked_mask(mask), value, detail::lane_above(delta, width));
}
// The value of the lane that comes `delta` after this one.
template <class Mask, class T>
WMMA_DEVICE T shuffle_down_sync(Mask mask, T value, int delta, int width = kWaveSize) {
  detail::check_width(width);
  return detail::shuffle_among(detail::checked_mask(mask), value, detail::lane_below(delta, width));
}
// The value of the lane whose number differs from this one's in the bits of `flips`.
template <class Mask, class T>
WMMA_DEVICE T shuffle_xor_sync(Mask mask, T value, int flips, int width = kWaveSize) {
  detail::check_width(width);
  return detail::shuffle_among(detail::checked_mask(mask), value, detail::lane_across(flips, width));
}

// The votes of the lanes that reach the call, all of the wave on NVIDIA: bit l is lane l's.
WMMA_DEVICE uint64_t vote_ballot(bool vote) { return arch::ballot(vote); }
// Whether one of them says yes.
WMMA_DEVICE bool vote_any(bool vote) { return arch::ballot(vote) != 0; }
// Whether all of them say yes.
WMMA_DEVICE bool vote_all(bool vote) { return arch::ballot(!vote) == 0; }

// The votes of a mask's lanes; the others' bits are 0.
template <class Mask>
WMMA_DEVICE uint64_t vote_ballot_sync(Mask mask, bool vote) {
  return arch::ballot_among(detail::checked_mask(mask), vote);
}
// Whether one of a mask's lanes says yes.
template <class Mask>
WMMA_DEVICE bool vote_any_sync(Mask mask, bool vote) {
  return vote_ballot_sync(mask, vote) != 0;
}
// Whether all of a mask's lanes say yes.
template <class Mask>
WMMA_DEVICE bool vote_all_sync(Mask mask, bool vote) {
  return vote_ballot_sync(mask, !vote) == 0;
}

// The lanes of a mask whose values have the same bits as this lane's, of 1, 2, 4 or 8 bytes.
template <class Mask, class T>
WMMA_DEVICE uint64_t match_any_sync(Mask mask, T value) {
  const uint64_t among = detail::checked_mask(mask);
  uint64_t same = among;
  detail::by_words(value, [&](uint32_t word) {
    same &= arch::match_word(among, word);
    return word;
  });
  return same;
}
// The same among the lanes that reach the call.
template <class T>
WMMA_DEVICE uint64_t match_any(T value) {
  return match_any_sync(active_mask(), value);
}

// The mask where the values of all its lanes have the same bits, and 0 where two differ.
template <class Mask, class T>
WMMA_DEVICE uint64_t match_all_sync(Mask mask, T value) {
  const uint64_t among = detail::checked_mask(mask);
  bool same = true;
  detail::by_words(value, [&](uint32_t word) {
    const uint32_t first = arch::shuffle_word_among(among, word, arch::lowest_bit(among));  // by every lane, always
    same = same && word == first;
    return word;
  });
  return arch::ballot_among(among, !same) == 0 ? among : 0;
}
// The same among the lanes that reach the call.
template <class T>
WMMA_DEVICE uint64_t match_all(T value) {
  return match_all_sync(active_mask(), value);
}

// What the lanes of a wave, or of a mask, wrote to memory before is seen by them after.
WMMA_DEVICE void sync_wave() { arch::wave_barrier(); }
template <class Mask>
WMMA_DEVICE void sync_wave(Mask mask) {
  arch::wave_barrier_among(detail::checked_mask(mask));
}

}  // namespace wmma
