// What a kernel's configuration is written with.
#pragma once

#include <wmma/activate.hpp>
#include <wmma/bits.hpp>
#include <wmma/types.hpp>

namespace wmma {

// Which way an operand's memory runs.
enum class Order { kAlongK, kAcrossK };

// In place of the element type of an operand that is absent.
struct None {};

template <class T>
inline constexpr bool kIsNone = kSame<T, None>;

// Whether a product has a second pair of operands, which a configuration says by the width of A2.
template <class Config, class = void>
inline constexpr bool kHasSecondPair = false;
template <class Config>
inline constexpr bool kHasSecondPair<Config, decltype(static_cast<void>(Config::kA2Vec))> = true;

// Whether what the activation is given is kept beside the result, which a configuration says where it is.
template <class Config, class = void>
inline constexpr bool kKeepsAux = false;
template <class Config>
inline constexpr bool kKeepsAux<Config, decltype(static_cast<void>(Config::kAux))> = Config::kAux;

namespace detail {
WMMA_CONSTEXPR int lower(int a, int b) { return a < b ? a : b; }
WMMA_CONSTEXPR int upper(int a, int b) { return a > b ? a : b; }
WMMA_CONSTEXPR int divisor_up_to(int x, int most) {
  int divisor = most < x ? most : x;
  while (x % divisor != 0) --divisor;
  return divisor;
}
WMMA_CONSTEXPR int power_of_two_from(int x) {
  int power = 1;
  while (power < x) power *= 2;
  return power;
}
}  // namespace detail

}  // namespace wmma
