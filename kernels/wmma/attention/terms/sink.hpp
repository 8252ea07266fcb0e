// Sinks: a head's is one more score of each of its rows, of a key without a value.
#pragma once

#include <wmma/attention/rows/dense.hpp>

namespace wmma {

template <class Others, class Sink>
struct SinkRules : Others {
  using Arguments = RuledAttentionArguments;
  static constexpr bool kSinks = true;
  // That of a row, in Math's unit.
  template <class Number, class Math, class Arguments, class Place>
  static WMMA_DEVICE Number sink_of(const Arguments& p, const Place& place, uint32_t row) {
    return convert<Number>(static_cast<const Sink*>(p.rules.sinks.data)[place.offset(p.rules.sinks, row)]) *
           Number(Math::kUnit);
  }
};

}  // namespace wmma
