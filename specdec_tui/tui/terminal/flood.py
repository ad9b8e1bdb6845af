"""Bounds for what a terminal sends: a line of noise, a hostile program or a hasty mouse must not hold up the keys."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Iterator
from typing import Any

from textual import events
from textual.message import Message

CANCEL = "\x18"
"""As on the terminals of old: what ends a sequence that is not to be obeyed."""
LONGEST_SEQUENCE = 30
"""Characters. Textual takes longer ones for keys, each by itself."""
LARGEST = (2000, 1000)
"""Columns and rows of a screen that there may be; each is painted cell by cell."""

_FOCUS = (events.AppFocus, events.AppBlur)
_CONTROL = "\x1b["


class SequenceBound:
    """Cuts control sequences that are too long, however they are split between reads."""

    def __init__(self) -> None:
        self._sequence = ""  # what there is of one, up to the bound
        self._is_cut = False

    def cut(self, data: str) -> str:
        """`data` with a `CANCEL` in the place of the rest of each that is too long, or breaks off for another key."""
        if not self._sequence and "\x1b" not in data:
            return data
        kept: list[str] = []
        for character in data:
            length, was_cut = len(self._sequence), self._is_cut
            if length >= len(_CONTROL) and " " <= character <= "?":
                if length < LONGEST_SEQUENCE:
                    self._sequence += character
                    kept.append(character)
                elif not was_cut:
                    self._is_cut = True
                    kept.append(CANCEL)
                continue
            is_begun = self._sequence == "\x1b" and character == "["
            self._sequence = _CONTROL if is_begun else character if character == "\x1b" else ""
            self._is_cut = False
            if length >= len(_CONTROL) and "@" <= character <= "~":  # its end
                if not was_cut:
                    kept.append(character)
                continue
            if length > len(_CONTROL) and not was_cut:
                kept.append(CANCEL)
            kept.append(character)
        return "".join(kept)


def is_cancelled(sequence: str) -> bool:
    return sequence.startswith(_CONTROL) and sequence.endswith(CANCEL)


def latest_moves(messages: Iterable[Message]) -> Iterator[Message]:
    """Of moves of the mouse that follow each other the last one, which has gone all their way."""
    held: events.MouseMove | None = None
    for message in messages:
        if held is not None:
            if isinstance(message, events.MouseMove):
                message._delta_x += held._delta_x
                message._delta_y += held._delta_y
            else:
                yield held
            held = None
        if isinstance(message, events.MouseMove):
            held = message
        else:
            yield message
    if held is not None:
        yield held


def is_newer_focus(message: Message, before: Message) -> bool:
    """Whether both tell of the terminal's focus, which dresses the whole screen anew: only the last one counts."""
    return isinstance(message, _FOCUS) and isinstance(before, _FOCUS)


def is_possible(message: Message) -> bool:
    """Whether a report of the screen's size can be true."""
    return not isinstance(message, events.Resize) or all(
        side <= most for side, most in zip(message.size, LARGEST, strict=True)
    )


def forgiving_decoder(name: str) -> Any:
    """As `codecs.getincrementaldecoder`, with U+FFFD for bytes that are none of that encoding."""
    decoder = codecs.getincrementaldecoder(name)
    return lambda: decoder(errors="replace")
