"""What a planner answers: the kernels to launch for one problem."""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class KernelLaunch:
    """One kernel and the size of its launch. All launches of a plan take the same GemmArguments."""

    kernel: str  # its name in the source
    source: str = field(repr=False)
    grid: tuple[int, int]  # x, y
    block: int
    shared: int  # dynamic shared memory, in bytes


@dataclass(frozen=True)
class Plan:
    config: object
    reason: str  # why this configuration
    launches: tuple[KernelLaunch, ...]  # one, or two where K is split: the parts, then their sum
    workspace: int  # bytes
    splits: int
    k_split: int
    tiles_m: int
    tiles_n: int
