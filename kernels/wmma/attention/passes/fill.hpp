// What no packed sequence has of results: filled beside attention's own kernel, with the list of its tiles where
// these are scheduled dynamically.
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
    }
    SequencesRest<Config>(static_cast<int>(blockIdx.x)).run(p);
  }
};

}  // namespace wmma
