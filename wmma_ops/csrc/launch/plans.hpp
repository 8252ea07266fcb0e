// How each problem is launched: asked of the Python planner once, then remembered.
#pragma once

#include <algorithm>
#include <array>
#include <initializer_list>
#include <stdexcept>

#include "launch/mode.hpp"

namespace wmma_ops {

// What a problem's numbers describe; wmma_ops/runtime/launching.py has the same.
enum ProblemKind : int64_t { kGemmProblem = 0, kGemmGemmProblem = 1, kAttentionProblem = 2 };

// Its kind, then the fields of that kind's class in wmma_ops/plan, in their order. Equal problems have equal kernels.
class ProblemKey {
 public:
  ProblemKey() = default;
  ProblemKey(std::initializer_list<int64_t> values) : size_(values.size()) {
    if (size_ > values_.size()) throw std::logic_error("a problem has more fields than a key");
    std::copy(values.begin(), values.end(), values_.begin());
  }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  bool operator==(const ProblemKey& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  std::array<int64_t, 48> values_;
  size_t size_ = 0;
};

struct PlannedLaunch {
  int64_t function;
  unsigned grid[2];
  unsigned block, shared;
  bool early;  // before the launch before it is done: it waits by itself
};

constexpr int kPlanNumbers = 9;
constexpr int kMostLaunches = 4;

struct Plan {
  int64_t workspace;              // bytes
  int64_t numbers[kPlanNumbers];  // what the plan decides of the kernels' arguments
  int launch_count;
  PlannedLaunch launches[kMostLaunches];
};

Plan plan_of(const char* op, const ProblemKey& problem, bool remembered);

// The Python half cannot raise through the C interface without losing its words, so it answers −1 and their bytes.
void fail_if_told(const char* op, const std::vector<int64_t>& answer);

}  // namespace wmma_ops
