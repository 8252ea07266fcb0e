"""Training on a GPU beside eager and compiled torch: forward and backward of layers, of MLPs after `swap_`, of attention,
and of models of transformers, where that is installed; and what a small call takes of the host. Sizes are drawn from
models' layers, others each day: medians in turn.

python bench/bench_train.py [--quick] [--seed N] [--json FILE] [--tiny]
"""

import copy
import datetime
import importlib.util
import random
from collections.abc import Callable, Iterator
from functools import partial

import attention_peers
import blocks
import decoder
import published
import running
import torch
import torch.nn.functional as F
from running import check, matrix
from torch import nn

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case

# Models' hidden sizes and the widths of their MLPs; those of the plain ones are four times as wide.
GATED = {
    "Llama-3.2-1B": (2048, 8192),
    "Llama-3-8B": (4096, 14336),
    "Qwen2.5-1.5B": (1536, 8960),
    "Qwen2.5-7B": (3584, 18944),
    "Gemma-2-2B": (2304, 9216),
    "SmolLM2-1.7B": (2048, 8192),
}
PLAIN = {
    "BERT-base": (768, 3072),
    "ViT-B": (768, 3072),
    "ViT-L": (1024, 4096),
    "GPT-2 XL": (1600, 6400),
    "DiT-XL": (1152, 4608),
    "Whisper-large": (1280, 5120),
}
BATCHES = ((1, 2048), (4, 1024), (8, 1024), (2, 4096), (32, 512), (64, 197), (4, 1500))  # and tokens
HEADS = ((32, 128), (16, 128), (12, 64), (16, 64), (8, 256), (20, 64))  # and their size
TEXT = 77
KINDS = ("plain", "gelu", "relu", "residual")
MASKS = ("none", "causal", "padding", "bias", "77 keys")  # of a text, which a picture's tokens look at
# How many are drawn: of a quick run, and of a whole one.
LAYERS, BLOCKS, ATTENTIONS = (10, 30), (4, 12), (6, 20)
TINY = 8  # what sizes are divided by in a run with --tiny


def today() -> int:
    return int(datetime.date.today().strftime("%Y%m%d"))


def stepped(forward: Callable, leaves: list[torch.Tensor], g: torch.Tensor) -> Callable:
    """Forward and backward: the gradients of all leaves."""
    return lambda: torch.autograd.grad(forward(), leaves, g)


def beside(ours: Callable, theirs: dict[str, Callable], flops: float | None = None) -> Calls:
    """Calls that give the same gradients, of the first of the others."""
    got, want = (call() for call in (ours, next(iter(theirs.values()))))
    error = max(check(*pair) for pair in zip(got, want, strict=True))
    return Calls({OURS: ours, **theirs}, flops=flops, error=error)


def _leaf(*shape: int, scale: float = 1.0) -> torch.Tensor:
    return (matrix(*shape) * scale).requires_grad_()


def layer(rows: int, k: int, n: int, kind: str) -> Calls:
    x, weight, bias = _leaf(rows, k), _leaf(n, k, scale=k**-0.5), _leaf(n)
    residual = _leaf(rows, n) if kind == "residual" else None
    leaves = [x, weight, bias, *([] if residual is None else [residual])]
    activation = kind if kind in ("gelu", "relu") else None

    def theirs():
        out = F.linear(x, weight, bias)
        return getattr(F, activation)(out) if activation else out if residual is None else out + residual

    def ours():
        return wmma_ops.linear(x, weight, bias, residual=residual, activation=activation)

    peers = {"torch": theirs, "torch.compile": torch.compile(theirs)}
    g = matrix(rows, n)
    steps = {name: stepped(forward, leaves, g) for name, forward in peers.items()}
    return beside(stepped(ours, leaves, g), steps, 6 * rows * k * n)


def mlp(is_gated: bool, batch: int, tokens: int, hidden: int, width: int, trains: bool) -> Calls:
    model = decoder.MLP(hidden, width) if is_gated else blocks.MLP(hidden, "none")
    model = model.to(device=running.DEVICE, dtype=torch.bfloat16)
    swapped = copy.deepcopy(model)
    wmma_ops.swap_(swapped)
    x, g = _leaf(batch, tokens, hidden), matrix(batch, tokens, hidden)

    def step(module: nn.Module, own: nn.Module) -> Callable:
        if trains:
            return stepped(lambda: module(x), [x, *own.parameters()], g)
        return torch.no_grad()(lambda: (module(x),))

    theirs = {"torch": step(model, model), "torch.compile": step(torch.compile(model), model)}
    flops = (6 if is_gated else 4) * batch * tokens * hidden * width * (3 if trains else 1)
    return beside(step(swapped, swapped), theirs, flops)


