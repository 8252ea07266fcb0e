"""Which tests run when: all, a quick part of them that changes with the commit, the rest of them, what a compiler is held to
that is not the pinned one, or what another release of torch is.

The quick part has, of one CDNA and one RDNA target that are emulated, a third of the values and a quarter of the other
tests, and a quarter of the kernels that are wrong on purpose and of those that are drawn at random; one of the targets that
kernels only compile for; a quarter of what BY_QUARTERS names, half of what BY_HALVES names; nothing that is marked `full`,
and no models. The turn is the commit's number, so that many commits together run everything. The rest has what the quick
part never has: of every other target a quarter of the values and a sixth of the other tests, half as many where its code is
another's; another one of those that are compiled for; half of the models'. All by turns too.

Another torch (tests/torch_versions.py) meets some tests of each kind that depend on it more than on us.
"""

import os
import subprocess
from pathlib import Path

from wmma_ops.hardware import arch

TIERS = ("full", "quick", "rest", "compilers", "torch")
WRONG = ("test_wrong.py", "test_wrong_kernels.py", "test_wrong_two_products.py", "test_wrong_ping_pong.py")
QUARTERS = 4
CAUGHT = ("is_caught", "are_caught", "wrong_number_is_found")  # how the names of tests of what is wrong on purpose end
DRAWN = (
    "test_a_drawn_kernel_compiles_and_spills_nothing", "test_a_drawn_kernel_of_two_pairs_compiles_and_spills_nothing",
)  # fmt: skip
BY_HALVES = (  # which differ by their parameters less than they have in common
    "test_python_and_the_headers_agree", "test_explain_of_attention_takes_its_own_sizes",
    "test_explain_makes_the_call_that_is_asked_for", "test_scaled_fp8_leaves_its_range_alike_everywhere",
    "test_gradcheck", "test_keys_and_values_of_any_size", "test_layout_draws", "test_nothing_spills",
    "test_a_signal_interrupts_a_call_and_the_next_is_right", "test_what_includes_a_header_is_compiled_again",
)  # fmt: skip
BY_QUARTERS = (  # so do these, and take longest
    "test_opcheck", "test_gradgradcheck", "test_jacobians_and_hessians_at_once", "test_every_block_runs",
    "test_from_end_to_end", "test_microkernels_do_what_they_say", "test_in_a_graph", "test_nobody_spills_for_passing_on",
    "test_values_of_tiles_ahead", "test_kernels_for_nvidia_take_what_the_library_has",
    "test_head_sizes_that_find_no_room_take_the_formula", "test_the_library_is_right_without_a_symbol",
    "test_an_instruction_uses_these_bits_and_no_others", "test_each_step_of_a_tuned_loop_is_quicker",
)  # fmt: skip
BY_SIXTHS = ("test_all_is_right_without_one_of_them",)  # of the rest
NVIDIA = "sm_90a"
COMPILED = ("sm_80", NVIDIA, "gfx1250")
NATURAL = (
    "test_natural_kernels.py", "test_padding.py", "test_source_lines.py", "test_kernel_arguments.py",
    "test_print_and_assert.py", "test_sleep_and_grid_sync.py", "test_device_clock.py",
)  # fmt: skip
DEVICE = ("test_math.py", "test_atomics.py", "test_wave.py", "test_compat.py")
CDNA = [name for name in arch.EMULATED if arch.target(name).family == "cdna"]
RDNA = [name for name in arch.EMULATED if arch.target(name).family != "cdna"]
TWINS = ("gfx1200", "gfx1151")  # gfx1201 has the same instructions, gfx1100 nearly


