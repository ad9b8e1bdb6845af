"""The plain text of a target on a server: it writes on by itself, and what comes is timed as it comes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import mean
from time import perf_counter

from specdec_tui.backends.answering import AT_ONCE, AnsweringModel, Calls, Drawing, Told
from specdec_tui.backends.remote.client import ServerError

MOST_BREAKS = 3  # of a run, behind which its stream is opened again
PATIENCE = 30.0  # seconds in which nothing came: a person has waited enough


@dataclass(frozen=True, slots=True)
class Came:
    """A token of the stream. `seconds`: since the one before it. `opened`: a stream was opened for it."""

    told: Told
    seconds: float
    opened: bool


@dataclass
class PlainText:
    """Streams, one behind the other, each of `calls.stretch` tokens at most.

    A stream that goes on costs a step a token. One that had to be opened again costs its way and its prefill, too: that
    is what alternating strategies cost, or a connection that broke, not decoding, so its first token is taken to have
    had the mean time of those before.
    """

    server: AnsweringModel
    drawing: Drawing
    alternatives: int
    cancelled: Callable[[], bool]
    calls: Calls = AT_ONCE
    notices: list[str] = field(default_factory=list)
    _events: Iterator[tuple[float, tuple[Told, ...]]] | None = None
    _came: deque[Came] = field(default_factory=deque)
    _intervals: list[float] = field(default_factory=list)
    _at: float = 0.0
    _left: int = 0
    _breaks: int = 0

    def next(self, text: Sequence[int], most: int) -> Came:
        """The next token behind `text`, of `most` that are to come. `Stopped`, ServerError as the server's calls."""
        while not self._came:
            begin = perf_counter()
            try:
                self._take(text, most)
            except ServerError as error:
                self.close()
                self._breaks += 1
                has_stalled = perf_counter() - begin > PATIENCE
                if error.kind != "gone" or self._breaks > MOST_BREAKS or has_stalled:
                    raise
                self.notices.append(f"{error.brief}: its stream is opened again behind what came")
                self.server.begin(self.calls.added_latency, self.cancelled)
        self._left -= 1
        found = self._came.popleft()
        if self._left <= 0:
            self.close()
        return found

    def close(self) -> None:
        """The server need not write on."""
        if (close := getattr(self._events, "close", None)) is not None:
            close()
        self._events = None

    def _take(self, text: Sequence[int], most: int) -> None:
        opened = self._events is None
        if self._events is None:
            self._at = perf_counter()
            self._left = min(most, self.calls.stretch or most)
            self._events = self.server.stream(text, self.drawing, self.alternatives, self._left, self.cancelled)
        try:
            at, told = next(self._events)
        except StopIteration:
            raise ServerError("its stream ended too early", "gone") from None
        if opened:
            self.server.check(self.cancelled)
        share = (at - self._at) / len(told)  # tokens that came at once had their parts of the time
        if not opened:
            self._intervals.append(share)
        elif self._intervals:
            share = mean(self._intervals)
        self._came += [Came(one, share, opened and not index) for index, one in enumerate(told)]
        self._at = at
