"""RDNA's queues by the clock: in which cycles instructions issue, as thread traces of real cards have them
(docs/decisions/clock.md)."""

import dataclasses
import itertools

import pytest

from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.timing import Executed, operation, rules, run

RDNA3, RDNA4 = "gfx1100", "gfx1201"
WMMA = "v_wmma_f32_16x16x16_f16 v[{0}:{1}], v[200:203], v[204:207], v[{0}:{1}]"
MOVE = "v_mov_b32_e32 v{}, 4.0"
DELAY = "s_delay_alu instid0(VALU_DEP_1)"


def issues(target, *waves, of=None):
    """In which cycle each instruction of each wave issues, all waves on one SIMD."""
    its = rules(target) if of is None else of
    streams = [
        [Executed(operation(parse_instruction(line), target), number=i) for i, line in enumerate(lines)]
        for lines in waves
    ]
    found = [[-1] * len(lines) for lines in waves]

    def span(one):
        if not one.waits:
            found[one.wave // its.simds][one.number] = one.start

    # Between two of a SIMD as many as there are others, which end at once.
    run([(0, stream) for one in streams for stream in (one, *[[]] * (its.simds - 1))], its, 32, span)
    return found


def apart(target, *lines, **given):
    """From each to the next."""
    (at,) = issues(target, lines, **given)
    at = [one for one, line in zip(at, lines, strict=True) if not line.startswith("s_delay_alu")]
    return [after - before for before, after in itertools.pairwise(at)]


def test_eight_products_issue_at_once_and_others_as_the_pipe_takes_them():
    lines = [WMMA.format(8 * i, 8 * i + 7) for i in range(12)]
    assert apart(RDNA4, *lines) == [1] * 7 + [19, 16, 16, 16]
    fewer = dataclasses.replace(rules(RDNA4), vector_queue=4)
    assert apart(RDNA4, *lines, of=fewer)[:6] == [1] * 3 + [23, 16, 16]


def test_products_and_others_by_turns_take_what_a_card_takes():
    """Eight waves of a SIMD, ten rounds each of four products, four moves and four reciprocals: 7,611 cycles on gfx1201."""
    half = [
        "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[8:11], 1",
        "v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[8:11], 1",
        MOVE.format(20), "v_rcp_f32_e32 v22, v20", "s_mov_b32 s20, 0", "s_mul_i32 s14, s12, 32",
        MOVE.format(21), "v_rcp_f32_e32 v23, v21", "s_mov_b32 s21, 1", "s_mul_i32 s15, s13, 32",
    ]  # fmt: skip
    a_round = [*half, *half, *["s_nop 1"] * 8, "s_add_co_u32 s1, s1, -1", "s_cmp_eq_i32 s1, 0", "s_cbranch_scc0 65501"]
    waves = [["s_nop 0", MOVE.format(1), "s_mov_b32 s1, 10", *a_round * 10]] * 8
    found = issues(RDNA4, *waves)
    last = max(at[-1] for at in found)
    assert abs(last - 7611) / 7611 < 0.03
    # As the clock had it before, a wave waiting until what it issued begins: more than a tenth longer.
    alone = dataclasses.replace(rules(RDNA4), vector_queue=1)
    slow = issues(RDNA4, *waves, of=alone)
    assert max(at[-1] for at in slow) > 1.1 * last


def test_one_that_waits_in_the_queue_holds_up_other_waves():
    waits = [MOVE.format(0), "v_add_f32_e32 v1, v0, v0"]
    delayed = [MOVE.format(0), DELAY, "v_add_f32_e32 v1, v0, v0"]
    other = ["s_nop 0", *[MOVE.format(3)] * 6, "global_load_b32 v1, v3, s[0:1]"]  # behind the last move's begin
    assert apart(RDNA4, *waits) == [1]
    assert apart(RDNA4, *delayed) == [5]
    held, free = (issues(RDNA4, one, other)[1][-1] for one in (waits, delayed))
    assert held == free + 4


def test_what_a_delay_names():
    lines = [MOVE.format(i) for i in range(4)]
    far = "s_delay_alu instid0(VALU_DEP_4) | instskip(SKIP_1) | instid1(VALU_DEP_1)"
    sums = [f"v_add_f32_e32 v1{i}, v{i}, v{i}" for i in range(3)]
    assert apart(RDNA4, *lines, far, *sums) == [1, 1, 1, 2, 1, 5]  # the first is five behind the first move
    root = "v_rsq_f32_e32 v0, v1"
    assert apart(RDNA4, root, "s_delay_alu instid0(TRANS32_DEP_1)", "v_add_f32_e32 v2, v0, v0") == [8]
    assert apart(RDNA3, "s_mov_b32 s0, 1", "s_delay_alu instid0(SALU_CYCLE_1)", "v_mov_b32_e32 v0, s0") == [7]


ROWS = [  # what is between two instructions: on gfx1100, on gfx1201
    ("v_add_co_u32 v0, vcc_lo, v1, v2", "v_add_co_ci_u32_e32 v3, vcc_lo, 0, v4, vcc_lo", 1, 1),
    (MOVE.format(0), "global_load_b32 v1, v0, s[0:1]", 17, 18),
    (MOVE.format(0), "ds_store_b32 v0, v1", 17, 18),
    ("v_add_f32_e32 v0, v1, v2", "ds_load_b32 v1, v3", 17, 18),  # which would overwrite what it reads
    ("v_add_f32_e32 v0, v1, v2", "ds_load_b32 v4, v3", 1, 1),
    ("v_mov_b32_e32 v0, s4", "s_mov_b32 s4, 0", 5, 7),
    (MOVE.format(0), "s_mov_b32 s4, 0", 1, 1),
    ("v_readfirstlane_b32 s4, v0", "s_add_u32 s5, s4, 1", 16, 16),
    ("global_load_b32 v1, v0, s[0:1]", MOVE.format(0), 9, 9),
    ("s_mov_b32 s0, 1", "s_nop 0", 4, 4),
    ("s_mov_b32 s0, 1", "s_add_u32 s1, s0, 1", 1, 1),
    (MOVE.format(0), "s_clause 0x1", 3, 3),
    ("s_cmp_eq_u32 s0, 1", "s_cbranch_scc0 5", 1, 10),
    ("s_cbranch_scc0 5", MOVE.format(0), 3, 3),
    (MOVE.format(0), "s_wait_alu depctr_va_vdst(0)", 16, 16),
    (MOVE.format(0), "s_wait_alu 0xfffe", 1, 1),  # of scalars
    ("s_mov_b32 s0, 1", "s_wait_alu 0xfffe", 8, 8),
]


@pytest.mark.parametrize(("before", "after", "of_gfx1100", "of_gfx1201"), ROWS)
def test_from_one_to_another(before, after, of_gfx1100, of_gfx1201):
    assert apart(RDNA3, before, after) == [of_gfx1100]
    assert apart(RDNA4, before, after) == [of_gfx1201]


@pytest.mark.parametrize(("target", "cycles"), [(RDNA3, 27), (RDNA4, 10)])
def test_a_branch_that_is_taken(target, cycles):
    lines = ["s_cbranch_scc0 5", MOVE.format(0)]
    stream = [Executed(operation(parse_instruction(line), target), number=5 * i) for i, line in enumerate(lines)]
    at = {}
    run([(0, stream)], rules(target), 32, lambda one: at.setdefault(one.number, one.start))
    assert at[5] - at[0] == cycles


def test_a_product_begins_behind_others_a_cycle_later():
    lines = [line for i in range(60) for line in (WMMA.format(8 * (i % 8), 8 * (i % 8) + 7), MOVE.format(100))]
    between = issues(RDNA4, lines)[0]
    assert (between[-2] - between[60]) / 29 == pytest.approx(18, abs=0.1)


def test_a_product_waits_to_overwrite_what_two_before_it_write():
    lines = ["v_wmma_f32_16x16x16_f16 v[0:7], v[8:11], v[8:11], 1"] * 2 + ["s_nop 7", "s_nop 7"]
    same = issues(RDNA4, [*lines, *lines])[0]
    assert same[4] - same[0] == 25  # the first one's end
    other = issues(RDNA4, [*lines, *[line.replace("v[0:7]", "v[16:23]") for line in lines]])[0]
    assert other[4] - other[0] == 18


def test_shared_memory_is_waited_for_as_long_as_on_cards():
    for line in ("ds_load_b32 v1, v0", "ds_store_b32 v0, v1"):
        for target in (RDNA3, RDNA4):
            wait = "s_waitcnt lgkmcnt(0)" if target == RDNA3 else "s_wait_dscnt 0x0"
            assert abs(apart(target, line, wait)[0] - 32) <= 1


def test_each_half_of_a_wgp_has_a_cache():
    load, wait = "global_load_b128 v[1:4], v0, s[0:1]", "s_wait_loadcnt 0x0"
    # The same line by two waves: of one half it comes once, of both halves twice.
    for simds, lines in (((0, 1), 1), ((0, 2), 2), ((1, 3), 2)):
        waves = [(0, []) for _ in range(4)]
        for simd in simds:
            ops = [operation(parse_instruction(line), RDNA4) for line in (load, wait)]
            waves[simd] = (0, [Executed(ops[0], lines=(5,), segments=2), Executed(ops[1], number=1)])
        assert run(waves, rules(RDNA4), 32).bytes_fetched == 128 * lines
    # Loads of what it has, one behind the other: each cache gives its own.
    many = [Executed(operation(parse_instruction(load), RDNA4), lines=(5,), segments=8) for _ in range(100)]
    done = Executed(operation(parse_instruction(wait), RDNA4))
    halves, one = (
        run([(0, [*many, done] if simd in simds else []) for simd in range(4)], rules(RDNA4), 32).cycles
        for simds in ((0, 2), (0, 1))
    )
    assert one > 1.6 * halves