# Those of the tier `torch`: by file, the tests' names, or all.
OF_TORCH: dict[str, tuple[str, ...]] = {
    "test_registration.py": (),
    "test_transforms.py": (),
    "test_values.py": ("test_every_case_keeps_the_contract",),
    "test_robust.py": ("test_import_is_light",),
    "test_flops.py": (),
    "test_flash.py": (),
    "test_cpu_operands.py": (),
    "test_quick_gradients.py": (),
    "test_activation_gradient.py": (
        "test_a_compiled_graph_multiplies_no_more_often", "test_nor_without_a_smooth_activation",
        "test_recompute_keeps_nothing_in_a_compiled_graph", "test_what_is_differentiated_again_is_not_given_what_was_kept",
        "test_the_gradients_of_two_products_multiply_the_first_once",
    ),
    "test_layer_nodes.py": (),
    "test_gradients.py": (
        "test_gradcheck", "test_jacobians_and_hessians_at_once", "test_results_may_be_changed_in_place",
        "test_results_are_no_views", "test_graphs_name_their_ops", "test_in_place_is_seen_by_autograd",
        "test_forward_mode_is_refused_rather_than_wrong", "test_forward_mode_is_refused_under_reverse_mode_too",
    ),
    "test_compile.py": (
        "test_fullgraph_static", "test_sizes_known_only_as_it_runs", "test_sizes_known_only_as_it_runs_are_checked_then",
        "test_other_tracers_graphs_differentiate", "test_graphs_hold_the_op_itself", "test_export_with_a_dynamic_dimension",
        "test_registered_activations_compile",
    ),
    "test_inductor.py": (
        "test_backend_trains", "test_options_reach_inductor", "test_enable_composes_and_gives_the_slot_back",
        "test_a_graph_from_the_cache_calls_our_op", "test_disabled_stops_the_backend_too",
    ),
    "test_inductor_masks.py": (
        "test_a_mask_of_positions_is_a_rule", "test_another_stays_a_mask", "test_of_sizes_that_change_it_is_the_same_rule",
    ),
    "test_inductor_patterns.py": ("test_fires", "test_autocast", "test_names_a_layer_that_torch_computes_whole"),
    "test_swap.py": (
        "test_results_gradients_and_dropout", "test_hooks_run_before_and_after_swapping", "test_compile_before_and_after",
        "test_copies_files_and_state_dicts", "test_jit_trace",
    ),
    "test_swap_blocks.py": ("test_transformer_encoder", "test_nested_tensors_are_left_to_torch"),
    "test_swapped_mode.py": (
        "test_taken", "test_left_to_torch", "test_torch_refuses_in_its_own_words", "test_export", "test_transforms",
        "test_compile_around_and_within", "test_what_is_recomputed_is_ours_too",
    ),
    "test_kernel.py": (),
    "test_distributed.py": (
        "test_every_offer_on_two_processes", "test_a_block_by_tensor_parallel_plans",
        "test_fsdp_and_tensor_parallel_together", "test_any_placements_give_the_right_values",
        "test_unusual_placements", "test_gradients_of_uneven_parts", "test_second_derivatives",
    ),
    "test_torch_internals.py": (
        "test_says_what_it_is_for_and_in_which_releases_it_is", "test_all_is_right_without_any_of_them",
    ),
}  # fmt: skip


def turn() -> int:
    """Of this commit, or as WMMA_OPS_TURN says; 0 outside a repository."""
    if given := os.environ.get("WMMA_OPS_TURN"):
        return int(given)
    asked = ["git", "rev-list", "--count", "HEAD"]
    try:
        done = subprocess.run(asked, capture_output=True, text=True, cwd=Path(__file__).parent)
    except FileNotFoundError:
        return 0
    return int(done.stdout) if done.returncode == 0 else 0


