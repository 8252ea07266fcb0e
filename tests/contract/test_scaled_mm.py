"""Which shapes scaled_mm's scales may have, and what each means."""

import itertools

import pytest
import torch

import wmma_ops

# Batch dimensions of A and of B. Of one size, and as many as there are rows: one form then fits where another is meant.
BATCHES = [((), ()), ((3,), ()), ((), (3,)), ((3,), (3,)), ((3, 3), (3, 3)), ((3, 1), (3, 1)), ((3, 3), (3,))]


def _forms(batch, length, one):
    """A scale's shape and the same one as it broadcasts to the result."""
    broadcast = (length, 1) if one == -1 else (1, length)
    for before in {(), batch}:
        yield (*before, length), (*before, *broadcast)
        yield (*before, *broadcast), (*before, *broadcast)
    yield (), ()
    yield (*batch, 1, 1), (*batch, 1, 1)


@pytest.mark.parametrize(("m", "n"), [(3, 5), (1, 5), (3, 1), (3, 3)])
@pytest.mark.parametrize(("batch_a", "batch_b"), BATCHES, ids=str)
def test_every_form_of_scale(batch_a, batch_b, m, n):
    a, b = (torch.randint(-9, 9, size, dtype=torch.int8) for size in ((*batch_a, m, 4), (*batch_b, 4, n)))
    product = a.double() @ b.double()
    for (row, rows), (column, columns) in itertools.product(_forms(batch_a, m, -1), _forms(batch_b, n, -2)):
        scales = torch.rand(row), torch.rand(column)
        got = wmma_ops.scaled_mm(a, b, *scales, out_dtype=torch.float32)
        want = product * scales[0].double().reshape(rows) * scales[1].double().reshape(columns)
        torch.testing.assert_close(got, want.float(), msg=lambda text, forms=(row, column): f"{forms}: {text}")
        meta = [x.to("meta") for x in (a, b, *scales)]
        assert torch.ops.wmma.scaled_mm(*meta).shape == got.shape
        lifted = torch.vmap(lambda x, y, a=a, b=b: wmma_ops.scaled_mm(a, b, x, y, out_dtype=torch.float32))
        torch.testing.assert_close(lifted(*(torch.stack([x, 2 * x]) for x in scales)), torch.stack([got, 4 * got]))


@pytest.mark.parametrize("sizes", [(3, 3), (5, 3)], ids=str)
def test_a_column_of_scales_is_one_for_each_row(sizes):
    """Never one for each of the batch, whatever its size."""
    count, rows = sizes
    a, b = torch.randint(-9, 9, (count, rows, 4), dtype=torch.int8), torch.randint(-9, 9, (4, 6), dtype=torch.int8)
    scale = torch.tensor([[1.0], [10.0], [100.0]])
    got = wmma_ops.scaled_mm(a, b, scale, torch.ones(()), out_dtype=torch.float32)
    assert torch.equal(got, (a.float() @ b.float()) * scale)
    if count != rows:
        with pytest.raises(ValueError, match=r"scale_a has shape \[5, 1\]; takes one element, \[3\] or \[3, 1\]"):
            wmma_ops.scaled_mm(a, b, torch.ones(5, 1), torch.ones(()))
