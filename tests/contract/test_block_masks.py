"""Block masks: those that are given, FlexAttention's, and those that kernels find out from a mask function; that what they
leave out is not read, what is refused, and kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from planted import Planted, check_is_caught, check_that_each_stands_once, some_in_quick
from scored import DOCUMENTS, FOUND, NEAR, WITH_BLOCKS, Case, by_turns, check, emulated, mask_named, ours, results
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.ops import score_functions
from wmma_ops.plan.attention import planner
from wmma_ops.runtime import launching

FOLDER = "wmma/attention"


@pytest.mark.parametrize("case", WITH_BLOCKS, ids=str)
def test_values_and_gradients_on_the_cpu(case):
    check(case, results(case, ours))


@pytest.mark.parametrize(("target", "case"), by_turns(WITH_BLOCKS, 0, 3, quick=6), ids=str)
def test_values_and_gradients_by_kernels(target, case):
    check(case, emulated(case, target))


# -------------------------------------------------------------------------------------- those that a mask function shows


@pytest.mark.parametrize(("target", "case"), by_turns(FOUND, 1, 4, quick=0), ids=str)
def test_kernels_find_what_a_mask_function_shows(target, case):
    check(case, emulated(case, target))


def _plans(call, target):
    return [launching.plan_for(found, arch.target(target)) for found in launching.problems(call, arch.target(target))]


HEADS_APART = mask_named("heads_apart", "(head + key) % 2 == 0", lambda b, h, q, k: (h + k + 0 * q) % 2 == 0)


@pytest.mark.parametrize("target", ["gfx942", "gfx1201", "sm_90a"])
def test_a_mask_function_is_evaluated_where_that_is_little_work(target):
    q = torch.empty(1, 16, 512, 64).half()

    def kernels(q, **options):
        (plan,) = _plans(lambda: wmma_ops.attention(q, q, q, **options), target)
        return [launch.kernel for launch in plan.launches]

    assert kernels(q, mask_mod=NEAR)[0] == "attention_block_states"
    assert "attention_block_states" not in kernels(q, mask_mod=HEADS_APART)  # as much work as the scores themselves
    assert "attention_block_states" not in kernels(q[:, :4], mask_mod=NEAR)
    assert "attention_block_states" not in kernels(q[:, :, :100], mask_mod=NEAR)
    assert "attention_block_states" not in kernels(q)
    states = wmma_ops.Blocks(torch.ones(1, 1, 4, 4, dtype=torch.int8), 128, 128)
    assert "attention_block_states" not in kernels(q, mask_mod=NEAR, block_mask=states)
    text = str(wmma_ops.explain("attention", q, q, q, mask_mod=NEAR, target=target))
    assert f"blocks of 128 queries × {128 if target == 'sm_90a' else 64} keys that the mask function shows" in text
    text = str(wmma_ops.explain("attention", q, q, q, block_mask=states, target=target))
    assert "a mask of blocks of 128 queries × 128 keys" in text


def test_tuning_has_every_configuration_find_them():
    q = torch.empty(1, 16, 512, 64).half()
    (problem,) = launching.problems(lambda: wmma_ops.attention(q, q, q, mask_mod=NEAR), arch.target("gfx942"))
    plans = list(planner.every(problem, arch.target("gfx942"), "asked"))
    assert len(plans) > 2
    assert {plan.launches[0].kernel for plan in plans} == {"attention_block_states"}


# ----------------------------------------------------------------------------------------------- what it leaves out


@pytest.mark.parametrize("target", [None, "gfx90a", "gfx1100"])
def test_what_it_leaves_out_may_be_nan(target):
    """Keys and values that no block has are read by nobody, nor their queries on the way back."""
    states = torch.tensor([[2, 0, 1], [1, 0, 0], [0, 0, 2]], dtype=torch.int8)
    blocks = wmma_ops.Blocks(states, 32, 64)
    q, k, v = (torch.randn(2, 2, n, 16).half() for n in (90, 180, 180))

    def run(q, k, v):
        given = [x.clone().requires_grad_() for x in (q, k, v)]
        out, lse = wmma_ops.attention(*given, block_mask=blocks)
        grads = torch.autograd.grad(out.float().sin().sum(), given)
        return (out.detach(), lse.detach(), *grads)

    def both():
        want = run(q, k, v)
        k[:, :, 64:128] = v[:, :, 64:128] = float("nan")
        return want, run(q, k, v)

    if target is None:  # which multiplies all and hides what is not seen
        assert all(x.isfinite().all() for x in run(q, k, v))
        return
    with wmma_ops.emulate(target):
        want, got = both()
    assert all(torch.equal(x, y) for x, y in zip(want[:2], got[:2], strict=True))
    for x, y in zip(want[2:], got[2:], strict=True):
        assert torch.equal(x, y)


def test_fewer_blocks_are_less_work():
    q = torch.randn(1, 1, 512, 64).half()
    counts = []
    for there in (16, 4):
        states = torch.zeros(16, dtype=torch.int8)
        states[:there] = 2
        with wmma_ops.emulate("gfx942") as emulation:
            wmma_ops.attention(q, q, q, block_mask=wmma_ops.Blocks(states.view(4, 4), 128, 128))
        counts.append(sum(launch.by_class.get("matrix", 0) for launch in emulation.launches))
    assert counts[0] == 4 * counts[1] > 0


# --------------------------------------------------------------------------------------------------- FlexAttention's


def _causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def _near(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx).abs() <= 40 + 0 * b


FLEX = mask_named("flex_near", "abs(query - key) <= 40", _near)


@pytest.mark.parametrize("target", [None, "gfx942", "gfx1100"])
@pytest.mark.parametrize("full", [True, False])
def test_takes_block_masks_of_flex_attention(target, full):
    q, k, v = (torch.randn(2, 3, 200, 16) for _ in range(3))
    blocks = create_block_mask(_near, 2, None, 200, 200, device="cpu", BLOCK_SIZE=(64, 32), separate_full_blocks=full)
    want, lse = flex_attention(q, k, v, block_mask=blocks, return_lse=True)
    if target is None:
        got = wmma_ops.attention(q, k, v, block_mask=blocks)
    else:
        with wmma_ops.emulate(target):
            got = wmma_ops.attention(q, k, v, block_mask=blocks)
    torch.testing.assert_close(got[0], want)
    torch.testing.assert_close(got[1], lse)


def test_a_block_mask_of_flex_attention_without_a_function():
    """Which FlexAttention itself, where it is not compiled, does not look at."""
    q = torch.randn(1, 2, 128, 16)
    counts, indices = torch.tensor([[[1, 2]]]).int(), torch.tensor([[[[0, 1], [1, 0]]]]).int()
    blocks = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=64)
    mask = torch.ones(2, 2, dtype=torch.bool).tril().repeat_interleave(64, 0).repeat_interleave(64, 1)
    torch.testing.assert_close(wmma_ops.attention(q, q, q, block_mask=blocks), wmma_ops.attention(q, q, q, mask=mask))


def test_a_block_mask_of_flex_attention_that_changes():
    """What it is as states is kept, and made anew when its lists are written to."""
    q = torch.randn(1, 2, 128, 16)
    counts, indices = torch.tensor([[[1, 2]]]).int(), torch.tensor([[[[0, 1], [1, 0]]]]).int()
    blocks = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=64)
    before = wmma_ops.attention(q, q, q, block_mask=blocks)[0]
    torch.testing.assert_close(wmma_ops.attention(q, q, q, block_mask=blocks)[0], before)
    blocks.kv_num_blocks[0, 0, 1] = 1
    got = wmma_ops.attention(q, q, q, block_mask=blocks)[0]
    assert torch.equal(got[:, :, :64], before[:, :, :64])
    torch.testing.assert_close(got[:, :, 64:], wmma_ops.attention(q[:, :, 64:], q[:, :, 64:], q[:, :, 64:])[0])


def test_a_block_mask_of_flex_attention_met_in_inference_first():
    q = torch.randn(1, 2, 64, 16, requires_grad=True)
    blocks = create_block_mask(_near, 1, None, 64, 64, device="cpu", BLOCK_SIZE=32)
    with torch.inference_mode():
        want = wmma_ops.attention(q, q, q, block_mask=blocks)[0].clone()
    got = wmma_ops.attention(q, q, q, block_mask=blocks)[0]
    got.sum().backward()
    assert torch.equal(got.detach(), want)


def test_a_function_beside_a_block_mask_of_flex_attention():
    q, ids = torch.randn(1, 2, 96, 16), torch.arange(96)[None] // 20
    blocks = create_block_mask(lambda b, h, q, k: ids[b, q] == ids[b, k], 1, 1, 96, 96, device="cpu", BLOCK_SIZE=32)
    got, _ = wmma_ops.attention(q, q, q, block_mask=blocks, mask_mod=DOCUMENTS, mod_operands=(ids,))
    torch.testing.assert_close(got, flex_attention(q, q, q, block_mask=blocks))


# ---------------------------------------------------------------------------------------------------- where ops live

STATES = torch.tensor([[[2, 0, 1]], [[1, 2, 0]]], dtype=torch.int8)  # of two heads


def _model(q, states):
    return wmma_ops.attention(q, q, q, mask_mod=NEAR, block_mask=wmma_ops.Blocks(states, 96, 32))[0]


@pytest.mark.full
def test_compiles_and_exports():
    q = torch.randn(2, 2, 90, 8)
    want = _model(q, STATES)
    assert torch.equal(torch.compile(_model, fullgraph=True, backend="aot_eager")(q, STATES), want)
    given = q.clone().requires_grad_()
    torch.compile(_model, fullgraph=True, backend="aot_eager")(given, STATES).sin().sum().backward()
    own = q.clone().requires_grad_()
    _model(own, STATES).sin().sum().backward()
    torch.testing.assert_close(given.grad, own.grad)

    class Model(torch.nn.Module):
        def forward(self, q, states):
            return _model(q, states)

    assert torch.equal(torch.export.export(Model(), (q, STATES)).module()(q, STATES), want)


@pytest.mark.full
def test_opcheck_and_vmap():
    q = torch.randn(2, 2, 90, 8)
    code = score_functions.codes("attention", None, NEAR)
    options = code | {"block_q": 96, "block_k": 32}
    given = (q, q, q, *[None] * 8, STATES)
    torch.library.opcheck(torch.ops.wmma.attention.default, given, options)
    many = torch.stack([STATES, STATES.flip(0)])
    got = torch.vmap(_model)(torch.stack([q, q]), many)
    torch.testing.assert_close(got, torch.stack([_model(q, x) for x in many]))
    torch.testing.assert_close(torch.func.grad(lambda q: _model(q, STATES).sin().sum())(q), _grad(q))


def _grad(q):
    q = q.clone().requires_grad_()
    return torch.autograd.grad(_model(q, STATES).sin().sum(), q)[0]


# ------------------------------------------------------------------------------------------------------- bad input


def _blocks(*shape, sizes=(32, 32), dtype=torch.int8):
    return wmma_ops.Blocks(torch.ones(shape, dtype=dtype), *sizes)


@pytest.mark.parametrize("fake", [False, True])
@pytest.mark.parametrize(
    ("blocks", "kind", "text"),
    [
        (_blocks(2, 2, sizes=(48, 32)), ValueError, "block_q is 48; takes a multiple of 32"),
        (_blocks(2, 2, sizes=(32, 0)), ValueError, "block_k is 0; takes a multiple of 32"),
        (
            _blocks(2, 3),
            ValueError,
            r"block_mask has shape \[2, 3\]; takes \[..., 2, 2\], blocks of 32 queries and of 32",
        ),
        (_blocks(2), ValueError, r"block_mask has shape \[2\]; takes"),
        (_blocks(3, 2, 2), ValueError, r"block_mask has shape \[3, 2, 2\]"),
        (_blocks(2, 2, dtype=torch.uint8), TypeError, "block_mask is uint8; takes int8"),
    ],
)
def test_refuses(fake, blocks, kind, text):
    q = torch.randn(2, 2, 50, 8)
    if fake:
        from torch._subclasses.fake_tensor import FakeTensorMode

        mode = FakeTensorMode(allow_non_fake_inputs=False)
        q, blocks = mode.from_tensor(q), blocks._replace(states=mode.from_tensor(blocks.states))
    with pytest.raises(kind, match=rf"wmma.attention: {text}"):
        wmma_ops.attention(q, q, q, block_mask=blocks)


def test_refuses_what_is_no_block_mask():
    q = torch.randn(1, 1, 64, 8)
    with pytest.raises(
        TypeError, match=r"block_mask is of type Tensor; takes wmma_ops\.Blocks or FlexAttention's BlockMask"
    ):
        wmma_ops.attention(q, q, q, block_mask=torch.ones(1, 1))
    unknown = create_block_mask(_causal, 1, 1, 64, 64, device="cpu", BLOCK_SIZE=32)
    with pytest.raises(ValueError, match="block_mask shows keys by '_causal', which kernels do not know"):
        wmma_ops.attention(q, q, q, block_mask=unknown)
    with pytest.raises(RuntimeError, match="block_q is 32; takes 0 without block_mask"):
        torch.ops.wmma.attention(q, q, q, block_q=32)


# ------------------------------------------------------------------------------------------------ wrong on purpose


@dataclass(frozen=True)
class Wrong(Planted):
    case: Case = WITH_BLOCKS[1]
    target: str = "gfx942"


LINE, FORWARD, VISITS, STATE = "rows/blocks.hpp", "loops/forward.hpp", "gradients/rows.hpp", "passes/block_states.hpp"
WRONG = (
    Wrong("blocks_of_another_line", LINE, "first_row / Rules::kBlockQueries * p.rules.blocks.row_stride", "0"),
    Wrong("the_first_heads_blocks", LINE, "batch * x.batch_stride + head * x.head_stride + offset", "offset"),
    Wrong("masked_blocks_are_whole", FORWARD, "(Rules::kHides && !mask.whole)", "false"),
    Wrong("whole_blocks_are_masked", FORWARD, "mask.whole = walk.is_whole(key);", "mask.whole = false;"),
    Wrong(
        "keys_one_tile_behind",
        FORWARD,
        "key_values.go(key - next, next - behind);",
        "key_values.go(key - next, key - next);",
    ),
    Wrong("values_one_tile_behind", FORWARD, "key_values.go(key - next,", "key_values.go(Config::kKeys,"),
    Wrong("only_32_blocks", LINE, "(before == 0 ? group :", "(before == 0 ? 0 :", WITH_BLOCKS[8]),
    Wrong(
        "only_32_blocks_in_the_gradients",
        LINE,
        "(behind == 0 ? group + kWordBlocks :",
        "(behind == 0 ? count_ :",
        WITH_BLOCKS[9],
    ),
    Wrong("the_first_head_of_a_group_alone", VISITS, "(place.head + 1) * p.group", "place.head * p.group + 1"),
    Wrong("blocks_turned", VISITS, "own_ * (kOwnsKeys ? blocks_.column_stride : blocks_.row_stride)", "0"),
    Wrong(
        "all_is_whole_where_any_is", STATE, "any ? all ? kBlockWhole", "any ? any ? kBlockWhole", FOUND[0], "gfx1100"
    ),
    Wrong("the_first_batchs_documents", STATE, "p.rules.first_batch + batch", "batch", FOUND[2]),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / FOLDER, WRONG)


IN_QUICK = ("masked_blocks_are_whole", "the_first_heads_blocks")


@pytest.mark.parametrize("of", some_in_quick(WRONG, IN_QUICK))
def test_is_caught(of, sources):
    check_is_caught(of, sources / FOLDER, lambda: check(of.case, emulated(of.case, of.target)))


def test_a_block_may_be_larger_than_memory():
    """One of 2^40 queries and keys is all there is."""
    q = torch.randn(1, 2, 8, 16)
    out, _ = wmma_ops.attention(
        q, q, q, block_mask=wmma_ops.Blocks(torch.full((1, 1), 2, dtype=torch.int8), 1 << 40, 1 << 40)
    )
    torch.testing.assert_close(out, wmma_ops.attention(q, q, q)[0])
