"""What the classes of swapped modules become: each computes what the class it stands for computes.

A swapped module stays the object that it was, with its parameters, hooks and attributes; only its class changes, to one
of these or, for a class of somebody else's, to one derived from both.
"""

import copyreg
import functools

import torch
from torch import nn

from wmma_ops.nn import chain
from wmma_ops.nn.activation import is_idle, is_nested, is_plain, name_of
from wmma_ops.nn.adapters import LoRA
from wmma_ops.nn.attention import MultiheadAttention
from wmma_ops.nn.linear import Linear
from wmma_ops.nn.mlp import mlp
from wmma_ops.nn.norm import RMSNorm
from wmma_ops.torch_internals import FeedForward, Named

Tensor = torch.Tensor
ORIGINAL = "_wmma_original"  # in a swapped module's __dict__: the class that it had
BLOCK = "_wmma_block"  # likewise: what was found out about its forward


class Sequential(Named, chain.Chained, nn.Sequential):
    """Children that follow each other go into one op where nobody watches them; a slice of it is another one."""

    def _wmma_links(self) -> list[chain.Link]:
        return chain.links(self)

    def forward(self, input):
        return super().forward(input) if is_nested(input) else chain.run(self._wmma_links(), input)


class Block(Named, chain.Chained):
    """Mixed into somebody's class, whose forward is the chain of children that was traced."""

    def _wmma_links(self) -> list[chain.Link] | None:
        return getattr(self, BLOCK).links(self)

    def forward(self, *args, **kwargs):
        links = self._wmma_links() if len(args) == 1 and not kwargs and not is_nested(args[0]) else None
        return super().forward(*args, **kwargs) if links is None else chain.run(links, args[0])


class _FeedForward(Named, FeedForward):
    def feed_forward(self, x: Tensor, otherwise) -> Tensor:
        name = name_of(self.activation)
        first, second = chain.operands(self.linear1), chain.operands(self.linear2)
        fuses = name and is_idle(self.dropout) and first is not None and second is not None
        watched = isinstance(self.activation, nn.Module) and not is_plain(self.activation)
        if not fuses or watched or is_nested(x):
            return otherwise(x)
        return getattr(self, self._last_dropout)(mlp(x, first, second, name))


class TransformerEncoderLayer(_FeedForward, nn.TransformerEncoderLayer):
    _last_dropout = "dropout2"
    # Read only to choose torch's fused layer, which would go around the swapped ones.
    activation_relu_or_gelu = property(lambda self: 0, lambda self, value: None)


class TransformerDecoderLayer(_FeedForward, nn.TransformerDecoderLayer):
    _last_dropout = "dropout3"


class TransformerEncoder(Named, nn.TransformerEncoder):
    # Padded batches stay padded: nested tensors are for torch's fused layer alone.
    use_nested_tensor = property(lambda self: False, lambda self, value: None)


# What stands for which class of torch's.
TWINS = {
    nn.Linear: Linear,
    nn.MultiheadAttention: MultiheadAttention,
    nn.Sequential: Sequential,
    nn.TransformerEncoderLayer: TransformerEncoderLayer,
    nn.TransformerDecoderLayer: TransformerDecoderLayer,
    nn.TransformerEncoder: TransformerEncoder,
}


@functools.cache
def twin_class(twin: type, original: type) -> type:
    """`twin`, or a class of the original's name that is both."""
    if issubclass(twin, original):
        return twin

    def reduce(self, protocol):
        """Pickles the class, which no Python module holds, as the two that it was made of."""
        made = super(both, self).__reduce_ex__(protocol)
        if type(self) is not both or made[0] is not copyreg.__newobj__:
            return made
        return (_remade, (twin, original), *made[2:])

    names = {"__reduce_ex__": reduce, "__module__": original.__module__, "__qualname__": original.__qualname__}
    both = type(original.__name__, (twin, original), names)
    return both


def _remade(twin: type, original: type) -> nn.Module:
    both = twin_class(twin, original)
    return both.__new__(both)


def become(module: nn.Module, twin: type, block=None) -> None:
    original = type(module)
    module.__class__ = twin_class(twin, original)
    module.__dict__[ORIGINAL] = original
    if block is not None:
        module.__dict__[BLOCK] = block


def original_of(module: nn.Module) -> type | None:
    return module.__dict__.get(ORIGINAL)


def original_name(module: nn.Module) -> str:
    return (original_of(module) or type(module)).__name__


def is_twin(module: nn.Module) -> bool:
    """False where something, such as FSDP, has changed the class since."""
    twins, bases = (*TWINS.values(), Block, LoRA, RMSNorm), type(module).__bases__
    if type(module) in twins:
        return True
    made = len(bases) == 2 and bases[0] in twins and bases[1] is original_of(module)
    return made and type(module) is twin_class(*bases)


def revert(module: nn.Module) -> None:
    module.__class__ = module.__dict__.pop(ORIGINAL)
    module.__dict__.pop(BLOCK, None)
