"""Finished runs once more, all together and each in its own true time. Pure: no screen, no clock.

Every strategy's clock starts with its prefill and stands still outside its own work, so nothing
about the order in which they ran on the device is left: the one that is first here was faster.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    Event,
    PrefillDone,
    RoundVerified,
    RunEnded,
    Step,
)

SPEEDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0)
"""What `slower` and `faster` step through; 1 is true time."""

_MOST_STEPS = 500  # at once: rounds that took no time would else all be painted before the next key


def timed(events: Iterable[Event]) -> list[tuple[float, Step]]:
    """Every step with the seconds its strategy had worked when it happened, in the order of these times.

    Drafts appear when they were drafted: after the drafting time that the verdict of their round tells.
    """
    found: list[tuple[float, Step]] = []
    clocks: dict[str, float] = {}
    drafts: dict[str, int] = {}  # where the step of drafts without a verdict yet stands in `found`
    for event in events:
        if not isinstance(event, Step):
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


class Race:
    """Where a race is. `advance` it by real seconds; it answers with what happened meanwhile."""

    def __init__(self, events: Iterable[Event], speed: float = 1.0) -> None:
        self._steps = timed(events)
        self._next = 0
        self.speed = speed
        self.seconds = 0.0

    @property
    def length(self) -> float:
        """Seconds of the slowest run."""
        return self._steps[-1][0] if self._steps else 0.0

    @property
    def finished(self) -> list[tuple[str, float]]:
        """Strategies that wrote all of their text by now, with their seconds; the fastest first."""
        return [
            (step.strategy, seconds)
            for seconds, step in self._steps[: self._next]
            if isinstance(step.record, RunEnded) and step.record.reason not in (EndReason.CANCELLED, EndReason.ERROR)
        ]

    @property
    def over(self) -> bool:
        return self._next >= len(self._steps)

    def advance(self, real_seconds: float) -> list[Step]:
        """The steps that happen in the next `real_seconds` at the present speed."""
        self.seconds = min(self.seconds + real_seconds * self.speed, self.length)
        begin = self._next
        end = min(len(self._steps), begin + _MOST_STEPS)
        while self._next < end and self._steps[self._next][0] <= self.seconds:
            self._next += 1
        return [step for _, step in self._steps[begin : self._next]]

    def change_speed(self, steps: int) -> None:
        """To the next faster (1) or slower (-1) of `SPEEDS`."""
        if steps > 0:
            self.speed = next((speed for speed in SPEEDS if speed > self.speed), self.speed)
        else:
            self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), self.speed)


_DOUBT = "✗"


def finish_words(finished: Sequence[tuple[str, float]], disturbed: Collection[str] = ()) -> str:
    """`1 lookup 12.1 s✗ · 2 target 33.9 s  ✗ clock disturbed`; those that took the same share a place."""
    words = []
    digits = 2 if finished and finished[-1][1] < 10 else 1
    for name, seconds in finished:
        place = 1 + sum(other < seconds for _, other in finished)
        doubt = _DOUBT if name in disturbed else ""
        words.append(f"{place} {name} {seconds:.{digits}f} s{doubt}")
    told = f"  {_DOUBT} clock disturbed" if any(name in disturbed for name, _ in finished) else ""
    return " · ".join(words) + told
