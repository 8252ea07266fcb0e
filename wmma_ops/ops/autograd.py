"""The derivatives, written in our own ops and torch's, so that they differentiate again.

Notation: `g_x` is the gradient of the loss by x. Pointwise parts are computed in the accumulator's type; operands of
products are rounded to the operands' type, as in the forward pass.
"""

import math
from functools import partial

import torch
import torch.autograd.forward_ad as forward_ad

from wmma_ops import torch_internals
from wmma_ops.hardware import geometry
from wmma_ops.ops import activations, fakes, nodes, score_functions
from wmma_ops.ops.attention_call import AttentionCall, tensors_of
from wmma_ops.ops.composite import columns, composite, operand_place, rows, without_gradient
from wmma_ops.ops.errors import tagged
from wmma_ops.ops.kept import GATED_WITH_AUX, GEMM_WITH_AUX, LINEAR_WITH_AUX, Shape, added_gradient, once, reduced
from wmma_ops.ops.library import IMPLEMENTATIONS, overload, tensor_names
from wmma_ops.ops.score_terms import scored, terms_of
from wmma_ops.ops.select import makes_graph, select
from wmma_ops.ops.sizes import known, lies_by_columns
from wmma_ops.ops.target import EMULATION, STAND_IN, is_amd, target_of
from wmma_ops.ops.types import DIFFERENTIABLE, accumulator, name
from wmma_ops.torch_internals import (
    any_requires_grad,
    below_autograd,
    direct,
    is_forward_mode,
    transforms_active,
)

GEMM_BACKWARD, GEMM_AUX = direct(overload("_gemm_backward")), direct(overload("_gemm_aux"))


def _gemm(a, b, **options):
    return select("gemm", a, b, *(x for x in options.values() if isinstance(x, torch.Tensor)))(a, b, **options)


def _at_once(g, a, b, bias, needs, alpha):
    """The gradients of alpha·A·B + bias, in one op."""
    wanted = [name for name in ("a", "b") if needs.get(name)]
    of_bias = bias is not None and needs.get("bias") and bias.shape == g.shape[-1:]
    found = GEMM_BACKWARD(
        g, a, b, alpha=alpha, of_a="a" in wanted, of_b="b" in wanted, bias_dtype=bias.dtype if of_bias else None
    )
    return dict(zip((*wanted, "bias") if of_bias else wanted, found, strict=True))


# D = act(S)·multiply with S = alpha·(P·B + A2·B2)·row_scale·col_scale + beta·C + bias and P = act_a(A·a_scale)


