"""What the clocks of a run and of its baseline say about the cost of its rounds. No torch here.

Whoever shows or writes c, v, a prediction or its remainder asks here, so that none of them is ever drawn from
clocks that contradict each other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec_tui.decoding.figures import RunFigures, cost_ratio, prediction, remainder, verify_ratio
from specdec_tui.decoding.reliability import reliability

NAMES = ("cost_ratio", "verify_ratio", "predicted_speedup", "remainder")
"""Of the figures in JSON."""


@dataclass(frozen=True, slots=True)
class Costs:
    """c, v, the predicted speedup and by which share the measured one is above it; None where one does not exist.

    `withheld`: why none of them is told, though there may be numbers; empty where nothing is kept back.
    """

    cost_ratio: float | None = None
    verify_ratio: float | None = None
    predicted_speedup: float | None = None
    remainder: float | None = None
    withheld: str = ""

    def named(self) -> dict[str, float | None]:
        """The figures by their `NAMES`."""
        return {name: getattr(self, name) for name in NAMES}


def costs(run: RunFigures, baseline: RunFigures | None) -> Costs:
    """Of `run` against the target's own run: no figures where the clock of the two was disturbed."""
    if baseline is None:
        return Costs()
    told = reliability(run, baseline)
    if told is not None and told.is_disturbed:
        return Costs(withheld=told.reason)
    return Costs(
        cost_ratio(run, baseline), verify_ratio(run, baseline), prediction(run, baseline), remainder(run, baseline)
    )


def without_disturbed(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Kept figures of a run by the same rule: other versions wrote what a disturbed clock said."""
    told = figures.get("reliability")
    is_disturbed = isinstance(told, Mapping) and told.get("word") == "disturbed"
    return {**figures, **{name: None for name in NAMES if is_disturbed and name in figures}}
