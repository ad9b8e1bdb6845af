"""The steps of finished runs in their strategies' own times, and what each of them is at. Pure: no screen, no clock."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from math import nan

from specdec_tui.decoding.course import LEAST_SECONDS
from specdec_tui.decoding.records import (
    DraftsProposed,
    Event,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
    strategy_of,
)


def timed(events: Iterable[Event]) -> list[tuple[float, Step]]:
    """Every step with the seconds its strategy had worked when it happened, in the order of these times.

    Drafts appear when they were drafted: after the drafting time that the verdict of their round tells. What-ifs
    are left out: they begin behind a text that others have still to write.
    """
    found: list[tuple[float, Step]] = []
    clocks: dict[str, float] = {}
    drafts: dict[str, int] = {}  # where the step of drafts without a verdict yet stands in `found`
    for event in events:
        if not isinstance(event, Step) or strategy_of(event.strategy) != event.strategy:
            continue
        name, record = event.strategy, event.record
        now = clocks.get(name, 0.0)
        match record:
            case PrefillDone():
                now += record.seconds
            case RoundVerified():
                if (at := drafts.pop(name, None)) is not None:
                    found[at] = (now + record.draft_seconds, found[at][1])
                now += record.seconds
            case DraftsProposed():
                drafts[name] = len(found)
        clocks[name] = now
        found.append((now, event))
    found.sort(key=lambda step: step[0])
    return found


class Phase(Enum):
    """What a strategy is doing."""

    WAITING = "waiting"
    PREFILL = "prefill"
    DRAFT = "draft"
    VERIFY = "verify"  # a pass of the target, or of what writes alone
    ENDED = "ended"
    BROKEN_OFF = "not ended"  # no more of it is known


@dataclass(frozen=True, slots=True)
class Moment:
    """Where a strategy is at a time of the race.

    `rate`: tokens of its rounds per second of its rounds, as `RunFigures.decode_tokens_per_second` has it; None
    before there is one. `shown`: the last step that told tokens, drafts that wait among them; `before`: where they
    wait, the one before. `end`: how it ended, and at which second.
    """

    strategy: str
    phase: Phase
    tokens: int = 0
    rate: float | None = None
    searches: bool = False
    own_tokens: bool = False
    prompt_tokens: int = 0
    shown: Step | None = None
    before: Step | None = None
    end: tuple[RunEnded, float] | None = None


class Course:
    """One strategy's way through the race: its state at any time, in logarithmic time.

    `steps`: its own, with their seconds, in their order.
    """

    def __init__(self, strategy: str, steps: list[tuple[float, Step]]) -> None:
        self.strategy = strategy
        self._steps = [step for _, step in steps]
        self._times = array("d", [seconds for seconds, _ in steps])
        self._start = next((s.record for s in self._steps if isinstance(s.record, RunStarted)), RunStarted("", 0, 0, 0))
        # Entry i: behind the first i steps.
        self._tokens, self._rates = array("q", [0]), array("d", [nan])
        self._told = array("q", [-1])  # the last step that told tokens
        self._judged = array("q", [-1])  # the last that told of no drafts which wait
        self._sum_up()
        self._phases = self._phases_from_behind()
        stops = [seconds for seconds, step in steps if isinstance(step.record, PrefillDone | RoundVerified | RunEnded)]
        self._stops = array("d", sorted({0.0, *stops}))

    def _sum_up(self) -> None:
        tokens = in_rounds = rounds = owed = 0
        seconds = 0.0
        told = judged = -1
        searches = self._start.beams > 0
        for index, step in enumerate(self._steps):
            match step.record:
                case PrefillDone(token=token, beams=beams):
                    tokens, owed = int(token is not None), int(token is None and bool(beams))
                    told = judged = index
                case RoundVerified() as record:
                    new, rounds = len(record.new_tokens), rounds + 1
                    tokens += new
                    if owed and new:  # it is the prefill's, which a search tells late
                        new, owed = new - 1, 0
                    in_rounds, seconds = in_rounds + new, seconds + record.seconds
                    told = judged = index
                case DraftsProposed() if not searches:
                    told = index
            ended = isinstance(step.record, RunEnded)
            counted = rounds if searches and not ended else in_rounds
            self._tokens.append(tokens)
            self._rates.append(counted / seconds if seconds >= LEAST_SECONDS else nan)
            self._told.append(told)
            self._judged.append(judged)

    def _phases_from_behind(self) -> list[Phase]:
        """Entry i: what is done behind the first i steps. The next that tells something is what is being made."""
        phases = [Phase.BROKEN_OFF]
        for step in reversed(self._steps):
            match step.record:
                case DraftsProposed() if self._start.beams == 0:
                    phases.append(Phase.DRAFT)
                case DraftsProposed() | RoundVerified() | RunEnded():
                    phases.append(Phase.VERIFY)
                case PrefillDone():
                    phases.append(Phase.PREFILL)
                case RunStarted():
                    phases.append(Phase.WAITING)
                case _:
                    phases.append(phases[-1])
        phases.reverse()
        if self._steps and isinstance(self._steps[-1].record, RunEnded):
            phases[-1] = Phase.ENDED
        return phases

    @property
    def tokens(self) -> int:
        """Of the whole text."""
        return self._tokens[-1]

    def at(self, seconds: float) -> Moment:
        """Where it is when so many seconds have passed."""
        count = bisect_right(self._times, seconds)
        told, judged = self._told[count], self._judged[count]
        rate = self._rates[count]
        end = self._steps[-1].record if self._phases[count] is Phase.ENDED else None
        return Moment(
            self.strategy,
            self._phases[count],
            self._tokens[count],
            None if rate != rate else rate,
            self._start.beams > 0,
            self._start.own_tokens,
            self._start.prompt_tokens,
            None if told < 0 else self._steps[told],
            None if told == judged or judged < 0 else self._steps[judged],
            (end, self._times[-1]) if isinstance(end, RunEnded) else None,
        )

    def stop(self, seconds: float, by: int) -> float | None:
        """When its next round ends (1), or when the last one before ended (-1); None where there is none.

        The start, the prefill and the end of the run are such stops too.
        """
        index = bisect_right(self._stops, seconds) if by > 0 else bisect_left(self._stops, seconds) - 1
        return self._stops[index] if 0 <= index < len(self._stops) else None
