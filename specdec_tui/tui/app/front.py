"""The screen as the parts of the app know it: what each of them may ask stands in the protocol beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from textual.content import Content
from textual.geometry import Region
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.timer import Timer
from textual.widget import Widget

from specdec_tui.several_drafters import running
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.app.own_themes import take_theme
from specdec_tui.tui.app.run_line import happening
from specdec_tui.tui.commands.header import State, one_row
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.summary import summary
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.prompt.box import placeholder
from specdec_tui.tui.terminal.collector import collect_everything

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo, Progress
    from specdec_tui.decoding.records import Checked, Event, Step
    from specdec_tui.settings import ModelChoice, Settings
    from specdec_tui.traces.format import Trace
    from specdec_tui.tui.app.app import SpecdecApp
    from specdec_tui.tui.app.joining import Home
    from specdec_tui.tui.app.runs import Play, Run
    from specdec_tui.tui.commands.dialog import Answer, Dialog
    from specdec_tui.tui.commands.footer import Place
    from specdec_tui.tui.inspector.panel import Inspector
    from specdec_tui.tui.panes.pane import StrategyPane
    from specdec_tui.what_ifs import WhatIf


class Front:
    """Brings what the parts ask to the widgets, and the words around the panes in line with what the parts are at."""

    def __init__(self, app: SpecdecApp) -> None:
        self._app = app

    # What the panes show, in words

    def settle(self) -> None:
        """Bring header, run line and prompt box in line with what the parts are at."""
        self._app.header.state, self._app.header.health = self._state, self._app.runs.health
        self._app.prompt_box.placeholder = self._placeholder
        self._app.prompt_box.cursor_blink = not self._app.runs.running  # each blink is a painting
        self.show_clock()
        self.show_fates()
        refusal, is_stuck = self._app.recordings.refusal, self._app.runs.state == "failed"
        self._app.grid.show_obstacle((refusal or "No models are loaded.") if is_stuck else "", bool(refusal))
        trace = self._app.recordings.trace
        if self._app.recordings.opened and trace is not None:
            # What it was made with, not what the next run will be.
            self._app.prompt_box.border_subtitle = f"trace: {summary(trace.header.run_settings())}"
        elif self._app.runs.run is not None and self._app.runs.run.is_aside:
            self._app.prompt_box.border_subtitle = f"tour: {summary(self._app.runs.run.settings)}"
        else:
            settings = replace(self.settings, chat=self._app.runs.chats)
            self._app.prompt_box.border_subtitle = summary(settings, self._app.runs.turns)
        self.show_keys()
        self._app.tour.look()

    def show_fates(self) -> None:
        """Name the fates of the tokens in sight."""
        if self._app.is_running and len(self._app.screen_stack) == 1:  # else the panes lie under something
            self._app.legend.explain(self._app.grid.fates, self._app.grid.fate_words)

    def show_keys(self) -> None:
        """The keys that matter where the focus is now."""
        self._app.footer.place, self._app.footer.drafters = self._place, self.drafters
        self._app.tour.name_keys()

    def show_clock(self) -> None:
        runs, opened, race = self._app.runs, self._app.recordings.opened, self._app.racing.race
        prompt = runs.last_prompt
        if self._app.recording.is_on:
            opened, prompt = self._app.recording.words
        elif runs.run is not None and runs.run.is_aside:
            opened, prompt = "tour", runs.run.prompt
        now = happening(prompt, runs.waiting, runs.running, opened, race, runs.before)
        if (sweep := self._app.laboratory.progress) is not None:
            now.append(Content.styled(f"γ sweep: {sweep.done} of {sweep.heats} parts", "bold $text-accent"))
        self._app.run_line.show(now, self._app.notices.shown)

    def show_missing_baseline(self) -> None:
        """In the place of the speedups: that there is nothing to measure against, and the keys that change that."""
        words = "no run of target to compare with"
        if not self._app.recordings.opened:
            has_target = "target" in self.settings.strategies
            repeats, adds = key("run again"), key("toggle target")
            words = f"no baseline: {repeats} repeats with target"
            if not has_target:
                words = f"no baseline: {adds} adds target, {repeats} repeats"
        self._app.stage.measure_against(None, words)

    @property
    def _place(self) -> Place:
        if self.dialog_is_open:
            return "dialog"
        at_work = self._app.runs.running or bool(self._app.runs.waiting)
        if self._app.prompt_box.has_focus:
            return "prompt at work" if at_work else "prompt" if self._app.prompt_box.text else "empty prompt"
        if self._app.side_bar is not None and self._app.side_bar.has_focus_within:
            return "side bar"
        if any(bar.has_focus_within for bar in self._app.query(FindBar)):
            return "search"
        if self._app.tour.is_on and self._app.racing.race is None:
            return "tour at work" if at_work else "tour"
        if self._app.grid.focused is not None and self._app.grid.focused.inspecting:
            return "inspector"
        if (race := self._app.racing.race) is not None:
            return "race" if race.playing else "race at rest"
        if at_work:
            return "at work"
        if self._app.recordings.trace is None:
            return "panes"
        return "trace" if self._app.runs.state == "failed" else "after a run"

    @property
    def _state(self) -> State:
        state: State = self._app.runs.state if self._app.runs.before is None else "waiting"
        of_the_past = self._app.racing.race is not None or (state == "failed" and bool(self._app.recordings.opened))
        return "trace" if of_the_past else state

    @property
    def in_the_middle(self) -> str:
        """What keeps the panes from showing a whole run; empty where they do."""
        if self._app.runs.running:
            return "The run is still at work: pin it when it has ended"
        if self._app.racing.race is not None:
            return f"The race is on: its figures are not whole ({key('race')} ends it)"
        return "The trace is still on its way to the panes" if self._app.stage.is_filling else ""

    @property
    def _placeholder(self) -> str:
        """What the empty prompt box says: whether a prompt would run."""
        if (app := self._app).runs.state != "failed":
            return placeholder(is_new=not (app.runs.running or app.recordings.trace or app.tour.is_known))
        there_is = "trace" if app.recordings.opened else "no models"
        return f"{there_is}: {key('models')} loads models ({key('panes')} first)"

    # What every part may ask

    @property
    def settings(self) -> Settings:
        return self._app.settings

    @property
    def drafters(self) -> int:
        return self._app.runs.drafters

    @property
    def strategies(self) -> tuple[str, ...]:
        """Those of the next run."""
        return running(self.settings.strategies, self.drafters)

    @property
    def choice(self) -> ModelChoice:
        return self._app.runs.wanted

    @property
    def focused(self) -> Widget | None:
        return self._app.focused

    @property
    def dialog_is_open(self) -> bool:
        return self._app.dialog_is_open

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        self._app.say(text, severity, timeout, holds)

    def say_no_more(self) -> None:
        """What was said is taken back."""
        self._app.notices.clear()
        self.show_clock()

    def post_message(self, message: Message) -> bool:
        return self._app.post_message(message)

    def copy_to_clipboard(self, text: str) -> None:
        self._app.copy_to_clipboard(text)

    @property
    def shows_another_run(self) -> bool:
        return self._app.runs.running or bool(self._app.recordings.opened) or self._app.recording.is_on

    @property
    def shows_trace(self) -> bool:
        return bool(self._app.recordings.opened)

    @property
    def current_pane(self) -> StrategyPane:
        return self._app.grid.current

    @property
    def run_settings(self) -> Settings:
        trace, run = self._app.recordings.trace, self._app.runs.run
        if trace is not None:
            return trace.header.run_settings()
        return self.settings if run is None else run.settings

    @property
    def shown_panes(self) -> Iterable[StrategyPane]:
        return self._app.grid.shown

    @property
    def all_panes(self) -> Iterable[StrategyPane]:
        return self._app.grid.panes.values()

    def ask(
        self, dialog: Dialog[Answer], answered: Callable[[Answer], None], left: Callable[[], None] = lambda: None
    ) -> None:
        def closed(answer: Answer | None) -> None:
            if answer is not None:
                answered(answer)
            else:
                left()

        self._app.push_screen(dialog, closed)

    def every(self, seconds: float, call: Callable[[], None]) -> Timer:
        def call_while_there_is_a_screen() -> None:
            if self._app.is_running:
                call()

        return self._app.set_interval(seconds, call_while_there_is_a_screen)

    def minimise(self) -> None:
        self._app.screen.minimize()

    # What runs ask

    def show_progress(self, progress: Progress | None) -> None:
        self._app.header.progress = progress
        is_load = progress is not None and self._app.runs.state == "loading"
        self._app.grid.show_loading(one_row(progress.stage) if is_load and progress is not None else "")

    def pair_loaded(self, pair: PairInfo) -> None:
        self._app.header.pair = pair
        if self._app.runs.running and (run := self._app.runs.run) is not None:  # begun before it was known what answers
            self._app.stage.begin(run.settings, run.turn, run.prompt, pair)
        else:
            shows_other = self.shows_trace or self._app.recording.is_on
            self._app.stage.learn(pair, () if shows_other else self.strategies)
        if self._app.side_bar is not None:
            self._app.side_bar.meet(pair)
        self._app.stage.allow_repeating(True)
        self._app.recordings.learn_environment()

    def run_begins(self, run: Run) -> Callable[[Event], object]:
        self._app.recording.end(emptied=False)
        if not run.is_aside:
            self._app.tour.leave(replaced=True)
        self._app.racing.stop()
        seen = self._app.recordings.begin(run, self._app.runs.pair)
        if not run.is_aside:
            self._app.prompt_box.remember(run.prompt)
        self._app.stage.begin(run.settings, run.turn, run.prompt, self._app.runs.pair)
        return seen

    def run_goes_on(self, batch: Sequence[Event]) -> None:
        self._app.stage.go_on(batch)

    def run_breaks(self, error: str) -> Sequence[Event]:
        return self._app.grid.abandon(error)

    def run_ended(self, run: Run) -> None:
        self._app.recordings.keep(run, self._app.runs.pair)
        if run.turn:
            self._app.grid.turn_ended(run.turn, run.prompt)
        if not run.is_aside:
            self._app.grid.show_only(self.strategies)
        self._app.call_after_refresh(collect_everything)

    def chat_is_new(self) -> None:
        self._app.grid.forget_turns()

    def give_back(self, prompt: str) -> None:
        self._app.prompt_box.give_back(prompt)

    # What the other parts ask

    def show_trace(self, trace: Trace, race: bool, run: Run | None = None) -> None:
        self._app.recording.end(emptied=False)
        self._app.tour.leave(replaced=True)
        self._app.racing.stop()
        self._app.stage.allow_repeating(self._app.runs.pair is not None)
        if self._app.runs.pair is None:
            self._app.header.pair = trace.header.pair()
        self._app.runs.last_prompt = trace.header.prompt
        self._app.stage.open(trace, *((run.turn, run.prompt) if run is not None else ()))
        self._app.grid.show_start()
        self.settle()
        if race:
            self._app.action_race()

    def photograph(self) -> str:
        if self.dialog_is_open:
            return ""
        self.say_no_more()
        return self._app.export_screenshot(title="specdec-tui")

    def take_up(self, prompt: str) -> None:
        self._app.prompt_box.take_up(prompt)
        self._app.prompt_box.focus()

    @property
    def room_for_panel(self) -> tuple[Region, int]:
        if (pane := self._app.screen_stack[0].maximized) is not None:
            return pane.region, pane.region.bottom
        panes, box = self._app.grid.region, self._app.prompt_box
        if not self._app.screen.has_class("-high"):  # no row to spare: the strip's are used, the prompt is left free
            return panes.union(self._app.grid.strip.region), panes.bottom
        return panes, (box if box.has_focus else self._app.footer).region.y

    def go_into(self, pane: StrategyPane) -> None:
        self._app.stage.make_way()
        self._app.grid.go_to(pane.strategy)

    def leave_panes(self) -> None:
        if self._app.grid.focused is not None:
            self._app.screen.set_focus(None)

    def put_up(self, panel: Inspector) -> None:
        self._app.screen_stack[0].mount(panel)

    # What what-ifs ask

    @property
    def shown_trace(self) -> Trace | None:
        return self._app.recordings.trace

    @property
    def pair(self) -> PairInfo | None:
        return self._app.runs.pair

    @property
    def why_no_what_if(self) -> str:
        runs = self._app.runs
        if runs.running or runs.waiting:
            return f"A run is at work: a what-if can begin when it has ended ({key('stop or quit')} stops it)"
        if self._app.racing.race is not None:
            return f"A race is on: {key('race')} ends it, then a what-if can begin"
        if runs.state == "ready":
            return ""
        loads = f"No models are loaded: {key('models')} loads models"
        return "The models are still loading" if runs.state == "loading" else loads

    def play(self, request: WhatIf, play: Play) -> bool:
        if begun := self._app.runs.play([request], play):
            self._app.inspection.close()
            self._app.grid.expect(request.name)
        return begun

    def goes_on_beside(self, batch: Sequence[Step | Checked]) -> None:
        self._app.stage.go_on_beside(batch)

    def break_what_if(self, error: str) -> Sequence[Event]:
        return self._app.grid.abandon(error)

    def home(self) -> Home:
        return self._app.recordings.home()

    def keep_what_if(self, events: Sequence[Event], home: Home) -> None:
        self._app.recordings.keep_what_ifs(events, home)

    def load(self, choice: ModelChoice) -> None:
        self._app.notices.clear()  # why the last load failed
        self._app.runs.load(choice)
        self._app.recording.wait(self._app.explaining)

    def pick_models(self, choice: ModelChoice) -> None:
        from specdec_tui.tui.screens.model_picker import ModelPicker  # not at a start

        self.ask(ModelPicker(choice, None if self._app.runs.pair is None else self._app.choice), self.load)

    def show_theme(self, name: str) -> str:
        """Take a theme's colours, a user's as its file has them now. Why that cannot be, in a line; else empty."""
        return take_theme(self._app, name)

    def show_settings(self, changed: Mapping[str, Any]) -> None:
        if self._app.side_bar is not None:
            self._app.side_bar.show(self.settings)
        self._app.texts.prompts.keep = self.settings.record
        if "strategies" in changed and not self.shows_another_run:
            self._app.grid.show_only(self.strategies)
            if self._app.stage.lacks_baseline:
                self.show_missing_baseline()
        self._app.runs.prepare()
        self.settle()
