"""Which tests run when: all, a quick part of them that changes with the commit, the rest of them, what a compiler is held to
that is not the pinned one, or what another release of torch is.

The quick part has one CDNA and one RDNA target of those that are emulated, with half of their values and of the emulator's
tests, for the device library one of those that kernels only compile for, every third of the kernels that are wrong on
purpose and of those that are drawn at random, nothing that is marked `full`, and no models. The turn is the commit's number,
so that many commits together run everything. The rest has half of the values of the other targets, by turns too, and a third
of their other tests; of a target whose code is another's half as many; and another third of the kernels that are wrong.

Another torch (tests/torch_versions.py) meets some tests of each kind that depend on it more than on us.
"""

import os
import subprocess
from pathlib import Path

from wmma_ops.hardware import arch

TIERS = ("full", "quick", "rest", "compilers", "torch")
WRONG = ("test_wrong.py", "test_wrong_kernels.py", "test_wrong_two_products.py", "test_wrong_turns.py")
THIRDS = 3
BY_HALVES = (  # on a target of each kind
    "test_from_end_to_end", "test_microkernels_do_what_they_say", "test_any_configuration_keeps_the_contract",
    "test_every_case_in_one_kernel", "test_half_of_the_values", "test_every_case_marches", "test_values", "test_gradients",
    "test_gradients_are_those_of_float64", "test_kernels_find_what_a_mask_function_shows", "test_values_in_turns",
    "test_tiles_that_nobody_sees_are_not_read", "test_wrong_numbers_reach_nothing_outside", "test_larger_cases",
    "test_rows_that_large_numbers_hide_whole", "test_the_same_bits_in_any_order_of_the_waves",
)  # fmt: skip
BY_THIRDS = (
    "test_is_caught", "test_values_and_gradients_by_kernels", "test_a_drawn_kernel_compiles_and_spills_nothing",
    "test_a_drawn_kernel_of_two_pairs_compiles_and_spills_nothing",
)  # fmt: skip
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
    return is_quick(item, turn) if tier == "quick" else not is_quick(item, turn) and is_targets_turn(item, turn)


def is_of_values(item) -> bool:
    return getattr(item, "originalname", "") == "test_kernels_keep_the_contract"


def is_by_thirds(item) -> bool:
    return item.path.name in WRONG or getattr(item, "originalname", "") in BY_THIRDS


def is_targets_turn(item, turn: int) -> bool:
    """Whether a test of the rest is of no target, of two that are compared, or of one in the part whose turn it is. Of those
    that kernels only compile for it is one's turn, and of kernels that are wrong on purpose another third's than the quick
    part's."""
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = {name for value in parameters if (name := target_of(value))}
    compiled = set(COMPILED).intersection(map(str, parameters))
    if not named and compiled:
        return COMPILED[(turn + 1) % len(COMPILED)] in compiled
    if not named and parameters and is_by_thirds(item):
        return is_in_part(item, -turn - 1, THIRDS)
    parts = (2 if is_of_values(item) else 3) * (2 if named <= set(TWINS) else 1)
    return len(named) != 1 or is_in_part(item, turn_of_parts(named, turn), parts)


def turn_of_parts(named: set[str], turn: int) -> int:
    """By which a test's parts take turns: those of the quick targets in rounds, as a CDNA target's turns are all odd or all
    even."""
    return turn // len(CDNA) if named <= set(targets(turn)) else turn


def is_in_part(item, turn: int, parts: int) -> bool:
    return (sum(item.callspec.id.encode()) + turn) % parts == 0


def is_of_compilers(item, turn: int) -> bool:
    """Kernels as people write them, and what a compiler once got wrong; by turns, the device library on half of the
    emulated targets, and a quarter of each one's values."""
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
    parameters = item.callspec.params
    return (parameters["part"] + arch.EMULATED.index(target_of(parameters["emulated"])) + turn) % 4 == 0


def is_quick(item, turn: int) -> bool:
    """Whether a test is of the quick part; `item` is pytest's."""
    if item.get_closest_marker("full") or item.path.parent.name == "models":
        return False
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    named = {name for value in parameters if (name := target_of(value))}
    if not named <= set(targets(turn)):
        return False
    parts_turn = turn_of_parts(named, turn)
    if named and (is_of_values(item) or item.path.parent.name == "emulator") and not is_in_part(item, parts_turn, 2):
        return False
    if item.path.parent.name == "emulator" and not set(COMPILED).isdisjoint(map(str, parameters)):
        return COMPILED[turn % len(COMPILED)] in map(str, parameters)
    if not hasattr(item, "callspec"):
        return True
    if is_by_thirds(item):
        return is_in_part(item, -turn, THIRDS)
    return getattr(item, "originalname", "") not in BY_HALVES or is_in_part(item, parts_turn, 2)


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
    return sum(item.callspec.id.encode()) % THIRDS == turn % THIRDS
