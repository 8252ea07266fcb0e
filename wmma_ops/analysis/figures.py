"""The static figures of a compiled kernel: registers, occupancy, and what its hot loop asks of each unit.

Nothing is run. The registers are those of the code object's metadata, the instructions those of the assembly that the
code object was made from: of the kernel's own text, without functions that it calls. figures_amd.py says by what model
a loop is measured, occupancy.py how waves are counted.
"""

from wmma_ops.analysis import figures_amd, figures_nvidia
from wmma_ops.analysis.figures_record import Figures
from wmma_ops.hardware import arch
from wmma_ops.jit.compiler import CodeObject


def figures(code: CodeObject, target: arch.Target, threads: int, shared: int = 0, kernel: str | None = None) -> Figures:
    """Of one kernel of `code`, launched with `threads` a block and `shared` bytes of dynamic shared memory."""
    if code.target.partition(":")[0] != target.name:
        raise ValueError(f"figures: the code is for {code.target}, not for {target.name}")
    if kernel is None and len(code.kernels) != 1:
        raise ValueError(f"figures: name one of the kernels {', '.join(code.kernels) or '(none)'}")
    if threads < 1 or shared < 0:
        raise ValueError(f"figures: {threads} threads and {shared} bytes of shared memory are no launch")
    name = kernel or code.kernels[0]
    if name not in code.kernels:
        raise ValueError(f"figures: no kernel {name!r}; there are {', '.join(code.kernels) or 'none'}")
    reader = figures_amd if target.vendor == "amd" else figures_nvidia
    return reader.figures(code, target, threads, shared, name)
