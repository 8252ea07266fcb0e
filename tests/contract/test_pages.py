"""Attention of keys and values in pages, on the CPU: values, what is refused, compilers."""

import pytest
import torch

import wmma_ops
from wmma_ops.testing import Mismatch, VarlenAttentionCase, run

CASES = (
    VarlenAttentionCase(queries=(1, 1, 1), keys=(40, 16, 3), page_size=16),
    VarlenAttentionCase(queries=(1, 3, 1), keys=(90, 300, 5), used=(70, 0, 5), page_size=64, heads=4, kv_heads=1),
    VarlenAttentionCase(queries=(20, 33), keys=(20, 50), page_size=32, dtype="bfloat16", layout="htd", window=(-1, 0)),
    VarlenAttentionCase(
        queries=(9, 0, 20), keys=(3, 8, 40), page_size=48, heads=4, kv_heads=2, window=(7, 2), beyond=5
    ),
    VarlenAttentionCase(queries=(8, 3), keys=(17, 5), page_size=16, ev=7, sinks="heads", slopes="heads", softcap=2.0),
    VarlenAttentionCase(queries=(8,), keys=(300,), page_size=256, layout="halves", number="int64", dtype="float64"),
    VarlenAttentionCase(queries=(8, 3), keys=(18, 5), page_size=16, layout="strided", scale=-0.3, dtype="float16"),
    VarlenAttentionCase(queries=(4, 2), keys=(0, 0), page_size=16, sinks="own"),
    VarlenAttentionCase(queries=(), keys=(), page_size=16, beyond=3),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case):
    run(case)


def _neighbours(query, key, value, cu_seq_q, cu_seq_k, max_q, max_k, *, block_table, **options):
    """Every sequence has the pages of the one before it."""
    table = block_table.roll(1, 0)
    return wmma_ops.varlen_attention(query, key, value, cu_seq_q, None, max_q, max_k, block_table=table, **options)


def test_pages_of_a_neighbour_are_caught():
    case = VarlenAttentionCase(queries=(5, 9), keys=(20, 20), page_size=32)
    with pytest.raises(Mismatch):
        run(case, implementation={"varlen_attention": _neighbours})


def _operands():
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(shape, generator=generator) for shape in ((6, 4, 8), (5, 16, 2, 8), (5, 16, 2, 6)))
    table = torch.tensor([[4, 2], [0, -1]], dtype=torch.int32)
    return query, key, value, torch.tensor([0, 2, 6]), {"seqused_k": torch.tensor([30, 7]), "block_table": table}


def test_as_of_packed_sequences():
    query, key, value, cu_seq_q, pages = _operands()
    rules = {"enable_gqa": True, "window_size": (-1, 0)}
    results = wmma_ops.varlen_attention(query, key, value, cu_seq_q, None, 4, None, **pages, **rules)
    packed = (torch.cat([x[4], x[2, :14], x[0, :7]]) for x in (key, value))
    ends = torch.tensor([0, 30, 37])
    want = wmma_ops.varlen_attention(query, *packed, cu_seq_q, ends, 4, 30, **rules)
    for x, y in zip(results, want, strict=True):
        assert torch.equal(x, y)


def test_compiled_and_traced():
    query, key, value, cu_seq_q, pages = _operands()

    def call(query, key, value, seqused_k, block_table):
        options = {"seqused_k": seqused_k, "block_table": block_table, "enable_gqa": True}
        return wmma_ops.varlen_attention(query, key, value, cu_seq_q, None, 4, None, **options)[0]

    given = query, key, value, *pages.values()
    compiled = torch.compile(call, fullgraph=True, backend="aot_eager", dynamic=True)
    traced = torch.fx.experimental.proxy_tensor.make_fx(call)(*given)
    for one in (compiled, traced):
        assert torch.equal(one(*given), call(*given))


def test_gradients_are_refused():
    query, key, value, cu_seq_q, pages = _operands()
    key.requires_grad_()
    text = r"varlen_attention: key requires grad, but attention's keys in pages are not differentiable; takes detached"
    with pytest.raises(ValueError, match=text):
        wmma_ops.varlen_attention(query, key, value, cu_seq_q, None, 4, None, enable_gqa=True, **pages)
    with torch.no_grad():
        wmma_ops.varlen_attention(query, key, value, cu_seq_q, None, 4, None, enable_gqa=True, **pages)


