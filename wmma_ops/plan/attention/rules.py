"""What bears on attention's scores, as its kernels' configurations have it."""

from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP


def keys_looked_at(problem: AttentionProblem, queries: int) -> int:
    """By so many queries, one after the other."""
    return min(problem.skv, problem.seen + queries - 1)


def rules_header(problem: AttentionProblem) -> str:
    """The header that the rules' type is declared in, included."""
    header = "pages" if problem.page_size else "sequences" if problem.sequences else "rules"
    return f"#include <wmma/attention/{header}.hpp>\n"


def rules_type(problem: AttentionProblem) -> str:
    flags = [str(flag).lower() for flag in (problem.windowed, problem.capped)]
    drops = ["true"] if problem.drops else []
    rules = f"wmma::ScoreRules<{', '.join([*flags, CPP[problem.sinks], CPP[problem.slopes], *drops])}>"
    if problem.page_size:
        return f"wmma::PageRules<{rules}, {problem.page_size}>"
    return f"wmma::SequenceRules<{rules}>" if problem.sequences else rules
