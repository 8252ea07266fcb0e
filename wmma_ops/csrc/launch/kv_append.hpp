// Runs kv_append by a kernel of our own, on a GPU or under emulation.
#pragma once

#include "calls/kv_append.hpp"
#include "launch/launch.hpp"

namespace wmma_ops::launch {

void kv_append(const KvAppend& p, const Way& way);

}  // namespace wmma_ops::launch