GOOD = {
    "query": torch.ones(9, 4, 8),
    "key": torch.ones(6, 16, 2, 8),
    "value": torch.ones(6, 16, 2, 5),
    "cu_seq_q": torch.tensor([0, 2, 9]),
    "cu_seq_k": None,
    "max_q": 7,
    "max_k": None,
    "enable_gqa": True,
    "seqused_k": torch.tensor([33, 16]),
    "block_table": torch.tensor([[5, 0, 2], [1, -1, 9]], dtype=torch.int32),
}
TABLE = GOOD["block_table"]
BAD = (
    ({"block_table": TABLE.long()}, TypeError, "block_table is int64; takes int32"),
    ({"block_table": TABLE[0]}, ValueError, r"block_table has shape \[3\]; takes \[2, pages of a sequence\]"),
    (
        {"block_table": TABLE[:1]},
        ValueError,
        r"block_table has shape \[1, 3\]; takes \[2, pages of a sequence\], as cu",
    ),
    ({"seqused_k": None}, TypeError, "seqused_k is None; takes a tensor beside block_table"),
    ({"seqused_k": torch.tensor([33])}, ValueError, r"seqused_k has shape \[1\]; takes \[2\]"),
    (
        {"key": torch.ones(6, 2, 8)},
        ValueError,
        r"key has shape \[6, 2, 8\]; takes \[pages, page size, heads, head size\]",
    ),
    ({"value": torch.ones(5, 16, 2, 5)}, ValueError, r"value has shape .*; takes the pages of key, 6"),
    ({"value": torch.ones(6, 32, 2, 5)}, ValueError, r"value has shape .*; takes the page size of key, 16"),
    ({"value": torch.ones(6, 16, 4, 5)}, ValueError, "value has shape .*; takes the batch and head dimensions of key"),
    (
        {"key": torch.ones(6, 20, 2, 8), "value": torch.ones(6, 20, 2, 5)},
        ValueError,
        "key has pages of 20 keys; takes a",
    ),
    ({"key": torch.ones(6, 0, 2, 8), "value": torch.ones(6, 0, 2, 5)}, ValueError, "key has pages of 0 keys; takes a"),
    ({"block_table": None}, ValueError, r"key has shape .*; takes as many dimensions as query"),
    ({"max_k": -1}, ValueError, "max_k is -1; takes 0 or more"),
    # What the numbers are is known on the CPU.
    ({"max_k": 20}, ValueError, "max_k is 20; takes 33, the longest sequence, or more"),
    ({"seqused_k": torch.tensor([33, 49])}, ValueError, "seqused_k has 49 at 1; takes 0 to 48, the keys of its pages"),
    ({"seqused_k": torch.tensor([-1, 5])}, ValueError, "seqused_k has -1 at 0; takes 0 to 48"),
    (
        {"seqused_k": torch.tensor([33, 17])},
        ValueError,
        r"block_table has -1 at \[1, 1\]; takes 0 to 5, the pages of key",
    ),
    ({"block_table": TABLE + 1}, ValueError, r"block_table has 6 at \[0, 0\]; takes 0 to 5"),
)


@pytest.mark.parametrize(("change", "kind", "text"), BAD, ids=lambda x: " ".join(x) if isinstance(x, dict) else None)
def test_refused(change, kind, text):
    wmma_ops.varlen_attention(**GOOD)
    with pytest.raises(kind, match=rf"^wmma\.varlen_attention: {text}"):
        wmma_ops.varlen_attention(**GOOD | change)


def test_what_is_missing_without_pages():
    x, ends = torch.ones(4, 2, 8), torch.tensor([0, 4])
    with pytest.raises(TypeError, match="cu_seq_k is None; takes a tensor, or a block_table beside it"):
        wmma_ops.varlen_attention(x, x, x, ends, None, 4, 4)
    with pytest.raises(TypeError, match="max_k is None; takes a whole number, or a block_table beside it"):
        wmma_ops.varlen_attention(x, x, x, ends, ends, 4, None)


@pytest.mark.parametrize(
    ("change", "kind", "text"), BAD[-5:], ids=lambda x: " ".join(x) if isinstance(x, dict) else None
)
def test_refused_by_kernels_where_that_is_asked_for(change, kind, text, monkeypatch):
    with wmma_ops.emulate("gfx942"):
        wmma_ops.varlen_attention(**GOOD | change)  # nothing outside is read
        monkeypatch.setenv("WMMA_OPS_CHECK", "1")
        wmma_ops.varlen_attention(**GOOD)
        with pytest.raises(kind, match=rf"^wmma\.varlen_attention: {text}"):
            wmma_ops.varlen_attention(**GOOD | change)