def targets(turn: int) -> tuple[str, str]:
    """The pair whose turn it is: each with each other within sixteen."""
    return CDNA[turn % len(CDNA)], RDNA[(turn + turn // len(CDNA)) % len(RDNA)]


def target_of(value: object) -> str | None:
    """The emulated target that a test's parameter names, by itself or with more."""
    value = value[0] if isinstance(value, tuple) and value else value
    name = value.name if isinstance(value, arch.Target) else str(value).removeprefix("emulated:")
    return name if name in arch.EMULATED else None


def runs(item, tier: str, turn: int) -> bool:
    """Whether a test is of the tier; `item` is pytest's."""
    if tier in ("full", "torch"):
        return tier == "full" or is_of_torch(item, turn)
    if tier == "compilers":
        return is_of_compilers(item, turn)
    return is_quick(item, turn) if tier == "quick" else not is_quick(item, turn) and is_in_rest(item, turn)


def name_of(item) -> str:
    return getattr(item, "originalname", "")


def is_of_values(item) -> bool:
    return name_of(item) == "test_kernels_keep_the_contract"


def is_wrong_or_drawn(item) -> bool:
    return item.path.name in WRONG or name_of(item).endswith(CAUGHT) or name_of(item) in DRAWN


def of_target(item) -> tuple[set[str], set[str]]:
    """The emulated targets that a test's parameters name, and the others."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = {name for value in parameters if (name := target_of(value))}
    return named, set() if named else set(COMPILED).intersection(map(str, parameters))


def is_in_rest(item, turn: int) -> bool:
    """Whether a test that is not quick is of the rest this time."""
    named, compiled = of_target(item)
    if item.path.parent.name == "models":
        return is_in_part(item, turn, 2)
    if compiled and item.path.parent.name != "unit":
        return COMPILED[(turn + 1) % len(COMPILED)] in compiled
    if name_of(item) in BY_SIXTHS:
        return is_in_part(item, turn, 6)
    if not named:
        # What is wrong on purpose comes with another commit's quick part.
        return item.get_closest_marker("full") is not None or not is_wrong_or_drawn(item)
    parts = (4 if is_of_values(item) else 6) * (2 if named <= set(TWINS) else 1)
    return len(named) != 1 or is_in_part(item, turn_of_parts(named, turn), parts)


def turn_of_parts(named: set[str], turn: int) -> int:
    """By which a test's parts take turns: those of the quick targets in rounds, as a CDNA target's turns are all odd or all
    even."""
    return turn // len(CDNA) if named <= set(targets(turn)) else turn


def is_in_part(item, turn: int, parts: int) -> bool:
    name = item.callspec.id if hasattr(item, "callspec") else item.name
    return (sum(name.encode()) + turn) % parts == 0


def is_of_compilers(item, turn: int) -> bool:
    """Kernels as people write them, and what a compiler once got wrong; by turns, the device library on half of the
    emulated targets, and a quarter of the values of half of them (whose turn outlasts the compilers', .ci/compilers)."""
    if item.path.name in NATURAL:
        return True
    if item.path.name in DEVICE:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        named = [name for value in parameters if (name := target_of(value))]
        if not set(COMPILED).isdisjoint(map(str, parameters)):
            return False  # NVIDIA's compiler, and a target that not every clang knows
        return all((arch.EMULATED.index(name) + turn) % 2 == 0 for name in named)
    if getattr(item, "originalname", "") == "test_results_last_from_tile_to_tile":
        return True
    if not is_of_values(item):
        return False
    index = arch.EMULATED.index(target_of(item.callspec.params["emulated"]))
    return (item.callspec.params["part"] + index + turn) % 4 == 0 and (index + turn // 8) % 2 == 0


def is_quick(item, turn: int) -> bool:
    """Whether a test is of the quick part; `item` is pytest's."""
    if item.get_closest_marker("full") or item.path.parent.name == "models":
        return False
    named, compiled = of_target(item)
    if not named <= set(targets(turn)):
        return False
    if not hasattr(item, "callspec"):
        return True
    if compiled and item.path.parent.name != "unit":
        return COMPILED[turn % len(COMPILED)] in compiled
    if named and item.path.parent.name != "unit":
        return is_in_part(item, turn_of_parts(named, turn), 3 if is_of_values(item) else QUARTERS)
    if is_wrong_or_drawn(item):
        return is_in_part(item, -turn, QUARTERS)
    return is_in_part(item, turn, QUARTERS if name_of(item) in BY_QUARTERS else 2 if name_of(item) in BY_HALVES else 1)


def may_be_of(tier: str, path: Path) -> bool:
    """Whether a file may have tests of the tier."""
    if tier == "torch":
        return path.name in OF_TORCH or path.parent.name == "emulator"
    return tier != "quick" or path.parent.name != "models"


def is_of_torch(item, turn: int) -> bool:
    """Whether a test is of the tier `torch`. Each torch comes with an NVRTC of its own, which compiles the device library:
    a third of it by turns."""
    if item.path.name in OF_TORCH:
        names = OF_TORCH[item.path.name]
        return not names or item.originalname in names
    parameters = item.callspec.params if hasattr(item, "callspec") else {}
    if item.path.parent.name != "emulator" or NVIDIA not in map(str, parameters.values()):
        return False
    return sum(item.callspec.id.encode()) % 3 == turn % 3
