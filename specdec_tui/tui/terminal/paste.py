"""A paste is text, whatever is in it and however it arrives; and a key stays a key.

Textual's parser goes on looking for escape sequences inside a bracketed paste. One it does not
know is replayed as keys and ends the paste early; the rest then arrives as keys too, and a line
break among them is an enter. So pastes are cut out of the input before the parser sees them.

An end marker proves little. It may be lost, and every key behind it would be text for good: a paste
that nothing more arrives for ends by itself, and ctrl+c or ctrl+q that comes alone after a silence
ends it at once. Or it may stand in the pasted text, to have the rest taken for keys: what follows a
marker without a pause is held for a moment, and another marker makes it text. A person is told from
a terminal at work by the pace: terminals send much, or at once.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from time import monotonic
from typing import Any

from textual import events
from textual._xterm_parser import BRACKETED_PASTE_END as END
from textual._xterm_parser import BRACKETED_PASTE_START as START
from textual.message import Message

from specdec_tui.tui.terminal.escape import EscapeParser
from specdec_tui.tui.terminal.flood import forgiving_decoder, latest_moves

IDLE_SECONDS = 1.0  # nothing more of a paste for so long: its end marker is lost
HOLD_SECONDS = 0.15  # so long after an end marker another one may follow
SILENCE_SECONDS = 0.05  # before a key that a person pressed
PACE_SECONDS = 0.02  # nobody types, and no keyboard repeats, as fast
LARGE = 32  # characters that nobody typed
LONGEST = 1 << 20  # characters of a paste that are handed on in one piece

_DRIVERS = [f"textual.drivers.{name}" for name in ("linux_driver", "web_driver", "win32")]

# Ctrl+c and ctrl+q, in both protocols.
_TO_LEAVE = re.compile("(?:[\x03\x11]|\x1b\\[(?:99|113);[0-9:]+(?:;[0-9:]*)?u)+")
_REPORTS = re.compile("(?:\x1b\\[(?:<[0-9;]+[Mm]|[IO]))+")  # of the mouse and the focus: no text, and never a pause


class PasteSafeParser(EscapeParser):
    """Textual's parser for everything outside pastes; a paste becomes a `Paste` event, or several in a row."""

    def __init__(self, debug: bool = False) -> None:
        self._seen = ""  # the end of what the parser has: a marker may be split between two reads
        self._paste: str | None = None  # inside a paste: what of it has not been handed on
        self._behind: str | None = None  # right behind one: what may still belong to it
        self._was_cut = False  # the last paste ended without a marker: its rest may be on the way
        self._until = 0.0  # when either is over
        self._last = 0.0
        self._looks = 0  # for input, since there was some: a reader that was held up has missed no pause
        super().__init__(debug)

    def feed(self, data: str) -> Iterable[Message]:
        return latest_moves(self._feed(data))

    def _feed(self, data: str) -> Iterable[Message]:
        if not data:
            yield from self._over()
            yield from super().feed(data)
            return
        now = monotonic()
        pause, self._looks = now - self._last, 0
        typed = _REPORTS.sub("", data)
        if typed:
            self._last = now
        at_work = bool(typed) and (len(typed) >= LARGE or pause < PACE_SECONDS)
        if self._paste is not None and pause > SILENCE_SECONDS and _TO_LEAVE.fullmatch(typed):
            yield from self._over()
        if at_work:
            self._until = now + (IDLE_SECONDS if self._behind is None else HOLD_SECONDS)
        yield from self._take(data)

    def tick(self) -> Iterable[Message]:
        self._looks += 1
        # The first look belongs to the reading itself.
        if self._looks > 1 and monotonic() >= self._until:
            yield from self._over()
        yield from super().tick()

    def _take(self, data: str) -> Iterable[Message]:
        while data:
            if self._behind is not None:
                self._behind += data
                data = self._held()
            elif self._paste is not None:
                self._paste += data
                data = yield from self._inside()
            else:
                data = yield from self._outside(data)

    def _outside(self, data: str) -> Generator[Message, None, str]:
        """Pass on everything up to a paste; returns what is left of `data`."""
        known = len(self._seen)
        text = self._seen + data
        at = text.find(START)
        end = data.find(END)
        is_rest = end >= 0 and (at < 0 or end + known < at)  # no key sends that marker
        if is_rest or (self._was_cut and len(data) >= LARGE and not _REPORTS.fullmatch(data)):
            self._begin()
            return data
        if at < 0:
            self._seen = text[1 - len(START) :]
            yield from super().feed(data)
            return ""
        self._begin()
        behind = at + len(START)
        # Nothing is held back that may be a lone escape key, so the parser may have a part of the
        # marker already: it gets the rest, and a paste that is empty.
        for event in super().feed(text[known:behind] + END):
            if not isinstance(event, events.Paste):
                yield event
        if behind == len(text):
            return ""
        return text[behind:]

    def _begin(self) -> None:
        self._seen, self._paste, self._was_cut = "", "", False
        self._until = monotonic() + IDLE_SECONDS

    def _inside(self) -> Generator[Message, None, str]:
        """Look for the end of a paste; returns what stands behind it.

        The last end marker at hand counts: whoever wrote the text may have put one into it, to have
        the rest taken for keys.
        """
        assert self._paste is not None
        content, marker, rest = self._paste.rpartition(END)
        if marker:
            self._paste, self._behind = None, ""
            self._until = monotonic() + HOLD_SECONDS
            yield _pasted(content)
            return rest
        if len(self._paste) > LONGEST:
            piece = self._paste[: 1 - len(END)].rstrip("\r")  # neither a marker nor a line's end is cut in two
            self._paste = self._paste[len(piece) :]
            yield _pasted(piece)
        return ""

    def _held(self) -> str:
        """What stands behind an end marker, if it belongs to the paste after all."""
        assert self._behind is not None
        if END in self._behind or len(self._behind) > LONGEST:
            data, self._behind = self._behind, None
            self._begin()
            return data
        return ""

    def _over(self) -> Iterable[Message]:
        """The paste, or the moment behind it, is over."""
        if self._paste is not None:
            content, self._paste, self._was_cut = self._paste, None, True
            if content:
                yield _pasted(content)
        elif self._behind is not None:
            held, self._behind = self._behind, None
            yield from self._take(held)


def _pasted(content: str) -> events.Paste:
    """The text as it was copied: terminals send its line ends as enter does, and Windows adds zeros."""
    text = content.replace(START, "").replace(END, "").replace("\0", "")
    return events.Paste(text.replace("\r\n", "\n").replace("\r", "\n"))


@contextmanager
def pastes_kept_whole() -> Iterator[None]:
    """Let Textual's drivers parse with `PasteSafeParser`, whatever bytes come; they have no setting for it."""
    ours: dict[str, Any] = {"XTermParser": PasteSafeParser, "getincrementaldecoder": forgiving_decoder}
    drivers = [sys.modules[name] for name in _DRIVERS if name in sys.modules]
    kept = [(driver, name, getattr(driver, name)) for driver in drivers for name in ours if hasattr(driver, name)]
    try:
        for driver, name, _ in kept:
            setattr(driver, name, ours[name])
        yield
    finally:
        for driver, name, theirs in kept:
            setattr(driver, name, theirs)