def padding(batch: int, tokens: int) -> torch.Tensor:
    """A mask of keys: each sequence has a length of its own."""
    lengths = torch.linspace(tokens // 2, tokens, batch, device=running.DEVICE).long()
    return (torch.arange(tokens, device=running.DEVICE) < lengths[:, None])[:, None, None]


def attention(batch: int, heads: int, tokens: int, size: int, mask: str) -> Calls:
    keys = min(TEXT, tokens) if mask == "77 keys" else tokens
    q, k, v = (_leaf(batch, heads, length, size) for length in (tokens, keys, keys))
    given = None
    if mask == "padding":
        given = padding(batch, tokens)
    elif mask == "bias":
        given = matrix(heads, tokens, tokens)
    options = {"is_causal": mask == "causal"}
    g = matrix(batch, heads, tokens, size)

    forward, missing = attention_peers.peers(q, k, v, given, gradients=True, **options)
    peers = {name: stepped(call, [q, k, v], g) for name, call in forward.items()}
    ours = stepped(lambda: wmma_ops.attention(q, k, v, mask=given, **options)[0], [q, k, v], g)
    flops = 14 * batch * heads * tokens * keys * size / (2 if mask == "causal" else 1)
    made = beside(ours, peers, flops)
    return Calls(made.calls, missing, made.flops, error=made.error)


def whole_model(name: str, tiny: bool, trains: bool) -> Calls:
    """In eager mode, its loss or also the gradients of a training step: as it is, swapped, and swapped with our
    attention."""
    from wmma_ops.integrations import transformers as ours

    ours.register()
    plain, inputs = published.made(name, tiny)
    swapped = copy.deepcopy(plain)
    wmma_ops.swap_(swapped)
    whole = copy.deepcopy(swapped)
    whole.set_attn_implementation("wmma")
    models = (plain, swapped, whole)
    error = published.check_losses(name, [model(**inputs).loss.item() for model in models])
    make = published.step if trains else published.loss
    theirs, halfway, calls = (make(model, inputs) for model in models)
    return Calls({OURS: calls, "torch": theirs, "swap_ alone": halfway}, error=error)


def host(name: str) -> Calls:
    """What a call and its gradients take of the host, where the GPU has next to nothing to do."""
    x, weight, bias, g = _leaf(16, 16), _leaf(16, 16), _leaf(16), matrix(16, 16)
    q, head_g = _leaf(1, 1, 16, 64), matrix(1, 1, 16, 64)
    ours, theirs, leaves = {
        "matmul": (lambda: wmma_ops.matmul(x, weight), lambda: x @ weight, [x, weight]),
        "linear": (lambda: wmma_ops.linear(x, weight, bias), lambda: F.linear(x, weight, bias), [x, weight, bias]),
        "linear + gelu": (
            lambda: wmma_ops.linear(x, weight, bias, activation="gelu"),
            lambda: F.gelu(F.linear(x, weight, bias)),
            [x, weight, bias],
        ),
        "attention": (
            lambda: wmma_ops.attention(q, q, q)[0],
            lambda: F.scaled_dot_product_attention(q, q, q),
            [q],
        ),
    }[name]
    given = head_g if name == "attention" else g
    return beside(stepped(ours, leaves, given), {"torch": stepped(theirs, leaves, given)})


def cases(seed: int | None = None, tiny: bool = False) -> Iterator[Case]:
    draw = random.Random(today() if seed is None else seed)

    def case(group: str, title: str, make: Callable[[], Calls], peers: tuple[str, ...], i: int, quick: int) -> Case:
        return Case(group, title, make, peers, running.DEVICE, quick=i < quick)

    def size(of: int) -> int:
        return max(16, of // TINY // 16 * 16) if tiny else of

    both = ("torch", "torch.compile")
    for i in range(LAYERS[1]):
        name, (hidden, width) = draw.choice([*(GATED | PLAIN).items()])
        (batch, tokens), kind = draw.choice(BATCHES), draw.choice(KINDS)
        k, n = draw.choice(((hidden, hidden), (hidden, width), (width, hidden)))
        rows = batch * size(tokens)
        title = f"{name} {rows}x{size(k)}x{size(n)} {kind}"
        yield case("layers, training", title, partial(layer, rows, size(k), size(n), kind), both, i, LAYERS[0])
    for i in range(BLOCKS[1]):
        is_gated = draw.random() < 0.5
        name, (hidden, width) = draw.choice([*(GATED if is_gated else PLAIN).items()])
        batch, tokens = draw.choice(BATCHES)
        sizes = batch, size(tokens), size(hidden), size(width)
        title = f"{name} {'gated' if is_gated else 'plain'} {batch}x{sizes[1]}x{sizes[2]}x{sizes[3]}"
        for trains, group in ((True, "MLPs, training"), (False, "MLPs, inference")):
            yield case(group, title, partial(mlp, is_gated, *sizes, trains), both, i, BLOCKS[0])
    for i in range(ATTENTIONS[1]):
        (heads, head_size), (batch, tokens), mask = draw.choice(HEADS), draw.choice(BATCHES), draw.choice(MASKS)
        sizes = batch, heads, size(tokens), head_size
        title = "x".join(map(str, sizes)) + f" {mask}"
        peers = attention_peers.names(gradients=True)
        yield case("attention, training", title, partial(attention, *sizes, mask), peers, i, ATTENTIONS[0])
    if importlib.util.find_spec("transformers"):
        for name in published.names():
            for trains, group in ((True, "models, a step"), (False, "models, forward")):
                yield case(group, name, partial(whole_model, name, tiny, trains), ("torch", "swap_ alone"), 0, 1)
    for name in ("matmul", "linear", "linear + gelu", "attention"):
        yield Case("host time of 16x16", name, partial(host, name), ("torch",), "cpu")


def main(arguments: list[str] | None = None) -> None:
    asked = running.parser(__doc__)
    asked.add_argument("--seed", type=int, default=today(), help="of what is drawn; today's date unless given")
    asked.add_argument("--tiny", action="store_true", help="an eighth of the sizes: to see that it runs")
    options = asked.parse_args(arguments)
    print(f"seed {options.seed}")
    running.main(cases(options.seed, options.tiny), options)


if __name__ == "__main__":
    main()
