// A bool mask's bits as sm_90a's lanes look at them (terms/hidden.hpp): for each 128 columns a line of rows, four words
// a row. Rows are queries and columns keys; of gradients, whose scores are transposed, the other way round. For the
// forward loop also which blocks of scores have any that counts, as a block mask (rows/blocks.hpp); of a mask that says
// the same to all queries that alone, once for all of them.
#pragma once

#include <wmma/attention/rows/blocks.hpp>
#include <wmma/attention/terms/hidden.hpp>

namespace wmma {

template <class Config>
struct MaskWords {
  static constexpr int kShare = 32;  // columns that a thread reads: a byte of each of four words
  static constexpr int kShares = LaneWords::kColumns / kShare;
  static constexpr int kKeys = kKeysOfWord;  // that it reads at once

  static WMMA_DEVICE void run(const MappedAttentionArguments& p) {
    if constexpr (Config::kHidden == Hidden::kKeys) {
      find_blocks(p);
    } else if constexpr (Config::kOfKeys) {
      of_keys(p);
    } else {
      of_queries(p);
    }
  }

 private:
  struct Matrix {
    uint32_t batch;
    uint32_t head;
    const uint8_t* mask;
    WMMA_DEVICE Matrix(const MappedAttentionArguments& p, uint32_t index) {
      const uint32_t heads = p.mask.head_stride == 0 ? 1 : p.heads;
      batch = index / heads;
      head = index % heads;
      mask = matrix_of<const uint8_t>(p.mask, batch, head);
    }
  };
  static WMMA_DEVICE uint32_t tiles_of(int columns) {
    return (static_cast<uint32_t>(columns) + LaneWords::kColumns - 1) / LaneWords::kColumns;
  }

  // A thread has some queries of four keys.
  static WMMA_DEVICE void of_keys(const MappedAttentionArguments& p) {
    const uint32_t fours = p.words.rows / kKeys, threads = tiles_of(p.sq) * kShares * fours;
    const uint32_t blocks = (threads + Config::kThreads - 1) / Config::kThreads;
    const uint32_t index = blockIdx.x % blocks * Config::kThreads + threadIdx.x;
    if (index >= threads) return;
    const Matrix of(p, blockIdx.x / blocks);
    const uint32_t key = index % fours * kKeys, share = index / fours;
    of_four_keys(p, of.mask, static_cast<int>(key), static_cast<int>(share * kShare),
                 to(p, of.batch, of.head, key, share / kShares) + share % kShares);
  }

  // A thread has some keys of a query, a block those of a block of scores.
  static WMMA_DEVICE void of_queries(const MappedAttentionArguments& p) {
    constexpr uint32_t kRows = Config::kThreads / kShares;
    const uint32_t tiles = tiles_of(p.skv), rows = (static_cast<uint32_t>(p.sq) + kRows - 1) / kRows;
    const uint32_t tile = blockIdx.x % tiles, row = blockIdx.x / tiles % rows;
    const Matrix of(p, blockIdx.x / tiles / rows);
    const uint32_t query = row * kRows + threadIdx.x / kShares, share = threadIdx.x % kShares;
    const uint32_t found =
        of_query(p, of.mask, static_cast<int>(query), static_cast<int>(tile * LaneWords::kColumns + share * kShare));
    store(to(p, of.batch, of.head, query, tile) + share, found);
    if constexpr (!Config::kFindsBlocks) return;
    bool* any = dynamic_shared<bool>();
    const bool of_wave = arch::ballot(found != 0) != 0;
    if (lane_id() == 0) any[threadIdx.x / arch::kWaveSize] = of_wave;
    arch::block_barrier();
    if (threadIdx.x != 0) return;
    bool is_there = false;
    for (uint32_t wave = 0; wave < Config::kThreads / arch::kWaveSize; ++wave) is_there = is_there || any[wave];
    store_state(p, of, row, tile, is_there);
  }

