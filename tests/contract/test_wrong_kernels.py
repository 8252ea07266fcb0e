"""Kernels that are wrong on purpose. The sample of the value suite that runs on emulated targets must catch each."""

from collections.abc import Callable
from dataclasses import dataclass

import pytest

from wmma_ops.emulator import EmulationError, OutOfBounds, Race, Uninitialised
from wmma_ops.testing import AttentionCase, GemmCase, Mismatch, cases, run, sampling
from wmma_ops.testing.cases.case import Case

MOST_CASES = 6


@dataclass(frozen=True)
class Wrong:
    """What is replaced in the device sources, which cases should notice, and how."""

    name: str
    changes: tuple[tuple[str, str, str], ...]  # file, text that stands there once, what stands there instead
    notices: Callable[[Case], bool]
    caught: type[Exception] | tuple[type[Exception], ...] = Mismatch
    target: str = "gfx942"
    kind: type[Case] = GemmCase
    group: str = "attention"  # of attention's cases

    def __str__(self):
        return f"{self.name}-{self.target}"


def wrong(name, file, old, new, notices, caught=Mismatch, target="gfx942"):
    return Wrong(name, ((file, old, new),), notices, caught, target)


def wrong_attention(name, file, old, new, notices, caught=Mismatch, target="gfx942"):
    return Wrong(name, ((file, old, new),), notices, caught, target, AttentionCase)


def wrong_rule(name, file, old, new, notices, target="gfx942"):
    return Wrong(name, ((file, old, new),), notices, Mismatch, target, AttentionCase, "rules")


EPILOGUE, ROUNDING = "tile/epilogue.hpp", "tile/rounding.hpp"
GEMM, LOADER = "gemm/kernel.hpp", "tile/staged_loader.hpp"
OPERANDS = "gemm/operands.hpp"
BITS = "arch::bit_cast<uint32_t>(static_cast<float>(x)) >> 16"
TRUNCATED = f"if constexpr (kSame<D, bf16_t>) return arch::bit_cast<bf16_t>(static_cast<uint16_t>({BITS}));"


def _ragged(case):
    return case.m > 1 and case.n % 16 and case.k > 16


def _split(case):
    return case.k > 4000


def _many_keys(case):
    return case.skv > 300 and case.sq > 64 and case.mask is None and case.dtype == "float16"


def _growing(case):
    return _many_keys(case) and case.scale == 2


