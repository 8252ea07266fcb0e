// Dropout of attention's weights. Each row of scores, a query of a head, has two words of Philox4x32-10 (Salmon and
// others, 2011): its key is the seed, its counter the query, the head, the batch's index and 0. A key's number, mixed
// with them by the rounds of lowbias32 (Wellons, 2018), is kept where it is below the threshold. Nothing of it depends
// on how a kernel goes through the scores. wmma_ops/ops/dropout.py says the same to torch; included by the host library
// too.
#pragma once

#include <wmma/attention/arguments.hpp>

#ifndef WMMA_CONSTEXPR
#define WMMA_CONSTEXPR constexpr
#endif

namespace wmma {

struct DropoutRow {
  unsigned first;
  unsigned second;
};

WMMA_CONSTEXPR DropoutRow dropout_row(long long seed, unsigned query, unsigned head, unsigned batch) {
  unsigned counter[4] = {query, head, batch, 0};
  unsigned key[2] = {static_cast<unsigned>(seed), static_cast<unsigned>(static_cast<unsigned long long>(seed) >> 32)};
  for (int round = 0; round < 10; ++round) {
    const unsigned long long even = 0xD2511F53ull * counter[0];
    const unsigned long long odd = 0xCD9E8D57ull * counter[2];
    counter[0] = static_cast<unsigned>(odd >> 32) ^ counter[1] ^ key[0];
    counter[1] = static_cast<unsigned>(odd);
    counter[2] = static_cast<unsigned>(even >> 32) ^ counter[3] ^ key[1];
    counter[3] = static_cast<unsigned>(even);
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return {counter[0], counter[1]};
}

WMMA_CONSTEXPR bool keeps(const DropoutRow& row, unsigned key, unsigned threshold) {
  unsigned x = key ^ row.first;
  x = (x ^ (x >> 16)) * 0x7FEB352Du;
  x = (x ^ (x >> 15) ^ row.second) * 0x846CA68Bu;
  return x < threshold;
}

template <class Others>
struct DropoutRules : Others {
  using Arguments = RuledAttentionArguments;
  static constexpr bool kDrops = true;
};

// The row of scores of a query of a head.
template <class Arguments>
WMMA_CONSTEXPR DropoutRow dropout_row_of(const Arguments& p, unsigned batch, unsigned head, unsigned query) {
  return dropout_row(*p.rules.seed, query, head, p.rules.first_batch + batch);
}

}  // namespace wmma
