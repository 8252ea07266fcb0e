"""The op that attention's gradients are on GPUs, run by the emulator; gradients of attention with functions of scores."""

import torch
from sharded import Mismatch, mesh_of, place, within
from torch.distributed.tensor import Replicate, Shard

import wmma_ops
from wmma_ops.distributed import rules, sharding
from wmma_ops.ops.library import overload


def attention_backward(ways, kv_heads, names) -> list[str]:
    """Each of the named offers; the names of all."""
    q, k, v, g_out = (
        torch.randn(shape).half() for shape in ((2, 4, 8, 16), *((2, kv_heads, 8, 16),) * 2, (2, 4, 8, 16))
    )
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    wide, _ = wmma_ops.attention(*leaves, enable_gqa=True)
    wanted = torch.autograd.grad(wide, leaves, g_out.double())
    out, lse = wmma_ops.attention(q, k, v, enable_gqa=True)
    call, mesh = overload("_attention_backward"), mesh_of((ways,))
    tensors = (g_out, q, k, v, out, lse)
    offers = rules.offers("_attention_backward", sharding.operands_of(call, tensors), {"enable_gqa": True}, (ways,))
    for offer in offers:
        if offer.name not in names:
            continue
        spread = [place(x, mesh, [placement]) for x, placement in zip(tensors, offer.inputs[:6], strict=True)]
        with wmma_ops.emulate("gfx1201") as emulation:
            found = call(*spread, enable_gqa=True)
        if not emulation.launches:
            raise Mismatch("no kernel ran")
        for name, got, want, placement in zip("qkv", found, wanted, offer.outputs, strict=True):
            if list(got.placements) != [placement]:
                raise Mismatch(f"{offer.name}: the gradient of {name} is {got.placements}, not {placement}")
            bound = 64 * torch.finfo(q.dtype).eps / 2 * want.abs().max().clamp(min=1)
            within(f"{offer.name}: the gradient of {name}", got.full_tensor().double(), want, bound)
    return [offer.name for offer in offers]


def attention_with_functions(size):
    """A score function of a table and of every place: heads that are divided are gathered, as it counts them."""
    wmma_ops.register_score_mod(
        "of_every_place",
        expression="score * a(head) + batch + query - key",
        derivative="a(head)",
        function=lambda score, b, h, q, k, factor: score * factor[h] + b + q - k,
        operands=1,
    )
    mesh = mesh_of((size,))
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(2, 2 * size, 5, 4, generator=generator)
    table = torch.randn(2 * size, generator=generator)

    def results(x, table):
        x = x.detach().requires_grad_()
        out, lse = wmma_ops.attention(x, x, x, score_mod="of_every_place", mod_operands=(table,))
        return out, lse, *torch.autograd.grad(out.square().sum() + lse.sum(), x)

    def packed(x, table, ends):
        x = x.detach().requires_grad_()
        options = {"score_mod": "of_every_place", "mod_operands": (table,)}
        out, lse = wmma_ops.varlen_attention(x, x, x, ends, ends, 3, 3, **options)
        return out, lse, *torch.autograd.grad(out.square().sum() + lse.sum(), x)

    for compute, given in ((results, (x, table)), (packed, (x[0].transpose(0, 1), table, torch.tensor([0, 3, 5])))):
        want = compute(*given)
        first, *others = given
        got = compute(place(first, mesh, (Shard(1),)), *(place(y, mesh, (Replicate(),)) for y in others))
        torch.testing.assert_close([y.full_tensor() for y in got], [*want])
