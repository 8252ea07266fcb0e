"""Raises an exception in Python through the C++ library: an interruption, or what a user's own function raised.

What a callback of the library's raises would end at its C interface. So the exception is kept here, in its thread; the
library has a tensor's class raise it, from within a call of torch's that passes exceptions on (csrc/torch_internals.hpp).
"""

import threading

import torch

from wmma_ops.ops import errors


class _Kept(threading.local):
    error: BaseException | None = None


_kept = _Kept()


def keep(error: BaseException) -> None:
    """Until the library asks for it."""
    _kept.error = error


class _Raising(torch.Tensor):
    @classmethod
    def __torch_dispatch__(cls, function, types, arguments=(), keywords=None):  # type: ignore[override]
        error, _kept.error = _kept.error, None
        raise error if error is not None else RuntimeError("wmma: nothing is kept that could be raised")


# Where no class is asked, under some mode of a user's, a meta tensor computes nothing: the text is raised then.
_tensor = torch.empty((), device="meta").as_subclass(_Raising)


def prepared(text: str) -> torch.Tensor:
    """The tensor that raises what is kept, with the text in which the library names the op."""
    if isinstance(_kept.error, errors.FunctionError):
        _kept.error.args = (errors.without_tag(text),)
    return _tensor
