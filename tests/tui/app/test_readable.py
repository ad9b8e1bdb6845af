"""Whatever is painted can be read: every word has enough contrast to the ground it stands on."""

from __future__ import annotations

import pytest
from contrast import contrast, faint_words
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.strip import Strip

from specdec_tui.theme_files import THEMES
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.commands.dialog import Dialog


def painted(app: SpecdecApp) -> list[Strip]:
    """What a person looks at: of a dialog, not what lies dimmed behind it."""
    strips = app.screen._compositor.render_strips()
    if not isinstance(app.screen, Dialog):
        return strips
    x, y, width, height = app.screen.children[0].region
    return [strip.crop(x, x + width) for strip in strips[y : y + height]]


# Keys, from the panes after a run, to what is looked at.
PLACES = {
    "text": (),
    "rounds": ("v",),
    "tree": ("v",),
    "charts": ("v",),
    "time": ("v",),
    "table": ("t",),
    "token": ("i",),
    "settings": ("s",),
    "prompt": ("slash",),
    "find": ("f", "x"),
    "help": ("h",),
    "history": ("H",),
    "filter": ("H", "slash"),
    "export": ("e",),
    "models": ("m",),
    "palette": ("ctrl+p",),
    "refused": ("ctrl+p", *"gamma", "space", *"99"),
    "prompts": ("slash", "ctrl+r"),
}


SIZES = [pytest.param((80, 24), id="80x24"), pytest.param((120, 40), id="120x40", marks=pytest.mark.large)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "theme", [pytest.param(name, marks=[pytest.mark.large] * (name != "specdec-dark")) for name in THEMES]
)
async def test_every_word_on_the_screen_can_be_read(theme: str, size: tuple[int, int]) -> None:
    app = make_app(ScriptedEngine(), theme=theme)
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        faint = {"empty": faint_words(painted(app))}
        await ask(pilot, "Why is the sky blue?")
        await until(pilot, lambda: not app.runs.running and app.table.row_count, "the run")
        await until(pilot, lambda: len(app.recordings.store.entries()) == 1, "the trace")
        for name, keys in PLACES.items():
            await pilot.press("escape")
            await pilot.press(*keys)
            await pilot.pause()
            faint[name] = faint_words(painted(app))
            await pilot.press("escape", "escape")
        frame, ground = app.prompt_box.styles.border_top[1], app.prompt_box.background_colors[1]
        assert contrast(frame, ground) >= 1.5, "the prompt's frame is seen without the focus too"
        assert {name: words for name, words in faint.items() if words} == {}
