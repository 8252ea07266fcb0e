"""Which block of attention's gradients on sm_90a has what, and when it adds to the queries' (gradient_teams.hpp): the header
itself, run by the emulator."""

from collections import defaultdict

import pytest
import torch

import wmma_ops
from wmma_ops.plan.attention.loops import warpgroup_gradients
from wmma_ops.plan.problem import AttentionProblem

KEYS, QUERIES, MOST = 128, 64, 4096
SOURCE = """
#include <wmma/tile/config.hpp>
#include <wmma/attention/balanced/gradient_teams.hpp>

using Teams = wmma::GradientTeams<CAUSAL, WINDOWED, SLICED, 128, 64>;

WMMA_KERNEL(64, 1) void walk(int* out, int sq, int skv, int shift, int from, int heads, int group, int team, int passes,
                             int slices, int most) {
  wmma::MappedAttentionArguments p{};
  p.sq = sq;
  p.skv = skv;
  p.shift = shift;
  p.rules.from = from;
  p.heads = heads;
  p.group = group;
  p.batch = 1;
  p.tiles = (sq + 63) / 64;
  p.team = team;
  p.passes = passes;
  p.query_slices = slices;
  const Teams teams(p);
  int* to = out + blockIdx.x * most * 5;
  Teams::Way way;
  int count = 0;
  for (bool more = teams.begin(way); more; more = teams.next_part(way)) {
    for (; teams.ahead(way) > 0; count += teams.ahead(way), teams.next_steps(way)) {
      const int step = way.step + threadIdx.x, number = count + threadIdx.x;
      const Teams::Place place = teams.place(way.part, step);
      const Teams::Turn turn = teams.turn(way, step, place, threadIdx.x);
      if (threadIdx.x >= teams.ahead(way) || number >= most) continue;
      const int head = Teams::key_head(p, way.share) * group + place.head;
      const int row[] = {head, way.part.key_block, place.tile, turn.before(), turn.all()};
      for (int i = 0; i < 5; ++i) to[number * 5 + i] = row[i];
    }
  }
  if (threadIdx.x == 0 && count < most) to[count * 5] = -1;
}
"""

# Queries, keys, shift, query heads, how many share keys, units, and where a window begins: more heads than there are
# teams, and fewer; one tile and more parts than a wave has lanes; rows that see nothing; keys that nobody sees; one pass,
# two and more.
CASES = [
    (640, 640, None, 4, 1, 20),
    (640, 700, None, 6, 3, 12),
    (64, 9000, None, 1, 1, 32),
    (300, 2000, None, 5, 1, 5),
    (640, 640, 0, 4, 2, 132),
    (1000, 300, 0, 3, 1, 7),
    (300, 1000, 700, 3, 1, 7),
    (700, 300, -400, 2, 1, 9),
    (1500, 1500, 0, 3, 1, 4),
    (1500, 1500, 0, 2, 2, 5, -200),
    (1000, 3000, 2000, 2, 1, 7, 1600),
    (3000, 700, -2300, 1, 1, 132, -2900),
    (900, 900, 100, 3, 1, 3, -100),
    (900, 900, None, 2, 1, 9, -64),
    (700, 900, 300, 1, 1, 132, 250),
    (5000, 5000, 0, 1, 1, 9, 0),
    (1500, 400, 0, 2, 1, 5, -100),
    # Too few keys for all units: queries in slices.
    (1024, 77, None, 20, 1, 132),
    (4100, 77, None, 3, 1, 132),
    (3000, 600, None, 4, 2, 132),
    (2000, 300, None, 8, 4, 17),
    (900, 1000, None, 1, 1, 132),
]
SLICED = CASES[-5:]


