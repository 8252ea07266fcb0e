"""New keys and values into pages that several processes share."""

import itertools

import torch
from sharded import Mismatch, mesh_of, place
from torch.distributed.tensor import Partial, Replicate, Shard
from torch.distributed.tensor.debug import CommDebugMode

import wmma_ops
from wmma_ops.ops.library import overload

HEADS = {"key": 1, "value": 1, "key_pages": 2, "value_pages": 2}


def _operands(heads: int, rotary: bool) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    sizes = {
        "key": (5, heads, 8),
        "value": (5, heads, 4),
        "key_pages": (3, 4, heads, 8),
        "value_pages": (3, 4, heads, 4),
    }
    t = {name: torch.randn(shape, generator=generator) for name, shape in sizes.items()}
    t["block_table"] = torch.tensor([[2, 0], [1, 0]], dtype=torch.int32)
    t |= {"cu_seq": torch.tensor([0, 2, 5]), "seqused_k": torch.tensor([5, 3])}
    if rotary:
        t |= {name: torch.randn(6, 4, generator=generator) for name in ("cos", "sin")}
    return t


def _spread(t, mesh, by_heads, **changes) -> dict:
    """By heads along some dimensions of the mesh; `changes` are placements along each."""
    lie = {name: [Shard(HEADS[name]) if name in HEADS and x else Replicate() for x in by_heads] for name in t}
    lie |= {name: [placement] * mesh.ndim for name, placement in changes.items()}
    return {name: place(x, mesh, lie[name]) for name, x in t.items()}


def check(mesh_shape, heads, inference) -> None:
    """Every device writes the pages that it has, and sends nothing."""
    mesh = mesh_of(mesh_shape)
    calls = [wmma_ops.kv_append, lambda **t: overload("kv_append", raw=True)(*t.values())]
    for call, by_heads, rotary in itertools.product(
        calls, itertools.product((False, True), repeat=mesh.ndim), (False, True)
    ):
        want = _operands(heads, rotary)
        spread = _spread(want, mesh, by_heads)
        lay = {name: x.placements for name, x in spread.items()}
        with CommDebugMode() as communication, torch.inference_mode(inference):
            call(**spread)
        wmma_ops.kv_append(**want)
        if communication.get_total_counts():
            raise Mismatch(f"{by_heads}: communicated")
        for name, x in spread.items():
            if x.placements != lay[name] or not torch.equal(x.full_tensor(), want[name]):
                raise Mismatch(f"{by_heads}: {name} is {x}, not {want[name]}")


def refused() -> dict[str, str]:
    """What is said of what would be lost, or of devices without heads; nothing is written."""
    mesh, by_heads, whole = mesh_of((2,)), [True], [False]
    t, one = _operands(2, True), _operands(1, False)
    calls = {
        "by pages": _spread(t, mesh, whole, key_pages=Shard(0)),
        "partial": _spread(t, mesh, whole, value_pages=Partial()),
        "one alone": _spread(t, mesh, by_heads, value_pages=Replicate()),
        "whole keys": _spread(t, mesh, by_heads, key=Replicate()),
        "heads of keys alone": _spread(t, mesh, whole, key=Shard(1)),
        "numbers": _spread(t, mesh, by_heads, seqused_k=Shard(0)),
        "one head": _spread(one, mesh, whole, key_pages=Shard(2)),
        "shapes": _spread(t | {"value": t["value"][1:].clone()}, mesh, by_heads),
    }
    said = {}
    for name, spread in calls.items():
        try:
            said[name] = f"nothing: {wmma_ops.kv_append(**spread)}"
        except (ValueError, TypeError, RuntimeError) as error:
            said[name] = f"{type(error).__name__}: {error}"
        if not torch.equal(spread["key_pages"].full_tensor(), (one if name == "one head" else t)["key_pages"]):
            raise Mismatch(f"{name}: written")
    return said


def few_heads() -> str:
    mesh = mesh_of((4,))
    try:
        return f"nothing: {wmma_ops.kv_append(**_spread(_operands(3, False), mesh, [True]))}"
    except ValueError as error:
        return str(error)
