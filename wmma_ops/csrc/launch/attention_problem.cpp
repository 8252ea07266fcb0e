#include "launch/attention_problem.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace wmma_ops {

namespace {

int64_t batch_dims_of(const Tensor& q) { return std::max<int64_t>(q.dim() - 3, 0); }

// The type and the dimensions of a tensor that functions read, and whether 32 bits do not count its elements, as one
// number; 0: there is none.
int64_t form_of(const OptTensor& x) {
  if (!x) return 0;
  int64_t last = 0;
  for (int64_t dim = 0; dim < x->dim(); ++dim) last += (x->sizes()[dim] - 1) * x->strides()[dim];
  const int64_t wide = last >= int64_t{1} << 32;
  return (1 + element_code(type_of(*x))) * 16 + wide * 8 + x->dim();
}

bool is_bool(const OptTensor& mask) { return mask && type_of(*mask) == ScalarType::Bool; }

// Whether a mask says of each key that it is there, to all queries and all heads that share it.
bool is_of_keys(const Attention& p, const View& mask) {
  return is_bool(p.mask) && p.sq > 1 && mask.row == 0 && (p.heads == p.kv_heads || mask.head == 0);
}

// Whether it hides keys from some of the queries, or of the heads that share keys.
bool has_pairs(const Attention& p, const View& mask) { return is_bool(p.mask) && !is_of_keys(p, mask); }

// How many neighbours can be read at once of each row of a mask of numbers of 16 bits, to its end: eight, two or one.
int64_t mask_vec_of(const Attention& p, const wmma::AttentionOperand& mask) {
  if (!p.mask || bytes_of(element_code(type_of(*p.mask)), 1) != 2 || mask.column_stride != 1) return 1;
  const auto at = static_cast<int64_t>(reinterpret_cast<uintptr_t>(mask.data) / 2);
  const int64_t common = mask.batch_stride | mask.head_stride | mask.row_stride | p.skv | at;
  return common % 8 == 0 ? 8 : common % 2 == 0 ? 2 : 1;
}

// So that calls of packed sequences share plans: as many or an eighth more, of few exactly.
int64_t about(int64_t count) {
  int64_t step = 1;
  while (count > 16 * step) step *= 2;
  return (count + step - 1) / step * step;
}

}  // namespace

// Views have the heads as their innermost batch dimension until they are bound.
AttentionProblem::AttentionProblem(const Attention& p, int64_t device)
    : Operands(batch_dims_of(p.q) + 1), p_(p), device_(device), batch_dims_(batch_dims_of(p.q)) {
  constexpr int64_t kMost = int64_t{1} << 31;
  for (auto [name, length] : {std::pair{"q", p.sq * (p.heads / p.kv_heads)}, {"k", p.skv}}) {
    if (length >= kMost) fail_value(p.op, name, "has ", length, " rows a head; takes fewer than 2^31");
  }
  bind(kQ, "q", p.q);
  bind(kK, "k", p.k);
  bind(kV, "v", p.v);
  if (p.mask) bind(kMask, "mask", *p.mask);
  if (p.block_mask && !p.sequences) bind(kBlocks, "block_mask", *p.block_mask);
  if (p.alibi_slopes) bind(kSlopes, "alibi_slopes", *p.alibi_slopes, View::kOfBatch);
  arguments.scale = p.factor;
  arguments.shift = p.up_to.value_or(0);
  // A window of all keys is as wide as one of more.
  const int64_t most = p.sq + p.skv;
  arguments.rules.from = p.from ? (p.sequences ? *p.from : std::clamp(*p.from, -most, most)) : 0;
  arguments.rules.diagonal = p.diagonal;
  arguments.rules.cap = p.softcap;
  arguments.rules.steepness = p.steepness;
  if (p.dropout_p > 0) bind_dropout();
  arguments.sq = static_cast<int>(p.sq);
  arguments.skv = static_cast<int>(p.skv);
  arguments.e = static_cast<int>(p.e);
  arguments.ev = static_cast<int>(p.ev);
  arguments.heads = static_cast<int>(p.heads);
  arguments.group = static_cast<int>(p.heads / p.kv_heads);
  if (p.sequences) bind_sequences(*p.sequences);
  bind_functions();
}

