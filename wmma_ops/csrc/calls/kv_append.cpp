#include "calls/kv_append.hpp"

#include <tuple>
#include <utility>

#include "cpu/cpu.hpp"
#include "cpu/numbers.hpp"
#include "launch/launch.hpp"

namespace wmma_ops {

void KvAppend::check() {
  type = type_of(key);
  device = check_first(op, "key", key);
  check_floating(op, "key", type);
  check_storage(op, "value", value, device);
  for (auto [name, x] : {std::pair{"key", &key}, {"value", &value}}) {
    if (x->dim() != 3) fail_shape(op, name, *x, "[tokens, heads, head size]");
  }
  tokens = key.sizes()[0];
  heads = key.sizes()[1];
  e = key.sizes()[2];
  ev = value.sizes()[2];
  check_type(op, "value", type_of(value), {type}, "key");
  if (value.sizes()[0] != tokens || value.sizes()[1] != heads) {
    fail_shape(op, "value", value, "the tokens and the heads of key, ", key);
  }
  check_pages();
  check_numbers();
  check_angles();
  for (auto [name, x] : {std::pair{"k_descale", &k_descale}, {"v_descale", &v_descale}}) {
    check_descale_of_pages(op, name, *x, {count, heads}, device, "pages", stored, type);
  }
  check_memory();
}

void KvAppend::check_pages() {
  stored = type_of(key_pages);
  const bool may_be_narrow = type == ScalarType::Half || type == ScalarType::BFloat16;
  const bool is_narrow = may_be_narrow && stored == ScalarType::Float8_e4m3fn;
  if (!is_narrow) stored = type;
  for (auto [name, x, size, from_name, from] :
       {std::tuple{"key_pages", &key_pages, e, "key", &key}, {"value_pages", &value_pages, ev, "value", &value}}) {
    check_storage(op, name, *x, device);
    if (type_of(*x) != stored) {
      fail_dtype(op, name, type_of(*x), name_of(stored), ", as ", (is_narrow ? "key_pages has" : "key has"),
                 (x == &key_pages && may_be_narrow ? ", or float8_e4m3fn" : ""));
    }
    if (x->dim() != 4 || x->sizes()[2] != heads || x->sizes()[3] != size) {
      fail_shape(op, name, *x, "[pages, page size, ", heads, ", ", size, "], with the heads and the size of ",
                 from_name);
    }
  }
  pages = key_pages.sizes()[0];
  page_size = key_pages.sizes()[1];
  if (page_size == 0) fail_shape(op, "key_pages", key_pages, "a page size of 1 or more");
  if (value_pages.sizes()[0] != pages || value_pages.sizes()[1] != page_size) {
    fail_shape(op, "value_pages", value_pages, "the pages of key_pages, ", pages, " of ", page_size);
  }
}

void KvAppend::check_numbers() {
  for (auto [name, x] : {std::pair{"cu_seq", &cu_seq}, {"seqused_k", &used}}) {
    check_tensor(op, name, *x, device, {ScalarType::Int, ScalarType::Long});
    if (x->dim() != 1) fail_shape(op, name, *x, "one dimension");
  }
  if (cu_seq.numel() == 0) fail_value(op, "cu_seq", "has shape [0]; takes one dimension, of 1 or more");
  count = cu_seq.numel() - 1;
  if (used.numel() != count) fail_shape(op, "seqused_k", used, "[", count, "], as cu_seq has ", count + 1);
  check_block_table(op, block_table, device, count, "cu_seq");
  columns = block_table.sizes()[1];
}

void KvAppend::check_angles() {
  if (!cos && !sin) return;
  for (auto [name, x, other] : {std::tuple{"cos", &cos, "sin"}, {"sin", &sin, "cos"}}) {
    if (!*x) fail_type(op, name, "is None; takes a tensor beside ", other);
    check_tensor(op, name, **x, device, {ScalarType::Float, type}, "key");
    if ((*x)->dim() != 2 || (*x)->sizes()[1] > e / 2) {
      fail_shape(op, name, **x, "[places, angles], of up to ", e / 2, " angles, half the size of key");
    }
  }
  if (type_of(*cos) != type_of(*sin) || sizes_of(*cos) != sizes_of(*sin)) {
    fail_value(op, "sin", "has shape ", *sin, " and is ", type_of(*sin), "; takes those of cos, ", *cos, " and ",
               type_of(*cos));
  }
  places = cos->sizes()[0];
  angles = cos->sizes()[1];
}

void KvAppend::check_memory() const {
  for (auto [name, x] : {std::pair{"key_pages", &key_pages}, {"value_pages", &value_pages}}) {
    check_written(op, name, *x);
    for (auto [other_name, other] : {std::pair{"key", &key},
                                     {"value", &value},
                                     {"block_table", &block_table},
                                     {"cu_seq", &cu_seq},
                                     {"seqused_k", &used}}) {
      check_apart(op, name, *x, other_name, *other);
    }
    for (auto [other_name, other] :
         {std::pair{"cos", &cos}, {"sin", &sin}, {"k_descale", &k_descale}, {"v_descale", &v_descale}}) {
      if (*other) check_apart(op, name, *x, other_name, **other);
    }
  }
  check_apart(op, "value_pages", value_pages, "key_pages", key_pages);
}

void kv_append(const KvAppend& p) {
  if (is_plain_cpu(p.device)) return cpu::kv_append(p);
  const Way way = way_of(p.device);
  if (way.on_cpu) return cpu::kv_append(p);
  if (way.executes && cpu::are_checked_everywhere()) cpu::checked_numbers(p);
  launch::kv_append(p, way);
}

}  // namespace wmma_ops
