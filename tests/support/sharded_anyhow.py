"""Calls of DTensors that no rule fits, and rules that are wrong."""

import random

import torch
from sharded import (
    EVERY,
    Mismatch,
    check,
    compare,
    compare_gradients,
    device,
    mesh_of,
    offers_for,
    place,
    result_of,
    tensors_of,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

import wmma_ops
from wmma_ops.distributed import sharding
from wmma_ops.distributed.rules import Offer
from wmma_ops.ops.library import overload, tensor_names
from wmma_ops.ops.types import FP8
from wmma_ops.testing.samples import Sample

# Where no placements but the offered ones may be taken as they lie.
PARTICULAR = (
    Sample("matmul", {"a": (4, 4), "b": (4, 6)}, {"out_dtype": torch.int8}, note="int8"),
    Sample("attention", {"q": (2, 4, 6), "k": (2, 4, 6), "v": (2, 4, 6)}, {"is_causal": 2}),
    Sample("attention", {"q": (1, 6, 4, 4), "k": (1, 3, 5, 4), "v": (1, 3, 5, 3)}, {"enable_gqa": True}),
)


def check_anyhow(op, dtype, mesh_shape, count) -> int:
    """`count` calls of every sample with placements by chance."""
    chance, ran = random.Random(0), 0
    for sample in (x for x in (*EVERY, *PARTICULAR) if x.op == op):
        for _ in range(count):
            plain = tensors_of(sample, dtype)
            placements = {name: [_any(chance, x) for _ in mesh_shape] for name, x in plain.items()}
            what = f"{sample} over {mesh_shape} from {placements}"
            spread = {name: place(x, mesh_of(mesh_shape), placements[name]) for name, x in plain.items()}
            try:
                outs = result_of(sample, spread)
            except RuntimeError as error:
                raise Mismatch(f"{what}: {error}") from error
            for i, (got, want) in enumerate(zip(outs, result_of(sample, plain), strict=True)):
                compare(f"{what}: result {i}", got, want)
            ran += 1
    return ran


def refused() -> dict[str, str]:
    """What is said of calls that cannot be right."""
    mesh = mesh_of((2,))
    here, there = (init_device_mesh(device(), shape) for shape in ((2, 1), (1, 2)))
    x, total = torch.randn(2, 6, 8), torch.zeros(6, 6)

    def on(x, placement, mesh=mesh):
        return place(x, mesh, [placement] * mesh.ndim)

    calls = {
        "plain": lambda: wmma_ops.linear(on(x, Shard(0)), torch.randn(4, 8)),
        "meshes": lambda: wmma_ops.linear(on(x, Replicate(), here), on(torch.randn(4, 8), Replicate(), there)),
        "sizes": lambda: wmma_ops.matmul(on(x, Shard(0)), on(torch.randn(7, 4), Replicate())),
        "types": lambda: wmma_ops.matmul(on(x, Shard(0)), on(x.mT.half(), Shard(0))),
        # What the parts of a call would be refused for, or accept: each is wrong as a whole.
        "batch": lambda: wmma_ops.attention(on(x, Shard(0)), on(x[:1], Replicate()), on(x[:1], Replicate())),
        "heads": lambda: wmma_ops.attention(on(x[None], Shard(1)), *[on(x[None, :1], Replicate())] * 2),
        "bias": lambda: wmma_ops.linear(on(x, Shard(0)), on(torch.randn(2, 8), Shard(0)), on(x[0, 0, :1], Replicate())),
        "in place": lambda: wmma_ops.addmm_(
            on(total[:1], Replicate()), on(x[0, :2], Shard(0)), on(x[0].T, Replicate())
        ),
    }
    said = {}
    for name, call in calls.items():
        try:
            said[name] = f"nothing: {call()}"
        except (ValueError, TypeError, RuntimeError) as error:
            said[name] = f"{type(error).__name__}: {error}"
    return said


def check_unusual() -> None:
    """Partial sums of other kinds, and results in place: by redistribution, as every placement that no rule has."""
    mesh = mesh_of((2,))
    a, b, total = torch.randn(6, 8), torch.randn(8, 4), torch.randn(6, 4)
    for kind in ("avg", "max"):
        spread = DTensor.from_local(a, mesh, [Partial(kind)])
        compare(f"an operand that is Partial({kind!r})", wmma_ops.matmul(spread, place(b, mesh, [Replicate()])), a @ b)
    for placement in (Replicate(), Shard(0), Shard(1), Partial()):
        spread = place(total, mesh, [placement])
        wmma_ops.addmm_(spread, place(a, mesh, [Shard(1)]), place(b, mesh, [Shard(0)]), beta=0.5)
        if list(spread.placements) != [placement]:
            raise Mismatch(f"addmm_ turned {placement} into {spread.placements}")
        compare(f"addmm_ into {placement}", spread, torch.addmm(total, a, b, beta=0.5))


# Batches, rows and heads of which one device has more than the other.
_UNEVEN = (
    Sample("linear", {"x": (3, 5, 7), "weight": (9, 7), "bias": (9,), "residual": (3, 5, 9)}, {"activation": 2}),
    Sample("linear", {"x": (3, 2, 4, 7), "weight": (9, 7)}),
    Sample("matmul", {"a": (7,), "b": (3, 7, 2)}),
    Sample("matmul", {"a": (3, 5, 7), "b": (7, 3)}),
    Sample("matmul", {"a": (3, 1, 5, 7), "b": (5, 7, 3)}),
    Sample("gemm", {"a": (3, 5, 7), "b": (7, 3), "c": (3, 5, 3), "row_scale": (5,)}, {"beta": 0.5}),
    Sample("gemm_gemm", {"a": (3, 5, 4), "b0": (4, 5), "b1": (5, 3)}, {"activation": 4}),
    Sample("attention", {"q": (3, 6, 5, 4), "k": (3, 3, 5, 4), "v": (3, 3, 5, 3)}, {"enable_gqa": True}),
)


def check_uneven_gradients(count) -> None:
    """Gradients where devices have more than others, from placements by chance; the first tensor's batch is divided."""
    chance, mesh = random.Random(0), mesh_of((2,))
    for sample in _UNEVEN:
        for attempt in range(count):
            plain = tensors_of(sample, torch.float32, grads=True)
            placements = {name: _any(chance, x) for name, x in plain.items()}
            if attempt == 0:
                placements = dict.fromkeys(plain, Replicate()) | {next(iter(plain)): Shard(0)}
            spread = {name: place(x, mesh, [placements[name]]) for name, x in plain.items()}
            what = f"{sample} from {placements}"
            try:
                compare_gradients(what, sample, plain, spread, result_of(sample, spread))
            except RuntimeError as error:
                raise Mismatch(f"{what}: {error}") from error


def check_changing_options() -> None:
    """DTensor remembers how it spread a call: other options, same tensors, must not be taken for the same call."""
    x, weight, q = torch.randn(6, 10), torch.randn(4, 10), torch.randn(2, 6, 4)
    integers = torch.randint(-99, 99, (6, 6), dtype=torch.int8)
    causal = [{"is_causal": code, "scale": scale} for code, scale in ((0, 1.0), (1, 1.0), (0, 2.0))]
    for op, tensors, placements, options in (
        ("linear", (x, weight), (Shard(1), Shard(1)), [{"activation": code} for code in (0, 1, 0, 2)]),
        (
            "matmul",
            (integers,) * 2,
            (Shard(1), Shard(0)),
            [{"out_dtype": t} for t in (None, torch.int8, torch.float32)],
        ),
        ("attention", (q,) * 3, (Shard(1),) * 3, causal),
        ("addmm", (x[0, :4], x, weight.T), (Replicate(), Shard(1), Shard(0)), [{"alpha": f} for f in (1.0, 3.0)]),
    ):
        spread = [place(t, mesh_of((2,)), [placement]) for t, placement in zip(tensors, placements, strict=True)]
        for option in options:
            both = [overload(op, raw=True)(*operands, **option) for operands in (spread, tensors)]
            for got, want in zip(*(x if isinstance(x, tuple) else (x,) for x in both), strict=True):
                compare(f"{op} with {option}", got, want)


def check_second_derivatives() -> None:
    placements = (Shard(1), Shard(1), Replicate())
    plain = [torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in ((4, 8), (6, 8), (6,))]
    spread = [place(x, mesh_of((2,)), [placement]) for x, placement in zip(plain, placements, strict=True)]

    def second(leaves):
        first = torch.autograd.grad(wmma_ops.linear(*leaves, activation="silu").sin().sum(), leaves, create_graph=True)
        return torch.autograd.grad(sum(g.square().sum() for g in first), leaves)

    for got, want in zip(second(spread), second(plain), strict=True):
        compare("a second derivative", got, want)


def _any(chance, x):
    if x.dtype in FP8:
        return Replicate()  # gloo moves none of these from process to process
    sums = [Partial()] if x.is_floating_point() else []
    return chance.choice([Replicate(), *sums, *(Shard(dim) for dim in range(x.dim()))])


# By name a sample, the right offer that is made wrong, and the placements that replace its own: of arguments by name, of
# the results by their number.
_SUM = Sample("linear", {"x": (14, 26), "weight": (38, 26), "bias": (38,), "residual": (14, 38)})
WRONG = {
    "a bias on every device": (_SUM, "sum", {"bias": Replicate()}),
    "a residual on every device": (_SUM, "sum", {"residual": Replicate()}),
    "partial sums taken for the sum": (_SUM, "sum", {0: Replicate()}),
    "a second pair on every device": (
        Sample("gemm", {"a": (14, 26), "b": (26, 38), "a2": (14, 6), "b2": (6, 38)}),
        "sum", {"a2": Replicate(), "b2": Replicate()},
    ),
    "C on every device": (
        Sample("addmm", {"input": (38,), "a": (14, 26), "b": (26, 38)}, {"beta": 2.0}), "sum", {"input": Replicate()}
    ),
    "the last bias on every device": (
        Sample("gemm_gemm", {"a": (14, 26), "b0": (26, 38), "b1": (38, 14), "bias1": (14,)}, {"activation": 1}),
        "hidden", {"bias1": Replicate()},
    ),
    "a first bias that is a partial sum": (
        Sample("gemm_gemm", {"a": (14, 26), "b0": (26, 38), "b1": (38, 14), "bias0": (38,)}, {"activation": 1}),
        "columns", {"bias0": Partial()},
    ),
    "an activation on partial sums": (
        Sample("linear", {"x": (14, 26), "weight": (38, 26), "bias": (38,)}, {"activation": 1}),
        "replicate", {"x": Shard(1), "weight": Shard(1), "bias": Partial(), 0: Partial()},
    ),
    "int8 partial sums": (
        Sample("matmul", {"a": (26, 38), "b": (38, 14)}, {"out_dtype": torch.int8}, note="int8"),
        "replicate", {"a": Shard(1), "b": Shard(0), 0: Partial()},
    ),
    "scales of rows along the columns": (
        Sample("gemm", {"a": (26, 38), "b": (38, 26), "row_scale": (26,)}), "replicate",
        {"b": Shard(1), "row_scale": Partial(), 0: Shard(1)},
    ),
    "queries under a causal mask": (
        Sample("attention", {"q": (2, 26, 14), "k": (2, 26, 14), "v": (2, 26, 14)}, {"is_causal": 1}),
        "replicate", {"q": Shard(1), 0: Shard(1), 1: Shard(1)},
    ),
    "keys": (
        Sample("attention", {"q": (2, 26, 14), "k": (2, 38, 14), "v": (2, 38, 14)}),
        "replicate", {"k": Shard(1), "v": Shard(1), 0: Partial(), 1: Partial()},
    ),
    # Of 12 query heads over 3, two devices would have 6 over 2 and 6 over 1.
    "groups of heads": (
        Sample("attention", {"q": (12, 3, 4), "k": (3, 5, 4), "v": (3, 5, 4)}, {"enable_gqa": True}),
        "replicate", dict.fromkeys(["q", "k", "v", 0, 1], Shard(0)),
    ),
}  # fmt: skip


def said_of_wrong(name, dtype) -> str:
    """What `check` says of an op while its rule is a wrong one. No other test has its shape: DTensor remembers by it."""
    sample, base, changes = WRONG[name]
    mesh = (torch.distributed.get_world_size(),)
    offers = {offer.name: offer for offer in offers_for(sample, dtype, mesh)}
    right, arguments = offers[base], tensor_names(overload(sample.op))
    inputs = tuple(changes.get(x, placement) for x, placement in zip(arguments, right.inputs, strict=True))
    outputs = tuple(changes.get(i, placement) for i, placement in enumerate(right.outputs))
    wrong = Offer("wrong", outputs, inputs)

    def rule(*specs, **scalars):
        return [(list(x.outputs), list(x.inputs[: len(specs)])) for x in (offers["replicate"], wrong)]

    for raw in (False, True):
        register_sharding(overload(sample.op, raw=raw))(rule)
    try:
        check(sample, dtype, mesh, [wrong], grads=False)
    except Mismatch as error:
        return str(error)
    finally:
        sharding.register()
    return "nothing"
