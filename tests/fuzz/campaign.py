"""Hostile inputs of one kind, one after the other, for a bounded time; the same seed makes the same inputs.

`make test` gives each kind a few seconds, `make test-all` half a minute, `make fuzz SECONDS=3600` an hour to all.
Variables of the environment: FUZZ_SECONDS for each kind, FUZZ_SEED, and FUZZ_FIRST, the number of the input to begin
with (a fault names its own).
"""

from __future__ import annotations

import math
import os
import resource
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from types import FrameType

import pytest
from raw_words import raw_words

from specdec_tui.doors.characters import LONGEST_MESSAGE, visible

SECONDS = float(os.environ.get("FUZZ_SECONDS", "2"))
SEED = os.environ.get("FUZZ_SEED", "1")
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
LONGEST = 30.0  # seconds for one input, on a machine that does other things too
LONGEST_LINE = LONGEST_MESSAGE + 100  # characters of a refusal: the message and where it comes from
MEMORY_BYTES = 4 << 30  # that the inputs may take in all


class TookTooLong(BaseException):
    """Not an Exception: what handles errors of an input must not take it for one."""


def campaign(
    kind: str,
    try_one: Callable[[Random], str],
    seconds: float = SECONDS,
    most_faults: int = 10,
    most_inputs: float = math.inf,
) -> None:
    """Call `try_one`, which names the outcome of its input, until the time is over or so much is tried or found.

    What it raises is a fault; the same one again, from the same line, is counted.
    """
    outcomes: Counter[str] = Counter()
    faults: dict[str, list[str]] = {}
    slowest = (0.0, FIRST)
    end, number = time.monotonic() + seconds, FIRST
    with _bounded_memory():
        while time.monotonic() < end and len(faults) < most_faults and number - FIRST < most_inputs:
            before = signal.signal(signal.SIGALRM, _too_long)
            # Again and again: what is raised within a callback of native code is lost.
            signal.setitimer(signal.ITIMER_REAL, LONGEST, 1.0)
            begin = time.monotonic()
            try:
                outcomes[try_one(Random(f"{kind} {SEED} {number}"))] += 1
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a panic of a library is no Exception
                words = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
                where = f"FUZZ_SEED={SEED} FUZZ_FIRST={number}"
                faults.setdefault(_line_of(error), []).append(f"{where}: {words!r}")
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
                signal.signal(signal.SIGALRM, before)
            slowest = max(slowest, (time.monotonic() - begin, number))
            number += 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    slow = f"the slowest, {slowest[1]}, took {slowest[0]:.1f} s"
    print(f"\nfuzz {kind}: {number - FIRST} inputs: {told}; {slow}; {len(faults)} faults", flush=True)
    if faults:
        pytest.fail(
            "\n".join(f"{len(seen)} times in {line}: {seen[0]}" for line, seen in faults.items()), pytrace=False
        )


def check_refusal(error: Exception) -> str:
    """The outcome of an input that was refused: in one line, which a terminal may be given."""
    words = str(error)
    assert words.strip(), "refused without a word"
    check_told(words)
    return "refused"


def check_told(*lines: str) -> None:
    """Each is one line, which a terminal may be given, and tells a person what is wrong, in no exception's words."""
    check_words(*lines)
    for words in lines:
        assert not (raw := raw_words(words)), f"raw words of an exception, {raw!r}: {words[:300]!r}"


def check_words(*lines: str) -> None:
    """Each is one line, which a terminal may be given."""
    for words in lines:
        assert "\n" not in words and "\r" not in words, f"more than a line: {words[:300]!r}"
        assert visible(words) == words, f"a terminal would obey: {words[:300]!r}"
        assert len(words) <= LONGEST_LINE, f"{len(words)} characters long: {words[:300]!r}"


def _line_of(error: BaseException) -> str:
    """The product's line that an error went through last, or else the test's that found it."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != __file__]
    line = next((frame for frame in reversed(frames) if "specdec_tui" in Path(frame.filename).parts), frames[-1])
    return f"{Path(line.filename).name}:{line.lineno}"


@contextmanager
def _bounded_memory() -> Iterator[None]:
    """A MemoryError, where otherwise the machine would be filled."""
    if sys.platform != "linux":
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (taken + MEMORY_BYTES, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TookTooLong(f"more than {LONGEST:g} s")
