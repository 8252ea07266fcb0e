"""Implementations that are wrong on purpose. The value suite must catch each, or it proves nothing."""

import pytest
import torch

import wmma_ops
from wmma_ops.testing import GemmCase, Mismatch, cases, run

RIGHT = {
    name: getattr(wmma_ops, name) for name in ("matmul", "addmm", "addmm_", "baddbmm", "gemm", "linear", "attention")
}
RIGHT |= {name: getattr(wmma_ops, name) for name in ("gemm_gemm", "scaled_mm", "scaled_attention")}


def reads_c_at_beta_0(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    return (alpha * wmma_ops.matmul(a, b).float() + beta * input.float()).to(out_dtype or a.dtype)


def reads_ab_at_alpha_0(input, a, b, *, beta=1.0, alpha=1.0, out_dtype=None):
    out = RIGHT["addmm"](input, a, b, beta=beta, alpha=alpha, out_dtype=out_dtype)
    return out + 0 * wmma_ops.matmul(a, b).to(out.dtype) if alpha == 0 else out


def drops_batch_stride(a, b, *, out_dtype=None):
    return RIGHT["matmul"](a, b[:1].expand_as(b) if b.dim() == 3 else b, out_dtype=out_dtype)


def truncates(a, b, *, out_dtype=None):
    out = RIGHT["matmul"](a, b, out_dtype=out_dtype)
    if out.dtype != torch.bfloat16 or a.dtype != torch.bfloat16:
        return out
    wide = RIGHT["matmul"](a, b, out_dtype=torch.float32)
    return (wide.view(torch.int32) & -65536).view(torch.float32).to(torch.bfloat16)


def bias_on_rows(x, weight, bias=None, *, activation=None, residual=None):
    out = RIGHT["linear"](x, weight, activation=activation, residual=residual)
    if bias is None or x.dim() < 2:
        return out
    return out + bias[: x.shape[-2]].unsqueeze(-1).to(out.dtype)


def leaves_last_row(a, b, *, out_dtype=None):
    out = RIGHT["matmul"](a, b, out_dtype=out_dtype)
    if out.dim() >= 2 and out.shape[-2] % 16 and out.dtype.is_floating_point:
        out[..., -1, :] = float("nan")
    return out


def accumulates_in_half(a, b, *, out_dtype=None):
    if a.dtype != torch.bfloat16 or a.shape[-1] < 256:
        return RIGHT["matmul"](a, b, out_dtype=out_dtype)
    total = sum(RIGHT["matmul"](x, y) for x, y in zip(a.split(64, -1), b.split(64, -2), strict=True))
    return total.to(out_dtype or a.dtype)


def ignores_strides(a, b, *, out_dtype=None):
    if a.dim() == 2 and a.numel() and not a.is_contiguous() and 0 not in a.stride():
        a = a.as_strided(a.shape, (a.shape[1], 1), 0)
    return RIGHT["matmul"](a, b, out_dtype=out_dtype)


def wraps_instead_of_saturating(a, b, *, out_dtype=None):
    if out_dtype == torch.int8:
        return RIGHT["matmul"](a, b).to(torch.int8)
    return RIGHT["matmul"](a, b, out_dtype=out_dtype)


def rounds_half_up(a, b, **options):
    out = RIGHT["gemm"](a, b, **options)
    others = ("bias", "row_scale", "col_scale", "a_scale", "multiply", "a_activation", "activation")
    if out.dtype != torch.int32 or options["c"] is None or any(options[name] is not None for name in others):
        return out
    exact = options["alpha"] * (a.double() @ b.double()) + options["beta"] * options["c"].double()
    return torch.floor(exact + 0.5).to(torch.int32)


def rounds_before_activation(a, b, *, activation=None, out_dtype=None, **options):
    first = RIGHT["gemm"](a, b, out_dtype=out_dtype, **options)
    eye = torch.eye(first.shape[-1], dtype=first.dtype)
    return (
        RIGHT["gemm"](first, eye, activation=activation)
        if activation and a.dtype == torch.bfloat16
        else RIGHT["gemm"](a, b, activation=activation, out_dtype=out_dtype, **options)
    )


def activates_after_multiply(a, b, *, activation=None, multiply=None, **options):
    if activation is None or multiply is None:
        return RIGHT["gemm"](a, b, activation=activation, multiply=multiply, **options)
    out = RIGHT["gemm"](a, b, multiply=multiply, **options)
    return torch.relu(out) if activation == "relu" else out


def rounds_between_the_pairs(a, b, *, a2=None, b2=None, c=None, beta=1.0, **options):
    operands = [x for x in (a, b, a2, b2) if x is not None]
    if a2 is None or a.dtype != torch.bfloat16 or c is not None or any(x.dim() > 2 or x.numel() == 0 for x in operands):
        return RIGHT["gemm"](a, b, a2=a2, b2=b2, c=c, beta=beta, **options)
    plain = {"alpha": options["alpha"], "out_dtype": torch.bfloat16}
    return RIGHT["gemm"](a, b, **options, c=RIGHT["gemm"](a2, b2, **plain))


def drops_the_batch_of_the_second_pair(a, b, *, a2=None, b2=None, **options):
    a2 = a2[:1].expand_as(a2) if a2 is not None and a2.dim() == 3 else a2
    return RIGHT["gemm"](a, b, a2=a2, b2=b2, **options)


def puts_the_prologue_on_both_pairs(a, b, *, a2=None, b2=None, a_activation=None, **options):
    if a2 is not None and a_activation == "relu":
        a2 = torch.relu(a2.float()).to(a2.dtype)
    return RIGHT["gemm"](a, b, a2=a2, b2=b2, a_activation=a_activation, **options)


def rounds_d0_too_coarsely(a, b0, b1, *, alpha0, alpha1, beta1, c, bias0, bias1, activation, gate, out_dtype):
    if a.dtype != torch.float16 or gate is not None:
        return RIGHT["gemm_gemm"](
            a,
            b0,
            b1,
            alpha0=alpha0,
            alpha1=alpha1,
            beta1=beta1,
            c=c,
            bias0=bias0,
            bias1=bias1,
            activation=activation,
            gate=gate,
            out_dtype=out_dtype,
        )
    d0 = RIGHT["gemm"](a, b0, alpha=alpha0, bias=bias0, activation=activation).to(torch.bfloat16).to(torch.float16)
    return RIGHT["gemm"](d0, b1, alpha=alpha1, beta=beta1, c=c, bias=bias1, out_dtype=out_dtype)


def forgets_alpha0(a, b0, b1, *, alpha0=1.0, **options):
    return RIGHT["gemm_gemm"](a, b0, b1, **options)


def swaps_scales(a, b, scale_a, scale_b, **options):
    return RIGHT["scaled_mm"](a, b, scale_a.mean(), scale_b, **options)


def scales_the_batch_for_the_rows(a, b, scale_a, scale_b, **options):
    by_batch = a.dim() > scale_a.dim() == 2 and scale_a.shape == (a.shape[0], 1)
    return RIGHT["scaled_mm"](a, b, scale_a.unsqueeze(-1) if by_batch else scale_a, scale_b, **options)


def multiplies_values_by_the_keys_scale(q, k, v, scale_q, scale_k, scale_v, **options):
    return RIGHT["scaled_attention"](q, k, v, scale_q, scale_k, scale_k, **options)


def scales_all_queries_alike(q, k, v, scale_q, scale_k, scale_v, **options):
    return RIGHT["scaled_attention"](q, k, v, None if scale_q is None else scale_q.mean(), scale_k, scale_v, **options)


def leaves_out_the_last_key(q, k, v, scale_q, scale_k, scale_v, *, is_causal=False, **options):
    last = k.shape[-2] - (1 if k.shape[-2] > 1 and not is_causal else 0)
    return RIGHT["scaled_attention"](
        q, k[..., :last, :], v[..., :last, :], scale_q, scale_k, scale_v, is_causal=is_causal, **options
    )


def nan_for_blind_rows(q, k, v, **options):
    out, lse = RIGHT["attention"](q, k, v, **options)
    return out.masked_fill(lse.isneginf().unsqueeze(-1), float("nan")), lse


def causal_top_left_always(q, k, v, *, is_causal=False, **options):
    return RIGHT["attention"](q, k, v, is_causal=bool(is_causal), **options)


def heads_of_the_wrong_group(q, k, v, *, enable_gqa=False, **options):
    if enable_gqa and k.shape[1]:
        repeats = q.shape[1] // k.shape[1]
        k, v = (x.repeat(1, repeats, 1, 1) for x in (k, v))  # 0 1 0 1 instead of 0 0 1 1
    return RIGHT["attention"](q, k, v, **options)


def lse_without_maximum(q, k, v, **options):
    out, lse = RIGHT["attention"](q, k, v, **options)
    return out, lse - lse.clamp(0, 0.01)


def writes_around(input, a, b, *, beta=1.0, alpha=1.0):
    RIGHT["addmm_"](input, a, b, beta=beta, alpha=alpha)
    if input.storage_offset():
        input.as_strided((1,), (1,), input.storage_offset() - 1).fill_(1)
    return input


WRONG = [
    ("addmm", reads_c_at_beta_0, "addmm"),
    ("addmm", reads_ab_at_alpha_0, "addmm"),
    ("matmul", drops_batch_stride, "matmul"),
    ("matmul", truncates, "matmul"),
    ("linear", bias_on_rows, "linear"),
    ("matmul", leaves_last_row, "matmul"),
    ("matmul", accumulates_in_half, "matmul"),
    ("matmul", ignores_strides, "matmul"),
    ("matmul", wraps_instead_of_saturating, "matmul"),
    ("gemm", rounds_half_up, "gemm"),
    ("gemm", rounds_before_activation, "gemm"),
    ("gemm", activates_after_multiply, "gemm"),
    ("gemm", rounds_between_the_pairs, "second pair"),
    ("gemm", drops_the_batch_of_the_second_pair, "second pair"),
    ("gemm", puts_the_prologue_on_both_pairs, "second pair"),
    ("gemm_gemm", rounds_d0_too_coarsely, "gemm_gemm"),
    ("gemm_gemm", forgets_alpha0, "gemm_gemm"),
    ("scaled_mm", swaps_scales, "scaled_mm"),
    ("scaled_mm", scales_the_batch_for_the_rows, "scaled_mm"),
    ("scaled_attention", multiplies_values_by_the_keys_scale, "scaled attention"),
    ("scaled_attention", scales_all_queries_alike, "scaled attention"),
    ("scaled_attention", leaves_out_the_last_key, "scaled attention"),
    ("attention", nan_for_blind_rows, "attention"),
    ("attention", causal_top_left_always, "attention"),
    ("attention", heads_of_the_wrong_group, "attention"),
    ("attention", lse_without_maximum, "attention"),
    ("addmm_", writes_around, "addmm"),
]


@pytest.mark.parametrize(("op", "wrong", "group"), WRONG, ids=[wrong.__name__ for _, wrong, _ in WRONG])
def test_is_caught(op, wrong, group):
    caught = 0
    for case in cases(group):
        try:
            run(case, implementation={op: wrong})
        except Mismatch:
            caught += 1
    assert caught > 0


def test_no_operand_lies_where_another_is_read_beyond():
    """Kernels that read beyond an operand would otherwise read the next one, and nothing would be told."""
    seen = []

    def sees(a, b, *, out_dtype=None):
        for x in (a, b):
            store = x.untyped_storage()
            seen.append(x.data_ptr() - store.data_ptr())
            seen.append(store.data_ptr() + store.nbytes() - x.data_ptr() - x.numel() * x.element_size())
        return RIGHT["matmul"](a, b, out_dtype=out_dtype)

    run(GemmCase(op="matmul", m=5, k=7, n=3, dtype="float16"), implementation={"matmul": sees})
    assert len(seen) == 4
    assert min(seen) >= 1 << 16
