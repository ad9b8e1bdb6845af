"""Keeps full garbage collections out of runs.

One walks every object of the app and of torch with the interpreter held: 60 to 200 ms were
measured, during which no key is answered and no round begins. Young objects are collected as ever.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_NEVER = 1_000_000


@contextmanager
def full_collections_on_request() -> Iterator[None]:
    """Inside, full collections happen only through `collect_everything`."""
    young, middle, old = gc.get_threshold()
    gc.set_threshold(young, middle, _NEVER)
    try:
        yield
    finally:
        gc.set_threshold(young, middle, old)


def collect_everything() -> None:
    """A full collection, for moments when nothing is measured."""
    gc.collect()
