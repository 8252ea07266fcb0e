"""What products would gain if the steps of their last tiles were dealt evenly over an AMD GPU's units ("stream-K").

    python bench/even_deal.py [--target gfx942 ...]

For each product the planner's estimate of what it takes, and that of the quickest tile of which every unit has as many
steps: whole rounds of tiles as they are, the last whole one and what is left over in one piece a unit. A piece that does not
end its tile is written, in float32, and read once by the block that comes last. Of that the first figure counts what a unit
waits for its own, beside what all units have of memory; the second all parts at memory's rate behind the product, as the
planner counts those of a K that is split. Nothing is measured. A minute a target on one core.
"""

import argparse
from math import ceil, gcd, prod

import torch

import wmma_ops
from wmma_ops.emulator.timing.rules import rules
from wmma_ops.hardware import arch
from wmma_ops.plan import model
from wmma_ops.plan.gemm import planner
from wmma_ops.plan.gemm.config import GemmConfig
from wmma_ops.plan.gemm.cost import work_of
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.problem import GemmProblem
from wmma_ops.runtime import launching

TARGETS = ("gfx90a", "gfx942", "gfx950")
LAYERS = ((4096, 4096), (14336, 4096), (4096, 14336), (6144, 4096), (5120, 5120), (3072, 3072), (12288, 3072))
SHAPES = [(m, n, k) for m in (256, 512, 1024, 2048, 4096, 8192) for n, k in LAYERS]
SHAPES += [(edge, edge, edge) for edge in (2048, 3000, 5120, 8192)]
SHAPES += [(4608, 3072, 15360), (1536, 1536, 6144)]
_ROUND_TRIP = 1500  # cycles, from the last part's arrival to its sum
_ENOUGH = 1.08


def problem_of(m: int, n: int, k: int, target: arch.Target) -> GemmProblem:
    """M x K by K x N in bfloat16, B along K."""
    a, b = torch.zeros(m, k, dtype=torch.bfloat16), torch.zeros(n, k, dtype=torch.bfloat16).mT
    return launching.problems(lambda: wmma_ops.matmul(a, b), target)[0]


def dealt_evenly(problem: GemmProblem, config: GemmConfig, target: arch.Target) -> tuple[float, float]:
    """Modelled cycles: at best, and with all parts behind the product."""
    card = model.CARDS[target.name]
    tiles = prod(config.tiles(problem)) * problem.batch
    dealt = tiles % card.units + (card.units if tiles > card.units else 0)
    part = config.block_m * config.block_n * config.sum_bytes
    moved = 2 * (card.units - gcd(card.units, dealt)) * part
    work = work_of(problem, config, target)._replace(load=tiles / card.units)
    own = (1 + ceil(card.units / dealt)) * part / rules(target.name).l2_path + _ROUND_TRIP
    best = model.cycles(target, work._replace(traffic=work.traffic + moved)) + own
    return best, model.cycles(target, work) + moved / card.memory + _ROUND_TRIP


def gains(problem: GemmProblem, target: arch.Target) -> tuple[float, float]:
    _, now = planner.choose(problem, target)
    units = model.CARDS[target.name].units
    every = [
        dealt_evenly(problem, config, target)
        for config in planner.candidates(problem, target)
        if loop_of(config).splits(config) and not loop_of(config).lacking(problem, config, target)
        if prod(config.tiles(problem)) * problem.batch % units
    ]
    best, behind = (min((one[i] for one in every), default=now) for i in (0, 1))
    return max(now / best, 1), max(now / behind, 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", nargs="+", default=TARGETS, choices=TARGETS)
    for name in parser.parse_args().target:
        target = arch.target(name)
        found = {shape: gains(problem_of(*shape, target), target) for shape in SHAPES}
        for (m, n, k), (best, behind) in found.items():
            print(f"{name} {m}x{n}x{k}".ljust(26), f"{best:.2f} {behind:.2f}", flush=True)
        best, behind = (sum(one[i] >= _ENOUGH for one in found.values()) for i in (0, 1))
        print(f"{name}: {best} and {behind} of {len(found)} products gain 8 % or more")


if __name__ == "__main__":
    main()
