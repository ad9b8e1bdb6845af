"""The chart of what passes cost: curves, knee and words at every size, against curves made by hand."""

from __future__ import annotations

import pytest
from widget_data import PASS_LIMIT, PASSES, STORY, HostApp, run_steps, words_of

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import PassLimit, PassSeconds, PrefillDone, RunStarted, Status, Token
from specdec_tui.tui.figures.chart_lines import Ink, Line, cells
from specdec_tui.tui.figures.pass_chart import compact_passes, full_passes
from specdec_tui.tui.panes.pane import StrategyPane

# Of 1 to 3 tokens 10 ms, then 10 ms a token more.
BENT = ((1, 0.010), (2, 0.010), (3, 0.010), (4, 0.020), (5, 0.030))
# Reading 5 ms, 5 ms a token: at 1 token 5 ms, at 5 tokens 25 ms.
LIMIT = PassLimit(5_000_000, 5_000_000, 1e9, 1e9, 1)


def run(passes: PassSeconds, limit: PassLimit | None = None, **told: bool) -> RunFigures:
    figures = RunFigures()
    figures.add(RunStarted("speculative", 5, 4, 99))
    figures.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.1, passes=passes, pass_limit=limit, **told))  # type: ignore[arg-type]
    return figures


def text(line: Line) -> str:
    return "".join(part for part, _ in line)


def cell_of(lines: list[Line], sign: str, ink: Ink) -> list[tuple[int, int]]:
    """(row, column) of each such sign below the heading."""
    found = []
    for row, line in enumerate(lines[1:], 1):
        signs = [(one, what) for part, what in line for one in part]
        found += [(row, column) for column, one in enumerate(signs) if one == (sign, ink)]
    return found


