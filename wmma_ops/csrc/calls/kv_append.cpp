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
  if (type != ScalarType::Half && type != ScalarType::BFloat16 && type != ScalarType::Float &&
      type != ScalarType::Double) {
    fail_type(op, "key", std::string("is ") + name_of(type) + "; takes float16, bfloat16, float32 or float64");
  }
  check_storage(op, "value", value, device);
  for (auto [name, x] : {std::pair{"key", &key}, {"value", &value}}) {
    if (x->dim() != 3) fail_value(op, name, "has shape " + shape(*x) + "; takes [tokens, heads, head size]");
  }
  tokens = key.sizes()[0];
  heads = key.sizes()[1];
  e = key.sizes()[2];
  ev = value.sizes()[2];
  if (type_of(value) != type) {
    fail_type(op, "value", std::string("is ") + name_of(type_of(value)) + "; takes " + name_of(type) + ", as key has");
  }
  if (value.sizes()[0] != tokens || value.sizes()[1] != heads) {
    fail_value(op, "value", "has shape " + shape(value) + "; takes the tokens and the heads of key, " + shape(key));
  }
  check_pages();
  check_numbers();
  check_angles();
  check_descales();
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
      fail_type(op, name,
                std::string("is ") + name_of(type_of(*x)) + "; takes " + name_of(stored) + ", as " +
                    (is_narrow ? "key_pages has" : "key has") +
                    (x == &key_pages && may_be_narrow ? ", or float8_e4m3fn" : ""));
    }
    if (x->dim() != 4 || x->sizes()[2] != heads || x->sizes()[3] != size) {
      fail_value(op, name,
                 "has shape " + shape(*x) + "; takes [pages, page size, " + std::to_string(heads) + ", " +
                     std::to_string(size) + "], with the heads and the size of " + from_name);
    }
  }
  pages = key_pages.sizes()[0];
  page_size = key_pages.sizes()[1];
  if (page_size == 0) fail_value(op, "key_pages", "has shape " + shape(key_pages) + "; takes a page size of 1 or more");
  if (value_pages.sizes()[0] != pages || value_pages.sizes()[1] != page_size) {
    fail_value(op, "value_pages",
               "has shape " + shape(value_pages) + "; takes the pages of key_pages, " + std::to_string(pages) + " of " +
                   std::to_string(page_size));
  }
}

void KvAppend::check_numbers() {
  for (auto [name, x] : {std::pair{"cu_seq", &cu_seq}, {"seqused_k", &used}}) {
    check_storage(op, name, *x, device);
    const ScalarType came = type_of(*x);
    if (came != ScalarType::Int && came != ScalarType::Long) {
      fail_type(op, name, std::string("is ") + name_of(came) + "; takes int32 or int64");
    }
    if (x->dim() != 1) fail_value(op, name, "has shape " + shape(*x) + "; takes one dimension");
  }
  if (cu_seq.numel() == 0) fail_value(op, "cu_seq", "has shape [0]; takes one dimension, of 1 or more");
  count = cu_seq.numel() - 1;
  const std::string as_has = ", as cu_seq has " + std::to_string(count + 1);
  if (used.numel() != count) {
    fail_value(op, "seqused_k", "has shape " + shape(used) + "; takes [" + std::to_string(count) + "]" + as_has);
  }
  check_storage(op, "block_table", block_table, device);
  if (type_of(block_table) != ScalarType::Int) {
    fail_type(op, "block_table", std::string("is ") + name_of(type_of(block_table)) + "; takes int32");
  }
  if (block_table.dim() != 2 || block_table.sizes()[0] != count) {
    fail_value(
        op, "block_table",
        "has shape " + shape(block_table) + "; takes [" + std::to_string(count) + ", pages of a sequence]" + as_has);
  }
  columns = block_table.sizes()[1];
}

void KvAppend::check_angles() {
  if (!cos && !sin) return;
  for (auto [name, x, other] : {std::tuple{"cos", &cos, "sin"}, {"sin", &sin, "cos"}}) {
    if (!*x) fail_type(op, name, std::string("is None; takes a tensor beside ") + other);
    check_storage(op, name, **x, device);
    const ScalarType came = type_of(**x);
    if (came != type && came != ScalarType::Float) {
      fail_type(op, name,
                std::string("is ") + name_of(came) + "; takes " + list({ScalarType::Float, type}) + ", as key has");
    }
    if ((*x)->dim() != 2 || (*x)->sizes()[1] > e / 2) {
      fail_value(op, name,
                 "has shape " + shape(**x) + "; takes [places, angles], of up to " + std::to_string(e / 2) +
                     " angles, half the size of key");
    }
  }
  if (type_of(*cos) != type_of(*sin) || sizes_of(*cos) != sizes_of(*sin)) {
    fail_value(op, "sin",
               "has shape " + shape(*sin) + " and is " + name_of(type_of(*sin)) + "; takes those of cos, " +
                   shape(*cos) + " and " + name_of(type_of(*cos)));
  }
  places = cos->sizes()[0];
  angles = cos->sizes()[1];
}

void KvAppend::check_descales() const {
  for (auto [name, x] : {std::pair{"k_descale", &k_descale}, {"v_descale", &v_descale}}) {
    if (!*x) continue;
    if (stored == type) {
      fail_type(
          op, name,
          std::string("is given beside pages of ") + name_of(stored) + "; takes None, but of pages of float8_e4m3fn");
    }
    check_descale(op, name, **x, {count, heads}, device);
  }
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
