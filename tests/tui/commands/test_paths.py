"""Paths are looked at while they are typed, and no key waits for a file system."""

from __future__ import annotations

import threading
from pathlib import Path
from time import monotonic

import pytest
from shell import make_app, ready, until
from textual.widgets import Input, OptionList

from specdec_tui.doors.reading import status_of
from specdec_tui.settings import ModelChoice, SettingError, Settings
from specdec_tui.tui.commands import paths
from specdec_tui.tui.commands.command import check_trace
from specdec_tui.tui.commands.palette import Palette
from specdec_tui.tui.commands.palette_rows import Change, Refuse, Row, rows_for


def first(query: str) -> Row:
    return rows_for(query, Settings(), ModelChoice())[0]


@pytest.mark.parametrize("name", ["target", "drafter"])
def test_a_path_at_which_nothing_is_is_told_while_it_is_typed(name: str, tmp_path: Path) -> None:
    """`target /nowhere` said nothing until it was loaded."""
    (tmp_path / "here").mkdir()
    for wrong in ("/nowhere", f"{tmp_path}/her", "./nowhere", "~/nowhere/at/all", "~nobody/x", "nowhere.gguf", "a/b/c"):
        row = first(f"{name} {wrong}")
        assert isinstance(row.does, Refuse) and "no such file or folder: give a hub id, a folder" in row.help, wrong
    value = f"{tmp_path}/here" if name == "target" else (f"{tmp_path}/here",)
    assert first(f"{name} {tmp_path}/here").does == Change({name: value})


@pytest.mark.parametrize(
    "name", ["gpt2", "owner/name", "owner/name.gguf", "none", "owner/", "HuggingFaceTB/SmolLM2-1.7B"]
)
def test_what_may_be_a_hub_id_is_left_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "status_of", lambda path: pytest.fail("the disk was asked"))
    assert isinstance(first(f"drafter {name}").does, Change)


def test_a_key_asks_the_disk_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Path] = []
    real = status_of
    monkeypatch.setattr(paths, "status_of", lambda path: (asked.append(path), real(path))[1])
    for query in (f"target {tmp_path}", "drafter /nowhere", f"open trace {tmp_path}/x"):
        asked.clear()
        rows_for(query, Settings(), ModelChoice())
        assert len(asked) == 1, query


def test_what_is_closed_to_us_is_not_called_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    def closed(path: Path) -> None:
        raise PermissionError

    monkeypatch.setattr(paths, "status_of", closed)
    assert isinstance(first("target /closed/x").does, Change)


def test_a_trace_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "trace.jsonl").touch()
    check_trace(str(tmp_path / "trace.jsonl"))
    for wrong in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SettingError, match=r"open trace: .*: give a file"):
            check_trace(str(wrong))


async def test_a_file_system_that_does_not_answer_holds_up_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = threading.Event()
    real = status_of
    monkeypatch.setattr(paths, "status_of", lambda path: answer.wait(60) and real(path))
    try:
        app = make_app()
        async with app.run_test(size=(80, 24)) as pilot:
            await ready(pilot)
            await pilot.press("ctrl+p")
            await until(pilot, lambda: isinstance(app.screen, Palette))
            for begin in ("target /dead", "open trace /dead"):
                app.screen.query_one(Input).value = begin
                await pilot.pause()
                started = monotonic()
                await pilot.press(*"/mount/x")
                assert monotonic() - started < 20 and app.screen.query_one(Input).value == f"{begin}/mount/x"
                assert app.screen.query_one(OptionList).option_count
            asking = [thread for thread in threading.enumerate() if thread.name == "specdec-path"]
            assert len(asking) == 1, "one that waits is enough"
            await pilot.press("escape")
    finally:
        answer.set()


async def test_a_wrong_path_is_refused_by_enter_and_stays_to_be_mended() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        await pilot.press("ctrl+p", *"target")
        await pilot.press("space", *"/nowhere")
        await until(
            pilot,
            lambda: "no such file or folder" in str(app.screen.query_one(OptionList).get_option_at_index(0).prompt),
        )
        await pilot.press("enter")
        await pilot.pause()
        assert isinstance(app.screen, Palette) and app.screen.query_one(Input).value == "target /nowhere"
        assert app.choice.target != "/nowhere"
