"""How long does a long trace take to open, and how fast does it scroll?

    python benchmarks/long_trace.py [--tokens 20000] [--insight]

A trace of so many emitted tokens in four strategies, with rejected drafts between them (with `--insight`
also entropies and ten alternatives of each token), is opened in a running app in a pseudo-terminal: the
time is that from `enter` to its text on the screen. Then, pane maximised, each view is scrolled key by
key, the next key being sent when the last one has been painted. Start-up of `specdec-tui replay` on the
same file, imports included, is told beside.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from ui import STRATEGIES, FastEngine, Screen, shows, word

from specdec_tui.decoding.records import (
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    Insight,
    Lossless,
    LosslessStatus,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.traces.files import write_trace
from specdec_tui.traces.format import Trace, new_header

KEYS = {"line": ("\x1b[A", "\x1b[B"), "page": ("\x1b[5~", "\x1b[6~")}  # up, down
PRESSES, IN_A_ROW = 120, 6
WAIT_SECONDS = 30.0
FATES = (Status.ACCEPTED, Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED)


def rounds(strategy: str, tokens: int, insight: Insight | None) -> Iterator[Step]:
    """Two accepted drafts, a rejected and an unverified one, and the correction, again and again."""
    tokens -= (tokens - 1) % 3
    yield Step(strategy, RunStarted(strategy, 20, 4, tokens), prompt_text="why")
    yield Step(strategy, PrefillDone(Token(0, Status.SAMPLED, 0, p=1.0), 0.1), (word(0),))
    for number in range(tokens // 3):
        first = 1 + 3 * number
        places = [*range(first, first + 4), first + 2]
        drafts = [
            Token(7 * place % 49152, fate, place, 0.123456 + number % 7 / 10, 0.5, 0.25, 0.125, insight)
            for place, fate in zip(places, FATES, strict=False)
        ]
        emitted = Token(7 * (first + 2) % 49152, Status.RESAMPLED, first + 2, 0.75, insight=insight)
        record = RoundVerified(number, tuple(drafts), emitted, 0.004, 0.03, 0.0005)
        texts = (word(first), word(first + 1), " wrong", " behind", word(first + 2))
        pending = tuple(Token(draft.id, Status.PENDING, draft.position) for draft in drafts)
        yield Step(strategy, DraftsProposed(number, pending), texts[:-1])
        yield Step(strategy, record, texts, alternatives=ALTERNATIVES if insight and not number else ())
    yield Step(strategy, RunEnded(EndReason.LENGTH), answer="")


ALTERNATIVES = tuple((token, f" w{token}") for token in range(10))


def a_trace(tokens: int, with_insight: bool) -> Trace:
    """`tokens` new tokens over all strategies."""
    top = tuple((token, float(f"{0.53 / 1.9**token:.5g}")) for token in range(10))
    insight = Insight(1.25, 1.5, top, top) if with_insight else None
    events: list[Event] = [s for name in STRATEGIES for s in rounds(name, tokens // len(STRATEGIES), insight)]
    events += [Checked(name, Lossless(LosslessStatus.IDENTICAL)) for name in STRATEGIES]
    events.append(Finished())
    settings = replace(Settings(), max_new_tokens=tokens // len(STRATEGIES), insight=with_insight)
    return Trace(new_header("why", events, settings=settings), tuple(events))


def app() -> int:
    """The child: an app on an engine that is ready at once."""
    from specdec_tui.tui.app.program import run_app

    return run_app(FastEngine(1), Settings(strategies=STRATEGIES), ModelChoice())


def painted(screen: Screen) -> bool:
    """Wait for the next painting, and until it is complete."""
    seen = screen.read(WAIT_SECONDS)
    while screen.read(0.002):
        pass
    return bool(seen)


def open_time(screen: Screen, file: Path, last: str) -> float:
    """Seconds from `enter` until the end of the text is on the screen."""
    screen.send("\x10")
    screen.watch(lambda seen: shows("a command, or a setting", seen), WAIT_SECONDS)
    screen.send(f"open trace {file}")
    screen.watch(lambda seen: shows(file.name, seen), WAIT_SECONDS)
    time.sleep(0.3)
    begin = time.perf_counter()
    screen.send("\r")
    if screen.watch(lambda seen: shows(last, seen), WAIT_SECONDS) is None:
        raise TimeoutError("the trace was not shown")
    return time.perf_counter() - begin


def scroll(screen: Screen, keys: tuple[str, str]) -> float:
    """Paintings per second while keys are pressed, some up and some down in turn."""
    begin = time.perf_counter()
    for press in range(PRESSES):
        screen.send(keys[press // IN_A_ROW % 2])
        if not painted(screen):
            raise TimeoutError("a key was not painted")
    return PRESSES / (time.perf_counter() - begin)


def leave(screen: Screen) -> None:
    screen.send("\x11")
    while screen.process.poll() is None:
        screen.read(0.1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=20_000)
    parser.add_argument("--insight", action="store_true")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return app()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "long.jsonl"
        trace = a_trace(options.tokens, options.insight)
        write_trace(file, trace)
        last = word(3 * ((options.tokens // len(STRATEGIES) - 1) // 3)).strip()
        environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
        environment |= {"TERM": "xterm-256color", "SPECDEC_TUI_CONFIG": str(Path(folder) / "config.toml")}
        environment["SPECDEC_TUI_DATA_DIR"] = str(Path(folder) / "data")
        print(f"{options.tokens} tokens, {file.stat().st_size / 1e6:.1f} MB")
        with Screen([sys.executable, __file__, "--child"], environment, 120, 40) as screen:
            screen.watch(lambda seen: shows("ready", seen), WAIT_SECONDS)
            print(f"opened in a running app          {open_time(screen, file, last):.2f} s", flush=True)
            screen.send("\x1b")
            time.sleep(0.5)
            screen.send("z")
            painted(screen)
            for view in ("text", "rounds", "tree"):
                time.sleep(1.0)
                while screen.read(0.1):
                    pass
                rates = ", ".join(f"{name} by {name} {scroll(screen, keys):.0f}" for name, keys in KEYS.items())
                print(f"{view:<8} paintings/s              {rates}", flush=True)
                screen.send("v")
            leave(screen)
        begin = time.perf_counter()
        with Screen([sys.executable, "-m", "specdec_tui", "replay", str(file)], environment, 120, 40) as screen:
            screen.watch(lambda seen: shows(last, seen), WAIT_SECONDS)
            print(f"specdec-tui replay, from launch  {time.perf_counter() - begin:.2f} s")
            leave(screen)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
