"""Questions to an OpenAI-style completions API with token ids, and what its answers tell.

The extensions are those of vLLM (`prompt` as ids, `return_token_ids`, `return_tokens_as_token_ids`, `prompt_logprobs`).
A server may draw by defaults of its own, as vLLM does by its model's generation config: whatever decides a draw is
always sent.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeVar

import msgspec

from specdec_tui.backends.answering import Drawing, Told
from specdec_tui.backends.remote.client import Client, Reply
from specdec_tui.backends.remote.errors import ServerError, unreadable

PATH = "/completions"
_ID = "token_id:"
_ROUNDING = 1e-3
_LEAST = -9000.0
"""What a server writes in place of minus infinity (-9999), which JSON has no number for."""


class _Ranked(msgspec.Struct):
    logprob: float
    rank: int | None = None


class _Logprobs(msgspec.Struct):
    tokens: list[str] = []
    token_logprobs: list[float | None] = []
    top_logprobs: list[dict[str, float] | None] | None = None


class _Choice(msgspec.Struct):
    index: int
    token_ids: list[int] | None = None
    logprobs: _Logprobs | None = None
    prompt_logprobs: list[dict[int, _Ranked] | None] | None = None
    prompt_token_ids: list[int] | None = None


class Completion(msgspec.Struct):
    """The part of an answer that is read, and of each event of a stream."""

    choices: list[_Choice] = []
    model: str = ""


class Asking(Protocol):
    """What is asked with every question."""

    name: str
    vocab_size: int


def body(name: str, drawing: Drawing, alternatives: int) -> dict[str, Any]:
    """What all questions have in common."""
    return {
        "model": name,
        "max_tokens": 1,
        "n": 1,
        "logprobs": alternatives,
        "temperature": drawing.temperature,
        "top_k": drawing.top_k or -1,
        "top_p": drawing.top_p,
        "min_p": drawing.min_p,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "ignore_eos": True,
        "skip_special_tokens": False,
        "return_token_ids": True,
        "return_tokens_as_token_ids": True,
    }


class Completions:
    """The questions that a round asks of the model `name`, of `vocab_size` ids."""

    def __init__(self, client: Client, name: str, vocab_size: int) -> None:
        self.client, self.name, self.vocab_size = client, name, vocab_size

    def post(self, question: dict[str, Any], cancelled: Callable[[], bool]) -> Reply[Completion]:
        return self.client.post(PATH, question, Completion, cancelled)

    def prefixes(
        self,
        text: Sequence[int],
        drafts: Sequence[int],
        drawing: Drawing,
        alternatives: int,
        cancelled: Callable[[], bool],
    ) -> tuple[tuple[Told, ...], Reply[Completion]]:
        """The text and the text with each draft more, as one batch: a token drawn behind each, by chance of its own."""
        count = len(drafts) + 1
        prompts = [[*text, *drafts[:index]] for index in range(count)]
        reply = self.post({**body(self.name, drawing, alternatives), "prompt": prompts}, cancelled)
        choices = self._in_order(reply.body, count)
        return tuple(self._one(choice, alternatives) for choice in choices), reply

    def scores(
        self,
        text: Sequence[int],
        drafts: Sequence[int],
        drawing: Drawing,
        alternatives: int,
        cancelled: Callable[[], bool],
    ) -> tuple[tuple[Told, ...], Reply[Completion]]:
        """The text with all drafts once, and the log-probabilities of its own tokens with it.

        Drawn is a token behind all of them alone.
        """
        question = {**body(self.name, drawing, alternatives), "prompt": [*text, *drafts]}
        if drafts:
            question["prompt_logprobs"] = alternatives
        reply = self.post(question, cancelled)
        choice = self._in_order(reply.body, 1)[0]
        places = choice.prompt_logprobs or []
        if drafts and len(places) != len(text) + len(drafts):
            raise unreadable(f"it tells of {len(places)} tokens of a prompt of {len(text) + len(drafts)}")
        behind = places[len(places) - len(drafts) :] if drafts else []
        told = [self._ranked(place, alternatives) for place in behind]
        return (*told, self._one(choice, alternatives)), reply

    def whole(
        self, ids: Sequence[int], first: int, alternatives: int, cancelled: Callable[[], bool]
    ) -> tuple[Told, ...]:
        """What is told of the places of `ids` from index `first` >= 1 on, their own tokens among it."""
        told, _ = self.scores(ids[:first], ids[first:], Drawing(), alternatives, cancelled)
        return told[:-1]

    def stream(
        self,
        text: Sequence[int],
        drawing: Drawing,
        alternatives: int,
        most: int,
        cancelled: Callable[[], bool],
    ) -> Iterator[tuple[float, tuple[Told, ...]]]:
        """When each piece of the text behind `text` came, and its tokens."""
        question = {**body(self.name, drawing, alternatives), "prompt": list(text), "max_tokens": most, "stream": True}
        count = 0
        events = self.client.stream(PATH, question, Completion, cancelled)
        try:
            for at, event in events:
                for choice in event.choices:
                    told = self._all(choice, alternatives)
                    count += len(told)
                    if told:
                        yield at, told
        finally:
            _close(events)
        if count < most:
            raise ServerError("its stream ended too early", "gone")

    def _in_order(self, completion: Completion, count: int) -> list[_Choice]:
        choices = sorted(completion.choices, key=lambda choice: choice.index)
        if [choice.index for choice in choices] != list(range(count)):
            raise unreadable(f"it has {len(choices)} choices for {count} questions")
        return choices

    def _one(self, choice: _Choice, alternatives: int) -> Told:
        told = self._all(choice, alternatives)
        if len(told) != 1:
            raise unreadable(f"it has {len(told)} tokens where one was asked for")
        return told[0]

    def _all(self, choice: _Choice, alternatives: int) -> tuple[Told, ...]:
        """The tokens of a choice."""
        tops = (choice.logprobs.top_logprobs if choice.logprobs is not None else None) or []
        drawn = choice.token_ids
        if drawn is None:
            drawn = [] if choice.logprobs is None else [_id_of(token) for token in choice.logprobs.tokens]
        if len(tops) != len(drawn):
            raise unreadable(f"it has log-probabilities for {len(tops)} of its {len(drawn)} tokens")
        return tuple(self._told(_by_id(top), alternatives, token) for top, token in zip(tops, drawn, strict=True))

    def _ranked(self, place: Mapping[int, _Ranked] | None, alternatives: int) -> Told:
        if place is None:
            raise unreadable("a token of the prompt has no log-probabilities")
        return self._told({id: one.logprob for id, one in place.items()}, alternatives, None)

    def _told(self, known: Mapping[int, float], alternatives: int, drawn: int | None) -> Told:
        """Sorted, and checked: what cannot be a distribution is no answer."""
        if not known or not all(math.isfinite(value) and value <= _ROUNDING for value in known.values()):
            raise unreadable("a log-probability is missing, or is none")
        if not all(0 <= id < self.vocab_size for id in (*known, *(() if drawn is None else (drawn,)))):
            raise unreadable(f"a token id is not one of the {self.vocab_size:,} of its tokenizer")
        if sum(math.exp(value) for value in known.values()) > 1 + _ROUNDING:
            raise unreadable("the probabilities of a token add up to more than 1")
        ordered = sorted(known.items(), key=lambda one: (-one[1], one[0]))
        kept = [(id, value) for id, value in ordered[:alternatives] if value > _LEAST]
        if not kept:
            raise unreadable("no token has a probability")
        ids, values = (tuple(part) for part in zip(*kept, strict=True))
        return Told(ids, values, drawn, tuple(ordered[alternatives:]))


def _by_id(top: Mapping[str, float] | None) -> dict[int, float]:
    return {_id_of(token): value for token, value in (top or {}).items()}


def _id_of(token: str) -> int:
    word = token.removeprefix(_ID)
    if word == token or not word.isascii() or not word.isdecimal():
        raise unreadable("its tokens are not told by their ids")
    return int(word)


Item = TypeVar("Item")


def _close(events: Iterator[Item]) -> None:
    if (close := getattr(events, "close", None)) is not None:
        close()
