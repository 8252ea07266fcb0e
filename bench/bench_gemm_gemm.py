"""Two products in one kernel against torch's on a GPU: medians in turn, cold L2, one line a shape, the geometric mean.

python bench/bench_gemm_gemm.py [--quick] [--json FILE] [--configs COUNT]
"""

from collections.abc import Iterator
from functools import partial

import running
import torch
from running import check, compiled, matrix

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.runtime import driver
from wmma_ops.runtime.clock import Clock

SHAPES = [  # M, K, H, N
    (65536, 64, 64, 64),
    (65536, 128, 128, 128),
    (65536, 256, 256, 256),
    (8192, 4096, 64, 4096),
    (262144, 64, 64, 16),
    (16384, 1024, 256, 1024),
]


def eager(a, b0, b1):
    return torch.mm(torch.relu(torch.mm(a, b0)), b1)


def configurations(shape, count: int, clock: Clock):
    """The time of each of the configurations that the planner thinks cheapest, of either kind, and its guess in cycles."""
    m, k, h, n = shape
    a, b0, b1 = matrix(m, k), matrix(k, h) * k**-0.5, matrix(h, n) * h**-0.5
    want, choose = eager(a, b0, b1), gemm_gemm.choose
    asked = []
    try:
        gemm_gemm.choose = lambda *pair: asked.append(pair) or (None, 0.0)
        torch.ops.wmma._forget_plans()
        wmma_ops.gemm_gemm(a, b0, b1, activation="relu")
        ((problem, target),) = asked
        found = sorted(gemm_gemm.candidates(problem, target), key=lambda one: gemm_gemm.cost(problem, one, target))
        for resident in (True, False):
            for config in [one for one in found if one.resident is resident][:count]:
                gemm_gemm.choose = lambda *_, config=config: (config, 0.0)
                torch.ops.wmma._forget_plans()
                check(wmma_ops.gemm_gemm(a, b0, b1, activation="relu"), want)
                (ours,) = clock.times([lambda: wmma_ops.gemm_gemm(a, b0, b1, activation="relu")])
                yield config, ours, gemm_gemm.cost(problem, config, target)
    finally:
        gemm_gemm.choose = choose
        torch.ops.wmma._forget_plans()


def two(m: int, k: int, h: int, n: int) -> Calls:
    a, b0, b1 = matrix(m, k), matrix(k, h) * k**-0.5, matrix(h, n) * h**-0.5
    plan = wmma_ops.explain("gemm_gemm", a, b0, b1, activation="relu", target=driver.target_of(0))
    calls = {
        OURS: lambda: wmma_ops.gemm_gemm(a, b0, b1, activation="relu"),
        "torch": lambda: eager(a, b0, b1),
        "compiled": lambda: compiled(eager)(a, b0, b1),
    }
    return Calls(
        calls,
        flops=2.0 * m * h * (k + n),
        bytes=2.0 * (m * (k + n) + h * (k + n)),
        error=check(calls[OURS](), calls["torch"]()),
        note=f"launches: {len(plan.launches)}",
    )


def cases() -> Iterator[Case]:
    for shape in SHAPES:
        name = ",".join(map(str, shape))
        yield Case("two products, relu between", name, partial(two, *shape), ("torch", "compiled"), running.DEVICE)


def main(arguments: list[str] | None = None) -> None:
    asked = running.parser(__doc__)
    asked.add_argument(
        "--configs", type=int, default=0, metavar="COUNT", help="time so many configurations of each kind"
    )
    options = asked.parse_args(arguments)
    for shape in SHAPES if options.configs else ():
        print(*shape, sep=",")
        for config, ours, guess in configurations(shape, options.configs, running.clock(running.DEVICE, options.quick)):
            print(f"  {ours:7.1f} µs, {guess / 1e3:6.1f} thousand cycles guessed: {config}")
    running.main(cases(), options)


if __name__ == "__main__":
    main()
