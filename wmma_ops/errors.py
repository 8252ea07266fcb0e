"""Turns what the library raises into the ValueError or TypeError that a Python caller expects.

The library's checks raise RuntimeError, ending in a tag that names the kind. Calls that never reach a check, because
PyTorch could not convert an argument or found no kernel, are put into the same words here.
"""

import re

import torch

_TAG = re.compile(r"\s*\[(TypeError|ValueError)\]\s*$")
_CONVERSION = re.compile(
    r"Expected a value of type '(?P<taken>[^']+)' for argument '(?P<name>\w+)' but instead found type '(?P<came>[^']+)'"
)
_KINDS = {"TypeError": TypeError, "ValueError": ValueError}


def tagged(op: str, name: str, text: str, kind: type[Exception]) -> RuntimeError:
    """An error in the words of the library's own checks."""
    return RuntimeError(f"wmma.{op}: {name} {text} [{kind.__name__}]")


def translate(op: str, error: Exception, arguments: dict) -> Exception:
    """The exception to raise from wmma_ops.`op`, called with `arguments`, in place of `error`."""
    # dict order is the order of the signature, so the first culprit is named.
    text = str(error).split("\nException raised from", 1)[0]
    if tag := _TAG.search(text):
        # Inside a compiled graph other text stands before ours.
        return _KINDS[tag.group(1)](text[max(text.find("wmma."), 0) : tag.start()])
    if found := _CONVERSION.search(text):
        taken = {"Optional[int]": "a torch.dtype or None", "Tensor": "a tensor"}.get(found["taken"], found["taken"])
        return TypeError(f"wmma.{op}: {found['name']} is of type {found['came']}; takes {taken}")
    if isinstance(error, NotImplementedError):
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor) and (value.layout != torch.strided or value.device.type != "cpu"):
                kind = "a nested tensor" if value.is_nested else f"a {value.layout} tensor on {value.device}"
                return TypeError(f"wmma.{op}: {name} is {kind}; takes strided tensors on the cpu, all of them")
            if isinstance(value, torch.Tensor) and (value.is_quantized or value.is_nested):
                kind = "nested" if value.is_nested else "quantized"
                return TypeError(f"wmma.{op}: {name} is a {kind} tensor; takes plain tensors")
    return error
