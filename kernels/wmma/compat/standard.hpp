// What of C++'s own library a kernel names: traits of types, bit_cast, numeric limits, sequences of numbers, and with
// C++20 (the option -std=c++20) the first concepts. It is in no header but those of C++'s names in kernels/compat.
#pragma once

#include <wmma/compat/integers.hpp>

#if !defined(WMMA_HIP_NAMES)

namespace wmma::compat {

template <class T, class... Others>
inline constexpr bool kOneOf = false;
template <class T, class First, class... Others>
inline constexpr bool kOneOf<T, First, Others...> = kOneOf<T, Others...>;
template <class T, class... Others>
inline constexpr bool kOneOf<T, T, Others...> = true;

}  // namespace wmma::compat

namespace std {

// Types of types, by the names of <type_traits>.
template <class T, T kValue>
struct integral_constant {
  using value_type = T;
  using type = integral_constant;
  static constexpr T value = kValue;
  WMMA_CONSTEXPR operator T() const { return kValue; }
};
template <bool kValue>
using bool_constant = integral_constant<bool, kValue>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;

template <bool kCondition, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool kCondition, class True, class False>
struct conditional {
  using type = True;
};
template <class True, class False>
struct conditional<false, True, False> {
  using type = False;
};
template <class T>
struct type_identity {
  using type = T;
};

template <class T>
struct remove_reference : type_identity<T> {};
template <class T>
struct remove_reference<T&> : type_identity<T> {};
template <class T>
struct remove_reference<T&&> : type_identity<T> {};
template <class T>
struct remove_const : type_identity<T> {};
template <class T>
struct remove_const<const T> : type_identity<T> {};
template <class T>
struct remove_volatile : type_identity<T> {};
template <class T>
struct remove_volatile<volatile T> : type_identity<T> {};
template <class T>
struct remove_cv : remove_const<typename remove_volatile<T>::type> {};
template <class T>
struct remove_cvref : remove_cv<typename remove_reference<T>::type> {};
template <class T>
struct remove_pointer : type_identity<T> {};
template <class T>
struct remove_pointer<T*> : type_identity<T> {};
template <class T>
struct remove_pointer<T* const> : type_identity<T> {};

template <bool kCondition, class T = void>
using enable_if_t = typename enable_if<kCondition, T>::type;
template <bool kCondition, class True, class False>
using conditional_t = typename conditional<kCondition, True, False>::type;
template <class T>
using type_identity_t = typename type_identity<T>::type;
template <class T>
using remove_reference_t = typename remove_reference<T>::type;
template <class T>
using remove_const_t = typename remove_const<T>::type;
template <class T>
using remove_volatile_t = typename remove_volatile<T>::type;
template <class T>
using remove_cv_t = typename remove_cv<T>::type;
template <class T>
using remove_cvref_t = typename remove_cvref<T>::type;
template <class T>
using remove_pointer_t = typename remove_pointer<T>::type;
template <class...>
using void_t = void;

#define WMMA_TRAIT(name, ...)                   \
  template <class T>                            \
  inline constexpr bool name##_v = __VA_ARGS__; \
  template <class T>                            \
  struct name : bool_constant<name##_v<T>> {};

// What a type is, as a value (_v) and as a type.
template <class T, class U>
inline constexpr bool is_same_v = false;
template <class T>
inline constexpr bool is_same_v<T, T> = true;
template <class T, class U>
struct is_same : bool_constant<is_same_v<T, U>> {};
WMMA_TRAIT(is_void, is_same_v<remove_cv_t<T>, void>)
WMMA_TRAIT(is_floating_point, wmma::compat::kOneOf<remove_cv_t<T>, float, double, long double>)
WMMA_TRAIT(is_integral,
           wmma::compat::kOneOf<remove_cv_t<T>, bool, char, signed char, unsigned char, short, unsigned short, int,
                                unsigned, long, unsigned long, long long, unsigned long long>)
WMMA_TRAIT(is_arithmetic, is_integral_v<T> || is_floating_point_v<T>)
WMMA_TRAIT(is_pointer, !is_same_v<remove_cv_t<T>, remove_pointer_t<remove_cv_t<T>>>)
WMMA_TRAIT(is_reference, !is_same_v<T, remove_reference_t<T>>)
WMMA_TRAIT(is_const, !is_same_v<T, remove_const_t<T>>)
WMMA_TRAIT(is_enum, __is_enum(T))
WMMA_TRAIT(is_class, __is_class(T))
WMMA_TRAIT(is_trivially_copyable, __is_trivially_copyable(T))
#undef WMMA_TRAIT
template <class From, class To>
inline constexpr bool is_convertible_v = __is_convertible_to(From, To);
template <class From, class To>
struct is_convertible : bool_constant<is_convertible_v<From, To>> {};
template <class Base, class Derived>
inline constexpr bool is_base_of_v = __is_base_of(Base, Derived);
template <class Base, class Derived>
struct is_base_of : bool_constant<is_base_of_v<Base, Derived>> {};

// One type's bits as another's.
template <class To, class From>
WMMA_CONSTEXPR To bit_cast(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "std::bit_cast takes types of one size");
  return __builtin_bit_cast(To, from);
}

