"""What bears on attention's scores, as its kernels' configurations have it."""

from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP

BEFORE = "#include <wmma/attention/rules.hpp>\n"  # what the type is declared in


def keys_looked_at(problem: AttentionProblem, queries: int) -> int:
    """By so many queries, one after the other."""
    return min(problem.skv, problem.seen + queries - 1)


def rules_type(problem: AttentionProblem) -> str:
    flags = [str(flag).lower() for flag in (problem.windowed, problem.capped)]
    return f"wmma::ScoreRules<{', '.join([*flags, CPP[problem.sinks], CPP[problem.slopes]])}>"