void AttentionProblem::bind_functions() {
  for (int i = 0; i < kScoreOperands; ++i) {
    const OptTensor& operand = p_.score_operand(i);
    if (!operand) continue;
    touched.add(kScoreOperandNames[i], *operand);
    wmma::ScoreTensorOperand& into = functions_.tensors[i];
    into.data = operand->const_data_ptr();
    for (int64_t dim = 0; dim < operand->dim(); ++dim) {
      into.strides[dim] = operand->strides()[dim];
      into.sizes[dim] = static_cast<int>(operand->sizes()[dim]);
    }
  }
}

void AttentionProblem::bind_dropout() {
  touched.add("dropout_seed", *p_.dropout_seed);
  arguments.rules.seed = static_cast<const long long*>(p_.dropout_seed->const_data_ptr());
  arguments.rules.threshold = p_.kept_below();
  arguments.rules.kept = p_.kept_factor();
}

void AttentionProblem::move(wmma::PagesArguments& x, int64_t index) const {
  x.rules.first_batch = static_cast<unsigned>(index * batch.inner_count());
}

void AttentionProblem::bind_sequences(const Sequences& of) {
  constexpr int64_t kMost = int64_t{1} << 31;
  for (auto [name, tokens] : {std::pair{p_.names.q, of.tokens_q}, {p_.names.k, of.tokens_k}}) {
    if (tokens >= kMost) fail_value(p_.op, name, "has ", tokens, " tokens; takes fewer than 2^31");
  }
  wmma::SequenceArguments& into = arguments.sequences;
  const auto numbers = [&](const char* name, const Tensor& x) {
    touched.add(name, x);
    return wmma::NumbersOperand{x.const_data_ptr(), x.strides()[0], type_of(x) == ScalarType::Long};
  };
  into.starts_q = numbers("cu_seq_q", *p_.cu_seq_q);
  if (of.page_size == 0) into.starts_k = numbers("cu_seq_k", *p_.cu_seq_k);
  if (p_.seqused_k) into.used_k = numbers("seqused_k", *p_.seqused_k);
  if (of.page_size > 0) bind_pages(of);
  if (p_.block_mask) bind_blocks_of_sequences(*p_.block_mask);
  into.count = static_cast<int>(of.count);
  into.tokens_q = static_cast<int>(of.tokens_q);
  into.tokens_k = static_cast<int>(of.tokens_k);
  into.longest_q = static_cast<int>(p_.sq);
  into.longest_k = static_cast<int>(p_.skv);
  arguments.sq = into.most_q = static_cast<int>(about(p_.sq));
  arguments.skv = into.most_k = static_cast<int>(about(std::max<int64_t>(p_.skv, 1)));
}

void AttentionProblem::bind_blocks_of_sequences(const Tensor& states) {
  touched.add("block_mask", states);
  wmma::AttentionOperand& into = arguments.rules.blocks;
  into.data = states.const_data_ptr();
  // From the last dimension on; of sequences or heads that are not there, or one, all have the same.
  long long* const strides[] = {&into.column_stride, &into.row_stride, &into.head_stride, &into.batch_stride};
  for (int64_t i = 0; i < states.dim(); ++i) {
    const int64_t dim = states.dim() - 1 - i;
    *strides[i] = i >= 2 && states.sizes()[dim] == 1 ? 0 : states.strides()[dim];
  }
}

void AttentionProblem::bind_pages(const Sequences& of) {
  wmma::PageArguments& into = arguments.pages;
  const Tensor& table = *p_.block_table;
  if (of.pages > 1) {
    into.k_stride = p_.k.strides()[0];
    into.v_stride = p_.v.strides()[0];
  }
  touched.add("block_table", table);
  into.table = table.const_data_ptr();
  into.sequence_stride = table.strides()[0];
  into.column_stride = table.strides()[1];
  into.count = static_cast<int>(of.pages);
  for (auto [name, x, descale] : {std::tuple{"k_descale", &p_.k_descale, &arguments.k_descale},
                                  {"v_descale", &p_.v_descale, &arguments.v_descale}}) {
    if (!*x) continue;
    touched.add(name, **x);
    *descale = descale_of(**x);
  }
}

void AttentionProblem::bind(Operand which, const char* name, const Tensor& x, View::Core core) {
  add(which, name, x, type_of(x), core, x.const_data_ptr());
  v[which].head = v[which].batch[batch_dims_];
}

