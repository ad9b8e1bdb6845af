"""The guided tour: it goes through its steps on the real app, and leaves everything of the user's as it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.decoding.records import Event, RoundVerified, Status
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.tokens.run_log import Place

if TYPE_CHECKING:
    from specdec_tui.settings import Settings
    from specdec_tui.tui.panes.pane import StrategyPane
    from specdec_tui.tui.tour.facts import Facts
    from specdec_tui.tui.tour.panel import ExplainingPanel
    from specdec_tui.tui.tour.steps import Ask, TourStep
    from specdec_tui.tui.tour.words import Said

_TIMES_TOLD = 3  # other words may take other rows, and charts then other forms: it is not to go on for ever


class TourScreen(Protocol):
    """What the tour asks of the screen."""

    @property
    def hindrance(self) -> str:
        """Why there is nothing to show a tour on; empty where there is."""

    @property
    def is_free(self) -> bool:
        """Whether models are loaded, and nothing runs or waits."""

    @property
    def all_panes(self) -> Sequence[StrategyPane]:
        """The shown ones and the hidden ones."""

    @property
    def is_writing(self) -> bool:
        """Whether a person is in the prompt box, and something is in it."""

    @property
    def is_in_prompt(self) -> bool:
        """Whether keys go to the prompt box."""

    @property
    def has_written(self) -> bool:
        """Whether a person is in the prompt box and has used it."""

    @property
    def drawn(self) -> Sequence[str]:
        """What the charts in sight show, in text, those of the current pane first."""

    def soon(self, call: Callable[[], None]) -> None:
        """Call when what was changed last is laid out."""

    def remember(self) -> None:
        """What the panes show and the settings are what is to come back."""

    def restore_settings(self, for_good: bool) -> bool:
        """Settings as they were remembered; whether all of them are. `for_good`: later changes are the user's own."""

    def run_aside(self, prompt: str, settings: Settings) -> None:
        """Run a prompt that is none of the user's."""

    def stop(self) -> None:
        """End the run at work."""

    def forget_aside(self) -> None:
        """What ran last of the user's own is the last run again."""

    def put_back(self) -> None:
        """The same, and the panes show it; not before the run at work has ended."""

    @property
    def aside(self) -> Sequence[Event]:
        """What happened in the last such run; empty where another run was shown since."""

    def point_at(self, strategy: str, view: str, place: Place | None, is_marked: bool) -> None:
        """Show this view in all panes, go into one of them, and have a token in sight, marked or not; None: none."""

    def leave_panes(self) -> None:
        """Take the focus away from them, and close what tells of a token."""

    def open_lab(self) -> None:
        """The γ-lab of the run on the screen, or where that has no curve of the recording that comes with the app."""

    def know_the_tour(self) -> None:
        """It was gone through: nothing here asks any more whether a person is new."""

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""

    def settle(self) -> None:
        """Something here is not as it was."""


