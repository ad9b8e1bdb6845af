"""A paste is text, whatever is in it; and alt with a digit is a key.

Textual's parser goes on looking for escape sequences inside a bracketed paste. One it does not
know is replayed as keys and ends the paste early; the rest then arrives as keys too, and a line
break among them is an enter. So pastes are cut out of the input before the parser sees them.

What terminals send for alt and a digit it takes for a character that some keyboards have there (`£`).
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual._xterm_parser import XTermParser
from textual.message import Message

from specdec_tui.tui.lines.sanitize import editable

_ALT_DIGIT = re.compile("\x1b[0-9]")


class PasteSafeParser(XTermParser):
    """Textual's parser for everything outside pastes; a paste becomes one `Paste` event."""

    def __init__(self, debug: bool = False) -> None:
        self._seen = ""  # the end of what the parser has: a marker may be split between two reads
        self._paste: str | None = None
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from super().feed(data)
        while data:
            if self._paste is None:
                data = yield from self._outside(data)
            else:
                data = yield from self._inside(data)

    def _sequence_to_key_events(self, sequence: str, alt: bool = False) -> Iterable[events.Key]:
        if _ALT_DIGIT.fullmatch(sequence):
            return [events.Key(f"alt+{sequence[-1]}", None)]
        return super()._sequence_to_key_events(sequence, alt)

    def _outside(self, data: str) -> Generator[Message, None, str]:
        """Pass on everything up to a paste; returns what is left of `data`."""
        known = len(self._seen)
        text = self._seen + data
        at = text.find(START)
        if at < 0:
            self._seen = text[1 - len(START) :]
            yield from super().feed(data)
            return ""
        self._seen, self._paste = "", ""
        behind = at + len(START)
        # Nothing is held back that may be a lone escape key, so the parser may have a part of the
        # marker already: it gets the rest, and a paste that is empty.
        for event in super().feed(text[known:behind] + END):
            if not isinstance(event, events.Paste):
                yield event
        return text[behind:]

    def _inside(self, data: str) -> Generator[Message, None, str]:
        """Gather a paste; returns what is left of `data` behind it.

        The last end marker at hand counts: whoever wrote the text may have put one into it, to have
        the rest taken for keys.
        """
        assert self._paste is not None
        self._paste += data
        content, marker, rest = self._paste.rpartition(END)
        if not marker:
            return ""
        self._paste = None
        yield events.Paste(editable(content.replace(START, "").replace(END, "").replace("\0", "")))
        return rest


@contextmanager
def pastes_kept_whole() -> Iterator[None]:
    """Let Textual's terminal drivers parse with `PasteSafeParser`; they have no setting for it."""
    if sys.platform == "win32":
        from textual.drivers import win32 as driver
    else:
        from textual.drivers import linux_driver as driver
    kept = driver.XTermParser
    driver.XTermParser = PasteSafeParser  # type: ignore[misc]
    try:
        yield
    finally:
        driver.XTermParser = kept  # type: ignore[misc]