def walked(case):
    """What each block does, in order: (head, key block, tile, how many add before it, how many do)."""
    sq, skv, shift, heads, group, units, *window = case
    problem = AttentionProblem(
        device=-1, backward=True, dtype=torch.bfloat16, stored=torch.bfloat16,
        mask=None, sinks=None, slopes=None, capped=False,
        causal=shift is not None, windowed=bool(window), e=64, ev=64,
        q_order="e", q_vec=8, k_order="e", k_vec=8, v_order="e", v_vec=8, out_vec=8, g_order="e", g_vec=8,
        wide=False, batch=1, heads=heads, group=group, sq=sq, skv=skv,
        seen=min(skv, (shift if shift is not None else skv) - window[0] + 1) if window else skv,
    )  # fmt: skip
    config = warpgroup_gradients.WarpgroupGradientsConfig(torch.bfloat16, 64, 64, QUERIES, 2, 2)
    teams = warpgroup_gradients.teams(problem, config, units)
    assert teams.blocks <= units
    assert (teams.slices > 1) == (case in SLICED)
    flags = {"CAUSAL": shift is not None, "WINDOWED": bool(window), "SLICED": teams.slices > 1}
    source = SOURCE
    for name, value in flags.items():
        source = source.replace(name, str(value).lower())
    kernel = wmma_ops.Kernel(source, "walk")
    out = torch.zeros(teams.blocks, MOST, 5, dtype=torch.int32)
    with wmma_ops.emulate("gfx942"):
        kernel[teams.blocks, 64](
            out,
            sq,
            skv,
            shift or 0,
            window[0] if window else 0,
            heads,
            group,
            teams.size,
            teams.passes,
            teams.slices,
            MOST,
        )
    rows = [block.tolist() for block in out]
    return [block[: [row[0] for row in block].index(-1)] for block in rows]


def check(case):
    sq, skv, shift, heads, _, _, *window = case
    blocks = walked(case)
    added = defaultdict(list)
    for block in blocks:
        for head, key_block, tile, before, all_of_it in block:
            added[head, tile].append((before, key_block, all_of_it))
    tiles = range(-(-sq // QUERIES))
    assert set(added) == {(head, tile) for head in range(heads) for tile in tiles}
    for (_, tile), parts in added.items():
        assert sorted(before for before, _, _ in parts) == list(range(len(parts)))
        assert {all_of_it for *_, all_of_it in parts} == {len(parts)}
        last_query = min(tile * QUERIES + QUERIES, sq) - 1
        first = max((tile * QUERIES + window[0]) // KEYS, 0) if window else 0
        seen = range(first, -(-skv // KEYS) if shift is None else max((last_query + shift) // KEYS + 1, 0))
        found = {key_block for _, key_block, _ in parts}
        assert found >= set(seen) & set(range(-(-skv // KEYS)))
        if window:  # and no other: but for the first and the last block, which have what nobody sees
            assert found - set(seen) <= {0, -(-skv // KEYS) - 1}
    # Whoever is first, in whatever order they run: each goes on as soon as those before it have added.
    at, counts = [0] * len(blocks), defaultdict(int)
    moved = True
    while moved:
        moved = False
        for i, block in enumerate(blocks):
            while at[i] < len(block) and counts[tuple(block[at[i]][0:3:2])] == block[at[i]][3]:
                counts[tuple(block[at[i]][0:3:2])] += 1
                at[i] += 1
                moved = True
    assert at == [len(block) for block in blocks], "they wait for each other"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_everyone_adds_once_and_nobody_waits_for_ever(case):
    check(case)


@pytest.mark.parametrize(
    ("old", "new", "case"),
    [
        (" || (since == 0 && first_of_two)", "", CASES[2]),
        ("(since < 0 ||", "(since > 0 ||", CASES[0]),
        ("x.before += (p_.tiles", "x.before += 0 * (p_.tiles", CASES[8]),
        ("(since_start < 0", "(since_start < -1", CASES[1]),
        ("const bool adds = at.tile >= begin", "const bool adds = at.tile > begin", CASES[4]),
        ("(!kEnds || at.tile < begin + count)", "true", CASES[9]),
        ("end = (slice + 1) * p_.tiles / slices(p_);", "end = (slice + 1) * p_.tiles / slices(p_) - 1;", SLICED[0]),
        ("x.begin = slice * p_.tiles / slices(p_);", "x.begin = slice * (p_.tiles / slices(p_));", SLICED[2]),
        ("of_lane = part(first + lane, way.share)", "of_lane = part(first + lane, 0)", SLICED[2]),
        ("clamped(after + kQueries - 1,", "clamped(after - 1,", CASES[9]),
        ("key_block >= key_blocks() - 1)", "false)", CASES[16]),
    ],
)
def test_wrong_ones_are_caught(old, new, case, sources):
    path = sources / "wmma/attention/balanced/gradient_teams.hpp"
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))
    with pytest.raises(AssertionError):
        check(case)
