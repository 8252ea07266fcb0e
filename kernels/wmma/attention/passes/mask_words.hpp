// A bool mask's bits as sm_90a's lanes look at them (terms/hidden.hpp): for each 128 columns a line of rows, four words
// a row. Rows are queries and columns keys; of gradients, whose scores are transposed, the other way round.
#pragma once

#include <wmma/attention/terms/hidden.hpp>

namespace wmma {

template <class Config>
struct MaskWords {
  static constexpr int kShare = 32;  // columns that a thread reads: a byte of each of four words
  static constexpr int kShares = LaneWords::kColumns / kShare;
  static constexpr int kKeys = 4;  // that it reads at once

  static WMMA_DEVICE void run(const MappedAttentionArguments& p) {
    const uint32_t rows = p.words.rows, columns = Config::kOfKeys ? p.sq : p.skv;
    const uint32_t tiles = (columns + LaneWords::kColumns - 1) / LaneWords::kColumns;
    const uint32_t threads = tiles * kShares * (Config::kOfKeys ? rows / kKeys : rows);
    const uint32_t blocks = (threads + Config::kThreads - 1) / Config::kThreads;
    const uint32_t index = blockIdx.x % blocks * Config::kThreads + threadIdx.x;
    if (index >= threads) return;
    const uint32_t matrix = blockIdx.x / blocks, heads = p.mask.head_stride == 0 ? 1 : p.heads;
    const uint32_t batch = matrix / heads, head = matrix % heads;
    const uint8_t* mask = matrix_of<const uint8_t>(p.mask, batch, head);
    if constexpr (Config::kOfKeys) {
      const uint32_t key = index % (rows / kKeys) * kKeys, share = index / (rows / kKeys);
      of_keys(p, mask, static_cast<int>(key), static_cast<int>(share * kShare),
              to(p, batch, head, key, share / kShares) + share % kShares);
    } else {
      const uint32_t share = index % (tiles * kShares), query = index / (tiles * kShares);
      of_query(p, mask, static_cast<int>(query), static_cast<int>(share * kShare),
               to(p, batch, head, query, share / kShares) + share % kShares);
    }
  }

 private:
  static constexpr int kWordBytes = 4;

  static WMMA_DEVICE uint8_t* to(const MappedAttentionArguments& p, uint32_t batch, uint32_t head, uint32_t row,
                                 uint32_t tile) {
    const uint32_t* words = mask_words_of(p, batch, head, tile * LaneWords::kColumns) + row * LaneWords::kLanes;
    return reinterpret_cast<uint8_t*>(const_cast<uint32_t*>(words));
  }

  static WMMA_DEVICE void of_query(const MappedAttentionArguments& p, const uint8_t* mask, int query, int key,
                                   uint8_t* to) {
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
    store(to, found);
  }

  static WMMA_DEVICE void of_keys(const MappedAttentionArguments& p, const uint8_t* mask, int key, int query,
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
  static WMMA_CONSTEXPR int place_of(int column) {
    return LaneWords::lane_of(column) * 8 + LaneWords::bit_of(column);
  }
  static WMMA_DEVICE void store(uint8_t* to, uint32_t found) {
#pragma unroll
    for (int lane = 0; lane < LaneWords::kLanes; ++lane) {
      to[lane * kWordBytes] = static_cast<uint8_t>(found >> (8 * lane));
    }
  }

  // Whether a query sees four keys, a byte each: 0 or 1. Any byte but 0 says that it does.
  static WMMA_DEVICE uint32_t four_keys(const MappedAttentionArguments& p, const uint8_t* row, int key) {
    const uint8_t* from = row + key * p.mask.column_stride;
    uint32_t four = 0;
    if (p.mask.column_stride == 1 && reinterpret_cast<uint64_t>(from) % kKeys == 0 && key + kKeys <= p.skv) {
      arch::copy<1>(&four, reinterpret_cast<const uint32_t*>(from));
    } else {
#pragma unroll
      for (int j = 0; j < kKeys; ++j) {
        if (key + j < p.skv) four |= static_cast<uint32_t>(from[j * p.mask.column_stride]) << (8 * j);
      }
    }
    four |= four >> 4;
    four |= four >> 2;
    four |= four >> 1;
    return four & 0x01010101;
  }
};

}  // namespace wmma
