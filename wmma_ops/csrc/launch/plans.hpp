// How each problem is launched: asked of the Python planner once, then remembered.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "launch/border.hpp"
#include "launch/mode.hpp"

namespace wmma_ops {

// Its kind, then its fields. Equal problems have equal kernels.
class ProblemKey {
 public:
  ProblemKey() = default;
  template <class Problem>
  explicit ProblemKey(const Problem& problem) : size_(1 + sizeof(Problem) / sizeof(int64_t)) {
    static_assert(1 + sizeof(Problem) / sizeof(int64_t) <= kMostFields, "a problem has more fields than a key");
    values_[0] = Problem::kKind;
    std::memcpy(values_.data() + 1, &problem, sizeof problem);
  }
  const int64_t* begin() const { return values_.data(); }
  const int64_t* end() const { return values_.data() + size_; }
  bool operator==(const ProblemKey& other) const { return std::equal(begin(), end(), other.begin(), other.end()); }

 private:
  static constexpr size_t kMostFields = 48;
  std::array<int64_t, kMostFields> values_;
  size_t size_ = 0;
};

struct PlannedLaunch {
  int64_t function;
  unsigned grid[2];
  unsigned block, shared;
  bool early;        // before the launch before it is done: it waits by itself
  bool cooperative;  // all its blocks are on the device at once
};

constexpr int kMostLaunches = 6;

struct Plan {
  int64_t workspace;  // bytes
  int launch_count;
  PlannedLaunch launches[kMostLaunches];

  // What the plan decides of the kernels' arguments, as the numbers of its kind of problem.
  template <class Numbers>
  Numbers numbers() const {
    static_assert(sizeof(Numbers) <= sizeof numbers_);
    Numbers found;
    std::memcpy(&found, numbers_, sizeof found);
    return found;
  }

  static constexpr int kMostNumbers = 25;
  int64_t numbers_[kMostNumbers];
};

Plan plan_of(const char* op, const ProblemKey& problem, bool remembered);

// The Python half cannot raise through the C interface without losing its words, so it answers −1 and their bytes; −2
// where the exception itself is to arrive, which Python then holds for this thread.
void check_answer(const char* op, const std::vector<int64_t>& answer);

}  // namespace wmma_ops
