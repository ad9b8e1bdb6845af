"""The lossless check can fail: its yardstick shares nothing with the passes of a run. Every test plants a fault."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from tiny_transformers import CONFIGS, in_dtype, tiny_model

from specdec_tui.backends import causal_lm
from specdec_tui.backends.cache import RewindableLayer
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.lean.model import LeanContext, LeanModel
from specdec_tui.backends.model import LoadedDrafter, Referenced
from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.backends.static_model import StaticContext
from specdec_tui.backends.tokenizer import Prompt
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.records import Checked, LosslessStatus, RunEnded, Step
from specdec_tui.loaded import Loaded
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

S = LosslessStatus
PROMPT = [(37 * i + 5) % 320 for i in range(12)]
SETTINGS = Settings(max_new_tokens=24, gamma=3, strategies=("target", "speculative", "lookup"), chat=False)


class Ids:
    """A tokenizer for prompts that are ids already."""

    def encode(self, prompt: str, history: Any = (), chat: bool = True, cancelled: Any = None) -> Prompt:
        return Prompt(list(PROMPT), prompt)

    def stream(self) -> Any:
        return SimpleNamespace(push=lambda ids: [""] * len(ids), peek=lambda ids: ["" for _ in ids], rest=lambda: "")

    def decode(self, ids: Any, skip_special_tokens: bool = False) -> str:
        return ""

    def spell(self, work: Any, cancelled: Any) -> Any:
        return work()

    def piece(self, token: int) -> str:
        return ""

    def ids_of_word(self, word: str) -> list[list[int]]:
        return []


def checks(target: Any, monkeypatch: pytest.MonkeyPatch, programs: Programs | None = None) -> dict[str, LosslessStatus]:
    info = ModelInfo("tiny", "cpu", "float32", "none", 1, 4, 128)
    pair = SimpleNamespace(
        target=target,
        drafters=(LoadedDrafter(TransformersModel(tiny_model("llama", num_hidden_layers=1))),),
        tokenizer=Ids(),
        end_ids=frozenset(),
        asked={},
        info=PairInfo(info, (info,), False),
    )
    monkeypatch.setattr("specdec_tui.backends.loading.load_pair", lambda choice, progress: pair)
    engine = LocalEngine(Loaded(lambda pair: programs))
    engine.load(ModelChoice(), lambda progress: None)
    events = list(engine.run("", SETTINGS, lambda: False))
    ends = [event.record for event in events if isinstance(event, Step) and isinstance(event.record, RunEnded)]
    assert [end.reason.value for end in ends] == ["length"] * 3, ends
    return {event.strategy: event.lossless.status for event in events if isinstance(event, Checked)}


RIGHT = dict.fromkeys(SETTINGS.strategies, S.IDENTICAL)
WRONG = dict.fromkeys(SETTINGS.strategies, S.DIFFERENT)


def spoil(held: Callable[..., Any]) -> Callable[..., Any]:
    """An update of a cache whose keys come out turned by half."""

    def update(self: Any, keys: torch.Tensor, values: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        return held(self, keys.roll(keys.shape[-1] // 2, -1), values, *args, **kwargs)

    return update


@pytest.mark.parametrize("kind", ["llama", "gemma2", "gpt2"])
def test_cached_keys_that_are_wrong_are_found_in_every_pane(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks(TransformersModel(tiny_model(kind)), monkeypatch) == RIGHT
    target = TransformersModel(tiny_model(kind))
    monkeypatch.setattr(RewindableLayer, "update", spoil(RewindableLayer.update))
    assert checks(target, monkeypatch) == WRONG


def test_a_prompt_that_is_cut_wrongly_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TransformersModel(tiny_model("llama"))
    extend = causal_lm.CachedContext.extend

    def forgetful(self: Any, ids: list[int], keep: int) -> torch.Tensor:
        return extend(self, ids[-6:] if len(ids) > 6 else ids, keep)

    monkeypatch.setattr(causal_lm.CachedContext, "extend", forgetful)
    assert set(checks(target, monkeypatch).values()) == {S.DIFFERENT}


def test_rewinds_that_forget_nothing_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TransformersModel(tiny_model("llama"))
    monkeypatch.setattr(causal_lm.RewindableCache, "rewind", lambda self, length: None)
    found = checks(target, monkeypatch)
    assert found["target"] is S.IDENTICAL and found["speculative"] is S.DIFFERENT


def test_a_fast_pass_of_the_cpu_over_wrong_keys_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = LeanModel.of(tiny_model("llama"))
    assert checks(target, monkeypatch) == RIGHT
    extend = LeanContext.extend

    def spoiled(self: LeanContext, ids: list[int], keep: int) -> torch.Tensor:
        rows = extend(self, ids, keep)
        self._keys[:] = np.roll(self._keys, 1, axis=3)  # of each key, its numbers turned by one
        return rows

    monkeypatch.setattr(LeanContext, "extend", spoiled)
    assert checks(target, monkeypatch) == WRONG


def test_a_captured_pass_at_wrong_places_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    target = TransformersModel(tiny_model("llama"))
    assert checks(target, monkeypatch, Programs()) == RIGHT
    extend = StaticContext.extend
    opened = target.open_static(64)  # its trial is before the fault
    assert isinstance(opened, StaticContext)
    monkeypatch.setattr(
        StaticContext, "extend", lambda self, ids, begin, keep: extend(self, ids, (begin - 2).clamp(min=0), keep)
    )
    found = checks(target, monkeypatch, Programs())
    assert found["target"] is found["lookup"] is S.DIFFERENT  # the drafter's trial fails: that strategy goes uncaptured


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_yardstick_is_one_pass_over_the_whole_text_without_a_cache(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = TransformersModel(tiny_model(kind))
    assert isinstance(model, Referenced)
    monkeypatch.delattr(causal_lm.RewindableCache, "rewind")
    passes: list[int] = []
    forward = model.model.forward

    def counted(inputs: torch.Tensor, **given: Any) -> Any:
        passes.append(inputs.shape[1])
        assert not given["use_cache"]
        return forward(inputs, **given)

    monkeypatch.setattr(model.model, "forward", counted)
    text = PROMPT + [(11 * i + 2) % 320 for i in range(20)]
    rows = torch.stack(list(model.reference(PROMPT, text[12:])))
    assert passes == [len(text) - 1] and rows.shape == (20, 320)
    with torch.no_grad():
        expected = forward(torch.tensor([text]), use_cache=False).logits[0, 11:-1]
    torch.testing.assert_close(rows, expected, atol=1e-5, rtol=1e-5)


def test_long_answers_are_looked_at_in_bounded_memory_with_the_same_result(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformersModel(tiny_model("llama"))
    text = PROMPT + [(11 * i + 2) % 320 for i in range(20)]
    whole = torch.stack(list(model.reference(PROMPT, text[12:])))
    monkeypatch.setattr(causal_lm, "REFERENCE_BYTES", 4 * 320 * 7)
    torch.testing.assert_close(torch.stack(list(model.reference(PROMPT, text[12:]))), whole, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("overrides", [{}, {"tie_word_embeddings": True}])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_fast_passes_are_checked_against_transformers_own_layers(
    kind: str, overrides: dict[str, Any], dtype: torch.dtype
) -> None:
    lean = LeanModel.of(in_dtype(tiny_model(kind, **overrides), dtype))
    plain = TransformersModel(in_dtype(tiny_model(kind, **overrides), dtype).float())
    ids = [(11 * i + 2) % 320 for i in range(20)]
    rows = torch.stack(list(lean.reference(PROMPT, ids)))
    torch.testing.assert_close(rows, torch.stack(list(plain.reference(PROMPT, ids))), atol=1e-5, rtol=1e-5)
    assert list(lean.reference(PROMPT, [])) == []
    held = sum(p.numel() for p in lean._shell().model.parameters() if p.device.type != "meta")
    assert held == sum(p.numel() for n, p in plain.model.named_parameters() if "norm" in n), "weights are held twice"


def test_how_far_rounding_goes_is_measured_where_weights_are_quantized(monkeypatch: pytest.MonkeyPatch) -> None:
    model = TransformersModel(tiny_model("llama"))
    ids = [(11 * i + 2) % 320 for i in range(20)]
    assert model.rounding(PROMPT, ids) is None, "float32 has a bound of its own"
    model.model.is_loaded_in_8bit = True
    exact = model.rounding(PROMPT, ids)
    assert exact is not None and exact < 1e-4
    forward = model.model.forward

    def coarse(inputs: torch.Tensor, **given: Any) -> Any:
        found = forward(inputs, **given)
        if inputs.shape[1] == 1:
            found.logits[..., ::2] += 0.25
        return found

    monkeypatch.setattr(model.model, "forward", coarse)
    assert model.rounding(PROMPT, ids) == pytest.approx(0.25, abs=1e-3)
