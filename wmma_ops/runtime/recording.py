"""`wmma_ops.record`: the calls that a model makes, by shapes and types, for `python -m wmma_ops build` to compile."""

import contextlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from wmma_ops.ops.library import NAMESPACES
from wmma_ops.ops.neighbours import answering
from wmma_ops.ops.types import name as type_name
from wmma_ops.torch_internals import DispatchMode

_FORMAT = 1
_ALIGNED = 16  # bytes: more makes no difference to a kernel


class _Recorder(DispatchMode):
    def __init__(self, calls: dict[str, int]):
        super().__init__()
        self.calls = calls

    def __torch_dispatch__(self, op, types, arguments=(), keywords=None):
        keywords = keywords or {}
        if set(types) - {torch.Tensor, torch.nn.Parameter}:  # made of other tensors, whose calls come by here as well
            return NotImplemented
        if op.namespace in NAMESPACES:
            fields = {
                "arguments": list(map(_plain, arguments)),
                "keywords": {k: _plain(x) for k, x in keywords.items()},
            }
            key = json.dumps({"op": op.name(), **fields})
            self.calls[key] = self.calls.get(key, 0) + 1
        return op(*arguments, **keywords)


@answering
@contextlib.contextmanager
def record(path: str | Path | None = None) -> Iterator[dict[str, int]]:
    """Within it, notes every call of an op: its tensors' shapes, strides, types and alignment, not their numbers.

    Args:
        path: a file to write the calls to, which ``python -m wmma_ops build --calls`` takes. What it holds is kept: several
            runs, of training and inference say, may be noted in one file.

    Yields:
        the calls, each as JSON text, and how often each was made.

    Examples:
        >>> import torch, wmma_ops
        >>> with wmma_ops.record() as calls:
        ...     for _ in range(3):
        ...         y = wmma_ops.matmul(torch.ones(2, 3), torch.ones(3, 4))
        >>> list(calls.values())
        [3]
    """
    calls = dict.fromkeys(map(json.dumps, _read(Path(path))), 0) if path and Path(path).exists() else {}
    with _Recorder(calls):
        yield calls
    if path:
        rows = ",\n  ".join(calls)
        Path(path).write_text(f'{{"format": {_FORMAT}, "calls": [\n  {rows}\n]}}\n', encoding="utf-8")


def load(path: str | Path) -> list[Callable[[], object]]:
    """The calls of a file, on CPU tensors whose memory is not touched."""

    def call(fields: dict):
        try:
            op, arguments, keywords = _op(fields["op"]), list(fields["arguments"]), dict(fields["keywords"])
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} holds what is no call of this version's ops: {fields!r}") from error
        return lambda: op(*map(_made, arguments), **{k: _made(x) for k, x in keywords.items()})

    return list(map(call, _read(Path(path))))


def _read(path: Path) -> list[dict]:
    try:
        stored = json.loads(path.read_text(encoding="utf-8"))
        if stored["format"] == _FORMAT:
            return stored["calls"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} holds no calls: {error}") from error
    raise ValueError(f"{path} is of format {stored['format']}; this version reads {_FORMAT}")


def _op(name: str):
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    if namespace not in NAMESPACES:
        raise ValueError(f"{name} is no op of wmma_ops")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload or "default")


def _plain(x):
    """A tensor or a type as JSON has it; numbers as they are."""
    if isinstance(x, torch.Tensor):
        aligned = next(size for size in (_ALIGNED, 8, 4, 2, 1) if x.data_ptr() % size == 0)
        return {"shape": list(x.shape), "stride": list(x.stride()), "dtype": type_name(x.dtype), "aligned": aligned}
    return {"dtype": type_name(x)} if isinstance(x, torch.dtype) else x


def _made(x):
    if not isinstance(x, dict):
        return x
    dtype = getattr(torch, x["dtype"])
    if "shape" not in x:
        return dtype
    reach = 1 + sum((size - 1) * stride for size, stride in zip(x["shape"], x["stride"], strict=True) if size)
    # Fresh memory is aligned to more than that.
    offset = x["aligned"] // dtype.itemsize if x["aligned"] < _ALIGNED else 0
    return torch.empty(reach + offset, dtype=dtype)[offset:].as_strided(x["shape"], x["stride"])
