"""Configs of main families with one field changed: they run as their target does, or are refused with the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from typing import Any

from campaign import campaign, check_refusal, check_told
from mutations import like, value
from test_fuzz_models import checked
from tiny_transformers import tiny_model, tiny_tokenizer

from specdec_tui.backends.pair import LoadError, PromptError
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, SettingError, Settings

FAMILIES = ("llama", "qwen2", "qwen3", "mistral", "phi3", "gemma2", "gemma3", "gpt2", "mixtral", "gpt_neox", "opt")
ODD = (None, "", "x", -1, 0, 0.5, 1e308, 10**30, float("nan"), float("inf"), True, False, [], [1], {}, {"a": 1})
# Fields that a config may have beside those that a family writes.
MORE: dict[str, Any] = {
    "return_dict": True,
    "torchscript": False,
    "output_hidden_states": False,
    "output_attentions": False,
    "torch_dtype": "float32",
    "id2label": {"0": "a"},
    "num_labels": 1,
    "rope_scaling": None,
    "rope_theta": 10000.0,
}
SETTINGS = Settings(strategies=("target", "lookup"), max_new_tokens=4, gamma=3, seed=1)


def test_config_values(tmp_path: Path) -> None:
    campaign("config values", config_values(tmp_path))


def config_values(root: Path) -> Callable[[Random], str]:
    wholes: dict[str, dict[str, Any]] = {}
    for family in FAMILIES:
        tiny_model(family).save_pretrained(root / family)
        tiny_tokenizer().save_pretrained(root / family)
        wholes[family] = json.loads((root / family / "config.json").read_text())

    def try_one(dice: Random) -> str:
        family = dice.choice(FAMILIES)
        fields = deepcopy(wholes[family])
        path = dice.choice(list(paths(MORE | fields)))
        if path[0] not in fields:
            fields[path[0]] = deepcopy(MORE[path[0]])
        part = fields
        for name in path[:-1]:
            part = part[name]
        part[path[-1]] = dice.choice((dice.choice(ODD), like(dice, part[path[-1]]), value(dice)))
        (root / family / "config.json").write_text(json.dumps(fields))
        try:
            engine = LocalEngine()
            info = engine.load(ModelChoice(target=str(root / family), device="cpu"), lambda progress: None)
            check_told(*info.notes)
            return checked(engine.run("why is the sky", SETTINGS, lambda: False))
        except (LoadError, SettingError, PromptError) as error:
            return check_refusal(error)

    return try_one


def paths(fields: dict[str, Any], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, held in fields.items():
        yield (*before, name)
        if isinstance(held, dict):
            yield from paths(held, (*before, name))
