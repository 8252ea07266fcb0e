"""torch.set_float32_matmul_precision is followed: "medium" multiplies in bfloat16; "high", where there is no matrix
instruction of float32, in three products of bfloat16 parts (kernels/wmma/tile/float_parts.hpp), if that pays; "highest" in
float32."""

import pytest
import torch
from planted import Planted, check_that_each_stands_once

import wmma_ops
from wmma_ops.hardware import arch
from wmma_ops.plan.gemm import planner
from wmma_ops.plan.gemm.candidates import candidates
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.runtime import launching
from wmma_ops.testing import GemmCase, run

RDNA = [name for name in arch.EMULATED if arch.target(name).family != "cdna"]
# Whole and ragged; each way that memory runs, by whole loads and by single elements; prologues, a second pair, batches.
CASES = [
    GemmCase(m=64, n=128, k=96, dtype="float32", b_layout="column"),
    GemmCase(m=40, n=136, k=200, dtype="float32", a_layout="column", c="full", alpha=0.5, beta=-1.0),
    GemmCase(m=70, n=75, k=91, dtype="float32", a_layout="offset", b_layout="sliced", bias=True, activation="relu"),
    GemmCase(m=33, n=50, k=64, batch_a=(3,), dtype="float32", a_layout="column_sliced", b_layout="strided"),
    GemmCase(m=48, n=40, k=72, k2=35, dtype="float32", b_layout="column_sliced", a2_layout="column"),
    GemmCase(m=36, n=52, k=60, dtype="float32", a_scale="vector", a_activation="silu", col_scale="vector"),
    GemmCase(m=20, n=24, k=1100, dtype="float32", special="nan_a"),
    GemmCase(m=20, n=24, k=33, dtype="float32", special="inf_b"),
    GemmCase(m=20, n=24, k=0, dtype="float32", c="row"),
]


@pytest.fixture
def precision(request):
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(request.param)
    torch.ops.wmma._forget_plans()
    yield request.param
    torch.set_float32_matmul_precision(before)
    torch.ops.wmma._forget_plans()


every = pytest.mark.parametrize("precision", ["highest", "high", "medium"], indirect=True)
high = pytest.mark.parametrize("precision", ["high"], indirect=True)


@pytest.fixture
def in_parts(monkeypatch):
    """Plans parts whether or not they pay, a configuration after the other; which."""
    planned = []

    def choose(problem, target):
        found = [x for x in candidates(problem, target) if x.parts == 2 and not loop_of(x).lacking(problem, x, target)]
        planned.append(found[7 * len(planned) % len(found)])
        return planned[-1], 0.0

    monkeypatch.setattr(planner, "choose", choose)
    torch.ops.wmma._forget_plans()
    yield planned
    torch.ops.wmma._forget_plans()


@every
@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_products_of_float32(precision, target):
    generator = torch.Generator().manual_seed(0)
    a, b, c = (torch.randn(shape, generator=generator) for shape in ((40, 100), (100, 24), (24,)))
    want = 0.5 * a.double() @ b.double() + c.double()
    with wmma_ops.emulate(target):
        out = wmma_ops.addmm(c, a, b, alpha=0.5)
    error = ((out.double() - want).norm() / want.norm()).item()
    plan = wmma_ops.explain("addmm", c, a, b, alpha=0.5, target=target)
    parts = precision == "high" and target == "gfx1201"
    assert error < (5e-3 if precision == "medium" else 2e-5 if parts else 1e-6)
    assert plan.config.parts == (2 if parts else 1)
    assert plan.config.element == (torch.bfloat16 if parts or precision == "medium" else torch.float32)
    if parts or precision == "medium":
        assert error > (1e-5 if precision == "medium" else 1e-6)
        assert f"precision is {precision}" in plan.reason


@high
@pytest.mark.full
@pytest.mark.parametrize("target", RDNA)
def test_values(target, precision, in_parts):
    for case in CASES:
        run(case, f"emulated:{target}", against_torch=False)
    assert len({str(config) for config in in_parts}) > 3


@high
@pytest.mark.parametrize(
    ("target", "pays"), [("gfx1100", False), ("gfx1201", True), ("sm_90a", True), ("gfx942", False)]
)
def test_where_it_pays(target, pays, precision):
    """By the model. Three products of bfloat16 are a third of its rate: on RDNA 3 less than plain FMA."""
    x, row = torch.empty(4096, 4096), arch.target(target)
    (problem,) = launching.problems(lambda: wmma_ops.matmul(x, x), row)
    assert planner.plan(problem, row).config.parts == (2 if pays else 1)


