"""The whole app with frozen data at three widths, and its dialogs."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from shell import make_app, until
from textual.pilot import Pilot

SIZES = [(80, 24), (120, 40), (200, 60)]


def after(*keys: str) -> Callable[[Pilot[int]], object]:
    """Wait for the result of the first run, then press keys."""

    async def run(pilot: Pilot[int]) -> None:
        app = pilot.app
        app.animation_level = "none"
        await until(pilot, lambda: app.table.row_count and app.header.state == "ready", "result")
        app.prompt_box.cursor_blink = False
        await pilot.press(*keys)
        await pilot.pause(0.3)

    return run


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_a_finished_run_looks_the_same(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    app = make_app(prompt="Why is the sky blue?", max_new_tokens=60)
    assert snap_compare(app, terminal_size=size, run_before=after())


@pytest.mark.parametrize("theme", ["specdec-light", "specdec-colour-blind"])
def test_a_finished_run_looks_the_same_in_other_themes(theme: str, snap_compare: Callable[..., bool]) -> None:
    app = make_app(prompt="Why is the sky blue?", max_new_tokens=60, theme=theme)
    assert snap_compare(app, terminal_size=(120, 40), run_before=after("escape", "v"))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_the_side_bar_looks_the_same(size: tuple[int, int], snap_compare: Callable[..., bool]) -> None:
    app = make_app(prompt="Why is the sky blue?")
    assert snap_compare(app, terminal_size=size, run_before=after("escape", "s"))


@pytest.mark.parametrize("query", ["", "gamma 99", "processor "], ids=["empty", "refused", "values"])
def test_the_palette_looks_the_same(query: str, snap_compare: Callable[..., bool]) -> None:
    app = make_app(prompt="Why is the sky blue?")
    keys = [{" ": "space"}.get(character, character) for character in query]

    async def run(pilot: Pilot[int]) -> None:
        await after("ctrl+p", *keys)(pilot)  # type: ignore[misc]
        from textual.widgets import Input

        pilot.app.screen.query_one(Input).cursor_blink = False

    assert snap_compare(app, terminal_size=(100, 30), run_before=run)


def test_the_help_looks_the_same(snap_compare: Callable[..., bool]) -> None:
    app = make_app(prompt="Why is the sky blue?")
    assert snap_compare(app, terminal_size=(100, 30), run_before=after("f1"))
