"""Files of a run folder, written so that an interruption leaves the old one or the new one."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch

_LOST = "nobody knows now how this was made, so start again with another --name or --run"


class Refused(ValueError):
    """What cannot be done, and what would help: one line for the user."""


def damaged(path: Path, why: object) -> Refused:
    """The refusal of a file of a run that cannot be read."""
    again = _LOST if path.name.endswith("settings.json") else "delete it and run the stage that writes it again"
    return Refused(f"{path} is damaged ({brief(why)}): {again}")


def brief(why: object) -> str:
    """The beginning of a message, on one line."""
    text = " ".join(str(why).split())
    return text if len(text) <= 200 else text[:200].rsplit(" ", 1)[0] + " …"


def write_json(path: Path, value: Any) -> None:
    """Write `value` as indented JSON, in one step as seen by any reader."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    os.replace(part, path)


def read_json(path: Path, needed: Iterable[str] = ()) -> dict[str, Any]:
    """The object in a JSON file; without `needed` keys it may be missing, and counts as an empty one."""
    if not path.exists():
        if needed:
            lost = path.name.endswith("settings.json")
            raise Refused(f"{path} is missing: {_LOST if lost else 'run the stage that writes it again'}")
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise damaged(path, error) from error
    if not isinstance(value, dict):
        raise damaged(path, "no JSON object")
    missing = [key for key in needed if key not in value]
    if missing:
        raise damaged(path, f"{', '.join(missing)} missing")
    return value


def save_tensors(path: Path, value: dict[str, Any]) -> None:
    """`torch.save`, in one step as seen by any reader."""
    part = path.with_name(f"{path.name}.part")
    torch.save(value, part)
    os.replace(part, path)


def load_tensors(path: Path, mmap: bool = False) -> dict[str, Any]:
    """What `save_tensors` wrote, on the CPU; with `mmap` pages are read when they are touched."""
    try:
        value: dict[str, Any] = torch.load(path, map_location="cpu", mmap=mmap, weights_only=True)
    except Exception as error:  # zip, pickle and torch each have errors of their own for half a file
        raise damaged(path, str(error) or type(error).__name__) from error
    return value


def check_settings(path: Path, settings: dict[str, Any], begun: bool) -> None:
    """Refused when this folder was begun with other settings, which are named.

    Results of two settings must not mix in one folder; `begun` says that it holds results already.
    """
    if not path.exists():
        if begun:
            raise Refused(f"{path} is missing: {_LOST}")
        return
    before, wanted = read_json(path), json.loads(json.dumps(settings))
    changed = sorted(name for name in before.keys() | wanted.keys() if before.get(name) != wanted.get(name))
    if changed:
        told = ", ".join(f"{name}: {before.get(name)} before, {wanted.get(name)} now" for name in changed)
        raise Refused(f"{path} was begun with other settings ({told}); use the same, or another --name or --run")