def gemm_gradients(g, t, needs, out, *, alpha=1.0, beta=1.0, a_activation=0, activation=0):
    """Every gradient of `gemm` by argument name. `t` holds its tensors, `out` its result."""
    a, b, c, bias = t["a"], t["b"], t.get("c"), t.get("bias")
    row_scale, col_scale, a_scale, multiply = (
        t.get(name) for name in ("row_scale", "col_scale", "a_scale", "multiply")
    )
    work = accumulator(a.dtype)
    grads = {}
    scaled = {"row_scale": row_scale, "col_scale": col_scale, "a_scale": a_scale}
    prologue = {"a_scale": a_scale, "a_activation": a_activation}
    pair = {name: x for name in ("a2", "b2") if (x := t.get(name)) is not None}

    def needed(*names):
        return any(needs.get(name) for name in names)

    # 1. g_S, through the multiplier and the activation. relu's sign can be read off the result where nothing multiplies
    #    it; the others recompute S.
    g_s = g
    recompute = activation not in (0, 1) or (multiply is not None and (activation != 0 or needed("multiply")))
    if recompute:
        g_s = g.to(work)
        s = _gemm(
            a, b, c=c, bias=bias, **scaled, **pair, alpha=alpha, beta=beta, a_activation=a_activation, out_dtype=work
        )
        act = activations.by_code(activation)
        if multiply is not None:
            if needed("multiply"):
                grads["multiply"] = reduced(g_s * act.forward(s), multiply)
            g_s = g_s * multiply.to(work)
        g_s = act.backward(g_s, s)
    else:
        if multiply is not None:
            g_s = g.to(work) * multiply.to(work)
        if activation == 1:
            g_s = activations.by_code(activation).backward(g_s, out)

    # 2. What is added to the product.
    if needed("c"):
        grads["c"] = added_gradient(g_s, beta, c)
    is_bare = row_scale is col_scale is a_scale is None and a_activation == 0 and not pair
    if is_bare and needed("a", "b", "bias") and once(g_s, a, b):
        grads |= _at_once(g_s, a, b, bias, needs, alpha)
        needs = {name: is_needed and name not in grads for name, is_needed in needs.items()}
    if needed("bias"):
        grads["bias"] = reduced(g_s.sum(-2, dtype=work), bias)

    # 3. The scales of rows and columns: their gradients need the product itself.
    if needed("row_scale", "col_scale"):
        product = _gemm(a, b, **prologue, **pair, alpha=alpha, out_dtype=work)
        if needed("row_scale"):
            other = product if col_scale is None else product * rows(col_scale.to(work))
            grads["row_scale"] = reduced((g_s * other).sum(-1), row_scale)
        if needed("col_scale"):
            other = product if row_scale is None else product * columns(row_scale.to(work))
            grads["col_scale"] = reduced((g_s * other).sum(-2), col_scale)

    # 4. The operands: g_P = alpha·(g_S·row_scale·col_scale)·Bᵀ and g_B = alpha·Pᵀ·(…); A2 and B2 likewise.
    if not needed("a", "b", "a_scale", "a2", "b2"):
        return grads
    g_product = g_s
    if row_scale is not None:
        g_product = g_product * columns(row_scale.to(work))
    if col_scale is not None:
        g_product = g_product * rows(col_scale.to(work))
    g_product = g_product.to(a.dtype)
    if a_scale is None and a_activation == 0:
        if needed("a"):
            grads["a"] = _matrix_gradient(g_product, b.mT, alpha, a)
        p = a
    else:
        before = a.to(work) if a_scale is None else a.to(work) * rows(a_scale.to(work))
        act_a = activations.by_code(a_activation)
        if needed("a", "a_scale"):
            g_before = act_a.backward(_gemm(g_product, b.mT, alpha=alpha, out_dtype=work), before)
            if needed("a"):
                grads["a"] = reduced(g_before if a_scale is None else g_before * rows(a_scale.to(work)), a)
            if needed("a_scale"):
                grads["a_scale"] = reduced((g_before * a.to(work)).sum(-2), a_scale)
        p = act_a.forward(before).to(a.dtype)
    if needed("b"):
        grads["b"] = _matrix_gradient(p.mT, g_product, alpha, b)
    if needed("a2"):
        grads["a2"] = _matrix_gradient(g_product, pair["b2"].mT, alpha, pair["a2"])
    if needed("b2"):
        grads["b2"] = _matrix_gradient(pair["a2"].mT, g_product, alpha, pair["b2"])
    return grads


def _matrix_gradient(x, y, alpha, like):
    """alpha·x·y, summed over the batch dimensions that `like` was broadcast along, and laid out as `like`."""
    if like.dim() == 2 and x.dim() > 2 and x.shape[:-2] == y.shape[:-2] and _may_join(x.mT) and _may_join(y):
        # The batch joins K: one product adds up over it in the accumulator. By reshape: flatten has no rule under the vmap
        # of is_grads_batched.
        joined = math.prod(y.shape[:-1])
        x, y = x.movedim(-2, 0).reshape(x.shape[-2], joined), y.reshape(joined, y.shape[-1])
    if like.dim() >= 2 and lies_by_columns(like):
        return _matrix_product(y.mT, x.mT, alpha, like.mT).mT
    return _matrix_product(x, y, alpha, like)


def _may_join(x) -> bool:
    """Whether the batch and the rows can become one dimension. Those of a DTensor, where no device has more of the batch
    than another, and none a part of the rows: before torch 2.12 they join nothing, and after it not always."""
    ways = {}
    for placement, devices in zip(x.placements, x.device_mesh.shape, strict=True) if hasattr(x, "placements") else ():
        if (dim := getattr(placement, "dim", None)) is not None:
            ways[dim] = ways.get(dim, 1) * devices
    rows = x.dim() - 2
    return not any(dim == rows or (dim < rows and x.shape[dim] % devices) for dim, devices in ways.items())


