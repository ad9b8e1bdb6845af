"""Files of models of any content: every strategy runs and gives the target's text, or they are refused in one line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest
from campaign import campaign, check_refusal, check_words
from mutations import changed, damaged, nested
from tiny_transformers import tiny_model, tiny_tokenizer

from specdec_tui.backends import chat_template
from specdec_tui.backends.pair import LoadError, PromptError
from specdec_tui.decoding.records import Checked, EndReason, Event, LosslessStatus, Notice, RunEnded, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import STRATEGIES, ModelChoice, SettingError, Settings

KINDS = ("llama", "gpt2", "qwen3")
INDEX = "model.safetensors.index.json"
NAMES = (
    *("config.json",) * 4,
    *("tokenizer_config.json", "generation_config.json") * 2,
    *("tokenizer.json", "chat_template.jinja", "model.safetensors", INDEX),
)
SETTINGS = Settings(strategies=STRATEGIES, max_new_tokens=6, gamma=3, seed=1)


def test_model_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_template, "SECONDS", 2)
    campaign("model folders", model_folders(tmp_path))


def model_folders(root: Path) -> Callable[[Random], str]:
    wholes = {kind: saved(root / kind, kind) for kind in KINDS}

    def try_one(dice: Random) -> str:
        kind, other = dice.sample(KINDS, 2)
        target, drafter = (kind, other) if dice.random() < 0.7 else (other, kind)
        choice = ModelChoice(target=str(root / target), drafter=str(root / drafter), device="cpu")
        name = dice.choice(NAMES)
        try:
            (root / kind / name).write_bytes(damaged_file(dice, wholes[kind][name]))
            engine = LocalEngine()
            info = engine.load(choice, lambda progress: None)
            check_words(*info.notes, *info.target.notices, *(info.drafter.notices if info.drafter else ()))
            return checked(engine.run("why is the sky", SETTINGS, lambda: False))
        except (LoadError, SettingError, PromptError) as error:
            return check_refusal(error)
        finally:
            (root / kind / name).write_bytes(wholes[kind][name])
            (root / kind / INDEX).unlink(missing_ok=True)

    return try_one


def saved(folder: Path, kind: str) -> dict[str, bytes]:
    """Makes a model's folder, and gives its files; an index stands in it only where one is tried."""
    tiny_model(kind).save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    (folder / INDEX).write_text(json.dumps({"metadata": {}, "weight_map": {"model.norm.weight": "model.safetensors"}}))
    files = {name: (folder / name).read_bytes() for name in set(NAMES)}
    (folder / INDEX).unlink()
    return files


def checked(events: Iterable[Event]) -> str:
    """The outcome of a run, whose words a terminal may be given and whose texts are the target's."""
    outcome = "ran"
    for event in events:
        match event:
            case Step(record=Notice(message=words)):
                check_words(words)
            case Step(record=RunEnded(reason=reason, message=words)):
                check_words(words)
                if reason is EndReason.ERROR:
                    assert words, "failed without a word"
                    outcome = "failed in words"
            case Checked(strategy=strategy, lossless=lossless):
                check_words(lossless.detail)
                assert lossless.status is not LosslessStatus.DIFFERENT, f"{strategy} is different: {lossless}"
    return outcome


def damaged_file(dice: Random, data: bytes) -> bytes:
    try:
        table = json.loads(data)
    except ValueError:
        return damaged(dice, data)
    match dice.randrange(6):
        case 0:
            return damaged(dice, data)
        case 1:
            return nested(dice).encode()
        case _:
            for _ in range(dice.choice((1, 1, 2))):
                table = changed(dice, table)
            return json.dumps(table).encode()
