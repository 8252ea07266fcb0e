"""Keys and values in pages as numbers of 8 bits on a GPU: every number, every rounding, long sequences, graphs. The value
suite's group "narrow pages" runs there as well."""

import pytest
import torch
from narrow_pages import F8, appended, every_code, operands, tricky

import wmma_ops
from wmma_ops.testing import VarlenAttentionCase, run

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = "cuda"
NARROW = {"stored": "float8_e4m3fn", "heads": 8, "kv_heads": 2}
CASES = (
    VarlenAttentionCase(
        queries=(1, 1, 1), keys=(2000, 33, 512), page_size=16, e=128, dtype="bfloat16", descale="heads", **NARROW
    ),
    VarlenAttentionCase(
        queries=(4, 4), keys=(1500, 70), page_size=64, e=128, dtype="float16", window=(-1, 0), descale="each", **NARROW
    ),
    VarlenAttentionCase(
        queries=(300, 40),
        keys=(700, 40),
        page_size=256,
        e=64,
        dtype="bfloat16",
        window=(-1, 0),
        descale="one",
        **NARROW,
    ),
)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_values(case):
    run(case, backend=DEVICE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_every_number(dtype):
    every_code(dtype, DEVICE)
    appended(tricky(dtype), DEVICE)


def test_a_captured_graph_takes_other_descales():
    t = {name: x.to(DEVICE) for name, x in operands(torch.bfloat16).items()}
    new = t["query"][:, :2].contiguous()
    descales = {name: t[name] for name in ("k_descale", "v_descale")}

    def step():
        pages = t["key"], t["value"]
        wmma_ops.kv_append(new, new, *pages, t["block_table"], t["cu_seq_q"], t["seqused_k"], **descales)
        given = {"cu_seq_k": None, "max_q": 7, "max_k": None, "enable_gqa": True} | t
        return wmma_ops.varlen_attention(**given)[0]

    step()  # warm
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    for factor in (2.0, 0.25):
        for x in descales.values():
            x.mul_(factor)
        graph.replay()
        got = out.clone()
        assert t["key"].dtype == F8
        assert torch.equal(got, step())
