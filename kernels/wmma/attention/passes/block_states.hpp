// A mask function's block mask: for each block of scores whether it shows any, and whether it shows all. A wave looks
// at a block, until it knows.
#pragma once

#include <wmma/attention/rows/blocks.hpp>
#include <wmma/attention/terms/window.hpp>

namespace wmma {

// Config: kThreads, and whether the function tells batches, or heads, apart (kOfBatches, kOfHeads).
template <class Config>
struct BlockStates {
  using Rules = typename Config::Rules;
  using Sight = wmma::Sight<Config::kCausal, Rules>;
  static constexpr int kWave = static_cast<int>(arch::kWaveSize);
  static_assert(Rules::kBlockKeys % kWave == 0, "all lanes have keys");

  static WMMA_DEVICE void run(const typename Rules::Arguments& p) {
    const uint32_t columns = (p.skv + Rules::kBlockKeys - 1) / Rules::kBlockKeys;
    const uint32_t rows = (p.sq + Rules::kBlockQueries - 1) / Rules::kBlockQueries;
    const uint32_t heads = Config::kOfHeads ? p.heads : 1;
    const uint32_t index = blockIdx.x * (Config::kThreads / kWave) + uniform(threadIdx.x / arch::kWaveSize);
    const uint32_t column = index % columns;
    const uint32_t row = index / columns % rows;
    const uint32_t head = index / columns / rows % heads;
    const uint32_t batch = index / columns / rows / heads;
    if (batch >= (Config::kOfBatches ? p.batch : 1)) return;
    const int8_t state = state_of(p, batch, head, row * Rules::kBlockQueries, column * Rules::kBlockKeys);
    const AttentionOperand& to = p.rules.blocks;
    if (lane_id() == 0) const_cast<int8_t*>(block_line(to, batch, head, row * to.row_stride))[column] = state;
  }

 private:
  template <class Arguments>
  static WMMA_DEVICE int8_t state_of(const Arguments& p, uint32_t batch, uint32_t head, int first_query,
                                     int first_key) {
    const int queries_end = detail::lower(first_query + Rules::kBlockQueries, p.sq);
    const int keys_end = detail::lower(first_key + Rules::kBlockKeys, p.skv);
    // What bounds hide nobody looks at.
    if (Sight::keys_end(p, queries_end - 1, 0, p.skv) <= first_key) return kBlockAbsent;
    if (Sight::first_key(p, first_query, 0, p.skv) >= keys_end) return kBlockAbsent;
    constexpr int kInFlight = 4;  // queries whose reads are in flight
    bool any = false;
    bool all = true;
    for (int from = first_query; from < queries_end && !(any && !all); from += kInFlight) {
      bool shows = false;
      bool hides = false;
#pragma unroll
      for (int i = 0; i < kInFlight * Rules::kBlockKeys; i += kWave) {
        const int query = from + i / Rules::kBlockKeys;
        const int key = first_key + i % Rules::kBlockKeys + static_cast<int>(lane_id());
        const bool there = query < queries_end && key < keys_end;
        const bool shown = Rules::Functions::shows(p.functions, static_cast<int>(p.rules.first_batch + batch),
                                                   static_cast<int>(head), query, key);
        shows = shows || (there && shown);
        hides = hides || (there && !shown);
      }
      any = any || arch::ballot(shows) != 0;
      all = all && arch::ballot(hides) == 0;
    }
    return any ? all ? kBlockWhole : kBlockMasked : kBlockAbsent;
  }
};

}  // namespace wmma