class Tour:
    """`panel` comes with the screen, later than this."""

    def __init__(self, screen: TourScreen, panel: Callable[[], ExplainingPanel]) -> None:
        self._screen = screen
        self._panel = panel
        self._at: int | None = None
        self._asked: Ask | None = None
        self._runs = self._waits = False
        self._steps: Sequence[TourStep] = ()  # once it is on
        self._told: tuple[str, str, Said | None] = ("", "", None)
        self._views: Mapping[str, str] = {}
        self._has_shown_lab = self._was_walked = self._marks = False

    @property
    def is_known(self) -> bool:
        """Whether it is on, or was gone through to its end."""
        return self.is_on or self._was_walked

    @property
    def is_on(self) -> bool:
        return self._at is not None

    @property
    def waits(self) -> bool:
        """Whether it is to begin by itself, as soon as there is something to show it on."""
        return self._waits

    def toggle(self) -> None:
        """Begin, as soon as there is something to show it on; or leave."""
        if self.is_on:
            self.leave()
            return
        self._waits = True
        self._look(asked_now=True)
        if self._waits:
            why = self._screen.hindrance
            wanted = f"The tour waits: {why}" if why else "The tour begins as soon as the models are ready"
            self._screen.say(wanted, timeout=20, holds=lambda: self._waits and self._screen.hindrance == why)

    def look(self) -> None:
        """Something here is not as it was: a run may be over, models may be ready."""
        self._look(asked_now=False)

    def _look(self, asked_now: bool) -> None:
        if self._at is None:
            self._screen.put_back()
        if self._waits and self._screen.is_free and not self._screen.hindrance:
            self._waits = False
            if not asked_now and self._screen.has_written:  # the rest of a word is not to become commands
                ready = f"The tour is ready: {key('panes')}, then {key('tour')} begins it"
                self._screen.say(ready, timeout=30, holds=lambda: not self.is_on)
                return
            from specdec_tui.tui.tour.steps import STEPS  # not at a start

            self._steps = STEPS
            self._screen.remember()
            self._views = {pane.strategy: pane.view for pane in self._screen.all_panes}
            self._asked = None
            self._go(0)
        elif self._runs and self._screen.is_free:
            self._runs = False
            self._arrive()

    def step(self, by: int) -> None:
        """The next step (1) or the one before (-1); behind the last one the γ-lab opens."""
        if self._at is None:
            return
        if self._runs or not self._screen.is_free:
            self._screen.say(
                f"This step's run is still at work: {key('stop or quit')} stops it", holds=lambda: self._runs
            )
        elif self._at + by >= len(self._steps):
            self._has_shown_lab = True
            self._screen.open_lab()
            self.name_keys()
        else:
            self._go(max(0, self._at + by))

    def mark(self) -> bool:
        """Mark the token of this step again whose inspector was closed; False where there is none to mark."""
        if self._at is None or not self._marks or self._is_inspecting or self._runs or not self._screen.is_free:
            return False
        self._arrive()
        return self._is_inspecting

    @property
    def _is_inspecting(self) -> bool:
        return any(pane.inspecting for pane in self._screen.all_panes)

    def repeat(self) -> None:
        """The run of this step once more."""
        if self._at is not None and not self._runs and self._screen.is_free:
            self._asked = None
            self._go(self._at)

    def _go(self, index: int) -> None:
        from specdec_tui.tui.tour.words import Said

        self._at, step, self._marks = index, self._steps[index], False
        self._screen.leave_panes()
        if self._asked is step.ask and self._screen.aside:
            self._arrive()
            return
        self._asked, self._runs = step.ask, True
        for pane in self._screen.all_panes:
            pane.view = "text"  # where one sees it being written
        self._screen.run_aside(step.ask.prompt, step.ask.settings)
        self._explain(Said(f"{step.doing} The sentences come when it has run.".strip()))

    def _arrive(self) -> None:
        assert self._at is not None
        step, facts = self._steps[self._at], self._facts()
        place = None
        if step.strategy in facts and not self._screen.is_writing:
            found = facts[step.strategy].refusal if step.inspects else None
            told = facts[step.strategy].telling_round if step.tells_a_round else None
            if found is not None:
                place = self._place(step.strategy, found.token.position)
            elif told is not None:
                place = self._round(step.strategy, told.round)
        self._marks = step.inspects and place is not None
        self._screen.point_at(step.strategy, step.view, place, step.inspects)
        self._tell(facts)
        self._screen.settle()

    def _facts(self) -> Mapping[str, Facts]:
        from specdec_tui.tui.tour.facts import facts_of

        return facts_of(self._screen.aside)

    def _words(self, step: TourStep, facts: Mapping[str, Facts]) -> Said:
        from specdec_tui.tui.tour.steps import words_of
        from specdec_tui.tui.tour.sums import steady
        from specdec_tui.tui.tour.words import Scene

        drawn = self._screen.drawn
        return words_of(step, Scene(facts, steady(), drawn[0] if drawn else "", len(drawn)))

    def retell(self) -> None:
        """The room has changed, and with it perhaps what the sentences tell of."""
        if self._at is not None and not self._runs and self._steps[self._at].view == "charts":
            self._screen.soon(lambda: self._tell_again(_TIMES_TOLD))

    def _tell(self, facts: Mapping[str, Facts]) -> None:
        assert self._at is not None
        step = self._steps[self._at]
        self._explain(self._words(step, facts))
        self.retell()

    def _tell_again(self, times: int) -> None:
        """Charts have their room when the sentences have theirs, and are then told of as they came out."""
        if self._at is None or self._runs or self._steps[self._at].view != "charts":
            return
        before = self._told
        self._explain(self._words(self._steps[self._at], self._facts()))
        if self._told != before and times > 1:
            self._screen.soon(lambda: self._tell_again(times - 1))

    def name_keys(self) -> None:
        """The focus may be elsewhere, where other keys lead on."""
        if self._at is not None and (self._title, self._keys) != self._told[:2]:
            self._told = (self._title, self._keys, self._told[2])
            self._panel().name_keys(self._title, self._keys)

    def _explain(self, said: Said) -> None:
        told = (self._title, self._keys, said)
        if told != self._told:
            self._told = told
            self._panel().explain(self._title, self._keys, said.text, said.also)

    def _place(self, strategy: str, position: int) -> Place | None:
        log = next(pane.run_log for pane in self._screen.all_panes if pane.strategy == strategy)
        return log.find(position, Status.REJECTED)

    def _round(self, strategy: str, number: int) -> Place | None:
        log = next(pane.run_log for pane in self._screen.all_panes if pane.strategy == strategy)
        for index, row in enumerate(log.rows):
            if isinstance(row.record, RoundVerified) and row.record.round == number:
                return Place(index, 0)
        return None

    @property
    def _title(self) -> str:
        assert self._at is not None
        return f"{self._at + 1}/{len(self._steps)} {self._steps[self._at].title}"

    @property
    def _keys(self) -> str:
        leaves = f"{key('panes')} leaves the prompt, then " if self._screen.is_in_prompt else ""
        ends = f"{' '.join([key('step out')] * (1 + self._is_inspecting))} ends"  # the inspector goes first
        if self._runs:
            return f"{key('stop or quit')} stops · {leaves}{ends}"
        back = f"{key('step before')} back · " if self._at else ""
        if self._at and self._steps[self._at - 1].ask is not self._asked:
            back = f"{key('step before')} back (runs again) · "
        onwards = f"{leaves}{key('next step')} next"
        if self._at == len(self._steps) - 1:
            onwards += ": γ-lab"
            if self._has_shown_lab:
                return f"was the last step: {ends} · {onwards} again"
        if self._marks and not self._is_inspecting:
            return f"{onwards} · {key('inspect')} marks the token again · {ends}"
        return f"{onwards} · {back}{ends}"

    def leave(self, replaced: bool = False) -> None:
        """At any time: the panes show again what they showed. `replaced`: something else comes into them."""
        self._waits = False
        if self._at is None:
            return
        recap = ""
        if self._at == len(self._steps) - 1 and not self._runs:
            from specdec_tui.tui.tour.steps import IN_SHORT

            self._was_walked, recap = True, f" {IN_SHORT}"
            self._screen.know_the_tour()
        at_work, self._at, self._runs = self._runs, None, False
        if at_work:
            self._screen.stop()
        self._screen.leave_panes()
        for pane in self._screen.all_panes:
            pane.view = self._views.get(pane.strategy, pane.view)
        self._panel().leave()
        self._told = ("", "", None)
        is_all = self._screen.restore_settings(for_good=True)
        if replaced:
            self._screen.forget_aside()
        else:
            settings = "settings" if is_all else "all settings but the theme"
            over = f"The tour is over: {settings} and the chat are as they were."
            self._screen.say(f"{over}{recap}", timeout=15 if recap else 5)
            self._screen.settle()
        self._has_shown_lab = False

    def own_prompt_comes(self) -> None:
        """It is run with the settings that were before the tour."""
        if self._at is not None:
            self._screen.restore_settings(for_good=False)
