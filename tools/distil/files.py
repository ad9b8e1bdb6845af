"""Files of a run folder, written so that an interruption leaves the old one or the new one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import torch


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, in one step as seen by any reader."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file, or an empty one when there is no such file."""
    if not path.exists():
        return {}
    value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return value


def save_tensors(path: Path, value: dict[str, Any]) -> None:
    """`torch.save`, in one step as seen by any reader."""
    part = path.with_name(f"{path.name}.part")
    torch.save(value, part)
    os.replace(part, path)


def load_tensors(path: Path, mmap: bool = False) -> dict[str, Any]:
    """What `save_tensors` wrote, on the CPU; with `mmap` pages are read when they are touched."""
    value: dict[str, Any] = torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)
    return value


def keep_settings(path: Path, settings: dict[str, Any]) -> None:
    """Write settings, or check that they are the ones this folder was begun with.

    SystemExit names the settings that differ: results of two settings must not mix in one folder.
    """
    before = read_json(path)
    wanted = json.loads(json.dumps(settings))
    if not before:
        write_json(path, wanted)
        return
    changed = sorted(name for name in wanted if before.get(name) != wanted[name])
    if changed:
        told = ", ".join(f"{name}: {before.get(name)} before, {wanted[name]} now" for name in changed)
        raise SystemExit(f"{path} was begun with other settings ({told}); name another folder or use the same.")
