"""Where the time went, as bars on one scale that read without colours."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from widget_data import run_steps

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import PrefillDone, RoundVerified, RunStarted, Status, Step, Token
from specdec_tui.decoding.shares import Shares, shares
from specdec_tui.decoding.time_verdict import time_verdict
from specdec_tui.tui.figures.chart_lines import Line, cells
from specdec_tui.tui.figures.time_lines import LOOKS, bar_of, seconds_text, time_lines


def figures(steps: list[Step]) -> RunFigures:
    found = RunFigures()
    for step in steps:
        found.add(step.record)
    return found


PIECES = ["x"] * 80
TARGET = figures(run_steps("target", PIECES, gamma=0))
RUN = figures(run_steps("speculative", PIECES, alpha=0.6))


def texts(lines: list[Line]) -> list[str]:
    return ["".join(text for text, _ in line).rstrip() for line in lines]


def test_every_part_has_a_glyph_and_a_colour_of_its_own() -> None:
    glyphs, inks = zip(*LOOKS.values(), strict=True)
    assert len(set(glyphs)) == len(set(inks)) == len(LOOKS)
    assert all(cell_len(glyph) == 1 for glyph in glyphs)


def test_a_bar_is_as_long_as_its_part_of_the_longest_run() -> None:
    found = Shares(draft=1.0, target=2.0, rest=0.5, prefill=0.5, capture=1.0)
    assert texts([bar_of(found, 5.0, 50)]) == ["▒" * 10 + "█" * 20 + "░" * 5 + "▄" * 5 + "≡" * 10]
    assert texts([bar_of(found, 10.0, 50)]) == ["▒" * 5 + "█" * 10 + "░" * 3 + "▄" * 2 + "≡" * 5]
    assert texts([bar_of(found, 4.0, 40)])[0].endswith("▸") and cells(bar_of(found, 4.0, 40)) == 40
    assert texts([bar_of(Shares(), 0.0, 20)]) == [""]


def test_the_whole_view_has_bar_parts_sum_scale_and_sentence() -> None:
    wall = shares(TARGET).total
    lines = texts(time_lines(RUN, TARGET, wall, 80, 14))
    parts = shares(RUN)
    draft = f"▒ draft{parts.draft:>17.2f} s{parts.draft / parts.total:>5.0%}".replace("%", " %")
    assert draft in lines[2] and f"{RUN.drafted} drafts of 8 ms" in lines[2]
    assert f"{RUN.rounds} passes of 60 ms in rounds" in lines[3] and lines[3].startswith("█ target")
    assert lines[4].startswith("░ rule and host") and "1 ms a round" in lines[4]
    assert lines[5].startswith("▄ prefill") and "0.21 s" in lines[5] and "23 prompt tokens" in lines[5]
    assert lines[6].startswith("  with prefill") and " 100 %" in lines[6], "the table's shares are of decoding alone"
    assert f"a full bar is {wall:.2f} s in all panes" in lines[6]
    assert lines[0].endswith(f"{parts.total:.2f} s")
    assert " ".join(lines[8:]) == time_verdict(RUN, TARGET)
    full = texts(time_lines(TARGET, TARGET, wall, 80, 14))[0]
    assert set(full[:71]) == {"█", "░", "▄"} and "▒" not in full  # the longest run is the full width
    assert len(lines[0].rstrip(" s.0123456789")) == round(parts.total / wall * 71)


@pytest.mark.parametrize("width", [1, 4, 20, 38, 58, 120, 200])
@pytest.mark.parametrize("height", range(0, 16, 3))
def test_at_any_size_no_line_is_wider_and_the_sentence_is_there_before_the_parts(width: int, height: int) -> None:
    beside = [("target", shares(TARGET)), ("speculative", shares(RUN))]
    for others in ((), beside):
        lines = time_lines(RUN, TARGET, shares(TARGET).total, width, height, others)
        assert len(lines) <= height
        if width >= 20:
            assert all(cells(line) <= width for line in lines)
        if height >= 9 and width >= 38:
            joined = " ".join(texts(lines))
            assert time_verdict(RUN, TARGET) in " ".join(joined.split())


def test_where_one_pane_hides_the_others_all_bars_stand_in_it_and_its_own_is_marked() -> None:
    beside = [("target", shares(TARGET)), ("speculative", shares(RUN))]
    lines = texts(time_lines(RUN, TARGET, shares(TARGET).total, 76, 10, beside))
    assert lines[0].startswith(" target      █") and lines[1].startswith("▸speculative ▒")
    assert lines[0].endswith(" s") and lines[1].endswith(" s")


def test_a_run_that_has_not_begun_says_so_and_a_captured_one_shows_what_capturing_took() -> None:
    assert texts(time_lines(RunFigures(), None, 0.0, 40, 5)) == ["no rounds yet"]
    run = RunFigures()
    run.add(RunStarted("speculative", 7, 3, 64))
    run.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.5, capture_seconds=2.5, captured=True))
    run.add(RoundVerified(0, (), Token(1, Status.SAMPLED, 1), 0.0, 1.0, 0.0))
    lines = texts(time_lines(run, None, 4.0, 60, 12))
    assert "≡" in lines[0] and any(line.startswith("≡ capture") and "62 %" in line for line in lines)
    drafter = figures(run_steps("drafter", PIECES, gamma=0))
    assert any(line.startswith("█ drafter") for line in texts(time_lines(drafter, TARGET, 9.0, 60, 12)))


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (0.012, "12 ms"), (1.234, "1.23 s"), (99.0, "99.00 s"), (1234, "1234 s")]
)
def test_seconds_are_told_in_few_digits(seconds: float, text: str) -> None:
    assert seconds_text(seconds) == text
