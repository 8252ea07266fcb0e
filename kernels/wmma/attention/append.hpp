// New keys and values into the pages of their sequences, each thread a chunk of a row at a time; keys turned by the
// angles of their places, if there are any. Pages of numbers of 8 bits have them divided by the descales of attention,
// and nothing beyond the largest such number. What a sequence's numbers leave no place for, or what has no angles, is
// not written.
#pragma once

#include <wmma/attention/rows/varlen.hpp>
#include <wmma/tile/rounding.hpp>

namespace wmma {

template <class Config>
class KvAppend {
  using T = typename Config::Element;
  using Stored = typename Config::Stored;
  using Angle = typename Config::Angle;
  using Number = typename ComputeType<T>::Type;
  static constexpr bool kNarrow = !kSame<Stored, T>;
  using Kept = Choose<kNarrow, Number, T>;  // until it is stored
  static constexpr int kVec = Config::kVec;
  static constexpr int kKeyChunks = Config::kKeySize / kVec;
  static constexpr int kChunks = kKeyChunks + Config::kValueSize / kVec;  // of a token's head
  static_assert(Config::kKeySize % kVec == 0 && Config::kValueSize % kVec == 0, "whole chunks");
  static_assert(2 * Config::kAngles <= Config::kKeySize, "two elements an angle");

 public:
  static WMMA_DEVICE void run(const AppendArguments& p) {
    const int64_t count = static_cast<int64_t>(p.tokens) * Config::kHeads * kChunks;
    const int64_t step = static_cast<int64_t>(gridDim.x) * Config::kThreads;
    for (int64_t at = static_cast<int64_t>(blockIdx.x) * Config::kThreads + threadIdx.x; at < count; at += step) {
      const int chunk = static_cast<int>(at % kChunks);
      const int64_t row = at / kChunks;
      append(p, static_cast<int>(row / Config::kHeads), static_cast<int>(row % Config::kHeads), chunk);
    }
  }

 private:
  static WMMA_DEVICE void append(const AppendArguments& p, int token, int head, int chunk) {
    // 1. The sequence: the last that starts at the token or before it.
    int sequence = 0;
    for (int end = p.count; end - sequence > 1;) {
      const int middle = (sequence + end) / 2;
      if (number_at(p.starts, middle) <= token) {
        sequence = middle;
      } else {
        end = middle;
      }
    }
    const int64_t end = number_at(p.starts, sequence + 1);
    if (token < number_at(p.starts, sequence) || token >= end) return;
    // 2. Its place there, and the page.
    const int64_t place = number_at(p.used, sequence) - (end - token);
    if (place < 0 || place >= static_cast<int64_t>(p.columns) * Config::kPageSize) return;
    const int32_t* table = static_cast<const int32_t*>(p.pages.table) + sequence * p.pages.sequence_stride;
    if (Config::kAngles > 0 && place >= p.places) return;
    const int page = table[place / Config::kPageSize * p.pages.column_stride];
    if (page < 0 || page >= p.pages.count) return;
    const auto row_of = [&](const AttentionOperand& x) {
      Stored* const rows = static_cast<Stored*>(const_cast<void*>(x.data));
      return rows + page * x.batch_stride + place % Config::kPageSize * x.row_stride + head * x.head_stride;
    };
    // 3. The chunk.
    const bool is_key = chunk < kKeyChunks;
    const AttentionOperand& from = is_key ? p.key : p.value;
    const AttentionOperand& to = is_key ? p.key_pages : p.value_pages;
    const int column = (is_key ? chunk : chunk - kKeyChunks) * kVec;
    const T* const x = static_cast<const T*>(from.data) + token * from.row_stride + head * from.head_stride;
    alignas(16) Kept values[kVec];
    if constexpr (kNarrow) {
      alignas(16) T came[kVec];
      arch::copy<kVec>(came, x + column * from.column_stride);
#pragma unroll
      for (int i = 0; i < kVec; ++i) values[i] = convert<Number>(came[i]);
    } else {
      arch::copy<kVec>(values, x + column * from.column_stride);
    }
    if constexpr (Config::kAngles > 0) {
      if (is_key) turn(p, values, x, column, place);
    }
    if constexpr (kNarrow) {
      const Number descale = descale_at(is_key ? p.k_descale : p.v_descale, sequence, head);
      alignas(16) Stored stored[kVec];
#pragma unroll
      for (int i = 0; i < kVec; ++i) stored[i] = saturated(values[i] / descale);
      arch::copy<kVec>(row_of(to) + column * to.column_stride, stored);
    } else {
      arch::copy<kVec>(row_of(to) + column * to.column_stride, values);
    }
  }

  // A NaN stays one.
  static WMMA_DEVICE Stored saturated(float x) {
    static_assert(kSame<Stored, fp8_e4m3_t>, "whose largest number this is");
    constexpr float kLargest = 448.0f;
    return convert<Stored>(x > kLargest ? kLargest : x < -kLargest ? -kLargest : x);
  }

  // Elements c and c + kAngles, or neighbours, are the two sides of a plane: (a·cos − b·sin, b·cos + a·sin).
  static WMMA_DEVICE void turn(const AppendArguments& p, Kept* values, const T* x, int column, int64_t place) {
#pragma unroll
    for (int i = 0; i < kVec; ++i) {
      const int c = column + i;
      if (c >= 2 * Config::kAngles) return;
      const bool is_first = Config::kInterleaved ? c % 2 == 0 : c < Config::kAngles;
      const int angle = Config::kInterleaved ? c / 2 : is_first ? c : c - Config::kAngles;
      const int away = Config::kInterleaved ? 1 : Config::kAngles;
      const Number other = convert<Number>(x[(is_first ? c + away : c - away) * p.key.column_stride]);
      const Number sin = angle_at(p.sin, place, angle);
      values[i] = convert<Kept>(
          arch::fma(convert<Number>(values[i]), angle_at(p.cos, place, angle), is_first ? -other * sin : other * sin));
    }
  }
  static WMMA_DEVICE Number angle_at(const AttentionOperand& x, int64_t row, int angle) {
    return convert<Number>(static_cast<const Angle*>(x.data)[row * x.row_stride + angle * x.column_stride]);
  }
};

}  // namespace wmma
