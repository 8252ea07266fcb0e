"""What all planners share: source texts, tiles in shared memory, the limit on blocks."""

import math

import pytest
import torch

import wmma_ops
from wmma_ops import jit
from wmma_ops.hardware import arch
from wmma_ops.hardware.geometry import tile_bytes, up
from wmma_ops.ops import activations
from wmma_ops.plan import ConfigError, model
from wmma_ops.plan.gemm import cost as gemm_cost
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.plan import check_blocks
from wmma_ops.plan.source import constants, kernel_text, nested
from wmma_ops.runtime import launching, tuning


def test_the_text_of_a_kernel():
    members = [*constants("int", {"kM": 3}), *nested("Last", constants("bool", {"kWide": True}))]
    assert kernel_text("x.hip", members=members, before="struct Before;\n", defines={"YES": True, "NO": False}) == (
        "#include <wmma/tile/config.hpp>\n"
        "struct Before;\n"
        "struct Config {\n"
        "  static constexpr int kM = 3;\n"
        "  struct Last {\n"
        "    static constexpr bool kWide = true;\n"
        "  };\n"
        "};\n"
        "#define YES\n"
        "#include <x.hip>\n"
    )


def _registered() -> str:
    if "halved_plus_one" not in activations.names():
        wmma_ops.register_activation(
            "halved_plus_one",
            device="x / 2 + 1",
            forward=lambda x: x / 2 + 1,
            derivative=lambda x: torch.full_like(x, 0.5),
        )
    return "halved_plus_one"


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_a_registered_activation_calls_the_device_librarys_functions(target):
    if "lifted_softplus" not in activations.names():
        wmma_ops.register_activation(
            "lifted_softplus",
            device="fast_max(x, 0.f) + fast_log(1.f + fast_exp(-fast_abs(x))) + fast_tanh(x)",
            forward=lambda x: torch.nn.functional.softplus(x) + torch.tanh(x),
            derivative=lambda x: torch.sigmoid(x) + 1 - torch.tanh(x) ** 2,
        )
    a, b = torch.randn(16, 8), torch.randn(8, 16)
    with wmma_ops.emulate(target):
        got = wmma_ops.gemm(a, b, activation="lifted_softplus")
    torch.testing.assert_close(got, wmma_ops.gemm(a, b, activation="lifted_softplus"), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_registered_activation_calls_exact_functions_in_its_type(dtype):
    if "cubed_erf" not in activations.names():
        wmma_ops.register_activation(
            "cubed_erf",
            device="pow(x, 3) * erf(x)",
            forward=lambda x: x**3 * torch.erf(x),
            derivative=lambda x: 3 * x**2 * torch.erf(x) + x**3 * 2 / math.sqrt(math.pi) * torch.exp(-x * x),
        )
    a, b = torch.randn(16, 8, dtype=dtype), torch.randn(8, 16, dtype=dtype)
    product = a.double() @ b.double()
    with wmma_ops.emulate("gfx942"):
        got = wmma_ops.gemm(a, b, activation="cubed_erf")
    want = product**3 * torch.erf(product)
    bound = 1e-5 if dtype == torch.float32 else 1e-13
    torch.testing.assert_close(got.double(), want, rtol=bound, atol=bound)


@pytest.mark.parametrize("op", ["gemm", "gemm_gemm"])
def test_a_registered_activation_runs(op):
    a, b = torch.randn(32, 32).half(), torch.randn(32, 32).half() / 8
    want = (a.double() @ b.double()) / 2 + 1
    with wmma_ops.emulate("gfx942"):
        if op == "gemm":
            got = wmma_ops.gemm(a, b, activation=_registered())
        else:
            got, want = wmma_ops.gemm_gemm(a, b, b, activation=_registered()), want.half().double() @ b.double()
    assert ((got.double() - want).norm() / want.norm()).item() < 1e-3


@pytest.mark.parametrize(
    ("target", "length", "pitch"),
    [
        ("gfx942", 64, 64),
        ("gfx942", 32, 32),
        ("gfx942", 48, 56),
        ("gfx950", 64, 64),
        ("gfx950", 192, 200),
        ("sm_80", 96, 104),
    ],
)
def test_lines_that_do_not_fit_the_banks_are_padded(target, length, pitch):
    """In 16-bit elements: a line of an even number of chunks takes one more where the exchange does not fit it."""
    assert tile_bytes(arch.target(target), 10, length, 2) == 10 * pitch * 2


def test_up():
    assert [up(x, 8) for x in (0, 1, 8, 9)] == [0, 8, 8, 16]


def test_more_blocks_than_a_launch_counts():
    check_blocks("this takes", 2**24 - 1, 256, arch.target("gfx942"))
    with pytest.raises(ConfigError, match=r"this takes 16777216 blocks; gfx942 takes up to 16777215"):
        check_blocks("this takes", 2**24, 256, arch.target("gfx942"))


def _zeros(*shape):
    return torch.zeros(shape, dtype=torch.float16)


CALLS = {  # and the classes of the problems that each asks plans for
    "product": (lambda: wmma_ops.linear(_zeros(5, 7), _zeros(9, 7)), ["GemmProblem"]),
    "nothing": (lambda: wmma_ops.matmul(_zeros(0, 7), _zeros(7, 9)), []),
    "two": (lambda: wmma_ops.gemm_gemm(*[_zeros(64, 64)] * 3), ["GemmGemmProblem", "GemmProblem", "GemmProblem"]),
    "apart": (lambda: wmma_ops.gemm_gemm(*[_zeros(8, 8)] * 3, alpha0=0.0), ["GemmProblem", "GemmProblem"]),
    "attention": (lambda: wmma_ops.attention(*[_zeros(1, 1, 8, 64)] * 3), ["AttentionProblem"]),
}


@pytest.mark.parametrize("name", CALLS)
def test_the_problems_of_a_call_are_asked_for_without_planning(name, monkeypatch):
    call, classes = CALLS[name]
    monkeypatch.setattr(jit, "compile", lambda *_, **__: pytest.fail("compiled"))
    monkeypatch.setattr(launching, "_planned", lambda *_: pytest.fail("planned"))
    problems = launching.problems(call, arch.target("sm_90a"))
    assert [type(one).__name__ for one in problems] == classes


def test_a_call_plans_the_problems_that_it_asks_for():
    call, target = CALLS["product"][0], arch.target("gfx942")
    (plan,) = launching.plans(call, target)
    assert [plan.problem] == launching.problems(call, target)
    output, records = launching.recorded(call, target)
    assert output.shape == (5, 9)
    assert [type(one).__name__ for one in records] == ["Planned", "RecordedLaunch"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "the call is 0 products; takes one"),
        ("two", "the call is two products in one kernel; takes one product"),
        ("apart", "the call is 2 products; takes one"),
        ("attention", "the call is two products in one kernel; takes one product"),
    ],
)
def test_tune_refuses_what_is_not_one_product(name, message):
    with pytest.raises(ValueError, match=message):
        tuning._problem_of(CALLS[name][0], arch.target("gfx942"))


