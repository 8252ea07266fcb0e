// AMD's atomics, by order and scope.
#pragma once

#include <wmma/memory_order.hpp>
#include <wmma/types.hpp>

namespace wmma::arch {

static_assert(static_cast<int>(memory_order::seq_cst) == __ATOMIC_SEQ_CST, "the numbers of clang's orders");
static_assert(static_cast<int>(memory_scope::system) == __HIP_MEMORY_SCOPE_SYSTEM, "the numbers of HIP's scopes");

// The word that holds a value of kBytes, whatever type else is read and written there.
template <int kBytes>
struct AtomicBits {
  using Type = uint32_t __attribute__((may_alias));
  using Signed = int32_t __attribute__((may_alias));
};
template <>
struct AtomicBits<8> {
  using Type = unsigned long __attribute__((may_alias));
  using Signed = long __attribute__((may_alias));
};

// The order of a compare-and-swap that does not swap, and so writes nothing.
constexpr memory_order order_of_failure(memory_order order) {
  return order == memory_order::acq_rel   ? memory_order::acquire
         : order == memory_order::release ? memory_order::relaxed
                                          : order;
}

// The builtin takes constants that depend on no template's argument.
#define WMMA_FENCE(order, code, scope, name)                                      \
  if constexpr (kOrder == memory_order::order && kScope == memory_scope::scope) { \
    __builtin_amdgcn_fence(code, name);                                           \
  }
#define WMMA_FENCES(scope, name)                     \
  WMMA_FENCE(acquire, __ATOMIC_ACQUIRE, scope, name) \
  WMMA_FENCE(release, __ATOMIC_RELEASE, scope, name) \
  WMMA_FENCE(acq_rel, __ATOMIC_ACQ_REL, scope, name) \
  WMMA_FENCE(seq_cst, __ATOMIC_SEQ_CST, scope, name)
template <memory_order kOrder, memory_scope kScope>
WMMA_DEVICE void fence(){WMMA_FENCES(wave, "wavefront") WMMA_FENCES(block, "workgroup") WMMA_FENCES(device, "agent")
                             WMMA_FENCES(system, "")}
#undef WMMA_FENCES
#undef WMMA_FENCE

#define WMMA_ATOMIC(name, builtin)                                                 \
  template <memory_order kOrder, memory_scope kScope, class T>                     \
  WMMA_DEVICE T name(T* at, T value) {                                             \
    return builtin(at, value, static_cast<int>(kOrder), static_cast<int>(kScope)); \
  }
WMMA_ATOMIC(atomic_add, __hip_atomic_fetch_add) WMMA_ATOMIC(atomic_min, __hip_atomic_fetch_min)
    WMMA_ATOMIC(atomic_max, __hip_atomic_fetch_max) WMMA_ATOMIC(atomic_and, __hip_atomic_fetch_and)
        WMMA_ATOMIC(atomic_or, __hip_atomic_fetch_or) WMMA_ATOMIC(atomic_xor, __hip_atomic_fetch_xor)
            WMMA_ATOMIC(atomic_exchange, __hip_atomic_exchange)
#undef WMMA_ATOMIC

                template <memory_order kOrder, memory_scope kScope, class T>
                WMMA_DEVICE T atomic_cas(T* at, T expected, T desired) {
  __hip_atomic_compare_exchange_strong(at, &expected, desired, static_cast<int>(kOrder),
                                       static_cast<int>(order_of_failure(kOrder)), static_cast<int>(kScope));
  return expected;
}

template <memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE T atomic_load(const T* at) {
  return __hip_atomic_load(at, static_cast<int>(kOrder), static_cast<int>(kScope));
}
template <memory_order kOrder, memory_scope kScope, class T>
WMMA_DEVICE void atomic_store(T* at, T value) {
  __hip_atomic_store(at, value, static_cast<int>(kOrder), static_cast<int>(kScope));
}

// Adding to a double takes gfx90a and later Instincts; elsewhere it is a loop.
#if WMMA_TARGET >= 0x90a && defined(WMMA_CDNA)
template <class T>
inline constexpr bool kAddsAtomically = true;
#else
template <class T>
inline constexpr bool kAddsAtomically = !kSame<T, double>;
#endif

// Counting up and down with a wrap; their builtins take relaxed alone of every order, and a scope by name.
template <class T>
inline constexpr bool kCountsAtomically = true;

#define WMMA_COUNT(name, builtin, Word)                                                                    \
  template <memory_scope kScope>                                                                           \
  WMMA_DEVICE Word name(Word* at, Word limit) {                                                            \
    if constexpr (kScope == memory_scope::wave) return builtin(at, limit, __ATOMIC_RELAXED, "wavefront");  \
    if constexpr (kScope == memory_scope::block) return builtin(at, limit, __ATOMIC_RELAXED, "workgroup"); \
    if constexpr (kScope == memory_scope::device) return builtin(at, limit, __ATOMIC_RELAXED, "agent");    \
    if constexpr (kScope == memory_scope::system) return builtin(at, limit, __ATOMIC_RELAXED, "");         \
  }
WMMA_COUNT(atomic_inc, __builtin_amdgcn_atomic_inc32, uint32_t)
WMMA_COUNT(atomic_dec, __builtin_amdgcn_atomic_dec32, uint32_t)
WMMA_COUNT(atomic_inc, __builtin_amdgcn_atomic_inc64, unsigned long)
WMMA_COUNT(atomic_dec, __builtin_amdgcn_atomic_dec64, unsigned long)
#undef WMMA_COUNT

using HalfPair = _Float16 __attribute__((ext_vector_type(2)));
using Bf16Pair = short __attribute__((ext_vector_type(2)));

// (clang 19 refuses the builtin within a template.)
WMMA_DEVICE bool in_shared_memory(const void* at) { return __builtin_amdgcn_is_shared(at); }

// Whether two halves beside each other are added to at once there; relaxed, and by the device alone.
template <class T, memory_scope kScope>
WMMA_DEVICE bool adds_pairs([[maybe_unused]] const void* at) {
  if constexpr (kScope == memory_scope::system) return false;
#if WMMA_TARGET == 0x942 || WMMA_TARGET == 0x950 || WMMA_TARGET == 0x1200
  return true;
#elif WMMA_TARGET == 0x90a
  return kSame<T, half_t> && !in_shared_memory(at);
#else
  return false;
#endif
}

template <class T, memory_scope kScope>
WMMA_DEVICE uint32_t atomic_add_pair([[maybe_unused]] uint32_t* at, [[maybe_unused]] uint32_t pair) {
#if WMMA_TARGET == 0x942 || WMMA_TARGET == 0x950 || WMMA_TARGET == 0x1200
  if constexpr (kSame<T, half_t>) {
    return bit_cast<uint32_t>(
        __builtin_amdgcn_flat_atomic_fadd_v2f16(reinterpret_cast<HalfPair*>(at), bit_cast<HalfPair>(pair)));
  } else {
    return bit_cast<uint32_t>(
        __builtin_amdgcn_flat_atomic_fadd_v2bf16(reinterpret_cast<Bf16Pair*>(at), bit_cast<Bf16Pair>(pair)));
  }
#elif WMMA_TARGET == 0x90a
  using Global = __attribute__((address_space(1))) HalfPair*;
  return bit_cast<uint32_t>(__builtin_amdgcn_global_atomic_fadd_v2f16((Global)at, bit_cast<HalfPair>(pair)));
#else
  return 0;
#endif
}

}  // namespace wmma::arch
