"""Block masks: which blocks of scores there are, so that kernels load no keys of the others."""

from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakKeyDictionary

import torch

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

Tensor = torch.Tensor

# What a block is, as kernels/wmma/attention/rows/blocks.hpp has it: masked ones hold what a mask function shows.
ABSENT, MASKED, WHOLE = 0, 1, 2
STEP = 32  # sizes of blocks are multiples of it


class Blocks(NamedTuple):
    """A block mask: which blocks of scores there are.

    Args:
        states: int8 ``[..., heads, blocks of queries, blocks of keys]``. 0 is a block that no query sees; 1 one of which
            queries see what a mask function shows them (all, if there is none); 2 one that all of its queries see.
            Dimensions of 1, or that are left out, stand for every batch or head.
        queries: how many a block has, a multiple of 32. The last one may have fewer.
        keys: likewise.

    Examples:
        >>> import torch, wmma_ops
        >>> q = torch.randn(1, 2, 64, 16)
        >>> blocks = wmma_ops.Blocks(torch.tensor([[2, 0], [0, 2]], dtype=torch.int8), 32, 32)  # the halves are apart
        >>> out, lse = wmma_ops.attention(q, q, q, block_mask=blocks)
        >>> half = q[:, :, :32]
        >>> torch.allclose(out[:, :, :32], wmma_ops.attention(half, half, half)[0], atol=1e-6)
        True
    """

    states: Tensor
    queries: int
    keys: int

    def of_scores(self, first: int, rows, keys) -> Tensor:
        """What the block of each score is, of the rows from `first` on."""
        # No block is repeated more often than there are scores, however large it is.
        states = self.states.repeat_interleave(torch.sym_min(self.queries, first + rows), -2)
        states = states[..., first : first + rows, :]
        return states.repeat_interleave(torch.sym_min(self.keys, keys), -1)[..., :keys]

    def at(self, batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        """The same of scores at these places, which broadcast to them."""
        outer = (1,) * (4 - self.states.dim())
        states = self.states.view(*outer, *self.states.shape)
        batch, head = (x if states.shape[dim] > 1 else 0 * x for dim, x in enumerate((batch, head)))
        query, key = (torch.div(x, n, rounding_mode="floor") for x, n in ((query, self.queries), (key, self.keys)))
        return states[batch, head, query, key]


def blocks_given(states: Tensor | None, queries: int, keys: int) -> Blocks | None:
    """As the ops are given them."""
    return None if states is None else Blocks(states, queries, keys)


def shown_by(states: Tensor, by_function: Tensor | None) -> Tensor:
    """Which scores count, whose blocks are these."""
    return states != ABSENT if by_function is None else (states == WHOLE) | ((states == MASKED) & by_function)


def is_noop_mask(function) -> bool:
    """Whether it is what FlexAttention has where a block mask is all there is."""
    return getattr(function, "__name__", "") == "noop_mask"


# What a BlockMask is as states; of which lists, and of which versions of these.
_made: "WeakKeyDictionary[BlockMask, tuple[tuple, tuple, Blocks]]" = WeakKeyDictionary()


def from_flex(block_mask: "BlockMask") -> Blocks:
    """Of FlexAttention's."""
    masked = (block_mask.kv_num_blocks, block_mask.kv_indices)
    lists = (*masked, block_mask.full_kv_num_blocks, block_mask.full_kv_indices)
    if torch.compiler.is_compiling() or any(
        x is not None and (type(x) is not Tensor or x.is_inference()) for x in lists
    ):
        return from_lists(*lists, *block_mask.BLOCK_SIZE)
    # A model has one for all its layers and steps.
    versions = tuple(0 if x is None else x._version for x in lists)
    known, of, found = _made.get(block_mask, ((), (), None))
    if found is None or of != versions or any(x is not y for x, y in zip(known, lists, strict=True)):
        found = from_lists(*lists, *block_mask.BLOCK_SIZE)
        if _lasts(found.states):
            _made[block_mask] = (lists, versions, found)
    return found


def _lasts(x: Tensor) -> bool:
    """Whether it is there for any later call: training takes no tensors of inference, and a graph's memory is its own."""
    captured = x.is_cuda and torch.cuda.is_current_stream_capturing()
    return type(x) is Tensor and not x.is_inference() and not captured


def from_lists(counts, indices, whole_counts, whole_indices, queries: int, keys: int) -> Blocks:
    """Of the blocks of keys that each block of queries sees, in part and as a whole: lists, and how long they are."""
    columns = indices.shape[-1]
    states = torch.zeros(*indices.shape[:-1], columns + 1, dtype=torch.int8, device=indices.device)
    for number, of, state in ((counts, indices, MASKED), (whole_counts, whole_indices, WHOLE)):
        if number is None:
            continue
        listed = torch.arange(columns, device=of.device) < number.unsqueeze(-1)
        states = states.scatter(-1, torch.where(listed, of, columns).long(), state)  # the rest to one beyond
    return Blocks(states[..., :columns], queries, keys)
