"""The product as a side of `llama_cpp.py`: models as the app loads them, decoded by its own loop.

Decode seconds are those of a person who waits: from the end of the prefill to the end of the run, not the sum of what
the rounds say of themselves.
"""

from __future__ import annotations

import time

STARTED = time.perf_counter()

from dataclasses import replace  # noqa: E402
from typing import Any  # noqa: E402

from sides import memory, serve  # noqa: E402

from specdec_tui.backends.threads import prepare_threads  # noqa: E402

prepare_threads()

import torch  # noqa: E402

from specdec_tui.backends.loading import Pair, load_pair  # noqa: E402
from specdec_tui.benchmark.suites import builtin_suite  # noqa: E402
from specdec_tui.decoding.loop import decode  # noqa: E402
from specdec_tui.decoding.records import EndReason, PrefillDone, RoundVerified, RunEnded, Status  # noqa: E402
from specdec_tui.decoding.sampling import Sampler  # noqa: E402
from specdec_tui.settings import ModelChoice, Settings  # noqa: E402
from specdec_tui.strategy_parts import parts_of  # noqa: E402

READY = time.perf_counter() - STARTED


class Ours:
    """A loaded pair."""

    pair: Pair

    def load(self, choice: dict[str, Any], threads: int) -> dict[str, Any]:
        torch.set_num_threads(threads)
        drafters = tuple(choice.pop("drafter"))
        before, begin = memory(), time.perf_counter()
        self.pair = load_pair(replace(ModelChoice(drafter=drafters), **choice), lambda progress: None)
        taken = time.perf_counter() - begin
        return {
            "ready_seconds": READY,
            "load_seconds": taken,
            "memory_before": before,
            "models": [
                {"name": m.name, "precision": m.precision, "weights": m.weights, "memory_bytes": m.memory_bytes}
                for m in self.pair.info.models
            ],
            "way": type(self.pair.target).__name__,
            "context_length": self.pair.target.context_length,
            "notes": list(self.pair.info.notes),
        }

    def text(self, tokens: int) -> dict[str, Any]:
        """Ids of so many tokens of the everyday suite's texts, over and over."""
        whole = "\n\n".join(turn for prompt in builtin_suite() for turn in prompt.turns)
        ids = self.pair.tokenizer.encode(whole, chat=False).ids
        return {"ids": (ids * (tokens // len(ids) + 1))[:tokens]}

    def encode(self, prompt: str, history: list[tuple[str, str]]) -> dict[str, Any]:
        return {"ids": self.pair.tokenizer.encode(prompt, [(asked, told) for asked, told in history]).ids}

    def spell(self, ids: list[int]) -> dict[str, Any]:
        return {"text": self.pair.tokenizer.decode(ids, skip_special_tokens=True)}

    def run(self, ids: list[int], count: int, strategy: str = "target", gamma: int = 0) -> dict[str, Any]:
        """Read `ids`, then decode `count` tokens behind the one that the prefill gives, whatever ends a text."""
        target, drafter = parts_of(self.pair, strategy, Settings(), None)
        made: list[int] = []
        rounds = accepted = judged = 0
        begin = read = time.perf_counter()
        for record in decode(
            target,
            ids,
            strategy=strategy,
            drafter=drafter,
            sampler=Sampler("greedy"),
            gamma=gamma,
            max_new_tokens=count + 1,
        ):
            if isinstance(record, PrefillDone) and record.token is not None:
                read = time.perf_counter()
                made.append(record.token.id)
            elif isinstance(record, RoundVerified):
                made += [token.id for token in record.new_tokens]
                rounds += 1
                accepted += sum(draft.status is Status.ACCEPTED for draft in record.drafts)
                judged += sum(draft.status in (Status.ACCEPTED, Status.REJECTED) for draft in record.drafts)
            elif isinstance(record, RunEnded) and record.reason is not EndReason.LENGTH:
                raise ValueError(f"the run ended early: {record}")
        end = time.perf_counter()
        return {
            "prefill_seconds": read - begin,
            "decode_seconds": end - read,
            "ids": made,
            "rounds": rounds,
            "accepted": accepted,
            "judged": judged,
        }


if __name__ == "__main__":
    ours = Ours()
    answers = {"load": ours.load, "text": ours.text, "encode": ours.encode, "spell": ours.spell, "run": ours.run}
    raise SystemExit(serve(answers | {"memory": memory}))
