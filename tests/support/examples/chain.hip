// (A·B0)·B1 of one wave by kernels/wmma/tile/chain.hpp: A is [rows, SIZE], B0 and B1 [SIZE columns, SIZE],
// with what is summed up along their lines.
#include <wmma/tile/chain.hpp>

using namespace wmma;

#ifdef LANES
using Product = LaneProduct<ELEMENT>;
#else
using Product = MatrixProduct<ELEMENT, SIDE>;
#endif

// The operand of the second product's step: what the sums of the first one are.
template <class Link, class Tile>
WMMA_DEVICE void next_rows(Chunk* x, const typename Link::Sum* sums, const RowReader<Link, Tile>& reader,
                           const unsigned char* tile, int step) {
  if constexpr (Link::kStays) {
    uint32_t words[Link::kShare * sizeof(ELEMENT) / 4];
    detail::pack<ELEMENT, Link::kShare>(words, sums + step * Link::kShare);
    Link::join(x, words);
  } else {
    reader.read(x, tile, 0, step);
  }
}

using Link = ChainLink<Product>;

template <class Tile>
WMMA_DEVICE void fill(unsigned char* tile, const ELEMENT* from) {
  for (uint32_t i = lane_id(); i < Tile::kLines * SIZE; i += kWaveSize) {
    const uint32_t byte = i % SIZE * sizeof(ELEMENT);
    *reinterpret_cast<ELEMENT*>(tile + Tile::offset(i / SIZE, byte / 16) + byte % 16) = from[i];
  }
}

extern "C" __global__ __launch_bounds__(kWaveSize) void chain(const ELEMENT* a, const ELEMENT* b0, const ELEMENT* b1,
                                                              float* out, int* rows) {
  constexpr int kBytes = SIZE * sizeof(ELEMENT);
  using Rows = ChainTile<PlainLines, Link::kRows, kBytes>;
  using Columns = ChainTile<Link, SIZE, kBytes>;
  __shared__ __attribute__((aligned(16))) unsigned char tiles[2 * Rows::kBytes + 2 * Columns::kBytes];
  unsigned char* columns = tiles + 2 * Rows::kBytes;
  fill<Rows>(tiles, a);
  fill<Columns>(columns, b0);
  fill<Columns>(columns + Columns::kBytes, b1);
  sync_workgroup();

  constexpr int kTiles = SIZE / Link::kCols;
  constexpr int kSteps = SIZE / Link::kDepth;
  constexpr int kSums = kTiles * Link::kElements;
  const uint32_t lane = lane_id();
  const RowReader<Link, Rows> row_reader(lane, 0);
  const ColumnReader<Link, Columns> column_reader(lane);
  typename Link::Sum first[kSums] = {};
  typename Link::Sum second[kSums] = {};
  Chunk x[Link::kRowChunks];
  Chunk y[Link::kColChunks];
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    row_reader.read(x, tiles, 0, step);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      column_reader.read(y, columns, n, step);
      Link::mma(first + n * Link::kElements, x, y);
    }
  }
  if constexpr (!Link::kStays) write_sums<Link, Rows, kSums>(tiles + Rows::kBytes, lane, 0, first);
  sync_wave();
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    next_rows(x, first, row_reader, tiles + Rows::kBytes, step);
#pragma unroll
    for (int n = 0; n < kTiles; ++n) {
      column_reader.read(y, columns + Columns::kBytes, n, step);
      Link::mma(second + n * Link::kElements, x, y);
    }
  }
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    out[Link::row(lane, Link::row_of(i)) * SIZE + Link::place(lane, i)] = static_cast<float>(second[i]);
  }
  if (lane == 0) rows[0] = Link::kRows;
}
