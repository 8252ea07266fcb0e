#include "launch/plans.hpp"

#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <wmma/elements.hpp>

#include "torch_internals.hpp"

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
  check_answer(op, answer);
  // The workspace, how many numbers, those, and then the launches.
  constexpr size_t kHeader = 2, kEach = sizeof(border::Launch) / sizeof(int64_t);
  const size_t numbers = answer.size() < kHeader ? 0 : static_cast<size_t>(answer[1]);
  const size_t rest = answer.size() - kHeader - numbers;
  if (answer.size() < kHeader || numbers > Plan::kMostNumbers || answer.size() < kHeader + numbers ||
      rest % kEach != 0 || rest / kEach > kMostLaunches) {
    throw std::runtime_error(std::string("wmma.") + op + ": the planner's answer is not one of launches");
  }
  auto narrow = [](int64_t value) { return static_cast<unsigned>(value); };
  Plan plan{};
  plan.workspace = answer[0];
  std::copy_n(answer.begin() + kHeader, numbers, plan.numbers_);
  for (size_t at = kHeader + numbers; at < answer.size(); at += kEach) {
    border::Launch x;
    std::memcpy(static_cast<void*>(&x), answer.data() + at, sizeof x);
    plan.launches[plan.launch_count++] = {x.function,      {narrow(x.grid_x), narrow(x.grid_y)},
                                          narrow(x.block), narrow(x.shared),
                                          x.early != 0,    x.cooperative != 0};
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

void check_answer(const char* op, const std::vector<int64_t>& answer) {
  if (answer.empty() || answer[0] > -1) return;
  const std::string text = std::string("wmma.") + op + ": " + std::string(answer.begin() + 1, answer.end());
  if (answer[0] == -2) {
    torch_internals::raise_in_python(aten::call("wmma::_raising", "", Sizes(text.begin(), text.end())));
  }
  throw std::runtime_error(text);
}

namespace {

// Forgets every plan, as after another driver was chosen.
void forget_plans() {
  std::unique_lock lock(mutex);
  table().clear();
}

void count_mode(int64_t change) {
  const char* const op = "_count_mode";
  if (change != 1 && change != -1) fail_number(op, "change", change, "1 or -1");
  if (special_modes.fetch_add(change) + change >= 0) return;
  special_modes.fetch_add(1);
  fail_value(op, "change", "is -1 while no mode is on; takes 1");
}

// The text of border.hpp, and a line for each element type: its code, name and bits, and what products of it give. As
// bytes.
std::vector<int64_t> border_text() {
  std::string text = border::kText;
  auto row = [&](int64_t code, ScalarType type, const char* name, int64_t bits) {
    text += "Element " + std::to_string(code) + " " + name + " " + std::to_string(bits);
    for (ScalarType output : outputs_of(type)) text += std::string(" ") + name_of(output);
    text += "\n";
  };
#define WMMA_ROW(code, torch, name, bits) row(wmma::code, ScalarType::torch, #name, bits);
  WMMA_ELEMENTS(WMMA_ROW)
#undef WMMA_ROW
  return {text.begin(), text.end()};
}

int64_t plan_count() {
  std::shared_lock lock(mutex);
  return static_cast<int64_t>(table().size());
}

}  // namespace

STABLE_TORCH_LIBRARY_FRAGMENT(wmma, m) {
  // Implemented in Python, by wmma_ops/runtime/callbacks.py.
  m.def("_plan(int[] problem) -> int[]");
  m.def("_mode(bool gpu) -> int");
  m.def("_precision() -> int");
  m.def("_stream(int device) -> int");
  m.def("_raising(int[] text) -> Tensor");
  m.def(
      "_emulate(int function, int[] grid, int block, int shared, Tensor arguments, Tensor[] tensors, int[] names) -> "
      "int[]");
  // Implemented here, for it.
  m.def("_count_mode(int change) -> ()");
  m.def("_forget_plans() -> ()");
  m.def("_plan_count() -> int");
  m.def("_border() -> int[]");
}

STABLE_TORCH_LIBRARY_IMPL(wmma, CompositeExplicitAutograd, m) {
  m.impl("_count_mode", TORCH_BOX(&count_mode));
  m.impl("_forget_plans", TORCH_BOX(&forget_plans));
  m.impl("_plan_count", TORCH_BOX(&plan_count));
  m.impl("_border", TORCH_BOX(&border_text));
}

}  // namespace wmma_ops
