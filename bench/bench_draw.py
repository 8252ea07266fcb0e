"""Shapes that nobody tuned for, on a GPU: drawn by a seed from the layers of some sixty published models, ours and every
peer in turn. Products have from 1 to 16,384 rows, few of them round; attention has what its models ask of it. At the end
come the worst ten, each with what the planner chose and why (drawn_attention.py has the kinds of attention).

python bench/bench_draw.py [--quick] [--seed N] [--seeds COUNT] [--tune | --batch-invariant] [--json FILE] [--tiny]
"""

import math
import random
from collections.abc import Callable, Iterator
from functools import partial

import attention_peers
import drawn_attention
import running
import torch
import torch.nn.functional as F
from bench_train import today
from drawn_attention import Drawn
from model_sizes import MODELS, Sizes
from running import check, matrix

import wmma_ops
from wmma_ops.cli.benching import OURS, Calls, Case, Run
from wmma_ops.runtime import driver

MOST_ROWS, MOST_TOKENS = 16384, 32768
EPILOGUES = ("gelu", "relu", "silu", "residual")
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


def attention(of: Drawn, alone: bool = False) -> Calls:
    return beside_usual(drawn_attention.alone(of), of.flops) if alone else of.kind.make(of)


def _explained(make: Callable[[], tuple[str, tuple, dict]]) -> str:
    """What would be launched, in two lines: made on the CPU, where a plan costs no memory of the GPU."""
    target = driver.target_of(0) if torch.cuda.is_available() else "sm_90a"
    op, arguments, keywords = make()
    found = wmma_ops.explain(op, *arguments, target=target, **keywords)
    return f"{found.config}; {found.reason}"


def product_call(rows: int, k: int, n: int, kind: str, device: str = "cpu") -> tuple[str, tuple, dict]:
    def tensor(*shape: int) -> torch.Tensor:
        return torch.empty(shape, dtype=torch.bfloat16, device=device)

    keywords: dict[str, object] = {"activation": kind} if kind in ("gelu", "relu", "silu") else {}
    if kind == "residual":
        keywords["residual"] = tensor(rows, n)
    return "linear", (tensor(rows, k), tensor(n, k), tensor(n)), keywords


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
        details[f"{group}: {title}"] = partial(_explained, partial(product_call, *sizes)), sizes
        yield case(group, title, partial(product, *sizes, alone), peers, i < PRODUCTS[0])
    kinds = drawn_attention.DENSE if alone else drawn_attention.KINDS
    for i in range(ATTENTIONS[1]):
        name, kind = draw.choice([*MODELS]), draw.choice(kinds)
        length = log_uniform(draw, 64, 8192)
        batch = max(1, min(MOST_TOKENS // length, log_uniform(draw, 1, 64)))
        drawn = Drawn(MODELS[name], batch, length_of(length), kind)
        title = f"{name} {drawn}{of_run}"
        details[f"{kind.group}: {title}"] = partial(_explained, partial(drawn_attention.call, drawn)), None
        yield case(
            kind.group,
            title,
            partial(attention, drawn, alone),
            kind.peers or attention_peers.names(),
            i < ATTENTIONS[0],
        )


def worst(run: Run, details: dict[str, tuple[Explained, tuple | None]], tunes: bool) -> Iterator[str]:
    rows = sorted((row for row in run.rows if row.ratio is not None), key=lambda row: row.ratio or 0)
    for row in rows[:WORST]:
        explained, sizes = details[str(row)]
        yield f"{row.ratio:.2f}  {row}\n      {explained()}"
        if tunes and sizes is not None and running.DEVICE == "cuda":
            op, arguments, keywords = product_call(*sizes, device="cuda")
            best = wmma_ops.tune(op, *arguments, **keywords)[0]
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
