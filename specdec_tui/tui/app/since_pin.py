"""How the run in the panes differs from the one that was pinned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from specdec_tui.decoding.figures import OTHER_TEXTS
from specdec_tui.decoding.records import CHILD
from specdec_tui.decoding.standing import BEYOND_TOKENS, standing
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.figures.pinned import Changes, Made, Pinned, changes_since, is_pinned, note
from specdec_tui.tui.figures.summary import summary

if TYPE_CHECKING:
    from specdec_tui.backends.pair import PairInfo
    from specdec_tui.decoding.differences import Measured
    from specdec_tui.settings import Settings
    from specdec_tui.tui.figures.words import Part
    from specdec_tui.tui.panes.grid import PaneGrid


def made_with(settings: Settings, prompt: str, pair: PairInfo | None) -> Made:
    """Of a run; without a `pair` nothing is known of its models."""
    models = () if pair is None else tuple(one_row(f"{m.name} {m.precision} {m.device}") for m in pair.models)
    return Made(prompt, settings.max_new_tokens, models, summary(settings))


class SincePin:
    """`made`: what the run in the panes was made with."""

    def __init__(self, grid: PaneGrid) -> None:
        self._grid = grid
        self.made = Made()
        self.pinned: Pinned | None = None

    def pin(self, letter: str, when: str) -> str:
        self.pinned = Pinned(letter, when, self.made, self._runs())
        return self.pinned.name

    def unpin(self) -> str:
        said, self.pinned = "" if self.pinned is None else self.pinned.name, None
        return said

    def tell(self) -> tuple[Mapping[str, Changes], list[list[Part]]]:
        """By strategy how it differs, told to the panes too, and what is to be known of that."""
        runs, changes, said = self._runs(), {}, []
        if self.pinned is not None and runs and all(one.run.end for one in runs.values()):
            changes = changes_since(self.pinned, self.made, runs, self._praised(runs))
            target = self.pinned.runs.get("target")
            baselines = None if target is None else target.run, self._grid.baseline[0] if "target" in runs else None
            if changes or is_pinned(self.pinned, runs):
                said = note(self.pinned, self.made, changes, baselines)
        for name, pane in self._grid.panes.items():
            pane.set_changes(changes.get(name))
        return changes, said

    def _runs(self) -> dict[str, Measured]:
        from specdec_tui.decoding.differences import Measured  # not at a start

        baseline, _ = self._grid.baseline
        panes = self._grid.panes
        return {
            result.strategy: Measured(result.figures, baseline, panes[result.strategy].plain_text)
            for result in self._grid.results
            if CHILD not in result.strategy  # a what-if has no prompt in common with any run
        }

    def _praised(self, runs: Mapping[str, Measured]) -> list[str]:
        """Those whose speedup is what it seems."""
        found = {name: standing(one.run, one.baseline) for name, one in runs.items() if name not in OTHER_TEXTS}
        return [name for name, one in found.items() if one and not one.doubt and BEYOND_TOKENS not in one.marks]
