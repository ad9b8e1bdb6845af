"""All panes, one a strategy, laid out in one, two or three columns, and fed with the engine's events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic

from textual import events
from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.layout import Layout

from specdec_tui.decoding.figures import SEARCHES, RunFigures
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    Lossless,
    RunEnded,
    RunStarted,
    Status,
    Step,
)
from specdec_tui.decoding.standing import Verdict
from specdec_tui.glossary import fate_word
from specdec_tui.settings import STRATEGIES
from specdec_tui.several_drafters import key_of, shown
from specdec_tui.tui.figures.scale import Scale, common_scale
from specdec_tui.tui.panes.arrangement import PaneLayout, one_at_a_time
from specdec_tui.tui.panes.pane import PLAIN_STRATEGIES, StrategyPane
from specdec_tui.tui.panes.strip import PaneStrip, tab_of
from specdec_tui.tui.panes.welcome import invitation, obstacle, welcome

_SCALE_SECONDS = 0.4  # as often as figures come to the screen


@dataclass(frozen=True, slots=True)
class Result:
    """What a strategy achieved in the last run, for the comparison table."""

    strategy: str
    figures: RunFigures
    lossless: Lossless | None


class PaneGrid(VerticalScroll, can_focus=False):
    """Every strategy has its pane from the start; switching one off hides it until another run begins."""

    def __init__(self, strategies: Iterable[str]) -> None:
        super().__init__(id="panes")
        self.panes = {name: StrategyPane(key_of(name), name) for name in STRATEGIES}
        self._there = shown(0)
        self._layout = PaneLayout()
        self.strip = PaneStrip()
        """Stands above the panes where only one of them has room."""
        for pane in self.panes.values():
            pane.tells = self._tell_tabs
        self._touched = ""
        self._loading = ""
        self._obstacle, self._is_of_a_trace = "", False
        self._took_part: tuple[str, ...] = ()
        self._checked: dict[str, Lossless] = {}
        self._outside: tuple[RunFigures | None, str] = (None, "")
        self.scale = Scale()
        """What bars and plots of all panes are drawn on."""
        self._scale_is_kept = False
        self._scaled = 0.0
        self.show_only(strategies)

    @property
    def layout(self) -> Layout:
        return self._layout

    def compose(self) -> ComposeResult:
        yield from self.panes.values()

    @property
    def shown(self) -> list[StrategyPane]:
        # Textual's `display` is off for what is closing, too: leaving switches no strategy off, and one stays on.
        return [pane for pane in self.panes.values() if pane.styles.display != "none"]

    @property
    def fates(self) -> frozenset[Status]:
        """Of the tokens that can stand in the shown panes."""
        return frozenset[Status]().union(*(pane.fates for pane in self.shown))

    @property
    def fate_words(self) -> dict[Status, str]:
        """What these fates are called in the shown panes."""
        kinds = sorted({pane.strategy in SEARCHES for pane in self.shown})
        found = {status: [fate_word(status.value, searches) for searches in kinds] for status in Status}
        return {status: "/".join(dict.fromkeys(words)) for status, words in found.items()}

    @property
    def current(self) -> StrategyPane:
        """The pane keys act on: the focused one, else the one that would stand in front."""
        return self.focused or self.front

    @property
    def is_one_at_a_time(self) -> bool:
        """Whether one pane stands in front of the others."""
        return self.is_mounted and one_at_a_time(len(self.shown), self.app.size)

    @property
    def front(self) -> StrategyPane:
        """The pane that is in sight where only one has room.

        The one a person was in last; else the fastest that ended, one that drafts, the first.
        """
        shown = self.shown
        touched = self.panes.get(self._touched)
        if touched is not None and touched.display:
            return touched
        drafting = [pane for pane in shown if pane.strategy not in PLAIN_STRATEGIES] or shown
        if any(pane.has_class("-running") for pane in shown):
            return drafting[0]
        ended = [(against, pane) for pane in drafting if (against := pane.told[0]) is not None]
        faster = [(against.ratio, pane) for against, pane in ended if against.verdict is Verdict.FASTER]
        best, front = max(faster, key=lambda one: one[0], default=(1.0, drafting[0]))
        # The drafter's own strategy stays in front of one that is hardly faster, or not even surely so.
        own = [against for against, pane in ended if pane is drafting[0] and not against.is_disturbed]
        return drafting[0] if own and own[0].ratio >= best else front

    def show_loading(self, stage: str) -> None:
        """At what a load of models is; empty when there is none."""
        if stage != self._loading:
            self._loading = stage
            self._welcome()

    def show_obstacle(self, why: str, of_a_trace: bool = False) -> None:
        """Why no prompt can run, empty where one can; `of_a_trace`: it was one that cannot be shown."""
        if (why, of_a_trace) != (self._obstacle, self._is_of_a_trace):
            self._obstacle, self._is_of_a_trace = why, of_a_trace
            self._welcome()

    def _welcome(self) -> None:
        """Bring what empty panes say in line with what is switched on."""
        off = [
            (pane.number, pane.strategy)
            for pane in self.panes.values()
            if not pane.display and pane.strategy in self._there
        ]
        for pane in self.shown:
            text = welcome(pane.strategy, None if self._is_of_a_trace else pane.number)
            more = obstacle(self._obstacle) if self._obstacle else invitation(off, self._loading)
            pane.welcome(text + more if pane is self.front else text)

    def _bring_to_front(self) -> None:
        """Place the pane that is to be in sight, and tell of the others."""
        if not self.is_mounted:
            return
        alone, front = self.is_one_at_a_time, self.front
        self.strip.display = alone and self.display
        if is_new := self._layout.front is not front:
            self._layout.front = front
        self._tell_tabs()
        if is_new:
            if alone:
                front.refresh(layout=True)
            self._welcome()

    def _tell_tabs(self) -> None:
        if isinstance(front := self._layout.front, StrategyPane):
            self.strip.show([tab_of(pane) for pane in self.shown], front.strategy)

    def _into_sight(self, pane: StrategyPane) -> None:
        if not self.is_one_at_a_time:  # else it is in front, or has no place
            self.scroll_to_widget(pane, animate=False)

    def on_click(self) -> None:
        if (pane := self.focused) is not None:
            self._touched = pane.strategy

    @property
    def results(self) -> list[Result]:
        return [Result(name, self.panes[name].figures, self._checked.get(name)) for name in self._took_part]

    @property
    def focused(self) -> StrategyPane | None:
        """The pane a person is in."""
        return next((pane for pane in self.shown if pane.has_focus_within), None)

    def stay(self) -> None:
        """Whoever reads on in the pane in front wants it to stay there."""
        if self.is_one_at_a_time:
            self._touched = self.front.strategy

    def go_to(self, strategy: str) -> None:
        """Give a shown pane the focus and bring it into sight."""
        pane = self.panes[strategy]
        pane.focus()
        self._touched = strategy
        self._bring_to_front()
        self._into_sight(pane)

    def neighbour(self, by: int) -> StrategyPane:
        """The next shown pane (1) or the one before (-1), around the ends.

        From outside: the one in sight, or where all are, the first or the last.
        """
        shown, here = self.shown, self.focused
        if here is None and self.is_one_at_a_time:
            return self.front
        if here is None:
            return shown[0 if by > 0 else -1]
        return shown[(shown.index(here) + by) % len(shown)]

    def offer(self, strategies: Iterable[str]) -> None:
        """What a person can switch on."""
        self._there = tuple(strategies)
        self._welcome()

    def show_only(self, strategies: Iterable[str]) -> None:
        """Show the panes of `strategies` and hide the others."""
        wanted = set(strategies)
        if self.focused is not None and self.focused.strategy not in wanted:
            self.screen.set_focus(None)  # else it would go to some other pane, or to the prompt
        for name, pane in self.panes.items():
            pane.display = name in wanted
            if pane.inspecting and not pane.display:
                pane.close_inspector()
        self._bring_to_front()
        self._welcome()

    def begin(
        self,
        strategies: Iterable[str],
        max_new_tokens: int,
        *,
        keep_scale: bool = False,
        turn: int = 0,
        prompt: str = "",
    ) -> None:
        """Clear all panes for a run, and show those that take part in it alone.

        The run answers `prompt` as a turn of the conversation; 0: of none.
        `keep_scale`: they are drawn on the scale of the whole run that was just in them, and measured
        against the same. It tells the largest figures of all panes, but not which of them they are;
        it grows where one is larger on the way than in the end.
        """
        self._took_part, self._checked = tuple(strategies), {}
        if self._touched in PLAIN_STRATEGIES:
            self._touched = ""  # a run is not to end with nothing else in sight
        self.show_only(self._took_part)
        for name, pane in self.panes.items():
            if name in self._took_part:
                pane.begin(max_new_tokens, turn, prompt)
            else:
                pane.sit_out()
        if not keep_scale:
            self._outside = None, ""
        self._set_baseline()
        self._scale_is_kept = keep_scale
        self._set_scale(self.scale if keep_scale else Scale())

    def turn_ended(self, turn: int, prompt: str) -> None:
        """The run that was in the panes answered `prompt` as this turn of the conversation."""
        for name in self._took_part:
            self.panes[name].turn_ended(turn, prompt)

    def forget_turns(self) -> None:
        """Another conversation begins."""
        for pane in self.panes.values():
            pane.forget_turns()

    def show_drafts(self, wanted: bool) -> None:
        """Let drafts that did not become text stand in it, in all panes, or leave them out."""
        for pane in self.panes.values():
            if pane is self.current:
                pane.show_drafts(wanted)
            else:  # one after another: a long text takes its time
                pane.call_later(pane.show_drafts, wanted)

    def measure_against(self, baseline: RunFigures | None, label: str = "") -> None:
        """Where no target takes part, speedups are against this run of it, and `label` says which it is.

        None: there is no such run, and `label` says how to come by one.
        """
        if baseline is not None:
            baseline.is_of_another_time = True
        self._outside = baseline, label
        self._set_baseline()

    def deliver(self, batch: Sequence[Event]) -> Finished | None:
        """Hand a batch to the panes: one `feed` per pane, however many records. The run's end, if in it."""
        steps: dict[str, list[Step]] = {}
        finished = None
        for event in batch:
            match event:
                case Step(strategy=strategy):
                    steps.setdefault(strategy, []).append(event)
                case Checked(strategy=strategy, lossless=lossless):
                    self._checked[strategy] = lossless
                case Finished():
                    finished = event
        for strategy, own in steps.items():
            if (pane := self.panes.get(strategy)) is not None:
                pane.feed(own)
                self._follow(strategy, own)
        ended = any(isinstance(step.record, RunEnded) for own in steps.values() for step in own)
        if ended or finished is not None:
            self._set_baseline()  # its last figures come to the screen
        if ended or finished is not None or monotonic() - self._scaled >= _SCALE_SECONDS:
            self._rescale()
        for event in batch:
            if isinstance(event, Checked) and event.strategy in self.panes:
                self.panes[event.strategy].checked(event.lossless)
        return finished

    def show_start(self) -> None:
        """Scroll to the first pane, unless the user is in one."""
        if self.focused is None:
            self.call_after_refresh(self.scroll_home, animate=False)

    def abandon(self, error: str) -> list[Step]:
        """The engine failed outside any strategy: end the panes that were still at work, and say how."""
        at_work = [name for name in self._took_part if self.panes[name].figures.end is None]
        ends = [Step(name, RunEnded(EndReason.ERROR, error)) for name in at_work]
        for end in ends:
            self.panes[end.strategy].feed([end])
        return ends

    def break_off(self) -> None:
        """Nothing more comes: what has not ended by now never did."""
        for pane in (self.panes[name] for name in self._took_part):
            if pane.figures.end is None:
                pane.break_off()
        self._set_baseline()
        self._rescale()

    @property
    def baseline(self) -> tuple[RunFigures | None, str]:
        """What speedups are against: the target's own run, as far as it has come, else one of another time."""
        return (self.panes["target"].figures, "") if "target" in self._took_part else self._outside

    def _set_baseline(self) -> None:
        figures, label = self.baseline
        for name in self._took_part:
            self.panes[name].set_baseline(figures, label)

    def _rescale(self) -> None:
        self._scaled = monotonic()
        self._bring_to_front()
        runs = [self.panes[name].figures for name in self._took_part]
        needed = common_scale(runs, self.baseline[0])
        self._set_scale(self.scale.with_room_for(needed) if self._scale_is_kept else needed)

    def _set_scale(self, scale: Scale) -> None:
        self.scale = scale
        for pane in self.panes.values():
            pane.set_scale(scale)

    def _follow(self, strategy: str, steps: Sequence[Step]) -> None:
        """Keep the pane at work on the screen where not all fit, unless the user is in a pane."""
        began = any(isinstance(step.record, RunStarted) for step in steps)
        if began and self.max_scroll_y and self.focused is None:
            self.scroll_to_widget(self.panes[strategy], animate=False)

    def on_mount(self) -> None:
        self._bring_to_front()

    def on_resize(self, event: events.Resize) -> None:
        self._bring_to_front()
        if self.focused is not None:
            self.call_after_refresh(self._into_sight, self.focused)
