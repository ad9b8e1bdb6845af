"""The turns of the app's cost: all of a turn's rounds are computed in it, also where several are read at once."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from app_cost import TurnsEngine
from dialled_pair import dialled_pair

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.model import LoadedDrafter
from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.backends.tokenizer import Prompt
from specdec_tui.decoding import device_run
from specdec_tui.decoding.device_run import STEPS, Programs
from specdec_tui.loaded import Loaded
from specdec_tui.settings import ModelChoice, Settings


class Words:
    """A tokenizer that knows one prompt and no text."""

    def encode(self, *prompt: object) -> Prompt:
        return Prompt([5, 6, 7], "")

    def decode(self, ids: list[int], skip_special_tokens: bool = False) -> str:
        return ""

    def spell(self, work: Any, cancelled: Any) -> Any:
        return work()

    def stream(self) -> Words:
        return self

    def push(self, ids: Any) -> tuple[str, ...]:
        return tuple("" for _ in ids)

    peek = push

    def rest(self) -> str:
        return ""


def test_a_turn_holds_whole_reads_and_nothing_is_computed_between_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_run, "SLOW", float("inf"))
    networks = dialled_pair("tiny")
    target, drafter = TransformersModel(networks.target), TransformersModel(networks.drafter)
    model = ModelInfo("tiny", "cpu", "float32", "none", 1, 4, None)
    parts = {
        "tokenizer": Words(),
        "end_ids": frozenset(),
        "asked": {},
        "info": PairInfo(model, (model,), False),
    }
    pair = SimpleNamespace(target=target, drafters=(LoadedDrafter(drafter),), **parts)
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: pair)
    played: list[None] = []

    def capture(step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:
        def play() -> None:
            played.append(None)
            step()

        return play

    (go, give), (take, done) = os.pipe(), os.pipe()
    engine = TurnsEngine(go, done, STEPS + 1, Loaded(lambda pair: Programs(capture)))
    engine.load(ModelChoice(), lambda progress: None)
    both = ("target", "speculative")
    length = 1 + 5 * STEPS
    settings = Settings(max_new_tokens=length, strategies=both, ignore_eos=True, schedule="sequential", insight=False)
    run = threading.Thread(target=lambda: list(engine.run("go", settings, lambda: False)), daemon=True)
    run.start()
    turns: list[tuple[str, int]] = []
    with os.fdopen(take) as lines:
        while not turns or turns[-1][0] != "end":
            before = len(played)
            os.write(give, b".")
            strategy, rounds, seconds = json.loads(lines.readline())
            time.sleep(0.02)
            assert len(played) - before == rounds and (seconds > 0) == (rounds > 0)
            turns.append((strategy, rounds))
    run.join(60)
    assert [rounds for strategy, rounds in turns if strategy == "target"] == [2 * STEPS, 2 * STEPS, STEPS]
