// What elements take in memory, in bits. Those of less than a byte lie packed, the first one in the low bits; a row of
// them is whole bytes, and so is what a copy moves.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

template <class T>
inline constexpr int kBitsOf = kIsInt4<T> ? 4 : 8 * static_cast<int>(sizeof(T));

template <class T>
inline constexpr bool kIsPacked = kBitsOf<T> < 8;

// Of so many elements, and so many bytes further on: of packed ones an even number.
template <class T, class Count>
WMMA_CONSTEXPR Count bytes_of(Count count) {
  if constexpr (kIsPacked<T>) return count / static_cast<Count>(8 / kBitsOf<T>);
  return count * static_cast<Count>(kBitsOf<T> / 8);
}

// How many elements fill so many bytes.
template <class T>
WMMA_CONSTEXPR int elements_in(int bytes) {
  return bytes * 8 / kBitsOf<T>;
}

// The element so many behind another: of packed ones whole bytes, and the pointer names the byte.
template <class T>
WMMA_DEVICE const T* element_at(const void* data, int64_t index) {
  if constexpr (kIsPacked<T>) return reinterpret_cast<const T*>(static_cast<const char*>(data) + bytes_of<T>(index));
  return static_cast<const T*>(data) + index;
}

}  // namespace wmma
