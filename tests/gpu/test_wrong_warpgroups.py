"""Attention by sm_90a's warpgroups that is wrong on purpose: cases that `test_attention_warpgroups.py` finds right tell."""

from dataclasses import dataclass

import packed_scored
import pytest
import scored
import torch
from planted import Planted, check_that_each_stands_once
from warpgroup_cases import (
    BLOCKS,
    CAPPED,
    CAUSAL,
    DROPPED,
    LAST,
    LATE,
    NARROW_PAGES,
    NARROW_SCORED,
    PACKED_BLOCKS,
    PAGES,
    PASSED,
    SEQUENCES,
    SUNK,
    check_gradients,
    needs_gpu,
)

from wmma_ops.testing import AttentionCase, VarlenAttentionCase, run

KERNEL, TILES = "wmma/attention/loops/warpgroup.hpp", "wmma/attention/tiles/warpgroup_tiles.hpp"
LAST_TILES, NARROW_TILES = "wmma/attention/balanced/last_round.hpp", "wmma/attention/tiles/widened_tiles.hpp"
SOFTMAX, CAP = "wmma/attention/softmax/deferred.hpp", "wmma/attention/terms/cap.hpp"
GRADIENT_KERNEL = "wmma/attention/loops/warpgroup_gradients.hpp"
GRADIENT_TILES = "wmma/attention/tiles/warpgroup_gradient_tiles.hpp"


@dataclass(frozen=True)
class Wrong(Planted):
    case: AttentionCase | VarlenAttentionCase | scored.Case | packed_scored.PackedCase = CAUSAL


