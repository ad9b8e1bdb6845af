"""A tokenizer that fails, or takes too long, in the middle of a run: one line, and nothing lost that was there."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from slow_tokenizers import LONG, PANICS, slow_to_write

from specdec_tui import cli
from specdec_tui.backends import in_time
from specdec_tui.backends.pair import LoadError, PromptError
from specdec_tui.decoding.records import Checked, EndReason, Event, Finished, RunEnded, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

PROMPT, OTHER = "the cat sat", "on the mat"
FAILS_AT = 4  # tokens of the answer
SETTINGS = Settings(strategies=("target", "lookup"), max_new_tokens=12, chat=False, ignore_eos=True)
SAID = "the text of these tokens: Onig: Regex search error: retry-limit-in-match over"

Engines = Callable[[str], LocalEngine]


@pytest.fixture(autouse=True)
def _left_to_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is left behind here is not at work beside the runs of other tests, for all they have to know."""
    monkeypatch.setattr(in_time, "_left", [])


def played(engine: LocalEngine, prompt: str = PROMPT, cancelled: Callable[[], bool] = lambda: False) -> list[Event]:
    return list(engine.run(prompt, SETTINGS, cancelled))


def ends(events: list[Event]) -> dict[str, RunEnded]:
    steps = [event for event in events if isinstance(event, Step)]
    return {step.strategy: step.record for step in steps if isinstance(step.record, RunEnded)}


def texts(events: list[Event], strategy: str = "target") -> list[str]:
    return [text for event in events if isinstance(event, Step) and event.strategy == strategy for text in event.texts]


def loaded(folder: Path) -> LocalEngine:
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    return engine


@pytest.fixture
def folder_where(save_model: Any) -> Callable[[str], Path]:
    """A model whose answer to PROMPT has a word that its tokenizer writes as another."""

    def made(becomes: str) -> Path:
        folder: Path = save_model("target")
        before = texts(played(loaded(folder)))
        here = "".join(before[:FAILS_AT])
        other = texts(played(loaded(folder), OTHER))
        word = next(t for t in before[FAILS_AT:] if t.isprintable() and t.strip() and t not in here + "".join(other))
        slow_to_write(word, becomes).save_pretrained(folder)
        return folder

    return made


def test_a_panic_while_tokens_are_written_ends_every_run_in_one_line_with_its_text(
    folder_where: Callable[[str], Path], tmp_path: Path
) -> None:
    folder = folder_where(PANICS)
    engine = loaded(folder)
    for _ in range(2):
        events = played(engine)
        assert [end.reason for end in ends(events).values()] == [EndReason.ERROR] * 2
        assert {end.message for end in ends(events).values()} == {f"the tokenizer of {folder} cannot write {SAID}"}
        assert len(texts(events)) >= FAILS_AT and isinstance(events[-1], Finished)
        assert sum(isinstance(event, Checked) for event in events) == 2
        (answer,) = {e.answer for e in events if isinstance(e, Step) and e.strategy == "target" and e.answer}
        assert answer == "".join(texts(events))
    assert {end.reason for end in ends(played(engine, OTHER)).values()} == {EndReason.LENGTH}


def test_a_tokenizer_that_counts_beyond_its_text_is_blamed_in_words_of_ours(save_model: Any) -> None:
    rule = {"type": "Replace", "pattern": {"String": ""}, "content": "x"}
    folder: Path = save_model("target")
    file = folder / "tokenizer.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"normalizer": rule}))
    with pytest.raises(PromptError) as refused:
        played(loaded(folder))
    said = "cannot read this prompt: a rule in its files fails over it"
    assert str(refused.value) == f"the tokenizer of {folder} {said}"


def test_a_tokenizer_with_a_byte_order_mark_is_told_what_to_do(save_model: Any) -> None:
    folder: Path = save_model("target")
    file = folder / "tokenizer.json"
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes())
    with pytest.raises(LoadError, match="a JSON file of it begins with a byte order mark: save it without"):
        loaded(folder)


def test_a_panic_over_what_a_model_only_thought_of_ends_no_run(save_model: Any) -> None:
    folder = save_model("target")
    settings = replace(SETTINGS, insight=True, strategies=("target",), max_new_tokens=4)
    steps = [e for e in loaded(folder).run(PROMPT, settings, lambda: False) if isinstance(e, Step)]
    answer = "".join(text for step in steps for text in step.texts)
    thought_of = {id: text for step in steps for id, text in step.alternatives}
    id, word = next((i, t) for i, t in thought_of.items() if t.isprintable() and t.strip() and t not in answer + PROMPT)
    slow_to_write(word, PANICS).save_pretrained(folder)
    steps = [e for e in loaded(folder).run(PROMPT, settings, lambda: False) if isinstance(e, Step)]
    assert "".join(text for step in steps for text in step.texts) == answer
    assert dict(pair for step in steps for pair in step.alternatives)[id] == "\ufffd"
    assert steps[-1].record.reason is EndReason.LENGTH  # type: ignore[union-attr]


def test_a_tokenizer_that_takes_minutes_over_an_answer_stops_with_the_run(
    folder_where: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = loaded(folder_where(LONG))
    began = time.monotonic()
    events = played(engine, cancelled=lambda: time.monotonic() > began + 0.3)
    assert time.monotonic() - began < 20
    first, second = ends(events).values()
    assert (first.reason, first.message) == (EndReason.CANCELLED, "stopped while the tokenizer was at work")
    assert second.reason is EndReason.CANCELLED and len(texts(events)) >= FAILS_AT
    assert events[-1] == Finished(cancelled=True)
    monkeypatch.setattr(in_time, "SECONDS", 0.3)
    assert {end.reason for end in ends(played(engine)).values()} == {EndReason.ERROR}
    after = played(engine, OTHER)
    assert {end.reason for end in ends(after).values()} == {EndReason.LENGTH}
    notices = [event.record.message for event in after if isinstance(event, Step) and hasattr(event.record, "message")]
    assert [notice for notice in notices if "still at work beside this run" in notice]


def test_a_benchmark_keeps_what_it_measured_before_a_tokenizer_panics(
    folder_where: Callable[[str], Path], tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    folder, report = folder_where(PANICS), tmp_path / "report.json"
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "none.toml"))
    capfd.readouterr()
    command = ["bench", "--target", str(folder), "--device", "cpu", "--strategies", "target,lookup", "--no-chat"]
    command += ["--max-new-tokens", "12", "--ignore-eos", "--repeat", "1", "--warmup", "0", "--json", str(report)]
    assert cli.main([*command, "--prompt", OTHER, "--prompt", PROMPT]) == 1
    results = json.loads(report.read_text())["results"]
    assert [(result["strategy"], result["prompt_index"]) for result in results] == [("target", 0), ("lookup", 0)]
    shown = capfd.readouterr()
    assert f"target: the tokenizer of {folder} cannot write {SAID}" in shown.err
    assert "panicked" not in shown.err + shown.out and "Traceback" not in shown.err
