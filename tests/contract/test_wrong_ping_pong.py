"""Products and attention in turns that are wrong on purpose."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from test_gemm_ping_pong import eight_waves, tiles_ahead

from wmma_ops.emulator import EmulationError, Race, Uninitialised
from wmma_ops.plan.gemm import planner
from wmma_ops.testing import AttentionCase, GemmCase, Mismatch, run

STAGED, TURNS, SOFTMAX = "gemm/staged.hpp", "attention/loops/ping_pong.hpp", "attention/softmax/following.hpp"
DIRECT, LOADER, SUPPLIES = "gemm/direct_copy.hpp", "tile/direct_loader.hpp", "attention/tiles/ping_pong_loaders.hpp"
PRODUCT = GemmCase(m=256, n=256, k=160, dtype="bfloat16", b_layout="column")
RAGGED = GemmCase(m=200, n=248, k=328, dtype="bfloat16")
LARGEST = -1  # tile
ATTENTION = AttentionCase(heads=1, sq=256, skv=333, e=64, dtype="float16", scale=2.0)


@dataclass(frozen=True)
class Wrong:
    name: str
    old: str
    new: str
    caught: tuple[type[Exception], ...] = (Race, Uninitialised, Mismatch)
    file: str = STAGED
    case: AttentionCase | GemmCase = PRODUCT
    target: str = "gfx942"
    configurations: Callable = eight_waves
    turn: int = 0  # which of them

    def __str__(self) -> str:
        return self.name


WRONG = [
    Wrong("groups_in_step", "    if (second) arch::shared_barrier();\n", "", (EmulationError,)),
    Wrong(
        "no_barrier_after_memorys_turn",
        "      arch::shared_barrier();\n      arch::schedule_barrier();\n      arch::priority<1>();",
        "      arch::schedule_barrier();\n      arch::priority<1>();",
    ),
    Wrong(
        "into_the_buffer_that_is_read",
        "step_ahead<true, 0>(wave, a, b, shared, other,",
        "step_ahead<true, 0>(wave, a, b, shared, shared,",
    ),
    Wrong(
        "operands_of_the_wrong_step",
        "read(next, last ? to : from, reader, last ? 0 : step + 1);",
        "read(next, from, reader, last ? 0 : step + 1);",
    ),
    Wrong(
        "reads_the_next_tile_too_soon",
        "      if (!last) {\n        pass<kFetches>(a, b, to, step);",
        "      if (!last) {\n        read(next, to, reader, step + 1);\n        pass<kFetches>(a, b, to, step);",
    ),
]
WRONG += [
    Wrong(f"direct_{name}", old, new, file=file, target="gfx950", **{"case": RAGGED, **more})
    for name, old, new, file, more in (
        (
            "groups_in_step",
            "    if (second) arch::shared_barrier();\n",
            "",
            DIRECT,
            {"caught": (EmulationError,), "case": GemmCase(m=200, n=248, k=264, dtype="bfloat16")},
        ),
        (
            "no_barrier_after_memorys_turn",
            "      arch::shared_barrier();\n      arch::schedule_barrier();\n      arch::priority<1>();",
            "      arch::schedule_barrier();\n      arch::priority<1>();",
            DIRECT,
            {},
        ),
        (
            "waits_for_no_copies",
            "if (step + 2 == kSteps) arch::wait_copies<kMore ? kLater : 0>();",
            "",
            DIRECT,
            {},
        ),
        (
            "waits_a_step_too_late",
            "if (step + 2 == kSteps) arch::wait",
            "if (step + 1 == kSteps) arch::wait",
            DIRECT,
            {},
        ),
        (
            "waits_for_one_operand",
            "arch::wait_copies<kMore ? kLater : 0>",
            "arch::wait_copies<kMore ? kLater + LoaderB::kCopies : 0>",
            DIRECT,
            {"turn": LARGEST},
        ),
        (
            "copies_a_step_too_soon",
            "kEarlyB ? kSteps - 2 : kSteps - 1",
            "kSteps - 2",
            DIRECT,
            {"turn": LARGEST},
        ),
        (
            "into_the_place_that_is_read",
            "copy(a, places.a(2))",
            "copy(a, places.a(0))",
            DIRECT,
            {},
        ),
        (
            "second_operand_into_the_place_that_is_read",
            "places.b(kEarlyB ? 2 : 0)",
            "places.b(0)",
            DIRECT,
            {"case": GemmCase(m=200, n=120, k=328, dtype="bfloat16")},
        ),
        (
            "first_tile_not_waited_for",
            "arch::wait_copies<kNext * kTileCopies>();",
            "arch::wait_copies<(kNext + 1) * kTileCopies>();",
            DIRECT,
            {"case": GemmCase(m=256, n=256, k=128, dtype="bfloat16")},
        ),
        (
            "operands_of_the_wrong_step",
            "places, reader, last ? 1 : 0, last ? 0 : step + 1)",
            "places, reader, 0, last ? 0 : step + 1)",
            DIRECT,
            {},
        ),
        (
            "rows_that_are_not_there",
            "detail::lower(at.line, last) * line_step_",
            "at.line * line_step_",
            LOADER,
            {"caught": (EmulationError,)},
        ),
        (
            "more_of_k_than_there_is",
            "there ? x[i].words[word] : 0",
            "x[i].words[word]",
            LOADER,
            {"caught": (Mismatch,)},
        ),
        ("turned_at_other_lines", "at + 4 * Tile::kPitch * 16", "at + 2 * Tile::kPitch * 16", LOADER, {}),
        (
            "not_where_the_swizzle_has_it",
            "const uint32_t at = Tile::offset(to / Tile::kPitch, to % Tile::kPitch) / 16;",
            "const uint32_t at = to;",
            LOADER,
            {"caught": (Mismatch,)},
        ),
    )
]
# Waves that pass a tile on among their products, in a grid of 2 x 4.
WRONG += [
    Wrong(f"passing_on_{name}", old, new, target="gfx1201", turn=1, case=case)
    for name, old, new, case in (
        (
            "without_a_barrier",
            "        arch::shared_barrier();\n        arch::priority<0>();\n",
            "        arch::priority<0>();\n",
            RAGGED,
        ),
        ("behind_the_barrier", "kStoreRows = kRows - kLastRows;", "kStoreRows = kRows;", PRODUCT),
        ("reads_what_was_multiplied", "const tile = last ? to : from;", "const tile = from;", PRODUCT),
        ("reads_the_next_tile_too_soon", "const tile = last ? to : from;", "const tile = to;", RAGGED),
        (
            "stores_what_came_later",
            "kStoreRows / kBlocks == row) store",
            "kStoreRows / kBlocks == row - 1) store",
            RAGGED,
        ),
    )
]
# Four waves, the last of whose configurations have a tile and three on their way.
AHEAD = GemmCase(m=120, n=128, k=1000, dtype="bfloat16")
WRONG += [
    Wrong(f"ahead_{name}", old, new, file=DIRECT, case=AHEAD, target="gfx950", configurations=tiles_ahead, turn=-1)
    for name, old, new in (
        ("waits_for_a_tile_fewer", "kSpreads ? kNext * kTileCopies : 0", "kSpreads ? (kNext + 1) * kTileCopies : 0"),
        ("last_tiles_not_waited_for", "arch::copies_barrier();", "arch::shared_barrier();"),
        ("into_the_place_that_is_read", "a.copy(places.a(kPlaces - 1), i);", "a.copy(places.a(0), i);"),
        ("a_copy_fewer", "kMore && i < kCopies;", "kMore && i + 1 < kCopies;"),
        (
            "no_barrier",
            "        arch::shared_barrier();\n        if constexpr (!kSpreads)",
            "        if constexpr (!kSpreads)",
        ),
    )
]
WRONG += [
    Wrong(f"attention_{name}", old, new, file=file, case=ATTENTION, **more)
    for name, old, new, file, more in (
        (
            "groups_two_turns_apart",
            "    if (TileLoader::kIsSecond) arch::shared_barrier();\n",
            "    if (TileLoader::kIsSecond) arch::shared_barrier(), arch::shared_barrier();\n",
            TURNS,
            {"caught": (EmulationError, Mismatch)},
        ),
        (
            "no_barrier_after_the_weights",
            "      loader_.after_weights();\n      end_phase();\n",
            "      loader_.after_weights();\n",
            TURNS,
            {"caught": (EmulationError, Mismatch)},
        ),
        (
            "into_the_buffer_that_is_read",
            "store<false>(tiles_ + (buffer ^ 1) * Tiles::kKeyBytes);",
            "store<false>(tiles_ + buffer * Tiles::kKeyBytes);",
            SUPPLIES,
            {},
        ),
        (
            "values_of_the_wrong_tile",
            "values_, value_tile(buffer), i, part, parts);",
            "values_, value_tile(buffer ^ 1), i, part, parts);",
            TURNS,
            {},
        ),
        (
            "keys_of_the_tile_before",
            "keys_, key_tile(buffer ^ 1), i - ValueGroups::kCount, part, parts);",
            "keys_, key_tile(buffer), i - ValueGroups::kCount, part, parts);",
            TURNS,
            {},
        ),
        (
            "weights_of_the_step_before",
            "pack(weights, scores, next);",
            "pack(weights, scores, next - 1);",
            TURNS,
            {"caught": (Uninitialised, Mismatch)},
        ),
        (
            "follows_no_score_that_grows",
            "    if (kRescaleThreshold > 0 && (arch::ballot(grew) | far_) == 0) return;\n",
            "    if (kRescaleThreshold > 0 && sum_[0][0] > Number(0)) return;\n",
            SOFTMAX,
            {"caught": (Mismatch,)},
        ),
        (
            "keys_not_waited_for",
            "before_weights(uint32_t, bool) {}\n  WMMA_DEVICE void after_weights() { arch::wait_copies<0>(); }",
            "before_weights(uint32_t, bool) {}\n  WMMA_DEVICE void after_weights() {}",
            SUPPLIES,
            {"target": "gfx950"},
        ),
        (
            "values_not_waited_for",
            "  }\n  WMMA_DEVICE void after_weights() { arch::wait_copies<0>(); }",
            "  }\n  WMMA_DEVICE void after_weights() {}",
            SUPPLIES,
            {"target": "gfx950"},
        ),
        (
            "keys_into_the_buffer_that_is_read",
            "others_.copy(tiles_ + buffer * Tiles::kKeyBytes, copy);",
            "others_.copy(tiles_ + (buffer ^ 1) * Tiles::kKeyBytes, copy);",
            SUPPLIES,
            {"target": "gfx950"},
        ),
        (
            "values_into_the_buffer_that_is_read",
            "values_.copy(tiles_ + (buffer ^ 1) * Tiles::kValueBytes);",
            "values_.copy(tiles_ + buffer * Tiles::kValueBytes);",
            SUPPLIES,
            {"target": "gfx950"},
        ),
        (
            "values_of_keys_that_are_not_there",
            "values_.fill(tiles_, ragged_);",
            "values_.copy(tiles_);",
            SUPPLIES,
            {"target": "gfx950", "caught": (EmulationError, Mismatch)},
        ),
        (
            "columns_in_the_order_of_memory",
            "Link::col_line(group + within % 4 * 4, 0);",
            "group % Link::kCols + within % 4 * 4;",
            "tile/transposed_columns.hpp",
            {"target": "gfx950", "caught": (Mismatch,)},
        ),
    )
]


def test_what_is_replaced_stands_there_once(sources):
    text = {file: (sources / "wmma" / file).read_text() for file in {of.file for of in WRONG}}
    found = {of.name: text[of.file].count(of.old) for of in WRONG}
    assert set(found.values()) == {1}, f"the headers have changed; write these anew: {found}"


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources, monkeypatch):
    path, case = sources / "wmma" / of.file, of.case
    monkeypatch.setattr(planner, "choose", lambda problem, target: of.configurations(problem, target, of.turn))
    torch.ops.wmma._forget_plans()
    run(case, f"emulated:{of.target}")  # right as it is
    path.write_text(path.read_text().replace(of.old, of.new))
    torch.ops.wmma._forget_plans()
    with pytest.raises(of.caught):
        run(case, f"emulated:{of.target}")
