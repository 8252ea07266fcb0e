// Sums of the gradients of queries in whole numbers, which are the same in whatever order they are summed up
// (gradients/dq_partials.hpp). What counts 1 is a power of two, of each query its own, so that no sum is too large:
// whatever some keys add to query i,
//
//   |Σ_j g_S_ij·K_jd| ≤ (|g_out_i|·max|V_j| + |g_lse_i|)·max|K_j|
//
// with lengths of rows, as g_S is what weights, which sum up to 1, multiply: how far numbers of |g_out_i|·|V_j| at most
// are from their mean, which is |g_out_i|·max|V_j| on the average at most, and g_lse. That becomes 2^30 at most, half
// of what there is room for: g_S is rounded before it is multiplied, and weights and their mean are approximate. Sums
// may wrap on their way, as the whole does not.
//
// Sizes are powers of two, by their exponents: a row of size s is shorter than 2^s. The first kernel (passes/delta.hpp)
// leaves the queries' in memory, and of keys and values the largest that each of its waves has found.
//
// Whole numbers know no NaN: it is in marks, NaN or 0, which are added to a query's results. The first kernel marks
// queries by what it reads of them, blocks of keys those that see a key with a number that is none, and the last one
// all of a head where g_S was more than its type holds.
#pragma once

#include <wmma/attention/rows/dense.hpp>
#include <wmma/attention/terms/window.hpp>
#include <wmma/tile/shared_tile.hpp>

namespace wmma {

// What a workspace has behind the sums, kNumbers of a tile of queries.
template <int kNumbers>
struct FixedPlaces {
  static constexpr int kShares = arch::kWaveSize;  // of a head's keys, each of them a wave's
  char* sums;
  char* sizes;  // of queries, a word for each row of all heads, as the next
  char* marks;
  char* peaks;  // the largest sizes, of values and of keys, of each share of each head of these
  char* flags;  // a word for each of these heads

  WMMA_DEVICE explicit FixedPlaces(const AttentionArguments& p) {
    const int64_t heads = static_cast<int64_t>(p.batch) * p.heads;
    sums = static_cast<char*>(p.partial);
    sizes = sums + heads * p.tiles * (kNumbers * 4);
    marks = sizes + heads * p.sq * 4;
    peaks = marks + heads * p.sq * 4;
    flags = peaks + heads / p.group * (kShares * 2 * 4);
  }
};

namespace fixed {

constexpr int kNothing = -512;  // the size of zeros, less than what others may make of it
constexpr uint32_t kInfinity = 0x7f800000u;
constexpr uint32_t kNaN = 0x7fc00000u;

WMMA_DEVICE int exponent_of(float x) { return static_cast<int>(arch::bit_cast<uint32_t>(x) >> 23 & 0xffu) - 127; }
WMMA_DEVICE bool is_number(float x) { return (arch::bit_cast<uint32_t>(x) & kInfinity) != kInfinity; }
WMMA_DEVICE int size_of(float x) { return exponent_of(x) + 1; }

WMMA_DEVICE int size_of_squares(float squares) { return (exponent_of(squares) + 2) >> 1; }

// Of a row, of which each of kLanes neighbouring lanes has kCount numbers.
template <int kLanes, int kCount, class T>
WMMA_DEVICE float sum_of_squares(const T (&values)[kCount], float factor) {
  float squares = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const float x = convert<float>(values[i]) * factor;
    squares = arch::fma(x, x, squares);
  }
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) squares += shuffle_xor(squares, mask);
  return squares;
}
// Whether it tells the size.
WMMA_DEVICE bool is_near(float squares) { return squares > 0x1p-60f && squares < 0x1p120f; }

// 2^x, and its inverse, of exponents that floats have.
WMMA_DEVICE int biased(int x) { return detail::lower(detail::upper(x + 127, 1), 253); }
WMMA_DEVICE float power(int x) { return arch::bit_cast<float>(static_cast<uint32_t>(biased(x)) << 23); }
WMMA_DEVICE float inverse_power(int x) { return arch::bit_cast<float>(static_cast<uint32_t>(254 - biased(x)) << 23); }

// Of kLanes neighbouring lanes.
template <int kLanes>
WMMA_DEVICE int largest_of(int x) {
#pragma unroll
  for (int mask = 1; mask < kLanes; mask *= 2) x = detail::upper(x, shuffle_xor(x, mask));
  return x;
}