void AttentionProblem::join_batch() {
  auto sizes = p_.q.sizes();
  batch = Batch(Sizes(sizes.data(), sizes.data() + batch_dims_), v, kOperands, 1);
  arguments.batch = static_cast<int>(p_.sequences ? about(p_.batch) : batch.inner_count());
  place_all();
  if (p_.stored != p_.type) {
    argument_bytes = sizeof(wmma::NarrowPagesArguments);
    return;
  }
  if (p_.sequences) {
    argument_bytes = p_.sequences->page_size > 0 ? sizeof(wmma::PagesArguments) : sizeof(wmma::SequencesArguments);
    return;
  }
  const bool ruled =
      p_.from || p_.softcap > 0 || p_.dropout_p > 0 || v[kSinks].present || v[kSlopes].present || v[kBlocks].present;
  argument_bytes = ruled ? sizeof(wmma::RuledAttentionArguments) : sizeof(wmma::AttentionArguments);
}

int64_t AttentionProblem::key_rows() const {
  if (!p_.sequences) return p_.skv;
  const Sequences& of = *p_.sequences;
  if (of.page_size > 0) return of.pages > 0 ? of.page_size : 0;
  return of.tokens_k;
}

Direction AttentionProblem::way_of(Operand which) const {
  const View& x = v[which];
  if (!x.present) return {false, 1};
  const bool of_keys = which == kK || which == kV || which == kGK || which == kGV;
  const bool of_values = which == kV || which == kOut || which == kGOut || which == kGV;
  const int64_t rows = of_keys ? key_rows() : query_rows();
  // What repeats along rows, or along heads that are packed, has no strides that the copy engine takes; nor have empty
  // tensors.
  if (rows == 0 || (x.row == 0 && rows > 1)) return {false, 1};
  if (which == kQ && x.head == 0 && p_.heads > p_.kv_heads) return {false, 1};
  const Direction way = direction_of(batch, x, x.column, x.row, of_values ? p_.ev : p_.e, rows, false);
  if (p_.sequences && way.across) return {true, 1};  // where a sequence starts nobody knows
  if (of_keys && p_.sequences && p_.sequences->page_size > 0) {
    const int64_t page = which == kK ? arguments.pages.k_stride : arguments.pages.v_stride;
    if (page == 0 && p_.sequences->pages > 1) return {way.across, 1};  // what repeats, as above
    if (page != 0) return {way.across, std::min(way.vec, page & -page)};
  }
  return way;
}

ProblemKey AttentionProblem::key(bool backward) const {
  const Direction q = way_of(kQ), k = way_of(kK), values = way_of(kV), g_out = way_of(kGOut);
  int64_t out_vec = 16;
  for (Operand which : {kOut, kGQ, kGK, kGV}) {
    if (backward == (which == kOut)) continue;  // not a result
    const Direction way = way_of(which);
    out_vec = std::min(out_vec, way.across ? 1 : way.vec);
  }
  bool wide = is_wide(v[kQ]) || is_wide(v[kK]) || is_wide(v[kV]) || is_wide(v[kGOut]) || is_wide(v[kLse]);
  border::AttentionProblem fields;
  const Attention& p = p_;
#define WMMA_FILL(field, value) fields.field = value;
  WMMA_ATTENTION_FACETS(WMMA_FILL)
#undef WMMA_FILL
  fields.device = device_;
  fields.backward = backward;
  fields.dtype = element_code(p.type);
  fields.stored = element_code(p.stored);
  fields.e = p.e;
  fields.ev = p.ev;
  fields.q_order = q.across;
  fields.q_vec = q.vec;
  fields.k_order = k.across;
  fields.k_vec = k.vec;
  fields.v_order = values.across;
  fields.v_vec = values.vec;
  fields.out_vec = out_vec;
  fields.g_order = g_out.across;
  fields.g_vec = g_out.vec;
  fields.wide = wide;
  fields.batch = arguments.batch;
  fields.heads = p.heads;
  fields.group = p.heads / p.kv_heads;
  fields.sq = arguments.sq;
  fields.skv = arguments.skv;
  fields.sequences = p.sequences.has_value();
  fields.page_size = p.sequences ? p.sequences->page_size : 0;
  fields.unordered = backward && may_be_unordered();
  fields.invariant = !backward && is_batch_invariant();
  fields.seen = fields.skv;
  if (p.from) fields.seen = std::clamp<int64_t>(p.up_to.value_or(p.skv - 1) - *p.from + 1, 1, fields.skv);
  return ProblemKey(fields);
}

