"""A server's own run in the app: its figures are shown as far as they were told, and no more is offered of it."""

from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from shell import toasts, until

from specdec_tui.decoding.costs import Costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.forecast import missing
from specdec_tui.decoding.records import PrefillDone, RoundVerified, RunEnded, RunStarted, Status, Token
from specdec_tui.decoding.time_verdict import time_verdict
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.export import as_json
from specdec_tui.traces.format import Trace
from specdec_tui.traces.report import as_html
from specdec_tui.traces.served.recording import read_recording
from specdec_tui.traces.served.trace import trace_of
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.recordings import Replay
from specdec_tui.tui.figures.chart_cells import Chart, compact_chart, full_chart
from specdec_tui.tui.figures.chart_lines import gauge_lines
from specdec_tui.tui.figures.columns import COLUMNS, Entry
from specdec_tui.tui.figures.scale import Scale
from specdec_tui.tui.figures.time_lines import time_lines
from specdec_tui.tui.inspector.panel import look_at
from specdec_tui.tui.inspector.reasons import why
from specdec_tui.tui.inspector.text import details
from specdec_tui.tui.lab.screen import LabScreen
from specdec_tui.tui.tokens.round_lines import _head

FOLDER = Path(__file__).parents[2] / "traces" / "served"
STARTED = RunStarted("vllm", 3, 4, 9, alone=True, served=True)


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trace_of(read_recording(FOLDER / "vllm.jsonl"), read_recording(FOLDER / "vllm_plain.jsonl"))


def a_run(*untold: int | None, unplaced: tuple[int, int] | None = None, over: bool = True) -> RunFigures:
    """Of rounds of one token each, with so many refused drafts."""
    run = RunFigures()
    run.add(STARTED)
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.5))
    for number, drafts in enumerate(untold):
        status = Status.RESAMPLED if drafts else Status.SAMPLED
        run.add(RoundVerified(number, (), Token(1, status, number + 1), 0.0, 0.05, 0.0, untold=drafts))
    if over:
        run.add(RunEnded(run.end.reason if run.end else "length", unplaced=unplaced))  # type: ignore[arg-type]
    return run


def written(lines: list[list[tuple[str, object]]]) -> str:
    return "\n".join("".join(text for text, _ in line) for line in lines)


async def test_the_panes_and_the_table_show_it_beside_its_baseline(trace: Trace) -> None:
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.recordings.trace is not None)
        await until(pilot, lambda: app.grid.panes["vllm"].figures.end is not None)
        assert [pane.strategy for pane in app.grid.shown] == ["target", "vllm"]
        assert "[bold]vllm" in str(app.grid.panes["vllm"].border_title), "it has no key"
        cells = app.table.cells("vllm")
        assert (cells["α"], cells["τ"], cells["drafted"], cells["accepted"]) == ("0.83", "1.69", "14", "10")
        assert (cells["predicted"], cells["c"], cells["v"]) == ("–",) * 3 and "identical" in cells["lossless"]
        app.grid.go_to("vllm")
        pane = app.grid.panes["vllm"]
        pane.inspect(pane.run_log.find(9))
        await pilot.press("b")
        await until(pilot, lambda: "A server wrote this text" in toasts(app)[-1] or "No models" in toasts(app)[-1])
        await pilot.press("escape", "g")
        await until(pilot, lambda: isinstance(app.screen, LabScreen))
        screen = app.screen
        assert isinstance(screen, LabScreen)
        said = written(screen.lines(100))  # type: ignore[arg-type]
        assert "A server drafted by itself" in said and "sweep" not in said.lower()


def test_rounds_have_their_number_of_drafts_or_a_question_mark() -> None:
    emitted, kept = Token(3, Status.RESAMPLED, 2), (Token(2, Status.ACCEPTED, 1),)
    told = RoundVerified(0, kept, emitted, 0.0, 0.05, 0.0, untold=3)
    assert "1/4" in _head(told, 80)
    assert "0/?" in _head(RoundVerified(0, (), emitted, 0.0, 0.05, 0.0, untold=None), 80)
    assert "/" not in _head(RoundVerified(0, (), emitted, 0.0, 0.05, 0.0), 80)


def test_the_time_of_a_round_is_whole_in_charts_and_time_view() -> None:
    run = a_run(2, 0)
    for width in (30, 80):
        chart = written(full_chart(Chart.LATENCY, run, run.window(), None, width, 10, Scale()))
        assert "█round" in chart and "draft" not in chart and "50.0" in chart
    row = written([compact_chart(Chart.LATENCY, run, None, 80, Scale())])
    assert "round 50.0" in row and "draft" not in row
    view = written(time_lines(run, None, 1.0, 80, 20))
    assert "whole rounds" in view and "2 rounds of 50" in view and "draft" not in view.splitlines()[2]


def test_what_is_not_told_is_no_figure() -> None:
    run = a_run(None, 0, over=False)
    assert "not told" in written(gauge_lines(run, run.window(), None, False, 100, Scale()))
    assert "how many drafts were refused is not told" in time_verdict(run, a_run(0, 0, 0))
    cells = {column.title: column.cell(Entry("vllm", run, None, None, None, Costs()))[0] for column in COLUMNS}
    assert {cells[name] for name in ("α", "drafted", "rejected", "unverified", "wasted", "draft / verify / other")} == {
        "–"
    }
    assert "nothing can be predicted" in missing(run, RunFigures())


def test_what_was_told_at_the_end_of_the_run_counts_for_all_of_it() -> None:
    run = a_run(None, None, 0, unplaced=(1, 3))
    cells = {column.title: column.cell(Entry("vllm", run, None, None, None, Costs()))[0] for column in COLUMNS}
    assert (cells["α"], cells["drafted"], cells["rejected"], cells["unverified"]) == ("0.00", "3", "1", "2")
    assert run.accepted_lengths == [1] and run.conditional_acceptance == [0.0]


async def test_the_inspector_says_what_the_server_did_and_did_not_tell(trace: Trace) -> None:
    app = SpecdecApp(ScriptedEngine(), Settings(), ModelChoice(), replay=Replay(trace))
    async with app.run_test(size=(120, 40)) as pilot:
        await until(pilot, lambda: app.grid.panes["vllm"].figures.end is not None)
        log = app.grid.panes["vllm"].run_log
        looks = [look_at(log, log.find(place), "vllm", Settings()) for place in (0, 8, 9, 16, 17)]
        rules = [why(look).rule for look in looks]
        assert rules[0] == "sampled: the first token comes of the prompt alone"
        assert rules[1] == "accepted: a draft of the server's own that it kept"
        assert rules[3] == "resampled: the server's token in the place of a draft that it refused, and did not tell"
        assert rules[4] == "sampled: no draft in this round, a plain step"
        assert looks[1].round_words == "round 8, draft 1 of 4"
        told = "\n".join("".join(text for text, _ in line) for line in details(looks[1], 80))
        assert "clock: the whole round" in told and "the server told none" in told


def test_exports_and_the_report_have_it_without_what_is_not_known(trace: Trace) -> None:
    assert '"untold": 1' in as_json(trace)
    report = as_html(trace)
    assert "whole rounds" in report and "drafting</" not in report
    unknown = trace_of(read_recording(FOLDER / "vllm_plain.jsonl"))
    assert "vllm" in as_html(unknown)
