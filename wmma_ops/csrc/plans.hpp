// How each problem is launched: asked of the Python planner once, then remembered.
#pragma once

#include <array>

#include "mode.hpp"

namespace wmma_ops {

// The fields of GemmProblem (wmma_ops/plan/problem.py), in its order.
constexpr int kProblemFields = 26;
using ProblemKey = std::array<int64_t, kProblemFields>;

struct PlannedLaunch {
  int64_t function;
  unsigned grid[2];
  unsigned block, shared;
};

struct Plan {
  int64_t workspace;  // bytes
  unsigned splits;
  int64_t k_split;
  unsigned tiles_m, tiles_n;
  int launch_count;
  PlannedLaunch launches[2];
};

Plan plan_of(const char* op, const ProblemKey& problem, bool remembered);

// The Python half cannot raise through the C interface without losing its words, so it answers −1 and their bytes.
void fail_if_told(const char* op, const std::vector<int64_t>& answer);

}  // namespace wmma_ops
