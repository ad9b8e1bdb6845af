"""Tokenizers are programs of others too: reading and writing end in bounded time, and at once when nobody wants it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from slow_tokenizers import LONG, PANICS, slow_to_read, slow_to_write
from tiny_transformers import CHAT_TEMPLATE, tiny_tokenizer

from specdec_tui.backends import in_time
from specdec_tui.backends.in_time import Stopped
from specdec_tui.backends.tokenizer import PromptTokenizer

WAIT = 0.2  # seconds, of the one and a half that the work takes
SOON = 20.0  # seconds, on a busy machine


@pytest.fixture(autouse=True)
def _left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left behind here is not at work beside the runs of other tests, for all they have to know."""
    monkeypatch.setattr(in_time, "_left", [])


def cancelled_after(seconds: float) -> Callable[[], bool]:
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def read(cancelled: Callable[[], bool], chat: bool) -> object:
    return PromptTokenizer(slow_to_read(CHAT_TEMPLATE), "a/model").encode(LONG, (), chat, cancelled)


def write(cancelled: Callable[[], bool], streamed: bool) -> object:
    own = PromptTokenizer(slow_to_write(), "a/model")
    ids = tiny_tokenizer()("c" + LONG)["input_ids"]
    if not streamed:
        return own.spell(lambda: own.decode(ids), cancelled)
    own = PromptTokenizer(slow_to_write("c", LONG), "a/model")
    return own.spell(lambda: own.stream().push(ids[:2]), cancelled)


WORK = {
    "a prompt": lambda cancelled: read(cancelled, chat=False),
    "a conversation": lambda cancelled: read(cancelled, chat=True),
    "an answer": lambda cancelled: write(cancelled, streamed=False),
    "a token": lambda cancelled: write(cancelled, streamed=True),
}


@pytest.mark.parametrize("name", WORK)
def test_a_tokenizer_that_takes_minutes_stops_when_it_is_cancelled_and_holds_nobody_up(name: str) -> None:
    beats = 0
    over = threading.Event()

    def beat() -> None:
        nonlocal beats
        while not over.wait(0.01):
            beats += 1

    heart = threading.Thread(target=beat)
    heart.start()
    with pytest.raises(Stopped, match=r"^stopped while the tokenizer was at work$"):
        WORK[name](lambda: beats >= 20)  # there are none while the interpreter is held
    over.set()
    heart.join()
    assert in_time.still_at_work() >= 1


@pytest.mark.parametrize("name", WORK)
def test_a_tokenizer_that_takes_minutes_is_given_up_in_one_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_time, "SECONDS", WAIT)
    began = time.monotonic()
    with pytest.raises(ValueError) as refused:
        WORK[name](lambda: False)
    assert time.monotonic() - began < WAIT + SOON
    task = "read this prompt" if name in ("a prompt", "a conversation") else "write the text of these tokens"
    assert str(refused.value) == f"the tokenizer of a/model does not {task} within {WAIT} seconds"


def test_the_bound_is_one_that_a_person_waits_for_and_a_long_text_keeps() -> None:
    assert 10 <= in_time.SECONDS <= 30
    assert len(PromptTokenizer(tiny_tokenizer()).encode("the cat sat on the mat. " * 10_000, chat=False).ids) > 25_000


def test_the_same_tokenizer_reads_the_next_prompt_while_the_last_one_is_still_at_work() -> None:
    own = PromptTokenizer(slow_to_read(), "a/model")
    with pytest.raises(Stopped):
        own.encode(LONG, cancelled=cancelled_after(0.2))
    given = own.encode("the cat sat")
    assert given.text == "<s>the cat sat" and given.ids == PromptTokenizer(slow_to_read()).encode("the cat sat").ids
    assert in_time.still_at_work() >= 1


def test_a_panic_of_the_library_is_one_line_when_it_reads_and_when_it_writes(capfd: pytest.CaptureFixture[str]) -> None:
    said = "Onig: Regex search error: retry-limit-in-match over"
    with pytest.raises(ValueError) as refused:
        PromptTokenizer(slow_to_read(), "a/model").encode(PANICS)
    assert str(refused.value) == f"the tokenizer of a/model cannot read this prompt: {said}"
    own, ids = PromptTokenizer(slow_to_write(), "a/model"), tiny_tokenizer()(PANICS)["input_ids"]
    with pytest.raises(ValueError) as refused:
        own.spell(lambda: own.decode(ids))
    assert str(refused.value) == f"the tokenizer of a/model cannot write the text of these tokens: {said}"
    capfd.readouterr()


def test_what_work_returns_and_raises_comes_back() -> None:
    assert in_time.in_time(lambda: 7) == 7
    with pytest.raises(KeyError, match="x"):
        in_time.in_time(lambda: {}["x"])


def test_usual_tokenizers_write_without_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    own = PromptTokenizer(tiny_tokenizer())
    ids = own.encode("the cat").ids
    monkeypatch.setattr(threading, "Thread", None)
    assert own.spell(lambda: own.decode(ids)) and own.spell(lambda: own.stream().push(ids))
