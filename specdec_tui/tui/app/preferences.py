"""Settings and the choice of models, changed from the palette, the side bar and by keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.settings import ModelChoice, SettingError, Settings, config_file, parse_value
from specdec_tui.tui.commands.config_store import save_settings

SETTINGS = frozenset(field.name for field in fields(Settings))


class PreferenceScreen(Protocol):
    """What a change asks of the screen."""

    @property
    def choice(self) -> ModelChoice:
        """The models that are loaded, or were asked for first."""

    def say(self, text: str, severity: SeverityLevel = "information", timeout: float = 5) -> None:
        """Tell a person."""

    def show_settings(self, changed: Mapping[str, Any]) -> None:
        """Settings have other values now."""

    def load(self, choice: ModelChoice) -> None:
        """Load other models."""

    def pick_models(self, choice: ModelChoice) -> None:
        """Let a person complete a choice of models."""


class Preferences:
    """The settings of the next run. Every change is saved for the next time."""

    def __init__(self, screen: PreferenceScreen, settings: Settings) -> None:
        self._screen = screen
        self.settings = settings

    def change(self, values: Mapping[str, Any]) -> None:
        """Take over valid values; those of the models lead to a load. A run at work keeps its own."""
        own = {name: value for name, value in values.items() if name in SETTINGS}
        if own:
            self.settings = replace(self.settings, **own)
            self._screen.show_settings(own)
            try:
                save_settings(config_file(), own)
            except SettingError as error:
                self._screen.say(str(error), "warning")
        if models := {name: value for name, value in values.items() if name not in SETTINGS}:
            self._change_models(models)

    def toggle_strategy(self, name: str) -> None:
        """Switch a strategy on or off; one stays on."""
        now = set(self.settings.strategies) ^ {name}
        if now:
            self.change({"strategies": parse_value("strategies", ",".join(now))})
        else:
            self._screen.say("At least one strategy stays on", "warning")

    def change_gamma(self, step: int) -> None:
        """So many draft tokens more in a round."""
        try:
            self.change({"gamma": parse_value("gamma", str(self.settings.gamma + step))})
        except SettingError as error:
            self._screen.say(str(error), "warning")

    def _change_models(self, values: Mapping[str, Any]) -> None:
        choice = self._screen.choice
        if "preset" in values:
            self._screen.load(ModelChoice(device=choice.device, dtype=choice.dtype, **values))
        elif "target" in values or "drafter" in values:
            # One load for both: the other half can be chosen before loading.
            self._screen.pick_models(replace(choice, **values))
        else:
            self._screen.load(replace(choice, **values))
