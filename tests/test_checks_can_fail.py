"""Every check that the product makes, and the tests that plant the fault it is for.

A check that cannot fail says nothing. Whoever adds one adds a line here; a test that is renamed or deleted is missed.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
FAULTS = TESTS.parent / "docs" / "faults.md"

CHECKS: dict[str, dict[str, tuple[str, ...]]] = {
    "lossless: a strategy's text is the target's": {
        "backends/test_reference.py": (
            "test_cached_keys_that_are_wrong_are_found_in_every_pane",
            "test_a_prompt_that_is_cut_wrongly_is_found",
            "test_rewinds_that_forget_nothing_are_found",
            "test_a_fast_pass_of_the_cpu_over_wrong_keys_is_found",
            "test_a_captured_pass_at_wrong_places_is_found",
        ),
        "test_session.py": (
            "test_a_corrupted_strategy_is_called_different",
            "test_a_target_that_failed_is_no_reference",
        ),
        "decoding/test_lossless.py": (
            "test_a_token_within_the_bound_is_a_near_tie_and_one_beyond_is_not",
            "test_a_wide_bound_is_narrowed_to_what_rounding_does_on_the_text",
        ),
    },
    "distribution: the tests of the rules": {
        "decoding/test_distribution.py": (
            "test_skip_adjustment_fails_the_test_that_the_lossless_rules_pass",
            "test_mutant_wrong_residual_is_caught",
            "test_mutant_double_draw_is_caught",
            "test_mutant_rewind_off_by_one_is_caught",
        ),
        "decoding/test_greedy_equality.py": ("test_mutant_missing_bonus_is_caught",),
    },
    "beams: their ids are those of generate": {
        "backends/test_beam_generate.py": (
            "test_beams_that_are_not_moved_with_their_texts_are_found",
            "test_a_length_penalty_that_is_off_by_one_is_found",
            "test_a_text_that_is_taken_back_to_the_wrong_place_is_found",
            "test_keys_that_are_copied_short_of_where_texts_part_are_found",
        ),
    },
    "another tokenizer: q is the row that a draft was drawn from, on the target's vocabulary": {
        "decoding/test_distribution_other_tokenizers.py": (
            "test_mutant_row_that_is_not_normalised_again_is_caught",
            "test_mutant_q_of_the_row_that_is_not_mapped_is_caught",
            "test_mutant_draft_of_a_text_that_is_said_to_be_drawn_is_caught",
        ),
    },
    "compatibility: an id means one thing, to models and tokenizers": {
        "backends/test_compatibility.py": (
            "test_a_pair_that_does_not_belong_together_ends_a_benchmark_in_one_line",
            "test_ids_of_one_side_only_are_masked_and_named",
        ),
        "decoding/test_drafters.py": ("test_ids_that_only_one_side_has_get_probability_zero",),
    },
    "rewind: nothing is kept beside keys and values": {
        "backends/test_loading.py": ("test_a_state_beside_the_cache_is_found_and_the_text_recomputed",),
        "backends/test_causal_lm.py": ("test_the_probe_finds_a_model_that_remembers_beside_its_cache",),
        "backends/test_state_context.py": (
            "test_a_copy_that_misses_a_state_is_found",
            "test_states_in_the_modules_that_are_not_seen_are_found_out",
            "test_a_block_that_forgets_the_state_goes_token_by_token",
        ),
    },
    "rotations: they are those of generate at every length": {
        "backends/test_rotations.py": ("test_texts_before_across_and_beyond_the_switch_are_those_of_generate",),
        "backends/test_cuts.py": (
            "test_pieces_and_rewinds_give_the_logits_of_generate",
            "test_each_way_to_the_logits_is_looked_at_for_itself",
        ),
    },
    "inputs: a model is given what generate gives it": {
        "backends/test_generate_probe.py": (
            "test_a_planted_token_before_every_pass_of_generate_is_found",
            "test_a_loaded_model_with_such_a_fault_is_refused",
            "test_a_generate_that_fails_is_told_with_every_run",
        ),
    },
    "causality: no model looks ahead": {
        "backends/test_model_files.py": (
            "test_an_encoder_is_refused_by_name_though_a_table_lists_it",
            "test_a_decoder_whose_config_lets_it_look_ahead_is_refused",
        ),
    },
    "fast passes of the CPU give the model's logits": {
        "backends/test_loading.py": (
            "test_layers_that_do_not_give_the_logits_of_the_model_are_not_used",
            "test_a_wrong_product_of_any_number_of_tokens_is_found_before_it_is_used",
            "test_a_pass_that_does_not_compile_leaves_plain_layers_and_says_so",
            "test_a_numba_that_does_not_work_leaves_plain_layers_and_says_so",
        ),
        "backends/lean/test_compiled.py": ("test_damaged_files_are_compiled_again",),
    },
    "captured rounds give the model's logits": {
        "backends/test_device_run.py": (
            "test_kernels_that_give_other_logits_are_told_and_replaced_by_the_layers",
            "test_kernels_that_fail_are_told_and_replaced_by_the_layers",
            "test_models_whose_passes_depend_on_the_room_or_the_length_run_plainly",
            "test_what_cannot_be_captured_runs_plainly_and_says_why",
        ),
    },
    "numbers: scores are some": {
        "backends/test_not_numbers.py": ("test_a_captured_run_goes_on_and_says_so_and_the_next_one_is_captured_again",),
        "decoding/test_loop.py": ("test_scores_that_are_not_numbers_are_an_error",),
        "decoding/test_lossless.py": ("test_scores_that_are_no_numbers_are_different_and_leave_no_nan",),
    },
    "memory: what does not fit is not begun": {
        "backends/test_loading.py": ("TestRefusedBeforeWeights::test_a_model_larger_than_the_memory",),
        "backends/test_memory.py": ("test_an_impossible_fit_is_refused_with_the_numbers",),
        "backends/test_damaged_files.py": (
            "test_ten_million_layers_are_refused_before_one_is_built",
            "test_an_absurd_size_is_not_enough_memory",
        ),
        "backends/test_abandoned_loads.py": (
            "test_a_model_whose_modules_alone_fill_the_memory_is_not_built_to_the_end",
            "test_every_word_for_too_little_memory_becomes_not_enough_memory",
        ),
    },
    "weights: files, config and tensors belong together": {
        "backends/test_damaged_files.py": (
            "test_a_git_lfs_pointer_is_named_with_its_cure",
            "test_a_file_that_was_cut_off_is_named_with_its_cure",
            "test_a_shard_that_was_cut_off_is_found_before_the_first_is_loaded",
            "test_sizes_that_the_weight_files_do_not_have_are_found_before_memory_is_taken",
        ),
        "backends/test_model_files.py": (
            "test_layers_that_the_config_does_not_use_are_counted_named_and_told_with_every_run",
            "test_tensors_that_are_missing_or_of_another_shape_are_named",
        ),
        "backends/test_loading.py": ("test_weights_that_do_not_belong_to_the_config_are_refused",),
    },
    "generation config: what is not applied is told": {
        "backends/test_generation_fields.py": ("test_a_load_says_which_fields_are_not_applied_and_every_run_keeps_it",),
    },
    "ends: where a text ends elsewhere than that of generate is told": {
        "backends/test_end_tokens.py": (
            "test_a_text_ends_where_generate_ends_it",
            "test_what_ends_a_text_only_here_is_named_and_every_run_keeps_it",
        ),
    },
    "code: none of a model's runs": {
        "backends/test_model_files.py": (
            "test_a_config_does_not_choose_the_code",
            "test_pickled_weights_are_read_as_numbers_alone",
        ),
    },
    "chat templates: the prompt's text is in what they make, and they end": {
        "backends/test_chat_template.py": (
            "test_a_template_that_loses_the_prompt_is_refused_by_name",
            "test_a_template_that_keeps_a_little_of_the_prompt_is_refused",
            "test_an_endless_or_exploding_template_ends_with_a_reason",
        ),
    },
    "reliability: the clock can be believed": {
        "decoding/test_reliability.py": (
            "test_a_speedup_that_came_from_a_faster_machine_is_disturbed",
            "test_a_pass_over_more_tokens_that_is_cheaper_than_one_over_one_token_is_disturbed",
            "test_a_load_that_comes_and_goes_between_the_runs_is_disturbed",
        ),
        "benchmark/test_measuring.py": ("test_a_disturbed_run_has_no_bare_ratio_in_the_table_and_says_why",),
        "benchmark/test_loaded_screens.py": ("test_a_speedup_painted_green_above_the_tokens_of_a_call_is_a_fault",),
        "benchmark/test_changing_load.py": ("test_steady_runs_that_flatter_are_a_fault_under_both_schedules",),
    },
    "baselines: only comparable runs are compared": {
        "traces/test_baseline.py": (
            "test_another_pair_machine_version_or_step_is_not_comparable",
            "test_a_run_that_was_stopped_is_too_short_or_came_later_is_no_baseline",
        ),
    },
    "traces: format, order and bounds": {
        "traces/test_trace_files.py": ("test_a_damaged_file_says_what_is_wrong_and_where_in_one_line",),
        "traces/test_trace_bounds.py": ("test_what_no_run_can_hold_is_refused_with_line_field_and_bound",),
        "tui/app/test_recordings.py": ("test_a_damaged_trace_is_listed_with_its_fault_and_never_opened",),
        "test_cli.py": ("test_a_damaged_trace_is_one_line_for_replay",),
    },
    "settings: config, environment and flags": {
        "test_cli.py": (
            "test_bad_input_is_one_clear_line_and_status_2",
            "test_a_wrong_setting_stops_a_run_and_is_only_told_by_what_needs_none",
        ),
        "test_settings.py": ("test_a_hostile_config_is_one_short_line",),
    },
    "the demo pair: hash of the download, files of the folder": {
        "backends/test_demo.py": (
            "test_a_wrong_download_is_refused_deleted_and_fetched_again_next_time",
            "test_a_damaged_folder_is_not_taken_for_whole_and_is_built_anew",
            "test_a_full_disk_is_refused_before_anything_is_fetched",
        ),
        "backends/test_demo_download.py": ("test_a_server_that_never_ends_is_left_at_the_known_size",),
    },
    "bench: prompts and places are looked at before, runs after": {
        "benchmark/test_stopping.py": ("test_every_prompt_is_checked_before_the_first_is_measured",),
        "benchmark/test_measuring.py": (
            "test_a_file_that_cannot_be_written_is_found_before_measuring",
            "test_a_failed_run_fails_the_benchmark",
            "test_the_table_says_why_a_run_is_different_and_where",
        ),
        "benchmark/test_gpu_pair.py": ("test_a_side_that_writes_other_ids_is_told_in_the_table_and_the_json",),
    },
    "doctor: packages, config, torch, pair and decoding": {
        "test_doctor.py": (
            "test_a_package_that_is_missing_is_told",
            "test_a_damaged_config_file_is_told",
            "test_a_torch_that_does_not_import_is_told",
            "test_a_pair_that_does_not_load_is_told",
            "test_a_pass_that_fails_is_told",
            "test_a_strategy_that_writes_another_text_is_told",
        ),
    },
    "the fuzz: hostile inputs of every kind": {"fuzz/test_planted_faults.py": ("test_a_planted_fault_is_found",)},
    "the walks over the code: doors and layers": {
        "test_doors.py": ("test_the_walk_finds_what_goes_past_the_doors",),
        "test_layers.py": (
            "test_an_import_that_points_up_is_found_however_it_is_written",
            "test_a_room_that_is_entered_from_below_is_found_however_it_is_written",
        ),
    },
}


def named_in(code: str) -> set[str]:
    """The names of all tests in a file, those of a class with its name before them."""
    found = set()
    for node in ast.parse(code).body:
        inner = [(f"{node.name}::", each) for each in node.body] if isinstance(node, ast.ClassDef) else [("", node)]
        found |= {at + each.name for at, each in inner if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)}
    return found


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_has_tests_that_plant_its_fault(check: str) -> None:
    missed = {
        f"{file}::{name}"
        for file, names in CHECKS[check].items()
        for name in names
        if name not in named_in((TESTS / file).read_text(encoding="utf-8"))
    }
    assert CHECKS[check] and not missed, f"no such tests: {missed}"


def test_every_fault_of_the_list_has_the_tests_it_names() -> None:
    rows = [line for line in FAULTS.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    rows = [row for row in rows if not row.startswith("| before |")]
    named = {row: re.findall(r"`([\w/]+\.py)::(\w+)`", row.split(" | ")[-1]) for row in rows}
    assert all(named.values()), "a row without a test"
    missed = {
        f"{file}::{name}"
        for found in named.values()
        for file, name in found
        if name not in named_in((TESTS / file).read_text(encoding="utf-8"))
    }
    assert len(rows) > 80 and not missed, f"no such tests: {missed}"


def test_a_test_that_is_gone_is_missed() -> None:
    assert named_in("class A:\n    def test_b(self): ...\nasync def test_c(): ...") == {"A::test_b", "test_c"}
