// An op's operands in the form that kernels take: matrices with strides, in as few batch dimensions as their memory
// allows.
#pragma once

#include <wmma/tile/gemm_arguments.hpp>

#include "plans.hpp"

namespace wmma_ops {

constexpr int kMostDims = 64;  // torch's own limit

int64_t element_code(ScalarType type);  // as the planner knows it
int64_t element_size(int64_t code);     // bytes

// One operand: where it starts and how far apart its elements are. Strides of dimensions of one element are 0.
struct View {
  bool present = false;
  bool is_read = true;    // otherwise its strides decide nothing
  bool has_rows = false;  // those of the result
  const char* data = nullptr;
  int64_t code = wmma::kNoElement, size = 0;  // of an element
  int64_t row = 0, column = 0;
  int64_t batch[kMostDims];

  enum Core { kMatrix, kAlongColumns, kAlongRows };  // which dimensions of the matrix its last ones are
  void fill(const Tensor& x, ScalarType type, Core core, int64_t rank, const void* memory);
};

// The batch, from its innermost dimension out: joined with the rows where all of them share what has no rows and lie
// evenly spaced, else with the dimension inside it where every operand's strides allow, else kept. Changes the views'
// strides to those of the dimensions kept, outermost first, and `m` to the rows with those that joined.
struct Batch {
  Batch() = default;
  Batch(const Sizes& sizes, View* views, int count, int64_t& m);

  int dims = 0;
  int64_t sizes[kMostDims];

  // What there is beside kBatchDims dimensions, outermost: the host goes through it, one launch an index.
  int outer_dims() const { return dims > wmma::kBatchDims ? dims - wmma::kBatchDims : 0; }
  int64_t outer_count() const;
  void start(int64_t index, const View* views, wmma::GemmOperand* const* operands, int count) const;

  int64_t fill(long long* batch_sizes) const;  // the kernel's part; their product
  wmma::GemmOperand operand_of(const View& v) const;
  // As many neighbours as are aligned in memory: `along` is the stride between them, `other` the one across.
  int64_t vec_of(const View& v, int64_t along, int64_t extent, int64_t other) const;
};

// Whether 512 neighbouring rows or columns span more than offsets of 32 bits reach.
inline bool is_wide(const View& x) { return 512 * (x.row + x.column) * x.size >= int64_t{1} << 31; }

// Which way an operand's memory runs, and how many elements are aligned neighbours there.
struct Direction {
  bool across;
  int64_t vec;
};

// `k` and `outer` are its sizes, `along` and `across` the strides along K and across it. Of two that serve alike, the
// preferred.
Direction direction_of(const Batch& batch, const View& v, int64_t along, int64_t across, int64_t k, int64_t outer,
                       bool prefers_across);

}  // namespace wmma_ops
