"""Models for several tabs: loaded once, and at work for one of them at a time.

One thread loads and decodes. Each tab has an engine of its own over the same models, so a conversation, an n-gram
store and what-ifs of its own. What happens is pickled by the thread it happens in, between two rounds when no clock
runs, and sent by another: a tab that does not listen holds nobody up, and has to leave.
"""

from __future__ import annotations

import os
import pickle
import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from queue import SimpleQueue
from threading import Event as Flag
from threading import Lock, Thread
from typing import Any

from specdec_tui.backends.pair import Health, LoadError, PairInfo, Progress, PromptError, ReportProgress
from specdec_tui.decoding.records import Event, Finished
from specdec_tui.serving.messages import (
    Asked,
    Cancel,
    Done,
    EngineFailed,
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
)
from specdec_tui.serving.turns import Turn, Turns
from specdec_tui.session import Engine, Waiting, never_begun
from specdec_tui.several_drafters import drafters_in, running
from specdec_tui.tui.app.engine_thread import one_line

MOST_UNREAD = 20_000
"""Messages that a tab may leave unread: those of some seconds of a fast run. Whoever leaves more has stopped."""

_OTHERS = "the models are the same for all tabs here: start 'specdec-tui serve' with others."
_WAITED = "stopped while other tabs' runs were at work"


class EngineServer:
    """`load` brings the models, once; `engine_of` makes a tab's engine over them; `environment` describes the machine.

    `load_failed` hears in one line why there are no models, in the thread that loads.
    """

    def __init__(
        self,
        welcome: Welcome,
        load: Callable[[ReportProgress], PairInfo],
        engine_of: Callable[[], Engine],
        environment: Callable[[], Mapping[str, Any]] = dict,
        load_failed: Callable[[str], object] = lambda error: None,
    ) -> None:
        self.welcome = welcome
        self.turns = Turns()
        self.load = SharedLoad()
        self.engine_of = engine_of
        self._bring = load
        self._environment = environment
        self._load_failed = load_failed
        self._seats: set[Seat] = set()
        self._lock = Lock()

    def start(self) -> None:
        """Begin to load, and to listen to tabs."""
        # A daemon: a load inside a library cannot be interrupted.
        Thread(target=self._work, name="specdec-engine", daemon=True).start()

    def open(self) -> tuple[Seat, socket.socket]:
        """A place for a tab, and the end of the connection that is to be handed to its process."""
        ours, theirs = socket.socketpair()
        seat = Seat(self, ours)
        with self._lock:
            self._seats.add(seat)
        seat.start()
        return seat, theirs

    def left(self, seat: Seat) -> None:
        with self._lock:
            self._seats.discard(seat)

    def close(self) -> None:
        """End what is at work, and let all tabs go. Does not wait."""
        self.turns.close()
        with self._lock:
            seats = list(self._seats)
        for seat in seats:
            seat.drop()

    def _work(self) -> None:
        try:
            info = self._bring(self.load.progress)
            self.load.ended(LoadedPair(info, dict(self._environment())))
        except BaseException as fault:
            error = fault if isinstance(fault, LoadError) else EngineFailed(one_line(fault))
            self.load.ended(error)
            self._load_failed(str(error))
            return
        self.turns.work()


class SharedLoad:
    """The one load, and the tabs that want to hear of it."""

    def __init__(self) -> None:
        self._listening: list[tuple[Seat, int]] = []
        self._last = Progress("Starting")
        self._outcome: LoadedPair | Exception | None = None
        self._lock = Lock()

    def listen(self, seat: Seat, number: int) -> None:
        """A tab hears how far the load is, and what came of it."""
        with self._lock:
            if self._outcome is None:
                self._listening.append((seat, number))
                seat.tell(Told(number, self._last))
            else:
                _tell_outcome(seat, number, self._outcome)

    def forget(self, seat: Seat, number: int) -> bool:
        """False where there is nothing to forget."""
        with self._lock, suppress(ValueError):
            self._listening.remove((seat, number))
            return True
        return False

    def progress(self, step: Progress) -> None:
        with self._lock:
            self._last = step
            for seat, number in self._listening:
                seat.tell(Told(number, step))

    def ended(self, outcome: LoadedPair | Exception) -> None:
        with self._lock:
            self._outcome = outcome
            for seat, number in self._listening:
                _tell_outcome(seat, number, outcome)
            self._listening.clear()

    @property
    def drafters(self) -> int:
        """How many are loaded."""
        return drafters_in(self._outcome.info if isinstance(self._outcome, LoadedPair) else None)


def _tell_outcome(seat: Seat, number: int, outcome: LoadedPair | Exception) -> None:
    if isinstance(outcome, LoadedPair):
        seat.tell(Told(number, outcome))
        seat.tell(Done(number))
    else:
        seat.tell(Failed(number, outcome))


@dataclass(eq=False, slots=True)
class _Job:
    number: int
    wish: Prepare | LookAfter | Run | PlayWhatIfs
    turn: Turn
    cancelled: Flag = field(default_factory=Flag)


