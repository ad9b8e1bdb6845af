"""What each row of the table of commands does: which part of the app it calls."""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING

from textual.containers import Horizontal
from textual.notifications import SeverityLevel

from specdec_tui.tui.app.letters import instead_of
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.commands.examples import EXAMPLES
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.panes.arrangement import NARROW
from specdec_tui.tui.terminal.key_order import KeysInOrder
from specdec_tui.tui.terminal.terminal import suspend

if TYPE_CHECKING:
    from specdec_tui.settings import ModelChoice, Settings
    from specdec_tui.tui.app.drawer import Drawer
    from specdec_tui.tui.app.first_minute import Recording
    from specdec_tui.tui.app.front import Front
    from specdec_tui.tui.app.going_about import GoingAbout
    from specdec_tui.tui.app.inspection import Inspection
    from specdec_tui.tui.app.laboratory import Laboratory
    from specdec_tui.tui.app.pinning import Pinning
    from specdec_tui.tui.app.preferences import Preferences
    from specdec_tui.tui.app.racing import Racing
    from specdec_tui.tui.app.recordings import Recordings
    from specdec_tui.tui.app.runs import Runs
    from specdec_tui.tui.app.stage import Stage
    from specdec_tui.tui.app.steps_out import StepsOut
    from specdec_tui.tui.app.stopping import Stopping
    from specdec_tui.tui.app.texts import Texts
    from specdec_tui.tui.app.touring import Tour
    from specdec_tui.tui.app.views import Views
    from specdec_tui.tui.app.what_ifs import WhatIfs
    from specdec_tui.tui.commands.palette_rows import Row
    from specdec_tui.tui.figures.comparison import ComparisonTable
    from specdec_tui.tui.panes.grid import PaneGrid
    from specdec_tui.tui.prompt.box import PromptBox
    from specdec_tui.tui.screens.side_bar import SideBar

_RACE_ACTIONS = ("race_pause", "race_round", "race_jump", "race_end", "race_lane")


class Actions(KeysInOrder, inherit_bindings=False):
    """One method for each row; `SpecdecApp` makes the parts that they call."""

    front: Front
    preferences: Preferences
    runs: Runs
    recordings: Recordings
    inspection: Inspection
    what_ifs: WhatIfs
    texts: Texts
    grid: PaneGrid
    table: ComparisonTable
    stage: Stage
    racing: Racing
    going_about: GoingAbout
    stopping: Stopping
    views: Views
    pinning: Pinning
    drawer: Drawer
    laboratory: Laboratory
    steps_out: StepsOut
    recording: Recording
    tour: Tour
    prompt_box: PromptBox
    body: Horizontal

    @abstractmethod
    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""

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

    def action_submit(self) -> None:
        self.prompt_box.action_submit()

    def action_example(self, number: int) -> None:
        self.tour.own_prompt_comes()
        self.runs.submit(EXAMPLES[number].prompt, accept=lambda prompt: None)  # what is in the box stays there

    def action_try_example(self, number: int) -> None:
        if self.recording.is_on or self.grid.is_untouched:  # the recording is nobody's
            self.action_example(number)
        else:
            self.say(instead_of(EXAMPLES[number]))

    def action_run_again(self) -> None:
        if self.tour.is_on:
            self.tour.repeat()
        else:
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
            loads = f"{key('models')} loads models to run it with another"
            then = loads if self.runs.pair is None else f"{key('run again')} runs it again"
            self.say(f"A trace keeps its γ {trace.header.run_settings().gamma}; {then}", "warning")
        else:
            self.preferences.change_gamma(step)

    def action_lab(self) -> None:
        self.laboratory.enter()

    def action_models(self) -> None:
        self.front.pick_models(self.choice)

    def action_inspect(self) -> None:
        if not self.tour.mark():
            self.inspection.toggle()

    def action_branch(self) -> None:
        self.what_ifs.ask()

    def action_what_if(self, words: str = "") -> None:
        self.what_ifs.ask_whole(words)

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
        elif speed:
            self.racing.toggle(self.recordings.trace, speed)
        else:
            self.racing.press(self.recordings.trace)

    def action_race_speed(self, step: int) -> None:
        self.racing.change_speed(step)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The keys of the tour and of a race are free for others while there is none."""
        if action == "tour_step":
            return self.tour.is_on and self.racing.race is None
        return self.racing.race is not None if action in _RACE_ACTIONS else super().check_action(action, parameters)

    def action_race_pause(self) -> None:
        self.racing.pause()

    def action_race_round(self, by: int) -> None:
        self.racing.step(by)

    def action_race_jump(self, by: int) -> None:
        self.racing.jump(by)

    def action_race_end(self, which: int) -> None:
        self.racing.to_end(which)

    def action_race_lane(self, by: int) -> None:
        self.racing.choose(by)

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

    def action_pin(self) -> None:
        self.pinning.pin()

    def action_unpin(self) -> None:
        self.pinning.unpin()

    def action_toggle_table(self) -> None:
        if self.racing.race is not None:
            self.stage.toggle_lanes()
        elif self.recording.is_on or not self.stage.toggle_table():
            waits = "The table compares strategies after a run"
            self.say(waits, holds=lambda: self.runs.running or self.recording.is_on or not self.grid.results)
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
        from specdec_tui.tui.commands.palette import Palette  # not at a start
        from specdec_tui.tui.commands.palette_rows import Act, Change, Row

        def chosen(row: Row) -> None:
            match row:
                case Row(does=Change(values=values)):
                    self.preferences.change(values)
                case Row(does=Act(action=action)):
                    self.call_later(self.run_action, action)

        if not self.dialog_is_open:
            self.front.ask(Palette(self._rows_for), chosen)

    def _rows_for(self, text: str) -> list[Row]:
        from specdec_tui.tui.commands.palette_rows import rows_for

        return rows_for(text, self.settings, self.choice, self.runs.asks, self.runs.drafters)

    def action_help(self) -> None:
        from specdec_tui.tui.screens.help import HelpScreen  # not at a start

        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss(None)
        elif not self.dialog_is_open:
            self.push_screen(HelpScreen(self.runs.drafters))

    def action_tour(self) -> None:
        if self.runs.running and not self.tour.is_on:
            at_work = "A run is at work" if self.laboratory.progress is None else "A sweep is at work"
            then = f"{key('stop or quit')} stops it, then {key('tour')}"
            self.say(f"{at_work}: {then}", holds=lambda: self.runs.running)
        else:
            self.tour.toggle()

    def action_tour_step(self, by: int) -> None:
        self.tour.step(by)

    def action_stop_or_quit(self) -> None:
        if self.stopping.stop_or_quit():
            self.exit(0)

    async def action_suspend(self) -> None:
        """To the shell; `fg` comes back."""
        at_work = self.runs.running
        self.racing.stand_still()
        if not await suspend(self):
            self.say("No shell waits behind this terminal: there is nothing to go back to")
        elif at_work:
            self.say("The run stood still meanwhile: its times are those of a disturbed clock", "warning", timeout=10)

    def action_stop(self) -> None:
        self.stopping.stop()

    async def action_quit(self) -> None:
        self.exit(0)
