// Values of 8 bits with a line for each column: the matrix unit sums up along the lines of what has 8 bits, and values
// are summed up over keys. Each sixteen keys lie in the order in which a lane has their weights (weights.hpp), and
// behind the last ones zeros.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/rows/scaled.hpp>

namespace wmma {

template <class Config>
struct TransposedValues {
  static constexpr int kTileKeys = 128;  // of a block, of all columns
  static constexpr int kColumns = 4;     // that a thread turns, of
  static constexpr int kKeys = 32;
  static constexpr int kChunks = kTileKeys / 16;  // of a line

  // A line's chunks are exchanged so that threads that are neighbours write and read all banks.
  static WMMA_DEVICE uint32_t* chunk_at(int line, int chunk) {
    return dynamic_shared<uint32_t>() + line * kTileKeys / 4 + (chunk ^ line / kColumns % kChunks) * 4;
  }

  static WMMA_DEVICE void run(const ScaledArguments& p) {
    arch::let_next_start();
    const int tiles = p.scales.transposed_keys / kTileKeys, heads = p.heads / p.group;
    const int index = static_cast<int>(blockIdx.x) / tiles, first = static_cast<int>(blockIdx.x) % tiles * kTileKeys;
    const unsigned char* from = static_cast<const unsigned char*>(p.v.data) + index / heads * p.v.batch_stride +
                                index % heads * p.v.head_stride;
    const int columns = p.ev / kColumns;
    for (int item = threadIdx.x; item < kTileKeys / kKeys * columns; item += Config::kThreads) {
      const int column = item % columns * kColumns, key = item / columns * kKeys;
      uint32_t keys[kKeys];
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        const int64_t row = first + key + i;
        keys[i] = 0;
        if (row < p.skv)
          arch::copy<1>(keys + i, reinterpret_cast<const uint32_t*>(from + row * p.v.row_stride + column));
      }
#pragma unroll
      for (int chunk = 0; chunk < kKeys / 16; ++chunk) {
        uint32_t lines[kColumns][4];
#pragma unroll
        for (int word = 0; word < 4; ++word) {
          const uint32_t* four = keys + chunk * 16 + word * 2;
          turn(lines, word, four[0], four[1], four[8], four[9]);
        }
#pragma unroll
        for (int line = 0; line < kColumns; ++line) {
          arch::copy<4>(chunk_at(column + line, key / 16 + chunk), lines[line]);
        }
      }
    }
    arch::block_barrier();
    unsigned char* to = static_cast<unsigned char*>(p.scales.transposed) +
                        static_cast<int64_t>(index) * p.ev * p.scales.transposed_keys + first;
    for (int item = threadIdx.x; item < p.ev * kChunks; item += Config::kThreads) {
      const int line = item / kChunks, chunk = item % kChunks;
      unsigned char* there = to + static_cast<int64_t>(line) * p.scales.transposed_keys + chunk * 16;
      arch::copy<4>(reinterpret_cast<uint32_t*>(there), chunk_at(line, chunk));
    }
  }

 private:
  // Four keys' four columns.
  static WMMA_DEVICE void turn(uint32_t (&lines)[kColumns][4], int word, uint32_t a, uint32_t b, uint32_t c,
                               uint32_t d) {
    const uint32_t low_ab = __byte_perm(a, b, 0x5140), low_cd = __byte_perm(c, d, 0x5140);
    const uint32_t high_ab = __byte_perm(a, b, 0x7362), high_cd = __byte_perm(c, d, 0x7362);
    lines[0][word] = __byte_perm(low_ab, low_cd, 0x5410);
    lines[1][word] = __byte_perm(low_ab, low_cd, 0x7632);
    lines[2][word] = __byte_perm(high_ab, high_cd, 0x5410);
    lines[3][word] = __byte_perm(high_ab, high_cd, 0x7632);
  }
};

}  // namespace wmma
