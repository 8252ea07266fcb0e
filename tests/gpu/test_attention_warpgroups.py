"""Attention by sm_90a's warpgroups (kernels/wmma/attention/warpgroup.hpp), each of its configurations forced, and wrong
ones."""

import dataclasses
from dataclasses import dataclass

import packed_scored
import pytest
import scored
import torch

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import planner
from wmma_ops.plan.attention.loops import warpgroup, warpgroup_gradients
from wmma_ops.runtime import driver, launching
from wmma_ops.testing import AttentionCase, Mismatch, VarlenAttentionCase, run
from wmma_ops.testing.operands import operands
from wmma_ops.testing.reference import unit

needs_gpu = pytest.mark.skipif(
    not torch.cuda.is_available() or driver.target_of(0) != "sm_90a", reason="needs a GPU of sm_90a"
)

# One tile of keys, two, several; ragged ones; fewer rows than a warpgroup's; blind rows; scores that grow from tile to
# tile; scales that queries are multiplied by; heads that share keys; results that no copy engine takes.
CASES = [
    AttentionCase(heads=1, sq=40, skv=5, e=64, dtype="bfloat16"),
    AttentionCase(heads=1, sq=256, skv=128, e=128, dtype="float16"),
    AttentionCase(heads=2, sq=130, skv=129, e=128, dtype="bfloat16", scale=2.0),
    AttentionCase(batch=3, heads=5, sq=300, skv=633, e=64, dtype="float16", scale=2.0),
    AttentionCase(batch=2, heads=4, kv_heads=2, sq=150, skv=400, e=72, ev=96, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=4, heads=16, sq=640, skv=640, e=128, dtype="bfloat16", causal="top_left", scale=0.5),
    AttentionCase(heads=1, sq=400, skv=70, e=40, dtype="bfloat16", causal="bottom_right", layout="bshd"),
    AttentionCase(heads=1, sq=140, skv=350, e=64, dtype="float16", mask="blind"),
    AttentionCase(heads=1, sq=140, skv=350, e=128, dtype="bfloat16", mask="float"),
    AttentionCase(heads=2, sq=200, skv=140, e=64, dtype="float16", mask="plane", scale=-0.3),
    AttentionCase(heads=2, sq=200, skv=340, e=256, ev=200, dtype="bfloat16", scale=0.0),
    AttentionCase(heads=2, sq=200, skv=340, e=192, ev=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=2, sq=200, skv=340, e=64, ev=136, dtype="float16"),
    AttentionCase(heads=1, sq=100, skv=3000, e=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=1, skv=1000, e=128, dtype="bfloat16"),
    AttentionCase(batch=2, heads=14, kv_heads=2, sq=25, skv=700, e=64, dtype="float16", causal="bottom_right"),
    AttentionCase(batch=1, heads=6, kv_heads=2, sq=50, skv=200, e=80, dtype="bfloat16", mask="plane", layout="bshd"),
    # More tiles of rows than units.
    AttentionCase(batch=3, heads=60, kv_heads=30, sq=190, skv=633, e=64, dtype="bfloat16"),
]
# Windows that begin in a tile, end in it, leave tiles out or rows without keys; caps; sinks of heads that are packed and
# of split keys; slopes.
RULED = [
    AttentionCase(heads=2, sq=300, skv=633, e=64, dtype="float16", window=(100, 50)),
    AttentionCase(heads=2, sq=700, skv=700, e=128, dtype="bfloat16", window=(130, 0), sinks="heads"),
    AttentionCase(heads=1, sq=500, skv=200, e=128, dtype="float16", window=(40, -1), causal="bottom_right"),
    AttentionCase(heads=1, sq=90, skv=900, e=256, dtype="bfloat16", window=(300, 7), softcap=5.0),
    AttentionCase(batch=2, heads=3, sq=140, skv=350, e=64, dtype="bfloat16", softcap=3.0, scale=-0.5, slopes="each"),
    AttentionCase(heads=2, sq=200, skv=340, e=96, dtype="float16", slopes="heads", causal="bottom_right"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=3, skv=1000, e=128, dtype="bfloat16", sinks="own", window=(400, 0)),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=30, skv=700, e=64, dtype="float16", sinks="each", slopes="own"),
    AttentionCase(heads=2, sq=200, skv=340, e=64, dtype="bfloat16", mask="plane", window=(90, 90), softcap=2.0),
    # Rows that see no key of the tiles that come first; scores that are far apart; a cap that is no bound.
    AttentionCase(heads=1, sq=256, skv=512, e=64, dtype="bfloat16", causal="top_left", softcap=50.0, scale=2.0),
    AttentionCase(heads=2, sq=200, skv=900, e=128, dtype="bfloat16", softcap=45.0, scale=3.0),
    AttentionCase(heads=2, sq=210, skv=900, e=128, dtype="bfloat16", softcap=90.0, scale=5.0),
    AttentionCase(heads=1, sq=200, skv=900, e=64, dtype="float16", softcap=20.0, window=(200, 100), causal="top_left"),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=2, skv=3000, e=128, dtype="bfloat16", softcap=20.0),
]
# Dropout, of heads that are packed and of keys that are split too.
DROPPED = [
    AttentionCase(heads=2, sq=300, skv=350, e=64, dtype="bfloat16", causal="bottom_right", dropout=0.3),
    AttentionCase(batch=2, heads=3, sq=140, skv=350, e=128, dtype="float16", dropout=0.5, sinks="heads", softcap=5.0),
    AttentionCase(batch=2, heads=8, kv_heads=2, sq=3, skv=1000, e=128, dtype="bfloat16", dropout=0.2),
    VarlenAttentionCase(queries=(300, 1, 0, 200), keys=(300, 400, 9, 633), e=64, dtype="float16", dropout=0.4),
]


