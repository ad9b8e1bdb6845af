"""Which what-ifs have a pane, and what stands in them of the runs that they are children of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import Event, Origin, RunStarted, Step, strategy_of
from specdec_tui.settings import STRATEGIES
from specdec_tui.tui.panes.what_if_pane import MOST_WHAT_IFS, WhatIfPane
from specdec_tui.tui.tokens.chips import spell

if TYPE_CHECKING:
    from specdec_tui.tui.panes.pane import StrategyPane
    from specdec_tui.tui.tokens.run_log import RunLog


class WhatIfPanes:
    """The panes themselves are there from the start; `open` are those in use, the oldest first."""

    def __init__(self) -> None:
        self.all = [WhatIfPane() for _ in range(MOST_WHAT_IFS)]
        self.open: list[WhatIfPane] = []
        self._prompts: dict[str, str] = {}  # by run: the prompt that its line of what-ifs goes back to
        self._passing: frozenset[str] = frozenset()  # what-ifs that get no pane
        self._closed: dict[str, dict[int, int]] = {}  # by run: the text in ids of those whose pane is closed

    def expect(self, events: Iterable[Event]) -> None:
        """All of these are to come, at once: those whose pane others would take have none on the way."""
        self._passing = passing(events)

    def forget(self) -> None:
        """Another run begins: none is open any more."""
        assert not self.open, "they are closed first"
        self._prompts, self._closed, self._passing = {}, {}, frozenset()

    def close_oldest(self) -> WhatIfPane:
        """It is in use no more; its text is remembered for what-ifs that go on from it."""
        pane = self.open.pop(0)
        self._closed[pane.strategy] = pane.run_log.emitted_ids()
        return pane

    def has_place(self, step: Step, panes: Mapping[str, StrategyPane]) -> bool:
        """Whether the what-if that begins with this step is to have a pane beside `panes`.

        The many of a sweep have none.
        """
        record = step.record
        if not isinstance(record, RunStarted):
            return False
        if (origin := record.origin) is None:
            self._prompts[step.strategy] = step.prompt_text
            return False
        self._prompts[step.strategy] = self._prompts.get(origin.parent, "")
        stays = not origin.swept and step.strategy not in self._passing
        return stays and strategy_of(step.strategy) in panes

    def take(self, step: Step, panes: Mapping[str, StrategyPane]) -> dict[str, StrategyPane]:
        """All panes in their order, with one for this what-if, which stands directly behind its parent's."""
        record = step.record
        assert isinstance(record, RunStarted) and record.origin is not None
        beside = beside_of(step.strategy, record.origin, panes)
        pane = next(pane for pane in self.all if pane not in self.open)
        token = record.origin.token
        told = "" if token is None else spelled(panes[beside].run_log, token, record.origin.position)
        pane.become(step.strategy, record.origin, told, step.prompt_text.removeprefix(self._prompts[step.strategy]))
        pane.begin(record.max_new_tokens)
        pane.run_log.given = self._given(record.origin, panes)
        self.open.append(pane)
        ordered: dict[str, StrategyPane] = {}
        for name, other in panes.items():
            ordered[name] = other
            if name == beside:
                ordered[step.strategy] = pane
        return ordered

    def _given(self, origin: Origin, panes: Mapping[str, StrategyPane]) -> tuple[int, ...]:
        """Ids of the new tokens that a what-if goes on behind; none where those of its parent were not seen."""
        parent = (
            panes[origin.parent].run_log.emitted_ids() if origin.parent in panes else self._closed.get(origin.parent)
        )
        if parent is None or not all(position in parent for position in range(origin.position)):
            return ()
        kept = tuple(parent[position] for position in range(origin.position))
        return kept if origin.token is None else (*kept, origin.token)


def passing(events: Iterable[Event]) -> frozenset[str]:
    """The what-ifs of a trace whose panes would be closed at its end, and that none of those open then descends from.

    Of hundreds each would cost what a pane costs, and nobody would see one of them.
    """
    origins: dict[str, Origin] = {}
    for event in events:
        if not isinstance(event, Step) or not isinstance(event.record, RunStarted):
            continue
        if (origin := event.record.origin) is not None and not origin.swept:
            origins[event.strategy] = origin
    stay: set[str] = set()
    for name in [name for name in origins if strategy_of(name) in STRATEGIES][-MOST_WHAT_IFS:]:
        while name in origins and name not in stay:
            stay.add(name)
            name = origins[name].parent
    return frozenset(origins) - stay


def beside_of(name: str, origin: Origin, panes: Mapping[str, StrategyPane]) -> str:
    """Whose pane a what-if stands behind: its parent's, or where that is closed, that of its strategy."""
    return origin.parent if origin.parent in panes else strategy_of(name)


def spelled(log: RunLog, token: int, position: int) -> str:
    """The text of a token id as it was told at a place of a run; without one the id."""
    for row in log.rows:
        for one, text in zip(row.tokens, row.texts, strict=False):
            if one.id == token and one.position == position:
                return spell(text)
    return spell(log.alternatives[token]) if token in log.alternatives else f"token {token}"
