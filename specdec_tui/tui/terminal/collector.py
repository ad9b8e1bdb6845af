"""Keeps garbage collections out of a start, and full ones out of runs.

A full one walks every object of the app and of torch with the interpreter held: 60 to 200 ms were
measured, during which no key is answered and no round begins. Young objects are collected as ever.
What is imported and built at a start stays, so looking for garbage in it finds nothing: that took a tenth of it.
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


def begin_a_start() -> None:
    """Nothing is collected until `end_a_start`."""
    gc.disable()


def end_a_start() -> None:
    """Collect again: what there is by now not before `collect_everything`. Nothing where no start was begun."""
    if not gc.isenabled():
        gc.freeze()  # else the next collection of young objects would walk all of them
        gc.enable()


def collect_everything() -> None:
    """A full collection, for moments when nothing is measured."""
    gc.unfreeze()
    gc.collect()
