"""What bears on attention's scores, as its kernels' configurations have it."""

from collections.abc import Iterator
from math import ceil

import torch

from wmma_ops.hardware.geometry import up
from wmma_ops.ops import score_functions
from wmma_ops.ops.score_functions import PLACES, TENSORS
from wmma_ops.plan.attention import invariant
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, nested


def keys_looked_at(problem: AttentionProblem, queries: int) -> int:
    """By so many queries, one after the other."""
    return min(problem.skv, problem.seen + queries - 1)


def dealt_keys(problem: AttentionProblem, keys: int, splits: int, tile: int) -> tuple[int, int]:
    """Into how many parts they are split, of how many keys, whole tiles of them."""
    if problem.invariant:
        return splits, invariant.PART
    share = max(up(ceil(keys / splits), tile), 1)
    return ceil(keys / share), share


def divides_blocks(problem: AttentionProblem, queries: int, keys: int) -> bool:
    """Whether tiles of so many rows of both lie in one block each, where there is a block mask."""
    return not problem.block_q or (problem.block_q % queries == 0 and problem.block_k % keys == 0)


def rules_header(problem: AttentionProblem) -> str:
    """The headers that the rules' types are declared in, included, and the functions that they name."""
    stems = ["terms/scores", *(stem for stem, _ in _rules(problem))]
    lines = [f"#include <wmma/attention/{stem}.hpp>" for stem in stems]
    if problem.modified:
        lines += ["namespace wmma {", *nested("Functions : ScoreFunctions", _functions(problem)), "}"]
    return "\n".join([*lines, ""])


def of_sequences(problem: AttentionProblem, kernel: str) -> str:
    """A kernel, where sequences are packed as the one of each."""
    return f"wmma::OfSequences<{kernel} >" if problem.sequences else kernel


def rules_type(problem: AttentionProblem) -> str:
    found = "wmma::PlainScores"
    for _, around in _rules(problem):
        found = f"wmma::{around.format(found)}"
    return found


def _rules(problem: AttentionProblem) -> list[tuple[str, str]]:
    """The terms that there are, then how rows lie: each one's header, and its type around those before it."""
    quick, stored = str(not problem.large_cap).lower(), CPP[problem.stored if problem.is_narrow else None]
    rules = (
        (problem.windowed, "terms/window", "WindowRules<{}>"),
        (problem.capped, "terms/cap", f"CapRules<{{}}, {quick}>"),
        (problem.slopes, "terms/slopes", f"SlopeRules<{{}}, {CPP[problem.slopes]}>"),
        (problem.sinks, "terms/sink", f"SinkRules<{{}}, {CPP[problem.sinks]}>"),
        (problem.drops, "terms/dropout", "DropoutRules<{}>"),
        (problem.modified, "terms/functions", "FunctionRules<{}, wmma::Functions>"),
        (problem.block_q, "rows/blocks", f"BlockRules<{{}}, {problem.block_q}, {problem.block_k}>"),
        (problem.sequences and not problem.page_size, "rows/varlen", "SequenceRules<{}>"),
        (problem.page_size, "rows/paged", f"PageRules<{{}}, {problem.page_size}, {stored}>"),
        (problem.is_scaled, "rows/scaled", f"ScaledRules<{{}}, {stored}>"),
    )
    return [(header, around) for there, header, around in rules if there]


def _functions(problem: AttentionProblem) -> Iterator[str]:
    """The members of the struct that kernels/wmma/attention/terms/functions.hpp tells of."""
    number = "double" if problem.dtype == torch.float64 else "float"
    places = ", ".join(f"int {name}" for name in PLACES)

    def function(name: str, text: str, scored: bool) -> Iterator[str]:
        result, score = (number, f"{number} score, ") if scored else ("bool", "")
        yield f"static WMMA_DEVICE {result} {name}(const ScoreFunctionArguments& p, {score}{places}) {{"
        for i, form in enumerate(problem.mods):
            if form is not None:
                dtype, dims, wide = form
                of = f"{number}, {CPP[dtype]}, {dims}, {str(wide).lower()}"
                yield f"  const ScoreTensor<{of}> {TENSORS[i]}(p.tensors[{i}]);"
        yield f"  return static_cast<{result}>({text});"
        yield "}"

    if problem.score_mod:
        of = score_functions.by_code(False, problem.score_mod)
        assert of.derivative is not None
        yield "static constexpr bool kChanges = true;"
        yield from function("changed", of.expression, True)
        yield from function("slope", of.derivative, True)
    if problem.mask_mod:
        yield "static constexpr bool kHides = true;"
        yield from function("shows", score_functions.by_code(True, problem.mask_mod).expression, False)
