"""The kernel that makes rows of the partial sums which blocks of keys stored for the queries' gradients
(kernels/wmma/attention/gradients/dq_partials.hpp)."""

from wmma_ops.hardware import arch
from wmma_ops.plan.attention.loops.interleaved_gradients import InterleavedConfig
from wmma_ops.plan.attention.rules import rules_header, rules_type
from wmma_ops.plan.plan import KernelLaunch, check_blocks
from wmma_ops.plan.problem import AttentionProblem
from wmma_ops.plan.source import CPP, aliases, constants, kernel_text

_SUMS_OF_THREAD = 8


def launch(problem: AttentionProblem, config: InterleavedConfig, tiles: int, target: arch.Target) -> KernelLaunch:
    """Of so many tiles of queries."""
    threads = config.others * config.depth // _SUMS_OF_THREAD
    numbers = {
        "kSide": config.side,
        "kWaves": config.waves,
        "kOthers": config.others,
        "kDepth": config.depth,
        "kOutVec": problem.out_vec,
        "kThreads": threads,
    }
    members = [
        *aliases({"Element": CPP[problem.dtype], "Rules": rules_type(problem)}),
        *constants("int", numbers),
        *constants("bool", {"kFixed": config.fixed}),
    ]
    source = kernel_text("attention_dq_partials.hip", members=members, before=rules_header(problem))
    blocks = problem.batch * problem.heads * tiles
    check_blocks("attention takes", blocks, threads, target)
    return KernelLaunch("attention_dq_partials", source, (blocks, 1), threads, 0)
