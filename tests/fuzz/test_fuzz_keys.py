"""Whatever is typed, pasted and resized: the app lives, answers, keeps what was typed, and can be left."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random
from time import monotonic

import pytest
from campaign import campaign
from mutations import TEXTS
from shell import make_app
from textual import events
from textual.geometry import Size
from textual.pilot import Pilot

from specdec_tui.tui.app.app import SpecdecApp

KEYS = (
    *"abcdehinrstvxyzHRT123456789[]+-/?. ",
    *("enter", "escape", "tab", "shift+tab", "up", "down", "left", "right", "home", "end", "pageup", "pagedown"),
    *("ctrl+c", "ctrl+p", "ctrl+r", "ctrl+j", "ctrl+s", "ctrl+o", "ctrl+l", "ctrl+z", "f1", "f2", "alt+1", "alt+3"),
    *("backspace", "delete", "ctrl+a", "ctrl+e", "ctrl+u", "ctrl+w", "ctrl+k", "ctrl+y", "space", "insert"),
)
WORDS = ("why ", "is the ", "γ 5 ", "雲 ", "stop ", "theme ", "target /nowhere ", "[/b] ")
ANSWERS = 20.0  # seconds for the app to have done what one key asks, on a machine that does other things too


def test_keys_pastes_and_sizes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    campaign("keys", lambda dice: asyncio.run(session(dice)))


async def session(dice: Random) -> str:
    app = make_app()
    async with app.run_test(size=size_of(dice)) as pilot:
        await pilot.pause()
        typed = "".join(dice.choice(WORDS) for _ in range(dice.randrange(4)))
        app.prompt_box.focus()
        app.prompt_box.insert(typed)
        for _ in range(dice.randrange(3)):
            await resize(pilot, size_of(dice))
        assert app.prompt_box.text == typed, f"typed {typed!r}, kept {app.prompt_box.text!r}"
        done: list[str] = []
        for _ in range(dice.randrange(3, 25)):
            done.append(await act(dice, app, pilot))
            if app._exit:
                return "left"
        try:
            await leave(app, pilot)
        except AssertionError as error:
            raise AssertionError(f"{error} after {done}") from None
    return "survived"


async def act(dice: Random, app: SpecdecApp, pilot: Pilot[int]) -> str:
    match dice.randrange(10):
        case 0:
            size = size_of(dice)
            await asyncio.wait_for(resize(pilot, size), ANSWERS)
            return f"resized to {size}"
        case 1:
            text = dice.choice(TEXTS)
            app.post_message(events.Paste(text))
            await asyncio.wait_for(pilot.pause(), ANSWERS)
            return f"pasted {text[:20]!r}"
        case _:
            key = dice.choice(KEYS)
            await asyncio.wait_for(pilot.press(key), ANSWERS)
            return key


async def leave(app: SpecdecApp, pilot: Pilot[int]) -> None:
    await asyncio.wait_for(pilot.press("ctrl+q"), ANSWERS)
    end = monotonic() + ANSWERS
    while monotonic() < end:
        if app._exit or app._exception is not None:  # a crash, which is told when the session is left
            return
        await asyncio.sleep(0.02)
    raise AssertionError("ctrl+q did not leave")


async def resize(pilot: Pilot[int], size: tuple[int, int]) -> None:
    await pilot.resize_terminal(*Size(*size))
    await pilot.pause()


def size_of(dice: Random) -> tuple[int, int]:
    return dice.choice((1, 2, 4, 5, 19, 40, 60, 80, 120, 300)), dice.choice((1, 2, 3, 9, 12, 18, 24, 40, 100))
