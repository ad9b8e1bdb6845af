"""Every strategy over a server that fails: each ends, or goes on, by itself, and checks do not hang."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

import pytest
from faulty_server import Answer, FaultyServer, Wire, dropped, instead, refusal, silence, until
from remote_pair import OTHER, PROMPT, RemotePair, connected, served

from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Notice,
    RunEnded,
    Step,
)
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

SETTINGS = Settings(
    strategies=("target", "speculative", "lookup"), max_new_tokens=20, gamma=3, chat=False, schedule="sequential"
)
ASKED = "".join(map(str, PROMPT))
SOON = 10.0  # seconds, on a busy machine


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(served()) as server:
        yield server


@pytest.fixture
def engine(server: FaultyServer, at_once: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalEngine]:
    model = connected(server)
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: RemotePair(model))
    engine = LocalEngine()
    engine.load(ModelChoice(), lambda progress: None)
    yield engine
    model.completions.client.close()


def never() -> bool:
    return False


def asked(server: FaultyServer) -> int:
    return sum(call.path.endswith("/completions") for call in server.calls)


def events_of(engine: LocalEngine, settings: Settings = SETTINGS, stop: Callable[[], bool] = never) -> list[Event]:
    return list(engine.run(ASKED, settings, stop))


def ends(events: Sequence[Event]) -> dict[str, RunEnded]:
    return {e.strategy: e.record for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)}


def answers(events: Sequence[Event]) -> dict[str, str]:
    return {e.strategy: e.answer for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)}


def checks(events: Sequence[Event]) -> dict[str, Lossless]:
    return {event.strategy: event.lossless for event in events if isinstance(event, Checked)}


def notices(events: Sequence[Event]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in SETTINGS.strategies}
    for event in events:
        if isinstance(event, Step) and isinstance(event.record, Notice):
            found[event.strategy].append(event.record.message)
    return found


@pytest.fixture
def whole(engine: LocalEngine) -> str:
    events = events_of(engine)
    assert {check.status for check in checks(events).values()} == {LosslessStatus.IDENTICAL}
    (text,) = set(answers(events).values())
    return text


@pytest.mark.parametrize("schedule", ["sequential", "interleaved"])
def test_one_bad_answer_ends_its_own_run_and_the_others_are_whole(
    schedule: str, server: FaultyServer, engine: LocalEngine, whole: str
) -> None:
    settings = replace(SETTINGS, schedule=schedule)
    for call in range(asked(server) * 2):
        server._faults.clear()
        server.fails(instead(b'{"choices": [{'), asked(server) + call, path="/completions")
        events = events_of(engine, settings)
        failed = [name for name, end in ends(events).items() if end.reason is EndReason.ERROR]
        assert len(failed) <= 1 and events[-1] == Finished()
        for name, answer in answers(events).items():
            assert whole.startswith(answer) and (name in failed or answer == whole), (call, name)
        if not failed and not any("could not be checked" in one.detail for one in checks(events).values()):
            return  # the call was none of this run any more, or one that a whole text can do without
    pytest.fail("there was always one more call")


@pytest.mark.parametrize("schedule", ["sequential", "interleaved"])
def test_a_key_that_is_refused_from_some_call_on_ends_every_run_with_its_line(
    schedule: str, server: FaultyServer, engine: LocalEngine, whole: str
) -> None:
    first = asked(server) + 4
    server.fails(refusal(401, "no such key"), *range(first, first + 90), path="/completions")
    events = events_of(engine, replace(SETTINGS, schedule=schedule))
    assert {end.reason for end in ends(events).values()} >= {EndReason.ERROR}
    for name, end in ends(events).items():
        assert whole.startswith(answers(events)[name])
        assert end.reason is EndReason.LENGTH or "HTTP 401" in end.message
    assert set(checks(events)) == set(SETTINGS.strategies) and events[-1] == Finished()
    server._faults.clear()
    assert set(answers(events_of(engine)).values()) == {whole}


def test_a_server_that_is_gone_is_told_by_every_run_within_its_tries(
    server: FaultyServer, engine: LocalEngine, whole: str
) -> None:
    server.goes_down()
    began = time.monotonic()
    events = events_of(engine)
    assert time.monotonic() - began < SOON
    for end in ends(events).values():
        assert end.reason is EndReason.ERROR
        assert end.message.startswith("no server answers at http://127.0.0.1") and "at try 4 too" in end.message
    assert all(one.status is LosslessStatus.NOT_APPLICABLE for one in checks(events).values())
    server.comes_up()
    assert set(answers(events_of(engine)).values()) == {whole}


def test_what_happened_to_a_call_is_told_in_its_own_run(server: FaultyServer, engine: LocalEngine, whole: str) -> None:
    server.fails(dropped, asked(server) + 1, path="/completions")
    told = notices(events_of(engine))
    assert len(told["target"]) == 1 and "asked again" in told["target"][0]
    assert told["speculative"] == told["lookup"] == []
    server.fails(refusal(500), *range(asked(server), asked(server) + 4), path="/completions")
    told = notices(events_of(engine))
    assert len(told["target"]) == 3 and told["speculative"] == told["lookup"] == []


def test_a_check_that_hangs_is_stopped_and_no_text_is_lost(
    server: FaultyServer, engine: LocalEngine, whole: str
) -> None:
    calls = asked(server)
    alone = replace(SETTINGS, strategies=("target",))
    events_of(engine, alone)
    last = asked(server) + (asked(server) - calls) - 1
    server.fails(silence, last, path="/completions")
    since: list[float] = []

    def stop() -> bool:
        if asked(server) > last and not since:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > 0.2

    events = events_of(engine, alone, stop)
    assert time.monotonic() - since[0] < SOON
    assert answers(events) == {"target": whole} and ends(events)["target"].reason is EndReason.LENGTH
    assert checks(events)["target"].detail == "stopped, not checked" and events[-1] == Finished()


def test_what_happened_to_a_check_is_not_told_in_the_next_run(
    server: FaultyServer, engine: LocalEngine, whole: str
) -> None:
    alone = replace(SETTINGS, strategies=("target",))
    calls = asked(server)
    events_of(engine, alone)
    server.fails(dropped, asked(server) + (asked(server) - calls) - 1, path="/completions")
    assert checks(events_of(engine, alone))["target"].status is LosslessStatus.IDENTICAL
    assert notices(events_of(engine, alone))["target"] == []


def test_a_check_that_fails_says_so(server: FaultyServer, engine: LocalEngine, whole: str) -> None:
    alone = replace(SETTINGS, strategies=("target",))
    calls = asked(server)
    events_of(engine, alone)
    last = asked(server) + (asked(server) - calls) - 1
    server.fails(refusal(400, "no room"), last, path="/completions")
    found = checks(events_of(engine, alone))["target"]
    assert found.status is LosslessStatus.NOT_APPLICABLE
    assert found.detail == "could not be checked: the server refuses this (HTTP 400): no room"


def test_a_model_that_was_replaced_meanwhile_is_no_yardstick(
    server: FaultyServer, engine: LocalEngine, whole: str
) -> None:
    def replaced(wire: Wire, answer: Answer) -> None:
        server.model = served(OTHER)
        wire.answer(answer)

    server.fails(replaced, asked(server) + 1, path="/completions")
    events = events_of(engine)
    assert answers(events) == {"target": whole, "speculative": "", "lookup": ""}
    assert all(end.reason is EndReason.ERROR and "another model" in end.message for end in ends(events).values())
    assert all(one.status is LosslessStatus.NOT_APPLICABLE for one in checks(events).values())
    server.model = served()
    server.fails(replaced, asked(server) + 3, path="/completions")
    between = ends(events_of(engine, replace(SETTINGS, strategies=("target", "lookup"), schedule="interleaved")))
    assert all(end.reason is EndReason.ERROR and "another model" in end.message for end in between.values())


def server_threads() -> int:
    return sum(thread.name == "specdec-server" for thread in threading.enumerate())


def test_a_pair_that_is_replaced_leaves_no_connection_open(
    server: FaultyServer, engine: LocalEngine, whole: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert server_threads() == 1
    other = connected(server)
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: RemotePair(other))
    engine.load(ModelChoice(), lambda progress: None)
    assert until(lambda: server_threads() == 1)
    assert set(answers(events_of(engine)).values()) == {whole}
    other.completions.client.close()


def test_a_load_that_fails_behind_the_connection_closes_it(
    server: FaultyServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = connected(server)

    def refuses(*_: object) -> None:
        raise LoadError("its tokenizer is unknown")

    class Server:
        description = object()

        def __init__(self) -> None:
            self.model = model

    monkeypatch.setattr("specdec_tui.backends.loading.connect", lambda *_: Server())
    monkeypatch.setattr("specdec_tui.backends.loading.compatibility.known_tokens", refuses)
    with pytest.raises(LoadError, match="its tokenizer is unknown"):
        load_pair(ModelChoice(target_url=server.url, target="served"), lambda progress: None)
    assert until(lambda: server_threads() == 0)
