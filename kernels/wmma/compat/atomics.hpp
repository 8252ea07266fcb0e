// atomicAdd and its kin, as HIP and CUDA have them: relaxed, of the whole device; _block and _system of those scopes.
// They take every type that wmma/atomics.hpp takes, and pairs of 16-bit floats to add to.
#pragma once

#include <wmma/atomics.hpp>
#include <wmma/compat/half.hpp>

// Adds to both of a pair, each for itself.
template <class T>
WMMA_DEVICE wmma::compat::Pair<T> atomicAdd(wmma::compat::Pair<T>* at, wmma::compat::Pair<T> value) {
  return {wmma::atomic_add(&at->x, value.x), wmma::atomic_add(&at->y, value.y)};
}

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)

#define WMMA_ATOMIC_OF(name, ours, scope)                                                 \
  template <class T>                                                                      \
  WMMA_DEVICE T name(T* at, typename wmma::Identity<T>::Type value) {                     \
    return wmma::ours<wmma::memory_order::relaxed, wmma::memory_scope::scope>(at, value); \
  }
#define WMMA_ATOMIC(name, ours)             \
  WMMA_ATOMIC_OF(name, ours, device)        \
  WMMA_ATOMIC_OF(name##_block, ours, block) \
  WMMA_ATOMIC_OF(name##_system, ours, system)

// *at + value, *at - value.
WMMA_ATOMIC(atomicAdd, atomic_add)
WMMA_ATOMIC(atomicSub, atomic_sub)

// value.
WMMA_ATOMIC(atomicExch, atomic_exchange)

// The lesser and the greater of both.
WMMA_ATOMIC(atomicMin, atomic_min)
WMMA_ATOMIC(atomicMax, atomic_max)

// Bit by bit.
WMMA_ATOMIC(atomicAnd, atomic_and)
WMMA_ATOMIC(atomicOr, atomic_or)
WMMA_ATOMIC(atomicXor, atomic_xor)

// Counting up to the value and from 0 again, and down to 0 and from the value again.
WMMA_ATOMIC(atomicInc, atomic_inc)
WMMA_ATOMIC(atomicDec, atomic_dec)
#undef WMMA_ATOMIC
#undef WMMA_ATOMIC_OF

#define WMMA_ATOMIC_CAS(name, scope)                                                                             \
  template <class T>                                                                                             \
  WMMA_DEVICE T name(T* at, typename wmma::Identity<T>::Type expected, typename wmma::Identity<T>::Type value) { \
    return wmma::atomic_cas<wmma::memory_order::relaxed, wmma::memory_scope::scope>(at, expected, value);        \
  }

// The value where *at is what is expected.
WMMA_ATOMIC_CAS(atomicCAS, device)
WMMA_ATOMIC_CAS(atomicCAS_block, block)
WMMA_ATOMIC_CAS(atomicCAS_system, system)
#undef WMMA_ATOMIC_CAS

#endif
