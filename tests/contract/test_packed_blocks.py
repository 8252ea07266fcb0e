"""Block masks of packed sequences: values and gradients on the CPU and on emulated targets against a formula of each
sequence, FlexAttention's, what they leave out, what is refused, and kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from packed_scored import BLOCKS_IN_PAGES, WITH_BLOCKS, PackedCase, check, emulated, ours, results
from planted import Planted, check_is_caught, check_that_each_stands_once, some_in_quick
from scored import NEAR, by_turns
from torch.nn.attention.flex_attention import create_block_mask

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import blocks as block_masks
from wmma_ops.ops import score_functions
from wmma_ops.plan.attention import planner
from wmma_ops.runtime import launching

FOLDER = "wmma/attention"

ALL = (*WITH_BLOCKS, *BLOCKS_IN_PAGES)


@pytest.mark.parametrize("case", ALL, ids=str)
def test_values_and_gradients_on_the_cpu(case):
    check(case, results(case, ours))


@pytest.mark.parametrize(("target", "case"), by_turns(ALL, 0, 5), ids=str)
def test_values_and_gradients_by_kernels(target, case):
    check(case, emulated(case, target))


@pytest.mark.parametrize("target", [None, "gfx942", "gfx1100"])
def test_takes_block_masks_of_flex_attention(target):
    """Of as many batches as there are sequences: a sequence is as one of a batch."""
    q, k, v = (torch.randn(3, 2, n, 16) for n in (70, 100, 100))
    blocks = create_block_mask(
        lambda b, h, i, j: (i - j).abs() <= 5 + 20 * b, 3, None, 70, 100, device="cpu", BLOCK_SIZE=32
    )
    options = {"block_mask": blocks, "mask_mod": NEAR}
    want, want_lse = wmma_ops.attention(q, k, v, **options)
    packed = [x.transpose(1, 2).flatten(0, 1) for x in (q, k, v)]
    ends = torch.arange(4)

    def call():
        return wmma_ops.varlen_attention(*packed, 70 * ends, 100 * ends, 70, 100, **options)

    if target is None:
        out, lse = call()
    else:
        with wmma_ops.emulate(target):
            out, lse = call()
    torch.testing.assert_close(out.unflatten(0, (3, 70)).transpose(1, 2), want)
    torch.testing.assert_close(lse.unflatten(1, (3, 70)).transpose(0, 1), want_lse)


@pytest.mark.parametrize("target", ["gfx90a", "gfx1201"])
def test_what_it_leaves_out_may_be_nan(target):
    """Keys and values of a sequence that no block has are read by nobody."""
    blocks = wmma_ops.Blocks(torch.tensor([[2, 0, 1], [1, 0, 0], [0, 0, 2]], dtype=torch.int8), 32, 64)
    q, k, v = torch.randn(110, 2, 16).half(), torch.randn(340, 2, 16).half(), torch.randn(340, 2, 16).half()
    ends_q, ends_k = torch.tensor([0, 20, 110]), torch.tensor([0, 160, 340])

    def run():
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        out, lse = wmma_ops.varlen_attention(*given, ends_q, ends_k, 90, 180, block_mask=blocks)
        return out.detach(), lse.detach(), *torch.autograd.grad(out.float().sin().sum(), given)

    with wmma_ops.emulate(target):
        want = run()
        for start in (0, 160):
            k[start + 64 : start + 128] = v[start + 64 : start + 128] = float("nan")
        got = run()
    assert all(map(torch.equal, want, got))
    assert all(x.isfinite().all() for x in want if x is not want[1])


@pytest.mark.full
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "gfx1250"])
@pytest.mark.parametrize("case", [WITH_BLOCKS[0], WITH_BLOCKS[1], WITH_BLOCKS[4], *BLOCKS_IN_PAGES], ids=str)
def test_kernels_compile(target, case):
    for problem in launching.problems(lambda: results(case, ours), arch.target(target)):
        for launch in planner.plan(problem, arch.target(target)).launches:
            launch.compile(arch.target(target))


def test_keys_and_values_of_8_bits():
    blocks = wmma_ops.Blocks(torch.tensor([[2, 0, 1], [0, 2, 0]], dtype=torch.int8), 32, 32)
    k, v = (torch.randn(6, 16, 2, 32).to(torch.float8_e4m3fn) for _ in range(2))
    q, table = torch.randn(40, 2, 32).half(), torch.tensor([[5, 0, 3, 1, 2, 4]], dtype=torch.int32)
    given = (q, k, v, torch.tensor([0, 40]), None, 40, None)
    options = {"block_table": table, "seqused_k": torch.tensor([85]), "block_mask": blocks}
    want, _ = wmma_ops.varlen_attention(*given, **options)
    with wmma_ops.emulate("gfx942"):
        got, _ = wmma_ops.varlen_attention(*given, **options)
    torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)


# ---------------------------------------------------------------------------------------------------- where ops live

ENDS = torch.tensor([0, 20, 60])
STATES = torch.tensor([[[[2, 0]], [[1, 1]]], [[[1, 2]], [[0, 1]]]], dtype=torch.int8)  # of two sequences and heads


def _model(q, states):
    blocks = wmma_ops.Blocks(states, 64, 32)
    return wmma_ops.varlen_attention(q, q, q, ENDS, ENDS, 40, 40, mask_mod=NEAR, block_mask=blocks)[0]


def _grad(q):
    q = q.clone().requires_grad_()
    return torch.autograd.grad(_model(q, STATES).sin().sum(), q)[0]


@pytest.mark.full
def test_compiles_and_exports():
    q = torch.randn(60, 2, 8)
    want = _model(q, STATES)
    assert torch.equal(torch.compile(_model, fullgraph=True, backend="aot_eager")(q, STATES), want)
    given = q.clone().requires_grad_()
    torch.compile(_model, fullgraph=True, backend="aot_eager")(given, STATES).sin().sum().backward()
    torch.testing.assert_close(given.grad, _grad(q))

    class Model(torch.nn.Module):
        def forward(self, q, states):
            return _model(q, states)

    assert torch.equal(torch.export.export(Model(), (q, STATES)).module()(q, STATES), want)


@pytest.mark.full
def test_opcheck_and_transforms():
    q = torch.randn(60, 2, 8)
    options = score_functions.codes("varlen_attention", None, NEAR) | {"block_q": 64, "block_k": 32}
    options |= {"max_q": 40, "max_k": 40}
    given = (q, q, q, ENDS, ENDS, *[None] * 11, STATES)
    torch.library.opcheck(torch.ops.wmma.varlen_attention.default, given, options)
    many = torch.stack([STATES, STATES.flip(0)])
    got = torch.vmap(_model)(torch.stack([q, q]), many)
    torch.testing.assert_close(got, torch.stack([_model(q, x) for x in many]))
    torch.testing.assert_close(torch.func.grad(lambda q: _model(q, STATES).sin().sum())(q), _grad(q))


def test_gradients_of_gradients():
    q = torch.randn(60, 2, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda q: _model(q, STATES), q)
    assert torch.autograd.gradgradcheck(lambda q: _model(q, STATES), q, fast_mode=True)


def test_explains():
    q = torch.empty(60, 2, 16).half()
    blocks = wmma_ops.Blocks(STATES, 64, 32)
    text = str(wmma_ops.explain("varlen_attention", q, q, q, ENDS, ENDS, 40, 40, block_mask=blocks, target="sm_90a"))
    assert "a mask of blocks of 64 queries × 32 keys" in text


def _blocks(*shape, sizes=(32, 32), dtype=torch.int8):
    return wmma_ops.Blocks(torch.ones(shape, dtype=dtype), *sizes)


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize(
    ("blocks", "kind", "text"),
    [
        (_blocks(2, 2, sizes=(48, 32)), ValueError, "block_q is 48; takes a multiple of 32"),
        (_blocks(2, 3), ValueError, r"block_mask has shape \[2, 3\]; takes \[..., 2, 2\], blocks of 32 queries and of"),
        (_blocks(3, 2, 2, 2), ValueError, r"block_mask has shape \[3, 2, 2, 2\]"),
        (_blocks(1, 2, 2, 2, 2), ValueError, r"block_mask has shape \[1, 2, 2, 2, 2\]"),
        (_blocks(2, 2, dtype=torch.uint8), TypeError, "block_mask is uint8; takes int8"),
    ],
)
def test_refuses(fake, blocks, kind, text):
    q, ends = torch.randn(60, 2, 8), ENDS
    if fake:
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = FakeTensorMode(allow_non_fake_inputs=False)
        q, ends, states = map(mode.from_tensor, (q, ends, blocks.states))
        blocks = blocks._replace(states=states)
    with pytest.raises(kind, match=rf"wmma.varlen_attention: {text}"):
        wmma_ops.varlen_attention(q, q, q, ends, ends, 40, 40, block_mask=blocks)


# ------------------------------------------------------------------------------------------------ wrong on purpose


@pytest.mark.parametrize("which", ["batch", "head", "query", "key"])
def test_blocks_that_are_wrong_are_caught_on_the_cpu(which, monkeypatch):
    """In the gradients, where all tokens' blocks are looked up at once."""
    right = block_masks.Blocks.at
    case, wrong = WITH_BLOCKS[1], ("batch", "head", "query", "key").index(which)

    def at(self, *places):
        return right(self, *(0 * x if i == wrong else x for i, x in enumerate(places)))

    monkeypatch.setattr(block_masks.Blocks, "at", at)
    with pytest.raises(AssertionError, match=r"^g_"):
        check(case, results(case, ours))


