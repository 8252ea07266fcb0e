// fp8 products on a target without fp8 matrix instructions: f16's tile and layout; f16 holds every fp8 value exactly.
#pragma once

#include <wmma/types.hpp>

namespace wmma {

template <class ElementA, class HalfTile, class ElementB = ElementA>
struct HalfConvertedTile {
  using A = typename HalfTile::A;
  using B = typename HalfTile::B;
  using C = typename HalfTile::C;
  using Compute = float;

  static WMMA_DEVICE void mma(float* d, const ElementA* a, const ElementB* b) {
    half_t half_a[A::kElements];
    half_t half_b[B::kElements];
    to_half<A::kElements>(half_a, a);
    to_half<B::kElements>(half_b, b);
    HalfTile::mma(d, half_a, half_b);
  }

 private:
  // Pair by pair, so that no more than the packed halves stay in registers.
  template <int kCount, class Element>
  static WMMA_DEVICE void to_half(half_t* halves, const Element* x) {
#pragma unroll
    for (int e = 0; e < kCount; e += 2) {
      const uint32_t low = half_t(static_cast<float>(x[e])).bits;
      const uint32_t high = half_t(static_cast<float>(x[e + 1])).bits;
      const uint32_t word = arch::unshared(low | high << 16);
      halves[e].bits = static_cast<uint16_t>(word);
      halves[e + 1].bits = static_cast<uint16_t>(word >> 16);
    }
  }
};

}  // namespace wmma
