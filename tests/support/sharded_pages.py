"""New keys and values into pages that several processes share."""

import itertools

import torch
from sharded import Mismatch, mesh_of, place
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
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


def check_narrow(mesh_shape) -> None:
    """Pages of numbers of 8 bits, appended to and attended to by heads: descales go with them."""
    mesh = mesh_of(mesh_shape)
    whole = _operands(2, False)
    whole |= {name: whole[name].bfloat16() for name in ("key", "value")}
    whole |= {name: whole[name].to(torch.float8_e4m3fn) for name in ("key_pages", "value_pages")}
    whole |= {name: torch.cat([x, x, x, x], 1) for name, x in whole.items() if name.endswith("_pages")}  # of 16 keys
    descales = {"k_descale": torch.tensor([0.3, 2.0]), "v_descale": torch.tensor([[0.5, 0.2], [1.0, 3.0]])}
    heads = HEADS | {"query": 1, "k_descale": 0, "v_descale": 1}
    whole |= descales | {"query": torch.cat([whole["key"]] * 2, 1)}

    def call(t: dict) -> torch.Tensor:
        query = t.pop("query")
        wmma_ops.kv_append(**t)
        options = {name: t[name] for name in ("seqused_k", "block_table", *descales)}
        pages, ends = (t["key_pages"], t["value_pages"]), t["cu_seq"]
        return wmma_ops.varlen_attention(query, *pages, ends, None, 3, None, enable_gqa=True, **options)[0]

    lie = {name: [Shard(heads[name]) if name in heads else Replicate()] for name in whole}
    spread = {name: DTensor.from_local(_own(x, lie[name][0], mesh), mesh, lie[name]) for name, x in whole.items()}
    pages = spread["key_pages"]
    with CommDebugMode() as communication:
        out = call(spread)
    want = call(whole)
    if communication.get_total_counts() or out.placements != (Shard(1),):
        raise Mismatch(f"communicated, or {out.placements}")
    if not torch.equal(out.full_tensor(), want):
        raise Mismatch(f"out is {out.full_tensor()}, not {want}")
    if not torch.equal(pages.to_local().float(), _own(whole["key_pages"], Shard(2), mesh).float()):
        raise Mismatch("other keys were appended")


def _own(x: torch.Tensor, placement, mesh) -> torch.Tensor:
    """This device's part; what spreads tensors takes none of 8 bits."""
    if not placement.is_shard():
        return x.clone()
    return x.chunk(mesh.size(), placement.dim)[mesh.get_rank()].clone()


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
