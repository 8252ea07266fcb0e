"""Attention of keys in pages by kernels, on emulated targets: values, page numbers that are wrong, plans that calls share,
and kernels that are wrong on purpose."""

from dataclasses import dataclass

import pytest
import torch
from orders import check_any_order
from planted import Planted, check_is_caught, check_that_each_stands_once

import wmma_ops
from wmma_ops.emulator.global_races import GlobalRaces
from wmma_ops.hardware import arch
from wmma_ops.plan.attention import planner
from wmma_ops.plan.attention.loops import warpgroup
from wmma_ops.runtime import launching
from wmma_ops.testing import VarlenAttentionCase, run
from wmma_ops.testing.memory import fenced
from wmma_ops.testing.operands import operands

CASES = (
    # Few queries: keys are split, and heads that share them packed.
    VarlenAttentionCase(
        queries=(1, 3, 1),
        keys=(90, 300, 5),
        used=(70, 0, 5),
        page_size=64,
        heads=4,
        kv_heads=1,
        e=64,
        dtype="bfloat16",
        sinks="heads",
    ),
    VarlenAttentionCase(
        queries=(2, 8), keys=(700, 40), page_size=16, heads=8, kv_heads=2, e=128, dtype="float16", window=(-1, 0)
    ),
    # Many, of tiles larger than pages, smaller, and neither.
    VarlenAttentionCase(queries=(20, 33), keys=(20, 150), page_size=16, e=64, dtype="float16", window=(-1, 0)),
    VarlenAttentionCase(queries=(150, 9), keys=(200, 0), page_size=256, e=64, dtype="bfloat16", beyond=40),
    VarlenAttentionCase(
        queries=(20, 33),
        keys=(20, 150),
        page_size=48,
        heads=4,
        kv_heads=2,
        e=40,
        ev=24,
        dtype="bfloat16",
        layout="htd",
        number="int64",
        window=(17, 3),
    ),
    VarlenAttentionCase(queries=(70,), keys=(90,), page_size=32, e=128, ev=64, dtype="float16", softcap=2.0),
    VarlenAttentionCase(queries=(5, 9), keys=(120, 40), page_size=32, e=24, layout="halves", slopes="own"),
    VarlenAttentionCase(
        queries=(5, 9), keys=(12, 40), page_size=16, layout="strided", dtype="float64", sinks="own", softcap=1.0
    ),
    VarlenAttentionCase(queries=(30,), keys=(70,), page_size=16, e=300, dtype="float16", layout="column"),
    VarlenAttentionCase(queries=(9,), keys=(70,), page_size=48, e=300, dtype="float64"),  # a row comes in parts
)
BY_TURNS = [(arch.EMULATED[(i + j) % len(arch.EMULATED)], case) for i, case in enumerate(CASES) for j in (0, 3)]


@pytest.mark.parametrize(("target", "case"), BY_TURNS, ids=str)
def test_values(target, case):
    run(case, backend=f"emulated:{target}")


IN_TURNS = (  # by two groups of waves: a page is whole tiles of 128 keys, or of 64, or a part of one, or of two
    VarlenAttentionCase(queries=(150, 9), keys=(300, 40), page_size=256, e=64, dtype="bfloat16", window=(-1, 0)),
    VarlenAttentionCase(queries=(150,), keys=(330,), page_size=64, heads=4, kv_heads=2, e=128, dtype="float16"),
    VarlenAttentionCase(queries=(150, 9), keys=(300, 40), page_size=64, e=64, dtype="float16", window=(100, 20)),
    VarlenAttentionCase(
        queries=(9, 150), keys=(40, 330), page_size=16, heads=4, kv_heads=2, e=128, dtype="bfloat16", window=(-1, 0)
    ),
    VarlenAttentionCase(
        queries=(140, 9),
        keys=(200, 9),
        page_size=48,
        e=96,
        ev=64,
        dtype="float16",
        layout="htd",
        softcap=3.0,
        beyond=20,
    ),
    VarlenAttentionCase(
        queries=(150, 0),
        keys=(170, 0),
        used=(150, 0),
        page_size=32,
        e=64,
        dtype="bfloat16",
        sinks="own",
        window=(70, 0),
    ),
    VarlenAttentionCase(queries=(140,), keys=(1200,), page_size=16, e=64, dtype="float16"),  # keys are split
)
PARTS = IN_TURNS[3]


@pytest.mark.parametrize("target", ["gfx90a", "gfx942", "gfx950"])
@pytest.mark.parametrize("case", IN_TURNS, ids=str)
def test_values_in_turns(case, target):
    run(case, backend=f"emulated:{target}")


