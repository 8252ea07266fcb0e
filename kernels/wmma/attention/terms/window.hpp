// A window: a query sees no key before a place of its own.
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

template <class Others>
struct WindowRules : Others {
  using Arguments = RuledAttentionArguments;
  static constexpr bool kWindowed = true;
};

// Which keys a query sees, and which queries see a key: both from one to another. kCausal: it sees none beyond its
// place and p.shift.
template <bool kCausal, class Rules>
struct Sight {
  using Arguments = Choose<Rules::kWindowed, RuledAttentionArguments, AttentionArguments>;
  static WMMA_DEVICE int first_key(const Arguments& p, int64_t query, int low, int high) {
    if constexpr (Rules::kWindowed) {
      return clamped(query + p.rules.from, low, high);
    } else {
      return low;
    }
  }
  static WMMA_DEVICE int keys_end(const Arguments& p, int64_t query, int low, int high) {
    return kCausal ? clamped(query + p.shift + 1, low, high) : high;
  }
  static WMMA_DEVICE int first_query(const Arguments& p, int64_t key, int low, int high) {
    return kCausal ? clamped(key - p.shift, low, high) : low;
  }
  static WMMA_DEVICE int queries_end(const Arguments& p, int64_t key, int low, int high) {
    if constexpr (Rules::kWindowed) {
      return clamped(key - p.rules.from + 1, low, high);
    } else {
      return high;
    }
  }
  static WMMA_DEVICE bool sees(const Arguments& p, int query, int key) {
    bool inside = true;
    if constexpr (kCausal) inside = key <= query + p.shift;
    if constexpr (Rules::kWindowed) inside = inside && key >= query + p.rules.from;
    return inside;
  }
  // Whether not all of these queries see all of these keys.
  static WMMA_DEVICE bool bounds(const Arguments& p, int64_t first_query, int64_t last_query, int64_t first_key,
                                 int64_t last_key) {
    bool crossed = false;
    if constexpr (kCausal) crossed = last_key > first_query + p.shift;
    if constexpr (Rules::kWindowed) crossed = crossed || first_key < last_query + p.rules.from;
    return crossed;
  }
};

}  // namespace wmma
