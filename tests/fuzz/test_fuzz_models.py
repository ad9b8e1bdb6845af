"""Config files of models of any content: loaded, or refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from campaign import campaign, check_refusal
from mutations import changed, damaged, nested
from tiny_transformers import tiny_model, tiny_tokenizer

from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.settings import ModelChoice, SettingError

NAMES = ("config.json", "config.json", "config.json", "tokenizer_config.json", "generation_config.json")


def test_model_folders(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    tiny_model("llama").save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    whole = {name: (folder / name).read_bytes() for name in set(NAMES) if (folder / name).exists()}
    choice = ModelChoice(target=str(folder), drafter=str(folder), device="cpu")

    def try_one(dice: Random) -> str:
        name = dice.choice([name for name in NAMES if name in whole])
        try:
            (folder / name).write_bytes(damaged_file(dice, whole[name]))
            load_pair(choice, lambda progress: None)
        except (LoadError, SettingError) as error:
            return check_refusal(error)
        finally:
            (folder / name).write_bytes(whole[name])
        return "loaded"

    campaign("model folders", try_one)


def damaged_file(dice: Random, data: bytes) -> bytes:
    match dice.randrange(6):
        case 0:
            return damaged(dice, data)
        case 1:
            return nested(dice).encode()
        case _:
            table = json.loads(data)
            for _ in range(dice.choice((1, 1, 2))):
                table = changed(dice, table)
            return json.dumps(table).encode()
