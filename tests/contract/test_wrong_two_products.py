"""Kernels of two products that are wrong on purpose. The value suite's cases must catch each."""

from dataclasses import dataclass

import pytest
import torch
from test_gemm_gemm import KINDS

from wmma_ops.emulator import EmulationError, OutOfBounds, Race, Uninitialised
from wmma_ops.plan.gemm_gemm import planner as gemm_gemm
from wmma_ops.plan.gemm_gemm.loops import LOOPS
from wmma_ops.testing import GemmGemmCase, Mismatch, run

CASE = GemmGemmCase(
    m=150, k=70, h=44, n=90, dtype="float16", alpha0=0.1, alpha1=0.5, bias0=True, bias1=True, c="full", beta1=0.5,
    activation="relu",
)  # fmt: skip
GATED = GemmGemmCase(m=40, k=32, h=64, n=32, dtype="bfloat16", alpha0=0.1, gate=True, activation="silu")
WIDE = GemmGemmCase(m=20, k=32, h=300, n=32, dtype="float16", alpha0=0.1)
INT8 = GemmGemmCase(m=20, k=32, h=64, n=32, dtype="int8", out_dtype="int32", alpha0=0.05)

FINISH, LINK, ROUNDING = "gemm_gemm/finish.hpp", "tile/chain_link.hpp", "tile/rounding.hpp"
STREAMED, RESIDENT, ROWS = "gemm_gemm/streamed.hpp", "gemm_gemm/resident.hpp", "gemm_gemm/rows.hpp"


@dataclass(frozen=True)
class Wrong:
    """What is replaced in the device sources, which case notices, in which kernel, and how."""

    name: str
    file: str
    old: str
    new: str
    case: GemmGemmCase = CASE
    kind: str = "resident"
    caught: type[Exception] | tuple[type[Exception], ...] = Mismatch
    target: str = "gfx942"

    def __str__(self):
        return self.name


WRONG = [
    Wrong("forgets_alpha0", FINISH, "static_cast<E>(p.alpha0) * convert<E>(", "convert<E>("),
    Wrong("forgets_bias0", FINISH, "y[e] += bias(p, batch, there ? column : 0);", "y[e] += E(0);"),
    Wrong("bias0_by_step", FINISH, "bias(p, batch, there ? column : 0)", "bias(p, batch, there ? step : 0)"),
    Wrong(
        "activates_after_the_gate", FINISH, "y[e] = activate<Config::kActivation, E>(y[e]);",
        "if constexpr (Config::kGate) y[e] *= static_cast<E>(static_cast<float>(gate[tile * Sums::kSums + f]));", GATED,
    ),
    Wrong("wraps_int8", ROUNDING, "finished<T>(x[i])", "static_cast<T>(static_cast<int32_t>(x[i]))", INT8),
    Wrong("columns_in_the_tiles_order", LINK, "return line(Product::a_line(lane, i));",
          "return Product::a_line(lane, i);"),
    Wrong("another_lanes_columns", LINK, "sum / kShare * kDepth + lane / kRows * kShare + sum % kShare",
          "sum / kShare * kDepth + lane / kRows % 2 * kShare + sum % kShare", caught=(Mismatch, EmulationError)),
    Wrong("keeps_one_half_of_the_wave", "tile/product.hpp", "to[i] = upper ? other : words[i];", "to[i] = words[i];",
          target="gfx1100", caught=(Mismatch, EmulationError)),
    Wrong("repeats_the_first_rows", RESIDENT, "row < p.last.m; row += stride) {",
          "row < p.last.m; row += stride + kWaveM) {", case=GemmGemmCase(m=3000, k=16, h=16, n=16, dtype="float16"),
          caught=(Mismatch, EmulationError)),
    Wrong("rows_beyond_the_last", ROWS, "(mine < rows_ ? mine : rows_ - 1)", "mine", caught=OutOfBounds),
    Wrong("no_barrier_after_the_weights", RESIDENT, "      arch::block_barrier();\n      for (; row", "      for (; row",
          caught=(Race, EmulationError)),
    Wrong("one_chunk_of_h", STREAMED, "} while (Config::kChunked && h < p.last.k);", "} while (false);", WIDE, "streamed"),
    Wrong("no_barrier_before_the_weights", STREAMED,
          "          arch::block_barrier();  // what follows lies where the first product's tiles lay\n", "",
          case=GemmGemmCase(m=130, k=64, h=64, n=64, dtype="float16"), kind="streamed", caught=Race),
    Wrong("no_barrier_between_chunks_of_n", STREAMED,
          "depth);\n        arch::block_barrier();", "depth);",
          case=GemmGemmCase(m=130, k=64, h=64, n=300, dtype="float16"), kind="streamed", caught=(Race, Uninitialised)),
    Wrong("takes_anothers_part", FINISH, "to = mine_ + index * (Part::kSteps * kStepBytes);", "to = mine_;",
          kind="shared rows", caught=(Mismatch, EmulationError)),
]  # fmt: skip


def test_what_is_replaced_stands_there(sources):
    """Of all of them, whichever of them this run tries."""
    gone = [
        f"{of.name}: {of.file}, {of.old!r}" for of in WRONG if of.old not in (sources / "wmma" / of.file).read_text()
    ]
    assert not gone, "the headers have changed; write these anew"


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, monkeypatch):
    path = sources / "wmma" / of.file
    text = path.read_text()

    def choose(problem, target):
        found = [config for config in gemm_gemm.candidates(problem, target) if KINDS[of.kind](config)]
        return min(found, key=lambda config: gemm_gemm.cost(problem, config, target)), 0.0

    monkeypatch.setattr(gemm_gemm, "choose", choose)
    for loop in LOOPS.values():
        monkeypatch.setattr(loop, "blocks_of", lambda problem, config, target: _few(problem, config))
    torch.ops.wmma._forget_plans()
    run(of.case, f"emulated:{of.target}")  # right as it is
    path.write_text(text.replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises(of.caught):
        run(of.case, f"emulated:{of.target}")


def _few(problem, config) -> int:
    """Blocks that walk, where they do."""
    tiles = -(-problem.m // config.block_m)
    return min(tiles, 2) if config.resident else tiles
