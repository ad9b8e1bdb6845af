"""Last stage: the drafter as a Hugging Face folder with its model card."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from distil.card import CARD_MARK, model_card
from distil.files import Refused, read_json, write_json
from distil.llama import read_config
from distil.openings import recipe
from distil.student import Student, hugging_face_state
from distil.train import load_student

MOST_BYTES = 34_000_000
"""What the weights may take: they travel inside a Python package."""

SHARD_BYTES = 16_000_000
"""Largest file, unless one tensor alone is larger (a tensor cannot be divided)."""

_TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "special_tokens_map.json",
    "vocab.json",
    "merges.txt",
)


def write_weights(state: dict[str, Tensor], folder: Path, shard_bytes: int = SHARD_BYTES) -> int:
    """Write bfloat16 safetensors, in as many files as needed, with an index; returns their bytes."""
    shards: list[dict[str, Tensor]] = [{}]
    filled = 0
    for name, value in state.items():
        tensor = value.to(torch.bfloat16).contiguous()
        if shards[-1] and filled + tensor.nbytes > shard_bytes:
            shards.append({})
            filled = 0
        shards[-1][name] = tensor
        filled += tensor.nbytes
    places: dict[str, str] = {}
    for n, shard in enumerate(shards, 1):
        file = "model.safetensors" if len(shards) == 1 else f"model-{n:05d}-of-{len(shards):05d}.safetensors"
        save_file(shard, folder / file, metadata={"format": "pt"})
        (folder / file).chmod(0o644)  # the library writes for the owner alone, and this is to be packaged
        places |= dict.fromkeys(shard, file)
    if len(shards) > 1:
        total = sum(tensor.nbytes for shard in shards for tensor in shard.values())
        index = {"metadata": {"total_size": total}, "weight_map": places}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


def drafter_config(student: Student, target_config: dict[str, Any]) -> dict[str, Any]:
    """config.json of the drafter: a standard Llama with the target's tokens."""
    shape = student.shape
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "vocab_size": shape.vocab,
        "hidden_size": shape.width,
        "intermediate_size": shape.mlp,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": target_config.get("max_position_embeddings", 2048),
        "rms_norm_eps": shape.eps,
        "rope_parameters": {"rope_type": "default", "rope_theta": shape.theta},
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": target_config.get("bos_token_id"),
        "eos_token_id": target_config.get("eos_token_id"),
        "pad_token_id": target_config.get("pad_token_id"),
    }


def check_out(folder: Path, run: Path, target: Path) -> None:
    """Refused unless `folder` may be written: missing, empty, or an earlier export and nothing else."""
    out = folder.resolve()
    for name, kept in (("target", target.resolve()), ("run", run.resolve())):
        if out == kept or out in kept.parents:
            raise Refused(f"--out {folder} holds the {name} folder: name another")
    if not out.exists():
        return
    if not out.is_dir():
        raise Refused(f"--out {folder} is a file: name a folder")
    found = sorted(file.name for file in out.iterdir())
    card = out / "README.md"
    ours = card.is_file() and CARD_MARK in card.read_text(encoding="utf-8", errors="replace")
    foreign = [name for name in found if not (ours and _is_written(name))]
    if foreign:
        some = ", ".join(foreign[:5]) + (f" and {len(foreign) - 5} more" if len(foreign) > 5 else "")
        raise Refused(f"--out {folder} holds what is no earlier export ({some}): name another folder, or clear it")


def _is_written(name: str) -> bool:
    written = (*_TOKENIZER_FILES, "config.json", "generation_config.json", "README.md", "model.safetensors.index.json")
    return name in written or re.fullmatch(r"model(-\d{5}-of-\d{5})?\.safetensors", name) is not None


def export(run: Path, name: str, target: Path, folder: Path, target_name: str, target_licence: str) -> int:
    """Write candidate `name` into `folder`; returns the bytes of its weights.

    Refused when they are too many, or `folder` holds anything but an earlier export. A new folder takes the
    place of the old one at the very end, so that a failure leaves the old one.
    """
    check_out(folder, run, target)
    student = load_student(run, name, target)
    state = hugging_face_state(student)
    size = 2 * sum(value.numel() for value in state.values())
    if size > MOST_BYTES:
        raise Refused(f"the weights take {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:.0f} MB: train a smaller one")
    models = run / "models" / name
    card = model_card(
        target_name,
        target_licence,
        read_json(run / "generation-settings.json", needed=["k", *recipe()]),
        read_json(run / "generation.json", needed=["tokens"]),
        read_json(models / "settings.json", needed=["kl", "tv", "top"]),
        read_json(models / "training.json", needed=["parameters"]),
        read_json(models / "evaluation.json"),
    )
    out = folder.resolve()
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{out.name}-", dir=out.parent) as scratch:
        new, old = Path(scratch, "new"), Path(scratch, "old")
        new.mkdir()
        size = _write(new, student, state, target, card)
        if out.exists():
            out.rename(old)
        try:
            new.rename(out)
        except BaseException:
            if old.exists():
                old.rename(out)
            raise
    return size


def _write(folder: Path, student: Student, state: dict[str, Tensor], target: Path, card: str) -> int:
    config = drafter_config(student, read_config(target))
    size = write_weights(state, folder)
    write_json(folder / "config.json", config)
    ids = {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")}
    write_json(folder / "generation_config.json", ids)
    for file in _TOKENIZER_FILES:
        if (target / file).exists():
            shutil.copyfile(target / file, folder / file)
    (folder / "README.md").write_text(card, encoding="utf-8")
    return size
