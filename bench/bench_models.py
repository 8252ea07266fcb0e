"""Compiled models with our ops in them against plain torch.compile on a GPU: medians in turn, one line a case.

python bench/bench_models.py [--quick] [--json FILE] [--tiny] [--drawn COUNT [--seed N]]
"""

import copy
import functools
import importlib.util
import sys
import time
from collections.abc import Callable, Iterator

import published
import running
import torch
from bench_train import today
from blocks import DiTBlock, UNetBlock, ViTBlock
from decoder import Decoder, LoRALinear
from running import matrix
from torch._inductor.utils import fresh_cache

import wmma_ops.inductor
from wmma_ops.cli.benching import OURS, Calls, Case
from wmma_ops.testing.results import relative

PREFILL = (4, 2048)  # batch, tokens
DECODE = ((16, 2048), (1, 2048))  # batch, tokens before
DIT = (1, 4608)  # batch, tokens
VIT = (16, 577, 4)  # images, tokens, layers
UNET = (8, 1024, 77)  # images, tokens, and those of the text
LORA = ((8192, 4096, 4096, 16), (16, 8192, 4096, 16))  # rows of x, of the weight's sides and the rank


SIZES = {"hidden": 4096, "width": 14336, "heads": 32, "kv_heads": 8}
TINY = {"hidden": 256, "width": 512, "heads": 4, "kv_heads": 2}
DIT_SIZES, VIT_SIZES = {"width": 3072, "heads": 24}, {"width": 1024, "heads": 16}
TINY_BLOCK = {"width": 128, "heads": 2}
UNET_SIZES, TINY_UNET = {"width": 1280, "heads": 20, "text": 2048}, {"width": 128, "heads": 2, "text": 64}


def prefill(batch: int, tokens: int, sizes: dict):
    """A model and its arguments, as the others give them."""
    return _placed(Decoder(**sizes)), (matrix(batch, tokens, sizes["hidden"]),)


def decode(batch: int, before: int, sizes: dict):
    decoder = _placed(Decoder(**sizes))
    shape = batch, sizes["kv_heads"], before, decoder.size
    past = [tuple(matrix(*shape) for _ in "kv") for _ in decoder.layers]
    return decoder, (matrix(batch, 1, sizes["hidden"]), past)


def dit(batch: int, tokens: int, sizes: dict):
    width, size = sizes["width"], sizes["width"] // sizes["heads"]
    turn = (matrix(tokens, size).float() for _ in ("cos", "sin"))
    return _placed(DiTBlock(**sizes)), (matrix(batch, tokens, width), matrix(batch, width), *turn)


def vit(images: int, tokens: int, layers: int, sizes: dict):
    model = torch.nn.Sequential(*(ViTBlock(**sizes) for _ in range(layers)))
    return _placed(model), (matrix(images, tokens, sizes["width"]),)


def unet(images: int, tokens: int, words: int, sizes: dict):
    block = UNetBlock(**sizes)
    return _placed(block), (matrix(images, tokens, sizes["width"]), matrix(images, words, sizes["text"]))


def lora(rows: int, columns: int, out: int, rank: int):
    return _placed(LoRALinear(columns, out, rank)), (matrix(rows, columns),)


def _placed(model: torch.nn.Module) -> torch.nn.Module:
    return model.to(device=running.DEVICE, dtype=torch.bfloat16).eval()


