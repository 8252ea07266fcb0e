// Numbers of 8 bits that become wider on their way to shared memory, several at once.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

namespace detail {

// Two neighbours of the four e4m3 numbers in a word, the first ones or (kHigh) the last, as T.
template <class T, bool kHigh>
WMMA_DEVICE uint32_t pair_of_e4m3(uint32_t word) {
  constexpr bool kHalf = kSame<T, half_t>;
  static_assert(kHalf || kSame<T, bf16_t>, "of 16 bits");
  if constexpr (arch::kConvertsE4m3 && kHalf) {
    return arch::half_pair_of_e4m3<kHigh>(word);
  } else if constexpr (arch::kConvertsE4m3) {
    return arch::bf16_pair_of_e4m3<kHigh>(word);
  } else {
    // The same fields, lower by what the wider exponent has more of bits, are a number that is 2^(difference of the
    // biases) too small. That of NaN alone carries into the bit above when one is added to its last place.
    constexpr int kLower = kHalf ? 1 : 4;
    constexpr uint32_t kUnit = 0x01000100u >> kLower;
    constexpr uint32_t kAbove = 0x80008000u >> kLower;
    const uint32_t apart = arch::pick_bytes(word, 0, kHigh ? 0x03040204u : 0x01040004u);
    const uint32_t magnitude = (apart & 0x7f007f00u) >> kLower;
    const uint32_t carry = (magnitude + kUnit) & kAbove;
    const uint32_t every = (carry << kLower) - (carry >> 4);  // bit of the exponent
    const uint32_t fields = (apart & 0x80008000u) | magnitude | every;
    if constexpr (kHalf) {
      constexpr uint32_t kScale = 0x5c005c00u;  // 2^8, twice
      return arch::multiply_halves(fields, kScale);
    } else {
      constexpr float kScale = 0x1p120f;
      return arch::bf16_pair_cut(arch::bit_cast<float>(fields << 16) * kScale,
                                 arch::bit_cast<float>(fields & 0xffff0000u) * kScale);
    }
  }
}

}  // namespace detail

// A stage of StagedLoader: it loads up to 16 bytes at once, though they are more when they are stored.
template <class Storage, class Element>
struct WideningStage {
  static_assert(kSame<Storage, fp8_e4m3_t>, "the one that is kept in pages");
  static constexpr bool kPlain = false;
  static constexpr bool kWidens = true;
  template <int kCount>
  static WMMA_DEVICE void widen(Element* to, const Storage* from) {
    if constexpr (kCount % 4 == 0) {
#pragma unroll
      for (int i = 0; i < kCount; i += 4) {
        uint32_t word;
        arch::copy_bytes<4>(&word, from + i);
        const uint32_t wide[2] = {detail::pair_of_e4m3<Element, false>(word),
                                  detail::pair_of_e4m3<Element, true>(word)};
        arch::copy_bytes<8>(to + i, wide);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kCount; ++i) to[i] = convert<Element>(static_cast<float>(from[i]));
    }
  }
  WMMA_DEVICE void advance(int64_t) {}
};

// Whether a stage does so.
template <class Stage, class = void>
inline constexpr bool kWidens = false;
template <class Stage>
inline constexpr bool kWidens<Stage, decltype(static_cast<void>(Stage::kWidens))> = true;

}  // namespace wmma