// From the dimension along memory outwards: columns, rows, heads, the batch. What repeats is there once.
MappedMatrix AttentionProblem::mapped(const wmma::AttentionOperand& x, int64_t rows, int64_t columns, int64_t heads,
                                      int64_t lines, ScalarType type) const {
  const int64_t size = bytes_of(element_code(type), 1);
  MappedMatrix matrix{x.data, static_cast<int>(size), 4, {}, {}, static_cast<uint32_t>(lines)};
  const Extent extents[] = {
      {columns, 1}, {rows, x.row_stride}, {heads, x.head_stride}, {arguments.batch, x.batch_stride}};
  for (int i = 0; i < 4; ++i) {
    const auto [count, stride] = extents[i];
    constexpr uint64_t kAny = 16;  // the stride of a dimension of one
    matrix.sizes[i] = stride == 0 ? 1 : static_cast<uint64_t>(count);
    matrix.strides[i] = stride == 0 ? kAny : static_cast<uint64_t>(stride * size);
  }
  return matrix;
}

// Keys or values; of pages, these are the batch.
MappedMatrix AttentionProblem::mapped_keys(wmma::AttentionOperand x, int64_t page_stride, int64_t columns,
                                           int64_t lines) const {
  const int64_t page_size = p_.sequences ? p_.sequences->page_size : 0;
  if (page_size == 0) return mapped(x, key_rows(), columns, p_.kv_heads, lines, p_.stored);
  x.batch_stride = page_stride;
  MappedMatrix matrix = mapped(x, page_size, columns, p_.kv_heads, lines, p_.stored);
  if (page_stride != 0) matrix.sizes[3] = static_cast<uint64_t>(p_.sequences->pages);
  return matrix;
}

// Values with a line for each column.
MappedMatrix AttentionProblem::mapped_transposed(int64_t lines) const {
  wmma::AttentionOperand x{arguments.scales.transposed, 0, 0, arguments.scales.transposed_keys, 1};
  x.head_stride = p_.ev * x.row_stride;
  x.batch_stride = p_.kv_heads * x.head_stride;
  return mapped(x, p_.ev, arguments.scales.transposed_keys, p_.kv_heads, lines, p_.stored);
}

// The queries of heads that share keys, one query's after the other's.
MappedMatrix AttentionProblem::mapped_packed(const wmma::AttentionOperand& q, int64_t queries) const {
  const int64_t group = arguments.group;
  wmma::AttentionOperand shared = q;
  shared.head_stride *= group;
  const ScalarType type = in_memory();
  const MappedMatrix of_first = mapped(shared, query_rows(), p_.e, p_.kv_heads, queries, type);
  MappedMatrix matrix = of_first;
  matrix.dims = of_first.dims + 1;
  for (int i = 1; i < of_first.dims; ++i) {
    matrix.sizes[i + 1] = of_first.sizes[i];
    matrix.strides[i + 1] = of_first.strides[i];
  }
  matrix.sizes[1] = static_cast<uint64_t>(group);
  matrix.strides[1] = static_cast<uint64_t>(bytes_of(element_code(type), q.head_stride));
  matrix.lines = static_cast<uint32_t>(group);
  matrix.planes = static_cast<uint32_t>(queries);
  return matrix;
}

void AttentionProblem::bind_scales() {
  for (auto [which, name, x] : {std::tuple{kScaleQ, "scale_q", &p_.scale_q},
                                {kScaleK, "scale_k", &p_.scale_k},
                                {kScaleV, "scale_v", &p_.scale_v}}) {
    if (*x) bind(which, name, **x, View::kOfBatch);
  }
}

void AttentionProblem::bind_transposed(const border::AttentionNumbers& numbers, const Tensor& workspace) {
  arguments.scales.transposed = static_cast<char*>(workspace.mutable_data_ptr()) + numbers.transposed_at;
  arguments.scales.transposed_keys = static_cast<int>(numbers.transposed);
}

void AttentionProblem::bind_found_blocks(const border::AttentionNumbers& numbers, const Tensor& workspace) {
  const int64_t columns = (p_.skv + numbers.block_k - 1) / numbers.block_k;
  const int64_t all = (p_.sq + numbers.block_q - 1) / numbers.block_q * columns;
  wmma::AttentionOperand& x = arguments.rules.blocks;
  x.data = static_cast<char*>(workspace.mutable_data_ptr()) + numbers.blocks_at;
  x.batch_stride = numbers.blocks_of_batches != 0 ? all * (numbers.blocks_of_heads != 0 ? p_.heads : 1) : 0;
  x.head_stride = numbers.blocks_of_heads != 0 ? all : 0;
  x.row_stride = columns;
  x.column_stride = 1;
}

