// The softmax of attention's forward kernel as keys come tile by tile: each row's results are relative to the largest
// score so far, and follow it. RunningSoftmax is one of three:
//
//   FollowingSoftmax   a row's results follow before its scores become weights
//   SoftmaxAtOnce      the same, but where all keys count no score is looked at: sums of weights tell that one grew
//   DeferredSoftmax    results follow later, when the products that are under way meanwhile are there
#pragma once

#include <wmma/attention/softmax/at_once.hpp>
#include <wmma/attention/softmax/deferred.hpp>

namespace wmma {

// When a loop's products are there that its results are made of.
enum class Products { kBefore, kInPingPong, kUnderWay };

template <class Config, class Link, Products kProducts, bool kPingPong = kProducts == Products::kInPingPong>
using RunningSoftmax =
    Choose<kProducts == Products::kUnderWay, DeferredSoftmax<Config, Link, false>,
           Choose<SoftmaxRows<Config, Link, kPingPong>::kAtOnce, SoftmaxAtOnce<Config, Link, kPingPong>,
                  FollowingSoftmax<Config, Link, kPingPong>>>;

}  // namespace wmma
