"""Attention of packed sequences, on the CPU: values, gradients, what is refused."""

import pytest
import torch

import wmma_ops
from wmma_ops.testing import Mismatch, VarlenAttentionCase, run

CASES = (
    VarlenAttentionCase(queries=(5, 1, 30), keys=(5, 9, 30)),
    VarlenAttentionCase(queries=(5, 0, 30, 2), keys=(7, 4, 0, 9), dtype="bfloat16", window=(-1, 0)),
    VarlenAttentionCase(queries=(9, 20), keys=(3, 40), heads=4, kv_heads=2, dtype="float16", window=(7, 2), beyond=5),
    VarlenAttentionCase(queries=(1, 1, 1), keys=(30, 8, 17), used=(20, 0, 17), heads=4, kv_heads=1, dtype="float64"),
    VarlenAttentionCase(queries=(8, 3), keys=(8, 5), ev=7, layout="htd", sinks="heads", slopes="heads", softcap=2.0),
    VarlenAttentionCase(queries=(8, 3), keys=(8, 5), layout="strided", number="int64", scale=-0.3, sinks="own"),
    VarlenAttentionCase(queries=(), keys=(), beyond=3),
    VarlenAttentionCase(queries=(4,), keys=(0,), sinks="heads", dtype="float16"),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case):
    run(case)


def _leaks(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, **options):
    """Keys of the sequence before count as well."""
    return wmma_ops.varlen_attention(query, key, value, cu_seq_q[::2], cu_seq_k[::2], 40, 40, **options)


def test_a_leak_from_one_sequence_to_the_next_is_caught():
    with pytest.raises(Mismatch):
        run(VarlenAttentionCase(queries=(5, 9), keys=(5, 9)), implementation={"varlen_attention": _leaks})


def _operands(dtype=torch.float64):
    """Sequences of which one has no keys, one no queries; keys beyond those used; tokens of none."""
    generator = torch.Generator().manual_seed(0)

    def tensor(*shape):
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()

    given = tensor(14, 4, 6), tensor(17, 2, 6), tensor(17, 2, 5), tensor(4), tensor(4)
    return given, (torch.tensor([0, 5, 5, 8, 12]), torch.tensor([0, 6, 10, 10, 15])), torch.tensor([4, 4, 0, 5])


RULES = (
    {},
    {"window_size": (-1, 0), "softcap": 1.5},
    {"window_size": (2, 1), "scale": -0.5},
)


@pytest.mark.parametrize("rules", RULES, ids=str)
@pytest.mark.parametrize("beside", [False, True])
def test_gradients_are_each_sequences_own(rules, beside):
    given, cu, used = _operands()
    q, k, v, sinks, slopes = given
    options = rules | {"enable_gqa": True}
    if beside:
        options |= {"sinks": sinks, "alibi_slopes": slopes}
    wanted = given if beside else given[:3]
    out, lse = wmma_ops.varlen_attention(q, k, v, *cu, 5, 6, seqused_k=used, **options)
    generator = torch.Generator().manual_seed(1)
    g_out, g_lse = (torch.randn(x.shape, generator=generator, dtype=x.dtype) for x in (out, lse))
    got = torch.autograd.grad((out, lse), wanted, (g_out, g_lse))

    total = 0
    window = options.pop("window_size", (-1, -1))
    for i, keys in enumerate(used.tolist()):
        rows = slice(*cu[0][i : i + 2].tolist())
        start = int(cu[1][i])
        own_q, own_k, own_v = (x.transpose(0, 1) for x in (q[rows], k[start : start + keys], v[start : start + keys]))
        own_out, own_lse = wmma_ops.attention(own_q, own_k, own_v, window=window, **options)
        assert torch.equal(out[rows], own_out.transpose(0, 1))
        assert torch.equal(lse[:, rows], own_lse)
        seen = own_lse.masked_fill(own_lse == -torch.inf, 0)
        total = total + (own_out.transpose(0, 1) * g_out[rows]).sum() + (seen * g_lse[:, rows]).sum()
    for x, want in zip(got, torch.autograd.grad(total, wanted), strict=True):
        torch.testing.assert_close(x, want)
    assert torch.equal(got[1][4:6], torch.zeros(2, 2, 6))  # not used
    assert torch.equal(got[2][6:10], torch.zeros(4, 2, 5))  # of no queries
    assert torch.equal(got[0][12:], torch.zeros(2, 4, 6))  # of no sequence
    assert not out[12:].any()
    assert (lse[:, 12:] == -torch.inf).all()


@pytest.mark.parametrize(("dtype", "tokens"), [(torch.bfloat16, (150, 200)), (torch.float16, (2040, 30))], ids=str)
def test_gradients_beyond_the_whole_numbers_of_the_type(dtype, tokens):
    """Tokens are more than those up to which the type has every whole number."""
    cu = torch.tensor([0, *tokens], dtype=torch.int32).cumsum(0, dtype=torch.int32)
    generator = torch.Generator().manual_seed(0)
    given = [torch.randn(sum(tokens), 1, 8, generator=generator).to(dtype) for _ in range(3)]
    slopes, g_out = torch.tensor([0.2]), torch.randn(sum(tokens), 1, 8, generator=generator).to(dtype)
    results = []
    for wide in (False, True):
        leaves = [x.to(torch.float32 if wide else dtype).requires_grad_() for x in given]
        leaves.append(slopes.clone().requires_grad_())
        rules = {"window_size": (9, 3), "alibi_slopes": leaves[3]}
        out, _ = wmma_ops.varlen_attention(*leaves[:3], cu, cu, max(tokens), max(tokens), **rules)
        results.append(torch.autograd.grad(out, leaves, g_out.to(out.dtype)))
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got.float(), want, atol=8 * torch.finfo(dtype).eps, rtol=0.02)


