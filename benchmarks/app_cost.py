"""What does watching cost? Decode tokens/s in the app divided by the same run without a screen.

    python benchmarks/app_cost.py [--repeat 3] [--max-new-tokens 97] [--columns 120 --lines 40]
    python benchmarks/app_cost.py --device cuda [--preset llama3.2] [--dtype bfloat16] [--stepwise]

Two processes hold the same pair: one runs the app in a pseudo-terminal and gets its prompts typed,
one runs the session alone. Both decode the same tokens, in turns of some rounds: the engine's clock
stands still while a record is held, so each side waits inside its run for the other, and a slow
second of the machine hits both. Who goes first changes from turn to turn. After a turn of the app
its last painting is waited for, so that it does not disturb the other side; the first turn of each
prompt has the painting of the cleared panes in it. Figures are the engine's own clock.

On a GPU rounds are captured (`--stepwise`: not), by both sides in the first prompt, which is not
counted. Rounds that the host drafts nothing for are then read a few at a time: turns are whole numbers of such reads,
but for the last of a text.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import random
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median, quantiles
from typing import Any

from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Event, RoundVerified, RunEnded, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import DTYPES, PRESET_NAMES, ModelChoice, Settings

PROMPTS = (
    "Why is the sky blue? Explain it to a ten-year-old.",
    "Tell me a bedtime story about a fox who is afraid of the dark.",
    "List ten things to pack for a weekend camping trip.",
)
SETTLE_SECONDS = 0.35
WAIT_SECONDS = 300


class TurnsEngine(LocalEngine):
    """The real engine, which decodes only in its turns.

    It reads one byte of `go` at the start of a turn and writes one line to `done` at its end: the
    strategy, its rounds and the engine's seconds of the turn; "end" instead when the run is over.
    """

    alone = False  # the other side decodes while an event is held

    def __init__(self, go: int, done: int, rounds: int, *how: Any) -> None:
        super().__init__(*how)
        from specdec_tui.decoding.device_run import STEPS

        self._go, self._done, self._rounds = go, done, -(-rounds // STEPS) * STEPS

    def prepare(self, *arguments: object) -> None:
        """Nothing: the other side is decoding."""

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event]:
        self.new_chat()
        figures, counted, seconds = RunFigures(), 0, 0.0
        os.read(self._go, 1)
        for event in super().run(prompt, settings, cancelled, again=again):
            yield event
            if not isinstance(event, Step):
                continue
            figures.add(event.record)
            ended = isinstance(event.record, RunEnded)
            if ended or (isinstance(event.record, RoundVerified) and figures.rounds - counted == self._rounds):
                self._tell([event.strategy, figures.rounds - counted, figures.decode_seconds - seconds])
                counted, seconds = figures.rounds, figures.decode_seconds
                if ended:
                    figures, counted, seconds = RunFigures(), 0, 0.0
                os.read(self._go, 1)
        self._tell(["end", 0, 0.0])

    def _tell(self, turn: list[str | float]) -> None:
        os.write(self._done, (json.dumps(turn) + "\n").encode())


class Side:
    """A process and its end of the turn-taking."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.go_read, self.go = os.pipe()
        self.done, self.done_write = os.pipe()
        for end in (self.go_read, self.done_write):
            os.set_inheritable(end, True)
        self._rest = b""

    def give(self) -> None:
        os.write(self.go, b".")

    def take(self, idle: Callable[[], object]) -> tuple[str, int, float]:
        """Wait for the end of the turn."""
        begin = time.monotonic()
        while b"\n" not in self._rest:
            if select.select([self.done], [], [], 0.0)[0]:
                self._rest += os.read(self.done, 4096)
            elif time.monotonic() - begin > WAIT_SECONDS:
                raise TimeoutError(f"the turn of {self.name} did not end")
            else:
                idle()
        line, _, self._rest = self._rest.partition(b"\n")
        strategy, rounds, seconds = json.loads(line)
        return strategy, rounds, seconds


