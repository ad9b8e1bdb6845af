from __future__ import annotations

import threading

from scripted_engine import ScriptedEngine

from specdec_tui.backends.pair import LoadError, PairInfo, Progress
from specdec_tui.decoding.records import EndReason, Finished, RunEnded, Step
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.engine_thread import EngineThread, JobEnded, Report, one_line


class Listener:
    """Counts wake-ups and collects reports until a job has ended."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self.wakes = 0
        self.answer = True
        self.woken = threading.Semaphore(0)
        self.thread = EngineThread(engine, self.wake)
        self.reports: list[Report] = []

    def wake(self) -> bool:
        self.wakes += 1
        self.woken.release()
        return self.answer

    def collect(self, job: int) -> list[object]:
        while not any(report.job == job and isinstance(report.item, JobEnded) for report in self.reports):
            assert self.woken.acquire(timeout=10)
            while batch := self.thread.drain():
                self.reports += batch
        return [report.item for report in self.reports if report.job == job]


def test_a_load_reports_its_progress_the_pair_and_its_end() -> None:
    listener = Listener(ScriptedEngine())
    listener.thread.start()
    items = listener.collect(listener.thread.load(ModelChoice()))
    assert [type(item) for item in items] == [Progress, PairInfo, JobEnded]
    assert items[-1] == JobEnded("")


def test_a_failed_load_ends_with_one_line_and_the_thread_goes_on() -> None:
    engine = ScriptedEngine(load_error=LoadError("no such\nmodel"))
    listener = Listener(engine)
    listener.thread.start()
    assert listener.collect(listener.thread.load(ModelChoice()))[-1] == JobEnded("no such model")
    assert listener.collect(listener.thread.load(ModelChoice()))[-1] == JobEnded("")


def test_even_a_system_exit_inside_the_engine_becomes_the_end_of_the_job() -> None:
    listener = Listener(ScriptedEngine(run_error=SystemExit("library gave up")))  # type: ignore[arg-type]
    listener.thread.start()
    assert listener.collect(listener.thread.run("hi", Settings()))[-1] == JobEnded("SystemExit: library gave up")


def test_however_many_events_there_are_only_one_wake_up_is_outstanding() -> None:
    listener = Listener(ScriptedEngine())
    job = listener.thread.run("hi", Settings(max_new_tokens=500))
    listener.thread.start()
    listener.thread.close()
    assert listener.thread.join(10)
    assert listener.wakes == 1
    assert len(listener.collect(job)) > 500 or listener.reports


def test_every_event_of_a_run_arrives_in_order_with_the_number_of_its_job() -> None:
    listener = Listener(ScriptedEngine())
    listener.thread.start()
    job = listener.thread.run("hi", Settings(max_new_tokens=20))
    items = listener.collect(job)
    alone = [*ScriptedEngine().run("hi", Settings(max_new_tokens=20), lambda: False)]
    assert items == [*alone, JobEnded("")]


def test_a_cancelled_run_ends_within_a_round() -> None:
    engine = ScriptedEngine(gated=True)
    listener = Listener(engine)
    listener.thread.start()
    job = listener.thread.run("hi", Settings())
    engine.step(3)
    assert listener.woken.acquire(timeout=10)
    while batch := listener.thread.drain():
        listener.reports += batch
    listener.thread.cancel()
    items = listener.collect(job)
    ends = [item.record for item in items if isinstance(item, Step) and isinstance(item.record, RunEnded)]
    assert ends == [RunEnded(EndReason.CANCELLED)]
    assert items[-2:] == [Finished(cancelled=True), JobEnded("")]


def test_jobs_are_done_one_at_a_time_in_their_order() -> None:
    engine = ScriptedEngine()
    listener = Listener(engine)
    jobs = [listener.thread.load(ModelChoice()), listener.thread.run("a", Settings()), listener.thread.new_chat()]
    listener.thread.start()
    listener.collect(jobs[-1])
    order = [report.job for report in listener.reports]
    assert order == sorted(order)
    assert engine.chats == 1


def test_what_is_made_ahead_reports_its_progress_and_gives_way_to_any_job_behind_it() -> None:
    engine = ScriptedEngine(captures=3)
    listener = Listener(engine)
    ahead = listener.thread.prepare(Settings())
    listener.thread.start()
    while not engine.prepared:
        assert listener.woken.acquire(timeout=10)
    job = listener.thread.run("hi", Settings(max_new_tokens=20))
    engine.capture(3)
    listener.collect(job)
    assert listener.collect(ahead) == [Progress("Capturing rounds", 0.0), JobEnded("")]
    assert engine.captures == 3, "it must not have ended by itself"


def test_closing_ends_what_is_made_ahead() -> None:
    engine = ScriptedEngine(captures=3)
    listener = Listener(engine)
    listener.thread.prepare(Settings())
    listener.thread.start()
    assert listener.woken.acquire(timeout=10)
    listener.thread.close()
    engine.capture()
    assert listener.thread.join(10)


def test_the_thread_stops_when_nobody_listens_any_more() -> None:
    engine = ScriptedEngine(gated=True)
    listener = Listener(engine)
    listener.answer = False
    listener.thread.run("hi", Settings())
    listener.thread.start()
    assert listener.thread.join(10)


def test_our_own_errors_are_shown_without_their_type_and_others_with_it() -> None:
    assert one_line(LoadError("no such model")) == "no such model"
    assert one_line(ValueError("bad\n  shape")) == "ValueError: bad shape"
    assert one_line(KeyError()) == "KeyError"


def test_a_run_cancelled_before_its_turn_ends_at_its_start() -> None:
    engine = ScriptedEngine(gated=True)
    listener = Listener(engine)
    job = listener.thread.run("hi", Settings())
    listener.thread.cancel()
    listener.thread.start()
    items = listener.collect(job)
    assert items[-2:] == [Finished(cancelled=True), JobEnded("")]
