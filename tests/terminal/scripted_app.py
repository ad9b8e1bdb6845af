"""The app on a scripted engine in a real terminal.

`scripted_app.py [round=SECONDS] [load=SECONDS] [sizes=FILE] [noise] [fault] [stuck]`; sizes: each size
of the terminal is written down once it is laid out; fault: the screen fails at the first event of a
run; stuck: it never comes back from it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parents[1]), str(HERE.parent / "tui")]

from scripted_engine import ScriptedEngine  # noqa: E402

from specdec_tui.backends.pair import PairInfo, Progress, ReportProgress  # noqa: E402
from specdec_tui.decoding.records import Event, RoundVerified, Step  # noqa: E402
from specdec_tui.setting_sources import resolve  # noqa: E402
from specdec_tui.settings import ModelChoice, Settings  # noqa: E402
from specdec_tui.tui.app.app import SpecdecApp  # noqa: E402
from specdec_tui.tui.app.front import Front  # noqa: E402
from specdec_tui.tui.app.program import run_app  # noqa: E402
from specdec_tui.tui.terminal import terminal  # noqa: E402


class PacedEngine(ScriptedEngine):
    """Takes its time for each round, and for a load as long as `load_seconds`."""

    round_seconds = 0.02
    load_seconds = 0.0

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        progress(Progress("reading the target", 0.25))
        time.sleep(self.load_seconds)
        return super().load(choice, progress)

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event]:
        for event in super().run(prompt, settings, cancelled, again=again):
            if isinstance(event, Step) and isinstance(event.record, RoundVerified):
                time.sleep(self.round_seconds)
            yield event


def plant(name: str) -> None:
    """Have the screen's thread fail, or never answer again, once a run has begun."""

    def go_on(self: Front, batch: object) -> None:
        if name == "fault":
            raise RuntimeError("a planted fault")
        while True:
            time.sleep(1)

    Front.run_goes_on = go_on  # type: ignore[method-assign]
    terminal.LEAVING_SECONDS = 1.0


def tell_sizes(path: Path) -> None:
    """Write a line for every size, behind the layout for it."""
    on_resize = SpecdecApp.on_resize

    def resized(self: SpecdecApp) -> None:
        def write() -> None:
            with path.open("a") as file:
                file.write(f"{self.size.width} {self.size.height}\n")

        on_resize(self)
        self.call_after_refresh(write)

    SpecdecApp.on_resize = resized  # type: ignore[method-assign]


if __name__ == "__main__":
    engine = PacedEngine()
    for word in sys.argv[1:]:
        name, _, value = word.partition("=")
        if name == "round":
            engine.round_seconds = float(value)
        elif name == "load":
            engine.load_seconds = float(value)
        elif name == "sizes":
            tell_sizes(Path(value))
        elif name == "noise":
            engine.native_output = b"NATIVE NOISE\n" * 5
        elif name in ("fault", "stuck"):
            plant(name)
    settings, choice = resolve({})
    raise SystemExit(run_app(engine, settings, choice))
