"""What bears on attention's scores, as its kernels' configurations have it."""

from collections.abc import Iterator

import torch

from wmma_ops.ops import score_functions
from wmma_ops.ops.score_functions import PLACES, TENSORS
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, nested


def keys_looked_at(problem: AttentionProblem, queries: int) -> int:
    """By so many queries, one after the other."""
    return min(problem.skv, problem.seen + queries - 1)


def divides_blocks(problem: AttentionProblem, queries: int, keys: int) -> bool:
    """Whether tiles of so many rows of both lie in one block each, where there is a block mask."""
    return not problem.block_q or (problem.block_q % queries == 0 and problem.block_k % keys == 0)


def rules_header(problem: AttentionProblem) -> str:
    """The header that the rules' type is declared in, included, and the functions that it names."""
    plain = "rows/scaled" if problem.is_scaled else "terms/rules"
    header = "rows/paged" if problem.page_size else "rows/varlen" if problem.sequences else plain
    blocked = problem.block_q or (problem.modified and not problem.sequences)
    headers = (["rows/blocks"] if blocked else []) + ([header] if problem.sequences or not blocked else [])
    include = "".join(f"#include <wmma/attention/{header}.hpp>\n" for header in headers)
    if not problem.modified:
        return include
    lines = [*nested("Functions : ScoreFunctions", _functions(problem)), "}", ""]
    return "\n".join([f"{include}#include <wmma/attention/terms/functions.hpp>", "namespace wmma {", *lines])


def of_sequences(problem: AttentionProblem, kernel: str) -> str:
    """A kernel, where sequences are packed as the one of each."""
    return f"wmma::OfSequences<{kernel} >" if problem.sequences else kernel


def rules_type(problem: AttentionProblem) -> str:
    flags = [str(flag).lower() for flag in (problem.windowed, problem.capped)]
    drops, large = str(problem.drops).lower(), str(problem.large_cap).lower()
    last = [drops, large] if problem.large_cap else [drops] if problem.drops else []
    rules = f"wmma::ScoreRules<{', '.join([*flags, CPP[problem.sinks], CPP[problem.slopes], *last])}>"
    if problem.modified:
        rules = f"wmma::ModifiedRules<{rules}, wmma::Functions>"
    if problem.block_q:
        rules = f"wmma::BlockRules<{rules}, {problem.block_q}, {problem.block_k}>"
    if problem.page_size:
        narrow = f", {CPP[problem.stored]}" if problem.is_narrow else ""
        return f"wmma::PageRules<{rules}, {problem.page_size}{narrow}>"
    if problem.is_scaled:
        return f"wmma::ScaledRules<{rules}, {CPP[problem.stored]}>"
    return f"wmma::SequenceRules<{rules}>" if problem.sequences else rules


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
