"""Which variables of the device library a kernel uses, of which its driver has to know."""

import re

from wmma_ops.emulator import assembly, linking
from wmma_ops.emulator.errors import EmulationError
from wmma_ops.jit import CodeObject

_PTX_BODY = re.compile(r"^(?:\.\w+ )*\.(entry|func)\b", re.M)


def uses(code: CodeObject, entry: str, variable: str) -> bool:
    """Whether a kernel, or what it may call, names a variable; of code without its assembly, whether any kernel does."""
    if variable.encode() not in code.code:
        return False
    if code.assembly is None:
        return True
    if code.target.startswith("gfx"):
        try:
            return variable in linking.link(assembly.parse(code.assembly).kernels[entry]).data
        except (ValueError, EmulationError):  # it names what the emulator cannot place
            return True
    starts = [*_PTX_BODY.finditer(code.assembly)]
    ends = [start.start() for start in starts[1:]] + [len(code.assembly)]
    bodies = ((start[1], code.assembly[start.end() : end]) for start, end in zip(starts, ends, strict=True))
    return any(
        variable in body for kind, body in bodies if kind == "func" or re.match(rf"\s+{re.escape(entry)}\b", body)
    )
