"""Settings without an app: what is saved, and what becomes of a choice of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from specdec_tui.setting_sources import resolve
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.preferences import Preferences


class Screen:
    choice = ModelChoice(device="cpu", target="old/target")
    shows_another_run = False
    shows_trace = False

    def __init__(self) -> None:
        self.said: list[str] = []
        self.shown: list[Mapping[str, Any]] = []
        self.loaded: list[ModelChoice] = []
        self.picked: list[ModelChoice] = []

    drafters = 1

    def say(self, text: str, severity: str = "information", timeout: float = 5) -> None:
        self.said.append(text)

    def show_theme(self, name: str) -> str:
        return ""

    def show_settings(self, changed: Mapping[str, Any]) -> None:
        self.shown.append(changed)

    def load(self, choice: ModelChoice) -> None:
        self.loaded.append(choice)

    def pick_models(self, choice: ModelChoice) -> None:
        self.picked.append(choice)


def test_a_change_is_shown_and_saved(config_file: Path) -> None:
    screen = Screen()
    preferences = Preferences(screen, Settings())
    preferences.change({"gamma": 7})
    assert preferences.settings.gamma == 7 and screen.shown == [{"gamma": 7}]
    assert "gamma = 7" in config_file.read_text()


def test_over_an_open_trace_a_change_holds_for_the_session_and_is_not_saved(config_file: Path) -> None:
    screen = Screen()
    screen.shows_another_run = screen.shows_trace = True
    preferences = Preferences(screen, Settings())
    preferences.change({"gamma": 7})
    preferences.change({"theme": "specdec-light"})
    preferences.change({"temperature": 0.5})
    assert preferences.settings == Settings(gamma=7, theme="specdec-light", processor="multinomial", temperature=0.5)
    assert all(told.endswith("; for this session: in a replay nothing is saved") for told in screen.said)
    assert "from the next run" in screen.said[2] and len(screen.said) == 3
    assert not config_file.exists()


def test_the_last_strategy_stays_on_and_gamma_stays_in_its_range(config_file: Path) -> None:
    screen = Screen()
    preferences = Preferences(screen, Settings(strategies=("lookup",), gamma=32))
    preferences.toggle_strategy("lookup")
    preferences.change_gamma(1)
    assert preferences.settings == Settings(strategies=("lookup",), gamma=32)
    assert ["At least one" in screen.said[0], "from 0 to 32" in screen.said[1]] == [True, True]
    assert not config_file.exists()


def test_half_a_pair_is_completed_before_it_is_loaded_and_a_preset_loads_at_once() -> None:
    screen = Screen()
    preferences = Preferences(screen, Settings())
    preferences.change({"drafter": "new/drafter"})
    assert screen.picked == [ModelChoice(device="cpu", target="old/target", drafter="new/drafter")]
    preferences.change({"preset": "demo"})
    preferences.change({"dtype": "float32"})
    assert screen.loaded == [
        ModelChoice(device="cpu", preset="demo"),
        ModelChoice(device="cpu", target="old/target", dtype="float32"),
    ]


def test_a_strategy_switched_off_says_which_key_brings_it_back_and_when_it_counts() -> None:
    screen = Screen()
    preferences = Preferences(screen, Settings())
    preferences.toggle_strategy("ngram")
    preferences.toggle_strategy("ngram")
    screen.shows_another_run = True
    preferences.toggle_strategy("ngram")
    preferences.toggle_strategy("ngram")
    assert screen.said == [
        "ngram off; 4 brings it back",
        "ngram on",
        "ngram off from the next run; 4 brings it back",
        "ngram on from the next run",
    ]


def test_a_change_behind_a_run_or_a_trace_is_told_unless_it_shows_at_once() -> None:
    screen = Screen()
    screen.shows_another_run = True
    preferences = Preferences(screen, Settings())
    preferences.change({"theme": "specdec-light"})
    assert screen.said == []
    preferences.change({"gamma": 6})
    assert screen.said == ["Applies to the next run"]


def test_a_sampling_value_under_greedy_takes_the_processor_that_uses_it_as_on_the_command_line() -> None:
    for change, processor in (
        ({"temperature": 0.5}, "multinomial"),
        ({"top_k": 40}, "topk"),
        ({"top_p": 0.9}, "nucleus"),
        ({"top_k": 40, "top_p": 0.9}, "topknucleus"),
        ({"processor": "greedy", "temperature": 0.5}, "greedy"),
        ({"gamma": 3}, "greedy"),
    ):
        screen = Screen()
        preferences = Preferences(screen, Settings())
        preferences.change(change)
        flags = {name: str(value) for name, value in change.items()}
        assert preferences.settings == resolve(flags, {}, Path("/nowhere"))[0]
        assert preferences.settings.processor == processor
        assert bool(screen.said) == (processor != "greedy")
    screen = Screen()
    Preferences(screen, Settings()).change({"temperature": 0.5})
    assert screen.said == ["multinomial in place of greedy, which has no use for temperature"]
    Preferences(screen, Settings(processor="nucleus")).change({"temperature": 0.5})
    assert len(screen.said) == 1
    preferences = Preferences(screen, Settings(processor="multinomial"))
    preferences.change({"top_k": 5})
    assert (preferences.settings.processor, preferences.settings.top_k) == ("topk", 5)
    assert screen.said[1:] == ["topk in place of multinomial, which has no use for top-k"]


def test_held_settings_come_back_and_are_never_saved_but_a_theme_stays(config_file: Path) -> None:
    screen = Screen()
    preferences = Preferences(screen, Settings())
    preferences.hold()
    preferences.change({"gamma": 3}, "γ 3 from the next run")
    assert preferences.settings.gamma == 3 and not config_file.exists()
    assert screen.said == ["γ 3 from the next run; only until the tour ends, nothing is saved"]
    assert preferences.put_back(for_good=False) and preferences.settings == Settings()
    assert screen.shown[-1] == {"gamma": Settings().gamma}
    preferences.change({"gamma": 5})
    preferences.change({"theme": "specdec-light"})
    assert "theme" in config_file.read_text() and "gamma" not in config_file.read_text()
    assert not preferences.put_back() and preferences.settings == Settings(theme="specdec-light")
    preferences.change({"gamma": 6})
    assert "gamma = 6" in config_file.read_text() and preferences.put_back()