def cases(tiny: bool = False) -> Iterator[Case]:
    sizes, shrink = (TINY, 32) if tiny else (SIZES, 1)

    def case(name: str, made: Callable, *given, time: Callable = timed) -> Case:
        return Case("compiled models", name, lambda: time(*made(*given)), ("torch.compile",), running.DEVICE)

    batch, tokens = PREFILL[0], PREFILL[1] // shrink
    yield case(f"prefill {batch}x{tokens}", prefill, batch, tokens, sizes)
    for batch, before in DECODE:
        yield case(f"decode {batch} after {before // shrink}", decode, batch, before // shrink, sizes)
    dit_sizes, vit_sizes = (TINY_BLOCK, TINY_BLOCK) if tiny else (DIT_SIZES, VIT_SIZES)
    (images, tokens), (batch, patches, layers) = (DIT[0], DIT[1] // shrink), (VIT[0], VIT[1] // shrink, VIT[2])
    of_unet = UNET[0], UNET[1] // shrink, UNET[2], TINY_UNET if tiny else UNET_SIZES
    blocks = (
        (f"DiT block {images}x{tokens}", dit, images, tokens, dit_sizes),
        (f"{layers} layers of ViT-L {batch}x{patches}", vit, batch, patches, layers, vit_sizes),
        (f"SD-XL block {of_unet[0]}x{of_unet[1]}", unet, *of_unet),
    )
    for name, *made in blocks:
        yield case(name, *made)
        yield case(f"{name}, a training step", *made, time=trained)
    for rows, columns, out, rank in LORA:
        name = f"LoRA {rows}, {columns} to {out}, rank {rank}"
        yield case(name, lora, rows, columns // shrink, out // shrink, rank)
    if importlib.util.find_spec("transformers"):
        for i, name in enumerate(published.COMPILED):
            for trains, group in ((False, "forward"), (True, "a step")):
                make = functools.partial(whole_model, name, tiny, trains)
                title = f"compiled models of transformers, {group}"
                quick = i < published.FIRST
                yield Case(title, name, make, ("torch.compile",), running.DEVICE, quick)


def compiled(model, arguments, backend: str, use: Callable):
    """The compiled model in use, and the seconds that its first call takes."""
    torch._dynamo.reset()
    found = use(torch.compile(model, backend=backend, fullgraph=True))
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

    def replay(_kept=(model, arguments)):  # whose memory the graph reads
        graph.replay()

    return replay


@functools.cache
def _started() -> None:
    """What the first compilation of a process takes is no model's."""
    compiled(_placed(torch.nn.Linear(8, 8)), (matrix(8, 8),), "inductor", forward)


def forward(model):
    return model


def step(model):
    """A training step: the gradients of what the model is given first, and of its parameters."""
    parameters = [*model.parameters()]

    def call(x, *others):
        given = x.detach().requires_grad_()
        return torch.autograd.grad(model(given, *others), [given, *parameters], x)

    return call


@torch.no_grad()
def timed(model, arguments) -> Calls:
    return _timed(model, arguments, forward)


def trained(model, arguments) -> Calls:
    return _timed(model, arguments, step)


def whole_model(name: str, tiny: bool, trains: bool) -> Calls:
    """As a user calls it, the host's work included: its loss, or also the gradients of a training step."""
    model, inputs = published.made(name, tiny)
    torch._dynamo.reset()
    made = {OURS: "wmma", "torch.compile": "inductor"}
    models = {of: torch.compile(copy.deepcopy(model), backend=backend) for of, backend in made.items()}
    error = published.check_losses(name, [one(**inputs).loss.item() for one in (model, *models.values())])
    print(wmma_ops.inductor.last_report(), file=sys.stderr)
    use = published.step if trains else published.loss
    return Calls({of: use(one, inputs) for of, one in models.items()}, error=error)


def _timed(model, arguments, use: Callable) -> Calls:
    _started()
    want = use(model)(*arguments)
    compiled(model, arguments, "inductor", use)  # the libraries behind it are loaded once
    plain, plain_seconds = compiled(model, arguments, "inductor", use)
    ours, seconds = compiled(model, arguments, "wmma", use)
    report = wmma_ops.inductor.last_report()
    print(report, file=sys.stderr)
    error, theirs = (_error(made(*arguments), want) for made in (ours, plain))
    # The gradient of a norm's weight is what many numbers leave that nearly cancel: torch's own is off from eager as much.
    assert error < max(running.MOST_ERROR, 1.25 * theirs), f"relative error {error}, torch.compile's {theirs}"
    return Calls(
        {OURS: replayed(ours, arguments), "torch.compile": replayed(plain, arguments)},
        error=error,
        note=f"the first call {seconds:.1f} and {plain_seconds:.1f} s; rewritten {len(report.rewritten)}",
    )


def _error(got, want) -> float:
    if isinstance(got, torch.Tensor):
        return relative(got, want)
    return max(map(relative, got, want))


def drawn(seed: int, count: int, tiny: bool = False) -> Iterator[Case]:
    for name in published.draw(seed, count):
        for trains, group in ((False, "forward"), (True, "a step")):
            make = functools.partial(whole_model, name, tiny, trains)
            yield Case(f"drawn models of transformers, {group}", name, make, ("torch.compile",), running.DEVICE)


def main(arguments: list[str] | None = None) -> None:
    asked = running.parser(__doc__)
    asked.add_argument("--tiny", action="store_true", help="small models: to see that it runs")
    asked.add_argument("--drawn", type=int, default=0, metavar="COUNT", help="instead: so many models of drawn sizes")
    asked.add_argument("--seed", type=int, default=today(), help="of what is drawn; today's date unless given")
    options = asked.parse_args(arguments)
    running.main(drawn(options.seed, options.drawn, options.tiny) if options.drawn else cases(options.tiny), options)


if __name__ == "__main__":
    main()
