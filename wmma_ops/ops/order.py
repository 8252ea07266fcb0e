"""In which order sums may be."""

import torch

from wmma_ops.ops.neighbours import answering


@answering
def allow_unordered_sums(allow: bool = True) -> None:
    """Lets kernels add to a sum in whatever order they come, where that is faster: the last bits of a result then differ
    from run to run. Without it results have the same bits each time.

    It is about the gradients of `attention` on gfx90a, gfx942 and gfx950, of 16-bit types with head sizes 64 and 128 and
    without a mask: one kernel computes all of them, and its blocks add to the queries' by float32 atomics, without it in
    whole numbers, each query's in units of its own. It holds for the process, all threads and compiled graphs in it, from
    the next call on. `torch.use_deterministic_algorithms(True)` goes before it.

    Args:
        allow: Whether they may.

    Examples:
        >>> import wmma_ops
        >>> wmma_ops.allow_unordered_sums()
        >>> wmma_ops.allow_unordered_sums(False)
    """
    torch.ops.wmma._allow_unordered(allow)
