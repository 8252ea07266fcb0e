"""Compiled models with our ops in them against plain torch.compile on a GPU: medians in turn, one line a case.

python bench/bench_models.py [--quick] [--json FILE] [--tiny]
"""

import time

import torch
from gpu import Clock, check, matrix, parser, summary, write
from models import Decoder, LoRALinear
from torch._inductor.utils import fresh_cache

import wmma_ops.inductor

PREFILL = (4, 2048)  # batch, tokens
DECODE = (16, 2048)  # batch, tokens before
LORA = ((8192, 4096, 4096, 16), (16, 8192, 4096, 16))  # rows of x, of the weight's sides and the rank


def cases(tiny: bool):
    """(name, model, arguments)."""
    sizes = {"hidden": 256, "width": 512, "heads": 4, "kv_heads": 2} if tiny else {}
    shrink = 32 if tiny else 1
    decoder = Decoder(**sizes).to(device="cuda", dtype=torch.bfloat16).eval()
    hidden = sizes.get("hidden", 4096)
    layer = decoder.layers[0].attention
    batch, tokens = PREFILL
    yield f"prefill {batch}x{tokens // shrink}", decoder, (matrix(batch, tokens // shrink, hidden),)
    batch, before = DECODE
    kv_heads = layer.k_proj.out_features // layer.size
    past = [tuple(matrix(batch, kv_heads, before // shrink, layer.size) for _ in "kv") for _ in decoder.layers]
    yield f"decode {batch} after {before // shrink}", decoder, (matrix(batch, 1, hidden), past)
    for rows, columns, out, rank in LORA:
        lora = LoRALinear(columns // shrink, out // shrink, rank).to(device="cuda", dtype=torch.bfloat16)
        yield f"LoRA {rows}, {columns} to {out}, rank {rank}", lora, (matrix(rows, columns // shrink),)


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


@torch.no_grad()
def main() -> None:
    asked = parser(__doc__)
    asked.add_argument("--tiny", action="store_true", help="small models: to see that it runs")
    options = asked.parse_args()
    clock = Clock(options.quick)
    print(clock.header("replayed graphs", "s: the first call"))
    compiled(torch.nn.Linear(8, 8).to(device="cuda", dtype=torch.bfloat16), (matrix(8, 8),), "inductor")  # warms up
    rows = []
    for name, model, arguments in cases(options.tiny):
        want = model(*arguments)
        compiled(model, arguments, "inductor")  # the libraries behind it are loaded once
        plain, plain_seconds = compiled(model, arguments, "inductor")
        ours, seconds = compiled(model, arguments, "wmma")
        report = wmma_ops.inductor.last_report()
        check(ours(*arguments), want)
        check(plain(*arguments), want)
        mine, theirs = clock.times([replayed(ours, arguments), replayed(plain, arguments)])
        rows.append(
            {"case": name, "ours": mine, "compiled": theirs, "seconds": seconds, "compiled_seconds": plain_seconds}
            | {"rewritten": len(report.rewritten), "left": len(report.left)}
        )
        print(
            f"{name:<28} {mine:8.1f} µs, torch.compile {theirs:8.1f}: {theirs / mine:.2f}×; "
            f"{seconds:.1f} s, torch.compile {plain_seconds:.1f}"
        )
        print(report)
    print(summary([row["compiled"] / row["ours"] for row in rows], "torch.compile"))
    write(rows, options.json)


if __name__ == "__main__":
    main()
