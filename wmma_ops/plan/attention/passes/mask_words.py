"""The kernel before sm_90a's warpgroups look at a bool mask: it makes words of it, a bit a score, and finds the tiles of
keys that it hides from a tile of queries (kernels/wmma/attention/passes/mask_words.hpp)."""

import dataclasses
from enum import Enum
from math import ceil

from wmma_ops.hardware.geometry import up
from wmma_ops.plan.plan import KernelLaunch, Plan
from wmma_ops.plan.problem import AttentionNumbers, AttentionProblem
from wmma_ops.plan.source import constants, kernel_text

_THREADS = 128  # unless each block has those of a block of scores
_WAVE = 32
_ROWS = 128  # of such a block, where there is no block mask
_LEAST_KEYS = 257  # three tiles
COLUMNS = 128  # of the words of four lanes
_ROW_BYTES = 16  # those words
_SHARES = 4  # in which threads read these columns
_KEYS = 4  # that they read at once
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


def blocked(problem: AttentionProblem, hides: Hidden, queries: int) -> AttentionProblem:
    """The forward problem with the block mask that the kernel finds, where one is worth to be: of so many queries a block,
    or, where a mask says the same to all, of all, in few sizes."""
    if hides is Hidden.NONE or problem.skv < _LEAST_KEYS:
        return problem
    if hides is Hidden.KEYS:
        queries <<= (ceil(problem.sq / queries) - 1).bit_length()
    return dataclasses.replace(problem, block_q=queries, block_k=COLUMNS)


def with_kernel(plan: Plan, problem: AttentionProblem, hides: Hidden) -> Plan:
    """The plan with the kernel before it, where one is needed: for words, for the block mask, which are in its workspace."""
    if hides is Hidden.NONE or (hides is Hidden.KEYS and not problem.block_q):
        return plan
    end = up(plan.workspace, _ROW_BYTES)
    numbers = AttentionNumbers(*plan.numbers)
    if hides is Hidden.PAIRS:
        numbers = numbers._replace(words_at=end, words_rows=_rows(problem), words_tiles=_tiles(problem))
        end += _matrices(problem) * _tiles(problem) * _rows(problem) * _ROW_BYTES
    if problem.block_q:
        numbers = numbers._replace(
            block_q=problem.block_q,
            block_k=problem.block_k,
            blocks_at=end,
            blocks_of_batches=int(problem.mask_batches),
            blocks_of_heads=int(problem.mask_heads),
        )
        end += _matrices(problem) * ceil(problem.sq / problem.block_q) * _tiles(problem)
    return dataclasses.replace(plan, launches=(_launch(problem, hides), *plan.launches), workspace=end, numbers=numbers)


def _launch(problem: AttentionProblem, hides: Hidden) -> KernelLaunch:
    threads, shared = _THREADS, 0
    if hides is Hidden.KEYS:
        blocks = ceil(_matrices(problem) * _tiles(problem) * _WAVE / _THREADS)
    elif problem.backward:
        blocks = ceil(_tiles(problem) * _SHARES * (_rows(problem) // _KEYS) / _THREADS) * _matrices(problem)
    else:
        rows = problem.block_q or _ROWS
        threads, shared = rows * _SHARES, rows * _SHARES // _WAVE
        blocks = ceil(problem.sq / rows) * _tiles(problem) * _matrices(problem)
    members = [
        *constants("int", {"kThreads": threads}),
        *constants("bool", {"kOfKeys": problem.backward, "kFindsBlocks": problem.block_q > 0}),
        *constants("wmma::Hidden", {"kHidden": hides.value}),
    ]
    source = kernel_text("attention_mask_words.hip", members=members, before=HEADER)
    return KernelLaunch("attention_mask_words", source, (blocks, 1), threads, shared)
