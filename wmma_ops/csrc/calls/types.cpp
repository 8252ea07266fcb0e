#include "calls/types.hpp"

#include <algorithm>
#include <wmma/elements.hpp>

namespace wmma_ops {

using S = ScalarType;

// Types of torch's that no op takes: messages name them.
// clang-format off
#define WMMA_OTHER_TYPES(X)          \
  X(-1, Byte, uint8, 8)              \
  X(-1, Short, int16, 16)            \
  X(-1, UInt16, uint16, 16)          \
  X(-1, UInt32, uint32, 32)          \
  X(-1, UInt64, uint64, 64)          \
  X(-1, ComplexHalf, complex32, 32)  \
  X(-1, ComplexFloat, complex64, 64) \
  X(-1, ComplexDouble, complex128, 128)
// clang-format on

ScalarType type_of(const Tensor& x) {
  // The interface's own conversion asks for one type after another, on every call; this asks once a process.
  static const auto table = [] {
    std::array<ScalarType, 64> types;
    types.fill(S::Undefined);
#define WMMA_TYPE(code, torch, name, bits) S::torch,
    for (S type : {WMMA_ELEMENTS(WMMA_TYPE) WMMA_OTHER_TYPES(WMMA_TYPE)}) {
#undef WMMA_TYPE
      types.at(aten::shim_dtype(type)) = type;
    }
    return types;
  }();
  int32_t type;
  aten::ok(aoti_torch_get_dtype(x.get(), &type), "dtype");
  return type >= 0 && type < static_cast<int32_t>(table.size()) ? table[type] : S::Undefined;
}

const char* name_of(ScalarType type) {
  switch (type) {
#define WMMA_NAME(code, torch, name, bits) \
  case S::torch:                           \
    return #name;
    WMMA_ELEMENTS(WMMA_NAME)
    WMMA_OTHER_TYPES(WMMA_NAME)
#undef WMMA_NAME
    default:
      return "an unsupported dtype";
  }
}

namespace {
bool is_ocp(ScalarType type) { return type == S::Float8_e4m3fn || type == S::Float8_e5m2; }
bool is_fnuz(ScalarType type) { return type == S::Float8_e4m3fnuz || type == S::Float8_e5m2fnuz; }
}  // namespace

bool is_fp8(ScalarType type) { return is_ocp(type) || is_fnuz(type); }

const std::vector<ScalarType>& outputs_of(ScalarType operand) {
  static const std::vector<ScalarType> none, half{S::Half, S::Float}, bfloat{S::BFloat16, S::Float}, single{S::Float},
      twice{S::Double}, integer{S::Int, S::Char, S::Float, S::Half, S::BFloat16}, fp8{S::BFloat16, S::Half, S::Float};
  switch (operand) {
    case S::Half:
      return half;
    case S::BFloat16:
      return bfloat;
    case S::Float:
      return single;
    case S::Double:
      return twice;
    case S::Char:
      return integer;
    default:
      return is_fp8(operand) ? fp8 : none;
  }
}

bool may_meet(ScalarType a, ScalarType b) { return a == b || (is_ocp(a) && is_ocp(b)) || (is_fnuz(a) && is_fnuz(b)); }

const std::vector<ScalarType>& beside(ScalarType operand) {
  static const std::vector<ScalarType> twice{S::Double}, integer{S::Char, S::Int, S::Half, S::BFloat16, S::Float},
      floating{S::Half, S::BFloat16, S::Float};
  return operand == S::Double ? twice : is_integer(operand) ? integer : floating;
}

std::string list(const std::vector<ScalarType>& types) {
  std::vector<ScalarType> once;
  for (ScalarType type : types) {
    if (std::find(once.begin(), once.end(), type) == once.end()) once.push_back(type);
  }
  std::string text;
  for (size_t i = 0; i < once.size(); ++i) {
    if (i > 0) text += i + 1 == once.size() ? " or " : ", ";
    text += name_of(once[i]);
  }
  return text;
}

}  // namespace wmma_ops
