"""The pages on scripted engines: `scripted_serve.py [round=SECONDS] [load=SECONDS] [refuse=WORDS]
[tabs=N] [token=TOKEN]`.

It tells its address as `specdec-tui serve` does, at a free port.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "tui")]

from scripted_engine import ScriptedEngine  # noqa: E402

from specdec_tui.backends.pair import LoadError, PairInfo, Progress, ReportProgress  # noqa: E402
from specdec_tui.decoding.records import Event, RoundVerified, Step  # noqa: E402
from specdec_tui.serving.command import Place, serve  # noqa: E402
from specdec_tui.serving.engine_server import EngineServer  # noqa: E402
from specdec_tui.serving.messages import Welcome  # noqa: E402
from specdec_tui.setting_sources import resolve  # noqa: E402
from specdec_tui.settings import ModelChoice  # noqa: E402


class PacedEngine(ScriptedEngine):
    """Takes its time for each round."""

    round_seconds = 0.0

    def run(self, *given: Any, **named: Any) -> Iterator[Event]:
        for event in super().run(*given, **named):
            if isinstance(event, Step) and isinstance(event.record, RoundVerified):
                time.sleep(self.round_seconds)
            yield event


def main(words: dict[str, str]) -> None:
    PacedEngine.round_seconds = float(words.get("round", 0))

    def load(progress: ReportProgress) -> PairInfo:
        progress(Progress("reading the target", 0.25))
        time.sleep(float(words.get("load", 0)))
        if "refuse" in words:
            raise LoadError(words["refuse"])
        return ScriptedEngine().load(ModelChoice(), progress)

    def engine_of(load_failed: Callable[[str], object]) -> EngineServer:
        settings, choice = resolve({})
        return EngineServer(Welcome(settings, choice), load, PacedEngine, dict, load_failed)

    serve(Place(port=0, tabs=int(words.get("tabs", 8)), token=words.get("token", "")), engine_of)


if __name__ == "__main__":
    main(dict(word.split("=", 1) for word in sys.argv[1:]))
