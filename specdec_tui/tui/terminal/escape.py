"""The escape key in front of another key is both keys, as far as a terminal can tell.

Where the keyboard protocol of kitty is spoken, escape has a sequence of its own. Elsewhere it is the
byte that all sequences begin with, and that alt puts in front of a key; Textual takes whatever follows
within 100 ms for alt with that key. What arrives in a read of its own was typed behind it. In one read,
as a terminal sends alt, only the alt keys that mean something here are such; the rest are escape and
the key. Left to the 100 ms: `[` and `O`, which begin the sequences of other keys, typed right behind it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS
from textual._xterm_parser import XTermParser
from textual.keys import Keys
from textual.message import Message

from specdec_tui.tui.terminal.flood import SequenceBound, is_cancelled

_ESCAPE = "\x1b"
_ALT_DIGIT = re.compile("\x1b[0-9]")
_BEGINNINGS = "[O"
# A whole sequence of no key that is known. Not so: reports of the mouse and of modes, the console's function keys.
_UNKNOWN = re.compile("\x1b\\[(?![<\\[M])[0-?]*[ -/]*(?<!\\$)[@-~]")


class EscapeParser(XTermParser):
    """Textual's parser, with another idea of what an escape byte is."""

    _ends_in_escape = False

    def __init__(self, debug: bool = False) -> None:
        self._bound = SequenceBound()
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        if data and not (data := self._bound.cut(data)):
            return  # to the parser nothing means that the input is over
        if self._ends_in_escape and data and data[0] not in _BEGINNINGS + _ESCAPE and self._timeout_time is not None:
            self._timeout_time = 0.0
            yield from super().tick()
        self._ends_in_escape = data.endswith(_ESCAPE)
        yield from super().feed(data)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if is_cancelled(sequence):
            return [events.Key(Keys.Ignore, sequence)]
        # Textual takes alt and a digit for a character that some keyboards have there (`£`).
        if _ALT_DIGIT.fullmatch(sequence):
            return [events.Key(f"alt+{sequence[-1]}", None)]
        typed = sequence[1:] if sequence[0] == _ESCAPE else ""
        if len(typed) == 1 and typed not in _BEGINNINGS and not isinstance(ANSI_SEQUENCES_KEYS.get(sequence), tuple):
            return [events.Key("escape", _ESCAPE), *super()._sequence_to_key_events(typed)]
        if alt:  # a beginning that nothing followed
            return [events.Key("escape", _ESCAPE), *super()._sequence_to_key_events(sequence)]
        try:
            keys = list(super()._sequence_to_key_events(sequence))
        except (ValueError, OverflowError):  # the number of no character
            return [events.Key(Keys.Ignore, sequence)]
        if not keys and _UNKNOWN.fullmatch(sequence) and sequence[-1] not in "mM":
            return [events.Key(Keys.Ignore, sequence)]
        return keys
