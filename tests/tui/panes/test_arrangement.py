"""Where each pane stands."""

from __future__ import annotations

import pytest
from textual.geometry import Size

from specdec_tui.tui.panes.arrangement import LEAST_PANE_ROWS, arrange


@pytest.mark.parametrize("screen", [60, 99, 100, 180, 181, 200, 300])
@pytest.mark.parametrize("count", range(1, 10))
@pytest.mark.parametrize("height", [1, 6, 7, 13, 20, 34, 55])
def test_panes_fill_the_room_without_gaps_or_overlap_and_stay_readable(screen: int, count: int, height: int) -> None:
    regions = arrange(count, Size(screen, 60), screen - 2, height)
    assert len(regions) == count
    bottom = max(region.bottom for region in regions)
    assert sum(region.area for region in regions) == bottom * (screen - 2)
    assert not any(a.overlaps(b) for i, a in enumerate(regions) for b in regions[:i])
    assert all(region.height >= LEAST_PANE_ROWS for region in regions) or bottom == height
    assert bottom >= height or height < LEAST_PANE_ROWS or bottom + LEAST_PANE_ROWS > height


def test_a_panel_beside_the_panes_leaves_their_columns() -> None:
    assert len({region.x for region in arrange(4, Size(120, 40), 74, 30)}) == 2
