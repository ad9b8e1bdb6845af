"""A fault planted in the product is found by the fuzz of its kind, among its first inputs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from campaign import campaign
from test_fuzz_configs import config_values
from test_fuzz_gguf import gguf_headers
from test_fuzz_keys import session
from test_fuzz_models import model_folders
from test_fuzz_settings import config_files
from test_fuzz_templates import templates
from test_fuzz_traces import trace_files

from specdec_tui import settings
from specdec_tui.backends import chat_template, config_faults, config_sizes, loading
from specdec_tui.backends.gguf import header
from specdec_tui.backends.lean.model import LeanContext
from specdec_tui.traces import export
from specdec_tui.tui.app.app import SpecdecApp

Plant = Callable[[pytest.MonkeyPatch], None]

MOST_INPUTS = 100  # the same ones on every machine: at most the 41st meets its fault
SLOWEST = 240.0  # seconds; that a machine is busy is not the fault to be found


def wrong_values_are_told_as_they_are(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(settings, "quoted", lambda value: f"'{value}'")


def refused_drafts_stay_in_the_text(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(LeanContext, "rewind", lambda self, length: None)
    plant.setattr(loading, "agrees", lambda *_: True)  # a load would find it


def the_librarys_own_words_stand_for_the_field(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(config_faults, "fault", lambda error, config, step: str(error))
    plant.setattr(config_sizes, "check_fields", lambda name, config: None)


def a_prompt_that_is_left_out_goes_unnoticed(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(chat_template, "_share", lambda prompt, text, other: 1.0)


def headers_are_read_beyond_their_end(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(header, "_CUT", ())


def exports_hold_what_a_terminal_obeys(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(export, "json_text", lambda value: json.dumps(value, ensure_ascii=False))


def a_narrow_terminal_ends_the_app(plant: pytest.MonkeyPatch) -> None:
    plant.setattr(SpecdecApp, "on_resize", lambda self: 1 // max(0, self.size.width - 4))


@pytest.mark.parametrize(
    ("makes", "plant", "words"),
    [
        (config_files, wrong_values_are_told_as_they_are, "more than a line|a terminal would obey"),
        (model_folders, refused_drafts_stay_in_the_text, "is different"),
        (config_values, the_librarys_own_words_stand_for_the_field, "raw words of an exception"),
        (lambda folder: templates(), a_prompt_that_is_left_out_goes_unnoticed, "lost the prompt without a word"),
        (gguf_headers, headers_are_read_beyond_their_end, "unpack_from requires a buffer|IndexError"),
        (trace_files, exports_hold_what_a_terminal_obeys, "a terminal would obey"),
        (lambda folder: lambda dice: asyncio.run(session(dice)), a_narrow_terminal_ends_the_app, "ZeroDivisionError"),
    ],
    ids=["settings", "models", "configs", "templates", "gguf", "traces", "keys"],
)
def test_a_planted_fault_is_found(
    makes: Callable[[Path], Callable[[Random], str]],
    plant: Plant,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setattr(chat_template, "SECONDS", 1)
    for name, value in {"campaign.SEED": "1", "campaign.FIRST": 0, "campaign.LONGEST": SLOWEST}.items():
        monkeypatch.setattr(name, value)
    monkeypatch.setattr("test_fuzz_keys.ANSWERS", SLOWEST)
    try_one = makes(tmp_path)
    plant(monkeypatch)
    with pytest.raises(pytest.fail.Exception, match=words):
        campaign("planted", try_one, seconds=SLOWEST, most_faults=1, most_inputs=MOST_INPUTS)
