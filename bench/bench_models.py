"""Compiled models with our ops in them against plain torch.compile on a GPU: medians in turn, one line a case.

python bench/bench_models.py [--quick] [--json FILE] [--tiny]
"""

import functools
import sys
import time
from collections.abc import Callable, Iterator

import running
import torch
from decoder import Decoder, LoRALinear
from running import check, matrix
from torch._inductor.utils import fresh_cache

import wmma_ops.inductor
from wmma_ops.cli.benching import OURS, Calls, Case

PREFILL = (4, 2048)  # batch, tokens
DECODE = (16, 2048)  # batch, tokens before
LORA = ((8192, 4096, 4096, 16), (16, 8192, 4096, 16))  # rows of x, of the weight's sides and the rank


SIZES = {"hidden": 4096, "width": 14336, "heads": 32, "kv_heads": 8}
TINY = {"hidden": 256, "width": 512, "heads": 4, "kv_heads": 2}


def prefill(batch: int, tokens: int, sizes: dict):
    """A model and its arguments, as the others give them."""
    return _placed(Decoder(**sizes)), (matrix(batch, tokens, sizes["hidden"]),)


def decode(batch: int, before: int, sizes: dict):
    decoder = _placed(Decoder(**sizes))
    shape = batch, sizes["kv_heads"], before, decoder.size
    past = [tuple(matrix(*shape) for _ in "kv") for _ in decoder.layers]
    return decoder, (matrix(batch, 1, sizes["hidden"]), past)


def lora(rows: int, columns: int, out: int, rank: int):
    return _placed(LoRALinear(columns, out, rank)), (matrix(rows, columns),)


def _placed(model: torch.nn.Module) -> torch.nn.Module:
    return model.to(device=running.DEVICE, dtype=torch.bfloat16).eval()


def cases(tiny: bool = False) -> Iterator[Case]:
    sizes, shrink = (TINY, 32) if tiny else (SIZES, 1)

    def case(name: str, made: Callable, *given) -> Case:
        return Case("compiled models", name, lambda: timed(*made(*given)), ("torch.compile",), running.DEVICE)

    batch, tokens = PREFILL[0], PREFILL[1] // shrink
    yield case(f"prefill {batch}x{tokens}", prefill, batch, tokens, sizes)
    batch, before = DECODE[0], DECODE[1] // shrink
    yield case(f"decode {batch} after {before}", decode, batch, before, sizes)
    for rows, columns, out, rank in LORA:
        name = f"LoRA {rows}, {columns} to {out}, rank {rank}"
        yield case(name, lora, rows, columns // shrink, out // shrink, rank)


def compiled(model, arguments, backend: str):
    """The compiled model, and the seconds that its first call takes."""
    torch._dynamo.reset()
    found = torch.compile(model, backend=backend, fullgraph=True)
    with fresh_cache():
        start = time.perf_counter()
        found(*arguments)
        torch.cuda.synchronize()
        return found, time.perf_counter() - start


def replayed(model, arguments):
    """The model's kernels without the host's work between them."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            model(*arguments)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        model(*arguments)
    return graph.replay


@functools.cache
def _started() -> None:
    """What the first compilation of a process takes is no model's."""
    compiled(_placed(torch.nn.Linear(8, 8)), (matrix(8, 8),), "inductor")


@torch.no_grad()
def timed(model, arguments) -> Calls:
    _started()
    want = model(*arguments)
    compiled(model, arguments, "inductor")  # the libraries behind it are loaded once
    plain, plain_seconds = compiled(model, arguments, "inductor")
    ours, seconds = compiled(model, arguments, "wmma")
    report = wmma_ops.inductor.last_report()
    print(report, file=sys.stderr)
    error = check(ours(*arguments), want)
    check(plain(*arguments), want)
    return Calls(
        {OURS: replayed(ours, arguments), "torch.compile": replayed(plain, arguments)},
        error=error,
        note=f"the first call {seconds:.1f} and {plain_seconds:.1f} s; rewritten {len(report.rewritten)}",
    )


def main(arguments: list[str] | None = None) -> None:
    asked = running.parser(__doc__)
    asked.add_argument("--tiny", action="store_true", help="small models: to see that it runs")
    options = asked.parse_args(arguments)
    running.main(cases(options.tiny), options)


if __name__ == "__main__":
    main()
