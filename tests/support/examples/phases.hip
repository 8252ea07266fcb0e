// y = x / largest of x, in one launch: the grid meets between the phases. x has no negative numbers; the caller sets
// largest to 0. Any grid that is on the device at once, blocks of whole waves.
#include <wmma/block.hpp>
#include <wmma/grid.hpp>
#include <wmma/grid_sync.hpp>
#include <wmma/math.hpp>

using namespace wmma;

extern "C" __global__ void phases(const float* x, float* y, float* largest, int n) {
  const int first = block_rank() * block_threads() + thread_rank();
  const int step = gridDim.x * block_threads();
  float most = 0.0f;
  for (int i = first; i < n; i += step) most = fast_max(most, x[i]);
  most = block_max(most);
  if (thread_rank() == 0) atomic_max(largest, most);
  sync_grid();
  const float all = atomic_load(largest);
  for (int i = first; i < n; i += step) y[i] = x[i] / all;
  if (vote_any_sync(kAllLanes, all <= 0.0f)) trap();
  if (shuffle_up_sync(kAllLanes, all, 1) != all) trap();
}
