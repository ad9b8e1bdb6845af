"""The full-screen app: what is on the screen, and which part each command calls."""

from __future__ import annotations

import os
from typing import ClassVar

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen

from specdec_tui.session import Engine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.several_drafters import running
from specdec_tui.tui.app.drawer import Drawer
from specdec_tui.tui.app.front import Front
from specdec_tui.tui.app.going_about import GoingAbout
from specdec_tui.tui.app.inspection import Inspection
from specdec_tui.tui.app.notices import Holds, Notices, always
from specdec_tui.tui.app.preferences import Preferences
from specdec_tui.tui.app.racing import Racing
from specdec_tui.tui.app.recording_messages import (
    BaselineFound,
    BaselineKnown,
    Exported,
    NotKept,
    SummedUp,
    TraceRead,
)
from specdec_tui.tui.app.recordings import Recordings, Replay
from specdec_tui.tui.app.run_line import RunLine
from specdec_tui.tui.app.runs import Runs
from specdec_tui.tui.app.stage import Stage
from specdec_tui.tui.app.steps_out import StepsOut
from specdec_tui.tui.app.stopping import Stopping
from specdec_tui.tui.app.texts import Texts
from specdec_tui.tui.app.themes import TOKEN_DEFAULTS, stylesheet, themes_for
from specdec_tui.tui.app.views import Views
from specdec_tui.tui.commands.footer import Footer
from specdec_tui.tui.commands.header import Header, one_row
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.commands.palette_rows import Act, Change, Row, rows_for
from specdec_tui.tui.commands.table import ANYWHERE, APP, bindings
from specdec_tui.tui.figures.comparison import ComparisonTable
from specdec_tui.tui.lines.compositor import SparingScreen
from specdec_tui.tui.panes.arrangement import NARROW, WIDE
from specdec_tui.tui.panes.grid import PaneGrid
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.panes.strip import PaneStrip
from specdec_tui.tui.prompt.box import PromptBox
from specdec_tui.tui.screens.help import HelpScreen
from specdec_tui.tui.screens.side_bar import SideBar
from specdec_tui.tui.terminal.key_order import KeysInOrder
from specdec_tui.tui.terminal.terminal import suspend, takes_picture
from specdec_tui.tui.tokens.cursor_pane import CursorPane
from specdec_tui.tui.tokens.legend import Legend

LONGEST_TIMER = 3600.0


class EngineReported(Message):
    """The mailbox of the engine's thread has something in it."""


