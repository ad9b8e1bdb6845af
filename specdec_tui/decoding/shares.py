"""Where the time of a run went: the parts of its own clock. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from specdec_tui.decoding.figures import RunFigures


class Part(StrEnum):
    """What took time, in the order in which it is told."""

    DRAFT = "draft"
    TARGET = "target"  # its passes in rounds; of a run of the drafter alone that model's, of calls the server's time
    WIRE = "wire"  # the way to a server and back
    REST = "rule and host"  # verification draws, rewinds, updates of stores
    PREFILL = "prefill"
    CAPTURE = "capture"  # making a round's programs, once for a shape


@dataclass(frozen=True, slots=True)
class Shares:
    """Seconds of each part: together the wall of the run's own clock.

    That stands still in other runs' rounds, and while figures are computed for the eyes.
    """

    draft: float = 0.0
    target: float = 0.0
    wire: float = 0.0
    rest: float = 0.0
    prefill: float = 0.0
    capture: float = 0.0

    @property
    def total(self) -> float:
        return self.draft + self.target + self.wire + self.rest + self.prefill + self.capture

    @property
    def parts(self) -> tuple[tuple[Part, float], ...]:
        """Every part with its seconds, also where it took none."""
        seconds = self.draft, self.target, self.wire, self.rest, self.prefill, self.capture
        return tuple(zip(Part, seconds, strict=True))


def shares(run: RunFigures) -> Shares:
    """Of a run so far."""
    rounds = run.draft_seconds, run.verify_seconds, run.wire_seconds, run.other_seconds
    return Shares(*rounds, run.prefill_seconds, run.capture_seconds)
