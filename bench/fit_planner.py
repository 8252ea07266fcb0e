"""The planner's weights for AMD's targets, from the emulator's clock.

python bench/fit_planner.py [--write] [--target TARGET ...] [--seed N]

Kernels of products, drawn from those that the planner may take, are timed by the clock as one compute unit runs them, and
the weights of wmma_ops/plan/ways.py fitted to these times: above all to the order of a product's kernels. Other products,
which the fit does not see, tell what the planner loses: the time of what it takes, over that of the quickest. With --write
the table is written anew, where less is lost. Two minutes a target on one core.
"""

import argparse
import dataclasses
import math
import random
from dataclasses import dataclass
from pathlib import Path

import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan import model, ways
from wmma_ops.plan.gemm import planner
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.cost import cost, work_of
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.model import Way
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import launching, tuned

# What is fitted, and between which bounds.
FITTED = {
    "block": (300, 10000),
    "step": (4, 400),
    "crosstalk": (0.01, 1),
    "few": (0.01, 2),
    "tile_bytes": (8, 64),
    "round_trip": (300, 3000),
    "result_bytes": (2, 64),
    "turns": (0.001, 1),
}


@dataclass(frozen=True)
class Shape:
    m: int
    n: int
    k: int
    b_along_k: bool
    type: str
    beside: str = ""  # an activation and a factor, or a gate

    def operands(self) -> tuple[tuple[torch.Tensor, torch.Tensor], dict]:
        dtype = getattr(torch, self.type)
        a = torch.zeros(self.m, self.k, dtype=dtype)
        b = torch.zeros(self.n, self.k, dtype=dtype).mT if self.b_along_k else torch.zeros(self.k, self.n, dtype=dtype)
        if not self.beside:
            return (a, b), {}
        other = b if self.beside == "gate" else torch.zeros(self.m, self.n, dtype=dtype)
        return (a, b), {self.beside: other, "activation": "silu"}

    def problem(self, target: arch.Target) -> GemmProblem:
        operands, beside = self.operands()
        return launching.problems(lambda: wmma_ops.gemm(*operands, **beside), target)[0]


SEEN = (
    Shape(4096, 4096, 256, True, "bfloat16"),
    Shape(4096, 4096, 1024, True, "bfloat16"),
    Shape(2048, 2048, 512, False, "float16"),
    Shape(1000, 1000, 1000, False, "bfloat16"),
    Shape(512, 512, 2048, True, "float16"),
    Shape(8192, 256, 512, False, "bfloat16"),
    Shape(32, 4096, 2048, True, "bfloat16"),
    Shape(2048, 1024, 1024, True, "int8"),
    Shape(1024, 1024, 256, False, "float32"),
    Shape(8192, 5632, 1024, True, "bfloat16"),
    Shape(4096, 4096, 512, True, "bfloat16", "multiply"),
    Shape(4096, 4096, 512, True, "bfloat16", "gate"),
)
UNSEEN = (
    Shape(4096, 4096, 512, False, "bfloat16"),
    Shape(1024, 1024, 1024, True, "float16"),
    Shape(768, 3072, 768, True, "bfloat16"),
    Shape(16, 4096, 1024, True, "bfloat16"),
    Shape(300, 500, 700, False, "float16"),
    Shape(2048, 128, 1024, True, "bfloat16"),
    Shape(1536, 1536, 384, False, "float16"),
    Shape(200, 8000, 320, True, "float16"),
    Shape(8192, 5632, 768, True, "bfloat16", "gate"),
    Shape(4096, 11008, 512, True, "bfloat16", "multiply"),
)
EACH = 14  # kernels of a shape


@dataclass(frozen=True)
class Sample:
    work: model.Work  # of the blocks that one unit holds
    cycles: int
    launch: float  # cycles of all blocks, on all units


def whole(problem: GemmProblem, target: arch.Target) -> list[GemmConfig]:
    """Those that leave K whole and are thought not to spill, the cheapest first."""
    return [
        config
        for config in planner.ranked(problem, target)
        if config.order.splits == config.order.last == 1 and not loop_of(config).lacking(problem, config, target)
    ]


def timed(shape: Shape, problem: GemmProblem, config: GemmConfig, target: arch.Target) -> Sample:
    operands, beside = shape.operands()
    with tuned.forced(problem, config):
        launch = wmma_ops.explain("gemm", *operands, target=target.name, **beside).launches[0]
    timing, units, card = launch.timing(), model.wholes(target), model.CARDS[target.name]
    work = work_of(problem, config, target)
    of_all = max(timing.cycles * timing.estimate.rounds, work.traffic / card.memory)
    load, resident = timing.blocks * units / card.units, timing.blocks
    return Sample(work._replace(load=load, resident=resident, traffic=0), timing.cycles, of_all)


