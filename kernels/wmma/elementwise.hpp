// Fragments element by element: map, arithmetic and comparisons of fragments with fragments and with numbers, masks and
// what they select. Fragments that meet have one kind, M, N and K; each result is rounded to the element type.
#pragma once

#include <wmma/fragment_type.hpp>
#include <wmma/operators.hpp>

namespace wmma {

// A truth for each element of the fragments whose lanes are these, as comparisons give it; select() takes it.
template <int kRows, int kCols, class Lanes>
struct fragment_mask {
  using Shape = detail::TiledShape<kRows, kCols, Lanes>;
  static constexpr int num_elements = Shape::kTilesDown * Shape::kTilesAcross * Shape::kElements;
  bool x[num_elements];
  WMMA_DEVICE bool& operator[](int i) { return x[i]; }
  WMMA_DEVICE const bool& operator[](int i) const { return x[i]; }
  static WMMA_DEVICE constexpr int size() { return num_elements; }
};

namespace detail {

template <class T>
inline constexpr bool kIsMask = false;
template <int kRows, int kCols, class Lanes>
inline constexpr bool kIsMask<fragment_mask<kRows, kCols, Lanes>> = true;

template <class T>
inline constexpr bool kIsNumber = kIsWhole<T> || kSame<T, float> || kSame<T, double> || kIsNarrowFloat<Plain<T>>;

// Operands of which one at least is a fragment, and the others numbers, or masks where they are taken.
template <class... Operands>
using WhereFragments =
    EnableIf<(kIsFragment<Operands> || ...) && ((kIsFragment<Operands> || kIsNumber<Operands>) && ...)>;

// The first of the operands that is a fragment.
template <class First, class... Rest>
struct FirstFragment {
  using Type = typename Choose<kIsFragment<First>, Identity<First>, FirstFragment<Rest...>>::Type;
};
template <class Last>
struct FirstFragment<Last> {
  using Type = Last;
};

// Element i of a fragment or mask; a number is the same for all, in the type that the fragment computes in.
template <class Fragment, class Operand>
WMMA_DEVICE auto element(const Operand& operand, int i) {
  if constexpr (kIsFragment<Operand>) {
    return static_cast<Plain<typename Operand::element_type>>(operand.x[i]);
  } else if constexpr (kIsMask<Operand>) {
    return operand.x[i];
  } else {
    using T = typename Fragment::element_type;
    static_assert(!kIsInteger<T> || kIsWhole<Operand>,
                  "wmma: a fragment of integers meets whole numbers; convert_fragment makes it one of float");
    return static_cast<typename ComputeType<T>::Type>(operand);
  }
}

template <class Fragment, class Operand>
WMMA_CONSTEXPR bool meets() {
  if constexpr (kIsFragment<Operand> || kIsMask<Operand>) {
    constexpr bool kAlike = kLieAlike<Fragment, Operand>;
    static_assert(kAlike, "wmma: fragments that meet are of one kind and size, and lie alike in the lanes");
    return kAlike;
  } else {
    return true;
  }
}

// f of the operands' elements, rounded to the type of the first fragment.
template <class F, class... Operands>
WMMA_DEVICE auto apply(const F& f, const Operands&... operands) {
  using Result = typename FirstFragment<Operands...>::Type;
  Result result;
  if constexpr ((meets<Result, Operands>() && ...)) {
#pragma unroll
    for (int i = 0; i < Result::num_elements; ++i) {
      result.x[i] = static_cast<typename Result::element_type>(f(element<Result>(operands, i)...));
    }
  }
  return result;
}

template <class Fragment, class Operand>
WMMA_CONSTEXPR bool same_type() {
  if constexpr (kIsFragment<Operand>) {
    return kSame<Plain<typename Fragment::element_type>, Plain<typename Operand::element_type>>;
  } else {
    return true;
  }
}

template <class F, class... Operands>
WMMA_DEVICE auto calculate(const F& f, const Operands&... operands) {
  using First = typename FirstFragment<Operands...>::Type;
  static_assert((same_type<First, Operands>() && ...),
                "wmma: fragments that meet in arithmetic have one element type; convert_fragment one of them");
  return apply(f, operands...);
}

// The same with a mask for a result.
template <class F, class... Operands>
WMMA_DEVICE auto compare(const F& f, const Operands&... operands) {
  using First = typename FirstFragment<Operands...>::Type;
  using Shape = typename First::Shape;
  fragment_mask<Shape::kRows, Shape::kCols, typename Shape::Lanes> result;
  if constexpr ((meets<First, Operands>() && ...)) {
#pragma unroll
    for (int i = 0; i < First::num_elements; ++i) result.x[i] = f(element<First>(operands, i)...);
  }
  return result;
}

template <class F, class Mask, class... Masks>
WMMA_DEVICE Mask combine(const F& f, const Mask& mask, const Masks&... masks) {
  Mask result;
#pragma unroll
  for (int i = 0; i < Mask::num_elements; ++i) result.x[i] = f(mask.x[i], masks.x[i]...);
  return result;
}

// In the type that the first fragment of the operands computes in.
template <class... Operands>
using Computing = typename ComputeType<typename FirstFragment<Operands...>::Type::element_type>::Type;

}  // namespace detail

// f of every element.
template <class Kind, int M, int N, int K, class T, class Layout, class F>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> map(const fragment<Kind, M, N, K, T, Layout>& frag, F f) {
  return detail::apply(f, frag);
}

// f of every pair of elements.
template <class Kind, int M, int N, int K, class T, class Layout, class F, EnableIf<!kIsFragment<F>> = 0>
WMMA_DEVICE fragment<Kind, M, N, K, T, Layout> map(const fragment<Kind, M, N, K, T, Layout>& a,
                                                   const fragment<Kind, M, N, K, T, Layout>& b, F f) {
  return detail::apply(f, a, b);
}

// f of the elements of any number of fragments and numbers; their types may differ, the result's is the first's.
template <class F, class... Operands, EnableIf<!kIsFragment<F>> = 0, detail::WhereFragments<Operands...> = 0>
WMMA_DEVICE auto map(F f, const Operands&... operands) {
  return detail::apply(f, operands...);
}

// Arithmetic of fragments of one type, and of fragments with numbers. * is element by element: the matrix product is
// mma_sync.
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator+(const A& a, const B& b) {
  return detail::calculate([](auto p, auto q) { return p + q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator-(const A& a, const B& b) {
  return detail::calculate([](auto p, auto q) { return p - q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator*(const A& a, const B& b) {
  return detail::calculate([](auto p, auto q) { return p * q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator/(const A& a, const B& b) {
  return detail::calculate([](auto p, auto q) { return p / q; }, a, b);
}
template <class A, detail::WhereFragments<A> = 0>
WMMA_DEVICE auto operator-(const A& a) {
  return detail::calculate([](auto p) { return -p; }, a);
}
template <class A, detail::WhereFragments<A> = 0>
WMMA_DEVICE auto operator+(const A& a) {
  return a;
}

// The same on the fragment itself.
template <class A, class B, EnableIf<kIsFragment<A>> = 0, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE A& operator+=(A& a, const B& b) {
  return a = a + b;
}
template <class A, class B, EnableIf<kIsFragment<A>> = 0, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE A& operator-=(A& a, const B& b) {
  return a = a - b;
}
template <class A, class B, EnableIf<kIsFragment<A>> = 0, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE A& operator*=(A& a, const B& b) {
  return a = a * b;
}
template <class A, class B, EnableIf<kIsFragment<A>> = 0, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE A& operator/=(A& a, const B& b) {
  return a = a / b;
}

// The lesser and the greater element (of a number and a NaN the number), and what lies between two bounds.
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto min(const A& a, const B& b) {
  using T = detail::Computing<A, B>;
  return detail::calculate([](auto p, auto q) { return detail::lesser<T>(p, q); }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto max(const A& a, const B& b) {
  using T = detail::Computing<A, B>;
  return detail::calculate([](auto p, auto q) { return detail::greater<T>(p, q); }, a, b);
}
template <class A, class B, class C, EnableIf<kIsFragment<A>> = 0, detail::WhereFragments<A, B, C> = 0>
WMMA_DEVICE A clamp(const A& a, const B& low, const C& high) {
  return min(max(a, low), high);
}

// Without its sign.
template <class Kind, int M, int N, int K, class T, class Layout>
WMMA_DEVICE auto abs(const fragment<Kind, M, N, K, T, Layout>& a) {
  return detail::calculate(
      [](auto p) {
        using Wide = typename ComputeType<T>::Type;
        const Wide x = p;
        return x > Wide(0) ? x : Wide(0) - x;
      },
      a);
}

// a·b + c, of floating types rounded once.
template <class A, class B, class C, detail::WhereFragments<A, B, C> = 0>
WMMA_DEVICE auto mul_add(const A& a, const B& b, const C& c) {
  using T = detail::Computing<A, B, C>;
  return detail::calculate(
      [](auto p, auto q, auto r) {
        if constexpr (kIsInteger<T>) {
          return p * q + r;
        } else {
          return arch::fma(static_cast<T>(p), static_cast<T>(q), static_cast<T>(r));
        }
      },
      a, b, c);
}

// Comparisons give a mask.
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator==(const A& a, const B& b) {
  return detail::compare([](auto p, auto q) { return p == q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator!=(const A& a, const B& b) {
  return detail::compare([](auto p, auto q) { return p != q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator<(const A& a, const B& b) {
  return detail::compare([](auto p, auto q) { return p < q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator<=(const A& a, const B& b) {
  return detail::compare([](auto p, auto q) { return p <= q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator>(const A& a, const B& b) {
  return detail::compare([](auto p, auto q) { return p > q; }, a, b);
}
template <class A, class B, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto operator>=(const A& a, const B& b) {
  return detail::compare([](auto p, auto q) { return p >= q; }, a, b);
}

// Masks together.
template <class Mask, EnableIf<detail::kIsMask<Mask>> = 0>
WMMA_DEVICE Mask operator!(const Mask& a) {
  return detail::combine([](bool p) { return !p; }, a);
}
template <class Mask, EnableIf<detail::kIsMask<Mask>> = 0>
WMMA_DEVICE Mask operator&(const Mask& a, const Mask& b) {
  return detail::combine([](bool p, bool q) { return p && q; }, a, b);
}
template <class Mask, EnableIf<detail::kIsMask<Mask>> = 0>
WMMA_DEVICE Mask operator|(const Mask& a, const Mask& b) {
  return detail::combine([](bool p, bool q) { return p || q; }, a, b);
}
template <class Mask, EnableIf<detail::kIsMask<Mask>> = 0>
WMMA_DEVICE Mask operator^(const Mask& a, const Mask& b) {
  return detail::combine([](bool p, bool q) { return p != q; }, a, b);
}
template <class Mask, EnableIf<detail::kIsMask<Mask>> = 0>
WMMA_DEVICE Mask operator&&(const Mask& a, const Mask& b) {
  return a & b;
}
template <class Mask, EnableIf<detail::kIsMask<Mask>> = 0>
WMMA_DEVICE Mask operator||(const Mask& a, const Mask& b) {
  return a | b;
}

// Elements of a where the mask is true, of b where not; one of them may be a number.
template <class Mask, class A, class B, EnableIf<detail::kIsMask<Mask>> = 0, detail::WhereFragments<A, B> = 0>
WMMA_DEVICE auto select(const Mask& mask, const A& a, const B& b) {
  using T = typename detail::FirstFragment<A, B>::Type::element_type;
  return detail::calculate([](auto p, auto q, bool where) { return where ? static_cast<T>(p) : static_cast<T>(q); }, a,
                           b, mask);
}

}  // namespace wmma
