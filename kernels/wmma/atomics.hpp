// Atomics on global and shared memory. Each changes one place as if nothing else happened meanwhile, and returns the
// value before.
//
// Types: integers of 1, 2, 4 and 8 bytes, half_t, bf16_t, float and double; atomic_update takes any that is copied as
// 1, 2, 4 or 8 bytes. What the hardware has no instruction for is a loop of compare-and-swap; of 1 and 2 bytes on the
// word around them, whatever others do with the rest of it meanwhile (compute-sanitizer tells so where an allocation
// ends within that word).
//
// Order and scope are template arguments: atomic_add<memory_order::acq_rel, memory_scope::block>(&x, 1). Without them
// an atomic is relaxed, and one with those of the whole device.
#pragma once

#include <wmma/types.hpp>
#ifdef WMMA_AMD
#include <wmma/arch/amd_atomics.hpp>
#else
#include <wmma/arch/nvidia_atomics.hpp>
#endif

namespace wmma {

#define WMMA_CHECK_NUMBER(T)                                                                                     \
  static_assert(                                                                                                 \
      detail::kAtomicNumber<T>,                                                                                  \
      "wmma: this atomic takes integers of 1, 2, 4 or 8 bytes, half_t, bf16_t, float and double; atomic_update " \
      "takes other types")
#define WMMA_CHECK_INTEGER(T) \
  static_assert(detail::kAtomicInteger<T>, "wmma: this atomic takes integers of 1, 2, 4 or 8 bytes")

namespace detail {

template <class T>
inline constexpr bool kAtomicWord = kSame<T, int> || kSame<T, unsigned> || kSame<T, long> || kSame<T, unsigned long> ||
                                    kSame<T, long long> || kSame<T, unsigned long long>;
template <class T>
inline constexpr bool kAtomicInteger = kAtomicWord<T> || kSame<T, int8_t> || kSame<T, uint8_t> || kSame<T, char> ||
                                       kSame<T, int16_t> || kSame<T, uint16_t>;
template <class T>
inline constexpr bool kAtomicFloat = kSame<T, float> || kSame<T, double>;
template <class T>
inline constexpr bool kAtomicHalf = kSame<T, half_t> || kSame<T, bf16_t>;
template <class T>
inline constexpr bool kAtomicNumber = kAtomicInteger<T> || kAtomicFloat<T> || kAtomicHalf<T>;

template <class T>
inline constexpr bool kAtomicCounter = kAtomicWord<T> &&
                                       static_cast<T>(-1) > static_cast<T>(0) && arch::kCountsAtomically<T>;

// A relaxed atomic as one of kOrder.
template <memory_order kOrder, memory_scope kScope, class F>
WMMA_DEVICE auto fenced(F atomic) {
  if constexpr (kOrder == memory_order::relaxed) {
    return atomic();
  } else {
    arch::fence<kOrder, kScope>();
    const auto old = atomic();
    arch::fence<kOrder, kScope>();
    return old;
  }
}

// Where a value lies in the word that is changed as a whole.
template <class T>
struct AtomicPlace {
  static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8,
                "wmma: atomics take types of 1, 2, 4 or 8 bytes");
  using Word = typename arch::AtomicBits<sizeof(T)>::Type;
  using Bits = Choose<sizeof(T) == 1, uint8_t, Choose<sizeof(T) == 2, uint16_t, Word>>;
  static constexpr bool kWhole = sizeof(T) >= 4;

  Word* word;
  uint32_t shift;

  WMMA_DEVICE explicit AtomicPlace(T* at) {
    const uint64_t address = reinterpret_cast<uint64_t>(at);
    word = kWhole ? reinterpret_cast<Word*>(at) : reinterpret_cast<Word*>(reinterpret_cast<char*>(at) - (address & 3));
    shift = kWhole ? 0 : 8 * static_cast<uint32_t>(address & 3);
  }

  WMMA_DEVICE T part(Word whole) const { return arch::bit_cast<T>(static_cast<Bits>(whole >> shift)); }
  WMMA_DEVICE Word with(Word whole, T value) const {
    const Word bits = arch::bit_cast<Bits>(value);
    if constexpr (kWhole) return bits;
    constexpr Word kMask = static_cast<Bits>(~Bits{0});
    return (whole & ~(kMask << shift)) | bits << shift;
  }

  // The word, by an atomic that changes nothing.
  WMMA_DEVICE Word look() const {
    return arch::atomic_cas<memory_order::relaxed, memory_scope::device>(word, Word{0}, Word{0});
  }
};

template <class T>
WMMA_DEVICE T negated(T value) {
  if constexpr (kAtomicInteger<T>) {
    return static_cast<T>(~static_cast<uint64_t>(value) + 1);
  } else {
    return static_cast<T>(-value);
  }
}

// The lesser of two floats (kMax: the greater): a number rather than a NaN, and −0 lies below +0.
template <bool kMax, class T>
WMMA_DEVICE T extreme(T a, T b) {
  if constexpr (!kAtomicInteger<T>) {
    const float x = static_cast<float>(a), y = static_cast<float>(b);
    if (x != x) return b;
    if (y != y) return a;
    if (x == y) return (arch::bit_cast<int32_t>(x) < 0) != kMax ? a : b;
    return (x < y) != kMax ? a : b;
  } else {
    return (a < b) != kMax ? a : b;
  }
}

}  // namespace detail

