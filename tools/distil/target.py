"""Which target a folder holds, whatever the folder is called."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from pathlib import Path

from distil.files import Refused, read_json

_DEMO_WEIGHTS = "a672150fb4f99d7c8f4168cecdd464069c0ef3a37d8113f22ddb9d48031d03cd"
"""SHA-256 of the demo target's model.safetensors, as `tools/expand_demo.py` writes it."""

_DEMO = ("HuggingFaceTB/SmolLM2-135M-Instruct", "Apache-2.0")


def fingerprint(folder: Path) -> str:
    """SHA-256 over the config and all weights."""
    total = hashlib.sha256()
    for file in [folder / "config.json", *sorted(folder.glob("*.safetensors"))]:
        total.update(f"{file.name} {_sha256(file)}\n".encode())
    return total.hexdigest()


def check_target(run: Path, target: Path) -> None:
    """Refused unless `target` wrote the text of `run`."""
    wrote = read_json(run / "generation-settings.json", needed=["target_sha256"])["target_sha256"]
    if wrote != fingerprint(target):
        raise Refused(f"{target} is not the target that wrote the text in {run}: name that one, or another run folder")


def name_and_licence(target: Path, name: str | None, licence: str | None) -> tuple[str, str]:
    """What the card says of the target; Refused unless both are given or the weights are the demo target's."""
    if name and licence:
        return name, licence
    weights = target / "model.safetensors"
    if not weights.exists() or _sha256(weights) != _DEMO_WEIGHTS:
        raise Refused("name --target-name and --target-licence for the model card: only the demo target's are known")
    return name or _DEMO[0], licence or _DEMO[1]


def _sha256(file: Path) -> str:
    status = file.stat()
    return _digest(file, status.st_size, status.st_mtime_ns)


@lru_cache
def _digest(file: Path, size: int, changed: int) -> str:
    with file.open("rb") as source:
        return hashlib.file_digest(source, "sha256").hexdigest()