# None that may hang: what the queues count stays whole.
WRONG = [
    Wrong("results_do_not_follow", KERNEL, "x.rows.rescale(factors);", "x.rows.rescale({1.0f, 1.0f});"),
    Wrong("the_first_head_for_all", TILES, "x.head_stride == 0 ? 0 : static_cast<int32_t>(head)", "0"),
    Wrong(
        "values_of_the_tile_before",
        TILES,
        "p.v_map, work, pages, at);\n        }",
        "p.v_map, work, pages, {at.row - kKeys, at.number});\n        }",
    ),
    Wrong(
        "a_warpgroup_passes_a_tile_too_many", KERNEL, "key >= span.end && key", "key >= span.end - kKeys && key", PASSED
    ),
    Wrong("rows_without_a_key_so_far_are_known", SOFTMAX, "(arch::ballot(!known) == 0)", "(true)", CAPPED),
    Wrong("one_inverse_for_another", CAP, "b = ab * of_a;", "b = ab * of_c;", CAPPED),
    Wrong(
        "values_in_the_wrong_order", KERNEL, "step<false>(values, step, kStep)", "step<false>(values, step ^ 1, kStep)"
    ),
    Wrong(
        "bounded_too_late",
        TILES,
        "seen = Sight::keys_end(p, place.query(first), x.begin, x.end);",
        "seen = Sight::keys_end(p, place.query(first) + kKeys, x.begin, x.end);",
    ),
    Wrong("queries_of_the_first_sequence", TILES, "place.head, work.query(row));", "place.head, row);", SEQUENCES[1]),
    Wrong("keys_of_the_first_sequence", TILES, "key_head, work.key(tile.row));", "key_head, tile.row);", SEQUENCES[1]),
    Wrong("keys_of_the_first_of_many", TILES, "(work.key(row)) : tokens", "(row) : tokens", SEQUENCES[9]),
    Wrong(
        "a_part_too_few", TILES, "tile.row + line < work.end", "tile.row + line + kPartLines < work.end", SEQUENCES[9]
    ),
    Wrong("the_first_head_begun", TILES, "head = static_cast<int>(index % heads)", "head = 0", SEQUENCES[9]),
    Wrong("padding_left", TILES, "parts = p.sequences.count + blocks;", "parts = p.sequences.count;", SEQUENCES[10]),
    Wrong(
        "results_of_the_first_sequence",
        KERNEL,
        "place.head, work.query(first_row), box);",
        "place.head, first_row, box);",
        LATE,
    ),
    Wrong("values_that_are_no_numbers", KERNEL, "if (there >= kKeys || there", "if (true || there", SEQUENCES[8]),
    Wrong("one_page_for_a_tile", TILES, "number_of(row + first_line())", "number_of(row)", PAGES[1]),
    Wrong(
        "pages_of_the_first_sequence",
        TILES,
        "pages_of(p, static_cast<int>(work.place.batch))",
        "pages_of(p, 0)",
        PAGES[4],
    ),
    Wrong("the_first_rows_of_a_page", TILES, "row % kPageSize :", "first_line() % kPageSize :", PAGES[3]),
    Wrong("the_first_half_of_a_box_twice", NARROW_TILES, "* 16 ^ half * 64", "* 16", NARROW_PAGES[4]),
    Wrong(
        "widened_in_the_wrong_order",
        NARROW_TILES,
        "(share.chunk * 2 ^ share.line) * 16",
        "(share.chunk * 2 ^ share.line ^ 2) * 16",
        NARROW_PAGES[1],
    ),
    Wrong("narrow_values_that_are_no_numbers", NARROW_TILES, "if (there >= kKeys) return;", "return;", NARROW_SCORED),
    Wrong(
        "one_line_too_many_is_cleared", NARROW_TILES, "share.line < there", "share.line + 1 < there", NARROW_PAGES[1]
    ),
    Wrong("keys_without_their_scale", TILES, "multiply_by_key_descale(own, p, place);", "", NARROW_PAGES[2]),
    Wrong(
        "values_without_their_scale",
        KERNEL,
        "if constexpr (Rules::kScaled || kWidens) x.rows",
        "if constexpr (Rules::kScaled) x.rows",
        NARROW_PAGES[1],
    ),
    Wrong("half_a_tile_too_few", KERNEL, "span.end - key <= kKeys / 2;", "span.end - key <= kKeys / 2 + 32;"),
    Wrong("weights_of_keys_not_looked_at", KERNEL, "x.weights[i] = 0;", "x.weights[i] = 0x3c003c00u;"),
    Wrong("rows_of_a_warpgroup_passed", KERNEL, "first >= place.rows)", "first + 16 >= place.rows)", SEQUENCES[1]),
    Wrong("a_box_with_rows_of_a_neighbour", KERNEL, "first_row + 16 <= place.rows;", "first_row < place.rows;", LATE),
    Wrong(
        "nothing_is_dropped",
        KERNEL,
        "if constexpr (Rules::kDrops) mask.template",
        "if (false) mask.template",
        DROPPED[0],
    ),
    Wrong(
        "what_is_kept_is_not_multiplied", KERNEL, "x.rows.multiply(static_cast<float>(p.rules.kept))", "", DROPPED[0]
    ),
    Wrong(
        "functions_of_scores_in_another_unit",
        KERNEL,
        "SoftmaxOf<Config, float>> scale",
        "MaskedSoftmax<float, typename Config::Mask>> scale",
        scored.WITH_FUNCTIONS[0],
    ),
    Wrong(
        # (Where a part's sums are not written, those of the run before may still be there.)
        "one_parts_keys_for_all",
        TILES,
        "begin += static_cast<int>(part.split) * share;",
        "",
        LAST,
    ),
    Wrong("parts_of_the_first_tile", LAST_TILES, "(part.tile - p.whole)) * kTileRows", "0) * kTileRows", LAST),
    Wrong(
        "one_tile_for_another",
        "wmma/attention/passes/combine.hpp",
        "tile = p.whole + static_cast",
        "tile = static_cast",
        LAST,
    ),
    Wrong("sinks_in_every_part", KERNEL, "if (work.part.split == 0) x.rows", "if (true) x.rows", SUNK),
    Wrong("masked_blocks_are_whole", KERNEL, "(Rules::kHides && !mask.whole)", "false", BLOCKS),
    Wrong(
        "keys_of_the_block_before",
        TILES,
        "pages.start(row);\n          copy_keys(next);",
        "pages.start(row);\n          copy_keys(at);",
        BLOCKS,
    ),
    Wrong(
        "values_of_the_next_block",
        TILES,
        "copy_values(at);\n          at = next;\n        }",
        "copy_values(next);\n          at = next;\n        }",
        BLOCKS,
    ),
    Wrong(
        "blocks_of_the_first_sequence",
        "wmma/attention/rows/blocks.hpp",
        "batch * x.batch_stride + head * x.head_stride + offset",
        "head * x.head_stride + offset",
        PACKED_BLOCKS,
    ),
]

