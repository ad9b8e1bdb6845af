"""A scripted model behind `FaultyServer`, which answers /v1/completions as vLLM does; each `quirk` is another server's.

Written apart from the package: it draws by `truth.process`, and tells by plain loops.
"""

from __future__ import annotations

import math
import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from faulty_server import Answer, Call

sys.path.append(str(Path(__file__).parent / "decoding"))
from truth import process

from specdec_tui.decoding.sampling import Sampler

QUIRKS = (
    "off by one",  # log-probabilities of a prompt are told one place too early
    "one chance",  # all draws of a call have the same
    "no ids",  # a prompt of ids is refused
    "untold ids",  # tokens are told by their text alone
    "no prompt logprobs",  # they are refused
    "no batch",  # only the first prompt of several is answered
    "no top_k",  # it is not known, and so has no effect
    "no temperature",  # all is drawn at 1
    "top_p first",  # of the plain probabilities, before the temperature
    "processed",  # what is told is what is drawn from
    "own defaults",  # where a question does not say otherwise, a top-k of 1
)
MOST_LOGPROBS = 20
Row = Callable[[list[int]], Sequence[float]]


@dataclass
class ServedModel:
    """`row`: logits behind a text. `read`: what a tokenizer makes of a text; None: prompts are ids."""

    row: Row
    vocab_size: int
    name: str = "served"
    length: int = 2048
    most: int = MOST_LOGPROBS
    quirks: frozenset[str] = frozenset()
    read: Callable[[str], list[int]] | None = None
    end_id: int | None = None
    chance: random.Random = field(default_factory=lambda: random.Random(3))

    def __call__(self, call: Call) -> Answer:
        if call.path.endswith("/models"):
            return Answer({"object": "list", "data": [{"id": self.name, "max_model_len": self.length}]})
        if call.path.endswith("/health"):
            return Answer({})
        if not call.path.endswith("/completions"):
            return _refusal(404, "Not Found")
        body = call.body
        if body["model"] != self.name:
            return _refusal(404, f"The model `{body['model']}` does not exist.")
        if max(body.get("logprobs") or 0, body.get("prompt_logprobs") or 0) > self.most:
            return _refusal(400, f"Requested sample logprobs is greater than max allowed: {self.most}")
        prompt = body["prompt"]
        if isinstance(prompt, str):
            assert self.read is not None
            prompt = self.read(prompt)
        elif "no ids" in self.quirks:
            return _refusal(500, "the prompt must be a string")
        prompts = prompt if isinstance(prompt[0], list) else [prompt]
        if "no batch" in self.quirks:
            prompts = prompts[:1]
        if "no prompt logprobs" in self.quirks and body.get("prompt_logprobs") is not None:
            return _refusal(400, "prompt_logprobs is not supported")
        if any(len(one) + body["max_tokens"] > self.length for one in prompts):
            return _refusal(400, f"This model's maximum context length is {self.length} tokens")
        if body.get("stream"):
            return Answer(events=self._events(prompts[0], body))
        shared = self.chance.random() if "one chance" in self.quirks else None
        return Answer(
            {"model": self.name, "choices": [self._choice(i, one, body, shared) for i, one in enumerate(prompts)]}
        )

    def _events(self, prompt: list[int], body: dict[str, Any]) -> list[dict[str, Any]]:
        text, events = list(prompt), []
        for _ in range(body["max_tokens"]):
            token = self._drawn(text, body, None)
            events.append({"model": self.name, "choices": [self._told(0, [token], [text], body)]})
            text = [*text, token]
            if token == self.end_id and not body.get("ignore_eos"):
                break
        return events

    def _choice(self, index: int, prompt: list[int], body: dict[str, Any], chance: float | None) -> dict[str, Any]:
        text, drawn = list(prompt), []
        befores = []
        for _ in range(body["max_tokens"]):
            befores.append(text)
            drawn.append(self._drawn(text, body, chance))
            text = [*text, drawn[-1]]
        choice = self._told(index, drawn, befores, body) | {"prompt_token_ids": prompt}
        if (count := body.get("prompt_logprobs")) is not None:
            shift = int("off by one" in self.quirks)
            places: list[Any] = [None]
            for place in range(1, len(prompt)):
                known = self._best(prompt[: place + shift], count, prompt[place], body)
                places.append({str(id): {"logprob": value, "rank": 1} for id, value in known.items()})
            choice["prompt_logprobs"] = places
        return choice

    def _told(self, index: int, drawn: list[int], befores: list[list[int]], body: dict[str, Any]) -> dict[str, Any]:
        tops = [self._best(text, body["logprobs"], token, body) for text, token in zip(befores, drawn, strict=True)]
        names = "token_id:{}".format if "untold ids" not in self.quirks else "t{}".format
        told = {
            "tokens": [names(token) for token in drawn],
            "token_logprobs": [top[token] for top, token in zip(tops, drawn, strict=True)],
            "top_logprobs": [{names(id): value for id, value in top.items()} for top in tops],
        }
        choice: dict[str, Any] = {"index": index, "text": "", "logprobs": told}
        return choice if "untold ids" in self.quirks else choice | {"token_ids": drawn}

    def _best(self, text: list[int], count: int, named: int, body: dict[str, Any]) -> dict[int, float]:
        logits = self.row(text)
        if "processed" in self.quirks and body["temperature"]:
            logits = [math.log(max(weight, 1e-300)) for weight in self._weights(text, body)]
        total = math.log(sum(math.exp(value) for value in logits))
        order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
        return {token: max(logits[token] - total, -9999.0) for token in (*order[:count], named)}

    def _drawn(self, text: list[int], body: dict[str, Any], chance: float | None) -> int:
        weights = self._weights(text, body)
        left = self.chance.random() if chance is None else chance
        for token, weight in enumerate(weights):
            left -= weight
            if left < 0:
                return token
        return max(range(len(weights)), key=lambda token: weights[token])

    def _weights(self, text: list[int], body: dict[str, Any]) -> list[float]:
        """What a token is drawn from."""
        logits = list(self.row(text))
        if not (temperature := body["temperature"]):
            best = max(range(len(logits)), key=lambda token: logits[token])
            return [float(token == best) for token in range(len(logits))]
        temperature = 1.0 if "no temperature" in self.quirks else temperature
        top_k = max(body.get("top_k", 1 if "own defaults" in self.quirks else 0), 0)
        top_k = 0 if "no top_k" in self.quirks else top_k
        top_p, min_p = body.get("top_p", 1), body.get("min_p", 0)
        if "top_p first" in self.quirks:
            kept = process(logits, Sampler("nucleus", 1.0, top_p=top_p))
            logits = [value if share else -1e9 for value, share in zip(logits, kept, strict=True)]
            top_p = 1
        return process(logits, Sampler("topknucleus" if top_k else "nucleus", temperature, top_k, top_p, min_p))


def _refusal(status: int, message: str) -> Answer:
    return Answer({"error": {"message": message, "code": status}}, status)
