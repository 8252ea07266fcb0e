"""Kernels in the names of C++'s own library, of HIP's 8-bit floats and of 16-bit math, on whatever machine."""

import math

import numpy as np
import torch
from compat_kernels import HEAD, check_lines, lines_kernel
from machine import Machine

import wmma_ops

HEADERS = "".join(f"#include <{name}>\n" for name in ("type_traits", "utility", "bit", "limits", "cstdint", "cstddef"))
SOURCE = (
    HEADERS
    + """
struct Base { int x; };
struct Derived : Base { using mine = Base; };
enum Letters { a, b };
template <class T, std::enable_if_t<std::is_integral_v<T>, int> = 0> __device__ int kind(T) { return 1; }
template <class T, std::enable_if_t<std::is_floating_point<T>::value, int> = 0> __device__ int kind(T) { return 2; }
template <class T, class = void> struct has_mine : std::false_type {};
template <class T> struct has_mine<T, std::void_t<typename T::mine>> : std::true_type {};
template <std::size_t... kAt> __device__ int sum_of(const int* x, std::index_sequence<kAt...>) {
  return (x[kAt] + ... + 0);
}
template <class T> __device__ int lvalue(T&& x) { return std::is_reference_v<T>; }
template <class T> __device__ int passed(T&& x) { return lvalue(std::forward<T>(x)); }
"""
)
# Of f = 1.5, q = 1, 2, 3, 4.
STANDARD = [
    ("std::is_same_v<std::conditional_t<(sizeof(int) > 3), float, int>, float> + 2 * std::is_same<int, long>::value", 1),
    ("kind(1) + 10 * kind(f) + 100 * kind(true)", 121),
    ("has_mine<Derived>::value + 10 * has_mine<Base>::value", 1),
    ("sum_of(q, std::make_index_sequence<3>{}) + 100 * (int)std::index_sequence<4, 5>::size()", 206),
    ("sum_of(q, std::index_sequence<3>{}) + 10 * std::is_same_v<std::make_index_sequence<0>, std::index_sequence<>>", 14),
    ("std::is_same_v<std::remove_cvref_t<const volatile int&>, int> + std::is_same_v<std::remove_const_t<int*>, int>", 1),
    ("std::is_pointer_v<int* const> + 10 * std::is_pointer_v<int> + 100 * std::is_const_v<const int>", 101),
    ("std::is_same_v<std::remove_pointer_t<int* const>, int> + std::is_same_v<std::remove_reference_t<int&&>, int>", 2),
    ("std::is_base_of_v<Base, Derived> + 10 * std::is_base_of_v<Derived, Base>", 1),
    ("std::is_convertible_v<Base, int> + 10 * std::is_enum_v<Letters> + 100 * std::is_class_v<Base>", 110),
    ("std::is_convertible_v<int, float> + 10 * std::is_floating_point_v<double>", 11),
    ("std::is_trivially_copyable_v<Base> + 10 * std::is_void_v<const void> + 100 * std::is_arithmetic_v<Base>", 11),
    ("std::is_integral_v<const unsigned char> + 10 * std::is_integral_v<float>", 1),
    ("sizeof(std::declval<double>()) + std::integral_constant<int, 3>{} + std::true_type{}", 12),
    ("passed(f) + 10 * passed(std::move(f)) + 100 * passed(3)", 1),
    ("std::bit_cast<std::int32_t>(f)", 0x3FC00000),
    ("std::bit_cast<std::uint16_t>(std::bit_cast<std::int16_t>(std::uint16_t(40000)))", 40000),
    ("std::numeric_limits<int>::max() + std::numeric_limits<int>::min() == -1", 1),
    ("std::numeric_limits<int>::lowest()", -(2**31)),
    ("std::numeric_limits<std::uint8_t>::max() + std::numeric_limits<std::int8_t>::min() * 1000", 255 - 128000),
    ("std::numeric_limits<unsigned long long>::max() == ~0ull && std::numeric_limits<unsigned>::min() == 0", 1),
    ("std::numeric_limits<long>::max() >> 32", 2**31 - 1),
    ("std::numeric_limits<long>::digits + 100 * std::numeric_limits<float>::digits", 2463),
    ("std::numeric_limits<bool>::max() + 10 * std::numeric_limits<bool>::digits", 11),
    ("std::bit_cast<int>(std::numeric_limits<float>::max())", 0x7F7FFFFF),
    ("std::bit_cast<int>(std::numeric_limits<float>::lowest()) - int(0xff7fffff)", 0),
    ("std::bit_cast<int>(std::numeric_limits<float>::infinity())", 0x7F800000),
    ("std::bit_cast<int>(std::numeric_limits<float>::min())", 0x00800000),
    ("std::bit_cast<int>(std::numeric_limits<float>::epsilon())", 0x34000000),
    ("std::numeric_limits<float>::quiet_NaN() != std::numeric_limits<float>::quiet_NaN()", 1),
    ("std::bit_cast<long long>(std::numeric_limits<double>::max()) >> 32", 0x7FEFFFFF),
    ("1 + std::numeric_limits<double>::epsilon() > 1 && 1 + std::numeric_limits<double>::epsilon() / 2 == 1", 1),
    ("std::numeric_limits<double>::quiet_NaN() == 0 || std::numeric_limits<double>::min() >= 1e-307", 0),
    ("std::numeric_limits<double>::infinity() > 1e308 && std::numeric_limits<double>::lowest() < -1e308", 1),
    ("sizeof(std::uintptr_t) + 10 * sizeof(std::intptr_t) + 100 * std::is_same_v<std::nullptr_t, decltype(nullptr)>", 188),
]  # fmt: skip
STANDARD_KERNEL = lines_kernel(SOURCE, STANDARD, "int* r, float f, const int* q")

