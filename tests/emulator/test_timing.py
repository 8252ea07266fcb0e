"""The clock against what was measured of single instructions: rules.py names the sources."""

import functools

import numpy as np
import pytest
import torch
from measured_loops import LOOPS, PLACES, share

import wmma_ops
from wmma_ops.emulator.assembly import parse_instruction
from wmma_ops.emulator.timing import Executed, Run, operation, rules, run, shared_memory
from wmma_ops.emulator.timing.record import record
from wmma_ops.emulator.timing.rules import FAMILIES, family, not_validated, source
from wmma_ops.emulator.timing.unit import Passage

CDNA3, CDNA4 = "gfx942", "gfx950"


def executed(target: str, lines: list[str], shared_cycles: int | None = None) -> list[Executed]:
    return [
        Executed(operation(parse_instruction(line), target), shared_cycles, number=number)
        for number, line in enumerate(lines)
    ]


def timed(target: str, lines: list[str], waves: int = 1, shared_cycles: int | None = None) -> Run:
    stream = executed(target, lines, shared_cycles)
    return run([(0, stream)] * waves, rules(target), 64 if target.startswith("gfx9") else 32)


def each(target: str, line: str, waves: int = 1, count: int = 200, shared_cycles: int | None = None) -> float:
    """Cycles a wave's instruction takes among many of its kind; {} stands for a register of its own."""

    def many(n):
        return timed(
            target, [line.format(*[16 + i % 8 * 4 + j for j in range(4)]) for i in range(n)], waves, shared_cycles
        )

    return (many(2 * count).cycles - many(count).cycles) / count


# Matrix instructions.

MFMA = {
    CDNA3: ("v_mfma_f32_16x16x16_f16 {}, v[0:1], v[2:3], {}", "v_mfma_f32_32x32x8_f16 {}, v[0:1], v[2:3], {}"),
    CDNA4: ("v_mfma_f32_16x16x32_f16 {}, v[0:3], v[4:7], {}", "v_mfma_f32_32x32x16_f16 {}, v[0:3], v[4:7], {}"),
}


@pytest.mark.parametrize("target", MFMA)
@pytest.mark.parametrize(("which", "cycles"), [(0, 16), (1, 32)])
def test_products_that_do_not_depend_fill_the_pipe(target, which, cycles):
    lines = [MFMA[target][which].replace("{}", f"a[{16 * (i % 4)}:{16 * (i % 4) + 15}]") for i in range(400)]
    found = timed(target, lines)
    assert abs(found.cycles / 400 - cycles) <= 1
    assert found.share > 0.98


def test_a_product_that_adds_to_the_one_before():
    """Measured on gfx950: every 18 cycles, of 16; but whole loops of such pairs take 16 each."""
    found = timed(CDNA4, ["v_mfma_f32_16x16x32_f16 a[0:3], v[0:3], v[4:7], a[0:3]"] * 200)
    assert abs(found.cycles / 200 - 18) <= 2


@pytest.mark.parametrize(("vector", "free"), [("v_add_f32_e32 v{0}, v8, v9", 6), ("v_exp_f32_e32 v{0}, v8", 3)])
def test_vector_instructions_behind_a_product(vector, free):
    """24 cycles are free behind one of 32: six additions or three exponentials on gfx950."""
    product = "v_mfma_f32_32x32x16_f16 a[{0}:{1}], v[0:3], v[4:7], a[{0}:{1}]"

    def a_step(count):
        lines = []
        for i in range(50):
            lines.append(product.format(16 * (i % 4), 16 * (i % 4) + 15))
            lines += [vector.format(16 + j) for j in range(count)]
        return timed(CDNA4, lines).cycles / 50

    assert abs(a_step(free) - 32) <= 2
    assert a_step(free + 1) > 34


def test_packed_float32_waits_behind_a_product():
    product, packed = (
        "v_mfma_f32_32x32x16_f16 a[0:15], v[0:3], v[4:7], a[0:15]",
        "v_pk_mul_f32 v[16:17], v[8:9], v[8:9]",
    )
    assert timed(CDNA4, [product, packed] * 50).cycles / 50 >= 32 + 12
    assert timed(CDNA4, [product, "v_mul_f32_e32 v16, v8, v9"] * 50).cycles / 50 <= 36


