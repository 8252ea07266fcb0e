"""Layers of several products that are one node to autograd: their tensors, and what torch makes of them."""

import torch
import torch.nn.functional as F

from wmma_ops.ops import activations, nodes


def leaf(*shape, dtype=torch.float64, scale=1.0, device="cpu"):
    return (torch.randn(shape, dtype=torch.float64, device=device) * scale).to(dtype).requires_grad_()


def wide(tensors):
    return [x if x is None else x.detach().double().requires_grad_() for x in tensors]


def beside_float64(call, by_torch, tensors, dtype):
    """What computes a layer's result and its gradients, and what float64 gives."""
    in_wide = wide(tensors)
    leaves, wide_leaves = ([x for x in given if x is not None] for given in (tensors, in_wide))
    want = by_torch(*in_wide)
    g = torch.randn_like(want).to(dtype)

    def found():
        out = call(*tensors)
        return out.detach(), *torch.autograd.grad(out, leaves, g)

    return found, (want.detach(), *torch.autograd.grad(want, wide_leaves, g.double()))


def adapted(x, weight, bias, down, up):
    return nodes.layer("adapted", x, weight, bias, down, up, factor=0.5)


def adapted_by_torch(x, weight, bias, down, up):
    return F.linear(x, weight, bias) + 0.5 * F.linear(F.linear(x, down), up)


def adapted_tensors(dtype, batch=(2,), rows=5, k=24, n=40, rank=3, has_bias=True, device="cpu"):
    shapes = (*batch, rows, k), (n, k), (n,), (rank, k), (n, rank)
    x, weight, bias, down, up = (leaf(*shape, dtype=dtype, scale=0.3, device=device) for shape in shapes)
    return x, weight, bias if has_bias else None, down, up


def gated(activation):
    code = activations.code("test", "activation", activation)
    return lambda *tensors: nodes.layer("gated", *tensors, activation=code)


def gated_by_torch(activation):
    act = activations.by_code(activations.code("test", "activation", activation)).forward
    return lambda x, gate, gate_bias, up, up_bias: act(F.linear(x, gate, gate_bias)) * F.linear(x, up, up_bias)


def gate_tensors(dtype, batch=(2,), rows=5, k=24, n=40, has_bias=True, device="cpu"):
    shapes = (*batch, rows, k), (n, k), (n,), (n, k), (n,)
    x, gate, gate_bias, up, up_bias = (leaf(*shape, dtype=dtype, scale=0.3, device=device) for shape in shapes)
    return (x, gate, gate_bias, up, up_bias) if has_bias else (x, gate, None, up, None)


def mlp(activation):
    code = activations.code("test", "activation", activation)
    return lambda *tensors: nodes.layer("mlp", *tensors, activation=code)


def mlp_by_torch(activation):
    act = activations.by_code(activations.code("test", "activation", activation)).forward

    def forward(x, first, first_bias, up, up_bias, second, second_bias):
        h = act(F.linear(x, first, first_bias))
        return F.linear(h if up is None else h * F.linear(x, up, up_bias), second, second_bias)

    return forward


def mlp_tensors(dtype, batch=(2,), rows=5, k=24, n=40, has_bias=True, is_gated=True, device="cpu"):
    x, *before = gate_tensors(dtype, batch, rows, k, n, has_bias, device)
    second, bias = (leaf(*shape, dtype=dtype, scale=0.3, device=device) for shape in ((k, n), (k,)))
    return x, *(before if is_gated else [*before[:2], None, None]), second, bias if has_bias else None
