// Each thread's indices and sizes, 16 words a thread in the order of block and thread rank; then one printed record
// from the first thread of each block, where print_capacity is not 0.
#include <wmma/grid.hpp>

extern "C" __global__ void grid(unsigned* out, unsigned* print_buffer, unsigned print_capacity) {
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
  WMMA_ASSERT(wave_id() < wave_count());
  if (print_capacity != 0 && thread_rank() == 0) print(print_buffer, print_capacity, 7u, block_rank(), -1, 0.5f);
}
