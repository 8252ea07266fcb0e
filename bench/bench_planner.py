"""What planning a call costs: the choice among all configurations, and the kernel's text.

python bench/bench_planner.py [--quick] [--json FILE]
"""

from collections.abc import Callable, Iterator
from functools import partial

import running
import torch

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case
from wmma_ops.hardware import arch
from wmma_ops.runtime import launching

TARGETS = ("gfx942", "gfx1201", "sm_90a")


def empty(*shape: int) -> torch.Tensor:
    return torch.empty(shape, dtype=torch.bfloat16)  # memory that nothing touches


def _product() -> object:
    return wmma_ops.matmul(empty(4096, 4096), empty(4096, 4096))


def _layer() -> object:
    return wmma_ops.linear(empty(16, 4096), empty(4096, 4096), activation="gelu")


def _two() -> object:
    return wmma_ops.gemm_gemm(empty(65536, 128), empty(128, 128), empty(128, 128), activation="relu")


def _attention() -> object:
    return wmma_ops.attention(*(empty(4, 16, 4096, 128) for _ in "qkv"))


WORK: dict[str, Callable] = {
    "matmul 4096³": _product,
    "linear+gelu 16x4096x4096": _layer,
    "gemm_gemm 65536,128,128,128": _two,
    "attention 4x16 4096x4096x128": _attention,
}


def planned(call: Callable, name: str) -> Calls:
    target = arch.target(name)

    def plan():
        return launching.plans(call, target)

    assert plan(), "nothing was planned"
    return Calls({OURS: plan}, inside=torch.no_grad)


def cases() -> Iterator[Case]:
    for target in TARGETS:
        for name, call in WORK.items():
            yield Case(f"plan for {target}", name, partial(planned, call, target), ())


if __name__ == "__main__":
    running.main(cases(), running.parser(__doc__).parse_args(), "cpu")
