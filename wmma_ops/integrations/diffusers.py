"""Our attention in the models of diffusers, through their attention processors.

    from wmma_ops.integrations import diffusers as wmma_diffusers

    wmma_diffusers.swap_processors(pipeline.unet)  # or .transformer; restore_processors undoes it

A processor keeps its projections, norms and rotations; only its call of scaled_dot_product_attention, direct or by
diffusers' native backend, is ours.
"""

import copy
import copyreg
import functools
from collections.abc import Callable

import torch

from wmma_ops.integrations.sdpa import AttentionMode, Calls
from wmma_ops.nn.untaken import ON_WMMA


def swap_processors(
    model: torch.nn.Module, filter_fn: Callable[[torch.nn.Module, str], bool] | None = None
) -> list[str]:
    """Puts our attention into the attention processors of a model, in place, and returns the layers' names.

    Args:
        model: any with attention layers of diffusers (`processor`, `set_processor`): a UNet, a transformer, an autoencoder.
        filter_fn: is asked with each such layer and its name; by default all are taken.
    """
    swapped = []
    for name, layer in _layers(model):
        processor = layer.processor
        if not is_swapped(processor) and (filter_fn is None or filter_fn(layer, name)):
            layer.set_processor(_as(processor, _subclass(type(processor))))
            swapped.append(name)
    return swapped


def restore_processors(model: torch.nn.Module) -> list[str]:
    """Takes our attention out again, and returns the names of the layers that had it."""
    restored = []
    for name, layer in _layers(model):
        processor = layer.processor
        if is_swapped(processor):
            layer.set_processor(_as(processor, type(processor).__bases__[0]))
            restored.append(name)
    return restored


def _layers(model: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    found = [(name, x) for name, x in model.named_modules() if hasattr(x, "processor") and hasattr(x, "set_processor")]
    if not found:
        raise ValueError(f"a {type(model).__name__} without attention layers of diffusers; takes a model that has some")
    return found


def is_swapped(processor) -> bool:
    return type(processor).__name__.endswith(ON_WMMA)


def _as(processor, kind: type):
    """The same processor, its state shared, as an object of another class."""
    other = copy.copy(processor)
    other.__class__ = kind
    return other


@functools.cache
def _subclass(kind: type) -> type:
    """A processor's class, with a call that runs under our mode. A subclass: diffusers asks for classes and signatures."""

    @functools.wraps(kind.__call__)
    def call(self, *args, **kwargs):
        calls = Calls()
        with AttentionMode(calls):
            out = kind.__call__(self, *args, **kwargs)
        if not calls.taken and not calls.left:
            raise RuntimeError(
                f"{kind.__name__} did not call scaled_dot_product_attention; takes processors that do, as "
                "AttnProcessor2_0, and those of diffusers' native attention backend"
            )
        return out

    def reduce(self, protocol):
        """Pickles the class, which no Python module holds, as the one that it was made of."""
        made = super(subclass, self).__reduce_ex__(protocol)
        return (_remade, (kind,), *made[2:]) if made[0] is copyreg.__newobj__ else made

    names = {"__call__": call, "__module__": kind.__module__, "__reduce_ex__": reduce}
    subclass = type(kind.__name__ + ON_WMMA, (kind,), names)
    return subclass


def _remade(kind: type):
    subclass = _subclass(kind)
    return subclass.__new__(subclass)
