"""Gradients of attention with too few keys for all of a GPU's units: blocks share keys, each with a slice of the queries
(kernels/wmma/attention/passes/key_parts.hpp). Beside float64, and twice the same."""

import pytest
import torch
from masked_attention import BF16, F16, check_gradients
from on_gpu import matrix
from planted import Planted, check_is_caught, check_that_each_stands_once
from warpgroup_cases import needs_gpu

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.runtime import launching

TARGET = arch.target("sm_90a")
# batch, heads, those of keys, queries, keys, sizes of queries and values
SIZES = [
    (2, 20, 20, 1024, 77, 64, 64),
    (1, 3, 3, 4100, 77, 64, 64),
    (2, 4, 2, 700, 300, 128, 96),
    (1, 8, 1, 1000, 640, 128, 128),
    (2, 3, 3, 330, 100, 96, 128),
    (1, 2, 2, 3000, 64, 40, 72),
]


def _masks(dtype, batch, heads, queries, keys):
    yield None
    lengths = torch.randint(2, keys, (batch, 1, 1, 1), device="cuda")  # of one alone no score has a gradient
    yield torch.arange(keys, device="cuda") < lengths
    yield (torch.rand(batch, 1, queries, keys, device="cuda") > 0.3)
    if keys % 8 == 0:
        yield matrix(1, heads, queries, keys, dtype=dtype)


def _operands(dtype, batch, heads, kv_heads, queries, keys, size, value_size):
    q = matrix(batch, heads, queries, size, dtype=dtype).requires_grad_()
    k, v = (matrix(batch, kv_heads, keys, n, dtype=dtype).requires_grad_() for n in (size, value_size))
    return q, k, v, matrix(batch, heads, queries, value_size, dtype=dtype)


def _slices(batch, heads, kv_heads, queries, keys, size, value_size):
    """As planned, of tensors that no thread of autograd's takes elsewhere."""
    q = torch.empty(batch, heads, queries, size, dtype=BF16, requires_grad=True)
    k, v = (torch.empty(batch, kv_heads, keys, n, dtype=BF16) for n in (size, value_size))

    def call():
        wmma_ops.attention(q, k, v, enable_gqa=heads != kv_heads)[0].backward(
            torch.empty(batch, heads, queries, value_size, dtype=BF16)
        )

    problem = next(one for one in launching.problems(call, TARGET) if one.backward)
    return launching.plan_for(problem, TARGET).numbers.query_slices


def _check(dtype, *sizes, every=True):
    q, k, v, g = _operands(dtype, *sizes)
    batch, heads, kv_heads, queries, keys, *_ = sizes
    assert _slices(*sizes) > 1
    for mask in _masks(dtype, batch, heads, queries, keys) if every else (None,):

        def gradients(mask=mask):
            out = wmma_ops.attention(q, k, v, mask=mask, enable_gqa=heads != kv_heads)[0]
            return out, *torch.autograd.grad(out, [q, k, v], g)

        of_mask = {} if mask is None else {"shown": mask} if mask.dtype == torch.bool else {"added": mask.double()}
        check_gradients(gradients, q, k, v, g, dtype, **of_mask)


@needs_gpu
@pytest.mark.parametrize("dtype", [BF16, F16], ids=str)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_gradients(sizes, dtype):
    _check(dtype, *sizes)


@needs_gpu
def test_results_that_lie_as_their_operands_do():
    """Heads of a row together."""
    q, k, v, g = (x.detach().transpose(1, 2).contiguous().transpose(1, 2) for x in _operands(BF16, *SIZES[2]))
    leaves = [x.requires_grad_() for x in (q, k, v)]

    def gradients(*leaves):
        return torch.autograd.grad(wmma_ops.attention(*leaves, enable_gqa=True)[0], leaves, g)

    straight = [x.detach().contiguous().requires_grad_() for x in leaves]
    assert all(map(torch.equal, gradients(*leaves), gradients(*straight)))


TEAMS, PARTS, LOOP = "balanced/gradient_teams.hpp", "passes/key_parts.hpp", "loops/warpgroup_gradients.hpp"
# None that may hang: who waits for whom stays as it is.
WRONG = (
    Planted("a_slice_too_few", PARTS, "slice < p.query_slices; ++slice", "slice + 1 < p.query_slices; ++slice"),
    Planted("the_first_slice_always", PARTS, "from += of.head_stride", "from += 0"),
    Planted("values_where_keys_are", LOOP, "Tiles::part_of(p, p.e)", "Tiles::part_of(p, 0)"),
    Planted("unscaled", LOOP, "p.e, scale, slice, row", "p.e, 1.0f, slice, row"),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: _check(BF16, *SIZES[0], every=False))
