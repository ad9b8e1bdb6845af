"""The engine of a tab: the models are in another process, which others ask too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import count
from multiprocessing.connection import Connection
from typing import Any

from specdec_tui.backends.pair import Health, PairInfo, Progress, ReportProgress
from specdec_tui.decoding.records import Checked, Event, Finished, Step
from specdec_tui.serving.messages import (
    Asked,
    Cancel,
    Done,
    Failed,
    Load,
    LoadedPair,
    LookAfter,
    NewChat,
    PlayWhatIfs,
    Prepare,
    Run,
    Told,
    Welcome,
    Wish,
)
from specdec_tui.session import Waiting
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.what_ifs import WhatIf

_LOOK_SECONDS = 0.05
_GONE = "the server has gone: what this tab shows stays, load the page again for a new one"


class ServerGone(Exception):
    """Nobody is at the other end."""

    def __init__(self) -> None:
        super().__init__(_GONE)


class SharedEngine:
    """Satisfies `session.Engine` by asking over a connection. What the engine raises there is raised here."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._numbers = count(1)
        self._environment: Mapping[str, Any] = {}

    def welcome(self) -> Welcome:
        """What the tab begins with. To be asked for first, and once."""
        welcome = self._receive()
        assert isinstance(welcome, Welcome)
        return welcome

    def environment(self) -> Mapping[str, Any]:
        """The machine and versions that the models run with; empty before a load."""
        return self._environment

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        """The pair that is shared, once it is loaded; LoadError for another."""
        last: list[Progress] = []

        def may_be_abandoned() -> bool:
            if last:
                progress(last[-1])  # it may raise, also while the load stands still
            return False

        info: PairInfo | None = None
        for item in self._answers(Load(choice), may_be_abandoned):
            match item:
                case Progress():
                    last[:] = [item]
                case LoadedPair():
                    info, self._environment = item.info, item.environment
        assert info is not None
        return info

    def prepare(self, settings: Settings, cancelled: Callable[[], bool], progress: ReportProgress) -> None:
        for item in self._answers(Prepare(settings), cancelled):
            if isinstance(item, Progress):
                progress(item)

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event | Waiting]:
        return self._events(Run(prompt, settings, again, aside), cancelled)

    def what_ifs(self, requests: Sequence[WhatIf], cancelled: Callable[[], bool]) -> Iterator[Event | Waiting]:
        return self._events(PlayWhatIfs(tuple(requests)), cancelled)

    def new_chat(self) -> None:
        for _ in self._answers(NewChat(), lambda: False):
            pass

    def health(self, cancelled: Callable[[], bool]) -> Health | None:
        found = [item for item in self._answers(LookAfter(), cancelled) if isinstance(item, Health)]
        return found[-1] if found else None

    def _events(self, wish: Wish, cancelled: Callable[[], bool]) -> Iterator[Event | Waiting]:
        for item in self._answers(wish, cancelled):
            if isinstance(item, Step | Checked | Finished | Waiting):
                yield item

    def _answers(
        self, wish: Wish, cancelled: Callable[[], bool]
    ) -> Iterator[Progress | LoadedPair | Health | Waiting | Event]:
        """All that is told of a wish. Whoever stops listening, or says so, has it cancelled."""
        number = next(self._numbers)
        self._send(Asked(number, wish))
        is_cancelled = is_over = False
        try:
            while True:
                if not is_cancelled and cancelled():
                    is_cancelled = True
                    self._send(Cancel(number))
                if not self._is_there_more():
                    continue
                answer = self._receive()
                if answer.number != number:  # of a wish that nobody listens to any more
                    continue
                match answer:
                    case Told(item=item):
                        yield item
                    case Done():
                        is_over = True
                        return
                    case Failed(error=error):
                        is_over = True
                        raise error
        except ServerGone:
            is_over = True
            raise
        finally:
            if not is_over and not is_cancelled:
                self._send(Cancel(number))

    def _is_there_more(self) -> bool:
        try:
            return self._connection.poll(_LOOK_SECONDS)
        except (OSError, EOFError):
            raise ServerGone from None

    def _receive(self) -> Any:
        try:
            return self._connection.recv()
        except (OSError, EOFError):
            raise ServerGone from None

    def _send(self, message: Asked | Cancel) -> None:
        try:
            self._connection.send(message)
        except OSError:
            raise ServerGone from None
