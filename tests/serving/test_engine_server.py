"""Models loaded once, and at work for one tab at a time."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from scripted_engine import ScriptedEngine, info
from scripted_server import PATIENCE_SECONDS, SETTINGS, ScriptedServer, Tab, open_tab, until

from specdec_tui.backends.pair import Health, LoadAbandoned, LoadError, Progress, PromptError
from specdec_tui.decoding.records import EndReason, Finished, Origin, RunEnded, Step
from specdec_tui.serving import engine_server
from specdec_tui.serving.messages import Asked, EngineFailed, Run
from specdec_tui.serving.shared_engine import ServerGone
from specdec_tui.settings import ModelChoice
from specdec_tui.what_ifs import WhatIf

Start = Callable[..., ScriptedServer]


@pytest.fixture
def start() -> Iterator[Start]:
    made: list[ScriptedServer] = []

    def begin(**given: object) -> ScriptedServer:
        made.append(ScriptedServer(**given))  # type: ignore[arg-type]
        made[-1].start()
        return made[-1]

    yield begin
    for server in made:
        server.close()


def whole_run(prompt: str = "why") -> list[object]:
    return list(ScriptedEngine().run(prompt, SETTINGS, lambda: False))


def endings(tab: Tab) -> list[EndReason]:
    return [e.record.reason for e in tab.own if isinstance(e, Step) and isinstance(e.record, RunEnded)]


def test_a_run_comes_to_its_tab_event_by_event_as_the_engine_made_it(start: Start) -> None:
    server = start()
    tab = open_tab(server)
    tab.begin().join(PATIENCE_SECONDS)
    assert tab.events == whole_run() and not tab.errors
    assert tab.script.runs == [("why", SETTINGS)]


def test_models_are_loaded_once_and_each_tab_has_an_engine_of_its_own(start: Start) -> None:
    server = start()
    first, second = open_tab(server), open_tab(server)
    assert first.load() == second.load() == info()
    assert len(server.models.loads) == 1 and len(set(map(id, server.engines))) == len(server.engines) >= 2
    first.engine.new_chat()
    assert sum(engine.chats for engine in server.engines) == 1
    assert first.engine.environment() == {"threads": 3}


def test_tabs_run_first_come_first_served_and_hear_how_many_come_before(start: Start) -> None:
    server = start(gated=True)
    tabs = [open_tab(server) for _ in range(3)]
    threads = []
    for place, tab in enumerate(tabs):
        threads.append(tab.begin())
        until(lambda tab=tab, place=place: tab.own if place == 0 else tab.waits_for == [place])  # type: ignore[misc]
    for number, tab in enumerate(tabs):
        assert all(not other.own for other in tabs[number + 1 :])
        tab.script.step(100)
        threads[number].join(PATIENCE_SECONDS)
        assert tab.own == whole_run()
    assert [tab.waits_for for tab in tabs] == [[], [1], [2, 1]]


def test_a_tab_can_stop_waiting_and_the_others_move_up(start: Start) -> None:
    server = start(gated=True)
    first, second, third = (open_tab(server) for _ in range(3))
    running = first.begin()
    until(lambda: first.own)
    waiting = second.begin()
    until(lambda: second.waits_for == [1])
    third.begin()
    until(lambda: third.waits_for == [2])
    second.stop.set()
    waiting.join(PATIENCE_SECONDS)
    assert endings(second) == [EndReason.CANCELLED] * 2 and second.own[-1] == Finished(cancelled=True)
    assert "other tabs" in second.own[1].record.message  # type: ignore[union-attr]
    until(lambda: third.waits_for == [2, 1])
    assert running.is_alive()


def test_what_ifs_that_stop_waiting_end_without_an_event_of_theirs(start: Start) -> None:
    server = start(gated=True)
    first, second = open_tab(server), open_tab(server)
    first.begin()
    until(lambda: first.own)
    request = WhatIf("target~1", Origin("target", 0, None, ()), SETTINGS, "why", 12)
    waiting = second.do(lambda: second.engine.what_ifs([request], second.stop.is_set))
    until(lambda: second.waits_for == [1])
    second.stop.set()
    waiting.join(PATIENCE_SECONDS)
    assert second.own == [Finished(cancelled=True)] and not second.errors


def test_a_run_at_work_can_be_stopped(start: Start) -> None:
    tab = open_tab(start(gated=True))
    running = tab.begin()
    until(lambda: tab.own)
    tab.stop.set()
    running.join(PATIENCE_SECONDS)
    assert endings(tab) == [EndReason.CANCELLED] and tab.own[-1] == Finished(cancelled=True)


def test_a_run_that_nobody_listens_to_any_more_ends(start: Start) -> None:
    server = start(gated=True)
    first, second = open_tab(server), open_tab(server)
    events = first.engine.run("why", SETTINGS, lambda: False)
    next(events)
    second.begin()
    until(lambda: second.waits_for == [1])
    events.close()  # type: ignore[attr-defined]
    until(lambda: second.own)
    assert first.load() == info()  # what was told of it meanwhile is passed over


def test_a_tab_that_is_gone_ends_its_run_and_the_next_one_begins(start: Start) -> None:
    server = start(gated=True)
    first, second = open_tab(server), open_tab(server)
    first.begin()
    until(lambda: first.own)
    second.begin()
    until(lambda: second.waits_for == [1])
    assert len(server._seats) == 2 and not second.own
    shut(first)
    until(lambda: second.own)
    until(lambda: len(server._seats) == 1)


def test_a_tab_that_is_gone_leaves_the_line(start: Start) -> None:
    server = start(gated=True)
    first, second, third = (open_tab(server) for _ in range(3))
    first.begin()
    until(lambda: first.own)
    for tab, place in ((second, 1), (third, 2)):
        tab.begin()
        until(lambda tab=tab, place=place: tab.waits_for == [place])  # type: ignore[misc]
    shut(second)
    until(lambda: third.waits_for == [2, 1])


def shut(tab: Tab) -> None:
    """As by the end of its process: what reads in this one wakes too."""
    with socket.socket(fileno=os.dup(tab.connection.fileno())) as end:
        end.shutdown(socket.SHUT_RDWR)


def test_other_models_are_refused_in_one_line_and_the_shared_ones_stay(start: Start) -> None:
    tab = open_tab(start())
    with pytest.raises(LoadError, match="the same for all tabs here: start 'specdec-tui serve' with others"):
        tab.engine.load(ModelChoice(target="other"), lambda step: None)
    tab.begin().join(PATIENCE_SECONDS)
    assert tab.events == whole_run()


def test_all_tabs_hear_how_far_the_load_is_also_who_comes_late(start: Start) -> None:
    models = ScriptedEngine()
    models.load_gate.clear()
    server = start(models=models)
    told: list[list[Progress]] = [[], []]
    loaded: list[object] = []
    for place in range(2):
        tab = open_tab(server, loaded=False)

        def load(tab: Tab = tab, place: int = place) -> None:
            loaded.append(tab.engine.load(ModelChoice(), told[place].append))

        threading.Thread(target=load, daemon=True).start()
        until(lambda place=place: Progress("reading the target", 0.45) in told[place])  # type: ignore[misc]
    models.load_gate.set()
    until(lambda: loaded == [info(), info()])
    assert len(models.loads) == 1


def test_a_tab_can_abandon_the_load_that_goes_on_for_the_others(start: Start) -> None:
    models = ScriptedEngine()
    models.load_gate.clear()
    server = start(models=models)
    tab = open_tab(server, loaded=False)

    def abandon(step: Progress) -> None:
        raise LoadAbandoned

    with pytest.raises(LoadAbandoned):
        tab.engine.load(ModelChoice(), abandon)
    models.load_gate.set()
    assert tab.load() == info()


def test_why_there_are_no_models_is_told_to_every_tab_and_to_the_server(start: Start) -> None:
    server = start(models=ScriptedEngine(load_error=LoadError("there is no such model")))
    for _ in range(2):
        with pytest.raises(LoadError, match="there is no such model"):
            open_tab(server)
    until(lambda: server.errors == ["there is no such model"])


@pytest.mark.parametrize(
    ("fault", "raised", "words"),
    [
        (PromptError("no such role"), PromptError, "no such role"),
        (ValueError("odd"), EngineFailed, "ValueError: odd"),
    ],
)
def test_what_the_engine_raises_is_raised_in_the_tab_and_the_next_run_is_well(
    start: Start, fault: Exception, raised: type[Exception], words: str
) -> None:
    server = start()
    tab = open_tab(server)
    tab.script.run_error = fault
    tab.begin().join(PATIENCE_SECONDS)
    assert [type(error) for error in tab.errors] == [raised] and str(tab.errors[0]) == words
    tab.script.run_error = None
    tab.begin().join(PATIENCE_SECONDS)
    assert tab.events == whole_run()


def test_making_ahead_gives_way_to_a_run_of_another_tab(start: Start) -> None:
    server = start()
    first, second = open_tab(server), open_tab(server)
    first.script.captures = 2
    told: list[Progress] = []
    ahead = threading.Thread(target=lambda: first.engine.prepare(SETTINGS, lambda: False, told.append), daemon=True)
    ahead.start()
    until(lambda: told)
    thread = second.begin()
    until(lambda: server.turns.must_give_way)
    first.script.capture()  # the one at work is finished, the other is not begun
    thread.join(PATIENCE_SECONDS)
    ahead.join(PATIENCE_SECONDS)
    assert second.events == whole_run() and len(told) == 1


def test_a_server_that_is_gone_is_told_in_one_line_in_a_run_and_before_one(start: Start) -> None:
    server = start(gated=True)
    tab = open_tab(server)
    running = tab.begin()
    until(lambda: tab.own)
    server.close()
    running.join(PATIENCE_SECONDS)
    with pytest.raises(ServerGone):
        list(tab.engine.run("why", SETTINGS, lambda: False))
    assert [str(error) for error in tab.errors] == [str(ServerGone())] and "\n" not in str(ServerGone())


def test_a_tab_that_does_not_read_holds_nobody_up_and_is_let_go(start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_server, "MOST_UNREAD", 500)
    server = start()
    deaf, other = open_tab(server), open_tab(server)
    long = replace(SETTINGS, max_new_tokens=20_000)
    deaf.connection.send(Asked(99, Run("why", long, again=False, aside=False)))
    until(lambda: len(server._seats) == 1)
    other.begin().join(PATIENCE_SECONDS)
    assert other.own == whole_run()
    with pytest.raises(ServerGone):
        deaf.load()


def test_a_tab_hears_how_the_targets_server_is(start: Start) -> None:
    server = start()
    tab = open_tab(server)
    tab.load()
    assert tab.engine.health(lambda: False) is None
    for engine in server.engines:
        engine.server = Health(0.5)
    assert tab.engine.health(lambda: False) == Health(0.5)
