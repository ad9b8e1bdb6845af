"""What does watching cost? Decode tokens/s in the app divided by the same run without a screen.

    python benchmarks/app_cost.py [--repeat 3] [--max-new-tokens 96] [--columns 120 --lines 40]

Two processes hold the same pair: one runs the app in a pseudo-terminal and gets its prompts typed,
one runs the session alone. They take turns prompt by prompt, each going first every other time, so a
slow minute of the machine hits both. Figures are the engine's own clock. Run it on an idle machine.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import Event, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

PROMPTS = (
    "Why is the sky blue? Explain it to a ten-year-old.",
    "Tell me a bedtime story about a fox who is afraid of the dark.",
    "List ten things to pack for a weekend camping trip.",
)
WAIT_SECONDS = 300


class RecordingEngine(LocalEngine):
    """The real engine, which also appends each run's tokens/s to a file when a prompt is finished."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self._log = log

    def run(
        self, prompt: str, settings: Settings, cancelled: Callable[[], bool], *, again: bool = False
    ) -> Iterator[Event]:
        figures: dict[str, RunFigures] = {}
        self.new_chat()
        for event in super().run(prompt, settings, cancelled, again=again):
            if isinstance(event, Step):
                figures.setdefault(event.strategy, RunFigures()).add(event.record)
            yield event
        line = {name: run.decode_tokens_per_second for name, run in figures.items()}
        with self._log.open("a") as log:
            log.write(json.dumps(line) + "\n")


def settings_of(tokens: int) -> Settings:
    return Settings(max_new_tokens=tokens, ignore_eos=True)


def child(mode: str, log: Path, tokens: int, choice: ModelChoice) -> int:
    engine, settings = RecordingEngine(log), settings_of(tokens)
    if mode == "app":
        from specdec_tui.tui.app import run_app

        return run_app(engine, settings, choice)
    engine.load(choice, lambda progress: None)
    log.touch()
    for line in sys.stdin:
        list(engine.run(line.strip(), settings, lambda: False))
    return 0


def lines_of(log: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for(done: Callable[[], bool], drain: Callable[[], None]) -> None:
    begin = time.monotonic()
    while not done():
        drain()
        if time.monotonic() - begin > WAIT_SECONDS:
            raise TimeoutError("the run did not finish")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--max-new-tokens", type=int, default=96)
    parser.add_argument("--columns", type=int, default=120)
    parser.add_argument("--lines", type=int, default=40)
    parser.add_argument("--target", default="", help="another target than the demo's, with --drafter")
    parser.add_argument("--drafter", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--child", nargs=2, metavar=("MODE", "LOG"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        choice = ModelChoice(target=options.target, drafter=options.drafter, device=options.device)
        return child(options.child[0], Path(options.child[1]), options.max_new_tokens, choice)

    folder = Path(tempfile.mkdtemp())
    environment = os.environ | {"SPECDEC_TUI_CONFIG": str(folder / "config.toml"), "TERM": "xterm-256color"}
    command = [sys.executable, __file__, "--max-new-tokens", str(options.max_new_tokens)]
    command += ["--target", options.target, "--drafter", options.drafter, "--device", options.device, "--child"]
    alone_log, app_log = folder / "alone.jsonl", folder / "app.jsonl"
    alone = subprocess.Popen([*command, "alone", str(alone_log)], stdin=subprocess.PIPE, env=environment, text=True)
    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(command[0], [*command, "app", str(app_log)], environment)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", options.lines, options.columns, 0, 0))
    screen = bytearray()

    def drain() -> None:
        if select.select([terminal], [], [], 0.05)[0]:
            screen.extend(os.read(terminal, 65536))

    wait_for(alone_log.exists, drain)
    wait_for(lambda: b"ready" in screen, drain)
    ratios: dict[str, list[float]] = {}
    speeds: dict[str, list[tuple[float, float]]] = {}
    assert alone.stdin is not None
    for number, prompt in enumerate(PROMPTS * options.repeat, 1):
        for side in ("alone", "app") if number % 2 else ("app", "alone"):
            if side == "alone":
                alone.stdin.write(prompt + "\n")
                alone.stdin.flush()
                wait_for(lambda n=number: len(lines_of(alone_log)) == n, drain)
            else:
                os.write(terminal, prompt.encode())
                drain()
                os.write(terminal, b"\r")
                wait_for(lambda n=number: len(lines_of(app_log)) == n, drain)
                wait_for(lambda: not select.select([terminal], [], [], 0.5)[0], drain)
        if number <= len(PROMPTS):
            continue  # the first pass over the prompts warms up both sides
        for strategy, with_app in lines_of(app_log)[-1].items():
            without = lines_of(alone_log)[-1][strategy]
            ratios.setdefault(strategy, []).append(with_app / without)
            speeds.setdefault(strategy, []).append((with_app, without))
        print({name: round(values[-1], 3) for name, values in ratios.items()}, file=sys.stderr, flush=True)
    os.write(terminal, b"\x11")
    alone.stdin.close()
    alone.wait()
    print(f"{'strategy':<12} {'app tok/s':>10} {'alone tok/s':>12} {'ratio: median':>14} {'lowest':>7} {'highest':>8}")
    for strategy, values in ratios.items():
        app_speed = median(a for a, _ in speeds[strategy])
        alone_speed = median(b for _, b in speeds[strategy])
        print(
            f"{strategy:<12} {app_speed:>10.1f} {alone_speed:>12.1f} {median(values):>14.3f} "
            f"{min(values):>7.3f} {max(values):>8.3f}"
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
