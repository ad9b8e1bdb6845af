"""A toy target with the demo tokenizer, and the tool on the import path."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_settings import TOY_TRAINING
from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

_TOKENIZER = ROOT / "specdec_tui" / "backends" / "demo_drafter"


@pytest.fixture(scope="session")
def target_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random Llama of two layers with grouped queries, in float32, saved by transformers."""
    folder = tmp_path_factory.mktemp("target")
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=49152,
        hidden_size=48,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=512,
        rms_norm_eps=1e-5,
        rope_parameters={"rope_type": "default", "rope_theta": 100000.0},
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        pad_token_id=2,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copyfile(_TOKENIZER / name, folder / name)
    return folder


@pytest.fixture(scope="session")
def reference(target_folder: Path) -> LlamaForCausalLM:
    """The toy target as transformers runs it."""
    return LlamaForCausalLM.from_pretrained(target_folder).eval()


@pytest.fixture(scope="session")
def tokenizer(target_folder: Path) -> Any:
    """The target's tokenizer."""
    return AutoTokenizer.from_pretrained(target_folder)


@pytest.fixture(scope="session")
def suite_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three held-out conversations of two kinds."""
    lines = [
        {"category": "question", "prompt": "Why do cats purr?"},
        {"category": "question", "prompt": "Who was Ada Lovelace?"},
        {"category": "multi-turn", "turns": ["Name three rivers.", "Which is the longest?"]},
    ]
    file = tmp_path_factory.mktemp("suite") / "suite.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def finished_run(target_folder: Path, suite_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run folder after `all`: 2 shards of 8 rows, 6 training steps, evaluation and export."""
    from distil_drafter import main

    run = tmp_path_factory.mktemp("run")
    common = ["--run", str(run), "--target", str(target_folder), "--device", "cpu"]
    writing = ["--batch", "8", "--length", "64", "--k", "16", "--tokens", "1000"]
    main(["generate", *common, "--prompts", str(suite_file), *writing])
    main(["train", *common, "--name", "toy", *TOY_TRAINING, "--tokens", str(6 * 4 * 64)])
    main(
        ["evaluate", *common, "--name", "toy", "--prompts", str(suite_file), "--new-tokens", "8", "--samples", "2"],
    )
    main(["export", *common, "--name", "toy", "--target-name", "maker/toy", "--target-licence", "MIT"])
    return run
