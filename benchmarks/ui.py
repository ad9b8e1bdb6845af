"""How the app feels while it paints 2,000 tokens/s: latency of a key, and tokens lost by resizing.

    python benchmarks/ui.py            prints the figures; needs a Unix terminal device, no model

The app runs in a pseudo-terminal of its own with a scripted engine that feeds four panes in turn.
While it runs, keys are typed into the prompt box and the time until the character is painted is
measured; then the terminal is resized ten times. At the end the app says what its panes hold.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from specdec_tui.backends.pair import ModelInfo, PairInfo, ReportProgress
from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import ModelChoice, Settings

TOKENS_PER_SECOND = 2000
STRATEGIES = ("target", "speculative", "ngram", "lookup")
SIZES = ((80, 24), (200, 60), (100, 30), (40, 12), (300, 100), (20, 8), (160, 50), (99, 40), (181, 45), (120, 40))
KEYS = "abcdefghijklmnopqrstuvwxyz" * 4
WORDS = ("light", "is", "scattered", "by", "air", "more", "when", "its", "waves", "are", "short")


class FastEngine:
    """Rounds of four tokens for each pane in turn, on a fixed timetable."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        return PairInfo(ModelInfo("scripted", "cpu", "float32", "none", 1, 4, None), None, False)

    def prepare(self, *arguments: object) -> None:
        return

    def new_chat(self) -> None:
        return

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event]:
        for name in STRATEGIES:
            yield Step(name, RunStarted(name, 1, 3, self.tokens), prompt_text=prompt)
            yield Step(name, PrefillDone(Token(0, Status.SAMPLED, 0), 0.01), (word(0),))
        start, made = time.perf_counter(), 0
        for number in range((self.tokens - 1) // 4):
            for name in STRATEGIES:
                yield from self._round(name, number)
                made += 4
                ahead = start + made / TOKENS_PER_SECOND - time.perf_counter()
                if ahead > 0:
                    time.sleep(ahead)
            if cancelled():
                break
        for name in STRATEGIES:
            yield Step(name, RunEnded(EndReason.LENGTH))
        yield Finished()

    @staticmethod
    def _round(name: str, number: int) -> Iterator[Step]:
        places = range(1 + 4 * number, 5 + 4 * number)
        texts = tuple(word(place) for place in places)
        pending = tuple(Token(place, Status.PENDING, place) for place in places[:3])
        yield Step(name, DraftsProposed(number, pending), texts[:3])
        drafts = tuple(Token(place, Status.ACCEPTED, place) for place in places[:3])
        yield Step(name, RoundVerified(number, drafts, Token(0, Status.BONUS, places[3]), 0.001, 0.001, 0.0), texts)


def word(place: int) -> str:
    """Every token is told apart from its neighbours, so that one lost or doubled shows."""
    return f" {WORDS[place % len(WORDS)]}{place}"


def child(tokens: int, report: Path) -> int:
    """The app itself; writes what the panes hold to `report` when it is left."""
    from specdec_tui.tui.app.app import SpecdecApp
    from specdec_tui.tui.terminal.collector import full_collections_on_request

    settings = Settings(max_new_tokens=tokens, strategies=STRATEGIES)
    app = SpecdecApp(FastEngine(tokens), settings, ModelChoice(), "go")
    with full_collections_on_request():  # as `run_app` does
        app.run()
    held = {name: app.grid.panes[name].plain_text for name in STRATEGIES}
    report.write_text(json.dumps(held))
    return 0


class Screen:
    """The other end of the pseudo-terminal: sends keys and reads what is painted."""

    def __init__(self, command: list[str], environment: dict[str, str], width: int, height: int) -> None:
        self.master, slave = pty.openpty()
        self.resize(width, height)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
        if hasattr(self, "process"):
            self.process.send_signal(28)  # SIGWINCH: the child is no job of this terminal

    def __enter__(self) -> Screen:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing hangs up on the child: it has no controlling terminal."""
        self.process.kill()
        self.process.wait()

    def send(self, text: str) -> None:
        os.write(self.master, text.encode())

    def read(self, seconds: float) -> str:
        """What is painted within `seconds`; returns at the first piece."""
        if not select.select([self.master], [], [], seconds)[0]:
            return ""
        try:
            return os.read(self.master, 1 << 16).decode(errors="replace")
        except OSError:
            return ""

    def watch(self, found: Callable[[str], object], seconds: float) -> float | None:
        """Seconds until what has been painted since the call satisfies `found`; None: never."""
        start, seen = time.perf_counter(), ""
        while (left := seconds - (time.perf_counter() - start)) > 0:
            seen += self.read(left)
            if found(seen):
                return time.perf_counter() - start
        return None


def shows(text: str, painted: str) -> bool:
    """Whether `text` was painted; colours may lie between its characters."""
    return text in re.sub(r"\x1b\[[0-9;:?]*[A-Za-z]", "", painted)


def latencies(screen: Screen) -> list[float]:
    """Milliseconds from a key to its character in the prompt box, for every key."""
    found: list[float] = []
    typed = ""
    for key in KEYS:
        typed = (typed + key)[-6:]
        screen.send(key)
        took = screen.watch(partial(shows, typed), 5)
        found.append(float("inf") if took is None else took * 1000)
        pause = time.perf_counter() + 0.06
        while (left := pause - time.perf_counter()) > 0:
            screen.read(left)
    return found


def measure(tokens: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "panes.json"
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        environment |= {"TERM": "xterm-256color", "SPECDEC_TUI_CONFIG": str(Path(folder) / "config.toml")}
        environment["SPECDEC_TUI_DATA_DIR"] = str(Path(folder) / "data")
        command = [sys.executable, __file__, "--child", str(report), "--tokens", str(tokens)]
        began = time.perf_counter()
        with Screen(command, environment, 120, 40) as screen:
            if screen.watch(lambda seen: "target" in seen, 60) is None:
                print("the app did not come up", file=sys.stderr)
                return 1
            usable = time.perf_counter() - began
            screen.watch(lambda seen: "running" in seen, 60)
            start = time.perf_counter()
            screen.watch(lambda _seen: False, 1)
            keys = latencies(screen)
            for size in SIZES:
                screen.resize(*size)
                screen.watch(lambda _seen: False, 0.5)
            screen.watch(lambda seen: "ready" in seen, tokens * len(STRATEGIES) / TOKENS_PER_SECOND * 3)
            seconds = time.perf_counter() - start
            screen.send("\x11")
            while screen.process.poll() is None:
                screen.read(0.1)
        held = json.loads(report.read_text())
    expected = "".join(word(place) for place in range(1 + (tokens - 1) // 4 * 4))
    lost = [name for name in STRATEGIES if held[name] != expected]
    total = len(STRATEGIES) * (1 + (tokens - 1) // 4 * 4)
    print(f"screen painted after launch     {usable:.2f} s")
    print(f"tokens fed to four panes        {total} in {seconds:.1f} s ({total / seconds:.0f}/s)")
    print(f"key latency over {len(keys)} keys       median {statistics.median(keys):.1f} ms, worst {max(keys):.1f} ms")
    print(f"tokens lost by {len(SIZES)} resizes       {'none' if not lost else 'in ' + ', '.join(lost)}")
    return 1 if lost else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=10001, help="new tokens of each pane (10001)")
    parser.add_argument("--child", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    return child(options.tokens, options.child) if options.child else measure(options.tokens)


if __name__ == "__main__":
    raise SystemExit(main())