def _matrix_product(x, y, alpha, like):
    if (*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-1]) == tuple(like.shape):
        return _gemm(x, y, alpha=alpha)
    return reduced(_gemm(x, y, alpha=alpha, out_dtype=accumulator(x.dtype)), like)


def _matmul_gradients(grads, t, needs, outs, **scalars):
    a, b, g = t["a"], t["b"], grads[0]
    vector_a, vector_b = a.dim() == 1, b.dim() == 1
    if vector_a:
        a, g = a.unsqueeze(0), g.unsqueeze(-1 if vector_b else -2)
    if vector_b:
        b, g = b.unsqueeze(1), g.unsqueeze(-1)
    found = gemm_gradients(g, {"a": a, "b": b}, needs, None, **scalars)
    return {name: x.reshape(t[name].shape) for name, x in found.items()}


def _addmm_gradients(grads, t, needs, outs, **scalars):
    named = {"a": t["a"], "b": t["b"], "c": t["input"]}
    found = gemm_gradients(grads[0], named, needs | {"c": needs["input"]}, None, **scalars)
    return found | {"input": found.get("c")}


def _gemm_gradients(grads, t, needs, outs, **scalars):
    if t.get("gate") is not None:
        return _gradients_of_gate(grads[0], t, needs, **scalars)
    return gemm_gradients(grads[0], t, needs, outs[0], **scalars)


def _gradients_of_gate(g, t, needs, **scalars):
    second = {"a": t["a"], "b": t["gate"], "bias": t["gate_bias"]}
    of_second = {"a": needs["a"], "b": needs["gate"], "bias": needs["gate_bias"]}
    first = t | {"multiply": _gemm(**second)}
    wanted = needs | {"multiply": any(of_second.values())}
    found = gemm_gradients(g, first, wanted, None, **scalars)
    beside = gemm_gradients(found.pop("multiply"), second, of_second, None) if wanted["multiply"] else {}
    if needs["a"]:
        found["a"] = found["a"] + beside["a"]
    return found | {"gate": beside.get("b"), "gate_bias": beside.get("bias")}


def _linear_gradients(grads, t, needs, outs, *, activation=0):
    x, weight, g, out = t["x"], t["weight"], grads[0], outs[0]
    vector = x.dim() == 1
    if vector:
        x, g, out = x.unsqueeze(0), g.unsqueeze(0), None if out is None else out.unsqueeze(0)
    named = {"a": x, "b": weight.mT, "c": t["residual"], "bias": t["bias"]}
    wanted = {"a": needs["x"], "b": needs["weight"], "c": needs["residual"], "bias": needs["bias"]}
    found = gemm_gradients(g, named, wanted, out, activation=activation)
    g_x, g_weight = found.get("a"), found.get("b")
    return {
        "x": g_x.squeeze(0) if vector and g_x is not None else g_x,
        "weight": None if g_weight is None else g_weight.mT,
        "residual": found.get("c"),
        "bias": found.get("bias"),
    }


# out = x·weightᵀ + bias + low·upᵀ with low = factor·x·downᵀ


def _adapted_gradients(grads, t, needs, outs, *, factor):
    x, down = t["x"], t["down"]
    low = _gemm(x, down.mT, alpha=factor)
    whole = {"a": x, "b": t["weight"].mT, "bias": t["bias"], "a2": low, "b2": t["up"].mT}
    of_low = {"a": needs["x"], "b": needs["down"]}
    wanted = {
        "a": needs["x"],
        "b": needs["weight"],
        "bias": needs["bias"],
        "b2": needs["up"],
        "a2": any(of_low.values()),
    }
    found = gemm_gradients(grads[0], whole, wanted, None)
    before = gemm_gradients(found["a2"], {"a": x, "b": down.mT}, of_low, None, alpha=factor) if wanted["a2"] else {}
    g_x = found["a"] + before["a"] if needs["x"] else None
    weights = {"weight": found.get("b"), "down": before.get("b"), "up": found.get("b2")}
    return {"x": g_x, "bias": found.get("bias")} | {name: g if g is None else g.mT for name, g in weights.items()}


