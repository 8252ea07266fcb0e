"""Shapes that nobody tuned for, on a GPU: drawn by a seed from the layers of some sixty published models, ours and every
peer in turn. Products have from 1 to 16,384 rows, few of them round; attention has what its models ask of it. At the end
come the worst ten, each with what the planner chose and why.

python bench/bench_draw.py [--quick] [--seed N] [--seeds COUNT] [--tune | --batch-invariant] [--json FILE] [--tiny]
"""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import attention_peers
import running
import torch
import torch.nn.functional as F
from bench_train import padding, today
from model_sizes import MODELS, Sizes
from running import check, matrix

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case, Run
from wmma_ops.runtime import driver

MOST_ROWS, MOST_TOKENS = 16384, 32768
EPILOGUES = ("gelu", "relu", "silu", "residual")
# Of attention: what a model asks of it, and whether queries are as many as keys.
KINDS = ("full", "causal", "causal", "window", "padding", "bool", "bias", "one query")
PRODUCTS, ATTENTIONS = (10, 40), (10, 40)  # of a quick run of a seed, and of a whole one
TINY = 16  # what lengths and rows are divided by in a run with --tiny
WORST = 10
USUAL = "usual"  # ours, whose rows know their batch

Explained = Callable[[], str]


def log_uniform(draw: random.Random, low: int, high: int) -> int:
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def layer(draw: random.Random, of: Sizes) -> tuple[int, int]:
    """What a layer of a model reads and writes."""
    heads = of.heads * of.head_size
    packed = (of.heads + 2 * of.kv_heads) * of.head_size
    return draw.choice(
        (
            (of.hidden, packed),
            (heads, of.hidden),
            (of.hidden, of.width),
            (of.hidden, 2 * of.width),
            (of.width, of.hidden),
        )
    )


def beside_usual(ours: Callable[[], torch.Tensor], flops: float) -> Calls:
    """A call whose rows do not know their batch, beside the same as it is usually."""
    return Calls({OURS: wmma_ops.batch_invariant()(ours), USUAL: ours}, flops=flops)


def product(rows: int, k: int, n: int, kind: str, alone: bool = False) -> Calls:
    x, weight, bias = matrix(rows, k), matrix(n, k) * k**-0.5, matrix(n)
    residual = matrix(rows, n) if kind == "residual" else None
    activation = kind if kind in ("gelu", "relu", "silu") else None

    def theirs() -> torch.Tensor:
        out = F.linear(x, weight, bias)
        return getattr(F, activation)(out) if activation else out if residual is None else out + residual

    def ours() -> torch.Tensor:
        return wmma_ops.linear(x, weight, bias, residual=residual, activation=activation)

    if alone:
        return beside_usual(ours, 2 * rows * k * n)
    peers = {"torch": theirs} | ({} if kind == "plain" else {"torch.compile": torch.compile(theirs)})
    error = max(check(ours(), call()) for call in peers.values())
    return Calls({OURS: ours, **peers}, flops=2 * rows * k * n, error=error)


def attention(of: Sizes, batch: int, length: int, kind: str, alone: bool = False) -> Calls:
    queries = 1 if kind == "one query" else length
    q = matrix(batch, of.heads, queries, of.head_size)
    k, v = (matrix(batch, of.kv_heads, length, of.head_size) for _ in "kv")
    mask = _mask(kind, batch, of.heads, length)
    causal, window = kind in ("causal", "window"), length // 4 if kind == "window" else None

    def ours() -> torch.Tensor:
        rules = {"is_causal": causal} if window is None else {"window": (window, 0)}
        return wmma_ops.attention(q, k, v, mask=mask, enable_gqa=of.heads != of.kv_heads, **rules)[0]

    flops = 4 * batch * of.heads * queries * length * of.head_size / (2 if kind == "causal" else 1)
    if alone:
        return beside_usual(ours, flops)
    peers, missing = attention_peers.peers(q, k, v, mask, causal, window)
    errors = [check(ours(), call()) for call in peers.values()]
    return Calls({OURS: ours, **peers}, missing, flops, error=max(errors, default=None))


def _mask(kind: str, batch: int, heads: int, length: int) -> torch.Tensor | None:
    if kind == "bias":
        return matrix(1, heads, length, length)
    if kind not in ("padding", "bool"):
        return None
    places = torch.arange(length, device=running.DEVICE)
    of_keys = padding(batch, length)
    return of_keys if kind == "padding" else of_keys & (places <= places[:, None])


def _explained(op: str, make: Callable[[], tuple[tuple, dict]]) -> str:
    """What would be launched, in two lines: made on the CPU, where a plan costs no memory of the GPU."""
    target = driver.target_of(0) if torch.cuda.is_available() else "sm_90a"
    arguments, keywords = make()
    found = wmma_ops.explain(op, *arguments, target=target, **keywords)
    return f"{found.config}; {found.reason}"


def product_call(rows: int, k: int, n: int, kind: str, device: str = "cpu") -> tuple[tuple, dict]:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device=device)

    keywords: dict[str, object] = {"activation": kind} if kind in ("gelu", "relu", "silu") else {}
    if kind == "residual":
        keywords["residual"] = tensor(rows, n)
    return (tensor(rows, k), tensor(n, k), tensor(n)), keywords


