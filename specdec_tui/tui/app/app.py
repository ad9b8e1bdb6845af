"""The full-screen app: what is on the screen, and what each command does."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from pathlib import Path
from time import monotonic
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Footer, Static

import specdec_tui
from specdec_tui.session import Engine
from specdec_tui.settings import ModelChoice, SettingError, Settings, config_file, parse_value
from specdec_tui.tui.app.inspecting_app import BESIDE
from specdec_tui.tui.app.playback import PlaybackApp, Replay
from specdec_tui.tui.app.themes import THEMES, TOKEN_DEFAULTS
from specdec_tui.tui.commands.config_store import save_settings
from specdec_tui.tui.commands.header import Header
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.commands.palette_rows import Act, Change, Row, rows_for
from specdec_tui.tui.commands.table import ANYWHERE, APP, VIEWS, bindings
from specdec_tui.tui.figures.comparison import ComparisonTable
from specdec_tui.tui.lines.compositor import SparingScreen
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.panes.grid import NARROW, WIDE, PaneGrid
from specdec_tui.tui.prompt.box import PromptBox
from specdec_tui.tui.screens.help import HelpScreen
from specdec_tui.tui.screens.model_picker import ModelPicker
from specdec_tui.tui.screens.side_bar import SideBar
from specdec_tui.tui.terminal.collector import full_collections_on_request
from specdec_tui.tui.terminal.paste import pastes_kept_whole
from specdec_tui.tui.terminal.terminal import leaving_when_told, log_file, screen_to_ourselves
from specdec_tui.tui.tokens.legend import Legend

SECOND_PRESS_SECONDS = 3.0
SETTINGS = frozenset(field.name for field in fields(Settings))


def _stylesheet() -> Path:
    """In a wheel the stylesheet lies in the package, in a checkout beside it."""
    package = Path(specdec_tui.__file__).parent
    packaged = package / "app.tcss"
    return packaged if packaged.exists() else package.parent / "app.tcss"


class SpecdecApp(PlaybackApp, inherit_bindings=False):
    """Compares strategies live. All work on models happens in an `EngineThread`."""

    CSS_PATH = _stylesheet()
    ENABLE_COMMAND_PALETTE = False
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-medium"), (BESIDE, "-broad"), (WIDE, "-wide")]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP, ANYWHERE)]

    def __init__(
        self, engine: Engine, settings: Settings, choice: ModelChoice, prompt: str = "", replay: Replay | None = None
    ) -> None:
        # Textual's own NO_COLOR filter leaves states told apart by grey levels only.
        super().__init__(engine, settings, choice, prompt, ansi_color=True if os.environ.get("NO_COLOR") else None)
        self._replay = replay
        self.side_bar: SideBar | None = None
        self._left_for_side_bar: Widget | None = None
        self._pressed_stop = -SECOND_PRESS_SECONDS

    @property
    def escape_to_minimize(self) -> bool:
        """Escape closes what is open in a maximised pane first."""
        return super().escape_to_minimize and not self.query(FindBar)

    def get_default_screen(self) -> SparingScreen:
        return SparingScreen()

    def compose(self) -> ComposeResult:
        self.header = Header()
        self.run_line = Static(id="run-line")
        self.grid = PaneGrid(self.settings.strategies)
        self.table = ComparisonTable()
        self.prompt_box = PromptBox(self.prompt_history)
        yield self.header
        yield self.run_line
        self.body = Horizontal(self.grid, id="body")
        yield self.body
        yield self.table
        yield Legend()
        yield self.prompt_box
        yield Footer(compact=True)

    def on_mount(self) -> None:
        for theme in THEMES:
            self.register_theme(theme)
        self.theme = self.settings.theme
        self.table.display = False
        if self._replay is None:
            self.prompt_box.focus()
            self.load(self.choice)
        else:
            self.call_after_refresh(self._show_replay, self._replay)
        # Behind the first painting: importing the model libraries holds the interpreter for a while.
        self.call_after_refresh(self.engine.start)

    def _show_replay(self, replay: Replay) -> None:
        self.show(replay.trace)
        self.screen.set_focus(None)  # keys are for the panes: no prompt can be run here
        if replay.speed is not None:
            self.action_race(f"{replay.speed:g}")

    # Settings

    def change(self, values: Mapping[str, Any]) -> None:
        """Take over valid values; those of the models lead to a load. A run at work keeps its own."""
        own = {name: value for name, value in values.items() if name in SETTINGS}
        if own:
            self.settings = replace(self.settings, **own)
            self._show_settings(own)
            try:
                save_settings(config_file(), own)
            except SettingError as error:
                self.say(str(error), "warning")
        if models := {name: value for name, value in values.items() if name not in SETTINGS}:
            self._change_models(models)

    def _show_settings(self, changed: Mapping[str, Any]) -> None:
        if self.side_bar is not None:
            self.side_bar.show(self.settings)
        if "theme" in changed:
            self.theme = self.settings.theme
        self.prompt_history.keep = self.settings.record
        if "strategies" in changed and not self.running:
            self.grid.show_only(self.settings.strategies)
        elif self.running:
            self.say("Applies to the next run")
        self.prepare()
        self._settle()

    def _change_models(self, values: Mapping[str, Any]) -> None:
        if "preset" in values:
            self.load(ModelChoice(device=self.choice.device, dtype=self.choice.dtype, **values))
        elif "target" in values or "drafter" in values:
            # One load for both: the other half can be chosen before loading.
            self._open_picker(replace(self.choice, **values))
        else:
            self.load(replace(self.choice, **values))

    def on_side_bar_changed(self, message: SideBar.Changed) -> None:
        self.change(message.values)

    def on_side_bar_refused(self, message: SideBar.Refused) -> None:
        self.say(message.reason, "error")

    def on_side_bar_left(self) -> None:
        self.action_toggle_side_bar()

    # Actions: one for each row of the table of commands

    def action_submit(self) -> None:
        self.prompt_box.action_submit()

    def action_focus_prompt(self) -> None:
        self.screen.minimize()
        self.prompt_box.focus()

    def action_toggle_strategy(self, name: str) -> None:
        now = set(self.settings.strategies) ^ {name}
        if not now:
            self.say("At least one strategy stays on", "warning")
            return
        self.change({"strategies": parse_value("strategies", ",".join(now))})

    def action_run_again(self) -> None:
        if not self.last_prompt:
            self.say("Nothing has run yet: type a prompt first")
        elif self.waiting:
            self.say("One prompt is waiting already")
        elif not self.lacks_models():
            self.run_or_wait(self.last_prompt, again=True)

    def action_cycle_view(self, view: str = "") -> None:
        """The next view or a named one; in the focused pane alone, or in all when none has the focus."""
        if view and view not in VIEWS:
            self.say(f"view: '{view}' is not valid: give one of {', '.join(VIEWS)}", "error")
            return
        focused = [pane for pane in self.grid.shown if pane.has_focus_within]
        for pane in focused or self.grid.shown:
            if view:
                pane.view = view
            else:
                pane.cycle_view()

    def action_toggle_table(self) -> None:
        if not self.grid.results:
            self.say("The table compares strategies after a run")
            return
        self.table.show(self.finished_rows)
        self.table.display = not self.table.display

    def action_change_gamma(self, step: int) -> None:
        try:
            self.change({"gamma": parse_value("gamma", str(self.settings.gamma + step))})
        except SettingError as error:
            self.say(str(error), "warning")

    def action_models(self) -> None:
        self._open_picker(self.choice)

    def _open_picker(self, choice: ModelChoice) -> None:
        def picked(answer: ModelChoice | None) -> None:
            if answer is not None:
                self.load(answer)

        self.push_screen(ModelPicker(choice), picked)

    def action_toggle_side_bar(self) -> None:
        if self.side_bar is None:
            # Made when wanted: its many widgets would be styled again at every change of focus.
            self._left_for_side_bar = self.focused
            self.side_bar = SideBar(self.settings)
            self.table.display = self.table.display and self.size.width >= NARROW
            self.body.mount(self.side_bar)
        else:
            self.side_bar.remove()
            self.side_bar = None
            back = self._left_for_side_bar
            (self.prompt_box if back is None or not back.is_attached else back).focus()

    def action_toggle_maximise(self) -> None:
        if self.screen.maximized is not None:
            self.screen.minimize()
        else:
            pane = self.grid.current
            pane.focus()
            self.screen.maximize(pane, container=False)

    def action_commands(self) -> None:
        def chosen(row: Row | None) -> None:
            match row:
                case Row(does=Change(values=values)):
                    self.change(values)
                case Row(does=Act(action=action)):
                    self.call_later(self.run_action, action)

        if len(self.screen_stack) == 1:
            self.push_screen(Palette(lambda text: rows_for(text, self.settings, self.choice)), chosen)

    def action_help(self) -> None:
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss(None)
        elif len(self.screen_stack) == 1:
            self.push_screen(HelpScreen())

    def action_new_chat(self) -> None:
        self.new_chat()
        self.say("New chat: the conversation so far is forgotten")

    def action_stop_or_quit(self) -> None:
        """First press: stop the run and keep its text, take back a waiting prompt. Pressed again soon: quit."""
        now = monotonic()
        if now - self._pressed_stop < SECOND_PRESS_SECONDS:
            self.exit(0)
            return
        self._pressed_stop = now
        if self.running:
            self.stop()
            self.say("Stopping; ctrl+c again quits")
        elif self.waiting:
            self.stop()
            self.say("The prompt is back in the box; ctrl+c again quits")
        else:
            self.say("ctrl+c again quits")

    async def action_quit(self) -> None:
        self.exit(0)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return TOKEN_DEFAULTS


def run_app(
    engine: Engine, settings: Settings, choice: ModelChoice, prompt: str = "", replay: Replay | None = None
) -> int:
    """Open the app, on a pair or on a trace, and stay until it is left; returns the exit status.

    A load cannot be interrupted inside a library, so when one is still at work the process ends
    here, with the terminal restored and the output flushed, instead of waiting for it.
    """
    app = SpecdecApp(engine, settings, choice, prompt, replay)
    with leaving_when_told(lambda status: app.exit(return_code=status)):
        with screen_to_ourselves(log_file()), full_collections_on_request(), pastes_kept_whole():
            app.run()
        status = app.return_code or 0
        app.keep_unfinished()
    app.engine.close()
    if not app.engine.join(timeout=1.0):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