@pytest.mark.parametrize("target", ["sm_90a", "sm_80", "gfx942", "gfx1201"])
@pytest.mark.parametrize(("m", "n", "k"), [(4000, 4000, 4000), (128, 14336, 4096), (16, 512, 40), (3, 5, 9000)])
def test_what_the_planner_passes_over_is_no_cheaper(target, m, n, k):
    """It prices only what its least cost does not make dearer than the best so far."""
    target = arch.target(target)
    a, b = torch.empty(m, k, dtype=torch.float16), torch.empty(n, k, dtype=torch.float16)
    (problem,) = launching.problems(lambda: wmma_ops.linear(a, b), target)
    ranked = gemm.ranked(problem, target)
    costs = [gemm_cost.cost(problem, x, target) for x in ranked]
    assert all(
        0 < gemm_cost.bound(problem, x, target) <= cost * (1 + 1e-9) for x, cost in zip(ranked, costs, strict=True)
    )
    chosen, cost = gemm.choose(problem, target)
    prices = [(loop_of(x).lacking(problem, x, target), cost) for x, cost in zip(ranked, costs, strict=True)]
    assert (loop_of(chosen).lacking(problem, chosen, target), cost) == min(prices)


def test_a_last_round_on_rdna_is_dealt_to_pairs_of_units():
    """gfx1100 has 48 pairs: of 128 tiles each has two, and of the other 32 three blocks share each one's K, two a pair."""
    target = arch.target("gfx1100")
    assert model.load(target, 128, 1, 1) == 3 * 0.5
    assert model.load(target, 128, 1, 3) == pytest.approx((2 + 2 / 3) * 0.5)
    assert model.load(arch.target("gfx942"), 304 + 100, 1, 3) == pytest.approx(1 + 1 / 3)
    a, b = torch.empty(256, 4096, dtype=torch.bfloat16), torch.empty(4096, 4096, dtype=torch.bfloat16)
    (problem,) = launching.problems(lambda: wmma_ops.linear(a, b), target)
    split = [config for config in gemm.ranked(problem, target) if config.order.last > 1]
    assert split
    for config in split:
        whole = gemm.plan_of(problem, config, target, "").numbers.whole
        assert whole % 48 == 0
