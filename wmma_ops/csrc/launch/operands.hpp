// An op's operands in the form that kernels take: matrices with strides, in as few batch dimensions as their memory
// allows.
#pragma once

#include <algorithm>
#include <wmma/attention/arguments.hpp>
#include <wmma/elements.hpp>
#include <wmma/tile/arguments.hpp>

#include "launch/launch.hpp"

namespace wmma_ops {

constexpr int kMostDims = 64;  // torch's own limit

int64_t element_code(ScalarType type);  // as the planner knows it
int64_t bits_of(int64_t code);          // of an element in memory
// Of so many elements: of those of less than a byte, whole bytes of them.
int64_t bytes_of(int64_t code, int64_t count);

// Neighbours of so many bytes that are aligned wherever a row starts: `bits` are all of addresses and strides, in
// bytes.
inline int64_t aligned_elements(uint64_t bits, int64_t bytes) {
  return std::max<int64_t>(static_cast<int64_t>(std::min<uint64_t>(bits & -bits, 16)) / bytes, 1);
}

inline int64_t power_of_two_from(int64_t count) {
  int64_t power = 1;
  while (power < count) power *= 2;
  return power;
}

// As many elements of so many bytes, or a few more, so that rows of them start at a chunk.
inline int64_t aligned_width(int64_t columns, int64_t bytes) {
  const int64_t chunk = std::max<int64_t>(16 / bytes, 1);
  return (columns + chunk - 1) / chunk * chunk;
}

// Of what broadcasts to sequences and heads.
wmma::DescaleOperand descale_of(const Tensor& x);

// One operand: where it starts and how far apart its elements are. Strides of dimensions of one element are 0.
struct View {
  bool present = false;
  bool is_read = true;    // otherwise its strides decide nothing
  bool has_rows = false;  // those of the result
  const char* data = nullptr;
  int64_t code = wmma::kNoElement, bits = 0;  // of an element
  int64_t row = 0, column = 0;
  int64_t head = 0;  // attention's: between heads
  int64_t batch[kMostDims];

  enum Core { kMatrix, kAlongColumns, kAlongRows, kOfBatch };  // which dimensions of the matrix its last ones are
  void fill(const Tensor& x, ScalarType type, Core core, int64_t rank, const void* memory);
};

// The batch, from its innermost dimension out: joined with the rows `m`, if they are given, where all operands share
// what has no rows and lie evenly spaced, else with the dimension inside it where every operand's strides allow, else
// kept. Changes the views' strides to those of the dimensions kept, outermost first, and `m` to the rows with those
// that joined.
struct Batch {
  Batch() = default;
  Batch(const Sizes& sizes, View* views, int count, int kernel_dims, int64_t* m = nullptr);

  int dims = 0;
  int kernel_dims = 0;  // that a kernel takes
  int64_t sizes[kMostDims];

  // What there is beside them, outermost: the host goes through it, one launch an index.
  int outer_dims() const { return dims > kernel_dims ? dims - kernel_dims : 0; }
  int64_t outer_count() const;
  int64_t offset(int64_t index, const View& v) const;  // in bytes

  int64_t inner_count() const;
  int64_t fill(long long* batch_sizes) const;  // the kernel's part, for GemmArguments; their product
  // As many neighbours as are aligned in memory: `along` is the stride between them, `other` the one across.
  int64_t vec_of(const View& v, int64_t along, int64_t extent, int64_t other) const;

  // An operand as kernels are given it.
  void place(const View& v, wmma::GemmOperand& x) const;
  void place(const View& v, wmma::AttentionOperand& x) const;
};

// Whether 512 neighbouring rows or columns span more than offsets of 32 bits reach.
inline bool is_wide(const View& x) { return 512 * (x.row + x.column) * x.bits / 8 >= int64_t{1} << 31; }

// Which way an operand's memory runs, and how many elements are aligned neighbours there.
struct Direction {
  bool across;
  int64_t vec;
};

// `k` and `outer` are its sizes, `along` and `across` the strides along K and across it. Of two that serve alike, the
// preferred.
Direction direction_of(const Batch& batch, const View& v, int64_t along, int64_t across, int64_t k, int64_t outer,
                       bool prefers_across);

// A dimension of a matrix, in elements.
struct Extent {
  int64_t size, stride;
};

// An operand as sm_90's copy engine has it described, `lines` of its memory at a time: along K, or, where they are less
// than 0, across it. Where the batch repeats a matrix, there is one.
MappedMatrix mapped(const Batch& batch, const wmma::GemmOperand& x, Extent outer, Extent k, int64_t code,
                    int64_t lines);

// What the host has of a kernel's call: the operands in the order of `Problem`'s own enumeration, the batch that they
// share, the tensors behind them, and the struct that the kernel is given. Problem::pointers tells where in the struct
// each operand stands.
template <class Problem, class Arguments, class Operand, int kCount>
struct Operands {
  explicit Operands(int64_t rank) : rank_(rank) {}  // of the tensors, before their rows and columns

  Arguments arguments{};                      // but for what the plan decides
  size_t argument_bytes = sizeof(Arguments);  // of them, that the kernels take
  Batch batch;
  launch::Touched touched;

  // All of a plan's kernels, for each index of the outer batch.
  void launch_all(const char* op, const Way& way, const Plan& plan) const {
    for (int64_t i = 0; i < batch.outer_count(); ++i) {
      const Arguments here = moved(i);
      launch::execute(op, way, plan, &here, argument_bytes, touched);
    }
  }

 protected:
  void add(int which, const char* name, const Tensor& x, ScalarType type, View::Core core, const void* memory) {
    v[which].fill(x, type, core, rank_, memory);
    touched.add(name, x);
  }
  void add_optional(int which, const char* name, const OptTensor& x, View::Core core) {
    if (x) add(which, name, *x, type_of(*x), core, x->const_data_ptr());
  }

  // Writes every operand into the struct, once the batch is known.
  void place_all() {
    const std::array<Operand*, kCount> operands = Problem::pointers(arguments);
    for (int which = 0; which < kCount; ++which) {
      if (v[which].present) batch.place(v[which], *operands[which]);
    }
  }

  // The arguments for an index of the outer batch.
  Arguments moved(int64_t index) const {
    Arguments x = arguments;
    if (batch.outer_dims() == 0) return x;
    const std::array<Operand*, kCount> operands = Problem::pointers(x);
    for (int which = 0; which < kCount; ++which) {
      const View& view = v[which];
      if (view.present) operands[which]->data = view.data + batch.offset(index, view);
    }
    static_cast<const Problem*>(this)->move(x, index);
    return x;
  }

  void move(Arguments&, int64_t) const {}  // what is no operand and moves: nothing

  View v[kCount];

 private:
  int64_t rank_;
};

}  // namespace wmma_ops