@dataclass(frozen=True)
class Wrong(Planted):
    case: PackedCase = WITH_BLOCKS[1]
    target: str = "gfx942"

    def __str__(self) -> str:
        return f"{self.name}-{self.target}"


LINE, VISITS = "rows/blocks.hpp", "gradients/rows.hpp"
STARTS = "batch * x.batch_stride + head * x.head_stride + offset"
WRONG = (
    Wrong("the_first_sequences_blocks", LINE, STARTS, "head * x.head_stride + offset"),
    Wrong(
        "the_first_sequences_blocks_in_pages",
        LINE,
        STARTS,
        "head * x.head_stride + offset",
        BLOCKS_IN_PAGES[2],
        "gfx1100",
    ),
    Wrong("the_first_heads_blocks_of_each", LINE, STARTS, "batch * x.batch_stride + offset", target="gfx1201"),
    Wrong(
        "pages_of_the_tile_before",
        "tiles/key_value_starts.hpp",
        "!Config::Rules::kBlocks && (!kLines",
        "(!kLines",
        BLOCKS_IN_PAGES[2],
        "gfx1151",
    ),
    Wrong(
        "blocks_among_all_queries",
        LINE,
        "first_row / Rules::kBlockQueries * p.rules.blocks.row_stride",
        "(queries_of(p.sequences, place.batch).start + first_row) / Rules::kBlockQueries * p.rules.blocks.row_stride",
        WITH_BLOCKS[0],
    ),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


IN_QUICK = ("the_first_sequences_blocks",)


@pytest.mark.parametrize("of", some_in_quick(WRONG, IN_QUICK))
def test_is_caught(of, sources):
    check_is_caught(of, sources / FOLDER, lambda: check(of.case, emulated(of.case, of.target)))
