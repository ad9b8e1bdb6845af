"""The one thread that calls the engine: loads and runs, one at a time, never on the screen's thread.

Everything the engine says becomes a `Report` in a mailbox. The screen is woken by at most one
outstanding message, however fast the engine is, and then takes what has gathered (`drain`), so
decoding never waits for painting and the message queue stays short for keys.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING

from specdec_tui.backends.pair import Health, LoadAbandoned, PairInfo, Progress
from specdec_tui.session import Engine, Waiting

if TYPE_CHECKING:
    from specdec_tui.decoding.records import Event
    from specdec_tui.settings import ModelChoice, Settings
    from specdec_tui.what_ifs import WhatIf


@dataclass(frozen=True, slots=True)
class JobEnded:
    """Always the last report of a job; `error` is one line for a person, empty when all went well."""

    error: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """Something that happened in job number `job`."""

    job: int
    item: Progress | PairInfo | Health | Waiting | Event | JobEnded


@dataclass(slots=True, eq=False)
class _Job:
    number: int
    work: Callable[[_Job], None]
    must: bool = False  # done even when the app is left: it writes
    cancelled: threading.Event = field(default_factory=threading.Event)


class EngineThread:
    """Runs jobs in order. `wake` is called from the engine's thread; it returns False once nobody listens."""

    def __init__(self, engine: Engine, wake: Callable[[], bool]) -> None:
        self._engine = engine
        self._wake = wake
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._reports: deque[Report] = deque()
        self._lock = threading.Lock()
        self._awake = False
        self._closing = threading.Event()
        self._unfinished: list[_Job] = []
        self._at_work: _Job | None = None
        self._undone: list[str] = []
        self._last_number = 0
        # A daemon: a load inside a library cannot be interrupted and must not hold the process.
        self._thread = threading.Thread(target=self._work, name="specdec-engine", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def load(self, choice: ModelChoice) -> int:
        """Queue a load; returns the number its reports will carry. Cancelled, it ends with its next report."""

        def work(job: _Job) -> None:
            def report(step: Progress) -> None:
                if job.cancelled.is_set() or self._closing.is_set():
                    raise LoadAbandoned
                self._report(job.number, step)

            self._report(job.number, self._engine.load(choice, report))

        return self._put(work)

    def prepare(self, settings: Settings) -> int:
        """Queue making ahead what runs with these settings need; it gives way to any job behind it."""

        def work(job: _Job) -> None:
            self._engine.prepare(settings, lambda: not self._jobs.empty(), lambda step: self._report(job.number, step))

        return self._put(work)

    def look_after(self) -> int:
        """Queue a look at the target's server; it gives way to any job behind it."""

        def work(job: _Job) -> None:
            if (health := self._engine.health(lambda: not self._jobs.empty())) is not None:
                self._report(job.number, health)

        return self._put(work)

    def run(
        self,
        prompt: str,
        settings: Settings,
        *,
        again: bool = False,
        aside: bool = False,
        seen: Callable[[Event], object] = lambda event: None,
    ) -> int:
        """Queue a run; returns the number its reports will carry.

        `again`: it replaces the last turn; `aside`: it belongs to no conversation.
        `seen` is called in this thread with every event: between two rounds, when no clock runs.
        """

        def work(job: _Job) -> None:
            def cancelled() -> bool:
                return job.cancelled.is_set() or self._closing.is_set()

            for event in self._engine.run(prompt, settings, cancelled, again=again, aside=aside):
                self._report(job.number, event)
                if not isinstance(event, Waiting):
                    seen(event)
                if self._closing.is_set():
                    break

        return self._put(work)

    def what_ifs(self, requests: Sequence[WhatIf]) -> int:
        """Queue what-ifs of runs; returns the number their reports will carry."""

        def work(job: _Job) -> None:
            def cancelled() -> bool:
                return job.cancelled.is_set() or self._closing.is_set()

            for event in self._engine.what_ifs(requests, cancelled):
                self._report(job.number, event)
                if self._closing.is_set():
                    break

        return self._put(work)

    def new_chat(self) -> int:
        """Queue forgetting the conversation."""
        return self._put(lambda _job: self._engine.new_chat())

    def call(self, work: Callable[[], object]) -> int:
        """Queue something else that must not happen while a run is timed; done even when the app is left."""

        def do(_job: _Job) -> None:
            work()

        return self._put(do, must=True)

    def cancel(self, *numbers: int) -> None:
        """Ask these jobs, or every job put so far, to end: a run between two rounds, a load with its next report."""
        with self._lock:
            for job in self._unfinished:
                if not numbers or job.number in numbers:
                    job.cancelled.set()

    def close(self) -> None:
        """End the run at work and take no further job. Does not wait."""
        self._closing.set()
        self._jobs.put(None)

    def join(self, timeout: float) -> bool:
        """Wait for the thread; False when it is still busy after `timeout` seconds."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
        return not self._thread.is_alive()

    def finish(self, timeout: float) -> list[str]:
        """Once closed: do what `call` has queued, here if the thread does not come to it; returns what failed."""
        if (at_work := self._at_work) is not None and at_work.must:
            self.join(timeout)
        with suppress(Empty):
            while True:
                job = self._jobs.get_nowait()
                if job is not None and job.must:
                    self._do(job)
        return self._undone

    def drain(self) -> list[Report]:
        """Everything reported since the last call. An empty list means: the next report wakes again."""
        with self._lock:
            reports = list(self._reports)
            self._reports.clear()
            self._awake = bool(reports)
        return reports

    def _put(self, work: Callable[[_Job], None], *, must: bool = False) -> int:
        self._last_number += 1
        job = _Job(self._last_number, work, must)
        with self._lock:
            self._unfinished.append(job)
        self._jobs.put(job)
        return job.number

    def _report(self, number: int, item: Progress | PairInfo | Health | Waiting | Event | JobEnded) -> None:
        with self._lock:
            self._reports.append(Report(number, item))
            wake, self._awake = not self._awake, True
        if wake and not self._wake():
            self.close()

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._at_work = job
            if job.must or not self._closing.is_set():
                self._do(job)
            self._at_work = None

    def _do(self, job: _Job) -> None:
        error = ""
        try:
            job.work(job)
        except BaseException as fault:
            error = one_line(fault)
            if job.must and self._closing.is_set():  # nobody reads the reports any more
                self._undone.append(error)
        with self._lock:
            self._unfinished.remove(job)
        self._report(job.number, JobEnded(error))


def one_line(fault: BaseException) -> str:
    """An exception as one line for a person: its message, led by its type unless it is our own."""
    message = " ".join(str(fault).split())
    own = type(fault).__module__.startswith("specdec_tui")
    if own and message:
        return message
    return f"{type(fault).__name__}: {message}" if message else type(fault).__name__
