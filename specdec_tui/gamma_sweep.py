"""A sweep over γ: which what-ifs of a run are played beside which, and how far they are.

The screen and the benchmark of the curve both sweep so. Importing this module costs no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from time import monotonic

from specdec_tui.decoding.records import CHILD, Event, Origin, RoundVerified, RunStarted, Step, strategy_of
from specdec_tui.settings import Settings
from specdec_tui.traces.bounds import MOST_DRAFTS, MOST_STRATEGIES
from specdec_tui.what_ifs import WhatIf

REPEATS = 3
SIDE_BY_SIDE = 4
"""Runs at several γ in a heat, the target's beside them: each has caches, and on a GPU programs, of its own."""
_FINE, _COARSE = range(1, 9), (1, 2, 4, 6, 8, 12, 16, 24, MOST_DRAFTS)


class CannotSweep(Exception):
    """Why a run cannot be swept, in one line."""


def gammas_of(gamma: int) -> tuple[int, ...]:
    """What a sweep of a run with so many drafts measures: 1 to 8, of a larger γ fewer that lie further apart."""
    if gamma <= _FINE[-1]:
        return tuple(_FINE)
    return tuple(sorted({gamma, *(other for other in _COARSE if other <= 1.5 * gamma)}))


def heats(
    events: Iterable[Event], settings: Settings, strategy: str, gammas: Sequence[int], repeats: int = REPEATS
) -> list[list[WhatIf]]:
    """The what-ifs of a run that sweep a strategy: in each heat the target's first, and several γ beside it.

    `events`: of the run, with what-ifs that it has already. Rounds of a heat are played in turn. A repeat ends before
    the next begins, and shares its γ out in another way. CannotSweep, in one line.
    """
    begun = {e.strategy: e for e in events if isinstance(e, Step) and isinstance(e.record, RunStarted)}
    parent = begun.get(strategy)
    if parent is None or not isinstance(parent.record, RunStarted) or not parent.prompt_text:
        raise CannotSweep(f"the trace does not tell what {strategy} read")
    counts = {name: _last_number(begun, name) for name in ("target", strategy)}
    changes = {"schedule": "interleaved", "insight": "off"}
    own = replace(settings, schedule="interleaved", insight=False)
    same = tuple((name, value) for name, value in changes.items() if getattr(settings, name) != getattr(own, name))
    found = []

    def what_if(name: str, gamma: int | None) -> WhatIf:
        counts[name] += 1
        assert isinstance(parent.record, RunStarted)
        asked = same if gamma is None else (("gamma", str(gamma)), *same)
        origin = Origin(name if name in begun else strategy, 0, None, asked, swept=True)
        wanted = own if gamma is None else replace(own, gamma=gamma)
        return WhatIf(f"{name}{CHILD}{counts[name]}", origin, wanted, parent.prompt_text, parent.record.prompt_tokens)

    for repeat in range(repeats):
        for side_by_side in shares(gammas, repeat):
            found.append([what_if("target", None), *(what_if(strategy, gamma) for gamma in side_by_side)])
    if len(begun) + sum(map(len, found)) > MOST_STRATEGIES:
        raise CannotSweep("the trace holds as many what-ifs as it can: run the prompt again, then sweep that run")
    return found


def shares(gammas: Sequence[int], repeat: int) -> list[list[int]]:
    """The γ of each heat of a repeat: each heat has small and large ones, in turn from either end."""
    count = -(-len(gammas) // SIDE_BY_SIDE)
    turned = [*gammas[repeat % len(gammas) :], *gammas[: repeat % len(gammas)]]
    return [own if repeat % 2 == 0 else own[::-1] for own in (turned[first::count] for first in range(count))]


def _last_number(names: Iterable[str], strategy: str) -> int:
    numbers = [name.partition(CHILD)[2] for name in names if strategy_of(name) == strategy]
    return max((int(number) for number in numbers if number.isdecimal()), default=0)


@dataclass(slots=True)
class Pace:
    """How far a sweep is: `take` its events as they come. `tokens`: of one of its runs, as far as that can be known."""

    runs: int
    tokens: int
    done: int = 0
    begun: float = 0.0

    def take(self, event: Event) -> None:
        """Count an event."""
        self.begun = self.begun or monotonic()
        if isinstance(event, Step) and isinstance(event.record, RoundVerified):
            self.done += len(event.record.new_tokens)

    @property
    def seconds_left(self) -> float | None:
        """By the wall clock; None before there is anything to go by."""
        total = self.runs * max(1, self.tokens)
        if not self.done or self.done < total * 0.01:
            return None
        return (monotonic() - self.begun) * max(0, total - self.done) / self.done
