// What lanes can do together: shuffles of every kind and width, votes, atomics, fences, the clock. One block of one
// wave. words: 12 a lane, then the votes; doubles: one a lane.
#include <wmma/grid.hpp>

extern "C" __global__ void lanes(int* words, double* doubles, int* counters, float* sums) {
  using namespace wmma;
  const int lane = static_cast<int>(lane_id());
  int* const mine = words + 12 * lane;
  // 1. Shuffles: from an index, up, down and across, in the whole wave and in groups of 8.
  mine[0] = shuffle(10 * lane, 5);
  mine[1] = shuffle(10 * lane, 3, 8);
  mine[2] = shuffle_up(10 * lane, 2);
  mine[3] = shuffle_up(10 * lane, 2, 8);
  mine[4] = shuffle_down(10 * lane, 2);
  mine[5] = shuffle_down(10 * lane, 2, 8);
  mine[6] = shuffle_xor(10 * lane, 9);
  mine[7] = shuffle_xor(10 * lane, 9, 8);
  doubles[lane] = shuffle_xor(0.1 * lane, 1);
  // 2. Votes.
  mine[8] = static_cast<int>(vote_ballot(lane % 3 == 0));
  mine[9] = vote_any(lane == 7) + 2 * vote_any(lane > 1000) + 4 * vote_all(lane >= 0) + 8 * vote_all(lane > 0);
  mine[10] = count_bits(vote_ballot(lane % 3 == 0));
  // 3. Atomics: each returns what was there before.
  const uint64_t start = clock_cycles();
  atomic_add(counters + 0, lane);
  atomic_min(counters + 1, -lane);
  atomic_max(counters + 2, lane);
  atomic_and(counters + 3, ~(1 << (lane % 8)));
  atomic_or(counters + 4, 1 << (lane % 8));
  atomic_xor(counters + 5, 1);
  if (lane == 3) counters[7] = atomic_exchange(counters + 6, 41);
  if (lane == 4) counters[9] = atomic_cas(counters + 8, 0, 17);
  if (lane == 4) counters[10] = atomic_cas(counters + 8, 0, 99);
  atomic_add(sums, 0.5f);
  fence_block();
  fence_device();
  fence_system();
  mine[11] = clock_cycles() > start;
}
