"""Finished runs once more, all together and each in its own true time. Pure: no screen, no clock.

Every strategy's clock starts with its prefill and stands still outside its own work, so nothing
about the order in which they ran on the device is left: the one that is first here was faster.
What there is to see depends on the seconds of the race alone, not on how one came there.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from specdec_tui.decoding.figures import OTHER_TEXTS
from specdec_tui.decoding.records import EndReason, Event, Step
from specdec_tui.tui.race.course import Course, Moment, timed

SPEEDS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0)
"""What `slower` and `faster` step through; 1 is true time."""

PARTS = 10
"""Jumps from one end of a race to the other."""

_MOST_STEPS = 500  # at once: rounds that took no time would else all be painted before the next key


@dataclass(frozen=True, slots=True)
class Due:
    """What brings who shows the race up to its time: `steps`, on empty panes where it begins `again`."""

    again: bool
    steps: list[Step]
    more: bool
    """There is more to come at this very time."""


class Race:
    """Where a race is: `advance` it by real seconds, `seek` or `step`; `due` is what is then to be shown."""

    def __init__(self, events: Iterable[Event], speed: float = 1.0) -> None:
        found = timed(events)
        self._steps = [step for _, step in found]
        self._times = array("d", [seconds for seconds, _ in found])
        own: dict[str, list[tuple[float, Step]]] = {}
        for seconds, step in found:
            own.setdefault(step.strategy, []).append((seconds, step))
        self._courses = {name: Course(name, steps) for name, steps in own.items()}
        self._shown = 0
        self.speed = speed
        self.seconds = 0.0
        self.playing = True

    @property
    def strategies(self) -> tuple[str, ...]:
        return tuple(self._courses)

    @property
    def length(self) -> float:
        """Seconds of the slowest run."""
        return self._times[-1] if self._times else 0.0

    @property
    def goal(self) -> int:
        """Tokens of the longest text: where lanes end. It tells of no strategy in particular."""
        return max((course.tokens for course in self._courses.values()), default=0)

    @property
    def over(self) -> bool:
        """Whether all of it has happened."""
        return self.seconds >= self.length

    @property
    def moments(self) -> list[Moment]:
        """Where each strategy is."""
        return [course.at(self.seconds) for course in self._courses.values()]

    def moment(self, strategy: str) -> Moment:
        return self._courses[strategy].at(self.seconds)

    @property
    def finished(self) -> list[tuple[str, float]]:
        """Strategies that wrote all of their text by now, with their seconds; the fastest first."""
        ends = [(one.strategy, one.end[1]) for one in self.moments if one.end is not None and has_finished(one)]
        return sorted(ends, key=lambda end: end[1])

    @property
    def places(self) -> dict[str, int]:
        """Who of these was first, second…; those that took the same share a place.

        None for those that write another text than the target's: being faster at that is no merit.
        """
        finished = [(name, seconds) for name, seconds in self.finished if name not in OTHER_TEXTS]
        return {name: 1 + sum(other < seconds for _, other in finished) for name, seconds in finished}

    def advance(self, real_seconds: float) -> None:
        """So much later, at the present speed; at its end it stops."""
        if self.playing:
            self.seek(self.seconds + real_seconds * self.speed)

    def seek(self, seconds: float) -> None:
        """To a time of it, or to the end that is nearer; behind its last there is nothing to play."""
        self.seconds = min(max(seconds, 0.0), self.length)
        self.playing = self.playing and not self.over

    def jump(self, by: int) -> None:
        """A part of the whole further (1) or back (-1)."""
        self.seek(self.seconds + by * self.length / PARTS)

    def step(self, strategy: str, by: int) -> bool:
        """To the next end of a round of a strategy (1) or the one before (-1); False where there is none."""
        self.playing = False
        stop = self._courses[strategy].stop(self.seconds, by)
        if stop is None:
            return False
        self.seek(stop)
        return True

    def due(self) -> Due:
        """The steps up to now that were not shown yet, not too many at once. Backwards there is no way but anew."""
        end = bisect_right(self._times, self.seconds)
        again = end < self._shown
        begin = 0 if again else self._shown
        self._shown = min(end, begin + _MOST_STEPS)
        return Due(again, self._steps[begin : self._shown], self._shown < end)

    def change_speed(self, steps: int) -> None:
        """To the next faster (1) or slower (-1) of `SPEEDS`."""
        if steps > 0:
            self.speed = next((speed for speed in SPEEDS if speed > self.speed), self.speed)
        else:
            self.speed = next((speed for speed in reversed(SPEEDS) if speed < self.speed), self.speed)


def has_finished(moment: Moment) -> bool:
    """Whether it wrote all of its text."""
    return moment.end is not None and moment.end[0].reason not in (EndReason.CANCELLED, EndReason.ERROR)