# h = act(x·gateᵀ + gate_bias)·u with u = x·upᵀ + up_bias; and out = h·secondᵀ + second_bias, where `first` is what is
# activated, and without `up` h is that alone


def _before(t, activated):
    """What makes h, as arguments of gemm, by the names that they have there and here; `activated`: a layer's name."""
    names = {"a": "x", "b": activated, "bias": f"{activated}_bias"}
    if t["up"] is not None:
        names |= {"gate": "up", "gate_bias": "up_bias"}
    given = {ours: t[theirs] for ours, theirs in names.items()}
    return names, given | {weight: given[weight].mT for weight in ("b", "gate") if weight in given}


def _gradients_before(g, h, t, needs, activated, activation):
    names, given = _before(t, activated)
    found = _gemm_gradients(
        [g], given, {ours: needs[theirs] for ours, theirs in names.items()}, [h], activation=activation
    )
    found |= {weight: found[weight].mT for weight in ("b", "gate") if found.get(weight) is not None}
    return {theirs: found.get(ours) for ours, theirs in names.items()}


def _gated_gradients(grads, t, needs, outs, *, activation):
    return _gradients_before(grads[0], None, t, needs, "gate", activation)


def _mlp_gradients(grads, t, needs, outs, *, activation):
    names, given = _before(t, "first")
    h = _gemm(**given, activation=activation)
    asked = {"a": any(needs[name] for name in names.values()), "b": needs["second"], "bias": needs["second_bias"]}
    of_second = gemm_gradients(grads[0], {"a": h, "b": t["second"].mT, "bias": t["second_bias"]}, asked, None)
    g_second = of_second.get("b")
    found = {"second": None if g_second is None else g_second.mT, "second_bias": of_second.get("bias")}
    return found | (_gradients_before(of_second["a"], h, t, needs, "first", activation) if asked["a"] else {})


# D1 = alpha1·D0·B1 + beta1·C + bias1 with D0 = act(alpha0·A·B0 + bias0)·(A·gate)


def _gemm_gemm_gradients(grads, t, needs, outs, *, alpha0=1.0, alpha1=1.0, beta1=1.0, activation=0):
    a, b0, gate = t["a"], t["b0"], t["gate"]
    first = {"a": a, "b": b0, "bias": t["bias0"]}
    at_once = once(grads[0], a, b0, gate, first["bias"])
    if gate is not None:
        first["multiply"] = _gemm(a, gate, out_dtype=a.dtype if at_once else accumulator(a.dtype))
    wanted = {"a": needs["a"], "b": needs["b0"], "bias": needs["bias0"], "multiply": needs["a"] or needs["gate"]}
    wanted["multiply"] = wanted["multiply"] and gate is not None
    inner_needed = any(wanted.values())

    scalars = {"alpha": alpha0, "beta": 1.0, "activation": activation}
    keeps = at_once and GEMM_WITH_AUX.fits(first, scalars)
    if keeps:
        d0, s = GEMM_AUX(*GEMM_WITH_AUX.call(first, scalars)[1], **scalars)
    else:
        d0 = _gemm(**first, alpha=alpha0, activation=activation, out_dtype=a.dtype)
    second = {"a": d0, "b": t["b1"], "c": t["c"], "bias": t["bias1"]}
    needs_1 = {"a": inner_needed, "b": needs["b1"], "c": needs["c"], "bias": needs["bias1"]}
    found_1 = gemm_gradients(grads[0], second, needs_1, None, alpha=alpha1, beta=beta1)
    found = {"b1": found_1.get("b"), "c": found_1.get("c"), "bias1": found_1.get("bias")}
    if not inner_needed:
        return found
    if keeps:
        found_0 = GEMM_WITH_AUX.gradients(found_1["a"], first, (s,), wanted | {"c": False}, scalars)
    else:
        found_0 = gemm_gradients(found_1["a"], first, wanted, d0, alpha=alpha0, activation=activation)
    found |= {"a": found_0.get("a"), "b0": found_0.get("b"), "bias0": found_0.get("bias")}
    if gate is not None and wanted["multiply"]:
        g_gate = found_0["multiply"].to(a.dtype)
        if needs["a"]:
            found["a"] = found["a"] + _matrix_gradient(g_gate, gate.mT, 1.0, a)
        if needs["gate"]:
            found["gate"] = _matrix_gradient(a.mT, g_gate, 1.0, gate)
    return found