# Of clang alone: NVRTC takes no -std=c++20 beside ours, and has no names of HIP.
CONCEPTS = """
#include <concepts>
#include <hip/hip_runtime.h>
template <std::integral T> __device__ int kind(T) { return std::unsigned_integral<T> ? 1 : 2; }
template <std::floating_point T> __device__ int kind(T) { return 3; }
template <class T> __device__ int like(T) requires std::same_as<T, int> || std::convertible_to<int, T*> { return 4; }
template <class T> __device__ int like(T) { return 5; }
struct Base {};
struct Derived : Base {};
struct Arguments { int* r; float f; hipStream_t stream; };
__global__ void concepts(Arguments g) {
  int* r = g.r;
  const float f = g.f;
  r[0] = kind(1u) + 10 * kind(-1) + 100 * kind(f) + 1000 * like(1) + 10000 * like(f);
  r[1] = std::derived_from<Derived, Base> + 10 * std::signed_integral<short> + 100 * std::derived_from<Base, Derived>;
  const HIP_vector_type<float, 4> four = make_float4(f, 2, 3, 4);
  r[2] = std::same_as<HIP_vector_type<int, 2>, int2> + 10 * (int)four.w;
}"""

CONCEPTS_KERNEL = wmma_ops.Kernel(CONCEPTS, "concepts", options=("-std=c++20",))


def check_standard(on: Machine):
    check_lines(on, STANDARD_KERNEL, STANDARD, (1.5, torch.tensor([1, 2, 3, 4], dtype=torch.int32)), torch.int32)


def _of(x: float, dtype: torch.dtype) -> float:
    return torch.tensor(x, dtype=torch.float32).to(dtype).item()


# Of a = 2.7 and g = 1e6: the nearest of each form, and its greatest where that is beyond.
_FP8 = {"e4m3": torch.float8_e4m3fn, "e5m2": torch.float8_e5m2,
        "e4m3_fnuz": torch.float8_e4m3fnuz, "e5m2_fnuz": torch.float8_e5m2fnuz}  # fmt: skip
X, G = (float(np.float32(x)) for x in (2.7, 1e6))
SMALL = [
    row
    for name, dtype in _FP8.items()
    for row in (
        (f"float(__hip_fp8_{name}(x))", _of(X, dtype)),
        (f"float(__hip_fp8_{name}(g)) + float(__hip_fp8_{name}(-g)) / 2", torch.finfo(dtype).max / 2),
        (f"float(__hip_fp8_{name}(n))", math.nan),
        (f"float2(__hip_fp8x2_{name}(make_float2(x, -x))).y", _of(-X, dtype)),
        (f"float4(__hip_fp8x4_{name}(make_float4(0, x, g, -1))).z", torch.finfo(dtype).max),
        (f"__hip_fp8x4_{name}(make_float4(0, 0, 0, x)).__x >> 24", int(torch.tensor(X).to(dtype).view(torch.uint8))),
        (f"sizeof(__hip_fp8_{name}) + 10 * sizeof(__hip_fp8x2_{name}) + 100 * sizeof(__hip_fp8x4_{name})", 421),
    )
] + [
    ("float(__hip_fp8_e5m2(g * g * g * g * g * g * g))", math.inf),  # what is infinite stays so
    ("float(hrint(half(x))) + __high2float(h2rint(half2{half(0), half(x)}))", 6),
    ("INFINITY", math.inf),
    ("NAN", math.nan),
]
# One-argument math of both 16-bit types, of x, within two of their roundings; h2… of the second in a pair.
WAYS = {"ceil": math.ceil, "cos": math.cos, "exp": math.exp, "exp10": lambda x: 10**x, "exp2": lambda x: 2**x,
        "floor": math.floor, "log": math.log, "log10": math.log10, "log2": math.log2, "rint": round,
        "rsqrt": lambda x: x**-0.5, "sin": math.sin, "sqrt": math.sqrt, "trunc": math.trunc}  # fmt: skip
SHORT = [
    (
        f"float(h{way}({kind}(x))) + {access}(h2{way}({pair}{{{kind}(1.0f), {kind}(x)}}))",
        2 * found(_of(X, dtype)),
        bound,
    )
    for kind, pair, access, dtype, bound in (
        ("half", "half2", "__high2float", torch.float16, 2.0**-10),
        ("__hip_bfloat16", "__hip_bfloat162", "__high2float", torch.bfloat16, 2.0**-7),
    )
    for way, found in WAYS.items()
]
SMALL_KERNEL = lines_kernel(
    f"{HEAD}#include <hip/hip_bf16.h>\n#include <hip/hip_fp8.h>\n",
    SMALL + SHORT,
    "float* r, float x, float g, float n",
)


def check_small_floats(on: Machine):
    got = torch.full((len(SMALL) + len(SHORT),), 77.0)
    on.run(SMALL_KERNEL, 1, 1, got, X, G, math.nan)
    rows = [(line, value, 0.0) for line, value in SMALL] + SHORT
    wrong = [
        f"{line} is {found} for {value}"
        for (line, value, bound), found in zip(rows, got.tolist(), strict=True)
        if not (found == value or (found != found and value != value) or abs(found - value) <= bound * abs(value))
    ]
    assert not wrong, "\n".join(wrong)


KERNELS = {"standard": STANDARD_KERNEL, "small floats": SMALL_KERNEL}