@pytest.mark.parametrize("page_size", [16, 48, 64, 256])
@pytest.mark.parametrize("name", ["gfx90a", "gfx942", "gfx950"])
def test_which_loop_takes_pages(page_size, name):
    """Of parts of pages nothing goes straight to shared memory."""
    config = planner.plan(_problem(page_size, 50, 20, name, 300), arch.target(name)).config
    assert config.ping_pong
    assert config.asynchronous == (name == "gfx950" and page_size % 64 == 0)


def _call(case: VarlenAttentionCase, t: dict, **options):
    rules = {"window_size": case.window, "softcap": case.softcap, "scale": case.scale}
    given = {"cu_seq_k": None, "max_q": max(case.queries), "max_k": None} | t | rules | options
    return wmma_ops.varlen_attention(**given, enable_gqa=case.kv_heads is not None)


WRONG_NUMBERS = (
    {"block_table": [[7, -1, 2**31 - 1], [-(2**31), 6, 99]]},
    {"seqused_k": [2**31 - 1, -5]},
    {"cu_seq_q": [-9, 2**31 - 1, 4], "seqused_k": [48, 99], "max_k": 40},
)


@pytest.mark.parametrize(("target", "page_size"), [(target, (16, 64)[i % 2]) for i, target in enumerate(arch.EMULATED)])
def test_wrong_numbers_reach_nothing_outside(target, page_size, monkeypatch):
    """The emulator watches what is read and written, and beside the tensors all is NaN."""
    monkeypatch.setattr(GlobalRaces, "_report", lambda *found: None)  # two sequences may have a token
    case = VarlenAttentionCase(queries=(12, 17), keys=(20, 30), page_size=page_size, dtype="float16", e=32)
    t = {name: x for name, x in operands(case).items() if x is not None}
    t |= {name: t[name].nan_to_num(7.0) for name in ("key", "value")}
    for wrong in WRONG_NUMBERS:
        numbers = {name: torch.tensor(x, dtype=torch.int32) for name, x in wrong.items() if isinstance(x, list)}
        most = {name: x for name, x in wrong.items() if isinstance(x, int)}
        here = {name: fenced(x, "cpu") for name, x in (t | numbers).items()}
        with wmma_ops.emulate(target):
            out, lse = _call(case, here, **most)
        assert out.isfinite().all()
        assert not lse.isnan().any()


@pytest.mark.parametrize("target", ["gfx942", "gfx950"])
@pytest.mark.parametrize("case", [IN_TURNS[1], PARTS], ids=str)
def test_wrong_pages_reach_nothing_outside_in_turns(case, target):
    t = {name: x for name, x in operands(case).items() if x is not None}
    t |= {name: t[name].nan_to_num(7.0) for name in ("key", "value")}
    numbers = torch.tensor([99, -1, 2**31 - 1, 3, -(2**31), 8, 0], dtype=torch.int32)
    t["block_table"] = numbers.repeat(4)[: t["block_table"].shape[1]].expand(t["block_table"].shape).contiguous()
    with wmma_ops.emulate(target):
        out, _ = _call(case, {name: fenced(x, "cpu") for name, x in t.items()})
    assert out.isfinite().all()


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_no_pages_at_all(target):
    case = VarlenAttentionCase(queries=(4, 2), keys=(0, 0), page_size=16, sinks="own")
    t = operands(case)
    want = _call(case, t)
    t |= {name: t[name][:0] for name in ("key", "value")} | {"block_table": t["block_table"][:, :0]}
    with wmma_ops.emulate(target):
        got = _call(case, t)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y)


