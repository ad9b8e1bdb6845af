"""Write the demo target as a Hugging Face folder in float32 (538 MB), for programs that read no GGUF files.

    python tools/expand_demo.py FOLDER

Its weights are those of the GGUF file to the last bit; the tokenizer is the built-in drafter's, which is the same.
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from transformers import LlamaForCausalLM

from specdec_tui.backends.demo import drafter_folder, target_file
from specdec_tui.backends.gguf.config import config_of
from specdec_tui.backends.gguf.expanded import state_of
from specdec_tui.backends.gguf.files import GgufFile

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def write_folder(gguf: Path, folder: Path) -> None:
    """The model of a Llama GGUF file that has the demo's tokens, in `folder`, which is made."""
    file = GgufFile(gguf)
    config = config_of(file)
    state = state_of(file, config, torch.float32)
    LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state).save_pretrained(folder)
    for name in _TOKENIZER_FILES:
        shutil.copyfile(drafter_folder() / name, folder / name)


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="folder to write; it must not be there")
    folder: Path = parser.parse_args(words).folder
    if folder.exists():
        parser.error(f"{folder} is there already: name a new folder")
    write_folder(target_file(lambda step: None), folder)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