def _has_whole_tiles(case) -> bool:
    """Of 16 bits, and in the blocks of its mask."""
    narrow = isinstance(case, packed_scored.PackedCase) and case.narrow
    shapes = (warpgroup._widened_shapes if narrow else warpgroup._shapes)(max(case.e, case.ev))
    rows, keys = case.blocks or (0, 0)
    divided = any(rows % (64 * groups) == keys % of == 0 for groups, of in shapes)
    return case.dtype in ("float16", "bfloat16") and max(case.e, case.ev) <= 256 and divided


# Functions of scores and masks, and block masks: tiles of keys that are not there, beside those of the same block.
MODIFIED = [case for case in (*scored.WITH_FUNCTIONS, *scored.WITH_BLOCKS, *scored.FOUND) if _has_whole_tiles(case)]
BLOCKS = scored.WITH_BLOCKS[1]
OF_SEQUENCES = [case for case in packed_scored.ALL if _has_whole_tiles(case)]
PACKED_BLOCKS = packed_scored.WITH_BLOCKS[1]
NARROW_SCORED = next(case for case in packed_scored.ALL if case.narrow)
# Tiles that end with their sequence or go on into the next, sequences without queries or keys, keys that are not there
# yet; heads that share keys, packed; keys that are split; bounds from the last key of each.
SEQUENCES = [
    VarlenAttentionCase(queries=(300, 1, 0, 200, 64), keys=(300, 400, 9, 633, 0), e=64, dtype="float16"),
    VarlenAttentionCase(queries=(300, 130, 700), keys=(300, 400, 700), e=64, dtype="bfloat16", window=(-1, 0), beyond=50),
    VarlenAttentionCase(
        queries=(640, 128, 500), keys=(640, 200, 555), heads=4, kv_heads=2, e=128, dtype="bfloat16", window=(-1, 0)
    ),
    VarlenAttentionCase(queries=(129, 400), keys=(700, 100), e=128, dtype="float16", number="int64", scale=-0.3),
    VarlenAttentionCase(
        queries=(1, 3, 1, 2), keys=(900, 300, 5, 1000), used=(700, 0, 5, 999), heads=8, kv_heads=2, e=128,
        dtype="bfloat16", sinks="heads", window=(-1, 0),
    ),
    VarlenAttentionCase(
        queries=(200, 333), keys=(350, 333), e=96, ev=72, dtype="bfloat16", window=(130, 20), softcap=3.0, layout="htd"
    ),
    VarlenAttentionCase(queries=(90, 200), keys=(900, 200), e=64, dtype="float16", slopes="own", window=(-1, 0)),
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=256, ev=200, dtype="bfloat16"),
    VarlenAttentionCase(queries=(150, 80) * 9, keys=(200, 90) * 9, e=64, dtype="bfloat16", softcap=5.0, beyond=9),
]  # fmt: skip
# Tiles of many pages, of one, and of a part of one; keys that are split, in pages; pages with a stride of their own.
PAGES = [
    VarlenAttentionCase(
        queries=(1, 3, 1, 2), keys=(900, 300, 5, 1000), used=(700, 0, 5, 999), heads=8, kv_heads=2, e=128,
        dtype="bfloat16", sinks="heads", window=(-1, 0), page_size=64,
    ),
    VarlenAttentionCase(queries=(300, 9, 200), keys=(300, 0, 633), e=64, dtype="float16", page_size=16, beyond=20),
    VarlenAttentionCase(
        queries=(200, 333), keys=(350, 333), heads=4, kv_heads=2, e=96, ev=72, dtype="bfloat16", window=(130, 20),
        softcap=3.0, layout="htd", page_size=48,
    ),
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=256, ev=200, dtype="bfloat16", page_size=256),
    VarlenAttentionCase(queries=(150, 80) * 9, keys=(200, 90) * 9, e=64, dtype="float16", window=(-1, 0), page_size=128),
    # Tiles of 80 and 96 keys, with an odd number of pages, or of parts of some.
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=256, dtype="bfloat16", window=(-1, 0), page_size=32),
    VarlenAttentionCase(queries=(200, 70), keys=(340, 170), e=192, dtype="bfloat16", window=(-1, 0), page_size=32),
]  # fmt: skip
# The same with keys and values of 8 bits, which are widened: heads whose columns are a half of a box, one and a half, two.
NARROW_PAGES = [
    VarlenAttentionCase(
        queries=(1, 3, 1, 2), keys=(900, 300, 5, 1000), used=(700, 0, 5, 999), heads=8, kv_heads=2, e=128,
        dtype="bfloat16", sinks="heads", window=(-1, 0), page_size=64, stored="float8_e4m3fn", descale="heads",
    ),
    VarlenAttentionCase(
        queries=(300, 9, 200), keys=(300, 0, 633), e=64, dtype="float16", page_size=16, beyond=20,
        stored="float8_e4m3fn", descale="one",
    ),
    VarlenAttentionCase(
        queries=(200, 333), keys=(350, 333), heads=4, kv_heads=2, e=96, ev=64, dtype="bfloat16", window=(130, 20),
        softcap=3.0, layout="htd", page_size=48, stored="float8_e4m3fn", descale="each",
    ),
    VarlenAttentionCase(
        queries=(200, 70), keys=(340, 170), e=256, ev=192, dtype="bfloat16", page_size=256, stored="float8_e4m3fn",
        descale="heads",
    ),
    VarlenAttentionCase(
        queries=(150, 80) * 9, keys=(200, 90) * 9, e=128, dtype="float16", window=(-1, 0), page_size=128, scale=-0.3,
        stored="float8_e4m3fn", descale="heads",
    ),
    VarlenAttentionCase(
        queries=(200, 70), keys=(340, 170), e=192, dtype="bfloat16", window=(-1, 0), page_size=32,
        stored="float8_e4m3fn",
    ),
    VarlenAttentionCase(
        queries=(200, 3), keys=(340, 700), e=128, dtype="bfloat16", page_size=64, stored="float8_e4m3fn", descale="each",
        score_mod="suite_bias", mask_mod="suite_mask",
    ),
]  # fmt: skip
# The rows of the second one are there when those of the first one are.
LATE = VarlenAttentionCase(queries=(40, 30), keys=(2000, 10), heads=72, e=64, dtype="float16")
CAUSAL = AttentionCase(batch=2, heads=40, sq=300, skv=350, e=64, dtype="float16", causal="bottom_right", scale=1.0)
LAST = AttentionCase(heads=135, sq=128, skv=3000, e=64, dtype="bfloat16", softcap=9.0)  # by three more than units
SUNK = AttentionCase(heads=8, kv_heads=2, sq=3, skv=3000, e=128, dtype="bfloat16", sinks="heads", window=(1100, 0))
PASSED = AttentionCase(batch=2, heads=40, sq=576, skv=600, e=64, dtype="float16", causal="bottom_right")  # by three
CAPPED = AttentionCase(heads=2, sq=256, skv=512, e=64, dtype="bfloat16", causal="top_left", softcap=5.0)


