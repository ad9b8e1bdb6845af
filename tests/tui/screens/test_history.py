"""The list of kept runs: what it shows of each, how it is filtered, what is done with one."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from specdec_tui.settings import Settings
from specdec_tui.traces.format import TraceHeader
from specdec_tui.traces.store import Entry
from specdec_tui.tui.screens.export import ExportScreen
from specdec_tui.tui.screens.history import HistoryScreen
from specdec_tui.tui.screens.history_rows import COLUMNS, best, matching, speed, table

FIGURES = {
    "speedup": 1.834,
    "acceptance_rate": 0.529,
    "new_tokens": 96,
    "finish_reason": "length",
    "reliability": {"word": "steady", "reason": "", "low": 1.8, "high": 1.9},
}


def entry(prompt: str = "Why is the sky blue?", **settings: object) -> Entry:
    from specdec_tui.traces.header import plain

    kept = plain(replace(Settings(), **settings))  # type: ignore[arg-type]
    header = TraceHeader(
        datetime(2026, 11, 28, 12, tzinfo=UTC).isoformat(),
        "0",
        prompt,
        {"target": {"finish_reason": "length"}, "speculative": FIGURES},
        settings=kept,
    )
    return Entry(Path(f"/kept/{prompt[:8]}.jsonl"), 1000, header)


def told(one: Entry, width: int) -> str:
    _, (line,) = table([one], [False], width)
    return str(line)


def test_a_wide_list_tells_settings_and_figures_of_a_run() -> None:
    line = told(entry(gamma=6, processor="nucleus", temperature=0.8, max_new_tokens=200), 160)
    assert "Why is the sky blue?" in line
    for words in ("6  ", "0.8  ", "200  ", "96  ", "0.53  ", "speculative 1.83×", "steady"):
        assert words in line, words


@pytest.mark.parametrize("width", [20, 40, 56, 76, 116, 196])
def test_columns_are_whole_and_lines_as_wide_as_the_room(width: int) -> None:
    heading, lines = table([entry(), entry("世界 " * 30), entry("x", gamma=12)], [False, True, False], width)
    titles = [*(column.title for column in COLUMNS), "len"]
    assert all(word in titles for word in str(heading).split())
    assert {cell_len(str(line)) for line in lines} == {cell_len(str(heading))} and cell_len(str(heading)) <= width
    if width >= 56:
        assert "1.83×" in str(lines[0])


def test_80_columns_have_room_for_every_setting_and_figure_and_the_prompt_for_what_remains() -> None:
    run = entry("Why is the sky blue in the morning?", max_new_tokens=128)
    assert run.header is not None
    shaken = {"word": "disturbed", "reason": "because", "low": 0.94, "high": 1.71}
    disturbed = replace(run.header, strategies={"speculative": {**FIGURES, "reliability": shaken}})
    heading, lines = table([run, replace(run, header=disturbed)], [False, False], 72)
    assert str(heading).split() == ["when", "prompt", "γ", "T", "len", "α", "speedup", "clock"]
    assert [str(line).split()[-7:] for line in lines] == [
        ["4", "0", "128", "0.53", "speculative", "1.83×", "✓"],
        ["4", "0", "128", "0.53", "speculative", "0.9–1.7×", "✗"],
    ]
    assert all("Why is" in str(line) for line in lines)


def test_a_disturbed_run_tells_an_interval_and_no_bare_ratio() -> None:
    one = entry()
    assert one.header is not None
    shaken = {"word": "disturbed", "reason": "because", "low": 0.94, "high": 1.71}
    disturbed = replace(one.header, strategies={"speculative": {**FIGURES, "reliability": shaken}})
    line = told(replace(one, header=disturbed), 160)
    assert "speculative 0.9–1.7×  disturbed" in line and "1.83" not in line
    assert speed({**FIGURES, "reliability": {"word": "disturbed"}}) == "?"
    assert speed({**FIGURES, "reliability": None}) == "1.83×"


def test_a_run_kept_by_an_older_version_has_dashes() -> None:
    bare = Entry(Path("/kept/old.jsonl"), 10, TraceHeader("2026-01-01T00:00:00Z", "0", "old", {"target": {}}))
    assert "–" in told(bare, 160)


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("γ 6", ["six"]),
        ("gamma 4", ["four", "warm"]),
        ("0.8", ["warm"]),
        ("SIX", ["six"]),
        ("nothing", []),
        ("steady warm", ["warm"]),
    ],
)
def test_any_words_filter(query: str, found: list[str]) -> None:
    entries = [entry("four"), entry("six", gamma=6), entry("warm", processor="multinomial", temperature=0.8)]
    assert [e.header.prompt for e in matching(entries, query) if e.header] == found


async def history(pilot: Pilot[int], runs: int) -> HistoryScreen:
    await pilot.press("escape", "H")
    await until(pilot, lambda: pilot.app.screen.query_one(OptionList).option_count == runs, "the list")
    assert isinstance(pilot.app.screen, HistoryScreen)
    return pilot.app.screen


async def test_a_slash_filters_and_escape_leads_out_step_by_step() -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        for prompt in ("first prompt", "second prompt"):
            await ask(pilot, prompt)
            await until(pilot, lambda: not app.runs.running and not app.runs.waiting)
        await until(pilot, lambda: len(app.recordings.store.entries()) == 2)
        screen = await history(pilot, 2)
        await pilot.press("slash", *"first")
        options = screen.query_one(OptionList)
        await until(pilot, lambda: options.option_count == 1, "one row")
        assert str(screen.query_one("#history-prompt", Static).render()) == "first prompt"
        await pilot.press("escape")
        assert app.screen is screen and options.option_count == 2 and not screen.query_one(Input).display
        await pilot.press("escape")
        assert len(app.screen_stack) == 1


async def test_a_kept_run_is_exported_from_the_list_without_being_shown(tmp_path: Path) -> None:
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await ask(pilot, "a prompt")
        await until(pilot, lambda: not app.runs.running and len(app.recordings.store.entries()) == 1)
        shown = app.recordings.trace
        await history(pilot, 1)
        await pilot.press("e")
        await until(pilot, lambda: isinstance(app.screen, ExportScreen), "the dialog")
        assert "svg" not in str([str(o.prompt) for o in app.screen.query_one(OptionList).options])
        box = app.screen.query_one("#export-file", Input)
        box.value = str(tmp_path / "run.html")
        await pilot.press("enter")
        await until(pilot, lambda: (tmp_path / "run.html").exists(), "the file")
        assert app.recordings.trace is shown


def test_a_disturbed_strategy_is_not_called_fastest_where_another_was_steady() -> None:
    one = entry().header
    assert one is not None
    shaken = {**FIGURES, "speedup": 2.03, "reliability": {"word": "disturbed", "low": 0.9, "high": 2.03}}
    assert best(replace(one, strategies={"lookup": shaken, "speculative": FIGURES})) == "speculative 1.83×"
    assert best(replace(one, strategies={"lookup": shaken})) == "lookup 0.9–2.0×"


async def test_a_folder_that_can_hold_nothing_is_not_called_empty(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    app = make_app()
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        await pilot.press("escape", "H")
        note = app.screen.query_one("#history-note", Static)
        await until(pilot, lambda: "No runs can be kept: " in str(note.render()))
        assert str(note.render()).endswith("is no folder")
