"""Trace files of any content are refused in one line, or can be figured, exported and drawn."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Callable
from pathlib import Path
from random import Random

from campaign import campaign, check_refusal
from mutations import changed, damaged, nested
from recorded import full_trace
from scripted_engine import ScriptedEngine

from specdec_tui.doors.characters import visible
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.export import as_csv, as_json
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError, trace_lines
from specdec_tui.traces.report import as_html
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.recordings import Replay

LINES = [line.rstrip("\n") for line in trace_lines(full_trace())]
LARGEST = 20_000_000
"""Characters of one line many times."""
DRAWN = 0.15
"""Share of the readable ones that the app is opened with."""


def test_trace_files(tmp_path: Path) -> None:
    campaign("trace files", trace_files(tmp_path))


def trace_files(folder: Path) -> Callable[[Random], str]:
    path = folder / "trace.jsonl"

    def try_one(dice: Random) -> str:
        path.write_bytes(trace_file(dice))
        try:
            trace = read_trace(path)
        except TraceError as error:
            return check_refusal(error)
        check_exports(trace)
        if dice.random() >= DRAWN:
            return "read"
        asyncio.run(drawn(trace, (dice.choice((1, 20, 80, 160)), dice.choice((1, 10, 24, 50)))))
        return "drawn"

    return try_one


def trace_file(dice: Random) -> bytes:
    lines = list(LINES)
    for _ in range(dice.choice((1, 1, 3))):
        place = dice.randrange(len(lines))
        match dice.randrange(8):
            case 0:
                del lines[place]
                lines = lines or [""]
            case 1:
                lines.insert(dice.randrange(len(lines)), lines[place])
            case 2:
                lines[place] = nested(dice)
            case 3:
                lines[place:place] = [lines[place]] * min(
                    dice.choice((2, 100, 3000)), LARGEST // (len(lines[place]) + 1)
                )
            case _:
                try:
                    lines[place] = json.dumps(changed(dice, json.loads(lines[place])))
                except (ValueError, RecursionError):
                    lines[place] = ""
    data = "\n".join(lines).encode("utf-8", "surrogatepass") + b"\n"
    return damaged(dice, data) if dice.random() < 0.3 else data


def check_exports(trace: Trace) -> None:
    written = as_json(trace)
    json.loads(written)
    rows = list(csv.reader(io.StringIO(as_csv(trace))))
    assert len({len(row) for row in rows}) == 1, "rows of different lengths"
    page = as_html(trace)
    assert "<script>alert" not in page
    for name, text in (("JSON", written), ("HTML", page)):
        bare = text.replace("\n", "").replace("\t", "")
        assert visible(bare) == bare, f"a terminal would obey what stands in the {name}"


async def drawn(trace: Trace, size: tuple[int, int]) -> None:
    """The app opens with the trace, shows it in every view, and can be left."""
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with app.run_test(size=size) as pilot:
        for key in (*"vvvv", "i", "escape", "H", "escape", "R"):
            await pilot.press(key)
            await pilot.pause()
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert app._exit, "ctrl+q did not leave"
