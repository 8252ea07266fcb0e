"""What a case's call gives: the float64 results with their bounds, and torch's own."""

import torch

from wmma_ops.ops import activations
from wmma_ops.ops.types import OUTPUTS
from wmma_ops.testing import functions, reference
from wmma_ops.testing.cases.case import AttentionCase, GemmGemmCase, VarlenAttentionCase
from wmma_ops.testing.operands import type_of

Tensor = torch.Tensor


def out_type(case) -> torch.dtype:
    operand = getattr(torch, case.dtype)
    if case.op == "scaled_attention":
        return type_of(case.out_dtype, torch.bfloat16)
    if isinstance(case, (AttentionCase, VarlenAttentionCase)):
        return operand
    if case.op == "addmm_":
        return type_of(case.c_dtype, operand)
    if case.op == "scaled_mm" and case.out_dtype is None:
        return torch.bfloat16
    return type_of(case.out_dtype, OUTPUTS[operand][0])


def expected(case, t: dict, backend: str = "cpu") -> tuple[reference.Value, ...]:
    """The float64 results with their bounds, which for scaled_attention depend on the backend."""
    if case.op == "scaled_attention":
        scaled = {name: _times(t[name], t.get(f"scale_{name}")) for name in "qkv"}
        weights = getattr(torch, case.dtype) if backend == "cuda" else None
        return reference.attention(
            scaled, causal=case.causal, scale=case.scale, out_dtype=out_type(case), weights_dtype=weights
        )
    if isinstance(case, AttentionCase):
        options = {"window": case.window, "softcap": case.softcap or None, "dropout": case.dropout}
        return reference.attention(t, causal=case.causal, scale=case.scale, **options)
    if isinstance(case, VarlenAttentionCase):
        return _varlen_expected(case, t)
    if isinstance(case, GemmGemmCase):
        options = {"alpha0": case.alpha0, "alpha1": case.alpha1, "beta1": case.beta1, "activation": case.activation}
        return (reference.gemm_gemm(t, out_type(case), **options),)
    value = reference.gemm(
        t, out_type(case), alpha=case.alpha, beta=case.beta, a_activation=case.a_activation, activation=case.activation
    )
    if case.vector_b:
        value = reference.Value(value.x[..., 0], value.error[..., 0])
    if case.vector_a:
        axis = -1 if case.vector_b else -2
        value = reference.Value(value.x.select(axis, 0), value.error.select(axis, 0))
    return (value,)


def _times(x: Tensor, scale: Tensor | None) -> Tensor:
    return x.double() if scale is None else x.double() * scale.double()[..., None, None]


