// Whether autograd alone looks on at a call.
#pragma once

#include <ATen/ATen.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>

namespace wmma_ops {

using at::Tensor;
using c10::DispatchKey;
using c10::DispatchKeySet;
using torch::autograd::variable_list;

// Of a backend's own memory, and no wrapper around another.
inline bool is_plain(const Tensor& x) {
  constexpr DispatchKeySet kPlain = DispatchKeySet(DispatchKey::CPU) | DispatchKeySet(DispatchKey::CUDA) |
                                    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;
  return !x.defined() ||
         ((x.key_set().raw_repr() & ~kPlain.raw_repr()) == 0 && x.layout() == at::kStrided && !x._fw_grad(0).defined());
}

inline bool are_plain(const variable_list& tensors) { return std::all_of(tensors.begin(), tensors.end(), is_plain); }

inline bool somebody_looks_on() {
  constexpr DispatchKeySet kTransforms{DispatchKey::FuncTorchDynamicLayerFrontMode,
                                       DispatchKey::FuncTorchDynamicLayerBackMode};
  return c10::impl::dispatch_mode_enabled() || c10::impl::tls_local_dispatch_key_set().included_.has_any(kTransforms);
}

}  // namespace wmma_ops
