"""Two products in one kernel against torch's on a GPU: medians in turn, cold L2, one line a shape, the geometric mean.

python bench/bench_gemm_gemm.py [--quick] [--json FILE] [--configs COUNT]
"""

import argparse
import json
import math
import statistics

import torch
from bench_gemm import FLUSH_BYTES, check, matrix, times
from timing import commit

import wmma_ops
from wmma_ops import driver
from wmma_ops.plan import gemm_gemm
from wmma_ops.plan.gemm_gemm_config import candidates
from wmma_ops.plan.gemm_gemm_cost import cost

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


COMPILED = torch.compile(eager)


def copy_bandwidth(rounds: int, flush: torch.Tensor) -> float:
    """Bytes a microsecond that a copy within the device reads and writes."""
    source = torch.empty(1 << 29, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    (found,) = times([lambda: target.copy_(source)], rounds, flush)
    return 2 * source.numel() / found


def configurations(shape, count: int, rounds: int, flush: torch.Tensor):
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
        found = sorted(candidates(problem, target), key=lambda one: cost(problem, one, target))
        for resident in (True, False):
            for config in [one for one in found if one.resident is resident][:count]:
                gemm_gemm.choose = lambda *_, config=config: (config, 0.0)
                torch.ops.wmma._forget_plans()
                check(wmma_ops.gemm_gemm(a, b0, b1, activation="relu"), want)
                (ours,) = times([lambda: wmma_ops.gemm_gemm(a, b0, b1, activation="relu")], rounds, flush)
                yield config, ours, cost(problem, config, target)
    finally:
        gemm_gemm.choose = choose
        torch.ops.wmma._forget_plans()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--json", help="also write the rows to a file")
    parser.add_argument(
        "--configs", type=int, default=0, metavar="COUNT", help="time so many configurations of each kind"
    )
    options = parser.parse_args()
    rounds = 9 if options.quick else 31
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
    bandwidth = copy_bandwidth(rounds, flush)
    print(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}, {commit()}, bf16, relu, medians of {rounds}, cold L2, "
        f"device copy {bandwidth / 1e3:.0f} GB/s"
    )
    for shape in SHAPES if options.configs else ():
        print(*shape, sep=",")
        for config, ours, guess in configurations(shape, options.configs, rounds, flush):
            print(f"  {ours:7.1f} µs, {guess / 1e3:6.1f} thousand cycles guessed: {config}")
    rows, ratios = [], []
    for m, k, h, n in SHAPES:
        a, b0, b1 = matrix(m, k), matrix(k, h) * k**-0.5, matrix(h, n) * h**-0.5
        check(wmma_ops.gemm_gemm(a, b0, b1, activation="relu"), eager(a, b0, b1))
        plan = wmma_ops.explain("gemm_gemm", a, b0, b1, activation="relu", target=driver.target_of(0))
        calls = [
            lambda a=a, b0=b0, b1=b1: wmma_ops.gemm_gemm(a, b0, b1, activation="relu"),
            lambda a=a, b0=b0, b1=b1: eager(a, b0, b1),
            lambda a=a, b0=b0, b1=b1: COMPILED(a, b0, b1),
        ]
        ours, plain, compiled = times(calls, rounds, flush)
        theirs = min(plain, compiled)
        ratios.append(theirs / ours)
        moved = 2 * (m * (k + n) + h * (k + n))
        row = {
            "name": f"{m},{k},{h},{n}",
            "ours_us": ours,
            "eager_us": plain,
            "compiled_us": compiled,
            "tflops": 2 * m * h * (k + n) / ours / 1e6,
            "of_copy_bandwidth": moved / ours / bandwidth,
            "launches": len(plan.launches),
            "config": str(plan.config),
        }
        rows.append(row)
        print(
            f"{row['name']:20} {ours:7.1f} µs {row['tflops']:6.1f} TFLOP/s {row['of_copy_bandwidth']:4.0%} of a copy  "
            f"torch {plain:7.1f}, compiled {compiled:7.1f} µs  {theirs / ours:5.2f}×  {row['launches']} launches"
        )
    mean = math.exp(statistics.fmean(map(math.log, ratios)))
    print(f"geometric mean {mean:.2f}× the better of torch's, least {min(ratios):.2f}×")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
