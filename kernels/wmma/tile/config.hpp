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

// Whether a product's sums are the gradient by act(C)·multiply, which a configuration says: the result is that by C,
// and what is kept, beside a factor, the one by that.
template <class Config, class = void>
inline constexpr bool kGivesSlopes = false;
template <class Config>
inline constexpr bool kGivesSlopes<Config, decltype(static_cast<void>(Config::kSlopes))> = Config::kSlopes;

// Whether the rows of A are summed up beside a product, for which a configuration names the sums' type.
template <class Config, class = void>
inline constexpr bool kSumsRows = false;
template <class Config>
inline constexpr bool kSumsRows<Config, decltype(static_cast<void>(sizeof(typename Config::RowSums)))> = true;

// Whether a product is gated, which a configuration says by the type of the gate's bias: the tile of B is then two,
// side by side, of as many columns each as the result's has.
template <class Config, class = void>
struct GateOf {
  static constexpr bool kThere = false;
  using Bias = None;
};
template <class Config>
struct GateOf<Config, decltype(static_cast<void>(sizeof(typename Config::GateBias)))> {
  static constexpr bool kThere = true;
  using Bias = typename Config::GateBias;
};
template <class Config>
inline constexpr bool kIsGated = GateOf<Config>::kThere;
// Of a block's tile, the result's columns, and those of either matrix.
template <class Config>
inline constexpr int kColumnsOf = kIsGated<Config> ? Config::kBlockN / 2 : Config::kBlockN;

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
