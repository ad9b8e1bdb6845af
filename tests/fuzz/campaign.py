"""Hostile inputs of one kind, one after the other, for a bounded time; the same seed makes the same inputs.

`make test` gives each kind a few seconds, `make fuzz SECONDS=3600` an hour in all. Variables of the environment:
FUZZ_SECONDS for each kind, FUZZ_SEED, and FUZZ_FIRST, the number of the input to begin with (a fault names its own).
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from random import Random
from types import FrameType

import pytest

from specdec_tui.tui.lines.sanitize import visible

SECONDS = float(os.environ.get("FUZZ_SECONDS", "10"))
SEED = os.environ.get("FUZZ_SEED", "1")
FIRST = int(os.environ.get("FUZZ_FIRST", "0"))
LONGEST = 30.0  # seconds for one input, on a machine that does other things too
LONGEST_LINE = 2000  # characters of a refusal
_MOST_FAULTS = 10


class TookTooLong(BaseException):
    """Not an Exception: what handles errors of an input must not take it for one."""


def campaign(kind: str, try_one: Callable[[Random], str]) -> None:
    """Call `try_one`, which names the outcome of its input, until the time is over. What it raises is a fault."""
    outcomes: Counter[str] = Counter()
    faults: list[str] = []
    end, number = time.monotonic() + SECONDS, FIRST
    while time.monotonic() < end and len(faults) < _MOST_FAULTS:
        before = signal.signal(signal.SIGALRM, _too_long)
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        try:
            outcomes[try_one(Random(f"{kind} {SEED} {number}"))] += 1
        except (Exception, TookTooLong) as error:
            words = f"{type(error).__name__}: {error}".strip().partition("\n")[0][:300]
            faults.append(f"FUZZ_SEED={SEED} FUZZ_FIRST={number}: {words!r}")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        number += 1
    told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
    print(f"\nfuzz {kind}: {number - FIRST} inputs: {told}; {len(faults)} faults", flush=True)
    if faults:
        pytest.fail("\n".join(faults), pytrace=False)


def check_refusal(error: Exception) -> str:
    """The outcome of an input that was refused: in one line, which a terminal may be given."""
    words = str(error)
    assert words.strip(), "refused without a word"
    assert "\n" not in words and "\r" not in words, f"more than a line: {words[:300]!r}"
    assert visible(words) == words, f"a terminal would obey: {words[:300]!r}"
    assert len(words) <= LONGEST_LINE, f"{len(words)} characters long: {words[:300]!r}"
    return "refused"


def _too_long(_number: int, _frame: FrameType | None) -> None:
    raise TookTooLong(f"more than {LONGEST:g} s")
