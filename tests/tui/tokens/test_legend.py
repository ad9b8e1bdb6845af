"""The legend."""

from __future__ import annotations

import pytest
from textual.style import Style
from widget_data import HostApp, painted

from specdec_tui.decoding.records import EMITTED, Status
from specdec_tui.tui.tokens.legend import Legend, legend
from specdec_tui.tui.tokens.style import GLYPHS

EVERY = dict.fromkeys(Status, Style())


@pytest.mark.parametrize("width", [200, 120, 80, 76])
def test_every_state_is_explained_on_one_line_down_to_seventy_six_cells(width: int) -> None:
    shown = legend(width, Status, EVERY)
    assert shown.cell_length <= width
    assert all(GLYPHS[status] in shown.plain for status in Status)


@pytest.mark.parametrize("width", range(90))
def test_no_word_is_ever_cut_and_what_is_left_out_is_told(width: int) -> None:
    """`acc`, `rej`, `unver` and `resam` at 60 columns."""
    shown = legend(width, Status, EVERY)
    words = [word for word in shown.plain.split() if len(word) > 1]
    assert shown.cell_length <= width and set(words) <= {status.value for status in Status} | {"(not", "judged)"}
    if width >= 58:
        assert {"accepted", "rejected", "resampled", "unverified", "bonus"} <= set(words)
    if 20 <= width < 74:
        assert shown.plain.endswith(" …")


def test_what_unverified_means_is_told_where_there_is_room() -> None:
    """It stood in no sentence."""
    judged = frozenset(Status) - {Status.PENDING}
    assert "○ unverified (behind a refusal, never judged)" in legend(120, Status, EVERY).plain
    assert "○ unverified (not judged)" in legend(78, judged, EVERY).plain
    assert "judged" not in legend(70, judged, EVERY).plain + legend(200, EMITTED, EVERY).plain


def test_only_the_states_that_can_stand_are_named() -> None:
    assert legend(80, EMITTED, EVERY).plain == "✓ accepted  ↻ resampled  + bonus  › sampled"


def test_a_fate_that_searches_call_otherwise_has_both_words() -> None:
    shown = legend(80, EMITTED, EVERY, {Status.SAMPLED: "sampled/settled"})
    assert shown.plain == "✓ accepted  ↻ resampled  + bonus  › sampled/settled"
    assert legend(46, EMITTED, EVERY, {Status.SAMPLED: "sampled/settled"}).plain.endswith("+ bonus …")


def test_each_state_has_a_glyph_of_its_own() -> None:
    assert len(set(GLYPHS.values())) == len(Status)


async def test_there_are_fewer_words_when_there_is_less_room() -> None:
    widget = Legend()
    async with HostApp(widget, columns="-one").run_test(size=(120, 3)) as pilot:
        widget.explain(frozenset(Status))
        await pilot.pause()
        assert "unverified" in painted(widget)[0]
        await pilot.resize_terminal(58, 3)
        await pilot.pause()
        assert "unverified" in painted(widget)[0] and "pending" not in painted(widget)[0]


async def test_the_words_look_as_the_tokens_do_and_no_strike_crosses_a_glyph() -> None:
    widget = Legend()
    async with HostApp(widget, columns="-one").run_test(size=(120, 3)) as pilot:
        widget.explain(frozenset(Status))
        await pilot.pause()
        styles = {segment.text.strip(): segment.style for segment in widget.render_line(0) if segment.style}
        assert styles["rejected"].strike and not styles["✗"].strike
        assert styles["unverified"].italic and styles["bonus"].bold
        assert styles["✗"].color == styles["rejected"].color


async def test_where_no_tokens_can_stand_the_legend_takes_no_line() -> None:
    widget = Legend()
    async with HostApp(widget, columns="-one").run_test(size=(120, 3)) as pilot:
        widget.explain(None)
        await pilot.pause()
        assert not widget.display
        widget.explain(EMITTED)
        assert widget.display
        widget.explain(frozenset())  # as long as there are none yet, their line is kept: nothing jumps when they come
        await pilot.pause()
        assert widget.display and not painted(widget)[0].strip()
