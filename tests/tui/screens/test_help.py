"""The help: its first page explains, and nothing in it is cut or loses its column."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len
from shell import make_app
from widget_data import painted

from specdec_tui.glossary import FATES, FIGURES, IDEA
from specdec_tui.tui.screens.help import HelpText, help_text


@pytest.mark.parametrize("width", [50, 72, 96])
def test_no_line_is_wider_than_the_room(width: int) -> None:
    assert max(cell_len(line) for line in help_text(width).plain.split("\n")) <= width


def test_the_first_page_tells_the_idea_the_letters_and_the_fates() -> None:
    first_page = " ".join(help_text(96).plain.split("In the prompt box")[0].split())
    assert IDEA in first_page and 4 <= IDEA.count(". ") + 1 <= 5
    assert "guesses the next γ tokens" in first_page and "in one pass" in first_page
    for letter, meaning in FIGURES.items():
        assert f"{letter} {meaning}" in first_page
    for fate, (glyph, meaning) in FATES.items():
        assert f"{glyph} {fate} {meaning}" in first_page


@pytest.mark.parametrize("width", [50, 96])
def test_words_stand_beside_their_column_in_every_line(width: int) -> None:
    lines, column, goes_on = help_text(width).plain.split("\n"), 0, 0
    letters, example, keys = (lines.index(title) for title in ("Letters", "A round", "In the prompt box"))
    for line in lines[letters:example] + lines[keys:]:
        if head := re.match(r"  (\S+( \S+)*)\s{2,}(?=\S)", line):
            column = head.end()
        elif line.startswith("   "):
            assert len(line) - len(line.lstrip()) == column, line
            goes_on += 1
    assert goes_on


async def test_at_80_by_24_the_idea_the_letters_and_the_fates_are_in_sight_at_once() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        box, text = app.screen.query_one("#help"), app.screen.query_one(HelpText)
        in_sight = painted(text)[: box.scrollable_content_region.height]
        seen = " ".join(" ".join(in_sight).split())
        assert IDEA in seen
        for word, meaning in [*FIGURES.items(), *((f"{glyph} {fate}", told) for fate, (glyph, told) in FATES.items())]:
            assert f"{word} {meaning}" in seen
        assert box.scroll_y == 0 and box.max_scroll_y > 0


@pytest.mark.parametrize("size", [(60, 18), (80, 24), (200, 60)])
async def test_the_help_fits_the_terminal(size: tuple[int, int]) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await pilot.press("f1")
        await pilot.pause()
        text = app.screen.query_one(HelpText)
        assert text.region.right <= size[0]
        assert any("What this is about" in line for line in painted(text))
        top = app.screen.query_one("#help").scroll_y
        await pilot.press("pagedown")
        await pilot.pause(0.5)
        assert app.screen.query_one("#help").scroll_y > top