def child(mode: str, go: int, done: int, options: argparse.Namespace) -> int:
    from specdec_tui.decoding import device_run

    device_run.SLOW = float("inf")  # reads of one round between others would not fit into turns
    names = ("preset", "target", "drafter", "device", "dtype")
    choice = ModelChoice(**{name: getattr(options, name) for name in names})
    engine = TurnsEngine(go, done, options.rounds)
    strategies = tuple(options.strategies.split(","))
    length, captured = options.max_new_tokens, not options.stepwise
    settings = Settings(
        max_new_tokens=length,
        ignore_eos=True,
        strategies=strategies,
        capture=captured,
        schedule="sequential",  # a turn is rounds of one strategy
        insight=mode == "app",  # as the app and `bench` have it by themselves
    )
    if mode == "app":
        from specdec_tui.tui.app.program import run_app

        return run_app(engine, settings, choice)
    try:
        engine.load(choice, lambda progress: None)
    except LoadError as error:
        print(f"app_cost: {error}", file=sys.stderr)
        return 2
    print("ready", flush=True)
    for line in sys.stdin:
        for _event in engine.run(line.strip(), settings, lambda: False):
            pass
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=97)
    parser.add_argument("--strategies", default="target,speculative,ngram,lookup")
    parser.add_argument("--rounds", type=int, default=16, help="rounds of a turn, at least")
    parser.add_argument("--columns", type=int, default=120)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--preset", default="demo", choices=PRESET_NAMES)
    parser.add_argument("--target", default="", help="another target than the preset's, with --drafter")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--dtype", default="auto", choices=DTYPES)
    parser.add_argument("--stepwise", action="store_true", help="do not capture rounds, for comparison")
    parser.add_argument("--child", nargs=3, metavar=("MODE", "GO", "DONE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        mode, go, done = options.child
        return child(mode, int(go), int(done), options)

    folder = Path(tempfile.mkdtemp())
    own = {"SPECDEC_TUI_CONFIG": str(folder / "config.toml"), "SPECDEC_TUI_DATA_DIR": str(folder / "data")}
    environment = os.environ | own | {"TERM": "xterm-256color"}
    alone, app = Side("alone"), Side("app")

    def command(side: Side) -> list[str]:
        ends = [side.name, str(side.go_read), str(side.done_write)]
        return [sys.executable, __file__, *sys.argv[1:], "--child", *ends]

    session = subprocess.Popen(
        command(alone),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
        text=True,
        pass_fds=(alone.go_read, alone.done_write),
    )
    assert session.stdin is not None and session.stdout is not None
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(sys.executable, command(app), environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", options.lines, options.columns, 0, 0))
    screen = bytearray()

    def drain(wait: float = 0.05) -> bool:
        """Take what the app has painted, as a terminal does."""
        if not select.select([terminal], [], [], wait)[0]:
            return False
        try:
            screen.extend(os.read(terminal, 65536))
        except OSError:  # Linux's way to say that nothing holds the other end
            raise SystemExit("the app has ended; its last words:\n" + screen[-2000:].decode(errors="replace")) from None
        return True

    if not session.stdout.readline():
        os.kill(process, signal.SIGTERM)
        return 2  # it has said why it could not load the pair
    while b"ready" not in screen:
        drain()
    turns: dict[str, list[tuple[int, float, float]]] = {}
    for number, prompt in enumerate(PROMPTS * options.repeat):
        session.stdin.write(prompt + "\n")
        session.stdin.flush()
        os.write(terminal, prompt.encode())
        drain()
        os.write(terminal, b"\r")
        seconds: dict[str, float] = {}
        turn = 0
        while True:
            # The app goes first at a prompt's start: its panes are being cleared and laid out then.
            for side in (alone, app) if turn % 2 else (app, alone):
                side.give()
                strategy, rounds, seconds[side.name] = side.take(drain)
                while side is app and drain(SETTLE_SECONDS):
                    pass
            if strategy == "end":
                break
            if number and rounds:  # the first prompt warms up both sides
                turns.setdefault(strategy, []).append((rounds, seconds["app"], seconds["alone"]))
            turn += 1
        medians = {name: round(median(b / a for _, a, b in own), 3) for name, own in turns.items()}
        print(number + 1, medians, file=sys.stderr, flush=True)
    os.write(terminal, b"\x11")
    session.stdin.close()
    session.wait()
    heads = ("strategy", "turns", "ratio of totals", "(95 %)", "median of turns", "quartiles")
    print("{:<12} {:>6} {:>16} {:>15} {:>16} {:>15}".format(*heads))
    for strategy, own in turns.items():
        ratios = [b / a for _, a, b in own]
        low, _, high = quantiles(ratios, n=4)
        least, most = interval(own)
        print(
            f"{strategy:<12} {len(own):>6} {of_totals(own):>16.3f} {f'{least:.3f} - {most:.3f}':>15} "
            f"{median(ratios):>16.3f} {f'{low:.3f} - {high:.3f}':>15}"
        )
    return 0


def of_totals(turns: list[tuple[int, float, float]]) -> float:
    return sum(b for _, _, b in turns) / sum(a for _, a, _ in turns)


def interval(turns: list[tuple[int, float, float]]) -> tuple[float, float]:
    """95 % interval of the ratio of totals, by drawing turns with replacement."""
    dice = random.Random(0)
    drawn = sorted(of_totals(dice.choices(turns, k=len(turns))) for _ in range(2000))
    return drawn[50], drawn[-51]


if __name__ == "__main__":
    raise SystemExit(main())