@high
@pytest.mark.full
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_compiles_for_nvidia(target, precision, in_parts):
    for case in CASES[:6:2]:
        a, b = (torch.empty(size) for size in ((case.m, case.k), (case.k, case.n)))
        launch = wmma_ops.explain("matmul", a, b, target=target).launches[0]
        assert launch.figures.spills == 0
        assert ".bf16" in launch.assembly


NUMBERS = torch.tensor([
    0.0, 1.0, 1.00390637, 1.9999999, 0.3333333, 2.0**64 * 1.00390637, 2.0**127 * 1.0039, 3.4028234e38, 2.0**-126, 2.0**-133,
    1e-36, 1e-39, float("inf"), float("nan"),
])  # fmt: skip
ALL_BITS = torch.tensor([0x7FFFFFFF], dtype=torch.int32).view(torch.float32)  # a NaN
LARGEST = 2.0**128


def _special_values_are_float32s(target: str) -> None:
    """Each number by each, in a sum of its own, and beside a sum of others."""
    x = torch.cat([NUMBERS, -NUMBERS, ALL_BITS])
    for k in (1, 40):
        a, b = torch.zeros(len(x), k), torch.zeros(k, len(x))
        a[:, k // 2], b[k // 2] = x, x
        if k > 1:
            a[:, 3], b[3] = 0.7, 0.2
        with wmma_ops.emulate(target):
            got = wmma_ops.matmul(a, b)
        exact = a.double() @ b.double()
        want = torch.where(exact.abs() < LARGEST, exact, exact.float().double())
        assert torch.equal(got.isnan(), want.isnan()), (got.isnan() != want.isnan()).nonzero()
        sure = want.isinf() | (want.abs() < LARGEST * (1 - 2**-13))  # of those between, rounding decides
        infinite = want.isinf()
        assert torch.equal(got[infinite].double(), want[infinite])
        finite = sure & ~infinite
        left = 2.0**-14 * exact.abs() + 2.0**-133 * (a.double().abs().sum(-1, keepdim=True) + b.double().abs().sum(0))
        bound = 1.01 * left + 2.0**-126 + 2.0**-22 * want.abs()
        assert ((got - want)[finite].abs() <= bound[finite]).all()


@high
@pytest.mark.parametrize("target", ["gfx1100", "gfx1201"])
def test_special_values_are_float32s(target, precision, in_parts):
    _special_values_are_float32s(target)


@high
def test_what_16_bits_hold_is_multiplied_by_what_8_hold_exactly(precision, in_parts):
    generator = torch.Generator().manual_seed(1)
    a = torch.randint(-(2**15), 2**15, (64, 32), generator=generator).float()
    b = torch.randint(-3, 4, (32, 48), generator=generator).float()
    with wmma_ops.emulate("gfx1201"):
        assert torch.equal(wmma_ops.matmul(a, b), a @ b)


PARTS, LOADER, TILE = (f"wmma/tile/{name}.hpp" for name in ("float_parts", "staged_loader", "wave_tile"))
WRONG = (
    Planted("an_infinite_first_part", PARTS, "arch::within(x, 3.40282347e38f)", "x"),
    Planted(
        "a_first_part_to_nearest",
        PARTS,
        "arch::bit_cast<uint32_t>(finite) & 0xffff0000u",
        "(arch::bit_cast<uint32_t>(finite) + 0x8000u) & 0xffff0000u",
    ),
    Planted("no_second_part_of_a", PARTS, "    Parts::mma(d, a + Parts::kChunksA, b);\n", ""),
    Planted("no_second_part_of_b", PARTS, "    Parts::mma(d, a, b + Parts::kChunksB);\n", ""),
    Planted("the_second_part_alone", LOADER, "at + Tile::kPartBytes, second", "at, second"),
    Planted("one_part_read_twice", TILE, "i / kOfPart * (Tile::kBytes / kPartsOf<Product>)", "0"),
)


def _is_right(target: str) -> None:
    run(CASES[0], f"emulated:{target}", against_torch=False)
    _special_values_are_float32s(target)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources, WRONG)


@high
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, precision, in_parts):
    of.plant(sources)
    with pytest.raises((AssertionError, RuntimeError)) as caught:
        _is_right("gfx1201")
    assert "does not compile" not in str(caught.value)
