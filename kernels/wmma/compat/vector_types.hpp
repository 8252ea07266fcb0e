// float4 and its kin, dim3, make_float4: as CUDA lays them out. Vectors of one type also have + - * / by element, as
// HIP's do.
#pragma once

#include <wmma/target.hpp>

// Short names of types.
using longlong = long long;
using ulonglong = unsigned long long;
#if !defined(WMMA_HIP_NAMES)
using uchar = unsigned char;
using ushort = unsigned short;
using uint = unsigned int;
using ulong = unsigned long;
#endif

#if !defined(WMMA_NVIDIA) && !defined(WMMA_HIP_NAMES)  // which have them

namespace wmma::compat {

// Three of a kind are as aligned as one.
template <class T, int kCount>
inline constexpr int kVectorAlignment = kCount == 3 ? sizeof(T) : (kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16);

template <class T, int kCount>
struct Vector;

template <class T>
struct alignas(kVectorAlignment<T, 1>) Vector<T, 1> {
  T x;
};
template <class T>
struct alignas(kVectorAlignment<T, 2>) Vector<T, 2> {
  T x, y;
};
template <class T>
struct alignas(kVectorAlignment<T, 3>) Vector<T, 3> {
  T x, y, z;
};
template <class T>
struct alignas(kVectorAlignment<T, 4>) Vector<T, 4> {
  T x, y, z, w;
};

template <class T, int kCount, class F>
WMMA_DEVICE Vector<T, kCount> map(const Vector<T, kCount>& a, const Vector<T, kCount>& b, F f) {
  Vector<T, kCount> result;
  result.x = f(a.x, b.x);
  if constexpr (kCount > 1) result.y = f(a.y, b.y);
  if constexpr (kCount > 2) result.z = f(a.z, b.z);
  if constexpr (kCount > 3) result.w = f(a.w, b.w);
  return result;
}

template <class T, int kCount>
WMMA_DEVICE Vector<T, kCount> all(T value) {
  Vector<T, kCount> result;
  result.x = value;
  if constexpr (kCount > 1) result.y = value;
  if constexpr (kCount > 2) result.z = value;
  if constexpr (kCount > 3) result.w = value;
  return result;
}

// Keeps a parameter out of deduction: 2 * a is then of a's type.
template <class T>
struct Given {
  using Type = T;
};

#define WMMA_VECTOR_OPERATOR(sign)                                                                      \
  template <class T, int kCount>                                                                        \
  WMMA_DEVICE Vector<T, kCount> operator sign(const Vector<T, kCount>& a, const Vector<T, kCount>& b) { \
    return map(a, b, [](T p, T q) { return static_cast<T>(p sign q); });                                \
  }                                                                                                     \
  template <class T, int kCount>                                                                        \
  WMMA_DEVICE Vector<T, kCount> operator sign(const Vector<T, kCount>& a, typename Given<T>::Type b) {  \
    return a sign all<T, kCount>(b);                                                                    \
  }                                                                                                     \
  template <class T, int kCount>                                                                        \
  WMMA_DEVICE Vector<T, kCount> operator sign(typename Given<T>::Type a, const Vector<T, kCount>& b) {  \
    return all<T, kCount>(a) sign b;                                                                    \
  }                                                                                                     \
  template <class T, int kCount, class Other>                                                           \
  WMMA_DEVICE Vector<T, kCount>& operator sign## = (Vector<T, kCount> & a, const Other& b) {            \
    return a = a sign b;                                                                                \
  }

WMMA_VECTOR_OPERATOR(+)
WMMA_VECTOR_OPERATOR(-)
WMMA_VECTOR_OPERATOR(*)
WMMA_VECTOR_OPERATOR(/)
#undef WMMA_VECTOR_OPERATOR

}  // namespace wmma::compat

#define WMMA_VECTORS(T)                                                       \
  using T##1 = wmma::compat::Vector<T, 1>;                                    \
  using T##2 = wmma::compat::Vector<T, 2>;                                    \
  using T##3 = wmma::compat::Vector<T, 3>;                                    \
  using T##4 = wmma::compat::Vector<T, 4>;                                    \
  WMMA_DEVICE constexpr T##1 make_##T##1(T x) { return {x}; }                 \
  WMMA_DEVICE constexpr T##2 make_##T##2(T x, T y) { return {x, y}; }         \
  WMMA_DEVICE constexpr T##3 make_##T##3(T x, T y, T z) { return {x, y, z}; } \
  WMMA_DEVICE constexpr T##4 make_##T##4(T x, T y, T z, T w) { return {x, y, z, w}; }

// One to four numbers of a type, aligned as CUDA's; + - * / are by element.
WMMA_VECTORS(char)
WMMA_VECTORS(uchar)
WMMA_VECTORS(short)
WMMA_VECTORS(ushort)
WMMA_VECTORS(int)
WMMA_VECTORS(uint)
WMMA_VECTORS(long)
WMMA_VECTORS(ulong)
WMMA_VECTORS(longlong)
WMMA_VECTORS(ulonglong)
WMMA_VECTORS(float)
WMMA_VECTORS(double)
#undef WMMA_VECTORS

// The same by HIP's template: HIP_vector_type<float, 4> is float4.
template <class T, unsigned kCount>
using HIP_vector_type = wmma::compat::Vector<T, static_cast<int>(kCount)>;

// A size in three dimensions, of 1 where none is given.
struct dim3 {
  uint x, y, z;
  WMMA_CONSTEXPR dim3(uint x = 1, uint y = 1, uint z = 1) : x(x), y(y), z(z) {}
  WMMA_CONSTEXPR dim3(uint3 size) : x(size.x), y(size.y), z(size.z) {}
};

#endif
