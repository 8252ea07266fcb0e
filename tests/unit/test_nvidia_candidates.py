"""Configurations that only a GPU runs, drawn at random: each kernel compiles, which holds the planner's threads and
shared memory against the kernel's own, and spills nothing."""

import dataclasses
import random
from math import ceil, prod

import configurations
import pytest
import torch
from configurations import WITHOUT_WARPGROUPS

import wmma_ops
from wmma_ops import jit
from wmma_ops.analysis.figures import figures
from wmma_ops.hardware import arch
from wmma_ops.ops.types import OUTPUTS
from wmma_ops.plan import model
from wmma_ops.plan.gemm import candidates
from wmma_ops.plan.gemm import planner as gemm
from wmma_ops.plan.gemm.loops import loop_of
from wmma_ops.plan.gemm.loops.warpgroup import has_own_width
from wmma_ops.runtime import launching

pytestmark = pytest.mark.skipif(not jit.available("sm_90a"), reason="no NVRTC is installed")

KINDS = {  # and the rows of A, from few to many
    "straight": (WITHOUT_WARPGROUPS["straight"], (1, 7, 13, 16)),
    "straight, split": (lambda x: x.loop == "straight" and x.order.splits * x.order.cluster > 1, (1, 7, 13, 16)),
    "sharing": (lambda x: x.order.neighbours > 1 and not x.order.persistent, (300, 1000)),
    "persistent": (configurations.KINDS["persistent"], (4000,)),
    "clusters": (lambda x: x.loop == "warpgroup" and x.order.cluster > 1, (30, 300)),
    "splits": (lambda x: x.loop == "warpgroup" and x.order.splits > 1, (30, 300)),
    "a split last round": (lambda x: x.loop == "warpgroup" and x.order.last > 1, (4000,)),
    "a width of its own": (configurations.KINDS["a width of its own"], (300, 1000)),
    "three warpgroups": (configurations.KINDS["three warpgroups"], (1000, 4000)),
}
PAIRED = {
    "straight": KINDS["straight"],
    "asynchronous": (WITHOUT_WARPGROUPS["asynchronous"], (30, 300)),
    "warpgroups": (lambda x: x.loop == "warpgroup" and not x.order.persistent, (30, 300)),
    "persistent": KINDS["persistent"],
    "clusters": KINDS["clusters"],
    "a split last round": KINDS["a split last round"],
    "a width of its own": KINDS["a width of its own"],
    "three warpgroups": KINDS["three warpgroups"],
}
TYPES = {torch.float16: 3, torch.bfloat16: 3, torch.int8: 2, torch.float8_e4m3fn: 2}  # and how often each is drawn


def _problem(draw: random.Random, m: int, target: arch.Target, k2: int = 0):
    """What a call asks for: either way that memory runs, where there are two; batches; what may be added; a second pair of
    operands, which mostly lies as the first."""
    (dtype,) = draw.choices(list(TYPES), TYPES.values())
    n, k = draw.choice((264, 1000, 4096)), draw.choice((1040, 4096))
    batch = draw.choice(((), (), (3,)))
    across = [dtype.itemsize == 2 and draw.random() < 0.5 for _ in "ab"]

    def pair(k):
        a = (
            torch.empty(*batch, k, m, dtype=dtype).mT
            if across[0] and m % 8 == 0
            else torch.empty(*batch, m, k, dtype=dtype)
        )
        return a, torch.empty(*batch, k, n, dtype=dtype) if across[1] else torch.empty(*batch, n, k, dtype=dtype).mT

    a, b = pair(k)
    out = draw.choice(OUTPUTS[dtype])
    beside = torch.float32 if out == torch.int32 else out
    sizes = {"c": (m, n), "multiply": (m, n), "bias": (n,), "row_scale": (m,), "col_scale": (n,)}
    added = {name: torch.empty(size, dtype=beside) for name, size in sizes.items() if draw.random() < 0.3}
    activation = draw.choice((None, None, "gelu"))
    if k2:
        if dtype.itemsize == 2 and draw.random() < 0.3:
            across[1] = not across[1]
        added |= dict(zip(("a2", "b2"), pair(k2), strict=True))
    (problem,) = launching.problems(lambda: wmma_ops.gemm(a, b, **added, activation=activation, out_dtype=out), target)
    assert problem.k2 == k2
    return problem


