"""What strategies of a trace are compared with: the target's run in it, or an earlier one that the header tells of."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from specdec_tui.decoding.costs import Costs, costs, kept_costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.traces.format import TraceHeader
from specdec_tui.traces.standings import standings


@dataclass(frozen=True, slots=True)
class Compared:
    """How a strategy stood, and what was to be expected of it. `since`: when a baseline of another time was made."""

    standing: Standing | None
    costs: Costs
    since: str = ""


def compared(header: TraceHeader, figures: Mapping[str, RunFigures]) -> dict[str, Compared]:
    """Of each strategy of a trace, whose `figures` are summed up from its events: a what-if with nothing."""
    target, kept = figures.get("target"), standings(header)
    found = {}
    for name, run in figures.items():
        if run.is_what_if:
            found[name] = Compared(None, Costs())
        elif target is None and header.is_borrowed(name):
            own = header.strategies[name]
            found[name] = Compared(kept.get(name), kept_costs(own), str(own["baseline_created"]))
        else:
            found[name] = Compared(standing(run, target), costs(run, target))
    return found
