"""The functions of instructions, which those that differ in registers and numbers alone share.

Code is written for an instruction whose registers are renamed: the first operand's counts from FIRST, the next one's from
FIRST + STEP, and so on. In what was written, these names, the constants and all numbers become the function's parameters;
`Template.bind` says what they are for one instruction. So Python compiles a few hundred functions, not one a block.
"""

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass

FIRST, STEP = 10**30, 1000  # no number in the text of an instruction is as large
_REGISTER = re.compile(r"\b([vas])(?:(\d+)\b|\[(\d+):(\d+)\])")
_NAME = re.compile(
    rf"'[^']*'|\b([va])(\d{{{len(str(FIRST))}}})_(\w+)|\bk\d+\b|\bmeant\b|(?<![\w.])\d+(?![\w.])"  # or a string, which stays
)
_KEPT = 8192  # functions, and templates of a target: more than kernels have met

_functions: dict[tuple, Callable] = {}


@functools.lru_cache(maxsize=32768)
def renamed(operands: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """The operands with their registers renamed, and the numbers of the first register of each."""
    numbers: list[int] = []

    def rename(match: re.Match) -> str:
        prefix, one, first, last = match.groups()
        start = FIRST + STEP * len(numbers)
        numbers.append(int(one or first))
        return f"{prefix}{start}" if one else f"{prefix}[{start}:{start + int(last) - int(first)}]"

    return tuple(_REGISTER.sub(rename, text) for text in operands), tuple(numbers)


@dataclass(frozen=True)
class Template:
    """A function, and of each of its parameters (row, which of the operands' registers, how far behind it, value): `row`
    is how a vector register is seen ("v" or "a", kind), else the parameter is its number; without one, it is the value."""

    function: Callable | None  # None where nothing is to be done
    parameters: tuple[tuple, ...]

    def bind(self, row: Callable, numbers: tuple[int, ...], meant) -> tuple:
        """The arguments for an instruction of these registers."""
        found = []
        for view, which, behind, value in self.parameters:
            if view is not None:
                found.append(row(view[0], numbers[which] + behind, view[1]))
            elif which is not None:
                found.append(numbers[which] + behind)
            else:
                found.append(meant if value is MEANT else value)
        return tuple(found)


MEANT = object()  # stands for the variables of shared memory that an instruction's place means


def template(lines: list[str], constants: list, namespace: dict, family: tuple) -> Template:
    """Of lines that name vector registers `v<number>_<kind>`, scalar ones S[<number>], constants k0, k1, …."""
    if not lines:
        return Template(None, ())
    names: dict[str, str] = {}

    def parameter(match: re.Match) -> str:
        return match[0] if match[0][0] == "'" else names.setdefault(match[0], f"p{len(names)}")

    text = _NAME.sub(parameter, "\n    ".join(lines))
    function = _functions.get((family, text))
    if function is None:
        head = f"def step({', '.join(['st', *names.values()])}):"
        first = [line for word, line in _FIRST_LINES.items() if re.search(rf"\b{word}\b", text)]
        scope: dict = {}
        exec(compile("\n    ".join([head, *first, text]), "<step>", "exec"), namespace, scope)
        function = keep(_functions, (family, text), scope["step"])
    return Template(function, tuple(_parameter(name, constants) for name in names))


_FIRST_LINES = {"full": "full = st.full", "mask": "mask = st.mask", "S": "S = st.scalars"}


def keep(table: dict, key: tuple, value):
    """Remembers it, in a table that starts anew when it has grown beyond use."""
    if len(table) >= _KEPT:
        table.clear()
    table[key] = value
    return value


def _parameter(name: str, constants: list) -> tuple:
    if name == "meant":
        return None, None, 0, MEANT
    if name[0] == "k":
        return None, None, 0, constants[int(name[1:])]
    match = _NAME.fullmatch(name)
    number = int(match[2] or name)
    if number < FIRST:
        return None, None, 0, number
    return (match[1], match[3]) if match[1] else None, *divmod(number - FIRST, STEP), None
