"""Masks of transformers by what they say, without a tensor of queries times keys.

transformers describes a mask by a function of indices, and has `sdpa_mask` make the tensor. Of the functions that it
composes itself (causal, windows, packed sequences) and of padding, `sight` finds what the op `attention` takes instead; of
others it finds nothing. An `Unmade` mask stands where the tensor would: our attention asks it for its sight, and whatever
else touches it gets the tensor, made then.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import torch

from wmma_ops import torch_internals

Tensor = torch.Tensor


class Sight(NamedTuple):
    """Query i stands at key i + stands, and sees so many keys to its left and right; −1: all on that side. Where it sees
    none on its right, there may be more keys than anyone sees; else the last query stands at the last key.
    """

    stands: int
    left: int
    right: int
    padding: Tensor | None  # [batch, 1, 1, keys], True of keys that are there
    ends: Tensor | None  # of packed sequences in all rows one after the other, from 0 on
    longest: int  # of them


class _Rules(NamedTuple):
    """Of a mask function: windows, of which None has no bound, and what of it goes by the places in packed sequences."""

    left: int | None = None
    right: int | None = None
    sequences: Tensor | None = None  # [batch, length], numbers that grow with each packed sequence
    by_places: bool = False


def sight(
    q_length: int, kv_length: int, q_offset, kv_offset, mask_function: Callable, attention_mask: Tensor | None
) -> Sight | None:
    """What a mask says, by the arguments of `sdpa_mask`; None where that is not known to be so."""
    rules = _rules(mask_function)
    if rules is None or (isinstance(q_offset, Tensor) and q_length == 1):  # one query's mask is as small as its sight
        return None
    # A static cache has them on the device, and transformers waits for them too.
    stands = int(q_offset) - int(kv_offset)
    if rules.by_places and rules.sequences is None:
        return None
    if rules.sequences is not None and (attention_mask is not None or stands or q_length != kv_length):
        return None
    fits = 0 <= stands <= kv_length - q_length if rules.right == 0 else stands == kv_length - q_length
    if not fits and (rules.left, rules.right) != (None, None):
        return None
    left, right = (-1 if size is None else size for size in (rules.left, rules.right))
    padding = attention_mask
    if padding is not None:
        padding = padding[:, int(kv_offset) : int(kv_offset) + kv_length]
        if padding.shape[1] < kv_length:  # keys that a static cache has room for
            padding = torch.nn.functional.pad(padding, (0, kv_length - padding.shape[1]))
        seen = padding[:, : stands + q_length] if right == 0 else padding
        padding = None if bool(seen.all()) else padding[:, None, None]
    return Sight(stands, left, right, padding, *_ends(rules.sequences))


def _ends(sequences: Tensor | None) -> tuple[Tensor | None, int]:
    if sequences is None:
        return None, 0
    first = torch.ones_like(sequences[:, :1], dtype=torch.bool)
    starts = torch.cat([first, sequences[:, 1:] != sequences[:, :-1]], 1).flatten().nonzero().flatten()
    ends = torch.cat([starts, starts.new_full((1,), sequences.numel())]).to(torch.int32)
    return ends, int(ends.diff().max())


def _rules(function: Callable) -> _Rules | None:
    """A mask function's, by the functions that it was composed of."""
    from transformers import masking_utils

    if function is masking_utils.causal_mask_function:
        return _Rules(right=0)
    if function is masking_utils.bidirectional_mask_function:
        return _Rules()
    code = getattr(function, "__code__", None)
    kind = _kinds().get(code)
    if kind is None:
        return None
    inner = dict(zip(code.co_freevars, (cell.cell_contents for cell in function.__closure__), strict=True))
    return kind(**inner)


def _all_of(mask_functions) -> _Rules | None:
    found = [_rules(function) for function in mask_functions]
    if None in found or sum(one.sequences is not None for one in found) > 1:
        return None

    def least(sizes):
        return min((size for size in sizes if size is not None), default=None)

    return _Rules(
        least(one.left for one in found),
        least(one.right for one in found),
        next((one.sequences for one in found if one.sequences is not None), None),
        any(one.by_places for one in found),
    )


def _by_places(mask_function, position_ids) -> _Rules | None:
    """Places in a sequence differ by as much as indices do, since a new one begins where they do not."""
    rules = _rules(mask_function)
    return None if rules is None else rules._replace(by_places=True)


@functools.cache
def _kinds() -> dict:
    """By the code of the functions that transformers' builders return: their rules, by what they close over."""
    from transformers import masking_utils as builders

    try:
        return {
            builders.and_masks().__code__: _all_of,
            builders.sliding_window_overlay(1).__code__: lambda sliding_window: _Rules(left=sliding_window - 1),
            builders.sliding_window_bidirectional_overlay(1).__code__: lambda sliding_window: _Rules(
                left=sliding_window, right=sliding_window
            ),
            builders.packed_sequence_mask_function(None).__code__: lambda packed_sequence_mask: _Rules(
                sequences=packed_sequence_mask
            ),
            builders.remap_positions_for_packed_sequence(None, None).__code__: _by_places,
        }
    except (AttributeError, TypeError):  # a transformers that composes its masks in another way
        return {}


class Unmade(Tensor):
    """A mask that is made once something other than our attention reads it."""

    sight: Sight | None  # None once it was written to
    make: Callable[[], Tensor]

    @classmethod
    def of(cls, shape: tuple[int, ...], device, sight: Sight, make: Callable[[], Tensor]) -> "Unmade":
        mask = torch.empty((), dtype=torch.bool, device=device).expand(shape).as_subclass(cls)
        mask.sight, mask.make = sight, functools.cache(make)
        return mask

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        _note(func.__name__ if hasattr(func, "__name__") else "", args)
        if func in _OF_THE_SHAPE:
            return super().__torch_function__(func, types, args, kwargs or {})
        if func is Tensor.to and _stays(*args, **kwargs or {}):
            return args[0]
        return func(*_made(args), **_made(kwargs or {}))

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[override]
        """What comes past the above."""
        _note(torch_internals.schema(func).name.split("::")[1], args)
        return func(*_made(args), **_made(kwargs or {}))


_OF_THE_SHAPE = {
    *(getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim", "layout", "is_cuda", "is_nested")),
    *(getattr(Tensor, name).__get__ for name in ("requires_grad", "grad_fn", "is_leaf")),
    *(Tensor.is_cpu.__get__, Tensor.dim, Tensor.size, Tensor.numel, torch.numel, Tensor.get_device),
    *(Tensor.is_floating_point, torch.is_floating_point, Tensor.is_complex, torch.is_complex),
}


def _note(name: str, args) -> None:
    """A mask that is written to says what it was made for no more."""
    writes = name == "__setitem__" or (name.endswith("_") and not name.endswith("__"))
    if writes and isinstance(args[0], Unmade):
        args[0].sight = None


def _stays(mask, where=None, *others, non_blocking=False, **more) -> bool:
    """Whether a mask is moved to where it is, as a library does that spreads layers over devices."""
    is_place = isinstance(mask, Unmade) and isinstance(where, (str, int, torch.device))
    return is_place and not others and not more and torch.device(where) == mask.device


def _made(x):
    if isinstance(x, Unmade):
        return x.make()
    if isinstance(x, dict):
        return {key: _made(one) for key, one in x.items()}
    return type(x)(map(_made, x)) if type(x) in (tuple, list) else x
