"""The run that comes with the package: of the demo pair, to be watched while models load.

`docs/recorded_run.py` made it. Its texts are written by SmolLM2-135M-Instruct and a drafter distilled from it (see
NOTICE).
"""

from __future__ import annotations

from pathlib import Path

from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace

RECORDED = Path(__file__).with_name("recorded.jsonl")


def recorded() -> Trace:
    """The run, read as any other trace. TraceError where a damaged installation lacks it."""
    return read_trace(RECORDED)
