// float32 on matrix units of bfloat16: a number is the sum of two, and a product the sum of three, the product of what
// was left over not being one of them. Tiles in shared memory hold all first parts, then all second ones.
#pragma once

#include <wmma/tile/product.hpp>

namespace wmma {

// Both parts have the number's sign, so that no term of a product that overflows is infinite the other way. An
// infinity is in the second part alone, beside the largest first one: against whatever but 0 it then is what it was.
struct float_parts_t {
  float first;  // of which the upper half counts
  float second;

  float_parts_t() = default;
  WMMA_DEVICE float_parts_t(float x) {
    const float finite = arch::within(x, 3.40282347e38f);
    first = arch::bit_cast<float>(arch::bit_cast<uint32_t>(finite) & 0xffff0000u);
    // Cut off then, it is rounded, and larger in the mean by what the products leave out; what fits stays as it is.
    second = (x - first) * 1.0038f;
  }
};

// How an element lies in a tile: its parts, and their type.
template <class Element>
struct InTile {
  using Part = Element;
  static constexpr int kParts = 1;
};
template <>
struct InTile<float_parts_t> {
  using Part = bf16_t;
  static constexpr int kParts = 2;
};

template <int kLineCount, int kLineBytes, int kParts>
struct TileOfParts : SharedTile<kLineCount, kLineBytes> {
  static constexpr int kPartBytes = SharedTile<kLineCount, kLineBytes>::kBytes;
  static constexpr int kBytes = kParts * kPartBytes;
};

// The operands' chunks are those of the first parts, then those of the second ones.
template <int kSide>
struct MatrixProduct<float_parts_t, kSide> : MatrixProduct<bf16_t, kSide> {
  using Parts = MatrixProduct<bf16_t, kSide>;
  using Compute = typename Parts::Compute;
  static constexpr int kParts = 2;
  static constexpr int kChunksA = 2 * Parts::kChunksA;
  static constexpr int kChunksB = 2 * Parts::kChunksB;

  static WMMA_DEVICE void mma(Compute* d, const Chunk* a, const Chunk* b) {
    Parts::mma(d, a + Parts::kChunksA, b);
    Parts::mma(d, a, b + Parts::kChunksB);
    Parts::mma(d, a, b);
  }
};

}  // namespace wmma
