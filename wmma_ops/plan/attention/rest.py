"""The kernel of what no packed sequence has of attention's results, or of its gradients."""

from wmma_ops.plan.attention.rules import rules_header
from wmma_ops.plan.plan import KernelLaunch
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_THREADS = 256
_SHARES = 16  # blocks that share what lies between two sequences: little, or padding behind the last


def launches(problem: AttentionProblem, clears: bool = False) -> tuple[KernelLaunch, ...]:
    """None where there are no sequences. `clears`: it sets the count of tiles to 0 that blocks of the next kernel are
    dealt."""
    if not problem.sequences:
        return ()
    members = [
        *aliases({"Element": CPP[problem.dtype]}),
        *constants("int", {"kThreads": _THREADS}),
        *constants("bool", {"kBackward": problem.backward, "kClears": clears}),
    ]
    before = rules_header(problem)
    source = kernel_text("attention.hip", members=members, before=before, defines={"WMMA_ATTENTION_REST": True})
    return (KernelLaunch("attention_rest", source, (problem.batch + 1, _SHARES), _THREADS, 0),)
