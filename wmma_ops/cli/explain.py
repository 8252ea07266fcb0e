"""`python -m wmma_ops explain`: what a call of these sizes would launch, and why."""

import json
import sys

import torch

from wmma_ops import jit
from wmma_ops.cli import calls
from wmma_ops.cli.arguments import called, sizes_of
from wmma_ops.plan import ConfigError
from wmma_ops.runtime import driver
from wmma_ops.runtime.explain import Explanation, explain, explained


def show(options) -> int:
    target = options.target or (driver.target_of(0) if torch.cuda.is_available() else None)
    if target is None:
        print("explain: no GPU is here; pass --target, such as --target gfx942 or --target sm_90a", file=sys.stderr)
        return 2
    try:
        found = planned(options, target)
    except (ValueError, TypeError) as error:
        text = str(error).removeprefix("explain: ")
        print(f"explain: {text}", file=sys.stderr)
        return 1 if isinstance(error, ConfigError) else 2
    except (jit.CompileError, RuntimeError) as error:
        print(f"explain: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(data(found, source=options.source, assembly=options.assembly), indent=2, ensure_ascii=False))
        return 0
    if not (options.source or options.assembly):
        print(found)
    for launch in found.launches:
        if options.source:
            print(launch.source)
        if options.assembly:
            print(launch.assembly or f"// {launch.code.compiler} gives no assembly")
    return 0


def planned(options, target: str) -> Explanation:
    """Of the call that the options name."""
    sizes = sizes_of(options.op, options)
    try:
        arguments, keywords = calls.call(options.op, sizes, options)
        op = called(options)
        if options.backward:
            return explained(f"{op}_backward", lambda: calls.function(options)(*arguments, **keywords), target)
        return explain(op, *arguments, target=target, **keywords)
    except (ValueError, TypeError, jit.CompileError):
        raise
    except (RuntimeError, MemoryError) as error:  # torch's and ours: tensors are made, though never written
        asked = " × ".join(map(str, sizes.values()))
        raise RuntimeError(f"{str(error).splitlines()[0]}; perhaps {asked} is more than fits into memory") from None


def data(found: Explanation, *, source: bool = False, assembly: bool = False) -> dict:
    def launch(one) -> dict:
        return {
            "kernel": one.kernel,
            "grid": list(one.grid),
            "block": one.block,
            "shared_bytes": one.shared_bytes,
            "compiler": one.code.compiler,
            "code_bytes": len(one.code_object),
            "figures": None if one.figures is None else one.figures.as_dict(),
            **({"source": one.source} if source else {}),
            **({"assembly": one.assembly} if assembly else {}),
        }

    return {
        "op": found.op,
        "target": found.target,
        "steps": [
            {
                "problem": calls.plain(step.problem),
                "config": None if step.config is None else calls.plain(step.config),  # two products, where not one
                "reason": step.reason,
                "launches": [launch(one) for one in step.launches],
            }
            for step in found.steps
        ],
    }