// Orders memory as an atomic of that order does.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device>
WMMA_DEVICE void atomic_fence() {
  static_assert(kOrder != memory_order::relaxed, "wmma: a fence is acquire, release, acq_rel or seq_cst");
  arch::fence<kOrder, kScope>();
}

// Reads, with an order: relaxed, acquire or seq_cst.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_load(const T* at) {
  static_assert(kOrder != memory_order::release && kOrder != memory_order::acq_rel,
                "wmma: a load is relaxed, acquire or seq_cst");
  using Bits = typename detail::AtomicPlace<T>::Bits;
  return arch::bit_cast<T>(arch::atomic_load<kOrder, kScope>(reinterpret_cast<const Bits*>(at)));
}

// Writes, with an order: relaxed, release or seq_cst.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE void atomic_store(T* at, typename Identity<T>::Type value) {
  static_assert(kOrder != memory_order::acquire && kOrder != memory_order::acq_rel,
                "wmma: a store is relaxed, release or seq_cst");
  using Bits = typename detail::AtomicPlace<T>::Bits;
  arch::atomic_store<kOrder, kScope>(reinterpret_cast<Bits*>(at), arch::bit_cast<Bits>(value));
}

// *at = f(*at), for any function of the value; f may be called several times.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T, class F>
WMMA_DEVICE T atomic_update(T* at, F f) {
  const detail::AtomicPlace<T> place(at);
  auto seen = place.look();
  while (true) {
    const auto expected = seen;
    const T old = place.part(expected);
    seen = arch::atomic_cas<kOrder, kScope>(place.word, expected, place.with(expected, static_cast<T>(f(old))));
    if (seen == expected) return old;
  }
}

// *at += value. In NVIDIA's global memory and gfx11's a float's add takes subnormal numbers as 0.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_add(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_NUMBER(T);
  if constexpr ((detail::kAtomicWord<T> || detail::kAtomicFloat<T>) && arch::kAddsAtomically<T>) {
    return arch::atomic_add<kOrder, kScope>(at, value);
  } else {
    if constexpr (detail::kAtomicHalf<T>) {
      if (arch::adds_pairs<T, kScope>(at)) {
        const detail::AtomicPlace<T> place(at);
        const uint32_t pair = place.with(0x80008000u, value);  // −0 changes nothing beside, not even a zero
        return place.part(
            detail::fenced<kOrder, kScope>([=] { return arch::atomic_add_pair<T, kScope>(place.word, pair); }));
      }
    }
    return atomic_update<kOrder, kScope>(at, [=](T old) { return static_cast<T>(old + value); });
  }
}

// *at -= value.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_sub(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_NUMBER(T);
  return atomic_add<kOrder, kScope>(at, detail::negated(value));
}

// *at *= value; integers wrap.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_mul(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_NUMBER(T);
  return atomic_update<kOrder, kScope>(at, [=](T old) {
    if constexpr (detail::kAtomicInteger<T>) {
      return static_cast<T>(static_cast<uint64_t>(old) * static_cast<uint64_t>(value));
    } else {
      return static_cast<T>(old * value);
    }
  });
}

// *at /= value.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_div(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_NUMBER(T);
  return atomic_update<kOrder, kScope>(at, [=](T old) { return static_cast<T>(old / value); });
}

namespace detail {

// A float's min or max. Floats of one sign are ordered as their bits are, those below 0 the other way around; a NaN
// lies at one end of them, and has to be replaced where it lies at the wrong one.
template <bool kMax, memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE T atomic_extreme_of_floats(T* at, T value) {
  using Unsigned = typename arch::AtomicBits<sizeof(T)>::Type;
  using Signed = typename arch::AtomicBits<sizeof(T)>::Signed;
  auto* const word = reinterpret_cast<Unsigned*>(at);
  auto* const number = reinterpret_cast<Signed*>(at);
  const Unsigned bits = arch::bit_cast<Unsigned>(value);
  const Signed given = static_cast<Signed>(bits);
  if (value != value) return arch::bit_cast<T>(arch::atomic_cas<kOrder, kScope>(word, Unsigned{0}, Unsigned{0}));
  while (true) {
    Unsigned old;
    if (given < 0) {
      old = kMax ? arch::atomic_min<kOrder, kScope>(word, bits) : arch::atomic_max<kOrder, kScope>(word, bits);
    } else {
      old = kMax ? arch::atomic_max<kOrder, kScope>(number, given) : arch::atomic_min<kOrder, kScope>(number, given);
    }
    const T before = arch::bit_cast<T>(old);
    const bool replaced = (static_cast<Signed>(old) < 0) == kMax;
    if (before == before || replaced) return before;
    if (arch::atomic_cas<kOrder, kScope>(word, old, bits) == old) return before;
  }
}

template <bool kMax, memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE T atomic_extreme(T* at, T value) {
  WMMA_CHECK_NUMBER(T);
  if constexpr (kAtomicFloat<T>) {
    return atomic_extreme_of_floats<kMax, kOrder, kScope>(at, value);
  } else if constexpr (!kAtomicWord<T>) {
    return atomic_update<kOrder, kScope>(at, [=](T old) { return extreme<kMax>(old, value); });
  } else if constexpr (kMax) {
    return arch::atomic_max<kOrder, kScope>(at, value);
  } else {
    return arch::atomic_min<kOrder, kScope>(at, value);
  }
}

}  // namespace detail