  // A wave has the keys of a block.
  static WMMA_DEVICE void find_blocks(const MappedAttentionArguments& p) {
    static_assert(kKeys * arch::kWaveSize == LaneWords::kColumns);
    const uint32_t tiles = tiles_of(p.skv);
    const uint32_t index = (blockIdx.x * Config::kThreads + threadIdx.x) / arch::kWaveSize, tile = index % tiles;
    const Matrix of(p, index / tiles);
    if (of.batch >= (p.mask.batch_stride == 0 ? 1 : static_cast<uint32_t>(p.batch))) return;
    const uint32_t key = tile * LaneWords::kColumns + lane_id() * kKeys;
    const bool is_there = arch::ballot(four_keys(p, of.mask, static_cast<int>(key)) != 0) != 0;
    if (lane_id() == 0) store_state(p, of, 0, tile, is_there);
  }

  static WMMA_DEVICE void store_state(const MappedAttentionArguments& p, const Matrix& of, uint32_t row, uint32_t tile,
                                      bool is_there) {
    const AttentionOperand& blocks = p.rules.blocks;
    const int8_t* line = block_line(blocks, of.batch, of.head, row * blocks.row_stride);
    const_cast<int8_t*>(line)[tile] = is_there ? kBlockMasked : kBlockAbsent;
  }

  static constexpr int kWordBytes = 4;

  static WMMA_DEVICE uint8_t* to(const MappedAttentionArguments& p, uint32_t batch, uint32_t head, uint32_t row,
                                 uint32_t tile) {
    const uint32_t* words = mask_words_of(p, batch, head, tile * LaneWords::kColumns) + row * LaneWords::kLanes;
    return reinterpret_cast<uint8_t*>(const_cast<uint32_t*>(words));
  }

  static WMMA_DEVICE uint32_t of_query(const MappedAttentionArguments& p, const uint8_t* mask, int query, int key) {
    uint32_t found = 0;
    const uint8_t* row = mask + query * p.mask.row_stride;
    if (query < p.sq) {
#pragma unroll
      for (int i = 0; i < kShare; i += kKeys) {
        const uint32_t four = four_keys(p, row, key + i);
#pragma unroll
        for (int j = 0; j < kKeys; ++j) found |= (four >> (8 * j) & 1) << place_of(i + j);
      }
    }
    return found;
  }

  static WMMA_DEVICE void of_four_keys(const MappedAttentionArguments& p, const uint8_t* mask, int key, int query,
                                       uint8_t* to) {
    uint32_t found[kKeys] = {};
    constexpr int kTogether = 8;
#pragma unroll
    for (int first = 0; first < kShare; first += kTogether) {
      uint32_t fours[kTogether];
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
        const int of = query + first + i;
        fours[i] = of < p.sq ? four_keys(p, mask + of * p.mask.row_stride, key) : 0;
      }
#pragma unroll
      for (int i = 0; i < kTogether; ++i) {
#pragma unroll
        for (int j = 0; j < kKeys; ++j) found[j] |= (fours[i] >> (8 * j) & 1) << place_of(first + i);
      }
    }
#pragma unroll
    for (int j = 0; j < kKeys; ++j) store(to + j * LaneWords::kLanes * kWordBytes, found[j]);
  }

  // Of a thread's columns, by lanes: of each a byte.
  static WMMA_CONSTEXPR int place_of(int column) { return LaneWords::lane_of(column) * 8 + LaneWords::bit_of(column); }
  static WMMA_DEVICE void store(uint8_t* to, uint32_t found) {
#pragma unroll
    for (int lane = 0; lane < LaneWords::kLanes; ++lane) {
      to[lane * kWordBytes] = static_cast<uint8_t>(found >> (8 * lane));
    }
  }

  // Whether a query sees four keys, a byte each: 0 or 1. Any byte but 0 says that it does.
  static WMMA_DEVICE uint32_t four_keys(const MappedAttentionArguments& p, const uint8_t* row, int key) {
    uint32_t four = four_keys_of(row + key * p.mask.column_stride, p.mask.column_stride, p.skv - key);
    four |= four >> 4;
    four |= four >> 2;
    four |= four >> 1;
    return four & 0x01010101;
  }
};

}  // namespace wmma