@pytest.fixture
def forced(monkeypatch):
    """Has the candidate of a number planned, or the last that there is; returns those planned."""
    planned, number = [], 0

    def plan(problem, target):
        found = list(warpgroup.candidates(problem, target))
        found += [dataclasses.replace(x, query_stages=1) for x in found if x.query_stages > 1]
        alike = not (problem.causal or problem.windowed or problem.sequences or problem.block_q)
        for x in found[:1] if problem.skv > 2 * found[0].keys else ():
            if alike and x.packed == 1:
                found.append(dataclasses.replace(x, splits=1, last_splits=3))
            found.append(dataclasses.replace(x, splits=3, last_splits=1, deals=False))
        if not found:
            return None
        planned.append(found[min(number, len(found) - 1)])
        return warpgroup.plan_of(problem, planned[-1], target, "forced")

    def force(chosen: int) -> list:
        nonlocal number
        number = chosen
        return planned

    monkeypatch.setattr(planner.warpgroup, "plan", plan)
    torch.ops.wmma._forget_plans()
    yield force
    torch.ops.wmma._forget_plans()


@needs_gpu
@pytest.mark.parametrize("number", range(7))
def test_values(number, forced):
    planned = forced(number)
    for case in CASES + RULED + DROPPED + SEQUENCES + PAGES:
        run(case, "cuda")
    assert len(planned) == len(CASES + RULED + DROPPED + SEQUENCES + PAGES)