def _problem(page_size: int, pages: int, columns: int, target: str, queries: int = 1):
    query, key = torch.empty(4 * queries, 8, 128).half(), torch.empty(pages, page_size, 2, 128).half()
    ends, used = torch.zeros(5, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    table = torch.zeros(4, columns, dtype=torch.int32)
    options = {"seqused_k": used, "block_table": table, "enable_gqa": True, "window_size": (-1, 0)}
    call = lambda: wmma_ops.varlen_attention(query, key, key, ends, None, queries, None, **options)  # noqa: E731
    (found,) = launching.problems(call, arch.target(target))
    return found


def test_the_copy_engine_walks_no_pages_that_repeat_or_are_not_there():
    target = arch.target("sm_90a")

    def by_warpgroups(pages: torch.Tensor) -> bool:
        query, table = torch.empty(4, 8, 128).half(), torch.zeros(4, 3, dtype=torch.int32)
        ends, used = torch.zeros(5, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
        options = {"seqused_k": used, "block_table": table, "enable_gqa": True}
        call = lambda: wmma_ops.varlen_attention(query, pages, pages, ends, None, 1, None, **options)  # noqa: E731
        return all(
            isinstance(planner.plan(found, target).config, warpgroup.WarpgroupConfig)
            for found in launching.problems(call, target)
        )

    pages = torch.empty(4, 64, 2, 128).half()
    assert by_warpgroups(pages)
    assert by_warpgroups(pages[:1])
    assert not by_warpgroups(pages[:1].expand(4, -1, -1, -1))
    assert not by_warpgroups(pages[:0])


def test_calls_with_other_pages_share_a_plan():
    """Whatever pages there are in all; those of a sequence about the same."""
    assert _problem(16, 5000, 60, "gfx942") == _problem(16, 99, 59, "gfx942") != _problem(32, 2500, 30, "gfx942")
    assert _problem(16, 5000, 60, "gfx942") != _problem(16, 5000, 70, "gfx942")


@pytest.mark.parametrize(
    ("target", "page_size", "queries"),
    [("sm_80", 16, 300), ("sm_90a", 16, 1), ("sm_90a", 256, 300), ("gfx1250", 256, 1)],
)
def test_compiles_for_what_is_not_emulated(target, page_size, queries):
    problem = _problem(page_size, 50, 20, target, queries)
    for launch in planner.plan(problem, arch.target(target)).launches:
        launch.compile(arch.target(target))


@pytest.mark.parametrize("target", ["gfx942", "gfx1201"])
def test_the_same_bits_in_any_order_of_the_waves(target):
    def compute(**how):
        t = {name: x for name, x in operands(CASES[4]).items() if x is not None}
        with wmma_ops.emulate(target, **how):
            return _call(CASES[4], t)

    check_any_order(compute)


@dataclass(frozen=True)
class Wrong(Planted):
    case: VarlenAttentionCase = CASES[4]
    target: str = "gfx942"


PAGES, ROWS, PLACES, SUPPLIES = (
    "rows/paged.hpp",
    "rows/page_loaders.hpp",
    "tiles/key_value_starts.hpp",
    "tiles/ping_pong_loaders.hpp",
)
WHOLE = CASES[0]  # pages are whole tiles
WRONG = (
    Wrong("the_page_behind", ROWS, "clamped(number, 0, last_page_); }", "clamped(number + 1, 0, last_page_); }"),
    Wrong(
        "the_page_behind_of_whole_tiles", ROWS, "last_row_)) / kPageSize *", "last_row_)) / (kPageSize + 64) *", WHOLE
    ),
    Wrong("the_last_page_dropped", ROWS, "last_row_(rows - 1)", "last_row_(rows - 1 - kPageSize)"),
    Wrong("the_last_of_all_pages_dropped", ROWS, "last_page_(p.count - 1)", "last_page_(p.count - 2)"),
    Wrong("pages_without_gaps", ROWS, "page_step_(page_stride *", "page_step_(kPageSize * row_stride *"),
    Wrong("values_by_the_keys_pages", PLACES, "p.pages.v_stride", "p.pages.k_stride"),
    Wrong("the_neighbours_row", PAGES, "index * all.pages.sequence", "(index ^ 1) * all.pages.sequence"),
    Wrong("all_keys_of_the_longest", PAGES, "clamped(number_at(p.sequences.used_k, index),", "clamped(1 << 30,"),
    Wrong("rows_of_the_page_before", ROWS, "n * kRowsTogether : row_of", "0 : row_of", CASES[1]),
    Wrong("in_turns_the_last_tile_again", SUPPLIES, "return at_ - from;", "return 0;", IN_TURNS[1]),
    Wrong("in_turns_values_by_the_keys_pages", SUPPLIES, "return p.pages.v_stride;", "return 0;", IN_TURNS[1]),
    Wrong("in_turns_the_last_tile_again_in_parts", SUPPLIES, "? last - Config::kKeys", "? last", PARTS),
    Wrong("in_turns_rows_of_the_page_before", ROWS, "i * kPass / kRowsTogether : i", "0 : i", PARTS),
    Wrong("the_tile_before_that", ROWS, "first_ -= rows;", "first_ -= 2 * rows;", CASES[2]),
)


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources / "wmma/attention", WRONG)


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    check_is_caught(of, sources / "wmma/attention", lambda: run(of.case, backend=f"emulated:{of.target}"))
