"""The value contract: every case on every backend that can run here, or on the one given by --backend."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import wmma_ops
from wmma_ops.testing import GemmCase, cases, run
from wmma_ops.testing.cases import LAYOUTS, groups
from wmma_ops.types import OUTPUTS, name


@pytest.mark.parametrize("group", groups())
def test_every_case_keeps_the_contract(group, backend):
    chosen = cases(group)
    assert chosen
    failures = []
    for case in chosen:
        try:
            run(case, backend=backend)
        except AssertionError as failure:
            failures.append(str(failure))
    assert not failures, f"{len(failures)} of {len(chosen)} cases:\n" + "\n".join(failures[:20])


def test_the_suite_is_as_large_as_promised():
    everything = cases()
    assert len(everything) >= 500
    factors = {(case.alpha, case.beta) for case in everything if isinstance(case, GemmCase) and case.c}
    assert {(alpha, beta) for alpha in (0, 1, -1, 0.5) for beta in (0, 1, -1, 0.5)} <= factors
    rows = {(case.dtype, case.out_dtype) for case in everything if isinstance(case, GemmCase)}
    assert {(name(operand), name(out)) for operand, outs in OUTPUTS.items() for out in outs} <= rows


def test_a_case_prints_as_what_makes_it_again():
    for case in cases("random"):
        assert eval(repr(case)) == case


@settings(max_examples=100, deadline=None, derandomize=True)
@given(
    m=st.integers(0, 40),
    n=st.integers(0, 40),
    k=st.integers(0, 60),
    dtype=st.sampled_from(("float32", "bfloat16", "float16", "float64", "int8", "float8_e4m3fn")),
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    alpha=st.floats(-4, 4, width=32),
    beta=st.floats(-4, 4, width=32),
    c=st.sampled_from((None, "full", "row", "scalar")),
)
def test_any_gemm(m, n, k, dtype, layouts, alpha, beta, c):
    out = "float32" if dtype == "int8" else None
    run(
        GemmCase(
            m=m,
            n=n,
            k=k,
            dtype=dtype,
            a_layout=layouts[0],
            b_layout=layouts[1],
            alpha=alpha,
            beta=beta,
            c=c,
            out_dtype=out,
        ),
        against_torch=False,
    )


def test_half_results_are_rounded_once():
    """x·1 + c·1 with a sum that rounds differently when the product is rounded first."""
    a = torch.tensor([[1.0, 2.0**-8]], dtype=torch.bfloat16)  # 1 + 2⁻⁸ is halfway between two bfloat16
    b = torch.ones(2, 1, dtype=torch.bfloat16)
    c = torch.tensor([[2.0**-10]])
    want = (1 + 2.0**-8 + 2.0**-10,)
    got = wmma_ops.addmm(c, a, b)
    assert got.item() == torch.tensor(want, dtype=torch.float64).to(torch.bfloat16).item() == 1 + 2.0**-7


def test_the_same_bits_from_run_to_run():
    for case in cases("gemm")[:40]:
        from wmma_ops.testing.suite import call, operands

        t = operands(case)
        first, second = call(case, t, {})[0], call(case, t, {})[0]
        assert torch.equal(first.nan_to_num(7), second.nan_to_num(7)), case


@pytest.mark.parametrize("dtype", [torch.int8, torch.bfloat16, torch.float32], ids=str)
def test_offsets_past_2_to_the_31(dtype):
    """Rows that lie 2³¹ elements apart; memory that is not touched costs nothing."""
    a = torch.empty(2**31 + 64, dtype=dtype).as_strided((2, 16), (2**31, 1))
    a.copy_(torch.arange(32).view(2, 16))
    b = torch.ones(16, 3, dtype=dtype)
    assert wmma_ops.matmul(a, b).tolist() == [[120] * 3, [376] * 3]
    out = torch.empty(2**31 + 64, dtype=dtype).as_strided((2, 3), (2**31, 1))
    wmma_ops.addmm_(out, a[:, :4] * 0 + 2, b[:4], beta=0)
    assert out.tolist() == [[8] * 3] * 2
