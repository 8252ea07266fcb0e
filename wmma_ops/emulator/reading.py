"""An instruction's text as the code that writes Python has it: to be read, and never to be written.

What becomes Python is numbers that were read from this text, and words of our own that it selects. So whoever made a code
object, or an entry of the cache, says which instructions run and nothing else.
"""

import re
from collections.abc import Callable

from wmma_ops.emulator.assembly import Instruction

_MNEMONIC = re.compile(r"[a-z][a-z0-9_]*")
_OPERAND = re.compile(
    r"-?(?:(?:neg|abs|sext|lit|hwreg|sendmsg|gpr_idx)\()?"  # one call at most
    r"-?\|?-?[\w.$@]+(?:[+-]\d+)?(?:\[\d+:\d+\])?\|?(?:, ?\w+)*\)?",
    re.ASCII,
)


class Text(str):
    """A part of an instruction. It is compared, matched and converted as any text, but put into another it raises."""

    __slots__ = ()

    def _refused(self, *_):
        raise TypeError(f"the text {self!r} of an instruction, where a number that was read from it belongs")

    __format__ = __str__ = __add__ = __radd__ = __mod__ = __mul__ = __rmul__ = join = format = _refused

    def split(self, *arguments):
        return [Text.__new__(Text, part) for part in str.split(self, *arguments)]


def _kept(method: Callable) -> Callable:
    def kept(self, *arguments):
        return Text.__new__(Text, method(self, *arguments))

    return kept


for _name in ("__getitem__", "strip", "lstrip", "rstrip", "removeprefix", "removesuffix", "replace", "lower", "upper"):
    setattr(Text, _name, _kept(getattr(str, _name)))


def read_only(ins: Instruction) -> Instruction:
    """The instruction with all of its text as `Text`. Raises ValueError for what is not of the assembler's forms."""
    if _MNEMONIC.fullmatch(ins.mnemonic) is None:
        raise ValueError(f"{ins.mnemonic!r} is no name of an instruction")
    for operand in ins.operands:
        if _OPERAND.fullmatch(operand) is None:
            raise ValueError(f"operand {operand!r}")
    modifiers = {name: Text(value) for name, value in ins.modifiers.items()}
    return ins._replace(operands=tuple(map(Text, ins.operands)), modifiers=modifiers, text=Text(ins.text))