// The lesser of both. Of floats −0 is less than +0; a number takes a NaN's place, and a NaN no number's.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_min(T* at, typename Identity<T>::Type value) {
  return detail::atomic_extreme<false, kOrder, kScope>(at, value);
}

// The greater of both, by the same rules as atomic_min.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_max(T* at, typename Identity<T>::Type value) {
  return detail::atomic_extreme<true, kOrder, kScope>(at, value);
}

// *at &= value.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_and(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_INTEGER(T);
  if constexpr (detail::kAtomicWord<T>) {
    return arch::atomic_and<kOrder, kScope>(at, value);
  } else {
    return atomic_update<kOrder, kScope>(at, [=](T old) { return static_cast<T>(old & value); });
  }
}

// *at |= value.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_or(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_INTEGER(T);
  if constexpr (detail::kAtomicWord<T>) {
    return arch::atomic_or<kOrder, kScope>(at, value);
  } else {
    return atomic_update<kOrder, kScope>(at, [=](T old) { return static_cast<T>(old | value); });
  }
}

// *at ^= value.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_xor(T* at, typename Identity<T>::Type value) {
  WMMA_CHECK_INTEGER(T);
  if constexpr (detail::kAtomicWord<T>) {
    return arch::atomic_xor<kOrder, kScope>(at, value);
  } else {
    return atomic_update<kOrder, kScope>(at, [=](T old) { return static_cast<T>(old ^ value); });
  }
}

// Counts up to a limit and then from 0 again: *at = *at >= limit ? 0 : *at + 1.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_inc(T* at, typename Identity<T>::Type limit) {
  WMMA_CHECK_INTEGER(T);
  if constexpr (detail::kAtomicCounter<T>) {
    using Bits = typename arch::AtomicBits<sizeof(T)>::Type;
    return detail::fenced<kOrder, kScope>([=] { return arch::atomic_inc<kScope>(reinterpret_cast<Bits*>(at), limit); });
  } else {
    return atomic_update<kOrder, kScope>(at, [=](T old) { return static_cast<T>(old >= limit ? 0 : old + 1); });
  }
}

// Counts down to 0 and then from the limit again: *at = *at == 0 || *at > limit ? limit : *at - 1.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_dec(T* at, typename Identity<T>::Type limit) {
  WMMA_CHECK_INTEGER(T);
  if constexpr (detail::kAtomicCounter<T>) {
    using Bits = typename arch::AtomicBits<sizeof(T)>::Type;
    return detail::fenced<kOrder, kScope>([=] { return arch::atomic_dec<kScope>(reinterpret_cast<Bits*>(at), limit); });
  } else {
    return atomic_update<kOrder, kScope>(
        at, [=](T old) { return old == 0 || old > limit ? limit : static_cast<T>(old - 1); });
  }
}

// *at = value, for any type of 1, 2, 4 or 8 bytes.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_exchange(T* at, typename Identity<T>::Type value) {
  if constexpr (sizeof(T) >= 4) {
    const detail::AtomicPlace<T> place(at);
    return place.part(arch::atomic_exchange<kOrder, kScope>(place.word, place.with(0, value)));
  } else {
    return atomic_update<kOrder, kScope>(at, [=](T) { return value; });
  }
}

// *at = desired where *at has the bits of `expected`, for any type of 1, 2, 4 or 8 bytes.
template <memory_order kOrder = memory_order::relaxed, memory_scope kScope = memory_scope::device, class T>
WMMA_DEVICE T atomic_cas(T* at, typename Identity<T>::Type expected, typename Identity<T>::Type desired) {
  const detail::AtomicPlace<T> place(at);
  if constexpr (sizeof(T) >= 4) {
    return place.part(arch::atomic_cas<kOrder, kScope>(place.word, place.with(0, expected), place.with(0, desired)));
  } else {
    return atomic_update<kOrder, kScope>(
        at, [=](T old) { return place.with(0, old) == place.with(0, expected) ? desired : old; });
  }
}

#undef WMMA_CHECK_NUMBER
#undef WMMA_CHECK_INTEGER

}  // namespace wmma