# out = P·V with P = exp(S − lse) and S = cap(scale·Q·Kᵀ) − slope·distance + mask; both results have gradients


def widest_backward(dtype: torch.dtype, device: torch.device) -> int:
    """The largest head size whose gradients have kernels of their own where an op on the device runs."""
    return geometry.widest_gradients(dtype, _target_of(device))


def _target_of(device: torch.device) -> str | None:
    """None on the CPU itself, and where only NVIDIA's may be."""
    on_gpu, active = device.type == "cuda", EMULATION.get()
    if active is not None and not (on_gpu and active.execute):
        return active.target
    return target_of(device.index or 0) if on_gpu and (is_amd() or STAND_IN.get()) else None


def _has_backward_kernels(call, needs) -> bool:
    """Not on the CPU, nor for the gradient of a mask or of slopes, nor where the gradients are to be differentiated again,
    nor where V has no columns and lse is all there is."""
    q, v = call.q, call.v
    if torch.is_grad_enabled() or needs.get("mask") or needs.get("alibi_slopes"):
        return False
    if q.device.type == "cpu" and EMULATION.get() is None:
        return False
    return v.shape[-1] > 0 and max(q.shape[-1], v.shape[-1]) <= widest_backward(q.dtype, q.device)


def attention_gradients(op, grads, t, needs, outs, **scalars):
    """Of `attention` or `varlen_attention`, whichever `op` is."""
    call, backward = AttentionCall.of(op, t, scalars), f"_{op}_backward"
    (out, lse), (g_out, g_lse) = outs, grads
    names = dict(zip("qkv", tensors_of(op), strict=False))

    def by_heads(x):
        return x if x is None or not call.is_packed else x.transpose(0, 1)

    found = {}
    if needs.get("sinks"):
        found["sinks"] = _sinks_gradient(by_heads(g_out), g_lse, by_heads(out), lse, call.sinks)
    if _has_backward_kernels(call, needs):
        g_out = torch.zeros_like(out) if g_out is None else g_out
        tensors, options = call.for_op(backward, g_out=g_out, out=out, lse=lse, g_lse=g_lse)
        results = getattr(torch.ops.wmma, backward)(*tensors, **options)
        return found | dict(zip(names.values(), results, strict=True))
    needs = needs | {short: needs.get(name) for short, name in names.items()}
    q, k, v = (by_heads(t[name]) for name in names.values())
    dense = _by_scores(call, q, k, v, (by_heads(g_out), g_lse), (by_heads(out), lse), needs)
    return found | {names.get(name, name): by_heads(x) if name in names else x for name, x in dense.items()}


