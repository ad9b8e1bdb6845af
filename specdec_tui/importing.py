"""The `import` command: a trace of a run that a server drafted and checked by itself, from its recording."""

from __future__ import annotations

from pathlib import Path

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.doors import output
from specdec_tui.traces.files import lines_that_read_back, write_lines
from specdec_tui.traces.format import Trace, TraceError
from specdec_tui.traces.served.recording import read_recording
from specdec_tui.traces.served.trace import trace_of
from specdec_tui.traces.store import TraceStore
from specdec_tui.traces.summary import figures_of


def import_run(file: Path, baseline: Path | None, output_to: Path | None) -> int:
    """Keep the trace where runs are kept, or write it to `output_to`. Exit status 0; 2, with a line, for bad input."""
    try:
        trace = trace_of(read_recording(file), None if baseline is None else read_recording(baseline))
        lines = lines_that_read_back(trace)
        if output_to is None:
            output_to = TraceStore().save(trace)
        else:
            write_lines(output_to, lines)
    except TraceError as error:
        output.complain(str(error))
        return 2
    output.show(_sheet(trace))
    output.say(f"{output_to} (open it: specdec-tui replay FILE)")
    return 0


def _sheet(trace: Trace) -> output.Sheet:
    headings = ("strategy", "tokens", "tok/s", "speedup", "α", "τ", "drafted", "accepted")
    runs = figures_of(trace.events)
    rows = [(name, *_cells(run, standing(run, runs.get("target")))) for name, run in runs.items()]
    return output.Sheet(headings, rows, right=frozenset(headings[1:]))


def _cells(run: RunFigures, found: Standing | None) -> list[str]:
    ratio = "–" if found is None else f"{found.marked}, {found.doubt}".removesuffix(", ")
    return [
        _text(run.new_tokens, "d"),
        _text(run.decode_tokens_per_second, ".1f"),
        ratio,
        _text(run.acceptance_rate, ".2f"),
        _text(run.tokens_per_target_call, ".2f"),
        _text(run.drafted if run.drafts_are_told else None, "d"),
        _text(run.accepted, "d"),
    ]


def _text(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
