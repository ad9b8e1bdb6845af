"""What a run tells of a server that fails: it goes on, and says so, or ends with one line; the text so far is kept."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from faulty_server import (
    Answer,
    Call,
    Fault,
    FaultyServer,
    Wire,
    broken_off,
    dropped,
    hung_up,
    instead,
    raw,
    refusal,
    silence,
)
from remote_pair import OTHER, PROMPT, SMALL, TARGET, connected, served

sys.path.append(str(Path(__file__).parents[2] / "decoding"))
from tiny_drafters import make_drafter
from tiny_models import emitted, ended, rounds, run, run_lazily

from specdec_tui.backends.remote import client
from specdec_tui.backends.remote.model import RemoteModel
from specdec_tui.decoding import remote_stream
from specdec_tui.decoding.records import EndReason, Notice, PrefillDone, Record, RoundVerified
from specdec_tui.decoding.remote_run import CHANGED

LENGTH = 24
WHOLE = emitted(run(TARGET, PROMPT, max_new_tokens=LENGTH))
BEGIN, PREFILL, ROUND = 0, 1, 3
"""Calls of a run: is it the model still, the first one behind the prompt, one in the middle."""
SOON = 6.0  # seconds, on a busy machine


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(served()) as server:
        yield server


@pytest.fixture
def model(server: FaultyServer, at_once: None) -> Iterator[RemoteModel]:
    model = connected(server)
    model.capabilities = replace(model.capabilities, scores_seconds=None)  # which way is faster is a matter of chance
    yield model
    model.completions.client.close()


def drafter_of(kind: str) -> Any:
    return None if kind == "plain" else make_drafter(kind, TARGET, SMALL)


def asked(server: FaultyServer) -> int:
    return sum(call.path.endswith("/completions") for call in server.calls)


def fails(server: FaultyServer, fault: Fault, *calls: int) -> None:
    """At these calls, counted from now on."""
    server.fails(fault, *(asked(server) + number for number in calls), path="/completions")


def from_then_on(server: FaultyServer, fault: Fault, first: int) -> None:
    fails(server, fault, *range(first, first + 50))


def records_of(model: RemoteModel, kind: str, **settings: Any) -> list[Record]:
    return run(model, PROMPT, drafter_of(kind), **{"max_new_tokens": LENGTH} | settings)


def told(records: list[Record]) -> list[str]:
    return [record.message for record in records if isinstance(record, Notice)]


def changed(change: Callable[[Any], Any]) -> Fault:
    """An answer whose body, or each event of it, has another first choice."""

    def other(body: Any) -> Any:
        first, *rest = body["choices"]
        return {**body, "choices": [change(first), *rest]}

    def fault(wire: Wire, answer: Answer) -> None:
        events = None if answer.events is None else [other(event) for event in answer.events]
        wire.answer(replace(answer, body=None if answer.body is None else other(answer.body), events=events))

    return fault


def with_tops(change: Callable[[dict[str, float]], Any]) -> Fault:
    """Each place of the first choice is told as another one."""

    def other(choice: Any) -> Any:
        tops = [change(top) for top in choice["logprobs"]["top_logprobs"]]
        return {**choice, "logprobs": {**choice["logprobs"], "top_logprobs": tops}, "prompt_logprobs": None}

    return changed(other)


PASSING = {
    "dropped": dropped,
    "hung up": hung_up,
    "busy": refusal(429, Retry_After="0.01"),
    "unavailable": refusal(503, "loading"),
    "failed": refusal(500, "out of memory"),
}


@pytest.mark.each_value
@pytest.mark.parametrize("kind", ["plain", "lookup", "model"])
@pytest.mark.parametrize("call", [BEGIN, PREFILL, ROUND])
def test_a_fault_that_passes_is_told_and_the_text_is_the_same(
    kind: str, call: int, server: FaultyServer, model: RemoteModel
) -> None:
    if kind == "plain" and call == ROUND:
        pytest.skip("its rounds are one stream")
    for name, fault in PASSING.items():
        fails(server, fault, call)
        records = records_of(model, kind)
        assert emitted(records) == WHOLE and ended(records).reason is EndReason.LENGTH, name
        (notice,) = told(records)
        assert "asked again after" in notice, name
        at = next(i for i, record in enumerate(records) if isinstance(record, Notice))
        behind = PrefillDone if call < ROUND else RoundVerified
        assert isinstance(records[at + 1], behind), "it stands before what took longer for it"
        assert told(records_of(model, kind)) == [], "it is told once"


def test_a_wait_that_a_server_asks_for_is_part_of_the_round_and_not_of_the_way(
    server: FaultyServer, model: RemoteModel
) -> None:
    fails(server, refusal(429, Retry_After="0.3"), ROUND)
    records = records_of(model, "lookup")
    slow = max(rounds(records), key=lambda one: one.verify_seconds)
    assert 0.3 <= slow.verify_seconds < 0.8 and slow.calls == 2 and slow.wire_seconds <= model.round_trip
    assert sum(one.calls for one in rounds(records)) == len(rounds(records)) + 1
    assert told(records) == ["the server was busy (HTTP 429): asked again after 0.3 s"]


@pytest.mark.parametrize("end", [dropped, hung_up])
@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_stream_that_breaks_goes_on_behind_what_came(
    end: Fault, share: float, server: FaultyServer, model: RemoteModel
) -> None:
    fails(server, broken_off(5, share, end), 1)
    records = records_of(model, "plain")
    assert emitted(records) == WHOLE and ended(records).reason is EndReason.LENGTH
    (notice,) = told(records)
    assert notice.startswith("the server dropped the connection in the middle of its answer: its stream is opened")
    opened = [len(call.body["prompt"]) - len(PROMPT) for call in server.calls if streams(call)]
    assert opened == [0, 5] and [one.calls for one in rounds(records)].count(1) == 1


def test_a_stream_that_ends_early_goes_on_and_one_that_always_does_ends_the_run(
    server: FaultyServer, model: RemoteModel
) -> None:
    def short(wire: Wire, answer: Answer) -> None:
        wire.answer(answer if answer.events is None else replace(answer, events=answer.events[:3]))

    fails(server, short, 1)
    records = records_of(model, "plain")
    assert emitted(records) == WHOLE and len(told(records)) == 1
    server.fails(short, path="/completions")
    records = records_of(model, "plain")
    kept = emitted(records)
    assert 3 <= len(kept) < LENGTH and kept == WHOLE[: len(kept)]
    assert ended(records).reason is EndReason.ERROR and "its stream ended too early" in ended(records).message
    assert len(told(records)) == 3


def streams(call: Call) -> bool:
    return bool(call.content and call.body.get("stream"))


def test_tokens_that_come_in_one_piece_share_its_time(server: FaultyServer, model: RemoteModel) -> None:
    def in_pieces(wire: Wire, answer: Answer) -> None:
        pieces = []
        for begin in range(0, len(answer.events or []), 3):
            group = [event["choices"][0] for event in (answer.events or [])[begin : begin + 3]]
            parts = ("tokens", "token_logprobs", "top_logprobs")
            logprobs = {name: [one["logprobs"][name][0] for one in group] for name in parts}
            ids = [one["token_ids"][0] for one in group]
            pieces.append({"model": "served", "choices": [group[0] | {"token_ids": ids, "logprobs": logprobs}]})
        wire.answer(replace(answer, events=pieces, gap=0.06))

    fails(server, in_pieces, 1)
    records = records_of(model, "plain")
    assert emitted(records) == WHOLE
    later = [one.verify_seconds for one in rounds(records)][2:]
    assert all(0.01 < seconds < 0.05 for seconds in later)
    assert all(len(set(later[at : at + 3])) == 1 for at in range(0, len(later) - 2, 3))


FATAL = {
    "failed": (refusal(500, "out of memory"), "the server failed (HTTP 500), at try 4 too: out of memory"),
    "busy": (refusal(503), "the server was busy (HTTP 503), at try 4 too"),
    "dropped": (dropped, "the server dropped the connection before it answered, at try 4 too"),
    "refuses the key": (refusal(401, "bad key"), "the server asks for a key (HTTP 401): set SPECDEC_TUI_API_KEY"),
    "redirect": (
        instead(status=307, Location="http://other.example/v1/completions"),
        "the server sends us to http://other",
    ),
    "not there": (refusal(404, "The model does not exist."), "refuses this (HTTP 404): The model does not exist."),
    "malformed": (instead(b'{"choices": [{"index": 0,,}]}'), "the server's answer cannot be read: JSON is malformed"),
    "partial": (instead(b'{"choices": [{"index": 0, "tok'), "cannot be read: Input data was truncated"),
    "another shape": (instead([1, 2, 3]), "cannot be read: Expected"),
    "no choice": (instead({"choices": []}), "it has 0 choices for"),
    "no number": (with_tops(lambda top: dict.fromkeys(top, float("nan"))), "cannot be read"),
    "no log-probability": (with_tops(lambda top: {}), "a log-probability is missing, or is none"),
    "none told": (with_tops(lambda top: None), "a log-probability is missing, or is none"),
    "another's ids": (with_tops(lambda top: top | {"token_id:9": -3.0}), "a token id is not one of the 5"),
    "above 1": (
        with_tops(lambda top: {f"token_id:{id}": -0.1 for id in range(5)}),
        "the probabilities of a token add up to more than 1",
    ),
    "above 0": (with_tops(lambda top: dict.fromkeys(top, 0.5)), "a log-probability is missing, or is none"),
    "no HTTP": (raw(b"SSH-2.0-OpenSSH\r\n\r\n"), "it is no HTTP"),
}


@pytest.mark.parametrize("name", FATAL)
def test_a_fault_that_stays_ends_the_run_with_one_line_and_the_text_so_far(
    name: str, server: FaultyServer, model: RemoteModel
) -> None:
    fault, said = FATAL[name]
    for call in (BEGIN, PREFILL, ROUND):
        from_then_on(server, fault, call)
        records = records_of(model, "lookup")
        end, kept = ended(records), emitted(records)
        assert end.reason is EndReason.ERROR and said in end.message and "\n" not in end.message
        assert kept == WHOLE[: len(kept)] and (len(kept) > 0) == (call == ROUND)
        assert len(rounds(records)) == max(0, call - 2) and all(one.calls == 1 for one in rounds(records))
        server._faults.clear()
    assert emitted(records_of(model, "lookup")) == WHOLE, "the next run is as if nothing had been"


@pytest.mark.parametrize("name", FATAL)
def test_a_stream_that_breaks_and_cannot_be_opened_again_ends_the_run_with_what_came(
    name: str, server: FaultyServer, model: RemoteModel
) -> None:
    fault, said = FATAL[name]
    fails(server, broken_off(5, 0, hung_up), 1)
    from_then_on(server, fault, 2)
    records = records_of(model, "plain")
    end = ended(records)
    assert emitted(records) == WHOLE[:5] and end.reason is EndReason.ERROR and said in end.message
    assert len(rounds(records)) == 4


BAD_EVENTS = {
    "malformed": (b'{"choices": [{', "Input data was truncated"),
    "no number": (
        b'{"choices": [{"index": 0, "logprobs": {"top_logprobs": [{"token_id:1": NaN}]}}]}',
        "cannot be read",
    ),
    "nothing told": (b'{"choices": [{"index": 0, "token_ids": [1]}]}', "log-probabilities for 0 of its 1 tokens"),
    "an error": (b'{"error": {"message": "the engine died", "code": 500}}', "the engine died"),
}


@pytest.mark.parametrize("name", BAD_EVENTS)
def test_an_event_that_is_none_ends_the_run_with_what_came(name: str, server: FaultyServer, model: RemoteModel) -> None:
    event, said = BAD_EVENTS[name]

    def fault(wire: Wire, answer: Answer) -> None:
        wire.answer(replace(answer, events=[*(answer.events or [])[:5], event]))

    fails(server, fault, 1)
    records = records_of(model, "plain")
    assert emitted(records) == WHOLE[:5] and len(rounds(records)) == 4
    assert ended(records).reason is EndReason.ERROR and said in ended(records).message


def test_no_answer_in_time_ends_the_run(
    server: FaultyServer, model: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(client.Client.post.__kwdefaults__ or {}, "timeout", 0.3)
    fails(server, silence, ROUND)
    records = records_of(model, "lookup")
    assert ended(records).message == "the server did not answer within 0.3 s" and len(rounds(records)) == 1


def paused(model: Callable[[Call], Answer]) -> Callable[[Call], Answer]:
    """Its streams take their time, so that something may happen meanwhile."""
    return lambda call: replace(model(call), gap=0.03)


def meanwhile(records: Iterator[Record], happens: Callable[[], None]) -> list[Record]:
    """All records of a run in whose third round something happens."""
    found = []
    for record in records:
        found.append(record)
        if isinstance(record, RoundVerified) and record.round == 2:
            happens()
    return found


@pytest.mark.parametrize("kind", ["plain", "lookup"])
@pytest.mark.parametrize("comes_back_as", ["the same model", "another model"])
def test_a_server_that_was_away_goes_on_as_the_same_model_and_not_as_another(
    kind: str, comes_back_as: str, server: FaultyServer, model: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specdec_tui.backends.remote.tries._FIRST_WAIT", 0.1)
    server.model = paused(served())

    def restarts() -> None:
        server.goes_down()
        server.model = served(TARGET if comes_back_as == "the same model" else OTHER)
        threading.Timer(0.15, server.comes_up).start()

    records = meanwhile(run_lazily(model, PROMPT, drafter_of(kind), max_new_tokens=LENGTH), restarts)
    kept, end = emitted(records), ended(records)
    assert any("asked again" in line or "opened again" in line for line in told(records))
    if comes_back_as == "the same model":
        assert kept == WHOLE and end.reason is EndReason.LENGTH
    else:
        assert 3 <= len(kept) < LENGTH and kept == WHOLE[: len(kept)]
        assert end.message == "the server now answers as another model does: connect again"
    server.model = served(OTHER)
    again = records_of(model, kind)
    assert emitted(again) == [] and "another model" in ended(again).message


@pytest.mark.parametrize("kind", ["plain", "lookup"])
def test_another_model_without_a_new_connection_is_told_at_the_runs_end(
    kind: str, server: FaultyServer, model: RemoteModel
) -> None:
    server.model = paused(served())

    def is_replaced() -> None:
        server.model = served(OTHER)

    records = meanwhile(run_lazily(model, PROMPT, drafter_of(kind), max_new_tokens=LENGTH), is_replaced)
    assert len(emitted(records)) == LENGTH
    assert ended(records).reason is EndReason.ERROR and ended(records).message == CHANGED


def test_a_stream_that_is_tried_again_before_its_first_token_may_be_of_another_model(
    server: FaultyServer, model: RemoteModel
) -> None:
    def drops_and_changes(wire: Wire, answer: Answer) -> None:
        server.model = served(OTHER)
        wire.drop()

    fails(server, drops_and_changes, 1)
    records = records_of(model, "plain")
    assert emitted(records) == [] and "another model" in ended(records).message


def test_a_text_that_is_whole_stays_so_where_the_server_is_gone_at_its_end(
    server: FaultyServer, model: RemoteModel
) -> None:
    records = meanwhile(run_lazily(model, PROMPT, max_new_tokens=LENGTH), lambda: None)
    assert ended(records).reason is EndReason.LENGTH
    fails(server, dropped, *range(2, 9))
    records = records_of(model, "plain")
    assert emitted(records) == WHOLE and ended(records).reason is EndReason.LENGTH


STALLS = {"no answer": silence, "half an answer": broken_off(end=silence), "a wait": refusal(429, Retry_After="9")}


@pytest.mark.each_value
@pytest.mark.parametrize(
    ("kind", "call"), [*(("lookup", call) for call in (BEGIN, PREFILL, ROUND)), ("plain", PREFILL)]
)
@pytest.mark.parametrize("name", STALLS)
def test_a_run_is_stopped_soon_whatever_its_call_waits_for(
    name: str, kind: str, call: int, server: FaultyServer, model: RemoteModel
) -> None:
    fails(server, STALLS[name], call)
    stop = Stop(server, asked(server) + call + 1)
    records = records_of(model, kind, cancelled=stop)
    assert time.monotonic() - stop.since < SOON
    assert ended(records).reason is EndReason.CANCELLED and ended(records).message == ""
    assert emitted(records) == WHOLE[: len(emitted(records))] and len(rounds(records)) == max(0, call - 2)


def test_a_stream_that_stalls_in_the_middle_is_stopped_soon(server: FaultyServer, model: RemoteModel) -> None:
    fails(server, broken_off(5, 0.5, silence), 1)
    stop = Stop(server, asked(server) + 2)
    records = records_of(model, "plain", cancelled=stop)
    assert time.monotonic() - stop.since < SOON
    assert ended(records).reason is EndReason.CANCELLED and emitted(records) == WHOLE[:5]


def test_a_stream_of_which_nothing_came_for_long_is_not_opened_again(
    server: FaultyServer, model: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "STREAM_SECONDS", 1.5)
    monkeypatch.setattr(remote_stream, "PATIENCE", 0.2)
    fails(server, broken_off(5, 0.5, silence), 1)
    records = records_of(model, "plain")
    assert emitted(records) == WHOLE[:5] and ended(records).reason is EndReason.ERROR
    assert "nothing came for 1.5 s" in ended(records).message


def test_stopped_at_its_end_a_text_is_whole(server: FaultyServer, model: RemoteModel) -> None:
    fails(server, silence, 2)
    stop = Stop(server, asked(server) + 3)
    records = records_of(model, "plain", cancelled=stop)
    assert time.monotonic() - stop.since < SOON
    assert ended(records).reason is EndReason.LENGTH and emitted(records) == WHOLE


class Stop:
    """Says that a run is no longer wanted, a while after a server was asked so often; `since` that moment."""

    def __init__(self, server: FaultyServer, calls: int) -> None:
        self._server, self._calls, self.since = server, calls, float("inf")

    def __call__(self) -> bool:
        if asked(self._server) >= self._calls:
            self.since = min(self.since, time.monotonic() + 0.2)
        return time.monotonic() >= self.since
