"""All panes, one a strategy, laid out in one, two or three columns, and fed with the engine's events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from textual import events
from textual.app import ComposeResult

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
    strategy_of,
)
from specdec_tui.decoding.shares import shares
from specdec_tui.glossary import fate_word
from specdec_tui.tui.figures.scale import Scale, common_scale
from specdec_tui.tui.figures.words import PLAIN_STRATEGIES, PaneState
from specdec_tui.tui.panes.in_sight import PanesInSight
from specdec_tui.tui.panes.pane import DRAWN, StrategyPane
from specdec_tui.tui.panes.what_if_panes import WhatIfPanes

if TYPE_CHECKING:
    from specdec_tui.tui.figures.time_lines import Beside

_SCALE_SECONDS = 0.4  # as often as figures come to the screen


@dataclass(frozen=True, slots=True)
class Result:
    """What a strategy achieved in the last run, for the comparison table."""

    strategy: str
    figures: RunFigures
    lossless: Lossless | None


class PaneGrid(PanesInSight, can_focus=False):
    """Every strategy has its pane from the start; switching one off hides it until another run begins.

    A pane joins the screen when it is first shown: most never are, and each would cost every start and every painting.
    """

    def __init__(self, strategies: Iterable[str]) -> None:
        super().__init__()
        self._what_ifs = WhatIfPanes()
        for pane in (*self.panes.values(), *self._what_ifs.all):
            pane.tells = self._tell_tabs
            pane.beside = self._out_of_sight
        self._took_part: tuple[str, ...] = ()
        self._checked: dict[str, Lossless] = {}
        self._outside: tuple[RunFigures | None, str] = (None, "")
        self.scale = Scale()
        """What bars and plots of all panes are drawn on."""
        self._wall = 0.0
        self._kept_scale: tuple[Scale, float] | None = None
        self._begun: tuple[int, int, str] = (0, 0, "")
        self._scaled = 0.0
        self.show_only(strategies)

    def compose(self) -> ComposeResult:
        yield from self.shown

    @property
    def fates(self) -> frozenset[Status] | None:
        """Of the tokens in sight; None where the panes in sight show none, whatever they hold."""
        panes = [pane for pane in self.in_sight if pane.view not in DRAWN]
        return frozenset[Status]().union(*(pane.fates.now for pane in panes)) if panes else None

    @property
    def fate_words(self) -> dict[Status, str]:
        """What these fates are called in the shown panes."""
        kinds = sorted({strategy_of(pane.strategy) in SEARCHES for pane in self.shown})
        found = {status: [fate_word(status.value, searches) for searches in kinds] for status in Status}
        return {status: "/".join(dict.fromkeys(words)) for status, words in found.items()}

    @property
    def results(self) -> list[Result]:
        return [Result(name, self.panes[name].figures, self._checked.get(name)) for name in self._took_part]

    @property
    def is_untouched(self) -> bool:
        """Whether nothing has run and nothing is opened."""
        return all(pane.state is PaneState.IDLE for pane in self.panes.values())

    def offer(self, strategies: Iterable[str]) -> None:
        """What a person can switch on."""
        self._there = tuple(strategies)
        self._welcome()

    def show_only(self, strategies: Iterable[str]) -> None:
        """Show the panes of `strategies`, and of the what-ifs beside them, and hide the others."""
        wanted = set(strategies)
        wanted.update(pane.strategy for pane in self._what_ifs.open)
        if self.focused is not None and self.focused.strategy not in wanted:
            self.screen.set_focus(None)  # else it would go to some other pane, or to the prompt
        for spare in self._what_ifs.all:
            spare.display = spare in self._what_ifs.open
        for name, pane in self.panes.items():
            pane.display = name in wanted
            if pane.inspecting and not pane.display:
                pane.close_inspector()
        self._layout.order = list(self.panes.values())
        new = [pane for pane in self.shown if pane.parent is None]
        if new and self.children and self.is_attached:  # else they are composed, or nothing is any more
            self.mount(*new)
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
        while self._what_ifs.open:
            self._close_oldest()
        self._what_ifs.forget()
        if self._touched in PLAIN_STRATEGIES or self._touched not in self.panes:
            self._touched = ""  # a run is not to end with nothing else in sight
        self.show_only(self._took_part)
        self._begun = max_new_tokens, turn, prompt
        for name, pane in self.panes.items():
            if name in self._took_part:
                pane.begin(max_new_tokens, turn, prompt)
            else:
                pane.sit_out()
        if not keep_scale:
            self._outside = None, ""
        self._set_baseline()
        self._kept_scale = (self.scale, self._wall) if keep_scale else None
        self._set_scale(*(self._kept_scale or (Scale(), 0.0)))

    def rest(self, strategies: Iterable[str]) -> None:
        """Empty all panes, as they were before anything ran, and show those of `strategies`."""
        self._took_part, self._checked, self._touched = (), {}, ""
        for pane in self.panes.values():
            pane.rest()
        self.show_only(strategies)
        self._set_scale(Scale(), 0.0)

    def begin_again(self) -> None:
        """Empty the panes for the same once more."""
        self._checked = {}
        for name in self._took_part:
            self.panes[name].begin(*self._begun)
        self._set_baseline()

    def come_to_rest(self) -> None:
        """For a while nothing comes: every figure is to be that of what has come."""
        self._set_baseline(at_once=True)
        self._rescale()

    def bring_forward(self, strategy: str) -> None:
        """Have a shown pane in sight, without giving it the focus."""
        self._touched = strategy
        self._bring_to_front()
        if self.panes[strategy] in self.shown:
            self._into_sight(self.panes[strategy])

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
            if (pane := self._opened(own[0])) is not None:
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

    def expect(self, what_if: str) -> None:
        """A what-if is about to begin: its pane comes into sight."""
        self._touched = what_if

    def expect_all(self, events: Iterable[Event]) -> None:
        """All of a trace is to come: what-ifs that would not stay have no pane on the way."""
        self._what_ifs.expect(events)

    def _opened(self, step: Step) -> StrategyPane | None:
        """A pane for the what-if that begins with this step; None where it has none."""
        pane = self.panes.get(step.strategy)
        if not self._what_ifs.has_place(step, self.panes):
            return pane
        if len(self._what_ifs.open) == len(self._what_ifs.all):
            self._close_oldest()
        self.panes = self._what_ifs.take(step, self.panes)
        self._took_part = (*self._took_part, step.strategy)
        self._rearrange()
        if self._touched == step.strategy:
            self.call_after_refresh(self._came, self.panes[step.strategy])
        return self.panes[step.strategy]

    def _came(self, pane: StrategyPane) -> None:
        """Have a new pane in sight. Where it stands in front of the one that a person was in, keys go to it."""
        hides = self.is_one_at_a_time and self.focused is not None
        if hides and self._touched == pane.strategy:
            pane.focus()
        self._into_sight(pane)

    def _close_oldest(self) -> None:
        """Its run stays in the trace."""
        pane = self._what_ifs.close_oldest()
        del self.panes[pane.strategy]
        self._took_part = tuple(name for name in self._took_part if name != pane.strategy)
        self._checked.pop(pane.strategy, None)
        if pane.has_focus_within:
            self.screen.set_focus(None)
        if pane.inspecting:
            pane.close_inspector()
        pane.sit_out()
        self._rearrange()

    def _rearrange(self) -> None:
        """The panes that there are now, each in its place."""
        self.show_only([pane.strategy for pane in self.shown])
        self.refresh(layout=True)

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

    def _set_baseline(self, at_once: bool = False) -> None:
        figures, label = self.baseline
        for name in self._took_part:
            is_what_if = strategy_of(name) != name
            self.panes[name].set_baseline(*((None, "") if is_what_if else (figures, label)), at_once)

    def _rescale(self) -> None:
        self._scaled = monotonic()
        self._bring_to_front()
        runs = [self.panes[name].figures for name in self._took_part]
        needed, wall = common_scale(runs, self.baseline[0]), max((shares(run).total for run in runs), default=0.0)
        if self._kept_scale is not None:
            needed, wall = self._kept_scale[0].with_room_for(needed), max(self._kept_scale[1], wall)
        self._set_scale(needed, wall)

    def _set_scale(self, scale: Scale, wall: float) -> None:
        """`wall`: seconds of the longest run, all of them."""
        self.scale, self._wall = scale, wall
        for pane in self.panes.values():
            pane.set_scale(scale)
            pane.set_wall(wall)

    def _out_of_sight(self) -> Beside:
        """Where the time of all runs went, where one pane hides the others."""
        if not self.is_one_at_a_time and self.screen.maximized is None:
            return ()
        return [(name, shares(self.panes[name].figures)) for name in self._took_part]

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