def _by_scores(call, q, k, v, grads, outs, needs):
    """Gradients by way of all scores in memory; `q`, `k` and `v` have their heads before their rows."""
    terms, mask, scale = terms_of(call), call.mask, call.scale
    out, lse = outs
    g_out, g_lse = grads
    found = {}
    work = accumulator(q.dtype)
    if scale is not None:
        factor = {"alpha": scale}
    elif isinstance(q.shape[-1], torch.SymInt):  # a float from it would make a graph for every head size
        factor = {"row_scale": torch.full((), q.shape[-1], dtype=work, device=q.device).rsqrt()}
    else:
        factor = {"alpha": q.shape[-1] ** -0.5}

    def grouped(x):
        """Query heads that share a key head, as rows of one product: [..., kv_heads, group·Sq, ·]."""
        if x.dim() < 3 or known(x.shape[-3] == k.shape[-3]):
            return x
        kv_heads = k.shape[-3]
        group = x.shape[-3] // kv_heads if kv_heads else 1
        *batch, _, rows, columns = x.shape
        split = x.reshape(*batch, kv_heads, group, rows, columns)  # apart, as a DTensor's heads may be sharded
        return _joined(split, (*batch, kv_heads, group * rows, columns))

    def of_heads(x):
        return x.reshape(*q.shape[:-1], x.shape[-1])

    g_out = (torch.zeros_like(out) if g_out is None else g_out).to(work)
    rows_q, rows_g = grouped(q), grouped(g_out.to(q.dtype))
    of = scored(call, terms, of_heads(_gemm(rows_q, k.mT, **factor, out_dtype=work)))
    # Rows that saw no key have lse −inf and weights 0.
    rows_lse = lse.unsqueeze(-1)
    p = torch.exp(of.scores - torch.where(rows_lse == -torch.inf, 0.0, rows_lse))
    if of.unchanged is not None or (mask is not None and mask.dtype != torch.bool):
        # Beside a large number lse has lost the logarithm of the sum: see kernels/wmma/attention/gradients/elements.hpp.
        total = p.sum(-1, keepdim=True)
        if call.sinks is not None:
            total = total + _sink_weights(call.sinks, lse).unsqueeze(-1)
        p = p / torch.where(total == 0, 1.0, total)

    weights = p
    g_p = of_heads(_gemm(rows_g, v.mT, out_dtype=work))
    if terms.drop is not None:
        weights, g_p = terms.drop(p), terms.drop(g_p)
    if work == q.dtype:
        delta = (g_out * out).sum(-1, keepdim=True)
    else:  # out is rounded: where delta is large beside what it leaves of g_p, the gradient would be off by as much
        delta = torch.where(p == 0, 0.0, p * g_p).sum(-1, keepdim=True)
    if g_lse is not None:
        delta = delta - g_lse.to(work).unsqueeze(-1)
    g_scores = p * (g_p - delta)
    g_capped, g_product = of.gradients(terms.functions, g_scores)
    g_product = grouped(g_product.to(q.dtype))
    if needs["q"]:
        found["q"] = of_heads(_gemm(g_product, k, **factor))
    if needs["k"]:
        found["k"] = _gemm(g_product.mT, rows_q, **factor)
    if needs["v"]:
        found["v"] = _gemm(grouped(weights.to(q.dtype)).mT, rows_g)
    if needs.get("mask"):
        found["mask"] = reduced(g_scores, mask)
    if needs.get("alibi_slopes"):
        found["alibi_slopes"] = reduced(-(g_capped * terms.distances).sum((-2, -1)), call.alibi_slopes)
    return found


def _sink_weights(sinks, lse):
    """What a row's sink takes of its weights: nothing of a token that is in no sequence."""
    blind = lse == -torch.inf
    return torch.where(blind, 0.0, torch.exp(sinks.to(lse.dtype).unsqueeze(-1) - torch.where(blind, 0.0, lse)))


def _sinks_gradient(g_out, g_lse, out, lse, sinks):
    """That of one more score, whose value is 0."""
    delta = torch.zeros_like(lse) if g_out is None else (g_out.to(lse.dtype) * out.to(lse.dtype)).sum(-1)
    if g_lse is not None:
        delta = delta - g_lse.to(lse.dtype)
    return reduced(-(_sink_weights(sinks, lse) * delta).sum(-1), sinks)


def _joined(x, shape):
    """``x.reshape(shape)`` that joins the groups with their rows. Torch 2.10 and 2.11 cannot where a DTensor's rows are
    sharded: they are gathered."""
    try:
        return x.reshape(shape)
    except RuntimeError:
        if not hasattr(x, "placements"):
            raise
    return _gathered(x, [x.dim() - 2]).clone(memory_format=torch.contiguous_format).reshape(shape)


def _gathered(x, dims):
    """A DTensor of which every device has the whole of these dimensions."""
    from torch.distributed.tensor import Replicate

    placements = [Replicate() if getattr(one, "dim", None) in dims else one for one in x.placements]
    return x.redistribute(placements=placements)


