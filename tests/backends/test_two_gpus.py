"""A target that accelerate spreads over two GPUs, with its drafter on one of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from transformers import AutoConfig

from specdec_tui.backends import memory
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.loading import load_pair
from specdec_tui.decoding.records import Checked, LosslessStatus, Notice, RunEnded, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")


def test_a_target_over_two_gpus_decodes_as_on_one(
    save_model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = save_model("target", hidden_size=256, intermediate_size=2048, num_hidden_layers=8)
    drafter = save_model("drafter")
    choice = ModelChoice(target=str(target), drafter=str(drafter), device="cuda", dtype="float32")
    settings = Settings(strategies=("target", "speculative", "lookup"), max_new_tokens=48, chat=False)

    def answers() -> list[str]:
        engine = LocalEngine()
        engine.load(choice, lambda progress: None)
        events = list(engine.run("a b c a b", settings, lambda: False))
        ends = [event for event in events if isinstance(event, Step) and isinstance(event.record, RunEnded)]
        assert [end.record.message for end in ends if isinstance(end.record, RunEnded)] == ["", "", ""]
        checks = [event.lossless.status for event in events if isinstance(event, Checked)]
        assert checks.count(LosslessStatus.IDENTICAL) >= 2 and LosslessStatus.DIFFERENT not in checks
        told.append([e.record.message for e in events if isinstance(e, Step) and isinstance(e.record, Notice)])
        return [end.answer for end in ends]

    told: list[list[str]] = []
    alone = answers()
    needed = memory.estimate("target", AutoConfig.from_pretrained(target), torch.float32, "none").total_bytes
    monkeypatch.setattr(memory, "available_bytes", lambda device: memory._RESERVED_BYTES + int(0.7 * needed))
    pair = load_pair(choice, lambda progress: None)
    drafter = pair.drafters[0].model
    assert isinstance(pair.target, TransformersModel) and isinstance(drafter, TransformersModel)
    assert len({parameter.device for parameter in pair.target.model.parameters()}) == 2
    assert len({parameter.device for parameter in drafter.model.parameters()}) == 1
    del pair, drafter
    assert answers() == alone
    assert not told[0] and all("several devices" in message for message in told[1])
