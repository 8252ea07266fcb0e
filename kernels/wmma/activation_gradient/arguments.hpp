// What the kernels of an activation's gradient are given: filled by the host library, read by the kernels. Included by
// both, so it uses nothing but the language.
#pragma once

namespace wmma {

// Matrices [rows, columns] whose rows lie one after the other; those of g_s and g_u may lie further apart.
struct ActivationGradientArguments {
  const void* g;  // by the activation's result, or by its product with u
  const void* s;  // what the activation was given; of relu its result serves as well, without u
  const void* u;  // what a gate multiplies its activation by
  void* g_s;      // g·act′(s), or g itself; with u g·u·act′(s)
  void* g_u;      // g·act(s)
  void* sums;     // of g_s's columns
  // Of the accumulator's type, [slabs, columns]: the sums of so many rows each, where there are several.
  void* partial;
  long long rows, columns, rows_of_slab, g_s_stride;
  int slabs;
};

}  // namespace wmma
