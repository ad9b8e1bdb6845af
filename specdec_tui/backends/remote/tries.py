"""Asking again: how often, and how long a server that is busy, or not there, is left alone between."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from random import Random
from typing import TypeVar

from specdec_tui.backends.remote.errors import ServerError

MOST_TRIES = 4
MOST_SECONDS = 30.0
"""After so many of a call nothing is asked again."""
MOST_WAIT = 10.0
"""The longest that a server may ask us to wait at once."""
_FIRST_WAIT = 0.25
_JITTER = 0.25  # the share by which a wait differs, so that clients that failed together do not come back together

Result = TypeVar("Result")
_random = Random()


async def tried(
    ask: Callable[[], Awaitable[Result]], tell: Callable[[str], None], most: int = MOST_TRIES
) -> tuple[Result, int]:
    """What `ask` returns in the end, and at which try. Each that failed is told in a line; the last one raises."""
    began = time.monotonic()
    for number in range(1, most + 1):
        try:
            return await ask(), number
        except ServerError as error:
            fault = error
        wait = min(fault.after, MOST_WAIT) if fault.after >= 0 else back_off(number, _random.uniform(-1, 1))
        if not fault.again or number == most or time.monotonic() - began + wait > MOST_SECONDS:
            break
        tell(f"{fault.brief}: asked again after {wait:.2g} s")
        await asyncio.sleep(wait)
    raise fault.at_try(number)


def back_off(number: int, chance: float) -> float:
    """Seconds to wait after the `number`-th try, from 1 on; `chance` is from -1 to 1."""
    return _FIRST_WAIT * 2 ** (number - 1) * (1 + _JITTER * chance)


def seconds_of(retry_after: str) -> float:
    """What a Retry-After header says, in seconds or as a date; -1 where it says nothing that can be read."""
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            date = parsedate_to_datetime(retry_after)
        except (ValueError, TypeError):
            return -1
        seconds = (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - datetime.now(UTC).timestamp()
    return max(0.0, seconds) if math.isfinite(seconds) else -1