def test_points_stand_where_their_milliseconds_are() -> None:
    # 40 columns: 6 on both sides, 28 for the plot, whose points are 27 / 4 cells apart; 6 rows for 0 to 30 ms.
    lines = full_passes(run(BENT), 40, 10)
    assert text(lines[1])[:6] == "   30 " and text(lines[-5])[:6] == "      " and text(lines[-4])[:6] == "    0 "
    points = sorted(cell_of(lines, "◆", Ink.RUN), key=lambda place: place[1])
    assert [column for _, column in points] == [6, 6 + 7, 6 + 13, 6 + 20, 6 + 27]
    plot = len(lines) - 4  # heading, numbers, two lines of a sentence
    assert [row for row, _ in points] == [1 + round((1 - ms / 30) * (4 * plot - 1)) // 4 for ms in (10, 10, 10, 20, 30)]
    assert text(lines[1]).rstrip().endswith("3.00×")
    assert text(lines[points[0][0]]).rstrip().endswith("1.00×")
    assert [(text(lines[-3])[column], n) for n, (_, column) in enumerate(points, 1)] == [
        (str(n), n) for n in range(1, 6)
    ]


def test_the_knee_is_a_line_at_its_tokens_and_in_the_legend() -> None:
    lines = full_passes(run(BENT), 40, 10)
    assert {column for _, column in cell_of(lines, "┃", Ink.VALUE)} == {6 + 13}
    assert "┃ knee 3" in text(lines[0])
    flat = full_passes(run(BENT[:3]), 40, 10)
    assert not cell_of(flat, "┃", Ink.VALUE) and "knee" not in text(flat[0])


def test_the_limit_lies_beside_the_curve_and_is_named_where_it_is_known() -> None:
    lines = full_passes(run(BENT, LIMIT), 60, 14)
    dots = cell_of(lines, "•", Ink.BASELINE)
    points = {column: row for row, column in cell_of(lines, "◆", Ink.RUN)}
    assert dots and "• limit" in text(lines[0])
    assert max(points.values()) < max(row for row, _ in dots)  # 5 ms lie below 10
    assert not cell_of(full_passes(run(BENT), 60, 14), "•", Ink.BASELINE)
    assert "limit" not in text(full_passes(run(BENT), 60, 14)[0])


def test_a_sentence_stands_below_in_as_many_words_as_there_is_room_for() -> None:
    whole = full_passes(run(PASSES, PASS_LIMIT), 80, 12)
    assert text(whole[-1]) == "5 tokens cost 1.18× one, 1.18× the limit: the memory binds, up to 8 tokens"
    assert [text(line) for line in full_passes(run(PASSES, PASS_LIMIT), 50, 12)[-2:]] == [
        "5 tokens cost 1.18× one, 1.18× the limit: the",
        "memory binds, up to 8 tokens",
    ]
    assert text(full_passes(run(PASSES, PASS_LIMIT), 50, 6)[-1]) == "5 tokens cost 1.18× one, 1.18× the limit"
    assert text(full_passes(run(PASSES, PASS_LIMIT), 27, 6)[-1]) == "5 tokens cost 1.18× one"


def test_what_was_not_measured_says_why() -> None:
    told = full_passes(run((), recomputes=True), 30, 6)
    assert [text(line) for line in told[1:]] == ["not measured: every pass", "computes the whole text again"]
    assert text(compact_passes(run((), by_calls=True), "pass of n    ", 80)) == (
        "pass of n    not measured: the target is on a server: each of its passes is a call"
    )


def test_a_row_of_text_has_the_milliseconds_of_one_token_and_the_price_of_more() -> None:
    whole = "pass of n    ┃ knee 3  1: 10 ms  2: 1.00×  3: 1.00×  4: 2.00×  5: 3.00×"
    assert text(compact_passes(run(BENT), "pass of n    ", 80)).rstrip() == whole
    cut = compact_passes(run(BENT), "pass of n    ", 50)
    assert text(cut) == "pass of n    ┃ knee 3  1: 10 ms  2: 1.00×  …" and cells(cut) <= 50


@pytest.mark.each_value
@pytest.mark.parametrize("limit", [LIMIT, None])
@pytest.mark.parametrize("passes", [BENT, BENT[:1], PASSES, ((1, 1e-6), (33, 900.0)), ()])
def test_every_size_is_kept(passes: PassSeconds, limit: PassLimit | None) -> None:
    for width in range(27, 120, 3):
        for height in range(1, 30):
            lines = full_passes(run(passes, limit), width, height)
            assert len(lines) <= height
            assert all(cells(line) <= width for line in lines), (width, height)


async def test_in_the_targets_pane_it_stands_where_drafts_have_no_chart() -> None:
    panes = [StrategyPane(1, "target"), StrategyPane(2, "speculative")]
    pieces = words_of(STORY)
    async with HostApp(*panes, columns="-two").run_test(size=(140, 24)) as pilot:
        told = {"passes": PASSES, "pass_limit": PASS_LIMIT}
        for pane in panes:
            pane.view = "charts"
        panes[0].feed(run_steps("target", pieces, gamma=0, **told))  # type: ignore[arg-type]
        panes[1].feed(run_steps("speculative", pieces, **told))  # type: ignore[arg-type]
        await pilot.pause()
        await pilot.pause()
        own, beside = ("\n".join(pane.charts_view.lines) for pane in panes)
        assert "◆" in own and "5 tokens cost 1.18× one" in own and "pass of n   " not in own
        assert "by position" in beside and "◆" not in beside


async def test_alone_a_pane_has_it_in_full_or_why_not_in_a_row() -> None:
    pieces = words_of(STORY)
    for passes in (PASSES, ()):
        pane = StrategyPane(2, "speculative")
        async with HostApp(pane, columns="-one").run_test(size=(120, 45)) as pilot:
            pane.view = "charts"
            pane.feed(run_steps("speculative", pieces, passes=passes))
            await pilot.pause()
            await pilot.pause()
            shown = "\n".join(pane.charts_view.lines)
            assert ("◆ measured" in shown) == bool(passes)
            assert ("pass of n    not measured: " in shown) != bool(passes)
