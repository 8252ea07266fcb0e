// Results to memory by way of sm_90's copy engine: a wave lays its sums, finished, into shared memory, and goes on
// while the engine writes them, clipped at the matrix' edges. For results of 16 bits, and what else is read for each
// element is of 16 bits, too: it is turned around at the place where the result will lie.
#pragma once

#include <wmma/arch/wgmma.hpp>
#include <wmma/tile/box_loader.hpp>
#include <wmma/tile/epilogue.hpp>

namespace wmma {

// Two neighbours of a row, as a lane of a warpgroup has them, rounded: a word.
template <class T>
WMMA_DEVICE uint32_t rounded_pair(float first, float second) {
  return kSame<T, half_t> ? arch::half_pair(first, second) : arch::bf16_pair(first, second);
}

// A box of 16 rows by 64 columns, lines of 128 bytes, as a lane of a warpgroup has part in it.
class ResultBox {
 public:
  static constexpr int kColumns = 64;
  static constexpr int kBytes = 16 * 128;
  static constexpr int kSteps = kColumns / 16;  // of eight by eight elements, two by two

  WMMA_DEVICE ResultBox(uint32_t start, uint32_t lane)
      : start_(start), line_(start + (lane / 8 % 2 * 8 + lane % 8) * 128), lane_(lane) {}

  // Of a step: two neighbours of a row in each word, of the same columns eight rows further down, and of the next
  // eight columns.
  WMMA_DEVICE void read(uint32_t* words, int step) const { arch::ldmatrix_x4<false>(words, at(step)); }
  WMMA_DEVICE void write(int step, const uint32_t* words) const { arch::store_matrices(at(step), words); }

  // A quarter of the box's lines, a chunk of each lane.
  WMMA_DEVICE void put(int quarter, const Chunk& chunk) const {
    const uint32_t line = quarter * 4 + lane_ / 8;
    arch::store_shared(start_ + line * 128 + (lane_ % 8 ^ line % 8) * 16, chunk.words);
  }

 private:
  WMMA_DEVICE uint32_t at(int step) const { return line_ + (step * 2 + lane_ / 16 ^ lane_ % 8) * 16; }

  uint32_t start_;
  uint32_t line_;  // of the eight by eight that this lane gives the address of
  uint32_t lane_;
};

// What an operand, an element of which belongs to each of the result, has for a box: on its way from memory, then in
// the order of the sums.
template <class T, int kDims>
class BoxPart {
  static_assert(kBitsOf<T> == 16, "as wide as the result");

 public:
  WMMA_DEVICE void load(const GemmArguments& p, const GemmOperand& x, uint32_t batch, int64_t row, int64_t column,
                        uint32_t lane) {
    const T* from = static_cast<const T*>(x.data) + batch_offset<kDims>(p, x, batch);
    const int64_t c = column + lane % 8 * 8;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int64_t r = row + i * 4 + lane / 8;
      chunks_[i] = Chunk{};
      if (r < p.m && c < p.n) arch::copy<8>(reinterpret_cast<T*>(chunks_[i].words), from + r * x.row_stride + c);
    }
  }
  WMMA_DEVICE void put(const ResultBox& box) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) box.put(i, chunks_[i]);
    arch::wave_barrier();
  }

 private:
  Chunk chunks_[4];
};
template <int kDims>
class BoxPart<None, kDims> {
 public:
  WMMA_DEVICE void load(const GemmArguments&, const GemmOperand&, uint32_t, int64_t, int64_t, uint32_t) {}
  WMMA_DEVICE void put(const ResultBox&) const {}
};

