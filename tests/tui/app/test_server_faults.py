"""A server that fails, as the app's user meets it: one line in the pane, the text kept, stopped at once; no key."""

from __future__ import annotations

import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from faulty_server import Fault, FaultyServer, refusal, silence
from shell import ask, ready, toasts, until
from textual.pilot import Pilot

sys.path.append(str(Path(__file__).parents[2] / "backends" / "remote"))
from remote_pair import PROMPT, RemotePair, connected, served

from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.remote import tries
from specdec_tui.decoding.records import EndReason, RunEnded, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.variables import API_KEY, PREFIX

KEY = "sk-Qv71-Hm40-Zd95-Tb28"
ASKED = "".join(map(str, PROMPT))
STRATEGIES = ("target", "lookup")
AT_ONCE = 6
"""Seconds, on the busiest machine: a call that nobody ends waits for 9 at least."""


def screen_text(app: SpecdecApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    monkeypatch.setattr(tries, "_FIRST_WAIT", 0.005)
    monkeypatch.setenv(PREFIX + API_KEY, KEY)
    with FaultyServer(served()) as server:
        yield server


@asynccontextmanager
async def opened(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[SpecdecApp, Pilot[Any]]]:
    model = connected(server, KEY)
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: RemotePair(model))
    settings = Settings(max_new_tokens=16, strategies=STRATEGIES, chat=False, schedule="sequential")
    app = SpecdecApp(LocalEngine(), settings, ModelChoice(), "")
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        yield app, pilot
    model.close()


def asked(server: FaultyServer) -> int:
    return sum(call.path.endswith("/completions") for call in server.calls)


def fails(server: FaultyServer, fault: Fault, first: int) -> None:
    """From this call on, counted from now."""
    begin = asked(server) + first
    server.fails(fault, *range(begin, begin + 90), path="/completions")


async def over(app: SpecdecApp, pilot: Pilot[Any]) -> None:
    await until(pilot, lambda: not app.runs.running, "the run is over")


async def test_a_run_that_fails_says_why_in_its_pane_with_the_text_so_far(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, monkeypatch) as (app, pilot):
        await ask(pilot, ASKED)
        await over(app, pilot)
        assert screen_text(app).count("16/16 tokens") == len(STRATEGIES)
        fails(server, refusal(401, f"no such key: {KEY}"), 6)
        await ask(pilot, ASKED)
        await over(app, pilot)
        text = screen_text(app)
        assert "the server refuses the key (HTTP 401)" in text and f"{PREFIX}{API_KEY}" in text
        assert "16/16 tokens" in text and "/16 tokens · failed" in text and "0/16 tokens" not in text
        server._faults.clear()
        await ask(pilot, ASKED)
        await over(app, pilot)
        assert screen_text(app).count("16/16 tokens") == len(STRATEGIES)


@pytest.mark.parametrize(
    ("call", "fault"), [(0, silence), (1, silence), (6, silence), (6, refusal(429, Retry_After="9"))]
)
async def test_ctrl_c_ends_a_call_that_would_wait_for_long(
    call: int, fault: Fault, server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, monkeypatch) as (app, pilot):
        fails(server, fault, call)
        last = asked(server) + call
        await ask(pilot, ASKED)
        await until(pilot, lambda: asked(server) > last, "the call hangs")
        began = time.monotonic()
        await pilot.press("ctrl+c")
        await over(app, pilot)
        assert time.monotonic() - began < AT_ONCE
        run = app.runs.run
        assert run is not None
        records = [event.record for event in run.events if isinstance(event, Step)]
        ends = [record for record in records if isinstance(record, RunEnded)]
        assert {end.reason for end in ends} <= {EndReason.CANCELLED, EndReason.LENGTH} and len(ends) == len(STRATEGIES)


async def test_leaving_does_not_wait_for_a_call(server: FaultyServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(server, monkeypatch) as (app, pilot):
        fails(server, silence, 1)
        await ask(pilot, ASKED)
        await until(pilot, lambda: app.runs.running)
        began = time.monotonic()
        await pilot.press("ctrl+q")
        await until(pilot, lambda: not app.is_running or app._exit, "left")
    assert time.monotonic() - began < AT_ONCE


async def test_a_load_that_fails_leaves_the_present_pair_and_says_so_in_whole_sentences(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(server, monkeypatch) as (app, pilot):

        def refuses(*_: object) -> None:
            raise LoadError("127.0.0.1:9: no server answers (connection refused), at try 4 too")

        monkeypatch.setattr("specdec_tui.backends.loading.load_pair", refuses)
        app.runs.load(ModelChoice(target_url="http://127.0.0.1:9/v1"))
        await until(pilot, lambda: any("at try 4 too. The present pair stays: served." in text for text in toasts(app)))
        await ask(pilot, ASKED)
        await over(app, pilot)
        assert screen_text(app).count("16/16 tokens") == len(STRATEGIES)


async def test_the_key_is_in_no_file_and_on_no_screen_though_the_server_echoes_it(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    screens: list[str] = []
    async with opened(server, monkeypatch) as (app, pilot):
        for fault in (refusal(500, f"no room for {KEY}"), refusal(400, f"what is {KEY[:-4]}, and who is {KEY[4:]}?")):
            fails(server, fault, 6)
            await ask(pilot, ASKED)
            await over(app, pilot)
            screens.append(screen_text(app))
            for name in ("json", "csv", "html", "svg"):
                path = tmp_path / f"{len(screens)}.{name}"
                app.action_export(f"{name} {path}")
                await until(pilot, path.exists, name)
            server._faults.clear()
    assert any("[key]" in screen for screen in screens), "nothing was echoed"
    assert all(call.headers["authorization"] == f"Bearer {KEY}" for call in server.calls)
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.suffix for path in written} >= {".json", ".csv", ".html", ".svg", ".jsonl"}
    told = [*screens, *capfd.readouterr(), *(path.read_bytes().decode(errors="replace") for path in written)]
    assert any("[key]" in text for text in told[len(screens) :]), "no file tells of the fault"
    pieces = [KEY[at : at + 14] for at in range(len(KEY) - 13)]
    assert not [text for text in told if any(piece in text for piece in pieces)]