def test_vector_instructions_that_depend():
    """Six that depend on each other stand behind each product of hand-written attention."""
    assert each(CDNA3, "v_add_f32_e32 v8, v8, v9") == 4
    assert each(CDNA3, "v_exp_f32_e32 v{0}, v9") == 16
    assert each(CDNA4, "v_exp_f32_e32 v{0}, v9") == 8
    assert each("gfx1201", "v_add_f32_e32 v8, v8, v9") == 5
    assert each("gfx1201", "v_add_f32_e32 v{0}, v9, v9") == 1


def test_matrix_and_vector_of_rdna_add_up():
    wmma = "v_wmma_f32_16x16x16_f16 v[16:23], v[0:3], v[4:7], v[16:23]"
    alone = timed("gfx1201", [wmma] * 100).cycles
    both = timed("gfx1201", [wmma, *["v_add_f32_e32 v40, v41, v42"] * 8] * 100).cycles
    assert abs(alone / 100 - 16) <= 2
    assert both / 100 >= 24


# Shared memory: cycles an instruction takes on each SIMD.

ADDRESSES = {  # of a lane's 16 bytes
    "none": lambda lane: 16 * lane,
    "eight-way": lambda lane: 256 * (lane % 16) + 16 * (lane // 16),
}
READ = "ds_read_b128 v[{0}:{3}], v0"


@pytest.mark.parametrize(
    ("target", "waves", "conflict", "cycles"),
    [
        (CDNA4, 4, 1, 16), (CDNA4, 4, 2, 32), (CDNA4, 4, 4, 64), (CDNA4, 4, 8, 128), (CDNA4, 4, 16, 256),
        (CDNA4, 1, 1, 8), (CDNA4, 1, 2, 8), (CDNA4, 1, 4, 16), (CDNA4, 1, 8, 32), (CDNA4, 1, 16, 64),
        (CDNA3, 1, 1, 16), (CDNA3, 4, 1, 32), (CDNA3, 4, 2, 64),
    ],
)  # fmt: skip
def test_reads_of_16_bytes_a_lane(target, waves, conflict, cycles):
    """gfx950's 16-fold stands for unaligned addresses."""
    least = 1024 // rules(target).lds_bytes
    assert abs(each(target, READ, waves, shared_cycles=least * conflict) - cycles) <= 2


def test_transposed_reads_take_what_plain_ones_do():
    for transposed, plain, last, cycles in (
        ("ds_read_b64_tr_b16", "ds_read_b64", 1, 8),
        ("ds_read_b96_tr_b6", "ds_read_b96", 2, 12),
    ):
        found = [each(CDNA4, f"{name} v[{{0}}:{{{last}}}], v0", 4) for name in (transposed, plain)]
        assert found == [cycles, cycles]


def test_a_swap_of_lanes_gives_both_registers():
    for name in ("v_swap_b32", "v_permlane16_swap_b32", "v_permlane32_swap_b32"):
        found = operation(parse_instruction(f"{name} v4, v9"), CDNA4)
        assert found.reads == found.writes == (slice(4, 5), slice(9, 10))


def test_first_data_of_a_read():
    lines = ["ds_read_b128 v[16:19], v0", "s_waitcnt lgkmcnt(0)", "v_add_f32_e32 v0, v16, v17"]
    assert 50 <= timed(CDNA3, lines).cycles <= 80
    for read, cycles in (("ds_read_b32 v16, v0", 52), ("ds_read_b128 v[16:19], v0", 64)):  # measured
        stalls = timed(CDNA3, [read, "s_waitcnt lgkmcnt(0)"]).stalls[1]
        assert abs(sum(stalls.values()) + rules(CDNA3).issue - cycles) <= 2


def test_a_write_holds_its_wave():
    """Some 20 cycles for 16 bytes a lane on gfx942: a product of 16 cannot hide it."""
    assert abs(each(CDNA3, "ds_write_b128 v0, v[16:19]") - 20) <= 2
    product, write = "v_mfma_f32_16x16x16_f16 a[0:3], v[0:1], v[2:3], a[0:3]", "ds_write_b128 v0, v[16:19]"
    assert timed(CDNA3, [product, write] * 100).share < 0.85
    # All together write 74 bytes a cycle.
    assert abs(each(CDNA3, "ds_write_b128 v0, v[16:19]", 4) - 4 * 1024 / 74) <= 2


def lanes_of(row: int, swizzled: bool) -> np.ndarray:
    """Where 64 lanes read 16 bytes each of 16 lines of `row` bytes: lane % 16 the line, lane // 16 the piece."""
    line, piece = np.arange(64) % 16, np.arange(64) // 16
    return line * row + (piece ^ line % 4 if swizzled else piece) * 16


@pytest.mark.parametrize("target", [CDNA3, CDNA4])
def test_conflicts_from_addresses(target):
    found = rules(target)
    least = 1024 // found.lds_bytes
    assert shared_memory.cycles(found, np.arange(64) * 16, 16, False) == least
    assert shared_memory.cycles(found, np.arange(64) * 4, 4, False) == 256 // found.lds_bytes
    assert shared_memory.cycles(found, np.zeros(64, int), 4, False) == 256 // found.lds_bytes  # one word for all
    assert shared_memory.cycles(found, np.arange(64) * found.lds_bytes, 4, True) == 64
    many = shared_memory.cycles(found, lanes_of(256, False), 16, False)
    assert many >= 4 * least
    half = np.arange(64) < 32
    assert shared_memory.cycles(found, np.arange(64) * 16, 16, False, half) == least // 2


# Memory and barriers.


def test_waits_for_memory():
    """A load that is waited for at once costs its way there and back each time; eight ahead cost little more than one."""
    load, wait = "global_load_dwordx4 v[{0}:{1}], v0, s[0:1]", "s_waitcnt vmcnt(0)"
    loads = [load.format(16 + 4 * i, 19 + 4 * i) for i in range(8)]
    each_waits = timed(CDNA3, [line for one in loads for line in (one, wait)])
    together = timed(CDNA3, [*loads, wait])
    assert each_waits.cycles >= 8 * 600
    assert 600 <= together.cycles <= 600 + 8 * 19 + 20  # 54 bytes a cycle of 1 KB each
    assert all(stalls["wait for memory"] >= 550 for number, stalls in each_waits.stalls.items() if number % 2)
    assert {what for stalls in each_waits.stalls.values() for what in stalls} == {"wait for memory"}
    ahead = timed(CDNA3, [*loads, "s_waitcnt vmcnt(7)"])
    assert ahead.cycles < together.cycles


def test_some_loads_come_from_behind_l2():
    """Of as many bytes as the rules say one on the average, always at the same places; none of what is stored."""
    found, count = rules(CDNA3), 4096

    def longest(text: str) -> list[int]:
        one = timed(CDNA3, [text, "s_waitcnt vmcnt(0)"] * count).stalls
        return [number for number, stalls in one.items() if sum(stalls.values()) > found.l2_latency + 200]

    slow = longest("global_load_dwordx4 v[16:19], v0, s[0:1]")
    expected = count * 1024 / found.l2_miss
    assert 0.5 * expected < len(slow) < 1.5 * expected
    assert slow == longest("global_load_dwordx4 v[16:19], v0, s[0:1]")
    assert longest("global_store_dwordx4 v0, v[16:19], s[0:1]") == []


def test_what_is_on_its_way_is_bounded():
    """1 KB a load: some 44 of them, in the queue and on their way, then one for one that is done."""
    load = "global_load_dwordx4 v[16:19], v0, s[0:1]"
    few, many = (timed(CDNA3, [load] * n).cycles for n in (40, 400))
    assert few < 600
    assert many / 400 >= 600 / 44


def loaded(target: str, lines: list[tuple[int, ...]], rounds: int = 1) -> Run:
    """Loads of 16 bytes a lane, each waited for, of these lines of the cache."""
    load = operation(parse_instruction("global_load_dwordx4 v[16:19], v0, s[0:1]"), target)
    wait = operation(parse_instruction("s_waitcnt vmcnt(0)"), target)
    found = rules(target)
    stream = [
        one
        for at in lines * rounds
        for one in (Executed(load, segments=len(at) * found.cache_line // 64, lines=at), Executed(wait, number=1))
    ]
    return run([(0, stream)], found, 64)


@pytest.mark.parametrize("target", ["gfx90a", CDNA3, "gfx1201"])
def test_what_the_first_cache_holds(target):
    """Lines that were loaded are near; more of them than it has room for are not."""
    found = rules(target)
    held = found.cache_bytes // found.cache_line
    few = [tuple(range(i, i + 8)) for i in range(0, held, 8)]
    assert loaded(target, few).bytes_fetched == found.cache_bytes
    twice = loaded(target, few, 2)
    assert twice.bytes_fetched == found.cache_bytes
    again = (twice.cycles - loaded(target, few).cycles) / len(few)
    assert found.cache_latency <= again <= found.cache_latency + 8 * found.cache_line // found.cache_path + 8
    many = [tuple(range(i, i + 8)) for i in range(0, held + 8 * found.cache_ways, 8)]
    assert loaded(target, many, 3).bytes_fetched == 3 * len(many) * 8 * found.cache_line
    # Far apart, all of one set.
    sets = held // found.cache_ways
    one_set = [tuple(sets * i for i in range(j, j + 8)) for j in range(0, 2 * found.cache_ways, 8)]
    assert loaded(target, one_set, 2).bytes_fetched == 2 * len(one_set) * 8 * found.cache_line


def test_the_line_that_was_not_used_for_longest_leaves():
    found = rules(CDNA3)
    sets = found.cache_bytes // found.cache_line // found.cache_ways
    lines = [sets * i for i in range(found.cache_ways)]  # all that one set holds
    order = [*lines, lines[0], sets * found.cache_ways, lines[0], lines[1]]  # the first is kept, the second is not
    assert loaded(CDNA3, [(line,) for line in order]).bytes_fetched == (found.cache_ways + 2) * found.cache_line


def test_waves_take_turns_as_time_goes():
    """One that waits for a product's result leaves its SIMD to the other, which uses the time between."""
    product = "v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]"
    waiting, busy = (
        executed(CDNA3, [product, "v_accvgpr_read_b32 v4, a0"]),
        executed(CDNA3, ["v_add_u32 v2, v3, v4"] * 20),
    )
    idle = executed(CDNA3, ["s_nop 0"])
    found = run(list(enumerate([waiting, idle, idle, idle, busy])), rules(CDNA3), 64)
    assert 8 + 20 * 4 <= found.cycles <= 8 + 21 * 4 + 4


def test_rounds_of_a_loop_end_where_it_is_left():
    """An inner loop of three rounds of 10 cycles, twice, with 500 between."""
    blocks = [[parse_instruction("s_nop 0")]] * 4
    at, passages = 0, []
    for _ in range(2):
        passages.append(Passage(1, at := at + 500, 0))  # the outer loop
        passages += [Passage(2, at := at + 10, 0) for _ in range(3)]
        passages.append(Passage(3, at := at + 10, 0))
    found = Run(cycles=at, passages=[[Passage(0, 0, 0), *passages]], ends=[at], of=4)
    timing = record(found, CDNA3, [one for body in blocks for one in body], blocks, 1)
    inner = next(loop for loop in timing.loops if loop.instructions == (2,))
    assert (inner.cycles, inner.iterations) == (10, 6)
    outer = next(loop for loop in timing.loops if loop is not inner)
    assert outer.cycles == 540


def test_a_line_on_its_way_is_fetched_once():
    load = operation(parse_instruction("global_load_dwordx4 v[16:19], v0, s[0:1]"), CDNA3)
    store = operation(parse_instruction("global_store_dwordx4 v0, v[16:19], s[0:1]"), CDNA3)
    line = tuple(range(8))
    found = run([(0, [Executed(load, lines=line)] * 4)], rules(CDNA3), 64)
    assert (found.bytes_asked, found.bytes_fetched) == (4096, 1024)
    stored = run([(0, [Executed(store, lines=line), Executed(load, lines=line)])], rules(CDNA3), 64)
    assert stored.bytes_fetched == 2048  # what is stored goes through, and is not kept


# Published loops.


IN_ONE = pytest.mark.xdist_group("published loops")  # one worker times them


@functools.cache
def share_of(name: str) -> float:
    return share(next(loop for loop in LOOPS if loop.name == name))


@pytest.mark.full
@IN_ONE
def test_published_loops():
    off = {loop.name: abs(share_of(loop.name) - loop.measured) for loop in LOOPS}
    assert len(off) >= 20
    assert sum(off.values()) / len(off) <= 2
    assert {name: by for name, by in off.items() if by > 4} == {}


@IN_ONE
@pytest.mark.parametrize(
    "names",
    [
        ("4 waves, as ported", "4 waves, interleaved", "4 waves, products between reads and writes",
         "4 waves, two barriers", "4 waves, two barriers, nothing written"),
        ("8 waves in two groups, conflicts", "8 waves in two groups"),
        ("loads waited for, lines as they are", "loads waited for, lines padded", "two buffers", "reads a step ahead",
         "reads a step ahead, interleaved", "N sliced, interleaved, sums copied",
         "N sliced, interleaved, sums in AGPRs"),
        ("tile 128x64", "tile 64x256", "tile 128x128", "tile 128x256", "tile 256x256"),
    ],
    ids=["gfx942-4", "gfx942-8", "gfx950", "gfx950-tiles"],
)  # fmt: skip
def test_each_step_of_a_tuned_loop_is_quicker(names):
    target = "gfx942" if "waves" in names[0] else "gfx950"
    found = [share_of(f"{target}, {name}") for name in names]
    assert found == sorted(found)


@IN_ONE
def test_what_conflicts_cost_where_writes_bound_the_loop():
    """13 cycles of 4,601."""
    with_them, without = (share_of(f"gfx942, 4 waves, two barriers{more}") for more in ("", ", no conflicts"))
    assert abs(without - with_them) < 1


def test_conflicts_of_swizzles():
    """Measured: 14 cycles an instruction where pairs of lines share a phase, 24 reads for 8 writes; 8 where none do."""
    found = rules(CDNA3)
    write = shared_memory.cycles(found, np.arange(64) * 16, 16, True)
    for place, cycles in (("swizzled by pairs of lines", 14), ("swizzled by lines", 8)):
        read = shared_memory.cycles(found, PLACES[place], 16, False)
        assert (24 * read + 8 * write) / 32 == cycles


def test_barriers():
    """The waves go on 8 cycles after the last has come."""
    slow, quick = ["v_exp_f32_e32 v8, v9"] * 10 + ["s_barrier"], ["s_barrier"]
    found = run([(0, executed(CDNA3, slow)), (0, executed(CDNA3, quick))], rules(CDNA3), 64)
    assert 10 * 16 - 16 <= found.cycles - 8 <= 10 * 16
    assert sum(stalls.get("other waves", 0) for stalls in found.stalls.values()) >= 100
    # One that has ended counts no more.
    ended = run([(0, executed(CDNA3, quick)), (0, executed(CDNA3, [*quick, *slow]))], rules(CDNA3), 64)
    assert 160 <= ended.cycles <= 200


def test_two_groups_of_waves_hide_each_other_s_memory():
    """Eight waves, two a SIMD: half of them read shared memory while the others multiply, and the other way around."""
    product = "v_mfma_f32_32x32x8_f16 a[{0}:{1}], v[0:1], v[2:3], a[{0}:{1}]"
    multiply = [product.format(0, 15), product.format(16, 31)] * 8
    memory = ["ds_read_b128 v[16:19], v0"] * 12 + ["s_waitcnt lgkmcnt(0)"]
    step = [*memory, "s_barrier", *multiply, "s_barrier"]
    first, second = executed(CDNA3, [*step * 20, "s_barrier"]), executed(CDNA3, ["s_barrier", *step * 20])
    late = run([(0, first)] * 4 + [(0, second)] * 4, rules(CDNA3), 64)
    alike = run([(0, executed(CDNA3, step * 20))] * 8, rules(CDNA3), 64)
    assert late.share > alike.share + 0.1
    assert late.share > 0.9


def test_every_rule_says_where_it_is_from():
    assert {family(target) for target in ("gfx90a", CDNA3, CDNA4, "gfx1100", "gfx1151", "gfx1200", "gfx1201")} == set(
        FAMILIES
    )
    for name in vars(rules(CDNA3)):
        assert source(name)
    assert "matrix_latency" not in not_validated(CDNA4)
    assert "valu_latency" not in not_validated("gfx1201")
    assert "lds_path" in not_validated("gfx1201")
    for target in ("gfx908", "gfx1250", "sm_90a"):
        with pytest.raises(ValueError, match="there are no rules of its time"):
            rules(target)


@pytest.mark.parametrize(
    ("line", "cycles"),
    [
        ("v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:15], a[0:3]", 32),
        ("v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:7], v[8:11], a[0:3] blgp:4", 32),
        ("v_mfma_f32_16x16x128_f8f6f4 a[0:3], v[0:3], v[8:13], a[0:3] cbsz:4 blgp:2", 16),
        ("v_mfma_scale_f32_32x32x64_f8f6f4 a[0:15], v[0:3], v[4:7], a[0:15], v20, v21 cbsz:4 blgp:4", 32),
    ],
)
def test_products_of_narrow_types_take_what_their_formats_do(line, cycles):
    assert operation(parse_instruction(line), CDNA4).cycles == cycles


def test_a_product_of_unknown_length_is_named():
    with pytest.raises(ValueError, match=r"v_mfma_f32_7x7x7_f16 on gfx942: how long it takes is not known"):
        operation(parse_instruction("v_mfma_f32_7x7x7_f16 a[0:3], v[0:1], v[2:3], a[0:3]"), CDNA3)


# Kernels as they run under the emulator.

TRANSPOSES = """#include <wmma/grid.hpp>
extern "C" __global__ void turn(float* x, int rounds) {
  __shared__ float tile[32 * ROW];
  const int line = threadIdx.x / 32, at = threadIdx.x % 32;
  for (int i = 0; i < 4; ++i) tile[(line + 8 * i) * ROW + at] = x[(line + 8 * i) * 32 + at];
  wmma::sync_workgroup();
  float sum = 0;
  for (int round = 0; round < rounds; ++round)
    for (int i = 0; i < 4; ++i) sum += tile[at * ROW + ((line + 8 * i + round) & 31)];
  wmma::sync_workgroup();
  x[threadIdx.x] = sum;
}"""
MATRIX = ("v_mfma", "v_wmma")
TIMED = ("gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1151", "gfx1200", "gfx1201")


@pytest.mark.parametrize("target", TIMED)
def test_bank_conflicts_cost_what_they_do(target):
    """A column of a tile whose lines fill the banks, and of one with a word more a line."""

    def cycles(row: int) -> tuple[int, torch.Tensor]:
        x = torch.arange(1024.0)
        kernel = wmma_ops.Kernel(TRANSPOSES, "turn", options=(f"-DROW={row}",))
        with wmma_ops.emulate(target, timing=True) as emulation:
            kernel[1, 256](x, 64)
        found = emulation.launches[0].timing()
        assert found.issued + emulation.launches[0].waves == emulation.launches[0].instructions  # their ends beside
        assert found.share == 0
        return found.cycles, x

    (slow, x), (quick, y) = cycles(64), cycles(65)
    assert torch.equal(x, y)
    assert slow > 2 * quick


@pytest.mark.parametrize("target", TIMED)
def test_a_product_is_timed(target):
    a, b = torch.randn(64, 512).bfloat16(), torch.randn(512, 64).bfloat16()
    with wmma_ops.emulate(target, timing=True) as emulation:
        got = wmma_ops.matmul(a, b)
    with wmma_ops.emulate(target) as plain:
        assert torch.equal(got, wmma_ops.matmul(a, b))
    timing = emulation.launches[0].timing()
    assert 0 < timing.share < 1
    assert 0 < timing.issued <= emulation.launches[0].instructions
    assert any("wait" in why for why in timing.stalls)
    assert sum(one.executed for one in timing.instructions) == timing.issued
    assert {why: sum(one.stalls.get(why, 0) for one in timing.instructions) for why in timing.stalls} == timing.stalls
    with pytest.raises(ValueError, match=r"takes a launch within wmma_ops\.emulate\(…, timing=True\)"):
        plain.launches[0].timing()


@pytest.mark.parametrize("target", TIMED)
def test_the_loop_of_a_large_product(target):
    """Of which the blocks of one compute unit are executed alone."""
    a, b = torch.ones(2048, 512, dtype=torch.bfloat16), torch.ones(512, 2048, dtype=torch.bfloat16)
    plan = wmma_ops.explain("matmul", a, b, target=target)
    (launch,) = plan.launches
    timing = plan.timing()
    assert timing.target == target
    assert timing.waves == timing.blocks * -(-launch.block // (64 if target.startswith("gfx9") else 32))
    assert timing.blocks < launch.grid[0]
    loop = timing.loops[0]
    assert loop.iterations > 2
    assert loop.cycles * loop.iterations < timing.cycles
    assert 0 < loop.share < 1
    if target.startswith("gfx9"):  # on RDNA more blocks than one are at different places
        assert loop.share > timing.share  # without a beginning and an end
    products = [timing.instructions[i] for i in loop.instructions if timing.instructions[i].text.startswith(MATRIX)]
    assert {one.executed for one in products} == {loop.iterations * timing.waves}
    assert timing.bytes_asked >= 2 * ((plan.config.block_m + plan.config.block_n) * 512)
    # Of a part of it the loop is as quick; no slower where several blocks would be at other places at its end.
    with pytest.raises(
        ValueError, match=r"execute more than 4,000 instructions; instructions=16000 allows as many, and part=True"
    ):
        plan.timing(instructions=4000)
    part = plan.timing(instructions=timing.issued * 2 // 3, part=True)
    assert part.issued < timing.issued
    assert part.loops[0].cycles < 1.1 * loop.cycles
    assert timing.blocks > 1 or part.loops[0].cycles > 0.9 * loop.cycles


def test_the_blocks_that_one_unit_gets():
    """Every 304th, as many as fit together."""
    q = torch.zeros(1, 32, 2048, 256, dtype=torch.bfloat16)
    (launch, *_) = wmma_ops.explain("attention", q, q, q, target=CDNA3).launches
    x, y, _ = launch.grid
    told: list[int] = []
    trace = launch.traced(instructions=60_000, part=True, tell=told.append)
    assert told == sorted(told)
    assert [count // 10_000 for count in told] == list(range(1, trace.executed // 10_000 + 1))
    blocks = list(dict.fromkeys(block for block, _ in trace.waves))
    assert len(blocks) == trace.blocks > 1
    assert [i + x * (j + y * k) for i, j, k in blocks] == [304 * n for n in range(len(blocks))]


def test_memory_lies_as_a_gpu_would_have_it():
    """Whatever the address of a CPU tensor: 1 KB are eight lines."""
    copy = wmma_ops.Kernel(
        """#include <wmma/grid.hpp>
typedef float four __attribute__((ext_vector_type(4)));
extern "C" __global__ void copy(const four* x, four* y) { y[threadIdx.x] = x[threadIdx.x]; }""",
        "copy",
    )
    for _ in range(6):
        x, y = torch.ones(256), torch.zeros(256)
        keep = torch.zeros(16)  # moves the next ones
        with wmma_ops.emulate(CDNA3, timing=True) as emulation:
            copy[1, 64](x, y)
        timing = emulation.launches[0].timing()
        assert (timing.bytes_asked, timing.bytes_fetched) == (2048, 2048)
        del keep


def test_what_a_launch_takes_does_not_hang_on_the_host():
    """Where its tensors lie among the sets of the cache that a GPU has: not where the host put them."""
    m, k, taken = 512, 256, set()
    for place in (0, 256, 768, 4096, 7936):
        tensors = []
        for least in (0, place):
            memory = bytearray(2 * m * k + 8192)
            start = (least - torch.frombuffer(memory, dtype=torch.uint8).data_ptr()) % 8192
            tensors.append(torch.frombuffer(memory, dtype=torch.bfloat16, count=m * k, offset=start).view(k, m))
        a, b = tensors
        taken.add(wmma_ops.explain("matmul", a.mT, b, target="gfx1201").timing().cycles)
    assert len(taken) == 1


def test_no_rules_no_timing():
    with (
        pytest.raises(ValueError, match="gfx908: there are no rules of its time"),
        wmma_ops.emulate("gfx908", timing=True),
    ):
        pass
