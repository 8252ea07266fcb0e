#include <algorithm>
#include <tuple>

#include "launch/operands.hpp"

namespace wmma_ops::launch {

namespace {

// How many neighbours of a row are aligned, wherever it starts.
int64_t vec_of(const Tensor& x) {
  const auto sizes = x.sizes(), strides = x.strides();
  const int64_t last = static_cast<int64_t>(sizes.size()) - 1, size = bytes_of(element_code(type_of(x)), 1);
  if (strides[last] != 1 && sizes[last] != 1) return 1;
  uint64_t bits = reinterpret_cast<uint64_t>(x.const_data_ptr()) | static_cast<uint64_t>(sizes[last] * size);
  for (int64_t i = 0; i < last; ++i) {
    if (sizes[i] > 1) bits |= static_cast<uint64_t>(strides[i] * size);
  }
  return aligned_elements(bits, size);
}

}  // namespace

void kv_append(const KvAppend& p, const Way& way) {
  constexpr int64_t kMost = int64_t{1} << 31;
  if (p.tokens >= kMost) fail_value(p.op, "key", "has ", p.tokens, " tokens; takes fewer than 2^31");
  if (p.tokens * p.heads * (p.e + p.ev) == 0 || p.count == 0 || p.pages == 0) return;
  if (p.angles > 0 && p.places == 0) return;
  wmma::AppendArguments arguments{};
  Touched touched;
  border::KvAppendProblem fields;
  fields.vec = 16;
  for (auto [name, x, into] : {std::tuple{"key", &p.key, &arguments.key}, {"value", &p.value, &arguments.value}}) {
    const auto strides = x->strides();
    *into = {x->const_data_ptr(), 0, strides[1], strides[0], strides[2]};
    fields.vec = std::min(fields.vec, vec_of(*x));
    touched.add(name, *x);
  }
  for (auto [name, x, into] : {std::tuple{"key_pages", &p.key_pages, &arguments.key_pages},
                               {"value_pages", &p.value_pages, &arguments.value_pages}}) {
    const auto strides = x->strides();
    *into = {x->mutable_data_ptr(), strides[0], strides[2], strides[1], strides[3]};
    fields.vec = std::min(fields.vec, vec_of(*x));
    touched.add(name, *x);
  }
  for (auto [name, x, into] :
       {std::tuple{"cu_seq", &p.cu_seq, &arguments.starts}, {"seqused_k", &p.used, &arguments.used}}) {
    *into = {x->const_data_ptr(), x->strides()[0], type_of(*x) == ScalarType::Long};
    touched.add(name, *x);
  }
  for (auto [name, x, into] : {std::tuple{"cos", &p.cos, &arguments.cos}, {"sin", &p.sin, &arguments.sin}}) {
    if (p.angles == 0) continue;
    *into = {(*x)->const_data_ptr(), 0, 0, (*x)->strides()[0], (*x)->strides()[1]};
    touched.add(name, **x);
  }
  for (auto [name, x, into] : {std::tuple{"k_descale", &p.k_descale, &arguments.k_descale},
                               {"v_descale", &p.v_descale, &arguments.v_descale}}) {
    if (!*x) continue;
    *into = descale_of(**x);
    touched.add(name, **x);
  }
  const auto table = p.block_table.strides();
  arguments.pages = {p.block_table.const_data_ptr(), table[0], table[1], 0, 0, static_cast<int>(p.pages)};
  touched.add("block_table", p.block_table);
  arguments.count = static_cast<int>(p.count);
  arguments.tokens = static_cast<int>(p.tokens);
  arguments.columns = static_cast<int>(p.columns);
  arguments.places = static_cast<int>(std::min(p.places, kMost - 1));

  fields.device = way.device;
  fields.dtype = element_code(p.type);
  fields.stored = element_code(p.stored);
  fields.angle = p.cos ? element_code(type_of(*p.cos)) : int64_t{wmma::kNoElement};
  fields.e = p.e;
  fields.ev = p.ev;
  fields.heads = p.heads;
  fields.page_size = p.page_size;
  fields.angles = p.angles;
  fields.interleaved = p.interleaved && p.angles > 0;
  fields.tokens = power_of_two_from(p.tokens);  // so that calls share plans
  const Plan plan = plan_of(p.op, ProblemKey(fields), way.remembered);
  if (way.executes) execute(p.op, way, plan, &arguments, sizeof arguments, touched);
}

}  // namespace wmma_ops::launch