def _drawn(draw: random.Random, kind: tuple, target: arch.Target, k2: int = 0):
    """A problem, and one of its configurations of this kind."""
    chosen, rows = kind
    while True:
        problem = _problem(draw, draw.choice(rows), target, k2)
        found = (
            one for x in candidates.candidates(problem, target) for one in candidates.splits_of(problem, x, target)
        )
        if found := [x for x in found if chosen(x)]:
            return problem, draw.choice(found)


@pytest.mark.parametrize("number", range(3))
@pytest.mark.parametrize("kind", KINDS)
def test_a_drawn_kernel_compiles_and_spills_nothing(kind, number):
    _compiles_and_spills_nothing(*_drawn(random.Random(f"{kind} {number}"), KINDS[kind], arch.target("sm_90a")))


@pytest.mark.parametrize("k2", [16, 1024])
@pytest.mark.parametrize("kind", PAIRED)
def test_a_drawn_kernel_of_two_pairs_compiles_and_spills_nothing(kind, k2):
    _compiles_and_spills_nothing(*_drawn(random.Random(kind), PAIRED[kind], arch.target("sm_90a"), k2))


def _compiles_and_spills_nothing(problem, config):
    target = arch.target("sm_90a")
    for launch in gemm.plan_of(problem, config, target, "drawn").launches:
        code = launch.compile(target)
        found = figures(code, target, launch.block, launch.shared, launch.kernel)
        assert found.spills == 0, f"{problem}\n{config!r}"
        assert not found.serialized, f"{problem}\n{config!r}"
        # What may start before the kernel before it is done waits for that.
        assert not launch.early or "griddepcontrol.wait" in code.assembly


@pytest.mark.parametrize("kind", [*KINDS, "ping-pong"])
def test_a_product_that_sums_up_rows_compiles_and_spills_nothing(kind):
    """As of a weight's gradient, with its bias's."""
    target, draw = arch.target("sm_90a"), random.Random(kind)
    chosen, rows = KINDS.get(kind, (lambda x: x.ping_pong, (4000,)))
    outputs = ceil(rows[-1] / 8) * 8
    sizes = (4096, outputs), (4096, 3000), (outputs, 3000)
    g, x, weight = (torch.empty(size, dtype=torch.bfloat16) for size in sizes)
    backward = torch.ops.wmma._linear_backward
    problem, *_ = launching.problems(
        lambda: backward(g, x, weight, None, activation=0, of_x=False, bias_dtype=torch.float32), target
    )
    assert problem.row_sums == torch.float32
    every = (one for x in candidates.candidates(problem, target) for one in candidates.splits_of(problem, x, target))
    found = [x for x in every if chosen(x)]
    if kind in ("straight", "straight, split", "a width of its own"):  # of few rows, and of a B along K
        assert not any(x.loop == "warpgroup" for x in found)
        return
    config = draw.choice(found)
    plan = gemm.plan_of(problem, config, target, "drawn")
    assert plan.numbers.sum_slabs > 0
    assert plan.launches[-1].kernel == "gemm_row_sums"
    _compiles_and_spills_nothing(problem, config)


@pytest.mark.parametrize(("m", "n", "k"), [(512, 11008, 4096), (1024, 14336, 4096), (128, 6144, 4096)])
def test_tiles_are_of_a_width_that_leaves_few_units_idle(m, n, k):
    target, units = arch.target("sm_90a"), model.CARDS["sm_90a"].units
    x, weight = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(n, k, dtype=torch.bfloat16)
    (problem,) = launching.problems(lambda: wmma_ops.linear(x, weight), target)
    config = gemm.plan(problem, target).config
    assert has_own_width(config)
    tiles = prod(config.tiles(problem))
    assert tiles / units > 0.95 * ceil(tiles / units)


@pytest.mark.parametrize(
    ("sizes", "which"),
    [
        ((16384, 30522, 768), 1),  # a gradient by a vocabulary, of its layer's input
        ((4096, 768, 50257), 2),
        ((4096, 4097, 2049), 3),
        ((4096, 4096, 4096), 0),
        ((300, 301, 300), 0),  # for which copies would take longer than they spare
        ((8, 4097, 4096), 0),
    ],
    ids=str,
)
def test_rows_that_are_not_aligned_are_copied_where_that_pays(sizes, which):
    m, k, n = sizes
    a, b = torch.empty(m, k, dtype=torch.bfloat16), torch.empty(k, n, dtype=torch.bfloat16)
    (problem,) = launching.problems(lambda: wmma_ops.matmul(a, b), arch.target("sm_90a"))
    plan = gemm.plan(problem, arch.target("sm_90a"))
    assert plan.numbers.aligned == which
    assert ("a copy is made first" in plan.reason) is bool(which)
    for name in ("gfx942", "gfx1201", "sm_80"):
        (problem,) = launching.problems(lambda: wmma_ops.matmul(a, b), arch.target(name))
        assert gemm.plan(problem, arch.target(name)).numbers.aligned == 0


