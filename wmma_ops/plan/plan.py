"""What a planner answers: the kernels to launch for one problem."""

from dataclasses import dataclass, field

from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.ops.errors import ConfigError

KERNEL_FILE = "planned.hip"  # a planned kernel's name in messages, and in the key of its code object
MOST_GRID_Y = 65535  # blocks
MOST_THREADS_X = 2**32 - 1


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel and the size of its launch. All launches of a plan take the same arguments."""

    kernel: str  # its name in the source
    source: str = field(repr=False)
    grid: tuple[int, int]  # x, y
    block: int
    shared: int  # dynamic shared memory, in bytes
    early: bool = False  # may start before the launch before it is done: it waits for what that writes by itself
    cooperative: bool = False  # all its blocks are on the device at once, or the launch fails

    def compile(self, target: arch.Target) -> jit.CodeObject:
        """Its machine code, from the cache where it is there."""
        return jit.compile(self.source, target.name, name=KERNEL_FILE)


@dataclass(frozen=True)
class Plan:
    config: object
    reason: str  # why this configuration
    launches: tuple[KernelLaunch, ...]  # in order
    workspace: int  # bytes
    numbers: tuple[int, ...]  # what the plan decides of the kernels' arguments: those of its kind, in problem.py


def check_blocks(what: str, blocks: int, threads: int, target: arch.Target) -> None:
    """Refuses more threads along x than a launch counts."""
    if blocks * threads > MOST_THREADS_X:
        raise ConfigError(f"{what} {blocks} blocks; {target.name} takes up to {MOST_THREADS_X // threads}")
