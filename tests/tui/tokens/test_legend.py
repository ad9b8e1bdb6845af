"""The legend."""

from __future__ import annotations

import pytest
from widget_data import HostApp, painted

from specdec_tui.decoding.records import Status
from specdec_tui.tui.tokens.legend import Legend, legend
from specdec_tui.tui.tokens.style import GLYPHS


@pytest.mark.parametrize("width", [200, 120, 80, 76, 60, 50])
def test_every_state_is_explained_on_one_line_down_to_fifty_cells(width: int) -> None:
    shown = legend(width)
    assert shown.cell_length <= width
    assert all(GLYPHS[status] in shown.plain for status in Status)


@pytest.mark.parametrize("width", [0, 1, 5, 20, 39])
def test_a_legend_with_no_room_is_cut_between_entries(width: int) -> None:
    assert legend(width).cell_length <= width


def test_each_state_has_a_glyph_of_its_own() -> None:
    assert len(set(GLYPHS.values())) == len(Status)


async def test_words_get_shorter_when_the_screen_does() -> None:
    widget = Legend()
    async with HostApp(widget, columns="-one").run_test(size=(120, 3)) as pilot:
        assert "unverified" in painted(widget)[0]
        await pilot.resize_terminal(58, 3)
        await pilot.pause()
        assert "unver " in painted(widget)[0]
