"""Rows that do not know their batch, on a GPU: as tests/contract/test_invariance.py has them on emulated ones; and of layers
and heads as models have them, among thousands."""

import random

import pytest
import rows_alone
import torch

import wmma_ops

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.fixture(autouse=True)
def on_gpu():
    with torch.device("cuda"), wmma_ops.batch_invariant():
        yield


@pytest.fixture(params=[False, True], ids=["whole", "in parts"])
def parts(request, monkeypatch):
    if request.param:
        yield from rows_alone.in_parts(monkeypatch, 128)  # of which sm_90a has a tile
    else:
        yield


@pytest.mark.parametrize("name", rows_alone.PRODUCTS)
def test_rows_of_a_product(name):
    rows_alone.check_product(name)


@pytest.mark.parametrize("name", rows_alone.ATTENTIONS)
def test_rows_of_attention(name, parts):
    rows_alone.check_attention(name)


@pytest.mark.parametrize("name", rows_alone.SEQUENCES)
def test_rows_of_sequences(name, parts):
    rows_alone.check_sequences(name)


LAYERS = ((4096, 4096), (4096, 14336), (14336, 4096), (1024, 3072), (1280, 8192), (4096, 128256))  # K, columns


@pytest.mark.parametrize(("k", "columns"), LAYERS)
def test_rows_of_layers(k, columns):
    draw = random.Random(k)
    x, weight, bias = torch.randn(2048, k), torch.randn(columns, k) * k**-0.5, torch.randn(columns)
    x, weight, bias = (t.bfloat16() for t in (x, weight, bias))
    whole = wmma_ops.linear(x, weight, bias, activation="gelu")
    for rows in (1, 2, 16, 17, 63, 130, 300, 1000):
        at = draw.randrange(2048 - rows)
        assert torch.equal(wmma_ops.linear(x[at : at + rows], weight, bias, activation="gelu"), whole[at : at + rows])


HEADS = (
    (32, 8, 128, 2048),
    (12, 12, 64, 700),
    (16, 16, 72, 1000),
    (8, 1, 256, 1500),
    (64, 8, 64, 5000),
    (8, 2, 128, 9000),
)


@pytest.mark.parametrize(("heads", "kv_heads", "size", "length"), HEADS)
def test_rows_of_heads(heads, kv_heads, size, length):
    """Of which the longer ones have keys in parts."""
    half = length // 2
    chunks = (
        (length - 1, length, slice(0, 1)),
        (3, 4, slice(None)),
        (half, half + 70, slice(1, 2)),
        (half, length, slice(None)),
        (0, half, slice(None)),
        (length - 9, length, slice(None)),
    )
    rows_alone.check_chunks(rows_alone.prefill(heads, kv_heads, size, keys=length), length, chunks)
