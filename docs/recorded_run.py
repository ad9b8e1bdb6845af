"""Record the run that plays while models load: the demo pair, five strategies, one short answer.

    python docs/recorded_run.py [OUTPUT.jsonl]

Tries again until no clock is disturbed, so it wants a machine that has nothing else to do. The drafter alone is let
off: its passes are so short that anything disturbs them, and its pane says so.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from specdec_tui.benchmark.environment import describe_environment
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Event, Step
from specdec_tui.decoding.standing import standing
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.files import write_trace
from specdec_tui.traces.format import Trace, new_header
from specdec_tui.traces.recorded import RECORDED

PROMPT = "List five fruits, each with its colour."
STRATEGIES = ("target", "drafter", "speculative", "ngram", "lookup")
SETTINGS = Settings(max_new_tokens=34, strategies=STRATEGIES, insight=False, record=False)
ATTEMPTS = 100


def rounded(value: Any) -> Any:
    """Clock readings to a microsecond, chances to a millionth: more digits are of no use to an eye."""
    if isinstance(value, float):
        return round(value, 6)
    if isinstance(value, tuple):
        return tuple(map(rounded, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: rounded(getattr(value, one.name)) for one in fields(value)})
    return value


def disturbed(events: Sequence[Event]) -> list[str]:
    """What the clocks of a run are to be doubted for."""
    figures: dict[str, RunFigures] = {}
    for event in events:
        if isinstance(event, Step):
            figures.setdefault(event.strategy, RunFigures()).add(event.record)
    found = {
        name: standing(run, figures["target"]) for name, run in figures.items() if name not in ("target", "drafter")
    }
    return [f"{name}: {one.reason}" for name, one in found.items() if one is not None and one.is_disturbed]


def record(path: Path) -> None:
    engine = LocalEngine()
    pair = engine.load(ModelChoice(device="cpu"), lambda progress: None)
    for _ in range(ATTEMPTS):
        engine.new_chat()
        events = [rounded(event) for event in engine.run(PROMPT, SETTINGS, lambda: False)]
        if not (doubts := disturbed(events)):
            environment = {
                key: describe_environment()[key] for key in ("specdec_tui", "python", "processor", "threads")
            }
            header = new_header(PROMPT, events, pair=pair, settings=SETTINGS, environment=environment)
            write_trace(path, Trace(header, tuple(events)))
            print(f"{path}: {path.stat().st_size:,} bytes")
            return
        print("again:", "; ".join(doubts), file=sys.stderr)
    raise SystemExit("the clocks were disturbed every time")


if __name__ == "__main__":
    record(Path(sys.argv[1]) if sys.argv[1:] else RECORDED)
