"""Turns what the library raises into the ValueError or TypeError that a Python caller expects.

The library's checks raise RuntimeError, ending in a tag that names the kind. Calls that never reach a check, because
PyTorch could not convert an argument or found no kernel, are put into the same words here.
"""

import contextlib
import re
import traceback
from collections.abc import Iterator

import torch


class DriverError(RuntimeError):
    """A call of the GPU's driver that failed, with the driver's own name for it."""


class FunctionError(ValueError):
    """What a function that a user registered raised; that itself is its cause."""


class ConfigError(ValueError):
    """A problem that no configuration of this target's kernels fits, or a configuration that does not fit the target."""


class CaptureError(RuntimeError):
    """A kernel that would have to be compiled while a CUDA graph is captured."""


_TAG = re.compile(r"\s*\[(\w+)((?: [\w.:+-]+)*)\]\s*$")
_CONVERSION = re.compile(
    r"Expected a value of type '(?P<taken>[^']+)' for argument '(?P<name>\w+)' but instead found type '(?P<came>[^']+)'"
)


_KINDS: dict[str, type[BaseException]] = {}


def may_name(*kinds: type[BaseException]) -> None:
    """Exceptions that a tag may name from then on."""
    _KINDS.update((kind.__name__, kind) for kind in kinds)


may_name(TypeError, ValueError, KeyboardInterrupt, MemoryError, DriverError, FunctionError, ConfigError, CaptureError)


def packed(error: BaseException) -> str:
    """An exception as a text with a tag, to be unpacked by `translate` on the other side of the library."""
    from wmma_ops import jit  # takes time to load

    name = type(error).__name__
    if type(error) not in (_KINDS.get(name), jit.CompileError):
        text = "".join(traceback.format_exception(error)).strip()
        return f"an error of this package, please report it:\n{text}"
    tag = (
        f"{name} {error.target} {(error.compiler.split() or ['unknown'])[0]}"
        if isinstance(error, jit.CompileError)
        else name
    )
    return f"{str(error).removeprefix('wmma: ')} [{tag}]"


def _unpacked(text: str) -> BaseException | None:
    """The exception that the tag at the end of a text names."""
    from wmma_ops import jit

    tag = _TAG.search(text)
    known = _KINDS | {jit.CompileError.__name__: jit.CompileError}
    kind = tag and known.get(tag.group(1))
    if kind is None:
        return None
    text = text[max(text.find("wmma."), 0) : tag.start()]  # inside a compiled graph other text stands before ours
    if kind is jit.CompileError:
        message, _, log = text.partition("\n")
        target, compiler = tag.group(2).split()
        return jit.CompileError(message, target=target, compiler=compiler, log=log)
    return kind(text)


def without_tag(text: str) -> str:
    return _TAG.sub("", text)


@contextlib.contextmanager
def raised_as(*kinds: type[Exception]) -> Iterator[None]:
    """Turns what the library raises with the tag of one of `kinds` into that exception."""
    try:
        yield
    except RuntimeError as error:
        found = _unpacked(_own(error))
        if type(found) not in kinds:
            raise
        raise found from None


# What torch writes behind our text.
_BEHIND = ("\nException raised from", "\n\nSharding propagation failed")


def _own(error: Exception) -> str:
    text = str(error)
    for behind in _BEHIND:
        text = text.split(behind, 1)[0]
    return text


def tagged(op: str, name: str, text: str, kind: type[Exception]) -> RuntimeError:
    """An error in the words of the library's own checks."""
    return RuntimeError(f"wmma.{op}: {name} {text} [{kind.__name__}]")


def translate(op: str, error: Exception, arguments: dict) -> Exception:
    """The exception to raise from wmma_ops.`op`, called with `arguments`, in place of `error`."""
    # dict order is the order of the signature, so the first culprit is named.
    text = _own(error)
    if (unpacked := _unpacked(text)) is not None:
        return unpacked
    if found := _CONVERSION.search(text):
        taken = {"Optional[int]": "a torch.dtype or None", "Tensor": "a tensor"}.get(found["taken"], found["taken"])
        return TypeError(f"wmma.{op}: {found['name']} is of type {found['came']}; takes {taken}")
    if isinstance(error, NotImplementedError):
        if "does not have a sharding strategy" in text:
            return NotImplementedError(f"wmma.{op} takes DTensors once `import wmma_ops.distributed` has run")
        for name, value in arguments.items():
            if isinstance(value, torch.Tensor) and (
                value.layout != torch.strided or value.device.type not in ("cpu", "cuda")
            ):
                kind = "a nested tensor" if value.is_nested else f"a {value.layout} tensor on {value.device}"
                return TypeError(
                    f"wmma.{op}: {name} is {kind}; takes strided tensors on the cpu or on one GPU, all of them"
                )
            if isinstance(value, torch.Tensor) and (value.is_quantized or value.is_nested):
                kind = "nested" if value.is_nested else "quantized"
                return TypeError(f"wmma.{op}: {name} is a {kind} tensor; takes plain tensors")
    return error
