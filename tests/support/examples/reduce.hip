// Sum, largest value and number of positive values of x[0..count), over a grid of any size and blocks of whole waves.
// The caller sets sum 0, largest −infinity, positives 0. Shared memory: one float a wave, dynamic.
#include <wmma/grid.hpp>

extern "C" __global__ void reduce(int count, const float* x, float* sum, float* largest, int* positives) {
  using namespace wmma;
  float* const wave_sums = dynamic_shared<float>();
  __shared__ float block_largest;
  if (threadIdx.x == 0) block_largest = x[0];
  sync_workgroup();

  float total = 0.0f;
  float top = x[0];
  for (uint32_t base = blockIdx.x * blockDim.x; base < static_cast<uint32_t>(count); base += gridDim.x * blockDim.x) {
    const uint32_t i = base + threadIdx.x;
    const bool inside = i < static_cast<uint32_t>(count);
    const float value = inside ? x[i] : 0.0f;
    total += value;
    if (inside && value > top) top = value;
    const int votes = count_bits(vote_ballot(value > 0.0f));
    if (vote_any(value > 0.0f) && lane_id() == 0) atomic_add(positives, votes);
  }

  // 1. Within the wave: the sum by rotating halves, the maximum to lane 0.
  for (int step = kWaveSize / 2; step > 0; step /= 2) {
    total += shuffle_xor(total, step);
    const float other = shuffle_down(top, step);
    if (other > top) top = other;
  }
  // 2. Across the waves of the block.
  if (lane_id() == 0) {
    wave_sums[wave_id()] = total;
    atomic_max(&block_largest, top);
  }
  sync_workgroup();
  // 3. Across the grid.
  if (threadIdx.x == 0) {
    float block_sum = 0.0f;
    for (uint32_t i = 0; i < wave_count(); ++i) block_sum += wave_sums[i];
    atomic_add(sum, block_sum);
    atomic_max(largest, block_largest);
  }
}
