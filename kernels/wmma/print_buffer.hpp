// How text leaves a kernel: records in memory of the host, which survives a trap. runtime/printing.py is the other
// side: it fills in the buffer before a launch and reads the records after it.
#pragma once

#include <wmma/atomics.hpp>

namespace wmma::detail {

struct PrintBuffer {
  uint64_t used;      // words asked for so far, those that found no room too
  uint64_t dropped;   // records without room
  uint64_t capacity;  // in words
  uint32_t* words;
};

// A template, so that only kernels that print have one; weak, so that drivers find it by its name.
template <int>
__device__ __attribute__((weak)) PrintBuffer print_buffer;

// A record is its size in words, what it tells, block rank, thread rank, and items. An item is a word of its kind and
// size in bytes, then its bytes.
enum class Message : uint32_t { kPrinted = 1, kAsserted = 2 };
enum : uint32_t { kTellingWords = 4 };

template <char kLetter, int kBytes>
struct Kind {
  static constexpr char letter = kLetter;
  static constexpr int bytes = kBytes;
};

// What becomes of a value, by C's promotions: an integer with sign or without, a float, text, another pointer.
__device__ Kind<'i', 4> kind_of(int);
__device__ Kind<'u', 4> kind_of(unsigned);
__device__ Kind<'i', 8> kind_of(long);
__device__ Kind<'u', 8> kind_of(unsigned long);
__device__ Kind<'i', 8> kind_of(long long);
__device__ Kind<'u', 8> kind_of(unsigned long long);
__device__ Kind<'f', 4> kind_of(float);
__device__ Kind<'f', 8> kind_of(double);
#ifdef WMMA_AMD
__device__ Kind<'f', 4> kind_of(_Float16);
#endif
#ifdef WMMA_BF16_OF_CLANG
__device__ Kind<'f', 4> kind_of(__bf16);
#endif
__device__ Kind<'s', 0> kind_of(const char*);
__device__ Kind<'p', 8> kind_of(const volatile void*);
__device__ Kind<'p', 8> kind_of(decltype(nullptr));
__device__ Kind<'?', 0> kind_of(...);

template <class T>
__device__ const T& some_value();
template <class T>
using KindOf = decltype(kind_of(some_value<T>()));

template <int kSize>
WMMA_DEVICE uint32_t item_words(const char (&)[kSize]) {
  return 1 + (kSize + 3) / 4;
}
template <class T>
WMMA_DEVICE uint32_t item_words(const T& value) {
  static_assert(KindOf<T>::letter != '?', "wmma: print takes integers, floats, text and pointers");
  if constexpr (KindOf<T>::letter == 's') {
    uint32_t size = 0;
    while (value[size] != 0) ++size;
    return 1 + (size + 3) / 4;
  } else {
    return 1 + KindOf<T>::bytes / 4;
  }
}

// Each writes an item of so many words.
template <int kSize>
WMMA_DEVICE void put_item(uint32_t* at, uint32_t words, const char (&text)[kSize]) {
  at[0] = 's' | kSize << 8;
#pragma unroll
  for (int i = 0; i < kSize; i += 4) {
    uint32_t word = 0;
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (i + j < kSize) word |= static_cast<uint32_t>(static_cast<uint8_t>(text[i + j])) << 8 * j;
    }
    at[1 + i / 4] = word;
  }
}
template <class T>
WMMA_DEVICE void put_item(uint32_t* at, uint32_t words, const T& value) {
  using Kind = KindOf<T>;
  if constexpr (Kind::letter == 's') {
    at[0] = 's' | (words - 1) << 10;
    bool ended = false;
    for (uint32_t i = 0; i + 1 < words; ++i) {
      uint32_t word = 0;
      for (int j = 0; j < 4; ++j) {
        const uint32_t byte = ended ? 0 : static_cast<uint8_t>(value[4 * i + j]);
        ended = byte == 0;
        word |= byte << 8 * j;
      }
      at[1 + i] = word;
    }
  } else {
    at[0] = Kind::letter | Kind::bytes << 8;
    uint64_t bits;
    if constexpr (Kind::letter == 'f' && Kind::bytes == 4) {
      bits = arch::bit_cast<uint32_t>(static_cast<float>(value));
    } else if constexpr (Kind::letter == 'f') {
      bits = arch::bit_cast<uint64_t>(static_cast<double>(value));
    } else {
      bits = (uint64_t)value;  // of a pointer or an integer
    }
    at[1] = static_cast<uint32_t>(bits);
    if constexpr (Kind::bytes == 8) at[2] = static_cast<uint32_t>(bits >> 32);
  }
}

// Leaves a record of some items for the host, where there is room.
template <class... Items>
WMMA_DEVICE void write_message(Message what, const Items&... items) {
  PrintBuffer& buffer = print_buffer<0>;
  const uint32_t words[] = {item_words(items)...};
  uint32_t total = kTellingWords;
  for (uint32_t count : words) total += count;
  const uint64_t start = atomic_add(&buffer.used, total);
  if (start + total > buffer.capacity) {
    atomic_add(&buffer.dropped, 1);
    return;
  }
  uint32_t* const record = buffer.words + start;
  record[1] = static_cast<uint32_t>(what);
  record[2] = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  record[3] = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  uint32_t* at = record + kTellingWords;
  int which = 0;
  ((put_item(at, words[which], items), at += words[which], ++which), ...);
  arch::fence_system();                              // a trap may come any time
  *static_cast<volatile uint32_t*>(record) = total;  // last: a record without its size is not there
}

}  // namespace wmma::detail
