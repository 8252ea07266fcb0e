"""New keys and values into pages on a GPU: pages of any size, strides and types beside float64, graphs, and what has no
place."""

import pytest
import torch
from new_keys import CASES, WRONG_NUMBERS, Case
from on_gpu import close

import wmma_ops
from wmma_ops.testing.memory import fenced

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
DEVICE = "cuda"
F16, BF16, F32, F64 = torch.float16, torch.bfloat16, torch.float32, torch.float64


def _served(dtype, page_size, angles=0, **options) -> Case:
    """Prompts, tokens and sequences without new ones, in pages of any order."""
    lengths, used = (150, 1, 0, 33, 1), (150, 97, 64, 161, 256)
    columns = -(-max(used) // page_size) + 1
    pages = columns * len(used)
    order = torch.randperm(pages, generator=torch.Generator().manual_seed(1)).view(len(used), columns)
    where = {"lengths": lengths, "used": used, "pages": pages, "table": tuple(map(tuple, order.tolist()))}
    return Case(dtype, **{"e": 64, "ev": 64, "page_size": page_size, "angles": angles} | where | options)


SERVED = (
    *(_served(BF16, page_size, 32) for page_size in (1, 16, 48, 64, 256)),
    _served(BF16, 16, e=128, ev=128, heads=8, angles=64, layout="halves"),
    _served(F16, 128, e=128, ev=128, heads=8, angles=64, angle=F16, layout="heads first"),
    _served(F16, 64, e=192, ev=128, heads=1, angles=32, interleaved=True, number=torch.int64),
    _served(BF16, 7, e=20, ev=4, angles=10, layout="sliced"),
    _served(F32, 16, e=80, ev=80, angles=20, layout="halves"),
    _served(F64, 32, angles=32, angle=F64, interleaved=True, layout="offset"),
    _served(BF16, 16, 32, layout="strided", beyond=9),
    _served(F16, 16, heads=3, e=1, ev=1, layout="column"),
)


def _on_device(t: dict) -> dict:
    """What shares memory shares it there too."""
    stores, here = {}, {}
    for name, x in t.items():
        first, there = stores.setdefault(x.untyped_storage().data_ptr(), (x, fenced(x, DEVICE)))
        offset = there.storage_offset() + x.storage_offset() - first.storage_offset()
        here[name] = there.as_strided(x.shape, x.stride(), offset)
    return here


def _store(x: torch.Tensor) -> torch.Tensor:
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(x.untyped_storage())


def _around(x: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
    """What lies in a tensor's memory and is part of none of these."""
    around = _store(x).clone()
    for one in (x, *others):
        if one.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
            around.as_strided(one.shape, one.stride(), one.storage_offset()).zero_()
    return around.nan_to_num(7.0)


def _name(case: Case) -> str:
    return f"{case.dtype}, {case.heads} of {case.e} and {case.ev}, by {case.page_size}, {case.angles} angles, {case.layout}"


@pytest.mark.parametrize("case", CASES + SERVED, ids=_name)
def test_values(case):
    t = case.operands()
    here = _on_device(t)
    pages = here["key_pages"], here["value_pages"]
    before = [_around(x, *pages) for x in pages]
    case.call(here)
    case.compare(here, t, DEVICE)
    assert all(torch.equal(_around(x, *pages), was) for x, was in zip(pages, before, strict=True))


@pytest.mark.parametrize("wrong", WRONG_NUMBERS, ids=str)
def test_what_has_no_place_is_not_written(wrong):
    case = Case(F16, e=32, angles=4)
    t = case.operands() | {name: torch.tensor(x, dtype=torch.int32) for name, x in wrong.items()}
    here = _on_device(t)
    case.call(here)
    if "cu_seq" in wrong:  # whose token is whose is then anything
        assert here["key_pages"].isfinite().all()
    else:
        case.compare(here, t, DEVICE)


def test_what_has_no_angles_is_not_written():
    case = SERVED[0]
    t = case.operands()
    t |= {name: t[name][:155].clone() for name in ("cos", "sin")}
    here = _on_device(t)
    case.call(here)
    case.compare(here, t, DEVICE)


def test_a_captured_graph_appends_where_the_numbers_then_say():
    case = SERVED[0]
    t = case.operands()
    here = _on_device(t)
    case.call(here)  # warm
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        case.call(here)
    for lengths, used in (((1, 1, 1, 1, 1), (151, 98, 65, 162, 257)), ((0, 90, 90, 0, 5), (151, 188, 155, 162, 262))):
        t["cu_seq"].copy_(torch.tensor([0, *lengths]).cumsum(0))
        t["seqused_k"].copy_(torch.tensor(used))
        t["block_table"] = t["block_table"].flip(0)
        t["key"] = t["key"].flip(0)
        t |= {name: here[name].to("cpu", copy=True) for name in ("key_pages", "value_pages")}
        for name in ("cu_seq", "seqused_k", "block_table", "key"):
            here[name].copy_(t[name])
        graph.replay()
        case.compare(here, t, DEVICE)


@pytest.mark.parametrize("page_size", [16, 64, 128])
def test_attention_sees_what_was_appended(page_size):
    """A prompt, and then token by token, as all at once."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(150, 4, 64, generator=generator).to(DEVICE, F16) for _ in range(3))
    wide = (x.double().transpose(0, 1) for x in (query, key, value))
    want = torch.nn.functional.scaled_dot_product_attention(*wide, is_causal=True).transpose(0, 1)
    pages = torch.full((2, 12, page_size, 4, 64), torch.nan, dtype=F16, device=DEVICE)
    table = torch.randperm(12, generator=generator)[None].int().to(DEVICE)
    found, start = [], 0
    for end in (140, *range(141, 151)):
        ends, used = (torch.tensor(x, device=DEVICE) for x in ([0, end - start], [end]))
        new = slice(start, end)
        wmma_ops.kv_append(key[new], value[new], *pages, table, ends, used)
        options = {"seqused_k": used, "block_table": table, "window_size": (-1, 0)}
        found.append(wmma_ops.varlen_attention(query[new], *pages, ends, None, end - start, None, **options)[0])
        start = end
    close(torch.cat(found), want, 2e-3)


@pytest.mark.parametrize("pages", [5, (1 << 31) // (16 * 256) + 2])
def test_pages_before_and_past_two_to_the_31(pages):
    """Elements, of bfloat16."""
    if torch.cuda.mem_get_info()[0] < pages * 16 << 10:
        pytest.skip("needs 8 GiB of free GPU memory")
    key_pages, value_pages = (torch.zeros(pages, 16, 1, size, dtype=BF16, device=DEVICE) for size in (256, 8))
    key, value = (torch.randn(20, 1, size, device=DEVICE).to(BF16) for size in (256, 8))
    table = torch.tensor([[pages - 1, pages - 2]], dtype=torch.int32, device=DEVICE)
    ends, used = (torch.tensor(x, device=DEVICE) for x in ([0, 20], [25]))
    wmma_ops.kv_append(key, value, key_pages, value_pages, table, ends, used)
    for new, x in ((key, key_pages), (value, value_pages)):
        rows = x[-2:].flip(0).flatten(0, 1)
        assert torch.equal(rows[5:25], new)
        assert rows[:5].count_nonzero() == rows[25:].count_nonzero() == x[:-2].count_nonzero() == 0