def test_blocks_that_run_together_cover_about_a_square():
    """Neither A nor B is then read more often than need be."""
    target, x = arch.target("sm_90a"), torch.empty(8192, 8192, dtype=torch.bfloat16)
    (problem,) = launching.problems(lambda: wmma_ops.matmul(x, x), target)
    for config in candidates.candidates(problem, target):
        if config.loop == "warpgroup" and config.block_n >= 128:
            rows = config.order.group * config.block_m
            columns = model.CARDS["sm_90a"].units / config.order.group * config.block_n
            assert 0.6 < rows / columns < 1.6, config
            assert config.order.group % 4 == 0  # as many may share


def test_warpgroups_take_a_second_pair_that_lies_as_the_first():
    target, x = arch.target("sm_90a"), torch.empty(512, 512, dtype=torch.bfloat16)
    for b2, whether in ((x.mT, True), (x, False)):
        (problem,) = launching.problems(lambda b2=b2: wmma_ops.gemm(x, x.mT, a2=x, b2=b2), target)
        assert any(one.loop == "warpgroup" for one in candidates.candidates(problem, target)) == whether
        assert any(one.stages for one in candidates.candidates(problem, target))


def test_tiles_of_either_pair_fit_the_shared_memory_that_is_asked_for():
    """Lines of 112 elements lie further apart than lines along K."""
    target = arch.target("sm_90a")
    rows, columns = torch.empty(448, 512, dtype=torch.float16).mT, torch.empty(512, 448, dtype=torch.float16)
    a = torch.empty(300, 512, dtype=torch.float16)
    for b, b2 in ((rows, columns), (columns, rows)):
        (problem,) = launching.problems(lambda b=b, b2=b2: wmma_ops.gemm(a, b, a2=a, b2=b2), target)
        config = next(x for x in candidates.candidates(problem, target) if x.stages and x.block_n == 112)
        _compiles_and_spills_nothing(problem, config)


MAPPED = [(dtype, out) for dtype in TYPES for out in OUTPUTS[dtype] if out.itemsize == 2]


@pytest.mark.parametrize(("dtype", "out"), MAPPED, ids=str)
def test_whatever_was_added_up_leaves_by_the_copy_engine_in_16_bits(dtype, out):
    target = arch.target("sm_90a")
    a, b = torch.empty(300, 1040, dtype=dtype), torch.empty(264, 1040, dtype=dtype).mT
    (problem,) = launching.problems(lambda: wmma_ops.gemm(a, b, out_dtype=out), target)
    mapped = (x for x in candidates.candidates(problem, target) if loop_of(x).maps_result(problem, x))
    (launch,) = gemm.plan_of(problem, next(mapped), target, "the first").launches
    assert ".global.shared::cta" in launch.compile(target).assembly


@pytest.mark.parametrize("name", ["sm_80", "sm_89"])
def test_steps_straight_to_registers_are_for_every_target(name):
    target = arch.target(name)
    problem, config = _drawn(random.Random(name), KINDS["straight"], target)
    (launch, *_) = gemm.plan_of(problem, config, target, "drawn").launches
    assert figures(launch.compile(target), target, launch.block, launch.shared, launch.kernel).spills == 0


@pytest.mark.parametrize("kind", ["straight", "persistent"])
def test_shared_memory_that_the_kernel_does_not_take_is_refused(kind, monkeypatch):
    target = arch.target("sm_90a")
    problem, config = _drawn(random.Random(0), KINDS[kind], target)
    loop, counted = loop_of(config), loop_of(config).shared_bytes
    monkeypatch.setattr(loop, "shared_bytes", lambda *asked: counted(*asked) + 16)
    with pytest.raises(jit.CompileError, match="the planner and the kernel agree"):
        gemm.plan_of(problem, config, target, "wrong").launches[0].compile(target)


