"""Helpers for tests of the whole app on a scripted engine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic
from typing import Any

from scripted_engine import ScriptedEngine
from textual.pilot import Pilot

from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp

PATIENCE_SECONDS = 60


def make_app(engine: ScriptedEngine | None = None, prompt: str = "", **settings: object) -> SpecdecApp:
    """The app with short runs."""
    given = {"max_new_tokens": 24, **settings}
    return SpecdecApp(engine or ScriptedEngine(), Settings(**given), ModelChoice(), prompt)  # type: ignore[arg-type]


async def until(pilot: Pilot[Any], condition: Callable[[], object], what: str = "") -> None:
    """Wait until `condition` holds, turn by turn of the app; fails after a while that no busy machine needs."""
    end = monotonic() + PATIENCE_SECONDS
    while not condition():
        if monotonic() > end or pilot.app._exception is not None:  # a crash, which is told when the app is left
            raise AssertionError(f"never happened: {what or condition}")
        await asyncio.sleep(0.01)  # not a pause of the pilot's, which asks every widget
    await pilot.pause()


async def ready(pilot: Pilot[int]) -> None:
    await until(pilot, lambda: pilot.app.header.state == "ready", "ready")


async def ask(pilot: Pilot[int], prompt: str) -> None:
    """Put a prompt into the box, as a paste does, and press enter."""
    pilot.app.prompt_box.focus()
    pilot.app.prompt_box.insert(prompt)
    await pilot.press("enter")


def toasts(app: SpecdecApp) -> list[str]:
    """What the app and its dialogs have said and still stands."""
    said = app.notices.standing if isinstance(app, SpecdecApp) else []
    return [notice.text for notice in said] + [toast.message for toast in app._notifications]