def _refuse_dual(op, names, inputs):
    """Forward-mode derivatives would silently be zero: the products have none."""
    if not is_forward_mode():
        return
    for argument, x in zip(names, inputs, strict=False):
        if x is not None and forward_ad.unpack_dual(x).tangent is not None:
            raise tagged(
                op, argument, "carries a forward-mode derivative; takes reverse mode (grad, vjp, jacrev)", ValueError
            )


def _not_differentiable(op, what, tensors):
    culprit = next(argument for argument, x in tensors.items() if x is not None and x.requires_grad)
    text = f"requires grad, but {what} are not differentiable; takes detached tensors"
    return tagged(op, culprit, text, ValueError)


def _refuse_to_differentiate_mods(op, names, inputs):
    """The small tensors of score functions, for which kernels sum up nothing."""
    for argument, x in zip(names, inputs, strict=False):
        if argument in score_functions.ARGUMENTS and x is not None and x.requires_grad:
            text = "requires grad, but tensors that functions read have no gradient; takes a detached tensor"
            raise tagged(op, argument, text, ValueError)


def _products(operand):
    return f"products of {name(operand.dtype)}"


def _register(
    op, gradients, *, only_added=lambda scalars, tensors: (), keeps_outputs=lambda scalars, tensors: False, with_aux=()
):
    """Registers `gradients(grads, tensors, needs, outputs, **scalars)`, which answers with gradients by argument name.

    `only_added` names the arguments of which `gradients` sees a Shape, `keeps_outputs` says whether it sees the outputs.
    """
    call, instead = overload(op), composite(op)
    names = tensor_names(call)
    place = operand_place(op)
    defaults = {one.name: one.default_value for one in torch_internals.schema(call).arguments if one.kwarg_only}

    def remember(ctx, scalars, inputs, output):
        scalars = defaults | scalars
        # The dispatcher drops trailing arguments that have their default, so there may be fewer inputs than names.
        tensors = dict.fromkeys(names) | dict(zip(names, inputs, strict=False))
        light = only_added(scalars, tensors)
        ctx.shapes = {argument: Shape(tensors[argument].shape, tensors[argument].dtype) for argument in light}
        ctx.kept = [argument for argument, x in tensors.items() if x is not None and argument not in light]
        ctx.scalars = {key: value for key, value in scalars.items() if key != "out_dtype"}
        outputs = output if isinstance(output, tuple) else (output,)
        ctx.keeps_outputs = keeps_outputs(scalars, tensors)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*(tensors[argument] for argument in ctx.kept), *(outputs if ctx.keeps_outputs else ()))

    def backward(ctx, grads, asked):
        if all(g is None for g in grads):
            return (None,) * len(asked)
        needs = dict.fromkeys(names, False) | dict(zip(names, asked, strict=False))
        saved = ctx.saved_tensors
        tensors = dict.fromkeys(names) | ctx.shapes | dict(zip(ctx.kept, saved, strict=False))
        outputs = saved[len(ctx.kept) :] if ctx.keeps_outputs else (None,) * len(grads)
        found = gradients(grads, tensors, needs, outputs, **ctx.scalars)
        return tuple(found.get(argument) if needs[argument] else None for argument in names[: len(asked)])

    title = f"Wmma{op.title().replace('_', '')}"
    record = torch_internals.recorder(title, call, instead, remember, backward)
    twins = [(twin, twin.recorder(title, names, instead, gradients)) for twin in with_aux]

    def kernel(keyset, *inputs, **scalars):
        _refuse_dual(op, names, inputs)
        derives = torch.is_grad_enabled() and any_requires_grad(*inputs)
        if derives:
            _refuse_to_differentiate_mods(op, names, inputs)
        if derives and (what := without_gradient(tensors := dict(zip(names, inputs, strict=False)))):
            raise _not_differentiable(op, what, tensors)
        if derives and gradients is not None and inputs[place].dtype in DIFFERENTIABLE:
            if twins and makes_graph():
                tensors, options = dict(zip(names, inputs, strict=False)), defaults | scalars
                for twin, record_with_aux in twins:
                    if twin.takes(tensors, options):
                        return record_with_aux(keyset, *twin.call(tensors, options))[0]
            return record(keyset, scalars, inputs)
        output = below_autograd(call, instead, keyset, *inputs, **scalars)
        if derives:
            raise _not_differentiable(op, _products(inputs[place]), dict(zip(names, inputs, strict=False)))
        return output

    nodes.register(op, kernel, gradients)


