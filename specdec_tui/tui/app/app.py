"""The full-screen app: what is on the screen, and which part each command calls."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, ClassVar

from rich.console import RenderableType
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen

from specdec_tui.several_drafters import running
from specdec_tui.tui.app.actions import Actions
from specdec_tui.tui.app.drawer import Drawer
from specdec_tui.tui.app.dressed_once import DressedOnce
from specdec_tui.tui.app.environment import environment_of
from specdec_tui.tui.app.first_minute import Recording
from specdec_tui.tui.app.front import Front
from specdec_tui.tui.app.going_about import GoingAbout
from specdec_tui.tui.app.inspection import Inspection
from specdec_tui.tui.app.laboratory import Laboratory
from specdec_tui.tui.app.notices import Holds, Notices, always
from specdec_tui.tui.app.pinning import Pinning
from specdec_tui.tui.app.preferences import Preferences
from specdec_tui.tui.app.racing import Racing
from specdec_tui.tui.app.recordings import Recordings, Replay
from specdec_tui.tui.app.run_line import RunLine
from specdec_tui.tui.app.runs import Runs
from specdec_tui.tui.app.stage import Stage
from specdec_tui.tui.app.steps_out import StepsOut
from specdec_tui.tui.app.stopping import Stopping
from specdec_tui.tui.app.texts import Texts
from specdec_tui.tui.app.themes import stylesheet
from specdec_tui.tui.app.tour_front import RecordingFront, TourFront
from specdec_tui.tui.app.touring import Tour
from specdec_tui.tui.app.views import Views
from specdec_tui.tui.app.what_ifs import WhatIfs
from specdec_tui.tui.commands.command import ANYWHERE, APP, INSPECT, RACE, TOUR, keys_of, use_keymap
from specdec_tui.tui.commands.footer import Footer
from specdec_tui.tui.commands.header import Header, one_row
from specdec_tui.tui.commands.keymap import AT_ONCE, Keymap
from specdec_tui.tui.commands.table import COMMANDS, bindings, key
from specdec_tui.tui.figures.comparison import ComparisonTable
from specdec_tui.tui.lines.inks import INKS
from specdec_tui.tui.lines.line_view import SCROLLING
from specdec_tui.tui.panes.arrangement import NARROW, WIDE
from specdec_tui.tui.panes.grid import PaneGrid
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.prompt.box import PromptBox
from specdec_tui.tui.terminal.collector import end_a_start
from specdec_tui.tui.terminal.terminal import takes_picture
from specdec_tui.tui.tokens.legend import Legend
from specdec_tui.tui.tour.panel import ExplainingPanel

if TYPE_CHECKING:
    from specdec_tui.session import Engine
    from specdec_tui.settings import ModelChoice, Settings
    from specdec_tui.tui.app.recording_messages import (
        BaselineFound,
        BaselineKnown,
        Exported,
        NotKept,
        SummedUp,
        TraceRead,
    )
    from specdec_tui.tui.panes.strip import PaneStrip
    from specdec_tui.tui.race.panel import RacePanel
    from specdec_tui.tui.screens.side_bar import SideBar
    from specdec_tui.tui.tokens.cursor_pane import CursorPane

LONGEST_TIMER = 3600.0


class EngineReported(Message):
    """The mailbox of the engine's thread has something in it."""


START_SECONDS = 5.0
"""How long nothing is collected: most of what a load imports comes in that time."""

SERVER_SECONDS = 5.0
"""Between two looks at a target's server, where nothing else is at work."""


