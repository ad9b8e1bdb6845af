"""The screen as the recording and the tour know it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from textual.notifications import SeverityLevel
from textual.timer import Timer

from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.commands.table import key

if TYPE_CHECKING:
    from specdec_tui.decoding.records import Event
    from specdec_tui.settings import Settings
    from specdec_tui.tui.app.app import SpecdecApp
    from specdec_tui.tui.panes.pane import StrategyPane
    from specdec_tui.tui.tokens.run_log import Place

PROMPT = "the prompt"  # where the focus may be beside the panes
_LAID_OUT_SECONDS = 0.15  # a view that just came has no lines to be scrolled yet


class RecordingFront:
    """Brings what a recording asks to the parts of the app."""

    def __init__(self, app: SpecdecApp) -> None:
        self._app = app

    @property
    def is_loading(self) -> bool:
        return self._app.runs.state == "loading"

    @property
    def is_bare(self) -> bool:
        runs, recordings = self._app.runs, self._app.recordings
        is_untouched = runs.run is None and not runs.waiting and recordings.trace is None and not recordings.opened
        return self.is_loading and is_untouched

    @property
    def is_looked_into(self) -> bool:
        return self._app.grid.focused is not None

    def every(self, seconds: float, call: Callable[[], None]) -> Timer:
        return self._app.front.every(seconds, call)

    def empty_panes(self) -> None:
        self._app.inspection.close()
        self._app.stage.rest(self._app.runs.pair, self._app.front.strategies)

    def show_clock(self) -> None:
        self._app.front.show_clock()

    def settle(self) -> None:
        self._app.front.settle()


@dataclass(frozen=True, slots=True)
class Before:
    """Which panes there were: all, those of a trace that were hidden, the chosen one, where the focus was."""

    shown: tuple[str, ...]
    hidden: frozenset[str]
    chosen: str
    focused: str


class TourFront(RecordingFront):
    """And what the tour asks."""

    def __init__(self, app: SpecdecApp) -> None:
        super().__init__(app)
        self._before: Before | None = None

    @property
    def hindrance(self) -> str:
        runs = self._app.runs
        if runs.state == "failed":
            return f"it needs models, {key('models')} loads the demo pair"
        if runs.pair is not None and not runs.drafters:
            return f"it needs a drafter, {key('models')} loads the demo pair"
        return ""

    @property
    def is_free(self) -> bool:
        return self._app.runs.state == "ready" and not self._app.runs.waiting

    @property
    def all_panes(self) -> Sequence[StrategyPane]:
        return list(self._app.grid.panes.values())

    @property
    def is_writing(self) -> bool:
        return self._app.prompt_box.has_focus and bool(self._app.prompt_box.text)

    @property
    def is_in_prompt(self) -> bool:
        return self._app.prompt_box.has_focus

    @property
    def has_written(self) -> bool:
        return self.is_in_prompt and (self._app.prompt_box.is_used or bool(self._app.prompt_box.text))

    @property
    def drawn(self) -> Sequence[str]:
        grid = self._app.grid
        panes = (grid.current, *(pane for pane in grid.shown if pane is not grid.current))
        in_sight = [pane.charts_view for pane in panes if pane.view == "charts" and pane.charts_view.region]
        return ["\n".join(view.lines) for view in in_sight]

    def soon(self, call: Callable[[], None]) -> None:
        self._app.set_timer(_LAID_OUT_SECONDS, call)

    def remember(self) -> None:
        self._app.preferences.hold()
        grid = self._app.grid
        focused = PROMPT if self.is_in_prompt else "" if grid.focused is None else grid.focused.strategy
        self._before = Before(tuple(pane.strategy for pane in grid.shown), self._app.stage.hidden, grid.chosen, focused)

    def restore_settings(self, for_good: bool) -> bool:
        return self._app.preferences.put_back(for_good)

    def run_aside(self, prompt: str, settings: Settings) -> None:
        self._app.runs.run_aside(prompt, settings)

    def stop(self) -> None:
        self._app.runs.stop()

    @property
    def aside(self) -> Sequence[Event]:
        run = self._app.runs.run
        return run.events if run is not None and run.is_aside and not self._app.recordings.opened else ()

    def forget_aside(self) -> None:
        self._app.runs.forget_aside()

    def put_back(self) -> None:
        run = self._app.runs.run
        if run is not None and run.is_aside and not self._app.runs.running:
            self._app.runs.forget_aside()
            before, self._before = self._before, None
            if not self._app.recordings.show_own():
                self.empty_panes()
            elif before is not None:
                self._app.stage.hide(before.hidden)
                self._app.grid.show_only(before.shown)
            if before is not None:
                self._app.grid.choose(before.chosen)
                self._go_back_to(before)
            self.settle()

    def _go_back_to(self, before: Before) -> None:
        """Where a person was, unless they have gone elsewhere meanwhile."""
        if self._app.focused is not None or self._app.dialog_is_open:
            return
        if before.focused == PROMPT:
            self._app.prompt_box.focus()
        elif (pane := self._app.grid.panes.get(before.focused)) is not None and pane.display:
            self._app.grid.go_to(before.focused)

    def point_at(self, strategy: str, view: str, place: Place | None, is_marked: bool) -> None:
        stage, grid = self._app.stage, self._app.grid
        stage.table_is_open = False
        for pane in grid.shown:
            pane.view = view
        stage.give_room()
        pane = grid.panes[strategy]
        if not self.is_writing and pane.display and not self._app.dialog_is_open:
            self._app.going_about.to(pane)
            if place is not None and is_marked:
                pane.inspect(place)
            else:
                pane.set_timer(_LAID_OUT_SECONDS, lambda: _scroll_to(pane, place))

    def leave_panes(self) -> None:
        self._app.inspection.close()
        self._app.front.minimise()
        if not self.is_writing:
            self._app.screen_stack[0].set_focus(None)

    def open_lab(self) -> None:
        from specdec_tui.tui.lab.recorded import recorded_laboratory  # not at a start

        laboratory = self._app.laboratory
        recording = None if laboratory.draws_a_curve("speculative") else recorded_laboratory()
        if recording is None:
            laboratory.enter()
        else:
            laboratory.show(recording)

    def know_the_tour(self) -> None:
        self._app.grid.tour_was_walked()

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        self._app.say(text, severity, timeout, holds)


def _scroll_to(pane: StrategyPane, place: Place | None) -> None:
    """To the start, or to a round."""
    lines = () if place is None or pane.view != "rounds" else pane.rounds_view.lines_of(place)
    if lines:
        pane.rounds_view.scroll_to(y=lines[0], animate=False)
    else:
        pane.action_scroll_view("scroll_home")
