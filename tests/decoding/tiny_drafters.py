"""Drafters of every kind around tiny models, by name, fresh for each run."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from tiny_models import FunctionModel

from specdec_tui.decoding.drafters import Drafter, DraftSetup, ModelDrafter, Proposal
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore

KINDS = ("model", "ngram", "ngram-or-model", "lookup")


def make_drafter(kind: str, target: FunctionModel, model: FunctionModel) -> Drafter:
    """`ngram-or-model` has an order that leaves contexts unknown, so that its rounds mix both."""
    match kind:
        case "model":
            return ModelDrafter(model, target.vocab_size)
        case "ngram":
            return NgramDrafter(NgramStore(3), top_k_filler=3)
        case "ngram-or-model":
            return NgramDrafter(NgramStore(3, "onelevel"), 2, ModelDrafter(model, target.vocab_size))
        case "lookup":
            return LookupDrafter(2)
    raise AssertionError(kind)


class ScriptedDrafter:
    """Drafts the next tokens of a fixed text, and writes down what it was told."""

    def __init__(self, script: Sequence[int]) -> None:
        self.script = list(script)
        self.notice = ""
        self.asked: list[int] = []
        self.settled: list[tuple[list[int], int, int]] = []

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self.prompt_length = len(ids)

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        assert len(ids) - self.prompt_length == position
        self.asked.append(most)
        drafts = self.script[position : position + most]
        return Proposal(drafts, [None] * len(drafts))

    def settle(self, ids: Sequence[int], kept: int, scores: torch.Tensor) -> None:
        self.settled.append((list(ids), kept, len(scores)))

    def synchronize(self) -> None:
        pass
