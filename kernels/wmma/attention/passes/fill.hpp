// What no packed sequence has of results: filled beside attention's own kernel, with the list of its tiles where
// these are scheduled dynamically. In which pages keys lie is then near the units by the time that they ask.
#pragma once

#include <wmma/arch/sm90.hpp>
#include <wmma/attention/balanced/tile_list.hpp>

namespace wmma {

template <class Config>
struct Fill {
  template <class Arguments>
  static WMMA_DEVICE void run(const Arguments& p) {
    arch::let_next_start();
    if constexpr (Config::kLists) {
      if (blockIdx.x == 0) TileListWriter<Config>::run(p);
      if constexpr (Config::Rules::kPageSize > 0) {
        const int sequence = static_cast<int>(blockIdx.x);
        if (sequence < p.sequences.count) {
          prefetch_table(p, sequence, Config::Rules::kPageSize, threadIdx.x, Config::kThreads);
        }
      }
    }
    SequencesRest<Config>(p.sequences, static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x)).run(p);
  }
};

}  // namespace wmma
