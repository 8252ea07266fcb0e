// What the kernel of two products is given. Included by the host library as well, so it uses nothing but the language.
#pragma once

#include <wmma/tile/arguments.hpp>

namespace wmma {

// D0 = act(alpha0·A·B0 + bias0) [· (A·gate)], rounded to A's type. A is M×K, B0 and the gate are K×H, bias0 is read as
// an M×H matrix. `last` is D1 = alpha·D0·B + beta·C + bias: its B is H×N, its k is H, and its A is D0, which lies
// nowhere.
struct GemmGemmArguments {
  GemmArguments last;
  GemmOperand a, b0, gate, bias0;
  long long k;
  double alpha0;
};

// For the kernel whose tiles sm_90's copy engine brings and, where it can, takes away.
struct MappedGemmGemmArguments : GemmGemmArguments {
  TileMap a_map, b0_map, gate_map, b1_map, d_map;
};

}  // namespace wmma