def _attention_call(of: Sizes, batch: int, length: int, kind: str) -> tuple[tuple, dict]:
    queries = 1 if kind == "one query" else length
    q = torch.empty(batch, of.heads, queries, of.head_size, dtype=torch.bfloat16)
    k, v = (torch.empty(batch, of.kv_heads, length, of.head_size, dtype=torch.bfloat16) for _ in "kv")
    shapes = {
        "padding": (batch, 1, 1, length),
        "bool": (batch, 1, length, length),
        "bias": (1, of.heads, length, length),
    }
    keywords = {"enable_gqa": of.heads != of.kv_heads, "is_causal": kind == "causal"}
    if kind in shapes:
        keywords["mask"] = torch.empty(shapes[kind], dtype=torch.bfloat16 if kind == "bias" else torch.bool)
    return (q, k, v), keywords | ({"window": (length // 4, 0)} if kind == "window" else {})


def cases(
    seed: int | None = None,
    tiny: bool = False,
    details: dict[str, tuple[Explained, tuple | None]] | None = None,
    alone: bool = False,
) -> Iterator[Case]:
    """`details`, of each case: what explains it, and of a product its sizes. `alone`: within `batch_invariant`, beside the
    usual."""
    seed = today() if seed is None else seed
    draw, details = random.Random(seed), {} if details is None else details
    of_run = f" ({seed})"

    def case(group: str, title: str, make: Callable[[], Calls], peers: tuple[str, ...], is_quick: bool) -> Case:
        return Case(group, title, make, (USUAL,) if alone else peers, running.DEVICE, quick=is_quick)

    def length_of(number: int) -> int:
        return max(16, number // TINY) if tiny else number

    for i in range(PRODUCTS[1]):
        name = draw.choice([*MODELS])
        (k, n), kind = layer(draw, MODELS[name]), "plain" if i % 2 == 0 else draw.choice(EPILOGUES)
        rows = length_of(log_uniform(draw, 1, MOST_ROWS))
        if tiny:
            k, n = (max(16, size // TINY // 16 * 16) for size in (k, n))
        title = f"{name} {rows}x{k}x{n} {kind}{of_run}"
        group, peers = ("linear", ("torch",)) if kind == "plain" else ("epilogues", ("torch", "torch.compile"))
        sizes = rows, k, n, kind
        details[f"{group}: {title}"] = partial(_explained, "linear", partial(product_call, *sizes)), sizes
        yield case(group, title, partial(product, *sizes, alone), peers, i < PRODUCTS[0])
    for i in range(ATTENTIONS[1]):
        name, kind = draw.choice([*MODELS]), draw.choice(KINDS)
        of, length = MODELS[name], log_uniform(draw, 64, 8192)
        batch = max(1, min(MOST_TOKENS // length, log_uniform(draw, 1, 64)))
        length = length_of(length)
        title = f"{name} {batch}x{of.heads}/{of.kv_heads}x{length}x{of.head_size} {kind}{of_run}"
        group = "attention, masks" if kind in ("padding", "bool", "bias") else "attention"
        sizes = of, batch, length, kind
        details[f"{group}: {title}"] = partial(_explained, "attention", partial(_attention_call, *sizes)), None
        peers = attention_peers.names()
        yield case(group, title, partial(attention, *sizes, alone), peers, i < ATTENTIONS[0])


def worst(run: Run, details: dict[str, tuple[Explained, tuple | None]], tunes: bool) -> Iterator[str]:
    rows = sorted((row for row in run.rows if row.ratio is not None), key=lambda row: row.ratio or 0)
    for row in rows[:WORST]:
        explained, sizes = details[str(row)]
        yield f"{row.ratio:.2f}  {row}\n      {explained()}"
        if tunes and sizes is not None and running.DEVICE == "cuda":
            arguments, keywords = product_call(*sizes, device="cuda")
            best = wmma_ops.tune("linear", *arguments, **keywords)[0]
            yield f"      tune: {best.microseconds:.1f} µs of {row.ours:.1f} by {best.config}"


def main(arguments: list[str] | None = None) -> None:
    asked = running.parser(__doc__)
    asked.add_argument("--seed", type=int, default=today(), help="of what is drawn; today's date unless given")
    asked.add_argument("--seeds", type=int, default=1, metavar="COUNT", help="so many, from that one on")
    asked.add_argument(
        "--tune", action="store_true", help="time other configurations of the worst products, and keep the best"
    )
    asked.add_argument(
        "--batch-invariant", action="store_true", help="beside no peer, but within batch_invariant beside the usual"
    )
    asked.add_argument("--tiny", action="store_true", help="a sixteenth of the sizes: to see that it runs")
    options = asked.parse_args(arguments)
    seeds = range(options.seed, options.seed + options.seeds)
    print(f"seeds {', '.join(map(str, seeds))}")
    details: dict[str, tuple[Explained, tuple | None]] = {}
    alone = options.batch_invariant
    run = running.main((case for seed in seeds for case in cases(seed, options.tiny, details, alone)), options)
    print(f"\nThe worst {WORST}, of the {'usual' if alone else 'best peer'}:")
    for line in worst(run, details, options.tune):
        print(line)


if __name__ == "__main__":
    main()
