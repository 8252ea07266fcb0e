"""What users register by name: names that may be taken, and the codes by which the C++ library and kernels know them.

A code is a hash of the name, so that a saved graph means the same in another process that registered the same name.
"""

import zlib
from typing import Protocol, TypeVar

from wmma_ops.ops.neighbours import hint

FIRST_REGISTERED = 256


class _Registered(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def code(self) -> int: ...


R = TypeVar("R", bound=_Registered)


def new_code(function: str, name: object, by_name: dict[str, R]) -> int:
    """The code of a new name, for `function`, which registers it."""
    if not isinstance(name, str) or not name.isidentifier():
        raise ValueError(f"{function}: name is {name!r}; takes a Python identifier")
    if name in by_name:
        raise ValueError(f"{function}: name is {name!r}, which is taken; takes a new one")
    code = FIRST_REGISTERED + zlib.crc32(name.encode()) % (1 << 30)
    other = next((x.name for x in by_name.values() if x.code == code), None)
    if other is not None:
        raise ValueError(f"{function}: {name!r} and {other!r} have one code; rename one")
    return code


def find(op: str, argument: str, name: object, by_name: dict[str, R]) -> R:
    """What an op's argument names."""
    if not isinstance(name, str):
        raise TypeError(f"wmma.{op}: {argument} is of type {type(name).__name__}; takes a name, one of {list(by_name)}")
    if name not in by_name:
        taken = f"one of {', '.join(by_name)}" if by_name else "a registered name, and there is none"
        raise ValueError(f"wmma.{op}: {argument} is {name!r}{hint(name, by_name)}; takes {taken}")
    return by_name[name]