def _is_relu(scalars, tensors):
    return scalars["activation"] == 1 and tensors.get("multiply") is None and tensors.get("gate") is None


def _addends(scalars, tensors):
    """C, bias and residual, where no activation needs its argument recomputed."""
    if scalars["activation"] not in (0, 1) or tensors.get("multiply") is not None or tensors.get("gate") is not None:
        return ()
    return [argument for argument in ("c", "bias", "residual") if tensors.get(argument) is not None]


def _outer_addends(scalars, tensors):
    return [argument for argument in ("c", "bias1") if tensors[argument] is not None]


_register("matmul", _matmul_gradients)
_register("addmm", _addmm_gradients, only_added=lambda scalars, tensors: ("input",))
_register("baddbmm", _addmm_gradients, only_added=lambda scalars, tensors: ("input",))
_register(
    "gemm", _gemm_gradients, only_added=_addends, keeps_outputs=_is_relu, with_aux=(GEMM_WITH_AUX, GATED_WITH_AUX)
)
_register("linear", _linear_gradients, only_added=_addends, keeps_outputs=_is_relu, with_aux=(LINEAR_WITH_AUX,))
_register("gemm_gemm", _gemm_gemm_gradients, only_added=_outer_addends)
_register("attention", partial(attention_gradients, "attention"), keeps_outputs=lambda scalars, tensors: True)
_register(
    "varlen_attention", partial(attention_gradients, "varlen_attention"), keeps_outputs=lambda scalars, tensors: True
)
_register("scaled_mm", None)
_register("scaled_attention", None)
nodes.load()
nodes.register_layer("adapted", _adapted_gradients)
nodes.register_layer("gated", _gated_gradients)
nodes.register_layer("mlp", _mlp_gradients)


def _addmm_in_place(keyset, input, a, b, *, beta=1.0, alpha=1.0):
    """In-place ops cannot be registered as above: with gradients, addmm_ is addmm and a copy, which autograd tracks."""
    _refuse_dual("addmm_", ("input", "a", "b"), (input, a, b))
    if torch.is_grad_enabled() and any_requires_grad(input, a, b):
        fakes.addmm_(input, a, b)  # addmm takes more: any type beside its result's, and what broadcasts
        if a.dtype not in DIFFERENTIABLE:
            raise _not_differentiable("addmm_", _products(a), {"input": input, "a": a, "b": b})
        input.copy_(overload("addmm")(input, a, b, beta=beta, alpha=alpha, out_dtype=input.dtype))
        return
    try:
        below_autograd(overload("addmm_"), composite("addmm_"), keyset, input, a, b, beta=beta, alpha=alpha)
    except RuntimeError:  # torch 2.10 redistributes nothing for an op without results
        if not hasattr(input, "placements"):
            raise
        fakes.addmm_(input, a, b)
        total = overload("addmm")(input, a, b, beta=beta, alpha=alpha, out_dtype=input.dtype)
        input.copy_(_gathered(total, range(total.dim())))
    if not transforms_active() and not input.is_inference():
        torch.autograd.graph.increment_version(input)


IMPLEMENTATIONS["wmma"].impl("addmm_", _addmm_in_place, "Autograd", with_keyset=True)


def _kv_append(keyset, *inputs, **scalars):
    """Into pages, which are those of inference."""
    op = "kv_append"
    names = tensor_names(overload(op))
    _refuse_dual(op, names, inputs)
    if torch.is_grad_enabled() and any_requires_grad(*inputs):
        raise _not_differentiable(op, "pages", dict(zip(names, inputs, strict=False)))
    below_autograd(overload(op), overload(op, raw=True), keyset, *inputs, **scalars)
    for pages in inputs[2:4]:
        if not transforms_active() and not pages.is_inference():
            torch.autograd.graph.increment_version(pages)


IMPLEMENTATIONS["wmma"].impl("kv_append", _kv_append, "Autograd", with_keyset=True)
