"""What products take on the GPU at hand, each by several of the kernels that the planner may take for it.

python bench/planner_samples.py --json FILE [--seed N] [--count N] [--each N]

Layers of published models with from 1 to 16,384 rows, drawn by a seed, as bench_draw.py has them. Of each the kernels that
the model thinks cheapest, and a few others. At the end comes what the planner's choice takes beside the quickest.
"""

import argparse
import json
import random
import statistics
from pathlib import Path

import bench_draw
import torch
from model_sizes import MODELS

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import driver, launching, tuned, tuning
from wmma_ops.runtime.clock import Clock

KINDS = ("plain", "plain", *bench_draw.EPILOGUES)
BEHIND = 60  # of the ranking, that others are drawn from
PASSES, ROUNDS = 2, 7

Sizes = tuple[int, int, int, str]  # rows, K, N, what follows


def problem_of(sizes: Sizes, target: arch.Target) -> GemmProblem:
    _, arguments, keywords = bench_draw.product_call(*sizes)
    return launching.problems(lambda: wmma_ops.linear(*arguments, **keywords), target)[0]


def picked(problem: GemmProblem, target: arch.Target, each: int, draw: random.Random) -> list[GemmConfig]:
    ranked = [one for one in planner.ranked(problem, target) if not loop_of(one).lacking(problem, one, target)]
    first, others = ranked[: each * 2 // 3], ranked[each * 2 // 3 : BEHIND]
    return first + draw.sample(others, min(each - len(first), len(others)))


def timed(sizes: Sizes, configs: list[GemmConfig], target: arch.Target, clock: Clock) -> list[float]:
    """Medians, in microseconds."""
    _, arguments, keywords = bench_draw.product_call(*sizes, device="cuda")
    for tensor in (*arguments, *(x for x in keywords.values() if isinstance(x, torch.Tensor))):
        tensor.normal_()
    problem = launching.problems(lambda: wmma_ops.linear(*arguments, **keywords), target)[0]
    found: list[list[float]] = [[] for _ in configs]
    for _ in range(PASSES):
        for times, config in zip(found, configs, strict=True):
            with tuned.forced(problem, config):
                (samples,) = clock.samples([lambda: wmma_ops.linear(*arguments, **keywords)], warm=2)
            times += samples
    return [statistics.median(times) for times in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=bench_draw.today())
    parser.add_argument("--count", type=int, default=64, help="products")
    parser.add_argument("--each", type=int, default=18, help="kernels of each")
    options = parser.parse_args()
    target, draw = arch.target(driver.target_of(0)), random.Random(options.seed)
    drawn = []
    for _ in range(options.count):
        k, n = bench_draw.layer(draw, MODELS[draw.choice([*MODELS])])
        sizes = bench_draw.log_uniform(draw, 1, bench_draw.MOST_ROWS), k, n, draw.choice(KINDS)
        problem = problem_of(sizes, target)
        drawn.append((sizes, problem, picked(problem, target, options.each, draw)))
    for failure in tuning.compiled([(problem, config) for _, problem, configs in drawn for config in configs], target):
        if failure:
            raise RuntimeError(failure)
    clock, rows, losses = Clock("cuda", ROUNDS), [], []
    for sizes, _, configs in drawn:
        times = timed(sizes, configs, target, clock)
        best = min(range(len(times)), key=times.__getitem__)
        print(f"{sizes}: {times[0]:.1f} µs, {times[best]:.1f} by {configs[best]} ({best})", flush=True)
        losses.append(times[0] / times[best])
        rows.append({"sizes": sizes, "timed": [[str(x), round(t, 2)] for x, t in zip(configs, times, strict=True)]})
    over = ", ".join(f"{sum(loss > 1 + part for loss in losses)} over {part:.0%}" for part in (0.03, 0.1))
    print(f"The planner's choice over the quickest: {statistics.geometric_mean(losses):.3f} in the mean, {over}")
    card = torch.cuda.get_device_name()
    text = ",\n".join(json.dumps(row) for row in rows)
    options.json.write_text(f'{{"gpu": "{card}", "seed": {options.seed}, "products": [\n{text}\n]}}\n')


if __name__ == "__main__":
    main()
