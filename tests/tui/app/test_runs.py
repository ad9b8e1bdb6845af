"""Loads and runs without an app: one prompt waits, the rest is refused in words."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from scripted_engine import ScriptedEngine
from shell import PATIENCE_SECONDS

from specdec_tui.backends.pair import LoadError, PairInfo, Progress
from specdec_tui.decoding.records import Event, Finished
from specdec_tui.session import Waiting
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.runs import Run, Runs


@dataclass
class Screen:
    """Writes down what it is asked."""

    settings: Settings = field(default_factory=lambda: Settings(max_new_tokens=8))
    said: list[str] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    begun: list[str] = field(default_factory=list)
    turns: list[int] = field(default_factory=list)
    seen: list[Event] = field(default_factory=list)
    ended: list[Run] = field(default_factory=list)
    returned: list[str] = field(default_factory=list)
    pairs: list[PairInfo] = field(default_factory=list)

    def say(self, text: str, severity: str = "information", timeout: float = 5, holds: object = None) -> None:
        self.said.append(text)

    def show_progress(self, progress: Progress | None) -> None: ...

    def pair_loaded(self, pair: PairInfo) -> None:
        self.pairs.append(pair)

    def run_begins(self, run: Run) -> Callable[[Event], object]:
        self.begun.append(run.prompt)
        self.turns.append(run.turn)
        return self.seen.append

    def run_goes_on(self, batch: Sequence[Event]) -> None:
        self.events += batch

    def run_breaks(self, error: str) -> Sequence[Event]:
        return ()

    def run_ended(self, run: Run) -> None:
        self.ended.append(run)

    def chat_is_new(self) -> None:
        self.turns.append(0)

    def give_back(self, prompt: str) -> None:
        self.returned.append(prompt)

    def settle(self) -> None: ...


@pytest.fixture
def screen() -> Screen:
    return Screen()


def make(screen: Screen, engine: ScriptedEngine, prompt: str = "") -> Runs:
    runs = Runs(screen, engine, ModelChoice(), prompt, wake=lambda: True)
    runs.engine.start()
    runs.load(ModelChoice())
    return runs


def until(runs: Runs, condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        runs.take()
        if condition():
            return
        assert time.monotonic() < end, "never happened"
        time.sleep(0.005)


def accept_all(prompt: str) -> None: ...


def test_a_prompt_runs_once_the_models_are_ready_and_its_run_is_handed_over(screen: Screen) -> None:
    runs = make(screen, ScriptedEngine(), "early")
    assert runs.state == "loading" and not screen.begun
    until(runs, lambda: screen.ended)
    (run,) = screen.ended
    assert (run.prompt, run.settings) == ("early", screen.settings)
    assert run.events == screen.events == screen.seen and isinstance(run.events[-1], Finished)
    assert runs.state == "ready" and runs.turns == 1
    runs.engine.close()


def test_one_prompt_waits_and_a_second_one_stays_where_it_is(screen: Screen) -> None:
    engine = ScriptedEngine(gated=True)
    runs = make(screen, engine, "first")
    until(runs, lambda: runs.running)
    taken: list[str] = []
    runs.submit("second", taken.append)
    runs.submit("third", taken.append)
    runs.submit("  ", taken.append)
    assert taken == ["second"] == [runs.waiting]
    assert [word in said for word, said in zip(("after this", "waiting already", "Type"), screen.said, strict=True)]
    runs.stop()
    assert screen.returned == ["second"] and not runs.waiting
    until(runs, lambda: not runs.running)
    assert screen.begun == ["first"]
    runs.engine.close()


def test_a_run_again_replaces_the_last_turn(screen: Screen) -> None:
    engine = ScriptedEngine()
    runs = make(screen, engine, "first")
    until(runs, lambda: len(screen.ended) == 1)
    runs.run_again()
    until(runs, lambda: len(screen.ended) == 2)
    assert engine.repeats == [False, True] and runs.turns == 1
    runs.submit("next", accept_all)
    until(runs, lambda: len(screen.ended) == 3)
    assert runs.turns == 2 and screen.turns == [0, 1, 1, 2]  # a load begins a conversation
    runs.engine.close()


def test_a_prompt_behind_a_new_chat_that_the_engine_has_not_come_to_is_the_first_turn(screen: Screen) -> None:
    engine = ScriptedEngine(gated=True)
    runs = make(screen, engine, "first")
    until(runs, lambda: runs.running)
    runs.new_chat()
    runs.submit("second", accept_all)
    engine.step(1000)
    until(runs, lambda: len(screen.ended) == 2)
    assert engine.chats == 1 and [run.turn for run in screen.ended] == [1, 1] and runs.turns == 1
    runs.engine.close()


def test_other_models_say_that_a_new_chat_begins_where_there_was_one(screen: Screen) -> None:
    engine = ScriptedEngine()
    runs = make(screen, engine)
    until(runs, lambda: runs.state == "ready")
    assert screen.said == []
    runs.submit("first", accept_all)
    until(runs, lambda: len(screen.ended) == 1)
    runs.load(ModelChoice(target="other"))
    until(runs, lambda: len(screen.pairs) == 2)
    assert screen.said == ["Models loaded: a new chat begins"]
    runs.submit("second", accept_all)
    until(runs, lambda: len(screen.ended) == 2)
    engine.pair = replace(engine.pair, chat_template=False)
    runs.load(ModelChoice())
    until(runs, lambda: len(screen.pairs) == 3)
    assert screen.said[1:] == ["Models loaded, without a chat template: the chat ends"]
    runs.submit("third", accept_all)
    until(runs, lambda: len(screen.ended) == 3)
    runs.load(ModelChoice(target="other"))
    until(runs, lambda: len(screen.pairs) == 4)
    assert len(screen.said) == 2, "it was no chat"
    runs.engine.close()


def test_without_models_nothing_runs_and_what_waited_comes_back(screen: Screen) -> None:
    engine = ScriptedEngine(load_error=LoadError("no such model"))
    runs = make(screen, engine, "keep me")
    until(runs, lambda: runs.state == "failed")
    assert screen.returned == ["keep me"] and screen.said == ["no such model"]
    runs.submit("more", accept_all)
    assert "No models are loaded" in screen.said[-1] and not engine.runs
    runs.engine.close()


def test_what_an_ended_run_reports_late_is_not_shown_in_the_next(screen: Screen) -> None:
    runs = make(screen, ScriptedEngine(gated=True), "first")
    until(runs, lambda: runs.running)
    seen = len(screen.events)
    runs.engine._report(99, Finished())
    runs.take()
    assert not any(isinstance(event, Finished) for event in screen.events[seen:]) and runs.running
    runs.engine.close()


def abandoned(runs: Runs, engine: ScriptedEngine) -> str:
    """Stop during a load, then let the load go on to its next report."""
    until(runs, lambda: engine.loads and runs.state == "loading")
    said = runs.stop()
    return said


def test_stop_abandons_a_load_at_once_and_gives_the_waiting_prompt_back(screen: Screen) -> None:
    engine = ScriptedEngine(reports=3)
    engine.load_gate.clear()
    runs = make(screen, engine, "early")
    assert (
        abandoned(runs, engine) == "Load abandoned: no models are loaded, m loads some; the prompt is back in the box"
    )
    assert runs.state == "failed" and screen.returned == ["early"] and not runs.waiting
    engine.load_gate.set()
    until(runs, lambda: not runs._abandoned)
    assert not screen.pairs and not screen.said and runs.pair is None
    runs.engine.close()


def test_the_present_pair_stays_and_answers_when_a_load_is_abandoned(screen: Screen) -> None:
    engine = ScriptedEngine(reports=3)
    runs = make(screen, engine)
    until(runs, lambda: runs.state == "ready")
    pair, chosen = runs.pair, runs.choice
    engine.load_gate.clear()
    runs.load(ModelChoice(target="other"))
    runs.load(ModelChoice(target="third"))
    assert abandoned(runs, engine) == "Load abandoned: scripted-target stays"
    assert runs.state == "ready" and runs.wanted == chosen
    runs.submit("now", accept_all)
    assert runs.running and "as soon as the abandoned load has let go" in screen.said[-1]
    engine.load_gate.set()
    until(runs, lambda: screen.ended)
    assert runs.pair is pair and runs.choice == chosen and len(screen.pairs) == 1
    runs.load(ModelChoice(target="other"))
    until(runs, lambda: len(screen.pairs) == 2)
    assert runs.choice.target == "other"
    runs.engine.close()


def test_a_load_that_was_over_before_it_could_be_abandoned_is_told_as_it_is(screen: Screen) -> None:
    engine = ScriptedEngine()  # asks nobody after its gate
    engine.load_gate.clear()
    runs = make(screen, engine)
    abandoned(runs, engine)
    engine.load_gate.set()
    until(runs, lambda: screen.pairs)
    until(runs, lambda: runs.state == "ready")
    assert runs.pair is engine.pair
    runs.engine.close()


def test_stop_in_a_run_leaves_the_load_behind_it(screen: Screen) -> None:
    engine = ScriptedEngine(gated=True)
    runs = make(screen, engine, "first")
    until(runs, lambda: runs.running)
    runs.load(ModelChoice(target="other"))
    assert runs.stop() == "Stopping"
    until(runs, lambda: len(screen.pairs) == 2)
    assert runs.choice.target == "other"
    runs.engine.close()


class QueuedEngine(ScriptedEngine):
    """Others' runs come first, until `turn` says that it is ours."""

    def __init__(self) -> None:
        super().__init__()
        self.turn = threading.Event()

    def run(self, *given: Any, **named: Any) -> Iterator[Event | Waiting]:  # type: ignore[override]
        yield Waiting(2)
        yield Waiting(1)
        assert self.turn.wait(PATIENCE_SECONDS)
        yield from super().run(*given, **named)


def test_a_run_that_waits_for_others_says_how_many_until_it_begins(screen: Screen) -> None:
    engine = QueuedEngine()
    runs = make(screen, engine)
    until(runs, lambda: runs.state == "ready")
    runs.submit("why", lambda text: None)
    until(runs, lambda: runs.before == 1)
    assert runs.state == "running" and not screen.events and not screen.seen
    engine.turn.set()
    until(runs, lambda: screen.events)
    assert runs.before is None
    until(runs, lambda: runs.state == "ready")
    assert not any(isinstance(event, Waiting) for event in (*screen.seen, *screen.events))
