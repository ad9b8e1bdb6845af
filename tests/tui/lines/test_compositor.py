"""Partial updates: the same cells as Textual's own compositor draws, from fewer widgets."""

from __future__ import annotations

import pytest
from rich.segment import Segment
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual._compositor import ChopsUpdate
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from specdec_tui.tui.lines.compositor import SparingCompositor, SparingScreen

Cells = dict[tuple[int, int], tuple[str, object]]


def cells_of(update: ChopsUpdate) -> Cells:
    """Every cell that an update draws: (row, column) to its text and style."""
    cells: Cells = {}
    for y, x1, x2 in update.spans:
        for end, (x, strip) in zip(update.chop_ends[y], update.chops[y].items(), strict=True):
            if strip is None or x >= x2 or end <= x1:
                continue
            column = x
            for segment in Segment.simplify(strip.crop(0, min(end, x2) - x)):
                for character in segment.text:
                    cells[y, column] = (character, segment.style)
                    column += 1
    return cells


class Comparing(SparingCompositor):
    """Makes each partial update both ways, and counts the widgets asked."""

    def __init__(self) -> None:
        super().__init__()
        self.pairs: list[tuple[Cells, Cells]] = []
        self.asked: list[tuple[int, int]] = []

    def render_partial_update(self) -> ChopsUpdate | None:
        dirty = set(self._dirty_regions)
        before = ASKED["widgets"]
        ours = super().render_partial_update()
        between = ASKED["widgets"]
        self._dirty_regions |= dirty
        theirs = super(SparingCompositor, self).render_partial_update()
        if ours is not None and theirs is not None:
            self.pairs.append((cells_of(ours), cells_of(theirs)))
            self.asked.append((between - before, ASKED["widgets"] - between))
        return ours


ASKED = {"widgets": 0}


@pytest.fixture
def comparing(monkeypatch: pytest.MonkeyPatch) -> None:
    render_lines = Widget.render_lines

    def counted(self: Widget, crop: Region) -> list[Strip]:
        ASKED["widgets"] += 1
        return render_lines(self, crop)

    def init(self: SparingScreen) -> None:
        made(self)
        self._compositor = Comparing()

    made = SparingScreen.__init__
    monkeypatch.setattr(SparingScreen, "__init__", init)
    monkeypatch.setattr(Widget, "render_lines", counted)


@pytest.mark.parametrize(
    "size", [(80, 24), *(pytest.param(size, marks=pytest.mark.large) for size in ((120, 40), (200, 60)))]
)
async def test_a_partial_update_draws_the_cells_textual_draws_from_fewer_widgets(
    comparing: None, size: tuple[int, int]
) -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "go")
        for rounds in range(1, 40):
            engine.step(1 + rounds % 2)
            await pilot.pause(0.02)
            if rounds == 10:
                app.say("A toast that lies over a pane")
            if rounds == 20:
                await pilot.press("escape", "s", "escape")
            if rounds == 30:
                await pilot.press("escape", "v", "down")
        engine.step(500)
        await until(pilot, lambda: not app.runs.running, "the run's end")
        compositor = app.screen._compositor
        assert isinstance(compositor, Comparing)
        assert len(compositor.pairs) > 20
        for ours, theirs in compositor.pairs:
            assert ours and ours == theirs
        ours_asked, theirs_asked = (sum(counts) for counts in zip(*compositor.asked, strict=True))
        assert 4 * ours_asked < 3 * theirs_asked
