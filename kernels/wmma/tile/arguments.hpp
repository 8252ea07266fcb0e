// What a GEMM kernel is given: one plain struct, filled by the host library and read by the kernel. Included by both,
// so it uses nothing but the language.
#pragma once

namespace wmma {

constexpr int kBatchDims = 4;

// A matrix in memory, in elements: (i, row, column) stands at Σ i[d]·batch[d] + row·row_stride + column·column_stride.
// A stride of 0 repeats: bias is a matrix whose rows are all the same.
struct GemmOperand {
  const void* data;
  long long row_stride;
  long long column_stride;
  long long batch_strides[kBatchDims];
};

// D = cast(act(alpha·(pro(A)·B + A2·B2)·row_scale·col_scale + beta·C + bias) · multiply), pro(A) = act_a(A·a_scale). A
// is M×K, B is K×N, A2 is M×K2, B2 is K2×N, a_scale is read as an M×K matrix and everything else as an M×N one. The
// second pair may be absent. `aux`, where it is kept, is what the activation is given, of D's type and in its order.
//
// Where the product is a gradient, by act(C) · multiply, D is the one by C and `aux` the one by multiply:
// D = cast(A·B · multiply · act′(C)), aux = cast(A·B · act(C)).
//
// Of a gated product there is D = cast(act(A·B + bias) · (A·gate + gate_bias)) alone: the gate lies as B does, and
// where `aux` is kept, so is the other factor.
struct GemmArguments {
  GemmOperand a, b, c, d, bias, row_scale, col_scale, a_scale, multiply, a2, b2;
  long long m, n, k, k2;
  long long batch_sizes[kBatchDims];  // outermost first; leading ones where there are fewer
  long long batch;                    // their product
  double alpha, beta;
  // Where K is split, sums of the accumulator's type: [splits, batch, tile, row of the tile, column of it], for the
  // tiles from `whole` on; those before it are one block's each. A split's sums are split_stride elements.
  void* partial;
  long long split_stride;
  long long k_split;  // the part of K that one split sums up
  unsigned splits;
  unsigned tiles_m, tiles_n;
  unsigned whole;
  GemmOperand aux, gate, gate_bias, gate_aux;
  // The sums of A's rows, where they are asked for; of `sum_slabs` parts of K each, [sum_slabs, M], of which a tile has
  // those of its column, and of its splits.
  void* row_sums;
  float* row_partial;
  int sum_slabs;
};

// The descriptor of an operand for sm_90's copy engine: written by the driver, for it alone to read.
struct alignas(64) TileMap {
  unsigned long long words[16];
};

// For kernels whose tiles the copy engine brings.
struct MappedGemmArguments : GemmArguments {
  TileMap a_map, b_map, d_map;
};

// The same where what the activation is given is kept.
struct MappedAuxArguments : MappedGemmArguments {
  TileMap aux_map;
};

// The same of a gated product.
struct MappedGatedArguments : MappedAuxArguments {
  TileMap gate_map, gate_aux_map;
};

// With a second pair of operands.
struct MappedPairArguments : MappedGemmArguments {
  TileMap a2_map, b2_map;
};

}  // namespace wmma