// What columns bring with them, for a box: two neighbours of them to each lane on their way from memory, and from
// lane to lane when they are wanted.
template <class T, class E, int kDims>
class BoxColumns {
 public:
  WMMA_DEVICE void load(const GemmArguments& p, const GemmOperand& x, uint32_t batch, int64_t column, uint32_t lane) {
    const T* from = static_cast<const T*>(x.data) + batch_offset<kDims>(p, x, batch);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int64_t at = column + lane * 2 + i;
      own_[i] = at < p.n ? from[at * x.column_stride] : T{};
    }
  }
  // Those of the lane's sums, eight columns' of a step.
  WMMA_DEVICE void find(E* two, int step, int eight, uint32_t lane) const {
    constexpr int kWords = sizeof(own_) / 4;
    uint32_t words[kWords];
    arch::copy_bytes<sizeof(own_)>(words, own_);
#pragma unroll
    for (int i = 0; i < kWords; ++i) words[i] = arch::shuffle_word(words[i], step * 8 + eight * 4 + lane % 4);
    alignas(16) T found[kHeld];
    arch::copy_bytes<sizeof(own_)>(found, words);
    two[0] = convert<E>(found[0]);
    two[1] = convert<E>(found[1]);
  }

 private:
  static constexpr int kHeld = kBitsOf<T> == 8 ? 4 : 2;  // whole words
  alignas(16) T own_[kHeld];
};
template <class E, int kDims>
class BoxColumns<None, E, kDims> {
 public:
  WMMA_DEVICE void load(const GemmArguments&, const GemmOperand&, uint32_t, int64_t, uint32_t) {}
  WMMA_DEVICE void find(E*, int, int, uint32_t) const {}
};

// A wave's 16 rows, kN columns at a time. Where these are no whole boxes, the last box covers a part of the one
// before it, with the same results. Of a gated product the sums are B's, and then those of the same columns of the
// gate.
template <class Config, int kN>
class BoxStore {
  using D = typename Config::D;
  using E = typename Config::Number;
  using C = typename Config::C;
  using Multiply = typename Config::Multiply;
  using Bias = typename Config::Bias;
  using RowScale = typename Config::RowScale;
  using ColScale = typename Config::ColScale;
  using GateBias = typename GateOf<Config>::Bias;
  static constexpr bool kGated = kIsGated<Config>;
  static constexpr int kDims = Config::kBatchDims;
  static constexpr int kBoxes = (kN + ResultBox::kColumns - 1) / ResultBox::kColumns;
  static constexpr int kAhead = kBoxes > 1 ? 2 : 1;
  static_assert(kN >= ResultBox::kColumns && kN % 8 == 0 && kBitsOf<D> == 16, "as many as the engine takes at once");

 public:
  static constexpr int kWaveBytes = 2 * ResultBox::kBytes;  // one is filled while the engine reads the other

  WMMA_DEVICE BoxStore(const GemmArguments& p, const TileMap& map, const TileMap* aux_map, const TileMap* gate_aux_map,
                       uint32_t shared, uint32_t lane)
      : p_(p), map_(&map), aux_map_(aux_map), gate_aux_map_(gate_aux_map), shared_(shared), lane_(lane), second_(0) {}

  // Asks for what the first boxes need, while the last products are under way.
  WMMA_DEVICE void ask(uint32_t batch, int64_t row, int64_t column) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) ahead_[i].load(p_, batch, row, column + first_column(i), lane_);
  }

  // After that, for the same place.
  template <class Sum>
  WMMA_DEVICE void run(const Sum* sums, uint32_t batch, int64_t row, int64_t column) {
    using Finish = Epilogue<Config, Sum>;
    const Finish finish(p_, batch);
    E row_scales[2] = {};  // of the lane's row, and of that eight rows further down
    if constexpr (!kIsNone<RowScale>) {
      const RowScale* from =
          static_cast<const RowScale*>(p_.row_scale.data) + batch_offset<kDims>(p_, p_.row_scale, batch);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int64_t at = row + lane_ / 4 + i * 8;
        if (at < p_.m) row_scales[i] = convert<E>(from[at * p_.row_scale.row_stride]);
      }
    }
