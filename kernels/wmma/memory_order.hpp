// What an atomic orders and who sees it so, as C++ and HIP name it.
#pragma once

#include <wmma/target.hpp>

namespace wmma {

// relaxed orders nothing but the place itself. acquire: what comes after sees what was before the release that it read;
// release: the other side of it; acq_rel: both; seq_cst: both, in one order for all that are seq_cst. (clang's
// numbers.)
enum class memory_order : int { relaxed = 0, acquire = 2, release = 3, acq_rel = 4, seq_cst = 5 };

// Whose accesses an atomic is one with: a wave's, a block's, the device's, or those of the host and other devices too.
// NVIDIA takes wave as block. (HIP's numbers.)
enum class memory_scope : int { wave = 2, block = 3, device = 4, system = 5 };

}  // namespace wmma
