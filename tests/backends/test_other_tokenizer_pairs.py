"""Pairs of two tokenizers from their folders, through the session and the benchmark."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from other_tokenizers import other_tokenizer
from tiny_transformers import tiny_tokenizer

from specdec_tui import cli
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    LosslessStatus,
    Notice,
    PrefillDone,
    RunEnded,
    RunStarted,
    Step,
)
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.strategy_parts import OWN_TOKENS, UNBIASED
from specdec_tui.traces.format import Trace, parse_lines, trace_lines
from specdec_tui.traces.header import new_header
from specdec_tui.traces.summary import summarise

SETTINGS = Settings(
    strategies=("target", "drafter", "speculative", "ngram"),
    ngram_unknown="drafter",
    max_new_tokens=20,
    ignore_eos=True,
    insight=True,
)


@pytest.fixture
def folders(save_model: Any) -> tuple[Path, Path]:
    target = save_model("target", tokenizer=tiny_tokenizer())
    return target, save_model("drafter", tokenizer=other_tokenizer("word-piece"), vocab_size=140)


def run(engine: LocalEngine, settings: Settings, prompt: str = "the cat sat on the mat") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for event in engine.run(prompt, settings, lambda: False):
        if hasattr(event, "strategy"):
            found.setdefault(event.strategy, []).append(event)
    return found


def notices(steps: list[Any]) -> list[str]:
    return [step.record.message for step in steps if isinstance(getattr(step, "record", None), Notice)]


@pytest.mark.parametrize("way", ["auto", "shared", "retokenize"])
def test_every_strategy_of_a_pair_of_two_tokenizers_is_lossless(folders: tuple[Path, Path], way: str) -> None:
    engine = LocalEngine()
    info = engine.load(ModelChoice(target=str(folders[0]), drafter=str(folders[1]), device="cpu"), lambda p: None)
    assert any("another tokenizer than the target" in note for note in info.notes)
    for chat in (True, False):
        found = run(engine, replace(SETTINGS, tokenizers=way, chat=chat))
        for name, steps in found.items():
            [end] = [s.record for s in steps if isinstance(getattr(s, "record", None), RunEnded)]
            assert end.reason is EndReason.LENGTH, (name, end)
            [checked] = [s for s in steps if isinstance(s, Checked)]
            assert checked.lossless.status is (
                LosslessStatus.NOT_APPLICABLE if name == "drafter" else LosslessStatus.IDENTICAL
            )
        told = [text for text in notices(found["speculative"]) if "another tokenizer" in text]
        assert len(told) == 1 and (f"tokenizers {way}" in told[0] or way == "auto")


def test_the_drafter_alone_reads_and_writes_in_its_own_tokenizer(folders: tuple[Path, Path]) -> None:
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folders[0]), drafter=str(folders[1]), device="cpu"), lambda p: None)
    steps = run(engine, SETTINGS)["drafter"]
    own = other_tokenizer("word-piece")
    prompt = own("the cat sat on the mat")["input_ids"]
    [start] = [s for s in steps if isinstance(getattr(s, "record", None), RunStarted)]
    assert start.record.prompt_tokens == len(prompt) and start.prompt_text == own.decode(prompt)
    assert OWN_TOKENS in notices(steps)
    model, ids = engine._pair.drafters[0].model, list(prompt)  # type: ignore[union-attr]
    for _ in range(SETTINGS.max_new_tokens):
        ids.append(int(model.open().extend(ids, keep=1)[0].argmax()))
    [first] = [s.record.token.id for s in steps if isinstance(getattr(s, "record", None), PrefillDone)]
    assert first == ids[len(prompt)]
    [answer] = [s.answer for s in steps if isinstance(getattr(s, "record", None), RunEnded)]
    assert answer == own.decode(ids[len(prompt) :], skip_special_tokens=True, clean_up_tokenization_spaces=False)


def test_a_bias_on_ids_of_the_target_does_not_bind_the_drafter_alone(folders: tuple[Path, Path]) -> None:
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folders[0]), drafter=str(folders[1]), device="cpu"), lambda p: None)
    texts = []
    for biases in ((), ((7, 1000.0), (8, 1000.0))):
        steps = run(engine, replace(SETTINGS, strategies=("target", "drafter"), logit_bias=biases))["drafter"]
        texts.append(next(s.answer for s in steps if isinstance(getattr(s, "record", None), RunEnded)))
    assert texts[0] == texts[1]


def test_the_choice_its_share_and_its_cost_are_in_the_json(
    folders: tuple[Path, Path], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", "/nowhere/config.toml")
    arguments = ["--target", str(folders[0]), "--drafter", str(folders[1]), "--device", "cpu", "--prompt", "the cat"]
    rest = ["--strategies", "target,drafter,speculative", "--max-new-tokens", "6", "--json", "-", "--warmup", "0"]
    assert cli.main(["bench", *arguments, *rest]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["settings"]["tokenizers"] == "auto"
    told = {result["strategy"]: " ".join(result.get("notices", ())) for result in document["results"]}
    assert "% of the target's probability lies on the" in told["speculative"]
    assert "s of the prefill)" in told["speculative"] and OWN_TOKENS in told["drafter"]
    assert "another tokenizer" not in told["target"]


def test_beams_of_the_drafter_alone_are_in_its_own_tokenizer_too(folders: tuple[Path, Path]) -> None:
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folders[0]), drafter=str(folders[1]), device="cpu"), lambda p: None)
    steps = run(engine, replace(SETTINGS, strategies=("target", "drafter-beam")))["drafter-beam"]
    [start] = [s for s in steps if isinstance(getattr(s, "record", None), RunStarted)]
    assert start.record.prompt_tokens == len(other_tokenizer("word-piece")("the cat sat on the mat")["input_ids"])
    [end] = [s.record for s in steps if isinstance(getattr(s, "record", None), RunEnded)]
    assert OWN_TOKENS in notices(steps) and end.reason is not EndReason.ERROR, end


def test_each_of_several_drafters_has_its_own_tokenizer(folders: tuple[Path, Path], save_model: Any) -> None:
    same = save_model("same", tokenizer=tiny_tokenizer())
    engine = LocalEngine()
    drafters = (str(folders[1]), str(same))
    info = engine.load(ModelChoice(target=str(folders[0]), drafter=drafters, device="cpu"), lambda p: None)
    assert info.notes and all(sum(note.count(name) for name in drafters) <= 1 for note in info.notes), info.notes
    found = run(engine, replace(SETTINGS, strategies=("target", "speculative", "speculative-2")))
    told = {name: [text for text in notices(steps) if "another tokenizer" in text] for name, steps in found.items()}
    assert len(told["speculative"]) == 1 and not told["speculative-2"] and not told["target"]
    for name in ("speculative", "speculative-2"):
        [checked] = [s for s in found[name] if isinstance(s, Checked)]
        assert checked.lossless.status is LosslessStatus.IDENTICAL


def test_a_prompt_that_the_drafter_cannot_read_fails_in_its_own_pane_alone(folders: tuple[Path, Path]) -> None:
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folders[0]), drafter=str(folders[1]), device="cpu"), lambda p: None)
    found = {name: [s for s in steps if hasattr(s, "record")] for name, steps in run(engine, SETTINGS, "☃").items()}
    ends = {name: next(s.record for s in steps if isinstance(s.record, RunEnded)) for name, steps in found.items()}
    assert ends.pop("drafter").reason is EndReason.ERROR
    assert "cannot read this prompt" in next(
        s.record.message for s in found["drafter"] if isinstance(s.record, RunEnded)
    )
    assert {end.reason for end in ends.values()} == {EndReason.LENGTH}


def test_what_holds_for_the_target_is_not_said_of_a_drafter_with_tokens_of_its_own(folders: tuple[Path, Path]) -> None:
    (folders[0] / "generation_config.json").write_text(json.dumps({"repetition_penalty": 1.7}))
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folders[0]), drafter=str(folders[1]), device="cpu"), lambda p: None)
    found = run(engine, replace(SETTINGS, strategies=("target", "drafter"), logit_bias=((7, 5.0),)))
    asked = "as the model's generation config asks: repetition penalty 1.7"
    assert asked in notices(found["target"]) and asked not in notices(found["drafter"])
    assert UNBIASED in notices(found["drafter"]) and UNBIASED not in notices(found["target"])
    steps = [event for events in found.values() for event in events if isinstance(event, Step)]
    figures = {name: one["speedup"] for name, one in summarise(steps).items()}
    assert figures == {"target": 1.0, "drafter": None}
    trace = Trace(new_header("the cat", steps), tuple(steps))
    kept = [event for event in parse_lines(trace_lines(trace)).events if isinstance(event, Step)]
    assert summarise(kept)["drafter"]["speedup"] is None
