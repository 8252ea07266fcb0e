#include "launch/plans.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>

namespace wmma_ops {

namespace {

struct Hash {
  size_t operator()(const ProblemKey& key) const {
    uint64_t hash = 0x9e3779b97f4a7c15u;
    for (int64_t value : key) {
      hash = (hash ^ static_cast<uint64_t>(value)) * 0xff51afd7ed558ccdu;
      hash ^= hash >> 32;
    }
    return hash;
  }
};

constexpr size_t kMostPlans = 65536;
std::shared_mutex mutex;

std::unordered_map<ProblemKey, Plan, Hash>& table() {
  static auto* const plans = new std::unordered_map<ProblemKey, Plan, Hash>;  // never destroyed: threads may outlive us
  return *plans;
}

Plan asked(const char* op, const ProblemKey& problem) {
  auto answer = aten::call<std::vector<int64_t>>("wmma::_plan", "", Sizes(problem.begin(), problem.end()));
  fail_if_told(op, answer);
  constexpr size_t kHeader = 1 + kPlanNumbers, kEach = 6;
  if (answer.size() < kHeader || (answer.size() - kHeader) % kEach != 0 ||
      (answer.size() - kHeader) / kEach > kMostLaunches) {
    throw std::runtime_error(std::string("wmma.") + op + ": the planner's answer is not one of launches");
  }
  auto narrow = [](int64_t value) { return static_cast<unsigned>(value); };
  Plan plan{};
  plan.workspace = answer[0];
  std::copy_n(answer.begin() + 1, kPlanNumbers, plan.numbers);
  for (size_t at = kHeader; at < answer.size(); at += kEach) {
    const int64_t* x = answer.data() + at;
    plan.launches[plan.launch_count++] = {x[0], {narrow(x[1]), narrow(x[2])}, narrow(x[3]), narrow(x[4]), x[5] != 0};
  }
  return plan;
}

}  // namespace

Plan plan_of(const char* op, const ProblemKey& problem, bool remembered) {
  if (!remembered) return asked(op, problem);
  {
    std::shared_lock lock(mutex);
    auto found = table().find(problem);
    if (found != table().end()) return found->second;
  }
  // Planning compiles, for a second or more: others go on meanwhile, and one who asks the same gets the same answer.
  Plan plan = asked(op, problem);
  std::unique_lock lock(mutex);
  if (table().size() >= kMostPlans) table().clear();
  table().emplace(problem, plan);
  return plan;
}

void fail_if_told(const char* op, const std::vector<int64_t>& answer) {
  if (answer.empty() || answer[0] != -1) return;
  std::string text(answer.begin() + 1, answer.end());
  throw std::runtime_error(std::string("wmma.") + op + ": " + text);
}

namespace {

// Forgets every plan, as after another driver was chosen.
void forget_plans() {
  std::unique_lock lock(mutex);
  table().clear();
}

void count_mode(int64_t change) { special_modes.fetch_add(change); }

int64_t plan_count() {
  std::shared_lock lock(mutex);
  return static_cast<int64_t>(table().size());
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(wmma, m) {
  // Implemented in Python, by wmma_ops/runtime/launching.py.
  m.def("_plan(int[] problem) -> int[]");
  m.def("_mode(bool gpu) -> int");
  m.def("_precision() -> int");
  m.def(
      "_emulate(int function, int[] grid, int block, int shared, int arguments, int size, Tensor[] tensors, "
      "int[] names) -> int[]");
  // Implemented here, for it.
  m.def("_count_mode(int change) -> ()");
  m.def("_forget_plans() -> ()");
  m.def("_plan_count() -> int");
}

STABLE_TORCH_LIBRARY_IMPL(wmma, CompositeExplicitAutograd, m) {
  m.impl("_count_mode", TORCH_BOX(&count_mode));
  m.impl("_forget_plans", TORCH_BOX(&forget_plans));
  m.impl("_plan_count", TORCH_BOX(&plan_count));
}

}  // namespace wmma_ops
