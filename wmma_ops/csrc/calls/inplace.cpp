#include <algorithm>
#include <numeric>
#include <utility>

#include "calls/checks.hpp"

namespace wmma_ops {

namespace {

// A sum of stride·x over all x from 0 to `most`, each with a stride of its own.
struct Term {
  int64_t stride, most;
};
using Terms = std::vector<Term>;

// The lowest address that a tensor's strides reach, and the terms of all others above it, in bytes.
int64_t reach(const Tensor& x, Terms& terms) {
  const int64_t size = static_cast<int64_t>(x.element_size());
  int64_t first = reinterpret_cast<int64_t>(x.const_data_ptr());
  auto sizes = x.sizes(), strides = x.strides();
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1) continue;
    if (strides[i] < 0) first += (sizes[i] - 1) * strides[i] * size;
    terms.push_back({std::abs(strides[i]) * size, sizes[i] - 1});
  }
  return first;
}

int64_t total(const Terms& terms) {
  int64_t sum = 0;
  for (const Term& term : terms) sum += term.stride * term.most;
  return sum;
}

// Whether some x give the terms a given sum. The question is hard in general: where its answer takes too long, yes.
class Sums {
 public:
  explicit Sums(Terms terms) {
    std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
    for (const Term& term : terms) {
      if (term.stride == 0) continue;
      if (!terms_.empty() && terms_.back().stride == term.stride) {
        terms_.back().most += term.most;
      } else {
        terms_.push_back(term);
      }
    }
    rest_.assign(terms_.size() + 1, {0, 0});
    for (size_t i = terms_.size(); i-- > 0;) {
      const Term& term = terms_[i];
      rest_[i] = {rest_[i + 1].reach + term.stride * term.most, std::gcd(rest_[i + 1].step, term.stride)};
    }
  }

  bool can_be(int64_t sum) {
    steps_ = 0;
    return from(0, sum);
  }

 private:
  static constexpr int64_t kMostSteps = 1 << 16;
  struct Rest {
    int64_t reach, step;
  };

  // By the terms from the i-th on.
  bool from(size_t i, int64_t sum) {
    if (sum < 0 || sum > rest_[i].reach) return false;
    if (sum == 0 || ++steps_ > kMostSteps) return true;
    if (sum % rest_[i].step != 0) return false;
    const Term& term = terms_[i];
    const int64_t beyond = sum - rest_[i + 1].reach;
    const int64_t low = beyond > 0 ? (beyond + term.stride - 1) / term.stride : 0;
    for (int64_t x = std::min(term.most, sum / term.stride); x >= low; --x) {
      if (from(i + 1, sum - x * term.stride)) return true;
    }
    return false;
  }

  Terms terms_;             // the largest stride first, each once
  std::vector<Rest> rest_;  // of the terms from there on
  int64_t steps_ = 0;
};

// Whether two elements lie in one place: strides that each go beyond all smaller ones together tell at once that none
// do.
bool overlaps_itself(const Tensor& x) {
  Terms terms;
  reach(x, terms);
  std::sort(terms.begin(), terms.end(), [](const Term& x, const Term& y) { return x.stride > y.stride; });
  int64_t below = total(terms);
  for (size_t i = 0; i < terms.size(); ++i) {
    const Term& term = terms[i];
    if (term.stride == 0) return true;
    below -= term.stride * term.most;
    if (term.stride > below) continue;
    // Two that differ by 1 or more along this dimension, by nothing along those before it, by anything along the rest.
    Terms differences{{term.stride, term.most - 1}};
    for (size_t j = i + 1; j < terms.size(); ++j) differences.push_back({terms[j].stride, 2 * terms[j].most});
    if (Sums(differences).can_be(below - term.stride)) return true;
  }
  return false;
}

// Whether a byte of one is a byte of the other.
bool overlap(const Tensor& x, const Tensor& y) {
  Terms terms, others;
  const int64_t first = reach(x, terms), other = reach(y, others);
  const int64_t size = static_cast<int64_t>(x.element_size()), other_size = static_cast<int64_t>(y.element_size());
  const int64_t last = first + total(terms) + size, other_last = other + total(others) + other_size;  // exclusive
  if (last <= other || other_last <= first) return false;
  // first + Σx + u = other_last − 1 − Σy − w: what counts from the other's end has no sign.
  terms.insert(terms.end(), others.begin(), others.end());
  const bool whole = size == other_size && (other - first) % size == 0;  // elements meet whole or not at all
  if (!whole) {
    terms.push_back({1, size - 1});
    terms.push_back({1, other_size - 1});
  }
  return Sums(std::move(terms)).can_be(other_last - (whole ? other_size : 1) - first);
}

}  // namespace

void check_written(const char* op, const char* name, const Tensor& target) {
  if (target.numel() != 0 && overlaps_itself(target)) {
    fail_value(op, name,
               "has elements that share memory (an expanded tensor?); takes one that does not overlap itself");
  }
}

void check_apart(const char* op, const char* name, const Tensor& target, const char* other_name, const Tensor& other) {
  if (target.numel() != 0 && other.numel() != 0 && overlap(target, other)) {
    fail_value(op, name, "shares memory with ", other_name, "; takes memory of its own (clone one of the two)");
  }
}

}  // namespace wmma_ops