// The size of any row, and whether it has numbers alone: by squares of numbers that are 4 at most.
template <int kLanes, int kCount, class T>
WMMA_DEVICE int size_of_far_row(const T (&values)[kCount], bool& are_numbers) {
  int largest = 0;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const uint32_t bits = arch::bit_cast<uint32_t>(convert<float>(values[i]));
    largest = detail::upper(largest, static_cast<int>(bits & 0x7fffffffu));
  }
  largest = largest_of<kLanes>(largest);
  are_numbers = largest < static_cast<int>(kInfinity);
  const int exponent = biased((largest >> 23) - 127) - 127;
  const float inverse = inverse_power(exponent);
  return largest == 0 ? kNothing : exponent + size_of_squares(sum_of_squares<kLanes>(values, inverse));
}
template <int kLanes, int kCount, class T>
WMMA_DEVICE int size_of_row(const T (&values)[kCount], bool& are_numbers) {
  const float squares = sum_of_squares<kLanes>(values, 1.0f);
  are_numbers = true;
  if (arch::ballot(!is_near(squares)) == 0) return size_of_squares(squares);
  return size_of_far_row<kLanes>(values, are_numbers);
}

// Of a share of a head's rows of K or V, those that are numbers: the largest size, by one wave, some rows at once.
template <int kShares, int kWidth, class T>
WMMA_DEVICE int peak(const AttentionOperand& x, const T* rows, int count, int share, uint32_t lane) {
  constexpr int kLanes = kWidth / 8;  // of a row
  constexpr int kRows = arch::kWaveSize / kLanes;
  constexpr int kAtOnce = 8;
  int largest = kNothing;
  for (int first = share * kRows; first < count; first += kShares * kRows * kAtOnce) {
    alignas(16) T values[kAtOnce][8];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int row = first + n * kShares * kRows + static_cast<int>(lane / kLanes);
      arch::copy<8>(values[n], rows + detail::lower(row, count - 1) * x.row_stride + lane % kLanes * 8);
    }
    float squares[kAtOnce];
    bool are_near = true;
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      squares[n] = sum_of_squares<kLanes>(values[n], 1.0f);
      are_near = are_near && is_near(squares[n]);
    }
    if (arch::ballot(!are_near) == 0) {
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) largest = detail::upper(largest, size_of_squares(squares[n]));
    } else {
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        bool are_numbers;
        const int size = size_of_far_row<kLanes>(values[n], are_numbers);
        largest = are_numbers ? detail::upper(largest, size) : largest;
      }
    }
  }
  return largest_of<arch::kWaveSize>(largest);
}

// The first kernel's block, whose waves each have a share of a head's values or of its keys.
template <class Config, class Places>
WMMA_DEVICE void find_peaks(const AttentionArguments& p, const Places& places, uint32_t block) {
  using T = typename Config::Element;
  constexpr uint32_t kShares = Places::kShares;
  const uint32_t at = block * (Config::kThreads / arch::kWaveSize) + uniform(threadIdx.x / arch::kWaveSize);
  const uint32_t share = at / 2 % kShares;
  const uint32_t heads = p.heads / p.group;
  const uint32_t batch = at / (2 * kShares) / heads;
  const uint32_t head = at / (2 * kShares) % heads;
  const uint32_t lane = lane_id();
  const int found =
      at % 2 == 0 ? peak<kShares, Config::kValueDepth>(p.v, matrix_of<const T>(p.v, batch, head), p.skv, share, lane)
                  : peak<kShares, Config::kDepth>(p.k, matrix_of<const T>(p.k, batch, head), p.skv, share, lane);
  if (lane == 0) reinterpret_cast<int*>(places.peaks)[at] = found;
  if (lane == 0 && at % (2 * kShares) == 0) reinterpret_cast<uint32_t*>(places.flags)[at / (2 * kShares)] = 0;
}

// A bit of each of a word's two halves: whether it is no number.
template <class T>
WMMA_DEVICE uint32_t none_of(uint32_t word) {
  constexpr uint32_t kExponents = kSame<T, bf16_t> ? 0x7f807f80u : 0x7c007c00u;
  constexpr uint32_t kUnits = kSame<T, bf16_t> ? 0x00800080u : 0x04000400u;
  return ((word & kExponents) + kUnits) & 0x80008000u;
}

