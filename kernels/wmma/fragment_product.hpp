// The product of fragments: D = A·B + C.
#pragma once

#include <wmma/fragment_type.hpp>

namespace wmma {
namespace detail {

// The elements as the tiles take them: T, or pairs of 4-bit integers.
template <class F>
WMMA_DEVICE auto* tile_elements(F& frag) {
  using T = typename F::element_type;
  if constexpr (kIsInt4<T>) {
    return frag.x.pairs;
  } else if constexpr (kSame<T, Plain<T>>) {
    return frag.x;
  } else {
    return reinterpret_cast<Plain<T>*>(frag.x);
  }
}

// Beyond K everything is zero.
template <class Fragment, class Elements>
WMMA_DEVICE void zero_beyond_k(Elements& x) {
  using Shape = typename Fragment::Shape;
#pragma unroll
  for (int i = 0; i < Fragment::num_elements; ++i) {
    if (Fragment::row(i) >= Shape::kRows || Fragment::col(i) >= Shape::kCols) {
      x[i] = typename Fragment::element_type(0);
    }
  }
}

// The tiles of depth kK and beyond. By recursion, because compilers leave long loops rolled, and a register file has no
// run-time index.
template <class Tile, class FragmentA, class FragmentB, class FragmentD, bool kSwapped, int kK, class Compute, class A,
          class B>
WMMA_DEVICE void multiply_tiles(Compute* sum, const A* a, const B* b) {
  using ShapeA = typename FragmentA::Shape;
  using ShapeB = typename FragmentB::Shape;
  using ShapeD = typename FragmentD::Shape;
  constexpr int kPack = kIsInt4<typename FragmentA::element_type> ? 2 : 1;
#pragma unroll
  for (int m = 0; m < ShapeD::kTilesDown; ++m) {
#pragma unroll
    for (int n = 0; n < ShapeD::kTilesAcross; ++n) {
      const A* tile_a = a + (m * ShapeA::kTilesAcross + kK) * ShapeA::kElements / kPack;
      const B* tile_b = b + (kK * ShapeB::kTilesAcross + n) * ShapeB::kElements / kPack;
      Compute* tile_d = sum + (m * ShapeD::kTilesAcross + n) * ShapeD::kElements;
      if constexpr (kSwapped) {
        Tile::mma(tile_d, tile_b, tile_a);
      } else {
        Tile::mma(tile_d, tile_a, tile_b);
      }
    }
  }
  if constexpr (kK + 1 < ShapeA::kTilesAcross) {
    multiply_tiles<Tile, FragmentA, FragmentB, FragmentD, kSwapped, kK + 1>(sum, a, b);
  }
}

template <class FragmentD, class FragmentA, class FragmentB, class FragmentC>
WMMA_DEVICE void multiply(FragmentD& d, const FragmentA& a, const FragmentB& b, const FragmentC& c) {
  using Of = FragmentOf<FragmentD>;
  using InputA = Plain<typename FragmentA::element_type>;
  using InputB = Plain<typename FragmentB::element_type>;
  constexpr bool kSwapped = kSame<typename Of::Kind, accumulator_swapped> && arch::kSwapsOperands;
  using First = Choose<kSwapped, InputB, InputA>;
  using Second = Choose<kSwapped, InputA, InputB>;
  using Tile = typename arch::Tile<First, Of::kM, Of::kN, Of::kK, Second>::Type;
  using Compute = typename Tile::Compute;

  FragmentA masked_a = a;
  FragmentB masked_b = b;
  if constexpr (Of::kK % FragmentA::Shape::kTileCols != 0) {
    zero_beyond_k<FragmentA>(masked_a.x);
    zero_beyond_k<FragmentB>(masked_b.x);
  }
  Compute sum[FragmentD::num_elements];
#pragma unroll
  for (int i = 0; i < FragmentD::num_elements; ++i) sum[i] = convert<Compute>(c.x[i]);
  multiply_tiles<Tile, FragmentA, FragmentB, FragmentD, kSwapped, 0>(sum, tile_elements(masked_a),
                                                                     tile_elements(masked_b));
#pragma unroll
  for (int i = 0; i < FragmentD::num_elements; ++i) d.x[i] = convert<typename FragmentD::element_type>(sum[i]);
}

// Operands that one instruction, or what stands for it, takes together.
template <class A, class B>
inline constexpr bool kMultiply =
    kSame<A, B> || (kSame<A, fp8_e4m3_t> && kSame<B, fp8_e5m2_t>) || (kSame<A, fp8_e5m2_t> && kSame<B, fp8_e4m3_t>) ||
    (kSame<A, fp8_e4m3fnuz_t> && kSame<B, fp8_e5m2fnuz_t>) || (kSame<A, fp8_e5m2fnuz_t> && kSame<B, fp8_e4m3fnuz_t>) ||
    (kSame<A, int8_t> && kSame<B, uint8_t>) || (kSame<A, uint8_t> && kSame<B, int8_t>) || (kIsInt4<A> && kIsInt4<B>);

template <class D, class A, class B, class C>
WMMA_CONSTEXPR bool multiplies() {
  static_assert(kIsFragment<D> && kIsFragment<A> && kIsFragment<B> && kIsFragment<C>,
                "wmma: mma_sync(d, a, b, c) takes four fragments");
  if constexpr (kIsFragment<D> && kIsFragment<A> && kIsFragment<B> && kIsFragment<C>) {
    using OfD = FragmentOf<D>;
    using OfA = FragmentOf<A>;
    using OfB = FragmentOf<B>;
    using OfC = FragmentOf<C>;
    constexpr bool kKinds = kSame<typename OfA::Kind, matrix_a> && kSame<typename OfB::Kind, matrix_b> &&
                            OfD::kAccumulates && kSame<typename OfC::Kind, typename OfD::Kind>;
    static_assert(kKinds,
                  "wmma: mma_sync(d, a, b, c) takes a matrix_a, a matrix_b, and d and c that are both accumulator or "
                  "both accumulator_swapped");
    constexpr bool kSizes = OfA::kM == OfD::kM && OfB::kM == OfD::kM && OfC::kM == OfD::kM && OfA::kN == OfD::kN &&
                            OfB::kN == OfD::kN && OfC::kN == OfD::kN && OfA::kK == OfD::kK && OfB::kK == OfD::kK &&
                            OfC::kK == OfD::kK;
    static_assert(kSizes, "wmma: the four fragments of mma_sync have one M, N and K");
    constexpr bool kPair = kMultiply<Plain<typename OfA::Element>, Plain<typename OfB::Element>>;
    static_assert(kPair,
                  "wmma: A and B have one type, or are e4m3 and e5m2 of one form, int8_t and uint8_t, or int4_t and "
                  "uint4_t; convert_fragment makes others alike");
    using Sum = typename ComputeType<typename OfA::Element>::Type;
    constexpr bool kDoubles = kSame<Sum, double> == kSame<typename OfD::Element, double> &&
                              kSame<Sum, double> == kSame<typename OfC::Element, double>;
    static_assert(kDoubles, "wmma: products of double, and they alone, have C and D of double");
    constexpr bool kWhole = !kSame<Sum, int32_t> || (kIsInteger<typename OfC::Element>);
    static_assert(kWhole, "wmma: C of a product of integers is of integers");
    constexpr bool kFloats =
        kSame<Sum, int32_t> || !(kIsInteger<typename OfD::Element> || kIsInteger<typename OfC::Element>);
    static_assert(kFloats,
                  "wmma: C and D of a product of floats are of floats; convert_fragment makes integers of them");
    return kKinds && kSizes && kPair && kDoubles && kWhole && kFloats;
  } else {
    return false;
  }
}

}  // namespace detail

// D = A·B + C; d and c may be one fragment. C and D may differ in type: C is converted to the type of the sums, the
// sums to D's.
template <class D, class A, class B, class C>
WMMA_DEVICE void mma_sync(D& d, const A& a, const B& b, const C& c) {
  if constexpr (detail::multiplies<D, A, B, C>()) detail::multiply(d, a, b, c);
}

}  // namespace wmma
