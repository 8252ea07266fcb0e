"""The kernel that makes words of a bool mask, a bit a score, before sm_90a's warpgroups look at them
(kernels/wmma/attention/passes/mask_words.hpp)."""

import dataclasses
from enum import Enum
from math import ceil

from wmma_ops.hardware.geometry import up
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import constants, kernel_text

_THREADS = 128
COLUMNS = 128  # of the words of four lanes
_ROW_BYTES = 16  # those words
_SHARES = 4  # in which threads read these columns; those of gradients four rows of them
_MOST_ROWS = 192  # of a block, which reads all of its own
_LINES = 64


class Hidden(Enum):
    """What loops hide that look at a bool mask's bits (kernels/wmma/attention/terms/hidden.hpp)."""

    NONE = "wmma::Hidden::kNone"
    KEYS = "wmma::Hidden::kKeys"  # from all queries
    PAIRS = "wmma::Hidden::kPairs"  # from some; these need words


HEADER = "#include <wmma/attention/terms/hidden.hpp>\n"


def _rows(problem: AttentionProblem) -> int:
    """Of a line: queries, or for gradients keys, as many as the last block reads."""
    return up(problem.skv if problem.backward else problem.sq, _LINES) + _MOST_ROWS - _LINES


def _tiles(problem: AttentionProblem) -> int:
    return ceil((problem.sq if problem.backward else problem.skv) / COLUMNS)


def _matrices(problem: AttentionProblem) -> int:
    return (problem.batch if problem.mask_batches else 1) * (problem.heads if problem.mask_heads else 1)


def with_words(plan: Plan, problem: AttentionProblem) -> Plan:
    """The plan with the kernel before it, whose words are in its workspace."""
    at = up(plan.workspace, _ROW_BYTES)
    numbers = AttentionNumbers(*plan.numbers)._replace(
        words_at=at, words_rows=_rows(problem), words_tiles=_tiles(problem)
    )
    return dataclasses.replace(
        plan,
        launches=(_launch(problem), *plan.launches),
        workspace=at + _matrices(problem) * _tiles(problem) * _rows(problem) * _ROW_BYTES,
        numbers=numbers,
    )


def _launch(problem: AttentionProblem) -> KernelLaunch:
    threads = _tiles(problem) * _SHARES * (_rows(problem) // 4 if problem.backward else _rows(problem))
    members = [*constants("int", {"kThreads": _THREADS}), *constants("bool", {"kOfKeys": problem.backward})]
    source = kernel_text("attention_mask_words.hip", members=members)
    grid = (ceil(threads / _THREADS) * _matrices(problem), 1)
    return KernelLaunch("attention_mask_words", source, grid, _THREADS, 0)
