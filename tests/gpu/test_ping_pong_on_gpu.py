"""Products by sm_90a's warpgroups that go by ping-pong (kernels/wmma/gemm/warpgroup.hpp): each sums up in the order in which
warpgroups that share a tile do, so that the bits are the same."""

import random

import pytest
import torch
from on_gpu import matrix
from planted import Planted, check_is_caught, check_that_each_stands_once
from warpgroup_cases import needs_gpu

from wmma_ops.hardware import arch
from wmma_ops.ops import activations
from wmma_ops.plan.gemm import planner
from wmma_ops.runtime import launching, tuned

RAW, OPS = torch.ops.wmma_raw, torch.ops.wmma
GELU, SILU = (activations.code("test", "activation", name) for name in ("gelu", "silu"))
# Rows, columns and K: whole tiles and not; two tiles for each unit, an odd number, many; one step, fewer than places.
SIZES = [
    (4096, 2048, 512),
    (3000, 2056, 264),
    (8192, 4096, 64),
    (2500, 4000, 1000),
    (16384, 1024, 768),
    (2100, 6000, 2048),
]
TARGET = arch.target("sm_90a")


def _calls(size, dtype):
    m, n, k = size
    x, weight, b = matrix(m, k, dtype=dtype), matrix(n, k, dtype=dtype) / k**0.5, matrix(k, n, dtype=dtype) / k**0.5
    bias, like, other = matrix(n, dtype=dtype), matrix(m, n, dtype=dtype), matrix(m, n, dtype=dtype)
    half = n // 16 * 8
    gate = {"gate": weight[half : 2 * half].mT, "activation": SILU}
    return {
        "linear": lambda: [RAW.linear(x, weight, bias)],
        "residual": lambda: [RAW.linear(x, weight, bias, like, activation=GELU)],
        "across": lambda: [RAW.gemm(x, b, multiply=like, col_scale=bias)],
        "kept": lambda: OPS._linear_aux(x, weight, bias, activation=GELU),
        "slopes": lambda: OPS._gemm_slopes(x, b, like, activation=GELU),
        "both slopes": lambda: OPS._gemm_slopes(x, b, like, other, activation=SILU),
        "gate": lambda: [RAW.gemm(x, weight[:half].mT, **gate)],
        "float32": lambda: [RAW.gemm(x, b, out_dtype=torch.float32)],
        "pair": lambda: [RAW.gemm(x, b, a2=x[:, : k // 16 * 8], b2=b[: k // 16 * 8])],
    }


def _configurations(call):
    problem, *_ = launching.problems(call, TARGET)
    found = planner.ranked(problem, TARGET)
    apart = [config for config in found if config.ping_pong]
    return (
        problem,
        next((config for config in found if config.loop == "warpgroup" and not config.ping_pong), None),
        apart,
    )


def _results(problem, config, call):
    with tuned.forced(problem, config):
        assert launching.plan_for(problem, TARGET).config == config
        return call()


def _check(size, kinds=None, dtype=torch.bfloat16, draw=None):
    for kind, call in _calls(size, dtype).items():
        if kinds and kind not in kinds:
            continue
        problem, together, apart = _configurations(call)
        assert apart, kind
        want = _results(problem, together, call)
        for config in draw.sample(apart, min(2, len(apart))) if draw else apart[:1]:
            got, again = (_results(problem, config, call) for _ in "12")
            assert all(map(torch.equal, got, want)), (kind, str(config))
            assert all(map(torch.equal, got, again)), (kind, str(config))


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_bits_are_those_of_warpgroups_that_share_a_tile(size, dtype):
    _check(size, dtype=dtype, draw=random.Random(sum(size)))


@needs_gpu
def test_batches_go_on_from_matrix_to_matrix():
    a, b = matrix(7, 700, 520, dtype=torch.bfloat16), matrix(7, 520, 1000, dtype=torch.bfloat16)
    problem, together, apart = _configurations(lambda: [RAW.matmul(a, b)])
    for config in apart:
        got, want = (_results(problem, one, lambda: RAW.matmul(a, b)) for one in (config, together))
        assert torch.equal(got, want)


LOOP = "gemm/warpgroup.hpp"
# None that may hang: what the queue counts stays whole.
WRONG = (
    Planted("the_same_rows_twice", LOOP, "operand_after(a, further + i * kPartBytes)", "operand_after(a, further)"),
    Planted("the_rows_of_the_other_warpgroup", LOOP, "(kPingPong ? wave % 4 : wave) * 16", "wave * 16"),
    Planted("the_first_rows_twice", LOOP, "store.run(parts[i], work.batch, work.row, work.column, wave_row + i * 64, 0)",
            "store.run(parts[i], work.batch, work.row, work.column, wave_row, 0)"),
    Planted("what_stands_beside_the_first_rows", LOOP,
            "if (i > 0) store.ask(work.batch, work.row, work.column, wave_row + i * 64, 0);", ""),
)  # fmt: skip


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma", WRONG)


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma", lambda: _check_beside_shared(SIZES[3]))


def _check_beside_shared(size):
    """What is planted in both is found beside float64."""
    x, weight, like = (
        matrix(*shape, dtype=torch.bfloat16) for shape in ((size[0], size[2]), (size[1], size[2]), size[:2])
    )
    weight = weight / size[2] ** 0.5

    def call():
        return RAW.linear(x, weight, None, like)

    problem, _, apart = _configurations(call)
    got = _results(problem, apart[0], call)
    torch.testing.assert_close(got.double(), x.double() @ weight.double().mT + like.double(), rtol=0.02, atol=0.05)