class SpecdecApp(DressedOnce, Actions, inherit_bindings=False):
    """Compares strategies live. All work on models happens in an `EngineThread`.

    What is on the screen, and which part each message and each command goes to. What the parts ask
    of the screen in return is in `Front`.
    """

    CSS_PATH = stylesheet()
    COMPONENT_CLASSES: ClassVar[set[str]] = INKS
    ENABLE_COMMAND_PALETTE = False
    ESCAPE_TO_MINIMIZE = False  # it is one of the steps out
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (NARROW, "-medium"), (WIDE, "-wide")]
    VERTICAL_BREAKPOINTS = [(0, "-flat"), (9, "-low"), (16, "-high")]
    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(RACE),
        *bindings(APP, ANYWHERE, TOUR),
    ]  # they share keys; a race has them while it is on

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        choice: ModelChoice,
        prompt: str = "",
        replay: Replay | None = None,
        keymap: Keymap | None = None,
        tour: bool = False,
    ) -> None:
        # Textual's own NO_COLOR filter leaves states told apart by grey levels only.
        super().__init__(ansi_color=True if os.environ.get("NO_COLOR") else None)
        self._not_worn = self.dress(settings.theme)
        self.use_keys(keymap or {})
        self.notices = Notices()
        self.front = Front(self)
        self.preferences = Preferences(self.front, settings)
        self.runs = Runs(self.front, engine, choice, prompt, wake=lambda: self.post_message(EngineReported()))
        self.recordings = Recordings(self.front, later=self.runs.engine.call, describe=lambda: environment_of(engine))
        self.inspection = Inspection(self.front)
        self.what_ifs = WhatIfs(self.front)
        self.texts = Texts(self.front, keep=settings.record)
        self.grid = PaneGrid(running(settings.strategies, 0))
        self.table = ComparisonTable()
        self.stage = Stage(self.grid, self.table, lambda: self.runs.running or self.racing.race is not None)
        self.racing = Racing(self.front, self.stage)
        self.going_about = GoingAbout(self.front, self.stage, self.inspection, self.say)
        self.stopping = Stopping(self.runs, self.say)
        self.views = Views(self.stage, self.say)
        self.pinning = Pinning(self.stage, self.recordings, lambda: self.front.in_the_middle, self.say)
        self.drawer = Drawer()
        self.laboratory = Laboratory(
            self.front, self.stage, self.recordings, self.preferences, self.runs, self._unfinished
        )
        self.recording = Recording(RecordingFront(self), self.stage)
        self.tour = Tour(TourFront(self), lambda: self.explaining)
        self.steps_out = StepsOut(
            self.front, self.grid, self.inspection, self.drawer, self.racing, self.recordings, self.recording, self.tour
        )
        self._begins_with_tour = tour
        self._replay = replay

    def _unfinished(self) -> str:
        """Why the panes do not show a run to its end."""
        if self.runs.running:
            return "this one is still at work"
        if self.recording.is_on:
            return "this one is a recording"
        return f"a race is on, {key('race')} ends it" if self.racing.race is not None else ""

    def use_keys(self, keymap: Keymap) -> None:
        """Give commands these keys, in what they do and wherever they are told."""
        use_keymap(keymap)
        self.at_once = {
            key: command.action for command in COMMANDS if command.id in AT_ONCE for key in keys_of(command)
        }
        # Where keys of a pane or a race mean two things, Textual would take both from a key of which one gets another.
        shared = {how: key for key, how, _ in SCROLLING}
        shared |= {
            command.id: command.keys
            for command in COMMANDS
            if command.scope in (INSPECT, RACE) or command.action.startswith("scroll_pane")
        }
        self.set_keymap({**shared, **keymap} if keymap else {})

    # What is on the screen

    def compose(self) -> ComposeResult:
        self.header = Header()
        self.run_line = RunLine()
        self.body = Horizontal(self.grid, id="body")
        self.prompt_box = PromptBox(self.texts.prompts)
        self.legend = Legend()
        self.explaining = ExplainingPanel()
        yield self.header
        yield self.run_line
        yield self.explaining
        yield self.grid.strip
        yield self.body
        yield self.stage.lanes
        yield self.table
        yield self.legend
        yield self.prompt_box
        self.footer = Footer()
        yield self.footer

    def _display(self, screen: Screen[object], renderable: RenderableType | None) -> None:
        if takes_picture(self):
            super()._display(screen, renderable)

    def on_mount(self) -> None:
        self.table.display = False
        self.screen_change_signal.subscribe(self, lambda _: self.front.show_keys())  # a dialog opens or closes
        self.recordings.sweep()
        if self._replay is None:
            self.prompt_box.focus()
            self.front.load(self.choice)
            if self._begins_with_tour:
                self.tour.toggle()
        else:
            self.call_after_refresh(self._open, self._replay)
        if self._not_worn:
            self.say(f"left out: {self._not_worn}", "warning", timeout=20)
        self.set_interval(SERVER_SECONDS, self.runs.look_after_server)
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        """Behind the first painting: importing the model libraries holds the interpreter for a while."""
        self.runs.engine.start()
        self.set_timer(START_SECONDS, end_a_start)

    def on_unmount(self) -> None:
        self.runs.engine.close()

    def _open(self, replay: Replay) -> None:
        self.recordings.show(replay.trace, path=replay.path)
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
        self.tour.own_prompt_comes()
        self.runs.submit(message.text, self.prompt_box.accept)

    def on_text_area_changed(self) -> None:
        self.front.show_keys()  # an empty prompt has others

    def on_prompt_box_earlier_wanted(self, message: PromptBox.EarlierWanted) -> None:
        self.texts.earlier_prompts()

    def on_cursor_pane_pointed(self, message: CursorPane.Pointed) -> None:
        assert isinstance(message.pane, StrategyPane)
        self.inspection.pointed(message.pane)
        self.front.show_keys()

    def on_cursor_pane_what_if_wanted(self) -> None:
        self.what_ifs.ask()

    def on_cursor_pane_nothing_there(self, message: CursorPane.NothingThere) -> None:
        self.say(message.why)

    def on_cursor_pane_difference_wanted(self, message: CursorPane.DifferenceWanted) -> None:
        assert isinstance(message.pane, StrategyPane)
        self.inspection.go_to_difference(message.pane)

    def on_cursor_pane_turned(self, message: CursorPane.Turned) -> None:
        self.inspection.turn(message.by)

    def on_strategy_pane_fates_changed(self) -> None:
        self.front.show_fates()

    def on_resize(self) -> None:
        self.call_after_refresh(self.stage.give_room)
        self.tour.retell()

    def on_pane_strip_picked(self, message: PaneStrip.Picked) -> None:
        self.going_about.to(self.grid.panes[message.strategy])

    def on_race_panel_picked(self, message: RacePanel.Picked) -> None:
        self.racing.pick(message.strategy)

    def on_side_bar_changed(self, message: SideBar.Changed) -> None:
        self.preferences.change(message.values)

    def on_side_bar_refused(self, message: SideBar.Refused) -> None:
        self.say(message.reason, "error")