template <class Others, class Act>
void AttentionProblem::each_modified(const Act& act) const {
  for (int64_t i = 0; i < batch.outer_count(); ++i) act(wmma::ModifiedArguments<Others>{moved(i), functions_});
}

template <class Act>
void AttentionProblem::each_modified(const Act& act) const {
  if (!p_.sequences) {
    each_modified<wmma::RuledAttentionArguments>(act);
  } else if (p_.sequences->page_size == 0) {
    each_modified<wmma::SequencesArguments>(act);
  } else if (p_.stored == p_.type) {
    each_modified<wmma::PagesArguments>(act);
  } else {
    each_modified<wmma::NarrowPagesArguments>(act);
  }
}

void AttentionProblem::launch_modified(const Way& way, const Plan& plan) const {
  each_modified([&](const auto& here) { launch::execute(p_.op, way, plan, &here, sizeof here, touched); });
}

template <class Others>
void AttentionProblem::launch_with_maps(const Way& way, const Plan& plan, const border::AttentionNumbers& numbers,
                                        const Others& others) const {
  const int64_t heads = p_.heads, queries = query_rows();
  wmma::MappedArguments<Others> x{others, {}, {}, {}, {}, {}, {}, 0, 0, 0, 0};
  x.team = static_cast<int>(numbers.team);
  x.passes = static_cast<int>(numbers.passes);
  x.query_slices = static_cast<int>(numbers.query_slices);
  x.whole = static_cast<int>(numbers.whole);
  if (numbers.words_rows > 0) {
    const int64_t all = numbers.words_tiles * numbers.words_rows, of_heads = x.mask.head_stride != 0 ? heads : 1;
    x.words.data = static_cast<char*>(x.partial) + numbers.words_at;
    x.words.rows = static_cast<int>(numbers.words_rows);
    x.words.head_stride = static_cast<int>(x.mask.head_stride != 0 ? all : 0);
    x.words.batch_stride = static_cast<int>(x.mask.batch_stride != 0 ? all * of_heads : 0);
  }
  if (way.device >= 0) {  // else it is recorded, not run
    const int64_t function = plan.launches[0].function;
    auto map = [&](const MappedMatrix& matrix, wmma::TileMap& into) { map_loaded(p_.op, function, matrix, into); };
    map(numbers.packed > 1 ? mapped_packed(x.q, numbers.queries)
                           : mapped(x.q, queries, p_.e, heads, numbers.queries, in_memory()),
        x.q_map);
    if (v[kGOut].present) map(mapped(x.g_out, queries, p_.ev, heads, numbers.queries, p_.type), x.g_out_map);
    map(mapped_keys(x.k, arguments.pages.k_stride, p_.e, numbers.lines_k), x.k_map);
    if (numbers.transposed > 0) {
      map(mapped_transposed(numbers.lines_v), x.v_map);
    } else {
      map(mapped_keys(x.v, arguments.pages.v_stride, p_.ev, numbers.lines_k), x.v_map);
    }
    if (numbers.lines_out > 0) map(mapped(x.out, queries, p_.ev, heads, numbers.lines_out, p_.type), x.out_map);
  }
  launch::execute(p_.op, way, plan, &x, sizeof x, touched);
}

void AttentionProblem::launch_mapped(const Way& way, const Plan& plan, const border::AttentionNumbers& numbers) const {
  using namespace wmma;
  if (p_.has_functions()) {
    return each_modified([&](const auto& here) { launch_with_maps(way, plan, numbers, here); });
  }
  for (int64_t i = 0; i < batch.outer_count(); ++i) {
    const AllAttentionArguments here = moved(i);
    if (p_.is_scaled) {
      launch_with_maps<ScaledArguments>(way, plan, numbers, {here, here.scales});
    } else if (p_.stored != p_.type) {
      launch_with_maps<NarrowPagesArguments>(way, plan, numbers, here);
    } else {
      launch_with_maps<PagesArguments>(way, plan, numbers, here);
    }
  }
}

}  // namespace wmma_ops