// Whether a lane's chunks have one. Copies of them are looked at: products take the chunks from whatever registers.
template <class T, int kSteps, int kChunks>
WMMA_DEVICE bool has_none(const Chunk (&chunks)[kSteps][kChunks]) {
  uint32_t none = 0;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
#pragma unroll
    for (int i = 0; i < 4 * kChunks; ++i) none |= none_of<T>(arch::unshared(chunks[step][i / 4].words[i % 4]));
  }
  return none != 0;
}

// They become 0 in a tile of kLines lines of kChunks chunks.
template <class T, class Tile, uint32_t kLines, uint32_t kChunks, uint32_t kThreads>
WMMA_DEVICE void drop_none(unsigned char* tile) {
  for (uint32_t at = threadIdx.x; at < kLines * kChunks; at += kThreads) {
    unsigned char* to = tile + Tile::offset(at / kChunks, at % kChunks);
    Chunk chunk;
    arch::copy_bytes<16>(&chunk, __builtin_assume_aligned(to, 16));
    uint32_t none = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const uint32_t these = none_of<T>(chunk.words[i]);
      chunk.words[i] &= ~((these >> 15) * 0xffffu);
      none |= these;
    }
    if (none != 0) arch::copy_bytes<16>(__builtin_assume_aligned(to, 16), &chunk);
  }
}

// Marks queries that see a key with a number that is none, among a wave's keys from first_key on, whose chunks lanes
// have, lane by lane from each kKeys-th on.
template <class Config, int kKeys, class Place, int kSteps, int kChunks>
WMMA_DEVICE void mark_queries(const typename Config::Rules::Arguments& p, const Place& place,
                              const Chunk (&keys)[kSteps][kChunks], int first_key, uint32_t lane) {
  using Sight = wmma::Sight<Config::kCausal, typename Config::Rules>;
  using Places = FixedPlaces<Config::kOthers * Config::kDepth>;
  uint64_t left = arch::ballot(has_none<typename Config::Element>(keys));
  while (left != 0) {
    const int key = detail::lower(first_key + arch::lowest_bit(left) % kKeys, p.skv - 1);
    const int64_t head = static_cast<int64_t>(place.batch) * p.heads + place.head * p.group;
    uint32_t* marks = reinterpret_cast<uint32_t*>(Places(p).marks) + head * p.sq;
    for (int row = static_cast<int>(lane); row < p.group * p.sq; row += arch::kWaveSize) {
      if (Sight::sees(p, row % p.sq, key)) marks[row] = kNaN;
    }
    left &= left - 1;
  }
}

// Where g_S became infinite, which its type holds no more of, so did g_K, of which a wave has `sums`: it tells so at
// the head's `flag`.
template <int kSums>
WMMA_DEVICE void mark_infinite(const float (&sums)[kSums], uint64_t flag) {
  float nothing = 0.0f;
#pragma unroll
  for (int i = 0; i < kSums; ++i) nothing = arch::fma(sums[i], 0.0f, nothing);
  if (arch::ballot(!is_number(nothing)) != 0) *reinterpret_cast<uint32_t*>(flag) = kNaN;
}

// Then none of its queries has a result. But not where one of them is marked: that is in g_K, too.
template <class Places>
WMMA_DEVICE bool is_infinite(const AttentionArguments& p, const Places& places, uint32_t head) {
  if (reinterpret_cast<const uint32_t*>(places.flags)[head] != kNaN) return false;
  const int rows = p.group * p.sq;
  const uint32_t* marks = reinterpret_cast<const uint32_t*>(places.marks) + static_cast<int64_t>(head) * rows;
  for (int first = 0; first < rows; first += arch::kWaveSize) {
    if (arch::ballot(marks[detail::lower(first + static_cast<int>(lane_id()), rows - 1)] != 0) != 0) return false;
  }
  return true;
}

// What a sum of a query of size 0 is multiplied by, as an exponent; of size s, s less. `head` is one of the keys', of
// all batches. All lanes of a wave ask.
template <class Places>
WMMA_DEVICE int unit_of_head(const AttentionArguments& p, const Places& places, uint32_t head) {
  const int* peaks = reinterpret_cast<const int*>(places.peaks) + (head * Places::kShares + lane_id()) * 2;
  const int values = largest_of<arch::kWaveSize>(peaks[0]);
  const int keys = largest_of<arch::kWaveSize>(peaks[1]);
  const int slopes = p.g_lse.data != nullptr ? detail::upper(values, 0) + 1 : values;
  return static_cast<int>(uniform(static_cast<uint32_t>(30 - slopes - keys)));
}

}  // namespace fixed

}  // namespace wmma