def test_compiled_with_numbers_that_are_known_as_it_runs():
    (q, k, v, *_), cu, used = _operands(torch.float32)

    def loss(q, k, v, cu_q, cu_k, used):
        options = {"seqused_k": used, "enable_gqa": True, "window_size": (-1, 0)}
        out, lse = wmma_ops.varlen_attention(q, k, v, cu_q, cu_k, 5, 6, **options)
        return out.square().sum() + lse[:, :5].exp().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    for cu_q in (cu[0], torch.tensor([0, 1, 5, 9, 14])):
        results = [call(q, k, v, cu_q, cu[1], used) for call in (loss, compiled)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(torch.autograd.grad(x, (q, k, v)) for x in results))


GOOD = {
    "query": torch.ones(9, 4, 8),
    "key": torch.ones(12, 2, 8),
    "value": torch.ones(12, 2, 5),
    "cu_seq_q": torch.tensor([0, 2, 9]),
    "cu_seq_k": torch.tensor([0, 5, 11]),
    "max_q": 7,
    "max_k": 6,
    "enable_gqa": True,
}
BAD = (
    ({"query": torch.ones(9, 8)}, r"query has shape \[9, 8\]; takes \[tokens, heads, head size\]"),
    ({"query": torch.ones(9, 4, 8).int()}, "query is int32; takes float16"),
    ({"key": torch.ones(12, 2, 8).half()}, "key is float16; takes float32, as query has"),
    ({"key": torch.ones(12, 2, 7)}, "key has shape .*; takes the head size of query, 8"),
    ({"value": torch.ones(11, 2, 5)}, "value has shape .*; takes the length of key, 12"),
    ({"key": torch.ones(12, 3, 8), "value": torch.ones(12, 3, 5)}, "key has shape .*; takes a number of heads that"),
    ({"enable_gqa": False}, r"key has shape .* of query, \[9, 4, 8\] \(or enable_gqa=True\)"),
    ({"cu_seq_q": torch.tensor([0.0, 2, 9])}, "cu_seq_q is float32; takes int32 or int64"),
    ({"cu_seq_q": torch.tensor([[0, 2, 9]])}, r"cu_seq_q has shape \[1, 3\]; takes one dimension"),
    ({"cu_seq_q": torch.zeros(0).int()}, r"cu_seq_q has shape \[0\]; takes one dimension, of 1 or more"),
    ({"cu_seq_k": torch.tensor([0, 5])}, r"cu_seq_k has shape \[2\]; takes \[3\], as cu_seq_q has 3"),
    ({"seqused_k": torch.tensor([0, 5, 2])}, r"seqused_k has shape \[3\]; takes \[2\]"),
    ({"cu_seq_q": None}, "cu_seq_q is None; takes a tensor"),
    ({"max_q": -1}, "max_q is -1; takes 0 or more"),
    ({"max_k": 2.5}, "max_k is of type float; takes"),
    ({"window_size": 3}, "window_size is 3; takes two integers"),
    ({"window_size": (0, -2)}, r"window_size is \(0, -2\); takes two sizes of 0 or more"),
    ({"softcap": -1.0}, "softcap is -1;"),
    ({"sinks": torch.ones(2)}, r"sinks has shape \[2\]; takes a shape that broadcasts to \[4\]"),
    # What the numbers are is known on the CPU.
    ({"cu_seq_q": torch.tensor([1, 2, 9])}, "cu_seq_q starts at 1; takes 0"),
    ({"cu_seq_q": torch.tensor([0, 5, 3])}, "cu_seq_q has 3 at 2; takes 5"),
    ({"cu_seq_k": torch.tensor([0, 5, 13]), "max_k": 9}, "cu_seq_k has 13 at 2; takes up to 12, the tokens of key"),
    ({"max_q": 6}, "max_q is 6; takes 7, the longest sequence, or more"),
    ({"max_k": 5}, "max_k is 5; takes 6, the longest"),
    ({"seqused_k": torch.tensor([6, 1])}, "seqused_k has 6 at 0; takes 0 to 5, the keys of that"),
    ({"seqused_k": torch.tensor([5, -1])}, "seqused_k has -1 at 1; takes 0 to 6"),
)


@pytest.mark.parametrize(("change", "text"), BAD, ids=lambda x: " ".join(x) if isinstance(x, dict) else None)
def test_refused(change, text):
    wmma_ops.varlen_attention(**GOOD)
    with pytest.raises((TypeError, ValueError), match=rf"^wmma\.varlen_attention: {text}"):
        wmma_ops.varlen_attention(**GOOD | change)


@pytest.mark.parametrize(("change", "text"), BAD[-7:], ids=lambda x: " ".join(x) if isinstance(x, dict) else None)
def test_refused_by_kernels_where_that_is_asked_for(change, text, monkeypatch):
    with wmma_ops.emulate("gfx942"):
        wmma_ops.varlen_attention(**GOOD | change)
        monkeypatch.setenv("WMMA_OPS_CHECK", "1")
        wmma_ops.varlen_attention(**GOOD)
        with pytest.raises(ValueError, match=rf"^wmma\.varlen_attention: {text}"):
            wmma_ops.varlen_attention(**GOOD | change)