class Seat:
    """A tab at the server: what it asks for is put in line, what comes of it is sent."""

    def __init__(self, server: EngineServer, ours: socket.socket) -> None:
        self._server = server
        self._socket = ours
        self._connection = Connection(os.dup(ours.fileno()))
        self._engine = server.engine_of()
        self._outbox: SimpleQueue[bytes | None] = SimpleQueue()
        self._jobs: dict[int, _Job] = {}
        self._lock = Lock()
        self._gone = Flag()
        self._reader = Thread(target=self._read, name="specdec-seat", daemon=True)
        self._writer = Thread(target=self._write, name="specdec-seat", daemon=True)

    def start(self) -> None:
        self.tell(self._server.welcome)
        self._reader.start()
        self._writer.start()

    def tell(self, message: Welcome | Told | Done | Failed) -> None:
        """Send, behind all that was told before. Never waits: a tab that leaves too much unread is let go."""
        if self._outbox.qsize() >= MOST_UNREAD:
            self.drop()
        if not self._gone.is_set():
            self._outbox.put(pickle.dumps(message, pickle.HIGHEST_PROTOCOL))

    def stop_all(self) -> None:
        """End what is at work for the tab, or waits."""
        with self._lock:
            jobs = list(self._jobs.values())
        for job in jobs:
            self._cancel(job)

    def drop(self) -> None:
        """Let the tab go."""
        self._gone.set()
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # wakes both threads

    def _read(self) -> None:
        with suppress(EOFError, OSError):
            while True:
                self._take(self._connection.recv())
        self.drop()
        self.stop_all()
        self._server.left(self)
        self._outbox.put(None)
        self._writer.join()
        self._connection.close()
        self._socket.close()

    def _write(self) -> None:
        with suppress(OSError):
            while (message := self._outbox.get()) is not None:
                self._connection.send_bytes(message)
        self.drop()

    def _take(self, message: Asked | Cancel) -> None:
        match message:
            case Asked(number=number, wish=Load(choice=choice)):
                if choice == self._server.welcome.choice:
                    self._engine = self._server.engine_of()
                    self._server.load.listen(self, number)
                else:
                    self.tell(Failed(number, LoadError(_OTHERS)))
            case Asked(number=number, wish=NewChat()):
                self._engine.new_chat()
                self.tell(Done(number))
            case Asked(number=number, wish=Prepare() | LookAfter() | Run() | PlayWhatIfs() as wish):
                self._line_up(number, wish)
            case Cancel(number=number):
                with self._lock:
                    job = self._jobs.get(number)
                if job is not None:
                    self._cancel(job)
                elif self._server.load.forget(self, number):
                    self.tell(Done(number))

    def _line_up(self, number: int, wish: Prepare | LookAfter | Run | PlayWhatIfs) -> None:
        def placed(before: int) -> None:
            if not isinstance(wish, Prepare | LookAfter):
                self.tell(Told(number, Waiting(before)))

        turn = Turn(lambda: self._do(job), placed, gives_way=isinstance(wish, Prepare | LookAfter))
        job = _Job(number, wish, turn)
        with self._lock:
            self._jobs[number] = job
        self._server.turns.take(turn)

    def _do(self, job: _Job) -> None:
        try:
            for item in self._play(job):
                self.tell(Told(job.number, item))
            self._end(job, Done(job.number))
        except (LoadError, PromptError) as error:
            self._end(job, Failed(job.number, error))
        except BaseException as fault:
            self._end(job, Failed(job.number, EngineFailed(one_line(fault))))

    def _play(self, job: _Job) -> Iterator[Event | Health | Waiting]:
        cancelled = job.cancelled.is_set
        match job.wish:
            case Prepare(settings=settings):
                turns = self._server.turns
                self._engine.prepare(
                    settings,
                    lambda: cancelled() or turns.must_give_way,
                    lambda step: self.tell(Told(job.number, step)),
                )
            case LookAfter():
                health = self._engine.health(lambda: cancelled() or self._server.turns.must_give_way)
                if health is not None:
                    yield health
            case Run(prompt=prompt, settings=settings, again=again, aside=aside):
                yield from self._engine.run(prompt, settings, cancelled, again=again, aside=aside)
            case PlayWhatIfs(requests=requests):
                yield from self._engine.what_ifs(requests, cancelled)

    def _cancel(self, job: _Job) -> None:
        job.cancelled.set()
        if not self._server.turns.withdraw(job.turn):
            return
        if isinstance(job.wish, Run):
            settings = job.wish.settings
            for event in never_begun(running(settings.strategies, self._server.load.drafters), settings, _WAITED):
                self.tell(Told(job.number, event))
        elif isinstance(job.wish, PlayWhatIfs):
            self.tell(Told(job.number, Finished(cancelled=True)))
        self._end(job, Done(job.number))

    def _end(self, job: _Job, last: Done | Failed) -> None:
        with self._lock:
            self._jobs.pop(job.number, None)
        self.tell(last)