# None that changes what a queue, a barrier or a turn counts.
WRONG_GRADIENTS = [
    Planted(name, file, old, new)
    for name, file, old, new in (
        ("lse_in_the_place_of_delta", GRADIENT_TILES, "= statistics[1][i];", "= statistics[0][i];"),
        ("no_delta", GRADIENT_KERNEL, "weights[f] * (slopes[f] - tile", "weights[f] * (slopes[f] - 0.5f * tile"),
        (
            "the_first_head_of_the_group",
            GRADIENT_TILES,
            "p.q_map, heads.batch, head, row",
            "p.q_map, heads.batch, heads.first, row",
        ),
        ("never_bounded", GRADIENT_KERNEL, "tile.bounded ? weigh<true>", "false ? weigh<true>"),
        (
            "across_in_the_wrong_order",
            "wmma/tile/warpgroup_product.hpp",
            "Columns::template step<false>(columns, step, kWarpgroupStep)",
            "Columns::template step<false>(columns, step ^ 1, kWarpgroupStep)",
        ),
        ("slopes_of_one_warpgroup_twice", GRADIENT_KERNEL, "step / kSteps * kRowBytes", "0 * step * kRowBytes"),
        (
            "slopes_of_the_tile_before",
            GRADIENT_KERNEL,
            "multiply_all_slopes(x, again.slopes, g_q[0]);",
            "multiply_all_slopes(x, x.start + kSlopeStart + (x.number + 1) % 2 * SlopeTile::kBytes, g_q[0]);",
        ),
        (
            "the_last_one_forgets_the_others",
            GRADIENT_KERNEL,
            "sums[0][i + j] += before[j];",
            "sums[0][i + j] += 0.0f * before[j];",
        ),
        (
            "the_first_one_adds_to_what_was_there",
            GRADIENT_TILES,
            "if (passed_dq.before == 0) {",
            "if (passed_dq.before == 0 && false) {",
        ),
        (
            "the_second_one_writes_over_the_first",
            GRADIENT_TILES,
            "if (passed_dq.before == 0) {",
            "if (passed_dq.before <= 1) {",
        ),
    )
]
GROUPED = AttentionCase(batch=2, heads=4, kv_heads=2, sq=300, skv=450, e=64, dtype="float16", causal="bottom_right")


def test_what_is_replaced_stands_there_once(sources):
    check_that_each_stands_once(sources, [*WRONG, *WRONG_GRADIENTS])


def _spoil():
    """What nobody writes would otherwise have what is right, of the call before."""
    torch.cuda.empty_cache()
    for count, size in ((64, 2**19), (8, 2**25)):  # of the allocator's small pieces, and of its large ones
        held = [torch.full((size // 4,), float("nan"), device="cuda") for _ in range(count)]
        del held


def _several_times(case, times: int = 5):
    for _ in range(times):
        if isinstance(case, packed_scored.PackedCase):
            packed_scored.check(case, packed_scored.results(case, packed_scored.ours, device="cuda"))
        elif isinstance(case, scored.Case):
            scored.check(case, scored.results(case, scored.ours, device="cuda"))
        else:
            run(case, "cuda")


@needs_gpu
@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    _several_times(of.case, 1)  # right as it is
    _spoil()
    of.plant(sources)
    with pytest.raises(AssertionError):  # by its values: a kernel that does not run tells nothing
        _several_times(of.case)


@needs_gpu
@pytest.mark.parametrize("of", WRONG_GRADIENTS, ids=str)
def test_wrong_gradients_are_caught(of, sources):
    check_gradients(GROUPED)  # right as it is
    of.plant(sources)
    with pytest.raises(AssertionError):  # the values, or the bits of a second time
        check_gradients(GROUPED)
