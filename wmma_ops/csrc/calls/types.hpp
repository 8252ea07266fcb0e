// Which element types an op takes, what it gives for them, and how messages call them.
#pragma once

#include "aten.hpp"

namespace wmma_ops {

ScalarType type_of(const Tensor& x);   // Undefined where the stable interface has no name for it
const char* name_of(ScalarType type);  // "float16", as torch prints it without its prefix
bool is_fp8(ScalarType type);
inline bool is_integer(ScalarType type) { return type == ScalarType::Char; }
// What products and sums of floating operands are computed in.
inline ScalarType accumulator(ScalarType type) { return type == ScalarType::Double ? type : ScalarType::Float; }

// The outputs that products of `operand` elements may have, the default first; empty where there is no such product.
const std::vector<ScalarType>& outputs_of(ScalarType operand);

// True where an element of B may meet one of A: the same type, or two fp8 types of one family (OCP or FNUZ).
bool may_meet(ScalarType a, ScalarType b);

// The types that C, bias, scales and the multiplier may have beside operands of this type.
const std::vector<ScalarType>& beside(ScalarType operand);

std::string list(const std::vector<ScalarType>& types);  // "float16 or float32", each once

}  // namespace wmma_ops