WRONG = [
    wrong(
        "forgets_bias",
        EPILOGUE,
        "x += beside.bias;",
        "x += E(0);",
        lambda case: case.bias and case.k > 0,
    ),
    wrong(
        "beta_twice",
        EPILOGUE,
        "arch::fma(static_cast<E>(p_.beta),",
        "arch::fma(static_cast<E>(p_.beta * p_.beta),",
        lambda case: case.c and case.beta not in (0, 1) and case.alpha != 0,
    ),
    wrong(
        "row_scale_by_column",
        EPILOGUE,
        "load(x.row_scale, p_.row_scale, row, 0);",
        "load(x.row_scale, p_.row_scale, column, 0);",
        lambda case: case.row_scale == "vector",
        (Mismatch, OutOfBounds),
    ),
    wrong(
        "activates_before_bias",
        EPILOGUE,
        "x += beside.bias;",
        "x = activate<Config::kActivation, E>(x) + beside.bias;",
        lambda case: case.bias and case.activation in ("gelu", "silu", "tanh", "sigmoid"),
        target="gfx1201",
    ),
    wrong(
        "forgets_alpha",
        EPILOGUE,
        "E x = static_cast<E>(p_.alpha) * convert<E>(sum);",
        "E x = convert<E>(sum);",
        lambda case: case.alpha not in (0, 1),
        target="gfx1201",
    ),
    wrong(
        "truncates_to_bfloat16",
        ROUNDING,
        "    return convert<D>(x);\n",
        f"    {TRUNCATED}\n    return convert<D>(x);\n",
        lambda case: case.dtype == "bfloat16" and case.out_dtype is None and case.n > 8 and case.k > 8,
        target="gfx1201",
    ),
    wrong(
        "wraps_instead_of_saturating",
        ROUNDING,
        "    x = x > kLow ? x : kLow;\n    x = x < kHigh ? x : kHigh;\n    return static_cast<D>(static_cast<int32_t>(x));",
        "    return static_cast<D>(static_cast<int64_t>(x));",
        lambda case: case.dtype == "int8" and case.out_dtype == "int8" and case.k > 2,
    ),
    wrong(
        "k_tail_not_masked",
        LOADER,
        "if (!kMasked || static_cast<int>(place_of(thread_, i).k) + k < limit) {",
        "if (true) {",
        lambda case: case.k % 16 and case.k > 1,
        (Mismatch, OutOfBounds),
    ),
    wrong(
        "scale_of_a_not_advanced",
        OPERANDS,
        "if constexpr (!kIsNone<Scale>) scale += k * stride;",
        "",
        lambda case: case.a_scale == "vector" and case.k > 64,
    ),
    wrong(
        "no_barrier_before_the_second_pair",
        GEMM,
        "if constexpr (kBytes > 0) arch::block_barrier();",
        "",
        lambda case: case.k2 is not None and case.k2 > 1 and case.k,
        (Race, Uninitialised),
        target="gfx1201",
    ),
    wrong(
        "every_part_of_k_takes_the_second_pair",
        "tile/tile_order.hpp",
        "return {first, end - first};",
        "return {0, p.k2};",
        lambda case: case.k2 is not None and case.k > 4000,
    ),
    wrong(
        "second_pair_at_the_batch_of_the_first",
        OPERANDS,
        "const B* matrix = element_at<B>(x.data, batch_offset<Config::kBatchDims>(p, x, batch));",
        "const B* matrix = element_at<B>(x.data, batch_offset<Config::kBatchDims>(p, p.b, batch));",
        lambda case: 3 in case.batch_b2 and not case.batch_b,
    ),
    wrong(
        "no_barrier_in_the_main_loop",
        "gemm/staged.hpp",
        "    b.template store<false>(to + TileA::kBytes);\n    arch::tile_barrier();",
        "    b.template store<false>(to + TileA::kBytes);",
        _split,  # many tiles
        (Race, Uninitialised),
    ),
    wrong(
        "no_barrier_before_the_first_tile",
        "gemm/staged.hpp",
        "      return;\n    }\n    arch::tile_barrier();",
        "      return;\n    }",
        _ragged,
        (Race, Uninitialised),
        target="gfx1201",
    ),
    wrong(
        "no_barrier_before_the_slabs",
        GEMM,
        "      if constexpr (Loop::kBytes > 0) arch::block_barrier();  // the slabs lie where the tiles lay\n",
        "",
        _ragged,
        Race,
    ),
    wrong(
        "stores_beyond_n",
        EPILOGUE,
        "column_of(slab, c) < p_.n",
        "column_of(slab, c) < p_.n + kVec",
        lambda case: _ragged(case) and case.n > 4,
        OutOfBounds,
    ),
    wrong(
        "stores_beyond_m",
        EPILOGUE,
        "row_of(slab, r) < p_.m",
        "row_of(slab, r) < p_.m + 1",
        lambda case: case.m % 16 and case.op == "matmul" and case.n > 1,
        OutOfBounds,
        target="gfx1201",
    ),
    Wrong(
        "reads_where_no_swizzle_wrote",
        (
            ("tile/wave_tile.hpp", "kIsA ? Tile::offset(first", "kIsA ? Tile::plain(first"),
            (
                "tile/shared_tile.hpp",
                "  static WMMA_CONSTEXPR uint32_t offset(",
                "  static WMMA_CONSTEXPR uint32_t plain(uint32_t line, uint32_t at) { return (line * kPitch + at) * 16; }\n"
                "  static WMMA_CONSTEXPR uint32_t offset(",
            ),
        ),
        lambda case: case.m > 8 and case.k > 32 and case.dtype in ("float16", "bfloat16"),
    ),
    wrong(
        "drops_a_split",
        EPILOGUE,
        "sums[e] += parts[i][e];",
        "sums[e] += split + i + 1 < p_.splits ? parts[i][e] : Sum(0);",
        _split,
    ),
    wrong(
        "splits_overlap",
        "tile/tile_order.hpp",
        "return {first, p.k - first < p.k_split ? p.k - first : p.k_split};",
        "return {first, p.k - first};",
        _split,
        target="gfx1201",
    ),
    wrong(
        "one_batch_for_all",
        "tile/batch.hpp",
        "offset += static_cast<int64_t>(batch) * x.batch_strides[kBatchDims - kDims];",
        "offset += 0;",
        lambda case: 3 in case.batch_a and case.m > 1,
    ),
    wrong_attention(
        "sums_do_not_follow_the_largest_score",
        "attention/softmax/following.hpp",
        "        sum_[m][i] *= factors[i];\n",
        "",
        _growing,
    ),
    wrong_attention(
        "results_do_not_follow_the_largest_score",
        "attention/softmax/following.hpp",
        "out[m][f] *= factors[Link::row_of(f)];",
        "out[m][f] *= Number(1);",
        _growing,
    ),
    wrong_attention(
        "sees_one_key_too_many",
        "attention/terms/row_mask.hpp",
        "+ p.shift + 1;",
        "+ p.shift + 2;",
        lambda case: case.causal == "top_left" and case.sq > 1 and case.skv > 20,
    ),
    wrong_attention(
        "rows_without_a_key_are_nan",
        "attention/softmax/rows.hpp",
        "Number(0) : -largest;",
        "-largest : -largest;",
        lambda case: case.mask == "blind" and case.sq < 20,
        target="gfx1201",
    ),
    wrong_attention(
        "least_number_in_another_unit",
        "attention/math.hpp",
        "static constexpr Number kUnit = Number(1);",
        "static constexpr Number kUnit = Number(1.5);",
        lambda case: case.mask == "least" and case.sq < 20,
    ),
    wrong_attention(
        "mask_in_the_unit_of_weights",
        "attention/terms/mask.hpp",
        "score += convert<Number>(*mask);",
        "score += convert<Number>(*mask) * Number(1.5);",
        lambda case: case.mask in ("least", "far") and case.sq < 20 and case.dtype != "float64",
        target="gfx1201",
    ),
    wrong_attention(
        "weights_of_the_splits_are_equal",
        "attention/passes/combine.hpp",
        "sum_ += sum * factor;",
        "sum_ += sum;",
        lambda case: case.skv > 1000 and case.sq == 3,
    ),
    wrong_attention(
        "tiles_of_heads_that_are_not",
        "attention/rows/dense.hpp",
        "left < most ? left : most;",
        "most;",
        lambda case: case.sq > 64 and case.heads * case.batch % 8 != 0,
        target="gfx1201",
    ),
    wrong_attention(
        "no_barrier_after_the_values",
        "attention/tiles/key_value_loaders.hpp",
        "WMMA_DEVICE void after_values() { arch::tile_barrier(); }",
        "WMMA_DEVICE void after_values() {}",
        _many_keys,
        Race,
        target="gfx1201",
    ),
    wrong_rule(
        "a_window_with_a_key_more",
        "attention/terms/row_mask.hpp",
        "return key >= begin_[i];",
        "return key + 1 >= begin_[i];",
        lambda case: case.window[0] in (0, 3) and case.sq > 4,
    ),
    wrong_rule(
        "a_window_with_a_key_more_where_scores_are_capped",
        "attention/terms/row_mask.hpp",
        "inside && key >= begin_[i]",
        "inside && key + 1 >= begin_[i]",
        lambda case: case.window[0] >= 0 and case.softcap and case.sq > 4,
    ),
    wrong_rule(
        "a_tile_is_whole_where_a_waves_last_row_sees_it",
        "attention/terms/row_mask.hpp",
        "keys_end(p, query_of(first_row), 0",
        "keys_end(p, query_of(first_row + kWaveRows - 1), 0",
        lambda case: case.causal and case.sq > 16 and case.skv > 32 and case.dtype == "float16",
        target="gfx1201",
    ),
    wrong_rule(
        "tiles_in_which_a_window_begins_as_whole_ones",
        "attention/loops/forward.hpp",
        "(seen_begin - begin + Config::kKeys - 1) / Config::kKeys",
        "(seen_begin - begin) / Config::kKeys",
        lambda case: case.window == (150, -1),
        target="gfx1201",
    ),
    wrong_rule(
        "splits_leave_keys_out",
        "attention/loops/forward.hpp",
        "share = (tiles + p.splits - 1) / p.splits * Config::kKeys;",
        "share = tiles / p.splits * Config::kKeys;",
        lambda case: case.window == (900, -1),
    ),
    wrong_rule(
        "every_lane_counts_the_sink",
        "attention/softmax/rows.hpp",
        "Link::place(lane, 0) == 0 ? kExcess * weight : Number(0);",
        "kExcess * weight;",
        lambda case: case.sinks == "heads" and case.special is None,
    ),
    wrong_rule(
        "every_split_has_the_sink",
        "attention/loops/forward.hpp",
        "!Config::kSplit || split == 0",
        "true",
        lambda case: case.window == (900, -1),
        target="gfx1201",
    ),
    wrong_rule(
        "distance_adds",
        "attention/terms/slopes.hpp",
        "arch::fma(-slopes_[i],",
        "arch::fma(slopes_[i],",
        lambda case: case.slopes and case.skv > 1,
    ),
    wrong_rule(
        "another_unit_of_the_cap",
        "attention/terms/cap.hpp",
        "p.rules.cap * static_cast<double>(Math::kUnit)",
        "p.rules.cap",
        lambda case: case.softcap == 2 and not case.sinks,
        target="gfx1201",
    ),
]