#pragma unroll
    for (int i = 0; i < kBoxes; ++i) {
      Read& read = ahead_[i % kAhead];
      int32_t at[2 + kDims];
      at[0] = static_cast<int32_t>(column) + first_column(i);
      at[1] = static_cast<int32_t>(row);
      batch_coordinates<kDims>(p_, p_.d, batch, at + 2);
      const ResultBox box = next_box();
      uint32_t factors[ResultBox::kSteps][4], aux[ResultBox::kSteps][4], gate_aux[ResultBox::kSteps][4];
      if constexpr (!kIsNone<Multiply>) {
        read.multiply.put(box);
#pragma unroll
        for (int step = 0; step < ResultBox::kSteps; ++step) box.read(factors[step], step);
        arch::wave_barrier();
      }
      read.c.put(box);
      const BoxColumns<Bias, E, kDims> biases = read.bias;
      const BoxColumns<ColScale, E, kDims> col_scales = read.col_scale;
      const BoxColumns<GateBias, E, kDims> gate_biases = read.gate_bias;
      if (i + kAhead < kBoxes) read.load(p_, batch, row, column + first_column(i + kAhead), lane_);
#pragma unroll
      for (int step = 0; step < ResultBox::kSteps; ++step) {
        uint32_t added[4];
        if constexpr (!kIsNone<C>) box.read(added, step);
        uint32_t words[4];
#pragma unroll
        for (int j = 0; j < 2; ++j) {  // eight columns each
          E bias[2] = {}, col_scale[2] = {}, gate_bias[2] = {};
          biases.find(bias, step, j, lane_);
          gate_biases.find(gate_bias, step, j, lane_);
          col_scales.find(col_scale, step, j, lane_);
#pragma unroll
          for (int half = 0; half < 2; ++half) {  // eight rows further down
            E x[2], y[2], gate[2];
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              const int at_sum = first_column(i) / 2 + step * 8 + j * 4 + half * 2 + e;
              if constexpr (kGated) {
                x[e] = sums[at_sum] + bias[e];
                gate[e] = sums[kN / 2 + at_sum] + gate_bias[e];
                y[e] = activate<Config::kActivation, E>(x[e]) * gate[e];
              } else {
                typename Finish::Beside beside;
                beside.row_scale = row_scales[half];
                beside.col_scale = col_scale[e];
                beside.bias = bias[e];
                if constexpr (!kIsNone<C>) beside.c = half_of<C>(added[j * 2 + half], e);
                if constexpr (!kIsNone<Multiply>) beside.multiply = half_of<Multiply>(factors[step][j * 2 + half], e);
                y[e] = finish.finish(sums[at_sum], beside, x[e]);
              }
            }
            if constexpr (kKeepsAux<Config>) aux[step][j * 2 + half] = rounded_pair<D>(x[0], x[1]);
            if constexpr (kKeepsAux<Config> && kGated) gate_aux[step][j * 2 + half] = rounded_pair<D>(gate[0], gate[1]);
            words[j * 2 + half] = rounded_pair<D>(y[0], y[1]);
          }
        }
        box.write(step, words);
      }
      send_box(*map_, at);
      if constexpr (kKeepsAux<Config>) send(*aux_map_, aux, at);
      if constexpr (kKeepsAux<Config> && kGated) send(*gate_aux_map_, gate_aux, at);
    }
  }

  // Nobody leaves while the engine reads.
  WMMA_DEVICE void close() const {
    if (lane_ == 0) arch::await_stores_read<0>();
  }

 private:
  // The place that is to be filled, once the engine has read what was there.
  WMMA_DEVICE ResultBox next_box() const {
    if (lane_ == 0) arch::await_stores_read<1>();
    arch::wave_barrier();
    return ResultBox(shared_ + second_, lane_);
  }
  WMMA_DEVICE void send(const TileMap& map, const uint32_t (&words)[ResultBox::kSteps][4], const int32_t* at) {
    const ResultBox box = next_box();
#pragma unroll
    for (int step = 0; step < ResultBox::kSteps; ++step) box.write(step, words[step]);
    send_box(map, at);
  }
  // It goes to memory; the other place is next.
  WMMA_DEVICE void send_box(const TileMap& map, const int32_t* at) {
    arch::fence_matrix_unit();
    arch::wave_barrier();
    if (lane_ == 0) {
      arch::store_box<2 + kDims>(shared_ + second_, &map, at);
      arch::commit_stores();
    }
    second_ ^= ResultBox::kBytes;
  }
  static WMMA_CONSTEXPR int first_column(int box) {
    return detail::lower(box * ResultBox::kColumns, kN - ResultBox::kColumns);
  }
  template <class T>
  static WMMA_DEVICE E half_of(uint32_t word, int which) {
    alignas(4) T two[2];
    arch::copy_bytes<4>(two, &word);
    return convert<E>(two[which]);
  }

  // What is read for a box: for those that come next while one is finished.
  struct Read {
    BoxPart<C, kDims> c;
    BoxPart<Multiply, kDims> multiply;
    BoxColumns<Bias, E, kDims> bias;
    BoxColumns<ColScale, E, kDims> col_scale;
    BoxColumns<GateBias, E, kDims> gate_bias;

    WMMA_DEVICE void load(const GemmArguments& p, uint32_t batch, int64_t row, int64_t column, uint32_t lane) {
      c.load(p, p.c, batch, row, column, lane);
      multiply.load(p, p.multiply, batch, row, column, lane);
      bias.load(p, p.bias, batch, column, lane);
      col_scale.load(p, p.col_scale, batch, column, lane);
      gate_bias.load(p, p.gate_bias, batch, column, lane);
    }
  };

  const GemmArguments& p_;
  const TileMap* map_;
  const TileMap* aux_map_;  // null where none is kept
  const TileMap* gate_aux_map_;
  uint32_t shared_;
  uint32_t lane_;
  uint32_t second_;  // 0, or where the second box starts
  Read ahead_[kAhead];
};

