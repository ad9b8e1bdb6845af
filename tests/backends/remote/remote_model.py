"""What the server of these tests says when nothing goes wrong, and the key it is given."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec
from faulty_server import Answer, Call

KEY = "sk-Zq81-Tx93-Wv57-Lm20"


class Number(msgspec.Struct):
    n: int


def model(call: Call) -> Answer:
    """What is asked for by `n`, as one answer or as so many events."""
    if call.method == "GET":
        return Answer({"n": 7})
    asked = call.body["n"]
    return Answer(events=[{"n": i} for i in range(asked)]) if call.body.get("stream") else Answer({"n": asked})


def cancelled_after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end
