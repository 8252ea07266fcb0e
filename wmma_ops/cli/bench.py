"""`python -m wmma_ops bench`: ours beside torch's on the device at hand, or a run that was kept."""

import json
import sys
from pathlib import Path

import torch

from wmma_ops import jit
from wmma_ops.cli import benching, figure, products
from wmma_ops.cli.arguments import shapes_of
from wmma_ops.cli.terminal import output, steps
from wmma_ops.emulator.timing import timeline
from wmma_ops.runtime.clock import Clock

# M, N, K: of a language model's layers, and what a CPU does in less than a minute, whatever the type.
SHAPES = {
    "cuda": ((1, 4096, 4096), (16, 4096, 4096), (128, 4096, 14336), (512, 1024, 4096), (4096, 4096, 4096)),
    "cpu": ((1, 1024, 1024), (16, 1024, 1024), (128, 1024, 512), (256, 256, 1024), (512, 512, 512)),
}
DTYPES = {"cuda": "float16", "cpu": "float32"}
_SECONDS = 4.0  # for a case on the CPU, where torch's float16 takes 50 times as long as its float32


def show(options) -> int:
    try:
        if options.plot:
            timeline.check(options.plot)
        run = _kept(options.saved) if options.saved else _measured(options)
        if options.plot:
            for path in figure.draw(run, options.plot):
                print(path, file=sys.stderr)
    except (ValueError, TypeError) as error:
        print(f"bench: {error}", file=sys.stderr)
        return 2
    except (jit.CompileError, RuntimeError, OSError, ImportError) as error:
        print(f"bench: {str(error).strip().splitlines()[0]}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(run.data(), indent=2, ensure_ascii=False))
    else:
        run.show(output())
    return 0


def _kept(path: str) -> benching.Run:
    try:
        return benching.Run.of(json.loads(Path(path).read_text()))
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"--from is {path!r}; takes what bench --json or make bench wrote ({error!r})") from None


def _measured(options) -> benching.Run:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    options.dtype = options.dtype or DTYPES[device]
    shapes = shapes_of("bench", options) or SHAPES[device]
    clock = Clock(device, options.rounds, _SECONDS if device == "cpu" else float("inf"))
    run = benching.Run(benching.about(device, clock))
    with steps(len(shapes) + 1) as done:
        for case in products.cases(options.op, shapes, options, device):
            row = benching.measure(case, clock)
            run.rows.append(row)
            done(f"{case}: {benching.took(row.ours)}")
        run.about["copy_gb_per_second"] = clock.copy_bandwidth() / 1e3
        done("a copy within the device")
    return run