@pytest.mark.parametrize("second", [torch.float8_e4m3fn, torch.float8_e5m2])
def test_a_batch_of_more_blocks_than_a_launch_has_along_x(second):
    """Warpgroups go through the batch along x, other waves along y, too."""
    target = arch.target("sm_90a")
    a, b = torch.empty(2, 64, 64, dtype=torch.float8_e4m3fn), torch.empty(2, 64, 64).to(second).mT
    (problem,) = launching.problems(lambda: wmma_ops.gemm(a, b, out_dtype=torch.bfloat16), target)
    assert any(x.loop == "warpgroup" for x in candidates.candidates(problem, target))
    many = dataclasses.replace(problem, batch=30_000_000)
    assert not any(x.loop == "warpgroup" for x in candidates.candidates(many, target))
    assert gemm.plan(many, target).launches[0].grid[1] == 65535


@pytest.mark.parametrize(("rows", "shared"), [(19, 4), (44, 4), (64, 1)])
def test_rows_that_are_not_there_cost(rows, shared):
    """The copy engine writes zeros for them, of which blocks that share a tile write a part each."""
    target = arch.target("sm_90a")
    x, weight = torch.empty(rows, 4096).bfloat16(), torch.empty(6144, 4096).bfloat16()
    (problem,) = launching.problems(lambda: wmma_ops.linear(x, weight), target)
    config = gemm.plan(problem, target).config
    assert (config.loop, config.block_m, config.order.share_a) == ("warpgroup", 64, shared)


def _attention(sizes: tuple[int, ...], page: int = 0, **options):
    """Of one query, explained for sm_90a."""
    batch, heads, kv_heads, keys, size = sizes
    if not page:
        q, k = torch.empty(batch, heads, 1, size), torch.empty(batch, kv_heads, keys, size)
        t = (q.bfloat16(), k.bfloat16(), k.bfloat16())
        return wmma_ops.explain("attention", *t, enable_gqa=heads != kv_heads, target="sm_90a", **options)
    pages = torch.empty(64, page, kv_heads, size).bfloat16()
    used, table = torch.full((batch,), keys), torch.zeros(batch, ceil(keys / page), dtype=torch.int32)
    starts = torch.arange(batch + 1)
    return wmma_ops.explain(
        "varlen_attention", torch.empty(batch, heads, size).bfloat16(), pages, pages, starts, None, 1, keys,
        seqused_k=used, block_table=table, enable_gqa=heads != kv_heads, target="sm_90a", **options,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("sizes", "page", "splits", "resident"),
    [
        ((62, 32, 32, 168, 64), 0, 1, 2),
        ((32, 32, 8, 4000, 128), 0, 1, 2),
        ((32, 32, 8, 4000, 128), 16, 1, 2),
        ((16, 32, 8, 2048, 128), 0, 1, 1),  # a block for almost every unit
        ((16, 32, 8, 2048, 128), 16, 2, 2),
        ((4, 20, 20, 7150, 64), 0, 3, 2),
        ((1, 32, 8, 8192, 128), 16, 16, 1),
        ((1, 32, 8, 119, 128), 0, 1, 1),  # too few keys for a second kernel
        ((1, 32, 8, 512, 128), 0, 8, 1),  # a tile of keys each
        ((1, 32, 8, 512, 128), 16, 8, 1),
        ((1, 16, 8, 671, 128), 0, 6, 1),
        ((4, 16, 8, 671, 128), 0, 4, 1),
        ((47, 16, 8, 661, 256), 0, 1, 1),  # no unit has room for two
    ],
    ids=str,
)
def test_two_blocks_of_few_rows_share_a_unit(sizes, page, splits, resident):
    found = _attention(sizes, page)
    assert (found.config.splits, found.config.resident) == (splits, resident)
    (launch,) = (one for one in found.launches if one.kernel == "attention")
    assert launch.grid[0] <= 132 * resident
    assert not launch.figures.scratch_bytes


def test_few_rows_that_leave_units_idle_have_one_warpgroup():
    """Another would have nothing; and tiles of fewer keys come sooner, as long as there are not many."""
    for sizes, keys in (((1, 32, 8, 512, 128), 64), ((2, 16, 16, 300, 64), 64), ((1, 32, 8, 65536, 128), 128)):
        config = _attention(sizes).config
        assert (config.groups, config.keys) == (1, keys)


def test_rules_that_need_registers_have_a_unit_alone():
    drawn = {"dropout_p": 0.1, "dropout_seed": torch.tensor(1)}
    assert _attention((62, 32, 32, 168, 64), **drawn).config.resident == 1
