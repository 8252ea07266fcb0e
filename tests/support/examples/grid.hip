// Each thread's indices and sizes, 16 words a thread in the order of block and thread rank; then one printed line
// from the first thread of each block.
#include <wmma/grid.hpp>
#include <wmma/print.hpp>

extern "C" __global__ void grid(unsigned* out) {
  using namespace wmma;
  unsigned* const words = out + 16 * (block_rank() * block_threads() + thread_rank());
  words[0] = threadIdx.x;
  words[1] = threadIdx.y;
  words[2] = threadIdx.z;
  words[3] = blockIdx.x;
  words[4] = blockIdx.y;
  words[5] = blockIdx.z;
  words[6] = blockDim.x;
  words[7] = blockDim.y;
  words[8] = blockDim.z;
  words[9] = gridDim.x;
  words[10] = gridDim.y;
  words[11] = gridDim.z;
  words[12] = lane_id();
  words[13] = wave_id();
  words[14] = wave_count();
  words[15] = kWaveSize;
  WMMA_ASSERT(wave_id() < wave_count(), "of %u waves", wave_count());
  if (thread_rank() == 0) print("block %u has %u threads\n", block_rank(), block_threads());
}
