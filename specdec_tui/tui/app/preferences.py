"""Settings and the choice of models, changed from the palette, the side bar and by keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.config_table import config_file
from specdec_tui.settings import (
    SPECULATIVE,
    ModelChoice,
    SettingError,
    Settings,
    flag_of,
    implied_processor,
    parse_value,
    unused_by,
)
from specdec_tui.several_drafters import asked_for, running, shown
from specdec_tui.tui.commands.table import key

SETTINGS = frozenset(field.name for field in fields(Settings))
IMMEDIATE = frozenset(("theme",))
"""Settings that are no part of a run."""


class PreferenceScreen(Protocol):
    """What a change asks of the screen."""

    @property
    def choice(self) -> ModelChoice:
        """The models that were asked for last, loaded or on their way."""

    @property
    def drafters(self) -> int:
        """How many are loaded."""

    @property
    def shows_another_run(self) -> bool:
        """Whether the panes show what was begun with settings of its own: a run at work, or an open trace."""

    @property
    def shows_trace(self) -> bool:
        """Whether they show an open trace."""

    def say(self, text: str, severity: SeverityLevel = "information", timeout: float = 5) -> None:
        """Tell a person."""

    def show_theme(self, name: str) -> str:
        """Take a theme's colours. Why that cannot be, in a line; else empty."""

    def show_settings(self, changed: Mapping[str, Any]) -> None:
        """Settings have other values now."""

    def load(self, choice: ModelChoice) -> None:
        """Load other models."""

    def pick_models(self, choice: ModelChoice) -> None:
        """Let a person complete a choice of models."""


class Preferences:
    """The settings of the next run. Every change is saved for the next time, but for those made over an open trace.

    And while they are held: then only what is no part of a run is saved, and all else is put back.
    """

    def __init__(self, screen: PreferenceScreen, settings: Settings) -> None:
        self._screen = screen
        self.settings = settings
        self._held: Settings | None = None

    def change(self, values: Mapping[str, Any], word: str = "") -> None:
        """Take over valid values; those of the models lead to a load. A run at work and a trace keep their own.

        `word` tells of the change in place of the usual words.
        """
        own = {name: value for name, value in values.items() if name in SETTINGS}
        if "theme" in own and (problem := self._screen.show_theme(own["theme"])):
            del own["theme"]
            self._screen.say(problem, "error")
            self._screen.show_settings({})  # whatever chose it shows again what there is
        if implied := implied_processor(own, now := self.settings.processor):  # as on the command line
            unused = " and ".join(map(flag_of, unused_by(now, own)))
            word = f"{implied['processor']} in place of {now}{self._when}, which has no use for {unused}"
            own |= implied
        if own:
            self.settings = replace(self.settings, **own)
            self._screen.show_settings(own)
            if not word and self._screen.shows_another_run and set(own) - IMMEDIATE:
                word = "Applies to the next run"
            if self._held is not None and set(own) - IMMEDIATE:
                word = f"{word or 'Set'}; only until the tour ends, nothing is saved"
                own = {name: value for name, value in own.items() if name in IMMEDIATE}
            if own and self._screen.shows_trace:
                word = f"{word or 'Set'}; for this session: in a replay nothing is saved"
            elif own:
                self._save(own)
            if word:
                self._screen.say(word)
        if models := {name: value for name, value in values.items() if name not in SETTINGS}:
            self._change_models(models)

    def hold(self) -> None:
        """These settings are to come back."""
        self._held = self.settings

    def put_back(self, for_good: bool = True) -> bool:
        """The held settings are those of the next run again, and stay held unless `for_good`.

        Whether all are as they were: what is no part of a run stays as it was changed.
        """
        held = self._held
        if held is None:
            return True
        if for_good:
            self._held = None
        kept = {name: getattr(self.settings, name) for name in IMMEDIATE}
        before, self.settings = self.settings, replace(held, **kept)
        if changed := _differing(before, self.settings):
            self._screen.show_settings(changed)
        return self.settings == held

    def _save(self, own: Mapping[str, Any]) -> None:
        from specdec_tui.tui.commands.config_store import save_settings  # not at a start

        try:
            save_settings(config_file(), own)
        except SettingError as error:
            self._screen.say(str(error), "warning")

    def toggle_strategy(self, name: str) -> None:
        """Switch a strategy on or off; one stays on."""
        asked, drafters = self.settings.strategies, self._screen.drafters
        now = set(running(asked, drafters)) ^ {name}
        if name not in shown(drafters):
            needed = SPECULATIVE.index(name) + 1
            self._screen.say(f"{name} takes {needed} drafters: {key('models')} loads them", "warning")
        elif now:
            word = (
                f"{name} on{self._when}"
                if name in now
                else f"{name} off{self._when}; {key(f'toggle {name}')} brings it back"
            )
            self.change({"strategies": parse_value("strategies", ",".join(asked_for(now, asked, drafters)))}, word)
        else:
            self._screen.say("At least one strategy stays on", "warning")

    def change_gamma(self, step: int) -> None:
        """So many draft tokens more in a round."""
        try:
            self.change({"gamma": parse_value("gamma", str(self.settings.gamma + step))})
        except SettingError as error:
            self._screen.say(str(error), "warning")

    @property
    def _when(self) -> str:
        return " from the next run" if self._screen.shows_another_run else ""

    def _change_models(self, values: Mapping[str, Any]) -> None:
        choice = self._screen.choice
        if "preset" in values:
            self._screen.load(ModelChoice(device=choice.device, dtype=choice.dtype, **values))
        elif "target" in values or "drafter" in values:
            # One load for both: the other half can be chosen before loading.
            self._screen.pick_models(replace(choice, **values))
        else:
            self._screen.load(replace(choice, **values))


def _differing(before: Settings, now: Settings) -> Mapping[str, Any]:
    """The settings that have other values now, with these."""
    return {name: getattr(now, name) for name in SETTINGS if getattr(now, name) != getattr(before, name)}