def _varlen_expected(case: VarlenAttentionCase, t: dict) -> tuple[reference.Value, ...]:
    """Each sequence's own, one after the other; of tokens of none, those of rows that see no key."""
    tokens, number = t["query"].shape[0], torch.float64
    shape = (case.heads, tokens, t["value"].shape[-1])
    out = reference.exact(torch.zeros(shape, dtype=number))
    lse = reference.exact(torch.full(shape[:2], -torch.inf, dtype=number))
    starts_q, starts_k = (None if t[name] is None else t[name].tolist() for name in ("cu_seq_q", "cu_seq_k"))
    for i, (queries, keys) in enumerate(zip(case.queries, case.used or case.keys, strict=True)):
        rows = slice(starts_q[i], starts_q[i] + queries)

        def seen(x, i=i, keys=keys):
            if case.page_size is None:
                return x[starts_k[i] : starts_k[i] + keys]
            own = t["block_table"][i, : -(-keys // case.page_size)].tolist()
            return x[own].flatten(0, 1)[:keys]

        own = {"q": t["query"][rows], "k": seen(t["key"]), "v": seen(t["value"])}
        own = {name: x.transpose(0, 1) for name, x in own.items()}
        for name in ("k", "v") if case.descale is not None else ():
            descale = t[f"{name}_descale"].double().expand(len(case.queries), own[name].shape[0])[i]
            own[name] = own[name].double() * descale[:, None, None]
        own |= {name: t.get(name) for name in ("sinks", "alibi_slopes", "dropout_seed")}
        if case.score_mod is not None or case.mask_mod is not None:
            shape = (case.heads, queries, keys)
            own["mask"] = functions.added(t.get("mod_a"), t.get("mod_b"), case.mask_mod is not None, i, shape)
        rules = {"window": case.window, "softcap": case.softcap or None, "dropout": case.dropout}
        parts = reference.attention(own, scale=case.scale, first_batch=i, **rules)
        for whole, part in zip((out, lse), parts, strict=True):
            whole.x[:, rows], whole.error[:, rows] = part.x, part.error
    return reference.Value(out.x.transpose(0, 1), out.error.transpose(0, 1)), lse


def torch_result(case, t: dict) -> Tensor | None:
    """The same computed by torch in the operands' own type, rounding after each step; None where torch has none."""
    if isinstance(case, VarlenAttentionCase):
        return None  # which it has on a GPU alone
    dtype = getattr(torch, case.dtype)
    if dtype not in (torch.float32, torch.bfloat16, torch.float16) or case.special is not None:
        return None  # (in float64, torch computes the reference itself)

    def own(x):
        return x if x is None or x.dtype == torch.bool else x.to(dtype)

    if isinstance(case, AttentionCase):
        if 0 in (case.sq, case.skv, case.batch) or case.causal == "bottom_right":
            return None
        if case.mask == "far" and dtype == torch.float16:
            return None  # which has no such numbers
        if case.window != (-1, -1) or case.softcap or case.sinks or case.slopes or case.dropout:
            return None  # which it has not
        mask = None if t["mask"] is None else own(t["mask"]).expand(case.batch, case.heads, case.sq, case.skv)
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(
                t["q"],
                t["k"],
                t["v"],
                attn_mask=mask,
                is_causal=case.causal is not None,
                scale=case.scale,
                enable_gqa=case.kv_heads is not None,
            )
    if out_type(case) != dtype:
        return None
    act = activations.by_code(activations.code("torch", "activation", case.activation)).forward
    if isinstance(case, GemmGemmCase):
        d0 = case.alpha0 * torch.matmul(t["a"], t["b0"])
        d0 = act(d0 if t["bias0"] is None else d0 + own(t["bias0"]))
        d0 = d0 if t["gate"] is None else d0 * torch.matmul(t["a"], t["gate"])
        d1 = case.alpha1 * torch.matmul(d0, t["b1"])
        d1 = d1 if t["c"] is None or case.beta1 == 0 else d1 + case.beta1 * own(t["c"])
        return d1 if t["bias1"] is None else d1 + own(t["bias1"])
    if case.vector_a or case.vector_b:
        return None
    p = t["a"] if t["a_scale"] is None else t["a"] * own(t["a_scale"])
    if case.a_activation is not None:
        p = activations.by_code(activations.code("torch", "a_activation", case.a_activation)).forward(p)
    s = torch.matmul(p, t["b"])
    if "a2" in t:
        s = s + torch.matmul(t["a2"], t["b2"])
    s = case.alpha * s
    if (row := t["row_scale"]) is not None:
        s = s * own(row.unsqueeze(-1) if row.dim() else row)
    if (column := t["col_scale"]) is not None:
        s = s * own(column.unsqueeze(-2) if column.dim() > 1 else column)
    s = s if t["c"] is None or case.beta == 0 else s + case.beta * own(t["c"])
    s = act(s if t["bias"] is None else s + own(t["bias"]))
    s = s if t["multiply"] is None else s * own(t["multiply"])
    if "gate" not in t:
        return s
    factor = torch.matmul(t["a"], t["gate"])
    return s * (factor if t["gate_bias"] is None else factor + own(t["gate_bias"]))


def relative(got: Tensor, want: Tensor) -> float:
    """The error, of the norm of what it should be."""
    scale = want.double().norm()
    return ((got.double() - want.double()).norm() / (scale if scale > 0 else 1)).item()