// How a wave's sums go to memory, by the copy engine or by the wave itself.
template <bool kMapped, class Last, class Product, int kN>
struct BoxOrSlabStore {
  using Slabs = WaveStore<Last, Product, 16, kN, 512>;
  static constexpr int kWaveBytes = Slabs::kWaveBytes;

  const GemmArguments& p;
  unsigned char* shared;

  WMMA_DEVICE BoxOrSlabStore(const GemmArguments& arguments, const TileMap&, unsigned char* place,
                             const TileMap* = nullptr, const TileMap* = nullptr)
      : p(arguments), shared(place) {}
  WMMA_DEVICE void ask(uint32_t, int64_t, int64_t, uint32_t, uint32_t) {}
  WMMA_DEVICE void run(const WaveTile<Product, 16, kN>& sums, uint32_t batch, int64_t row, int64_t column,
                       uint32_t wave_row, uint32_t wave_column) {
    const Slabs slabs(p, shared, lane_id(), 0, 0, batch, 0, 0, row, column, wave_row, wave_column);
    slabs.template run<false>(sums);
  }
  WMMA_DEVICE void close() const {}
};
template <class Last, class Product, int kN>
struct BoxOrSlabStore<true, Last, Product, kN> {
  using Boxes = BoxStore<Last, kN>;
  static constexpr int kWaveBytes = Boxes::kWaveBytes;

  Boxes boxes;

  WMMA_DEVICE BoxOrSlabStore(const GemmArguments& p, const TileMap& map, unsigned char* place,
                             const TileMap* aux_map = nullptr, const TileMap* gate_aux_map = nullptr)
      : boxes(p, map, aux_map, gate_aux_map, arch::shared_address(place), lane_id()) {}
  WMMA_DEVICE void ask(uint32_t batch, int64_t row, int64_t column, uint32_t wave_row, uint32_t wave_column) {
    boxes.ask(batch, row + wave_row, column + wave_column);
  }
  template <class Wave>
  WMMA_DEVICE void run(const Wave& sums, uint32_t batch, int64_t row, int64_t column, uint32_t wave_row,
                       uint32_t wave_column) {
    boxes.run(&sums.sums[0][0][0], batch, row + wave_row, column + wave_column);
  }
  WMMA_DEVICE void close() const { boxes.close(); }
};

}  // namespace wmma
