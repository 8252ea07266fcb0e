#include "launch/operands.hpp"

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

namespace wmma_ops {

int64_t element_code(ScalarType type) {
  switch (type) {
#define WMMA_CODE_OF(code, torch, name, bits) \
  case ScalarType::torch:                     \
    return wmma::code;
    WMMA_ELEMENTS(WMMA_CODE_OF)
#undef WMMA_CODE_OF
    default:
      return wmma::kNoElement;
  }
}

int64_t bits_of(int64_t code) {
#define WMMA_BITS(code, torch, name, bits) bits,
  constexpr int64_t kBits[] = {WMMA_ELEMENTS(WMMA_BITS)};
#undef WMMA_BITS
  return kBits[code];
}

int64_t bytes_of(int64_t code, int64_t count) { return count * bits_of(code) / 8; }

wmma::DescaleOperand descale_of(const Tensor& x) {
  const auto sizes = x.sizes(), strides = x.strides();
  const auto stride = [&](int64_t from_last) {
    const int64_t at = x.dim() - from_last;
    return at >= 0 && sizes[at] != 1 ? strides[at] : 0;
  };
  return {x.const_data_ptr(), stride(2), stride(1)};
}

void View::fill(const Tensor& x, ScalarType type, Core core, int64_t rank, const void* memory) {
  present = true;
  data = static_cast<const char*>(memory);
  code = element_code(type);
  bits = bits_of(code);
  auto sizes = x.sizes(), strides = x.strides();
  int64_t at = static_cast<int64_t>(sizes.size());
  auto next = [&] { return --at >= 0 && sizes[at] != 1 ? strides[at] : 0; };
  if (core == kMatrix || core == kAlongColumns) column = next();
  if (core == kMatrix || core == kAlongRows) row = next();
  for (int64_t i = rank; i-- > 0;) batch[i] = next();
}

Batch::Batch(const Sizes& all, View* views, int count, int kernel_dims, int64_t* m) : kernel_dims(kernel_dims) {
  int64_t rows = m ? *m : 0;
  int64_t kept[kMostDims];  // innermost first, as `sizes` until the end; a joined dimension has its innermost's strides
  for (int64_t i = static_cast<int64_t>(all.size()); i-- > 0;) {
    int64_t size = all[i];
    if (size == 1) continue;
    bool joins = dims > 0 || m;
    for (int which = 0; which < count && joins; ++which) {
      const View& x = views[which];
      if (!x.present || !x.is_read) continue;
      if (dims > 0) {
        joins = x.batch[i] == x.batch[kept[dims - 1]] * sizes[dims - 1];
      } else {
        joins = x.has_rows ? rows == 1 || x.batch[i] == x.row * rows : x.batch[i] == 0;
      }
    }
    if (!joins) {
      kept[dims] = i;
      sizes[dims++] = size;
    } else if (dims > 0) {
      sizes[dims - 1] *= size;
    } else {
      for (int which = 0; which < count && rows == 1; ++which) {
        if (views[which].present && views[which].has_rows) views[which].row = views[which].batch[i];
      }
      rows *= size;
    }
  }
  if (m) *m = rows;
  std::reverse(kept, kept + dims);
  std::reverse(sizes, sizes + dims);
  for (int which = 0; which < count; ++which) {
    View& x = views[which];
    if (!x.present) continue;
    int64_t strides[kMostDims];
    for (int i = 0; i < dims; ++i) strides[i] = x.batch[kept[i]];
    std::copy_n(strides, dims, x.batch);
  }
}

int64_t Batch::outer_count() const {
  int64_t product = 1;
  for (int i = 0; i < outer_dims(); ++i) product *= sizes[i];
  return product;
}

int64_t Batch::offset(int64_t index, const View& v) const {
  int64_t elements = 0;
  for (int dim = outer_dims(); dim-- > 0;) {
    elements += index % sizes[dim] * v.batch[dim];
    index /= sizes[dim];
  }
  return elements * v.bits / 8;
}

int64_t Batch::inner_count() const {
  int64_t product = 1;
  for (int i = outer_dims(); i < dims; ++i) product *= sizes[i];
  return product;
}

int64_t Batch::fill(long long* batch_sizes) const {
  std::fill_n(batch_sizes, wmma::kBatchDims, 1);
  for (int i = outer_dims(); i < dims; ++i) batch_sizes[wmma::kBatchDims - dims + i] = sizes[i];
  return inner_count();
}

void Batch::place(const View& v, wmma::GemmOperand& x) const {
  x = {v.data, v.row, v.column, {}};
  for (int i = 0; i < dims - outer_dims(); ++i) x.batch_strides[wmma::kBatchDims - 1 - i] = v.batch[dims - 1 - i];
}

void Batch::place(const View& v, wmma::AttentionOperand& x) const {
  x = {v.data, dims > 0 ? v.batch[dims - 1] : 0, v.head, v.row, v.column};
}

int64_t Batch::vec_of(const View& v, int64_t along, int64_t extent, int64_t other) const {
  if (!v.present || along != 1) return 1;
  int64_t batch_bits = v.head;
  for (int i = 0; i < dims; ++i) batch_bits |= v.batch[i];
  constexpr uint64_t kMost = 128;  // bits
  uint64_t bits =
      reinterpret_cast<uint64_t>(v.data) * 8 | static_cast<uint64_t>((extent | other | batch_bits) * v.bits);
  uint64_t aligned = std::min<uint64_t>(bits == 0 ? kMost : bits & -bits, kMost);
  return std::max<int64_t>(static_cast<int64_t>(aligned) / v.bits, 1);
}

Direction direction_of(const Batch& batch, const View& v, int64_t along, int64_t across, int64_t k, int64_t outer,
                       bool prefers_across) {
  int64_t vec_along = batch.vec_of(v, along, k, across), vec_across = batch.vec_of(v, across, outer, along);
  bool has_along = along == 1 || k <= 1, has_across = across == 1 || outer == 1;
  bool is_across = prefers_across ? !has_along || (has_across && vec_across > vec_along)
                                  : has_across && (!has_along || vec_across > vec_along);
  return {is_across, is_across ? vec_across : vec_along};
}

MappedMatrix mapped(const Batch& batch, const wmma::GemmOperand& x, Extent outer, Extent k, int64_t code,
                    int64_t lines) {
  constexpr uint64_t kAny = 16;  // the stride of a dimension of one
  const auto bytes = [&](int64_t count) { return static_cast<uint64_t>(bytes_of(code, count)); };
  if (batch.dims + 2 > MappedMatrix::kMostDims) throw std::logic_error("a plan maps more dimensions than there are");
  MappedMatrix matrix{x.data, static_cast<int>(bytes(1)), 2, {}, {}, static_cast<uint32_t>(std::abs(lines))};
  const Extent &along = lines > 0 ? k : outer, &across = lines > 0 ? outer : k;
  matrix.sizes[0] = static_cast<uint64_t>(along.size);
  matrix.sizes[1] = static_cast<uint64_t>(across.size);
  matrix.strides[0] = bytes(1);
  matrix.strides[1] = across.size == 1 ? kAny : bytes(across.stride);
  for (int dim = batch.dims - 1; dim >= 0; --dim) {
    const int64_t stride = x.batch_strides[wmma::kBatchDims - batch.dims + dim];
    matrix.sizes[matrix.dims] = stride == 0 ? 1 : static_cast<uint64_t>(batch.sizes[dim]);
    matrix.strides[matrix.dims++] = stride == 0 ? kAny : bytes(stride);
  }
  return matrix;
}

}  // namespace wmma_ops