class SpecdecApp(KeysInOrder, inherit_bindings=False):
    """Compares strategies live. All work on models happens in an `EngineThread`.

    What is on the screen, and which part each message and each command goes to. What the parts ask
    of the screen in return is in `Front`.
    """

    CSS_PATH = stylesheet()
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False  # it is one of the steps out
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-medium"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (9, "-low"), (16, "-high")]
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(APP, ANYWHERE)]

    def __init__(
        self, engine: Engine, settings: Settings, choice: ModelChoice, prompt: str = "", replay: Replay | None = None
    ) -> None:
        # Textual's own NO_COLOR filter leaves states told apart by grey levels only.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self.notices = Notices()
        self.front = Front(self)
        self.preferences = Preferences(self.front, settings)
        self.runs = Runs(self.front, engine, choice, prompt, wake=lambda: self.post_message(EngineReported()))
        self.recordings = Recordings(self.front, later=self.runs.engine.call)
        self.inspection = Inspection(self.front)
        self.texts = Texts(self.front, keep=settings.record)
        self.grid = PaneGrid(running(settings.strategies, 0))
        self.table = ComparisonTable()
        self.stage = Stage(self.grid, self.table, lambda: self.runs.running or self.racing.race is not None)
        self.racing = Racing(self.front, self.stage)
        self.going_about = GoingAbout(self.front, self.stage, self.inspection, self.say)
        self.stopping = Stopping(self.runs, self.say)
        self.views = Views(self.stage, self.say)
        self.drawer = Drawer()
        self.steps_out = StepsOut(self.front, self.grid, self.inspection, self.drawer, self.racing, self.recordings)
        self._replay = replay

    # What is on the screen

    def get_default_screen(self) -> SparingScreen:
        return SparingScreen()

    def compose(self) -> ComposeResult:
        self.header = Header()
        self.run_line = RunLine()
        self.body = Horizontal(self.grid, id="body")
        self.prompt_box = PromptBox(self.texts.prompts)
        self.legend = Legend()
        yield self.header
        yield self.run_line
        yield self.grid.strip
        yield self.body
        yield self.table
        yield self.legend
        yield self.prompt_box
        self.footer = Footer()
        yield self.footer

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if takes_picture(self):
            super()._display(screen, renderable)

    def on_mount(self) -> None:
        for theme in themes_for(self.console.color_system):
            self.register_theme(theme)
        self.theme = self.settings.theme
        self.table.display = False
        self.screen_change_signal.subscribe(self, lambda _: self.front.show_keys())  # a dialog opens or closes
        self.recordings.sweep()
        if self._replay is None:
            self.prompt_box.focus()
            self.front.load(self.choice)
        else:
            self.call_after_refresh(self._open, self._replay)
        # Behind the first painting: importing the model libraries holds the interpreter for a while.
        self.call_after_refresh(self.runs.engine.start)

    def on_unmount(self) -> None:
        self.runs.engine.close()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return TOKEN_DEFAULTS

    def _open(self, replay: Replay) -> None:
        self.recordings.show(replay.trace)
        self.screen.set_focus(None)  # keys are for the panes: no prompt can be run here
        if replay.speed is not None:
            self.action_race(f"{replay.speed:g}")
        for problem in replay.left_out:  # told before the app came, which covers it
            self.say(f"left out: {problem}", "warning", timeout=20)

    def on_descendant_focus(self) -> None:
        self.front.show_keys()
        self.inspection.settle()

    def on_descendant_blur(self) -> None:
        self.front.show_keys()

    @property
    def settings(self) -> Settings:
        return self.preferences.settings

    @property
    def side_bar(self) -> SideBar | None:
        return self.drawer.bar

    @property
    def choice(self) -> ModelChoice:
        return self.runs.choice

    @property
    def dialog_is_open(self) -> bool:
        return len(self.screen_stack) > 1

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person, once while it still stands: in the run line, and over the dialog that may lie on it.

        `holds`: what it says of a state is still so; it goes when that is over.
        """
        if not self.notices.say(text, severity, timeout, holds) or not self.is_running:
            return
        self.front.show_clock()
        self.set_timer(min(timeout, LONGEST_TIMER) + 0.05, self.front.show_clock)
        if self.dialog_is_open:
            self.notify(one_row(text), severity=severity, timeout=timeout, markup=False)

    # Messages: each goes to the part it concerns

    def on_engine_reported(self) -> None:
        """Take what has gathered, and come back for more after a while: one batch per painting."""
        if self.is_running and (pause := self.runs.take()) is not None:  # else the widgets are being taken down
            self.set_timer(pause, self.on_engine_reported)

    def on_trace_read(self, message: TraceRead) -> None:
        if self.is_running:
            self.recordings.read(message, self.runs.running)

    def on_not_kept(self, message: NotKept) -> None:
        self.say(message.problem, "error", timeout=20)

    def on_exported(self, message: Exported) -> None:
        self.recordings.exported(message)

    def on_summed_up(self, message: SummedUp) -> None:
        self.recordings.complete(message.trace, message.whole)

    def on_baseline_found(self, message: BaselineFound) -> None:
        if not self.is_running or message.trace is not self.recordings.trace:
            return
        self.recordings.complete(message.trace, message.measured)
        if message.baseline is not None:
            self.stage.measure_against_earlier(message.baseline)
        else:
            self.front.show_missing_baseline()

    def on_baseline_known(self, message: BaselineKnown) -> None:
        if self.is_running and self.runs.running and message.run is self.runs.run:
            self.stage.measure_against_earlier(message.baseline)

    def on_prompt_box_submitted(self, message: PromptBox.Submitted) -> None:
        self.runs.submit(message.text, self.prompt_box.accept)

    def on_prompt_box_earlier_wanted(self, message: PromptBox.EarlierWanted) -> None:
        self.texts.earlier_prompts()

    def on_cursor_pane_pointed(self, message: CursorPane.Pointed) -> None:
        assert isinstance(message.pane, StrategyPane)
        self.inspection.pointed(message.pane)
        self.front.show_keys()

    def on_cursor_pane_turned(self, message: CursorPane.Turned) -> None:
        self.inspection.turn(message.by)

    def on_strategy_pane_fates_changed(self) -> None:
        self.legend.explain(self.grid.fates, self.grid.fate_words)

    def on_resize(self) -> None:
        self.call_after_refresh(self.stage.give_room)

    def on_pane_strip_picked(self, message: PaneStrip.Picked) -> None:
        self.going_about.to(self.grid.panes[message.strategy])

    def on_side_bar_changed(self, message: SideBar.Changed) -> None:
        self.preferences.change(message.values)

    def on_side_bar_refused(self, message: SideBar.Refused) -> None:
        self.say(message.reason, "error")

    # Actions: one for each row of the table of commands

    def action_submit(self) -> None:
        self.prompt_box.action_submit()

    def action_run_again(self) -> None:
        self.runs.run_again()

    def action_new_chat(self) -> None:
        self.runs.new_chat()
        self.say("New chat: the conversation so far is forgotten")

    def action_toggle_strategy(self, name: str) -> None:
        if self.recordings.opened:
            self.say(self.stage.toggle_pane(name))
        else:
            self.preferences.toggle_strategy(name)

    def action_change_gamma(self, step: int) -> None:
        if self.recordings.opened and (trace := self.recordings.trace) is not None:
            then = "m loads models to run it with another" if self.runs.pair is None else "r runs it again"
            self.say(f"A trace keeps its γ {trace.header.run_settings().gamma}; {then}", "warning")
        else:
            self.preferences.change_gamma(step)

    def action_models(self) -> None:
        self.front.pick_models(self.choice)

    def action_inspect(self) -> None:
        self.inspection.toggle()

    def action_copy(self) -> None:
        self.texts.copy()

    def action_find(self) -> None:
        self.stage.make_way()
        self.texts.find()

    def action_earlier_prompts(self) -> None:
        self.texts.earlier_prompts()

    def action_open_trace(self, name: str = "") -> None:
        self.recordings.open_named(name)

    def action_history(self) -> None:
        self.recordings.history()

    def action_export(self, words: str = "") -> None:
        self.recordings.export(words, self.runs.running)

    def action_race(self, speed: str = "") -> None:
        if self.runs.running:
            at_work = "The race replays a finished run: this one is still at work"
            self.say(at_work, holds=lambda: self.runs.running or not self.grid.results)
        else:
            self.racing.toggle(self.recordings.trace, speed)

    def action_race_speed(self, step: int) -> None:
        self.racing.change_speed(step)

    def action_focus_prompt(self) -> None:
        self.front.minimise()
        self.prompt_box.focus()

    def action_step_out(self) -> None:
        self.steps_out.take()

    def action_next_pane(self, by: int) -> None:
        self.going_about.next(by)

    def action_go_to_pane(self, name: str) -> None:
        self.going_about.to_strategy(name)

    def action_cycle_view(self, view: str = "") -> None:
        self.views.cycle(view)

    def action_toggle_drafts(self) -> None:
        self.views.toggle_drafts()

    def action_scroll_pane(self, how: str) -> None:
        if not self.stage.scroll_table(how):
            self.stage.make_way()
            self.grid.current.action_scroll_view(how)

    def action_toggle_table(self) -> None:
        if not self.stage.toggle_table():
            waits = "The table compares strategies after a run"
            self.say(waits, holds=lambda: self.runs.running or not self.grid.results)
        elif told := self.stage.table_yields:
            self.say(told, holds=lambda: self.stage.table_yields == told)
        else:
            self.front.show_clock()

    def action_toggle_side_bar(self) -> None:
        if self.side_bar is None:
            self.stage.make_way()
            self.table.display = self.table.display and self.size.width >= NARROW
            self.drawer.open(self.body, self.settings, self.runs.asks, self.runs.pair)
        else:
            self.drawer.close()

    def action_toggle_maximise(self) -> None:
        self.going_about.toggle_maximise()

    def action_commands(self) -> None:
        def chosen(row: Row) -> None:
            match row:
                case Row(does=Change(values=values)):
                    self.preferences.change(values)
                case Row(does=Act(action=action)):
                    self.call_later(self.run_action, action)

        if not self.dialog_is_open:
            self.front.ask(Palette(self._rows_for), chosen)

    def _rows_for(self, text: str) -> list[Row]:
        return rows_for(text, self.settings, self.choice, self.runs.asks, self.runs.drafters)

    def action_help(self) -> None:
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss(None)
        elif not self.dialog_is_open:
            self.push_screen(HelpScreen(self.runs.drafters))

    def action_stop_or_quit(self) -> None:
        if self.stopping.stop_or_quit():
            self.exit(0)

    async def action_suspend(self) -> None:
        """To the shell; `fg` comes back."""
        at_work = self.runs.running
        if not await suspend(self):
            self.say("No shell waits behind this terminal: there is nothing to go back to")
        elif at_work:
            self.say("The run stood still meanwhile: its times are those of a disturbed clock", "warning", timeout=10)

    def action_stop(self) -> None:
        self.stopping.stop()

    async def action_quit(self) -> None:
        self.exit(0)
