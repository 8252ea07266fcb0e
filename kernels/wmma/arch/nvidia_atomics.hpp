// NVIDIA's atomics, by order and scope: CUDA's own, which are relaxed, with fences around.
#pragma once

#include <wmma/memory_order.hpp>
#include <wmma/types.hpp>

namespace wmma::arch {

// The word that holds a value of kBytes.
template <int kBytes>
struct AtomicBits {
  using Type = unsigned;
  using Signed = int;
};
template <>
struct AtomicBits<8> {
  using Type = unsigned long long;
  using Signed = long long;
};

// CUDA's functions know int, unsigned, long long and unsigned long long.
template <class T>
struct AtomicWord {
  using Type = T;
};
template <>
struct AtomicWord<long> {
  using Type = Choose<sizeof(long) == 8, long long, int>;
};
template <>
struct AtomicWord<unsigned long> {
  using Type = Choose<sizeof(long) == 8, unsigned long long, unsigned>;
};

template <memory_order kOrder, memory_scope kScope>
WMMA_DEVICE void fence() {
  constexpr bool kTotal = kOrder == memory_order::seq_cst;
  if constexpr (kOrder == memory_order::relaxed) {
  } else if constexpr (kScope == memory_scope::system) {
    if constexpr (kTotal) asm volatile("fence.sc.sys;" ::: "memory");
    if constexpr (!kTotal) asm volatile("fence.acq_rel.sys;" ::: "memory");
  } else if constexpr (kScope == memory_scope::device) {
    if constexpr (kTotal) asm volatile("fence.sc.gpu;" ::: "memory");
    if constexpr (!kTotal) asm volatile("fence.acq_rel.gpu;" ::: "memory");
  } else {
    if constexpr (kTotal) asm volatile("fence.sc.cta;" ::: "memory");
    if constexpr (!kTotal) asm volatile("fence.acq_rel.cta;" ::: "memory");
  }
}

// The fences that make a relaxed atomic between them one of kOrder.
template <memory_order kOrder, memory_scope kScope>
WMMA_DEVICE void fence_before() {
  if constexpr (kOrder != memory_order::acquire) fence<kOrder, kScope>();
}
template <memory_order kOrder, memory_scope kScope>
WMMA_DEVICE void fence_after() {
  if constexpr (kOrder != memory_order::release) fence<kOrder, kScope>();
}

#define WMMA_BY_SCOPE(function, ...)                       \
  [&] {                                                    \
    if constexpr (kScope == memory_scope::system) {        \
      return function##_system(__VA_ARGS__);               \
    } else if constexpr (kScope == memory_scope::device) { \
      return function(__VA_ARGS__);                        \
    } else {                                               \
      return function##_block(__VA_ARGS__);                \
    }                                                      \
  }()
#define WMMA_ATOMIC(name, function)                                           \
  template <memory_order kOrder, memory_scope kScope, class T>                \
  WMMA_DEVICE T name(T* at, T value) {                                        \
    using Word = typename AtomicWord<T>::Type;                                \
    Word* const word = reinterpret_cast<Word*>(at);                           \
    fence_before<kOrder, kScope>();                                           \
    const Word old = WMMA_BY_SCOPE(function, word, static_cast<Word>(value)); \
    fence_after<kOrder, kScope>();                                            \
    return static_cast<T>(old);                                               \
  }
WMMA_ATOMIC(atomic_min, ::atomicMin)
WMMA_ATOMIC(atomic_max, ::atomicMax)
WMMA_ATOMIC(atomic_and, ::atomicAnd)
WMMA_ATOMIC(atomic_or, ::atomicOr)
WMMA_ATOMIC(atomic_xor, ::atomicXor)
WMMA_ATOMIC(atomic_exchange, ::atomicExch)
#undef WMMA_ATOMIC

// Sums of signed and of unsigned words have the same bits, and there is none of long long.
template <memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE T atomic_add(T* at, T value) {
  using Word = Choose<kSame<T, float> || kSame<T, double>, T, typename AtomicBits<sizeof(T)>::Type>;
  Word* const word = reinterpret_cast<Word*>(at);
  fence_before<kOrder, kScope>();
  const Word old = WMMA_BY_SCOPE(::atomicAdd, word, static_cast<Word>(value));
  fence_after<kOrder, kScope>();
  return static_cast<T>(old);
}

template <memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE T atomic_cas(T* at, T expected, T desired) {
  fence_before<kOrder, kScope>();
  const T old = WMMA_BY_SCOPE(::atomicCAS, at, expected, desired);
  fence_after<kOrder, kScope>();
  return old;
}

template <memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE T atomic_load(const T* at) {
  if constexpr (kOrder == memory_order::seq_cst) fence<kOrder, kScope>();
  const T value = *reinterpret_cast<const volatile T*>(at);
  fence_after<kOrder, kScope>();
  return value;
}
template <memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE void atomic_store(T* at, T value) {
  fence_before<kOrder, kScope>();
  *reinterpret_cast<volatile T*>(at) = value;
  if constexpr (kOrder == memory_order::seq_cst) fence<kOrder, kScope>();
}

template <class T>
inline constexpr bool kAddsAtomically = true;

// Counting up and down with a wrap, relaxed.
template <class T>
inline constexpr bool kCountsAtomically = sizeof(T) == 4;

template <memory_scope kScope>
WMMA_DEVICE unsigned atomic_inc(unsigned* at, unsigned limit) {
  return WMMA_BY_SCOPE(::atomicInc, at, limit);
}
template <memory_scope kScope>
WMMA_DEVICE unsigned atomic_dec(unsigned* at, unsigned limit) {
  return WMMA_BY_SCOPE(::atomicDec, at, limit);
}
#undef WMMA_BY_SCOPE

// Whether two halves beside each other are added to at once; relaxed, and by the device alone.
template <class T, memory_scope kScope>
WMMA_DEVICE bool adds_pairs(const void*) {
#if WMMA_TARGET >= 900
  return kScope != memory_scope::system;
#else
  return kScope != memory_scope::system && kSame<T, half_t>;
#endif
}

template <class T, memory_scope kScope>
WMMA_DEVICE uint32_t atomic_add_pair(uint32_t* at, uint32_t pair) {
  uint32_t old = 0;
  if constexpr (kSame<T, half_t>) {
    asm volatile("atom.relaxed.gpu.add.noftz.f16x2 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(pair) : "memory");
  } else {
#if WMMA_TARGET >= 900
    asm volatile("atom.relaxed.gpu.add.noftz.bf16x2 %0, [%1], %2;" : "=r"(old) : "l"(at), "r"(pair) : "memory");
#endif
  }
  return old;
}

}  // namespace wmma::arch
