"""Cards that a step of computing goes over, one after the other.

A step that crosses to another card is captured as one graph for each stretch on a card (`cuda_graphs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Card:
    """A device. `number`: in trials of what needs several, cards of one device that differ in it stand for them."""

    device: torch.device
    number: int = 0


class Recording(Protocol):
    """What takes note of a step on its way over cards, to repeat it."""

    def cross(self, here: Card, there: Card, given: Sequence[Tensor], into: Sequence[Tensor]) -> Sequence[Tensor]: ...


_recording: ContextVar[Recording | None] = ContextVar("recording", default=None)


@contextmanager
def recorded(by: Recording) -> Iterator[None]:
    token = _recording.set(by)
    try:
        yield
    finally:
        _recording.reset(token)


def cross(here: Card, there: Card, *given: Tensor, into: Sequence[Tensor] = ()) -> Sequence[Tensor]:
    """A step goes on on another card: copies of tensors there, which wait for all that was asked of this one.

    They lie in `into`, as long, where that is given. No host waits. Where both cards are one nothing is copied.
    """
    if here == there:
        return given
    recording = _recording.get()
    if recording is not None:
        return recording.cross(here, there, given, into)
    copies = into or [torch.empty_like(tensor, device=there.device) for tensor in given]
    for copy, tensor in zip(copies, given, strict=True):
        copy.copy_(tensor, non_blocking=True)
    return copies
