"""Two products in one kernel against torch's on a GPU: medians in turn, cold L2, one line a shape, the geometric mean.

python bench/bench_gemm_gemm.py [--quick] [--json FILE] [--configs COUNT]
"""

import torch
from gpu import Clock, check, matrix, parser, summary, write

import wmma_ops
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.runtime import driver

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


def main() -> None:
    asked = parser(__doc__)
    asked.add_argument(
        "--configs", type=int, default=0, metavar="COUNT", help="time so many configurations of each kind"
    )
    options = asked.parse_args()
    clock = Clock(options.quick)
    bandwidth = clock.copy_bandwidth()
    print(f"{clock.header('relu')}, device copy {bandwidth / 1e3:.0f} GB/s")
    for shape in SHAPES if options.configs else ():
        print(*shape, sep=",")
        for config, ours, guess in configurations(shape, options.configs, clock):
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
        ours, plain, compiled = clock.times(calls)
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
    print(summary(ratios, "the better of torch's"))
    write(rows, options.json)


if __name__ == "__main__":
    main()