def error(way: Way, groups: list[list[Sample]], target: arch.Target) -> float:
    """Of the logarithms of guessed over timed: how they scatter within a product's kernels, and a little of how far off
    they are."""
    scattered = off = 0.0
    for group in groups:
        logs = []
        for sample in group:
            guess = model.cycles(target, sample.work._replace(way=way)) - model.LAUNCH
            logs.append(math.log(guess / sample.cycles))
        mean = sum(logs) / len(logs)
        scattered += sum((x - mean) ** 2 for x in logs) / len(logs)
        off += sum(x * x for x in logs) / len(logs)
    return math.sqrt((scattered + 0.2 * off) / len(groups))


def fitted(groups: list[list[Sample]], target: arch.Target, way: Way, draw: random.Random) -> Way:
    """By random steps, which shorten when they do not help."""
    takes_turns = any(sample.work.hides_latencies for samples in groups for sample in samples)
    names = [name for name in FITTED if name != "turns" or takes_turns]
    best, width = error(way, groups, target), 0.5
    while width > 0.01:
        better = False
        for _ in range(60):
            changes = {}
            for name in draw.sample(names, draw.choice((1, 1, 2, 3))):
                least, most = FITTED[name]
                changes[name] = min(max(getattr(way, name) * math.exp(draw.gauss(0, width)), least), most)
            tried = dataclasses.replace(way, **changes)
            if (found := error(tried, groups, target)) < best:
                way, best, better = tried, found, True
        width *= 1 if better else 0.7
    return dataclasses.replace(way, **{name: float(f"{getattr(way, name):.3g}") for name in FITTED})


def losses(tables: dict[str, Way], target: arch.Target, draw: random.Random) -> dict[str, float]:
    """What the planner takes with each, over the quickest that was timed: the geometric mean of the unseen products."""
    row, logs = ways.like(target), dict.fromkeys(tables, 0.0)
    kept = ways.WAYS[row]
    for shape in UNSEEN:
        problem = shape.problem(target)
        found, chosen = whole(problem, target), {}
        for name, way in tables.items():
            ways.WAYS[row] = way
            chosen[name] = min(found, key=lambda config: cost(problem, config, target))
        tried = dict.fromkeys((*chosen.values(), *found[:4], *draw.sample(found, min(EACH, len(found)))))
        times = {config: timed(shape, problem, config, target).launch for config in tried}
        for name, config in chosen.items():
            logs[name] += math.log(times[config] / min(times.values()))
    ways.WAYS[row] = kept
    return {name: math.exp(total / len(UNSEEN)) for name, total in logs.items()}


def written(way: Way) -> str:
    return ", ".join(f"{name}={getattr(way, name):g}" for name in FITTED if name != "turns" or way.turns)


def write(table: dict[str, Way]) -> None:
    path = Path(ways.__file__)
    before, _, rest = path.read_text().partition("WAYS = {\n")
    _, _, after = rest.partition("\n}\n")
    rows = "".join(f'    "{name}": Way({written(way)}),\n' for name, way in table.items())  # the formatter breaks lines
    path.write_text(f"{before}WAYS = {{\n{rows}}}\n{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--target", nargs="+", default=list(ways.WAYS), choices=list(ways.WAYS))
    parser.add_argument("--write", action="store_true", help="write the table of wmma_ops/plan/ways.py anew")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    table = dict(ways.WAYS)
    for name in options.target:
        target, draw = arch.target(name), random.Random(options.seed)
        groups = []
        for shape in SEEN:
            problem = shape.problem(target)
            found = whole(problem, target)
            others = found[4:40]
            picked = found[:4] + draw.sample(others, min(EACH - 4, len(others)))
            groups.append([timed(shape, problem, config, target) for config in picked])
        before, after = table[name], fitted(groups, target, table[name], draw)
        lost = losses({"before": before, "after": after}, target, draw)
        print(
            f"{name:<8} {sum(map(len, groups))} kernels: guesses scatter by {error(before, groups, target):.0%} before, "
            f"{error(after, groups, target):.0%} after; the planner's choice over the quickest: "
            f"{lost['before']:.3f} before, {lost['after']:.3f} after\n         {written(after)}",
            flush=True,
        )
        if lost["after"] <= lost["before"]:
            table[name] = after
    if options.write:
        write(table)


if __name__ == "__main__":
    main()
