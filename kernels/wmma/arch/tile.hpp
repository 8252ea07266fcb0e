// The tiles of the target's matrix instructions.
#pragma once

#include <wmma/target.hpp>

#if defined(WMMA_CDNA)
#include <wmma/arch/cdna.hpp>
#elif defined(WMMA_RDNA3)
#include <wmma/arch/rdna3.hpp>
#elif defined(WMMA_RDNA4)
#include <wmma/arch/rdna4.hpp>
#else
#include <wmma/arch/sm80.hpp>
#endif
