"""In which order sums may be."""

import torch


def allow_unordered_sums(allow: bool = True) -> None:
    """Lets kernels add to a sum in whatever order they come, where that is faster: the last bits of a result then differ
    from run to run. Without it results have the same bits each time.

    So far it is about the gradients of queries, of `attention` on gfx90a, gfx942 and gfx950, 16-bit types, head sizes 64 and
    128: one kernel computes all gradients, and blocks add to the queries' by float32 atomics. It holds for the process, all
    threads and compiled graphs in it, from the next call on. `torch.use_deterministic_algorithms(True)` goes before it.
    """
    torch.ops.wmma._allow_unordered(allow)