@needs_gpu
@pytest.mark.parametrize("number", range(5))
def test_narrow_pages(number, forced):
    planned = forced(number)
    for case in NARROW_PAGES:
        run(case, "cuda")
    assert len(planned) == len(NARROW_PAGES)
    assert all(config.narrow_stages > 0 for config in planned)


@needs_gpu
@pytest.mark.parametrize("number", range(7))
def test_values_with_functions_and_blocks(number, forced):
    planned = forced(number)
    for case in MODIFIED:
        scored.check(case, scored.results(case, scored.ours, device="cuda"))
    for case in OF_SEQUENCES:
        packed_scored.check(case, packed_scored.results(case, packed_scored.ours, device="cuda"))
    assert len(planned) == len(MODIFIED) + len(OF_SEQUENCES)


@needs_gpu
@pytest.mark.parametrize("clears", [True, False])
def test_a_neighbour_that_is_no_number_beside_blocks(clears, sources):
    """Of a sequence's last tile of keys some are another's."""
    if not clears:
        call = "clear_values(x, start, work.own.skv - key);\n          give_back();\n          for"
        text = (path := sources / KERNEL).read_text()
        assert text.count(call) == 1
        path.write_text(text.replace(call, "give_back();\n          for"))
        torch.ops.wmma._forget_plans()
    q, k, v = (torch.randn(400, 4, 64, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    states = torch.tensor([[2, 0], [1, 2]], dtype=torch.int8, device="cuda")
    ends = _numbers([0, 200, 400])

    def first():
        blocks = wmma_ops.Blocks(states, 128, 128)
        return wmma_ops.varlen_attention(q, k, v, ends, ends, 200, 200, block_mask=blocks)[0][:200].clone()

    want = first()
    v[200:] = torch.nan
    assert torch.equal(first(), want) == clears


def _numbers(x: list[int]) -> torch.Tensor:
    return torch.tensor(x, dtype=torch.int32, device="cuda")


@needs_gpu
def test_sequences_in_a_graph():
    """Where they start may change from one replay to the next."""
    q, k, v = (torch.randn(900, 8, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    ends = _numbers([0, 300, 700, 900])
    call = lambda ends: wmma_ops.varlen_attention(q, k, v, ends, ends, 500, 500, window_size=(-1, 0))  # noqa: E731
    call(ends)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = call(ends)
    for others in ([0, 300, 700, 900], [0, 10, 500, 870], [0, 0, 450, 900]):
        ends.copy_(_numbers(others))
        for x in again:
            x.fill_(torch.nan)
        graph.replay()
        assert all(map(torch.equal, again, call(_numbers(others))))


@needs_gpu
def test_wrong_numbers_reach_nothing_outside():
    """Beside the tensors all is NaN, and what is not the results' stays as it is."""
    memory = torch.full((3, 1000, 4, 64), torch.nan, dtype=torch.bfloat16, device="cuda")
    q, k, v = memory[:, 300:700].copy_(torch.randn(3, 400, 4, 64))
    for ends_q, ends_k in (
        ([0, 300, 70, 290], [0, 350, 20, 41]),
        ([-90, 50, 2**31 - 1, 12], [7, -(2**31), 500, 9]),
        ([0, 400, 800, 1200], [300, 600, 900, 400]),
    ):
        for window in ((-1, -1), (-1, 0), (60, 9)):
            out, lse = wmma_ops.varlen_attention(
                q, k, v, _numbers(ends_q), _numbers(ends_k), 350, 390, window_size=window
            )
            assert out.isfinite().all()
            assert not lse.isnan().any()


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_the_same_bits_and_a_graph(causal):
    q, k, v = (torch.randn(2, 24, 900, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
    out, lse = wmma_ops.attention(q, k, v, is_causal=causal)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        again = wmma_ops.attention(q, k, v, is_causal=causal)
    for _ in range(10):
        for x in again:
            x.fill_(torch.nan)
        graph.replay()
        assert torch.equal(again[0], out)
        assert torch.equal(again[1], lse)


# As CASES, but for masks, which waves by themselves take.
GRADIENTS = [
    AttentionCase(heads=2, sq=128, skv=64, e=128, dtype="bfloat16"),
    AttentionCase(batch=2, heads=3, sq=300, skv=500, e=128, dtype="float16", causal="top_left"),
    AttentionCase(batch=2, heads=4, kv_heads=2, sq=257, skv=129, e=64, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=8, kv_heads=2, sq=70, skv=700, e=96, dtype="float16", causal="bottom_right", scale=-0.2),
    AttentionCase(heads=2, sq=200, skv=333, e=72, ev=104, dtype="bfloat16", layout="bshd"),
    AttentionCase(batch=40, heads=4, sq=130, skv=190, e=40, dtype="float16", scale=1.0),
    AttentionCase(heads=2, sq=700, skv=300, e=128, dtype="bfloat16", causal="bottom_right"),
    AttentionCase(heads=1, sq=90, skv=17500, e=64, dtype="bfloat16"),
]


def gradients(case, q, k, v, g_out):
    given = [x.detach().requires_grad_() for x in (q, k, v)]
    grouped = case.kv_heads is not None
    out, _ = wmma_ops.attention(*given, is_causal=case.causal or False, scale=case.scale, enable_gqa=grouped)
    return torch.autograd.grad(out, given, g_out)


def check_gradients(case):
    """Against those of float64 on the CPU, by the norm: roundings of weights and of results add up like noise."""
    t = operands(case)
    q, k, v = (t[name] for name in "qkv")
    g_out = torch.randn(*q.shape[:-1], v.shape[-1], generator=torch.Generator().manual_seed(3)).to(q.dtype)
    want = gradients(case, *(x.double() for x in (q, k, v, g_out)))
    on_device = [x.cuda() for x in (q, k, v, g_out)]
    found = gradients(case, *on_device)
    for name, x, exact in zip("qkv", found, want, strict=True):
        error = ((x.cpu().double() - exact).norm() / exact.norm()).item()
        if not error <= 1.5 * unit(x.dtype):
            raise Mismatch(f"{case!r}\n  g_{name} is off by {error:.2g} of its norm")
    assert all(map(torch.equal, found, gradients(case, *on_device)))


@needs_gpu
@pytest.mark.parametrize("number", range(6))
@pytest.mark.parametrize("case", GRADIENTS, ids=str)
def test_gradients(case, number, monkeypatch):
    planned = []

    def plan(problem, target):
        found = warpgroup_gradients.candidates(problem, target)
        planned.append(found[min(number, len(found) - 1)])
        return warpgroup_gradients.plan_of(problem, planned[-1], target, "forced")

    monkeypatch.setattr(planner.warpgroup_gradients, "plan", plan)
    torch.ops.wmma._forget_plans()
    check_gradients(case)
    torch.ops.wmma._forget_plans()
    assert len(planned) == 1


@needs_gpu
@pytest.mark.parametrize("causal", [False, True])
def test_a_graph_of_gradients(causal):
    q, k, v, g_out = (torch.randn(2, 12, 900, 128, dtype=torch.bfloat16, device="cuda") for _ in range(4))
    out, lse = wmma_ops.attention(q, k, v, is_causal=causal)

    def call():
        return torch.ops.wmma._attention_backward(g_out, q, k, v, out, lse, is_causal=int(causal))

    want = call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        found = call()
    for _ in range(10):
        for x in found:
            x.fill_(torch.nan)
        graph.replay()
        assert all(map(torch.equal, found, want))


def test_whose_gradients_are_planned():
    target = arch.target("sm_90a")
    for dtype, e, sq, takes in (
        (torch.bfloat16, 128, 4096, True),
        (torch.float16, 80, 300, True),
        (torch.bfloat16, 160, 4096, False),
        (torch.bfloat16, 128, 40, False),
        (torch.float32, 64, 4096, False),
    ):
        q = torch.empty(2, 8, sq, e, dtype=dtype).requires_grad_()

        def call(q=q):
            out, _ = wmma_ops.attention(q, q, q)
            return torch.autograd.grad(out, q, torch.empty_like(out))

        (problem,) = (x for x in launching.problems(call, target) if x.backward)
        config = planner.plan(problem, target).config
        assert isinstance(config, warpgroup_gradients.WarpgroupGradientsConfig) == takes


def test_who_is_planned():
    target = arch.target("sm_90a")
    for dtype, e, sq, takes in (
        (torch.bfloat16, 128, 4096, True),
        (torch.float16, 80, 300, True),
        (torch.float32, 64, 4096, False),
        (torch.bfloat16, 320, 4096, False),
        (torch.bfloat16, 36, 4096, False),
    ):
        q = torch.empty(2, 8, sq, e, dtype=dtype)
        (problem,) = launching.problems(lambda q=q: wmma_ops.attention(q, q, q), target)
        config = planner.plan(problem, target).config
        assert isinstance(config, warpgroup.WarpgroupConfig) == takes, config


@pytest.mark.parametrize(
    ("causal", "heads", "cap", "whole"),
    [(False, 48, 20.0, 13 * 132), (False, 24, 20.0, 864), (True, 48, 20.0, 48 * 36), (False, 48, 0.0, 48 * 36)],
)
def test_whose_last_tiles_are_split(causal, heads, cap, whole):
    """36 tiles a head: where they go round 132 units 13 times and 12 are left, and not where over half are, nor where
    units do little but multiply."""
    target = arch.target("sm_90a")
    q = torch.empty(1, heads, 4608, 128, dtype=torch.bfloat16)
    (problem,) = launching.problems(lambda: wmma_ops.attention(q, q, q, is_causal=causal, softcap=cap), target)
    plan = planner.plan(problem, target)
    assert plan.numbers.whole == whole
    assert [x.kernel for x in plan.launches] == ["attention", "attention_combine"][: 1 + (plan.config.last_splits > 1)]


KERNEL, TILES = "wmma/attention/warpgroup.hpp", "wmma/attention/warpgroup_tiles.hpp"
LAST_TILES, NARROW_TILES = "wmma/attention/last_tiles.hpp", "wmma/attention/narrow_tiles.hpp"
SOFTMAX, RULES = "wmma/attention/softmax.hpp", "wmma/attention/rules.hpp"
GRADIENT_KERNEL = "wmma/attention/warpgroup_gradients.hpp"


@dataclass(frozen=True)
class Wrong:
    name: str
    old: str
    new: str
    file: str = KERNEL
    case: AttentionCase | VarlenAttentionCase | scored.Case | packed_scored.PackedCase = CAUSAL

    def __str__(self) -> str:
        return self.name


# None that may hang: what the queues count stays whole.
WRONG = [
    Wrong("results_do_not_follow", "x.rows.rescale(factors);", "x.rows.rescale({1.0f, 1.0f});"),
    Wrong("the_first_head_for_all", "x.head_stride == 0 ? 0 : static_cast<int32_t>(head)", "0", TILES),
    Wrong(
        "values_of_the_tile_before",
        "p.v_map, work, from);",
        "p.v_map, work, from - kKeys);",
        TILES,
    ),
    Wrong(
        "a_warpgroup_passes_a_tile_too_many", "key >= span.end && key", "key >= span.end - kKeys && key", case=PASSED
    ),
    Wrong("rows_without_a_key_so_far_are_known", "(arch::ballot(!known) == 0)", "(true)", SOFTMAX, CAPPED),
    Wrong("one_inverse_for_another", "b = ab * of_a;", "b = ab * of_c;", RULES, CAPPED),
    Wrong("values_in_the_wrong_order", "step<false>(values, step, kStep)", "step<false>(values, step ^ 1, kStep)"),
    Wrong(
        "bounded_too_late",
        "seen = Sight::keys_end(p, place.query(first), x.begin, x.end);",
        "seen = Sight::keys_end(p, place.query(first) + kKeys, x.begin, x.end);",
        TILES,
    ),
    Wrong("queries_of_the_first_sequence", "place.head, work.query(row));", "place.head, row);", TILES, SEQUENCES[1]),
    Wrong("keys_of_the_first_sequence", "key_head, work.key(row));", "key_head, row);", TILES, SEQUENCES[1]),
    Wrong(
        "results_of_the_first_sequence",
        "place.head, work.query(first_row), box);",
        "place.head, first_row, box);",
        case=LATE,
    ),
    Wrong("values_that_are_no_numbers", "if (there >= kKeys) return;", "return;", case=SEQUENCES[8]),
    Wrong("one_page_for_a_tile", "row + line + i * kLines", "row", TILES, PAGES[1]),
    Wrong(
        "pages_of_the_first_sequence",
        "pages_of(p, static_cast<int>(work.place.batch))",
        "pages_of(p, 0)",
        TILES,
        PAGES[4],
    ),
    Wrong(
        "the_first_rows_of_a_page", "uint32_t>(row + line) % kPageSize", "uint32_t>(line) % kPageSize", TILES, PAGES[3]
    ),
    Wrong("the_first_half_of_a_box_twice", "* 16 ^ half * 64", "* 16", NARROW_TILES, NARROW_PAGES[4]),
    Wrong(
        "widened_in_the_wrong_order",
        "(share.chunk * 2 ^ share.line) * 16",
        "(share.chunk * 2 ^ share.line ^ 2) * 16",
        NARROW_TILES,
        NARROW_PAGES[1],
    ),
    Wrong("narrow_values_that_are_no_numbers", "if (there >= kKeys) return;", "return;", NARROW_TILES, NARROW_SCORED),
    Wrong(
        "one_line_too_many_is_cleared", "share.line < there", "share.line + 1 < there", NARROW_TILES, NARROW_PAGES[1]
    ),
    Wrong("keys_without_their_scale", "multiply_by_key_descale(own, p, place);", "", TILES, NARROW_PAGES[2]),
    Wrong(
        "values_without_their_scale",
        "if constexpr (Rules::kScaled || kWidens) x.rows",
        "if constexpr (Rules::kScaled) x.rows",
        case=NARROW_PAGES[1],
    ),
    Wrong("half_a_tile_too_few", "span.end - key <= kKeys / 2;", "span.end - key <= kKeys / 2 + 32;"),
    Wrong("weights_of_keys_not_looked_at", "x.weights[i] = 0;", "x.weights[i] = 0x3c003c00u;"),
    Wrong("rows_of_a_warpgroup_passed", "first >= place.rows)", "first + 16 >= place.rows)", case=SEQUENCES[1]),
    Wrong("a_box_with_rows_of_a_neighbour", "first_row + 16 <= place.rows;", "first_row < place.rows;", case=LATE),
    Wrong(
        "nothing_is_dropped", "if constexpr (Rules::kDrops) mask.template", "if (false) mask.template", case=DROPPED[0]
    ),
    Wrong("what_is_kept_is_not_multiplied", "x.rows.multiply(static_cast<float>(p.rules.kept))", "", case=DROPPED[0]),
    Wrong(
        "functions_of_scores_in_another_unit",
        "SoftmaxOf<Config, float>> scale",
        "MaskedSoftmax<float, typename Config::Mask>> scale",
        case=scored.WITH_FUNCTIONS[0],
    ),
    Wrong(
        "one_part_for_all",
        "p.whole + at / p.splits, at % p.splits, true",
        "p.whole + at / p.splits, 0, true",
        LAST_TILES,
        LAST,
    ),
    Wrong("parts_of_the_first_tile", "(part.tile - p.whole)) * kTileRows", "0) * kTileRows", LAST_TILES, LAST),
    Wrong(
        "one_tile_for_another", "tile = p.whole + static_cast", "tile = static_cast", "wmma/attention/combine.hpp", LAST
    ),
    Wrong("sinks_in_every_part", "if (work.part.split == 0) x.rows", "if (true) x.rows", case=SUNK),
    Wrong("masked_blocks_are_whole", "(Rules::kHides && !mask.whole)", "false", case=BLOCKS),
    Wrong("keys_of_the_block_before", "copy_keys(next);", "copy_keys(at);", TILES, BLOCKS),
    Wrong(
        "values_of_the_next_block",
        "copy_values(at);\n          at = next;",
        "copy_values(next);\n          at = next;",
        TILES,
        BLOCKS,
    ),
    Wrong(
        "blocks_of_the_first_sequence",
        "batch * x.batch_stride + head * x.head_stride + offset",
        "head * x.head_stride + offset",
        "wmma/attention/blocks.hpp",
        PACKED_BLOCKS,
    ),
]


# None that changes what a queue, a barrier or a turn counts.
WRONG_GRADIENTS = [
    Wrong(name, old, new, GRADIENT_KERNEL)
    for name, old, new in (
        ("lse_in_the_place_of_delta", "= statistics[1][i];", "= statistics[0][i];"),
        ("no_delta", "weights[f] * (slopes[f] - tile", "weights[f] * (slopes[f] - 0.5f * tile"),
        ("the_first_head_of_the_group", "p.q_map, heads.batch, head, row", "p.q_map, heads.batch, heads.first, row"),
        ("never_bounded", "tile.bounded ? weigh<true>", "false ? weigh<true>"),
        (
            "across_in_the_wrong_order",
            "Columns::template step<false>(columns, step, kStep), true",
            "Columns::template step<false>(columns, step ^ 1, kStep), true",
        ),
        ("slopes_of_one_warpgroup_twice", "step / kSteps * kRowBytes", "0 * step * kRowBytes"),
        ("slopes_of_the_tile_before", "kSlopeStart + odd * SlopeTile", "kSlopeStart + (odd ^ 1) * SlopeTile"),
        ("the_last_one_forgets_the_others", "sums[0][i + j] += before[j];", "sums[0][i + j] += 0.0f * before[j];"),
        ("the_first_one_adds_to_what_was_there", "if (given.before == 0) {", "if (given.before == 0 && false) {"),
        ("the_second_one_writes_over_the_first", "if (given.before == 0) {", "if (given.before <= 1) {"),
    )
]


def test_what_is_replaced_stands_there_once(sources):
    found = {of.name: (sources / of.file).read_text().count(of.old) for of in WRONG + WRONG_GRADIENTS}
    assert set(found.values()) == {1}, f"the headers have changed; write these anew: {found}"


def _several_times(case, times: int = 5):
    for _ in range(times):
        if isinstance(case, packed_scored.PackedCase):
            packed_scored.check(case, packed_scored.results(case, packed_scored.ours, device="cuda"))
        elif isinstance(case, scored.Case):
            scored.check(case, scored.results(case, scored.ours, device="cuda"))
        else:
            run(case, "cuda")


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    path, case = sources / of.file, of.case
    torch.ops.wmma._forget_plans()
    _several_times(case, 1)  # right as it is
    path.write_text(path.read_text().replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises(AssertionError):
        _several_times(case)
    torch.ops.wmma._forget_plans()


@needs_gpu
@pytest.mark.parametrize("of", WRONG_GRADIENTS, ids=str)
def test_wrong_gradients_are_caught(of, sources):
    case = AttentionCase(batch=2, heads=4, kv_heads=2, sq=300, skv=450, e=64, dtype="float16", causal="bottom_right")
    path = sources / of.file
    torch.ops.wmma._forget_plans()
    check_gradients(case)  # right as it is
    path.write_text(path.read_text().replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises((Mismatch, AssertionError)):  # the values, or the bits of a second time
        check_gradients(case)
    torch.ops.wmma._forget_plans()