def _cases(of: Wrong):
    if of.kind is AttentionCase:
        found = [case for case in cases(of.group) if case.sq * case.skv * case.batch and of.notices(case)]
        return sorted(found, key=lambda case: case.sq * case.skv * case.e)[:MOST_CASES]

    def noticing(chosen):
        return [case for case in chosen if isinstance(case, GemmCase) and case.m * case.n and of.notices(case)]

    found = noticing(sampling.sample(0, of.target)) or noticing(cases())
    # The fewest elements first: they take the least time.
    return sorted(found, key=lambda case: case.m * case.n * max(case.k, 1))[:MOST_CASES]


def test_what_is_replaced_stands_there_once(sources):
    """Of all of them, whichever of them this run tries."""
    counts = {
        f"{of.name}: {file}, {old!r}": (sources / "wmma" / file).read_text().count(old)
        for of in WRONG
        for file, old, _ in of.changes
    }
    assert not {name: count for name, count in counts.items() if count != 1}, (
        "the headers have changed; write these anew"
    )


@pytest.mark.parametrize("of", WRONG, ids=str)
def test_is_caught(of, sources):
    for file, old, new in of.changes:
        path = sources / "wmma" / file
        path.write_text(path.read_text().replace(old, new))
    chosen = _cases(of)
    assert chosen
    kinds = []
    for case in chosen:
        try:
            run(case, f"emulated:{of.target}")
        except (Mismatch, EmulationError) as found:
            if isinstance(found, of.caught):
                return
            kinds.append(f"{type(found).__name__}: {found}"[:300])
    pytest.fail(f"{len(chosen)} cases, and none failed as it should; others: {kinds}\n{chosen}")


def test_the_copy_as_it_is_passes(sources):
    case = next(case for case in sampling.sample(0, "gfx942") if isinstance(case, GemmCase) and _ragged(case))
    run(case, "emulated:gfx942")
