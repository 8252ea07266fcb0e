#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "calls/attention.hpp"
#include "launch/mode.hpp"

namespace wmma_ops {

void Attention::check_operands() {
  const auto [qn, kn, vn] = names;
  type = type_of(q);
  device = check_first(op, qn, q);
  for (auto [name, x] : {std::pair{kn, &k}, {vn, &v}}) check_storage(op, name, *x, device);
  if (is_scaled) {
    check_scaled();
  } else {
    check_floating(op, qn, type);
  }
  int64_t rank = q.dim();
  if (sequences ? rank != 3 : rank < 2) {
    fail_shape(op, qn, q, sequences ? "[tokens, heads, head size]" : "[..., heads, length, head size]");
  }
  const bool paged = sequences && block_table;
  const int64_t before = paged ? 1 : 0;  // dimensions of keys before those that queries have
  if (!is_scaled) check_stored(paged);
  for (auto [name, x] : {std::pair{kn, &k}, {vn, &v}}) {
    if (paged && x->dim() != rank + before) {
      fail_shape(op, name, *x, "[pages, page size, heads, head size] with block_table");
    }
    if (x->dim() != rank + before) fail_shape(op, name, *x, "as many dimensions as ", qn, ", ", q);
  }
  const int64_t rows_at = sequences ? 0 : rank - 2, heads_at = sequences ? 1 : rank - 3;
  const auto qs = q.sizes();
  const int64_t *ks = k.sizes().data() + before, *vs = v.sizes().data() + before;
  sq = qs[rows_at];
  e = qs[rank - 1];
  skv = ks[rows_at];
  ev = vs[rank - 1];
  if (e == 0) fail_shape(op, qn, q, "a head size of 1 or more");
  if (ks[rank - 1] != e) fail_shape(op, kn, k, "the head size of ", qn, ", ", e);
  if (vs[rows_at] != skv) fail_shape(op, vn, v, "the ", paged ? "page size" : "length", " of ", kn, ", ", skv);
  if (paged && v.sizes()[0] != k.sizes()[0]) fail_shape(op, vn, v, "the pages of ", kn, ", ", k.sizes()[0]);
  for (int64_t i = 0; i < rank - 1; ++i) {
    if (i == rows_at) continue;
    bool is_heads = i == heads_at;
    if (vs[i] != ks[i]) fail_shape(op, vn, v, "the batch and head dimensions of ", kn, ", ", k);
    if (is_heads && enable_gqa) {
      if (ks[i] == 0 ? qs[i] != 0 : qs[i] % ks[i] != 0) {
        fail_shape(op, kn, k, "a number of heads that divides that of ", qn, ", ", qs[i]);
      }
    } else if (ks[i] != qs[i]) {
      fail_shape(op, kn, k, "the batch and head dimensions of ", qn, ", ", q, is_heads ? " (or enable_gqa=True)" : "");
    }
    if (is_heads) {
      heads = qs[i];
      kv_heads = ks[i];
    } else {
      batch *= qs[i];
    }
  }
}

// All of one type of 8 bits; the results are of one of 16.
void Attention::check_scaled() {
  stored = type;
  check_type(op, names.q, stored, {ScalarType::Float8_e4m3fn});
  for (auto [name, x] : {std::pair{names.k, &k}, {names.v, &v}}) check_type(op, name, type_of(*x), {stored}, names.q);
  type = out_dtype.value_or(ScalarType::BFloat16);
  check_type(op, "out_dtype", type, {ScalarType::BFloat16, ScalarType::Half});
}

void Attention::check_scales() const {
  Sizes of_keys = head_sizes();
  if (!of_keys.empty()) of_keys.back() = kv_heads;
  const Sizes of_queries = head_sizes();
  for (auto [name, x, sizes] : {std::tuple{"scale_q", &scale_q, &of_queries},
                                {"scale_k", &scale_k, &of_keys},
                                {"scale_v", &scale_v, &of_keys}}) {
    if (*x) check_descale(op, name, **x, *sizes, device);
  }
}

// Keys and values are of the queries' type, or in pages of 8 bits beside queries of 16.
void Attention::check_stored(bool paged) {
  stored = type_of(k);
  const bool is_narrow = stored == ScalarType::Float8_e4m3fn;
  const bool may_be_narrow = paged && (type == ScalarType::Half || type == ScalarType::BFloat16);
  if (is_narrow && paged && !may_be_narrow) {
    fail_dtype(op, names.q, type, "float16 or bfloat16 beside pages of ", stored);
  }
  if (stored != type && !(is_narrow && paged)) {
    const char* elsewhere = is_narrow && sequences ? " (in pages, with block_table, it may be)"
                            : may_be_narrow        ? ", or float8_e4m3fn"
                                                   : "";
    fail_dtype(op, names.k, stored, type, ", as ", names.q, " has", elsewhere);
  }
  check_type(op, names.v, type_of(v), {stored}, is_narrow ? names.k : names.q);
}

void check_descale(const char* op, const char* name, const Tensor& x, const Sizes& sizes, const Device& device) {
  check_tensor(op, name, x, device, {ScalarType::Float});
  check_matrix(op, name, x, sizes);
}

void check_descale_of_pages(const char* op, const char* name, const OptTensor& x, const Sizes& sizes,
                            const Device& device, const char* pages, ScalarType stored, ScalarType type) {
  if (!x) return;
  if (stored == type) {
    fail_type(op, name, "is given beside ", pages, " of ", stored, "; takes None, but of pages of float8_e4m3fn");
  }
  check_descale(op, name, *x, sizes, device);
}

void check_block_table(const char* op, const Tensor& x, const Device& device, int64_t count, const char* starts) {
  check_tensor(op, "block_table", x, device, {ScalarType::Int});
  if (x.dim() != 2 || x.sizes()[0] != count) {
    fail_shape(op, "block_table", x, "[", count, ", pages of a sequence], as ", starts, " has ", count + 1);
  }
}

// What their numbers are is asked where they are multiplied: on a GPU nobody waits for them.
void Attention::check_sequences() {
  Sequences& of = *sequences;
  if (!block_table) {
    for (auto [name, missing, taken] :
         {std::tuple{"cu_seq_k", !cu_seq_k, "a tensor"}, {"max_k", !max_k, "a whole number"}}) {
      if (missing) fail_type(op, name, "is None; takes ", taken, ", or a block_table beside it");
    }
  }
  of.count = -1;
  for (auto [name, x, more] : {std::tuple{"cu_seq_q", &*cu_seq_q, 1},
                               {"cu_seq_k", cu_seq_k ? &*cu_seq_k : nullptr, 1},
                               {"seqused_k", seqused_k ? &*seqused_k : nullptr, 0}}) {
    if (x == nullptr) continue;
    check_tensor(op, name, *x, device, {ScalarType::Int, ScalarType::Long});
    if (x->dim() != 1 || x->numel() < more) fail_shape(op, name, *x, "one dimension", more ? ", of 1 or more" : "");
    if (of.count >= 0 && x->numel() != of.count + more) {
      fail_shape(op, name, *x, "[", of.count + more, "], as cu_seq_q has ", of.count + 1);
    }
    of.count = x->numel() - more;
  }
  if (block_table) check_pages();
  for (auto [name, x] : {std::pair{"k_descale", &k_descale}, {"v_descale", &v_descale}}) {
    check_descale_of_pages(op, name, *x, {of.count, kv_heads}, device, names.k, stored, type);
  }
  const int64_t keys = block_table ? block_table->sizes()[1] * of.page_size : skv;
  of.longest_k = max_k.value_or(keys);
  for (auto [name, most] : {std::pair{"max_q", max_q}, {"max_k", of.longest_k}}) {
    if (most < 0) fail_number(op, name, most, "0 or more");
  }
  of.tokens_q = std::exchange(sq, std::min(max_q, sq));
  of.tokens_k = keys;
  skv = block_table && of.pages == 0 ? 0 : std::min(of.longest_k, keys);
  batch = of.count;
  const int64_t rows_at = block_table ? 1 : 0;
  q = aten::transpose(q, 0, 1);
  for (Tensor* x : {&k, &v}) *x = aten::transpose(*x, rows_at, rows_at + 1);
}

void Attention::check_pages() {
  Sequences& of = *sequences;
  constexpr int64_t kStep = 16;  // keys whose page kernels look up together
  of.pages = k.sizes()[0];
  of.page_size = k.sizes()[1];
  if (of.page_size == 0 || of.page_size % kStep != 0) {
    fail_value(op, names.k, "has pages of ", of.page_size, " keys; takes a multiple of ", kStep);
  }
  check_block_table(op, *block_table, device, of.count, "cu_seq_q");
  if (!seqused_k) fail_type(op, "seqused_k", "is None; takes a tensor beside block_table, of each sequence's keys");
}

void Attention::check() {
  check_operands();
  if (!heads_together) heads_together = has_heads_together(q);
  if (is_scaled) check_scales();
  if (sequences) check_sequences();
  if (is_causal < kNotCausal || is_causal > kBottomRight) {
    fail_number(op, "is_causal", is_causal, "0 (no), 1 (top-left) or 2 (bottom-right)");
  }
  if (mask) {
    check_storage(op, "mask", *mask, device);
    if (is_causal != kNotCausal) fail_value(op, "is_causal", "is set together with mask; takes one of the two");
    check_type(op, "mask", type_of(*mask), {ScalarType::Bool, ScalarType::Float, type}, "q");
    Sizes target = sizes_of(q);
    target.back() = skv;
    check_matrix(op, "mask", *mask, target);
  }
  if (scale && !std::isfinite(*scale)) fail_number(op, "scale", *scale, "a finite number");
  if (scale) check_factor(op, "scale", *scale, type);
  factor = scale ? *scale : 1.0 / std::sqrt(static_cast<double>(e));
  check_window();
  if (sinks) check_of_heads("sinks", *sinks);
  if (alibi_slopes) check_of_heads("alibi_slopes", *alibi_slopes);
  constexpr double kLargestCap = 1e30;  // as multiples of larger ones scores are numbers that float32 has not
  if (!(softcap >= 0 && softcap <= kLargestCap)) {
    fail_value(op, "softcap", "is ", text_of(softcap), "; takes 0 (none) or a positive number up to 1e30");
  }
  check_dropout();
  check_functions();
  check_blocks();
  constexpr double kSteepest = 1e30;
  if (softcap > 0) steepness = std::clamp(factor / softcap, -kSteepest, kSteepest);
}

void Attention::check_gradients(const Tensor& g_out) const {
  const ScalarType number = accumulator(type);
  Sizes of_out = sizes_of(q);
  of_out.pop_back();
  Sizes of_lse = of_out;
  if (sequences) std::swap(of_out[0], of_out[1]);
  of_out.push_back(ev);
  for (auto [name, x, of, taken] : {std::tuple{"out", &*out, type, &of_out},
                                    {"g_out", &g_out, type, &of_out},
                                    {"lse", &*lse, number, &of_lse},
                                    {"g_lse", g_lse ? &*g_lse : nullptr, number, &of_lse}}) {
    if (x == nullptr) continue;
    check_tensor(op, name, *x, device, {of});
    if (sizes_of(*x) != *taken) fail_shape(op, name, *x, *taken);
  }
}

Sizes Attention::head_sizes() const {
  auto sizes = q.sizes();
  return Sizes(sizes.data(), sizes.data() + q.dim() - 2);
}

// A window's sizes count from the key at which a query stands; a causal mask is one that ends there. Bounds that hide
// nothing are none, but for the first keys of rows that are not to know how many keys others have.
void Attention::check_window() {
  if (window_left < -1 || window_right < -1) {
    fail_value(op, sequences ? "window_size" : "window", "is (", window_left, ", ", window_right,
               "); takes two sizes of 0 or more, or -1 for no bound");
  }
  constexpr int64_t kFar = int64_t{1} << 40;
  if (sequences) {  // of any lengths up to the longest
    if (window_right >= 0 && window_right < sq - 1) up_to = window_right;
    const int64_t hides_none = std::max<int64_t>(skv - 1, 0);
    if (window_left >= 0 && (window_left < hides_none || is_batch_invariant()))
      from = -std::min(window_left, hides_none);
    return;
  }
  diagonal = is_causal == kTopLeft ? 0 : skv - sq;
  if (is_causal != kNotCausal) {
    up_to = diagonal;
  } else if (window_right >= 0 && diagonal + std::min(window_right, kFar) < skv - 1) {
    up_to = diagonal + window_right;
  }
  const int64_t first = diagonal - std::min(window_left, kFar), hides_none = 1 - sq;
  if (window_left >= 0 && (first > hides_none || is_batch_invariant())) from = std::max(first, hides_none);
}

void Attention::check_dropout() {
  if (!(dropout_p >= 0 && dropout_p < 1)) fail_number(op, "dropout_p", dropout_p, "0 (none) up to, but not, 1");
  if (dropout_p == 0) return;
  if (!dropout_seed) fail_type(op, "dropout_seed", "is None; takes a tensor of one number beside dropout_p");
  check_tensor(op, "dropout_seed", *dropout_seed, device, {ScalarType::Long});
  if (dropout_seed->numel() != 1) fail_shape(op, "dropout_seed", *dropout_seed, "one element");
}

constexpr double kNumbers = 4294967296.0;  // of 32 bits
unsigned Attention::kept_below() const {
  return static_cast<unsigned>(std::clamp(std::nearbyint((1 - dropout_p) * kNumbers), 1.0, kNumbers - 1));
}
double Attention::kept_factor() const { return kNumbers / kept_below(); }

void Attention::check_of_heads(const char* name, const Tensor& x) const {
  check_tensor(op, name, x, device, {ScalarType::Float, type}, names.q);
  check_matrix(op, name, x, head_sizes());
}

}  // namespace wmma_ops