// A value of that type, where nothing is computed; values handed on.
template <class T>
__host__ __device__ T&& declval() noexcept;
#ifndef __CUDACC_RTC__  // which has them
template <class T>
WMMA_CONSTEXPR remove_reference_t<T>&& move(T&& value) noexcept {
  return static_cast<remove_reference_t<T>&&>(value);
}
template <class T>
WMMA_CONSTEXPR T&& forward(remove_reference_t<T>& value) noexcept {
  return static_cast<T&&>(value);
}
#endif

// Numbers as a type: make_index_sequence<3> is index_sequence<0, 1, 2>.
template <class T, T... kValues>
struct integer_sequence {
  using value_type = T;
  static WMMA_CONSTEXPR size_t size() { return sizeof...(kValues); }
};

}  // namespace std

namespace wmma::compat {

template <class T, T kCount, T... kValues>
WMMA_CONSTEXPR auto counted() {
  if constexpr (kCount == 0) {
    return std::integer_sequence<T, kValues...>{};
  } else {
    return counted<T, kCount - 1, kCount - 1, kValues...>();
  }
}

}  // namespace wmma::compat

namespace std {

template <class T, T kCount>
using make_integer_sequence = decltype(wmma::compat::counted<T, kCount>());
template <size_t... kValues>
using index_sequence = integer_sequence<size_t, kValues...>;
template <size_t kCount>
using make_index_sequence = make_integer_sequence<size_t, kCount>;

// The limits of a type of numbers.
template <class T>
struct numeric_limits {
  static_assert(is_integral_v<T>, "std::numeric_limits takes whole numbers, float and double");
  static constexpr bool is_integer = true, is_signed = T(-1) < T(0);
  static constexpr int digits = is_same_v<T, bool> ? 1 : sizeof(T) * 8 - is_signed;
  static WMMA_CONSTEXPR T max() { return is_signed ? T(~0ull >> (64 - digits)) : T(-1); }
  static WMMA_CONSTEXPR T min() { return is_signed ? T(-max() - 1) : T(0); }
  static WMMA_CONSTEXPR T lowest() { return min(); }
};
template <>
struct numeric_limits<float> {
  static constexpr bool is_integer = false, is_signed = true;
  static constexpr int digits = 24;
  static WMMA_CONSTEXPR float max() { return 0x1.fffffep127f; }
  static WMMA_CONSTEXPR float min() { return 0x1p-126f; }
  static WMMA_CONSTEXPR float lowest() { return -max(); }
  static WMMA_CONSTEXPR float epsilon() { return 0x1p-23f; }
  static WMMA_CONSTEXPR float infinity() { return __builtin_bit_cast(float, 0x7f800000); }
  static WMMA_CONSTEXPR float quiet_NaN() { return __builtin_bit_cast(float, 0x7fc00000); }
};
template <>
struct numeric_limits<double> {
  static constexpr bool is_integer = false, is_signed = true;
  static constexpr int digits = 53;
  static WMMA_CONSTEXPR double max() { return 0x1.fffffffffffffp1023; }
  static WMMA_CONSTEXPR double min() { return 0x1p-1022; }
  static WMMA_CONSTEXPR double lowest() { return -max(); }
  static WMMA_CONSTEXPR double epsilon() { return 0x1p-52; }
  static WMMA_CONSTEXPR double infinity() { return __builtin_bit_cast(double, 0x7ff0000000000000); }
  static WMMA_CONSTEXPR double quiet_NaN() { return __builtin_bit_cast(double, 0x7ff8000000000000); }
};

#ifdef __cpp_concepts
// What a template's parameter may be asked for.
template <class T, class U>
concept same_as = is_same_v<T, U>;
template <class From, class To>
concept convertible_to = is_convertible_v<From, To>;
template <class Derived, class Base>
concept derived_from = is_base_of_v<Base, Derived>;
template <class T>
concept integral = is_integral_v<T>;
template <class T>
concept signed_integral = integral<T> && T(-1) < T(0);
template <class T>
concept unsigned_integral = integral<T> && !signed_integral<T>;
template <class T>
concept floating_point = is_floating_point_v<T>;
#endif

}  // namespace std

#endif
