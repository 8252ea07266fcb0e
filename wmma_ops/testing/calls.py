"""Calls of a case's op."""

from collections.abc import Callable

import torch

import wmma_ops
from wmma_ops.ops.score_functions import ARGUMENTS
from wmma_ops.testing.cases.case import AttentionCase, GemmGemmCase, VarlenAttentionCase
from wmma_ops.testing.operands import type_of

Tensor = torch.Tensor


def call(case, t: dict, implementation: dict[str, Callable]) -> tuple[Tensor, ...]:
    """Calls the case's op, which `implementation` may replace, with the tensors `t`."""
    op = implementation.get(case.op, getattr(wmma_ops, case.op))
    if case.op == "scaled_attention":
        scales = (t.get(name) for name in ("scale_q", "scale_k", "scale_v"))
        options = {"is_causal": case.causal or False, "scale": case.scale, "enable_gqa": case.kv_heads is not None}
        return tuple(op(t["q"], t["k"], t["v"], *scales, **options, out_dtype=type_of(case.out_dtype, None)))
    if isinstance(case, AttentionCase):
        return tuple(
            op(
                t["q"],
                t["k"],
                t["v"],
                mask=t["mask"],
                is_causal=case.causal or False,
                scale=case.scale,
                enable_gqa=case.kv_heads is not None,
                **_rules_of(case, t),
            )
        )
    if isinstance(case, VarlenAttentionCase):
        rules = {"window_size": case.window, "softcap": case.softcap, "scale": case.scale, "dropout_p": case.dropout}
        longest = {"max_q": max(case.queries, default=0), "max_k": max(case.keys, default=0)}
        if case.page_size is not None:
            longest["max_k"] = None
        mods = tuple(x for name, x in t.items() if name in ARGUMENTS)
        if case.score_mod is not None or case.mask_mod is not None:  # implementations may know less
            rules |= {"score_mod": case.score_mod, "mask_mod": case.mask_mod, "mod_operands": mods}
        given = {name: x for name, x in t.items() if name not in ARGUMENTS}
        return tuple(op(**given, **longest, **rules, enable_gqa=case.kv_heads is not None))
    out_dtype = None if case.out_dtype is None else getattr(torch, case.out_dtype)
    if isinstance(case, GemmGemmCase):
        companions = {name: t[name] for name in ("c", "bias0", "bias1", "gate")}
        factors = {"alpha0": case.alpha0, "alpha1": case.alpha1, "beta1": case.beta1 if case.c else 1.0}
        return (op(t["a"], t["b0"], t["b1"], **companions, **factors, activation=case.activation, out_dtype=out_dtype),)
    a, b = t["a"], t["b"]
    match case.op:
        case "matmul":
            return (op(a[0] if case.vector_a else a, b[..., 0] if case.vector_b else b, out_dtype=out_dtype),)
        case "addmm" | "baddbmm":
            return (op(t["c"], a, b, alpha=case.alpha, beta=case.beta, out_dtype=out_dtype),)
        case "addmm_":
            return (op(t["c"], a, b, alpha=case.alpha, beta=case.beta),)
        case "linear":
            residual = t["c"]
            weight = b.mT
            return (op(a[0] if case.vector_a else a, weight, t["bias"], activation=case.activation, residual=residual),)
        case "scaled_mm":
            scales = _as_asked(t["row_scale"], case.row_scale, -1), _as_asked(t["col_scale"], case.col_scale, -2)
            return (op(a, b, *scales, bias=t["bias"], out_dtype=out_dtype),)
    companions = {name: t[name] for name in ("c", "bias", "row_scale", "col_scale", "a_scale", "multiply")}
    companions |= {name: t[name] for name in ("a2", "b2", "gate", "gate_bias") if name in t}
    options = {"alpha": case.alpha, "beta": case.beta if case.c else 1.0, "out_dtype": out_dtype}
    return (op(a, b, **companions, **options, a_activation=case.a_activation, activation=case.activation),)


def _rules_of(case: AttentionCase, t: dict) -> dict:
    """What is asked for, and no more: implementations may know less."""
    given = {"window": case.window, "softcap": case.softcap, "dropout_p": case.dropout}
    given |= {name: t.get(name) for name in ("sinks", "alibi_slopes", "dropout_seed")}
    defaults = {"window": (-1, -1), "softcap": 0.0, "dropout_p": 0.0}
    return {name: x for name, x in given.items() if isinstance(x, torch.Tensor) or x != defaults.get(name)}


def _as_asked(scale: Tensor, kind: str | None, one: int) -> Tensor:
    """With a dimension of one, as torch's scales have it."""
    return scale.unsqueeze(one) if kind in ("matrix", "matrices") else scale
