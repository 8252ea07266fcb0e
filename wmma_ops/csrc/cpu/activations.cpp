// Activations and their derivatives over memory, one pass each, by the formulas of the kernels.
#define WMMA_HOST 1
#include <cstdlib>
#include <cstring>
#include <string>
#include <wmma/tile/derivative.hpp>

#include "cpu/cpu.hpp"

namespace wmma_ops::cpu {

namespace {

// n elements each.
template <class T>
struct Vectors {
  T* y;
  const T *g, *x;
  int64_t n;
};

template <int kCode>
struct Activation {
  template <class T>
  static WMMA_DEVICE T apply(T, T x) {
    return wmma::activate<kCode>(x);
  }
};

template <int kCode>
struct Derivative {
  template <class T>
  static WMMA_DEVICE T apply(T g, T x) {
    return wmma::times_derivative<kCode>(g, x);
  }
};

// Chunks of a constant length, copied first: then the compiler makes vector instructions of the middle loop, whatever
// lies where.
constexpr int kCount = 64;

template <class F, class T>
WMMA_DEVICE void chunk(const Vectors<T>& v, int64_t at, int64_t count) {
  T g[kCount] = {}, x[kCount] = {}, y[kCount];
  std::memcpy(g, v.g + at, count * sizeof(T));
  std::memcpy(x, v.x + at, count * sizeof(T));
  for (int i = 0; i < kCount; ++i) y[i] = F::apply(g[i], x[i]);
  std::memcpy(v.y + at, y, count * sizeof(T));
}

template <class F, class T>
WMMA_DEVICE void loop(const Vectors<T>& v) {
  int64_t at = 0;
  for (; at + kCount <= v.n; at += kCount) chunk<F>(v, at, kCount);
  if (at < v.n) chunk<F>(v, at, v.n - at);
}

#if defined(__x86_64__)
// Bits of the vectors: what the processor has, or less by ATEN_CPU_CAPABILITY, as of torch's own kernels.
int bits_of_vectors() {
  static const int bits = [] {
    const char* asked = std::getenv("ATEN_CPU_CAPABILITY");
    const std::string most = asked ? asked : "";
    if (most == "default" || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return 0;
    const bool has_512 =
        __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return has_512 && most != "avx2" ? 512 : 256;
  }();
  return bits;
}

template <class F, class T>
__attribute__((target("avx512f,avx512dq,avx512vl,fma"))) void in_512(const Vectors<T>& v) {
  loop<F>(v);
}
template <class F, class T>
__attribute__((target("avx2,fma"))) void in_256(const Vectors<T>& v) {
  loop<F>(v);
}
#endif
template <class F, class T>
void in_any(const Vectors<T>& v) {
  loop<F>(v);
}

template <class F, class T>
void one(const Vectors<T>& v) {
#if defined(__x86_64__)
  if (bits_of_vectors() == 512) return in_512<F>(v);
  if (bits_of_vectors() == 256) return in_256<F>(v);
#endif
  in_any<F>(v);
}

template <template <int> class F, class T, int kCode = 1>
void with_code(const Vectors<T>& v, int64_t activation) {
  if (activation == kCode) return one<F<kCode>>(v);
  if constexpr (kCode + 1 < wmma::kBuiltinActivations) with_code<F, T, kCode + 1>(v, activation);
}

template <template <int> class F, class T>
void in_parallel(const Vectors<T>& v, int64_t activation) {
  constexpr int64_t kGrain = 1 << 14;
  if (v.n <= kGrain) return with_code<F>(v, activation);
  torch::stable::parallel_for(0, v.n, kGrain, [&](int64_t begin, int64_t end) {
    with_code<F>(Vectors<T>{v.y + begin, v.g + begin, v.x + begin, end - begin}, activation);
  });
}

template <template <int> class F>
void over(Tensor& y, const Tensor& g, const Tensor& x, int64_t activation) {
  const auto run = [&](auto number) {
    using T = decltype(number);
    const auto at = [](const Tensor& t) { return static_cast<const T*>(t.const_data_ptr()); };
    in_parallel<F>(Vectors<T>{static_cast<T*>(y.mutable_data_ptr()), at(g), at(x), x.numel()}, activation);
  };
  type_of(x) == ScalarType::Double ? run(0.0) : run(0.0f);
}

}  // namespace

void activate(Tensor& y, const Tensor& x, int64_t activation) {
  if (activation == 0) return aten::copy_(y, x);
  over<Activation>(y, x, x, activation);
}

std::pair<Tensor, OptTensor> activation_gradient(const ActivationGradient& p) {
  const ScalarType type = type_of(p.g), wide = accumulator(type);
  if (p.activation == 0 && !p.u) return {p.g, std::nullopt};
  Tensor g = aten::contiguous(aten::to(p.g, wide));
  const Tensor s = aten::contiguous(aten::to(p.s, wide));
  OptTensor g_u;
  if (p.u) {
    Tensor y = aten::empty(sizes_of(s), wide);
    activate(y, s, p.activation);
    g_u = aten::to(aten::mul(g, y), type);
    g = aten::mul(g, aten::contiguous(aten::to(*p.u, wide)));
  }
  if (p.activation == 0) return {g, g_u};
  Tensor y = aten::empty(sizes_of(g), wide);
  over<Derivative>(y, g, s, p.activation);
  return {y, g_u};
}

}  // namespace wmma_ops::cpu
