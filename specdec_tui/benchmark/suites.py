"""Prompts to measure with: the built-in suite, the command line's, or a JSON-lines file."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

from specdec_tui.doors.reading import MEGABYTE, read_text
from specdec_tui.settings import SettingError, quoted, reason_of, whole_characters

LARGEST_SUITE = 64 * MEGABYTE


@dataclass(frozen=True, slots=True)
class Prompt:
    """One conversation to measure: a prompt, or several user turns."""

    turns: tuple[str, ...]
    category: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "turns", tuple(map(whole_characters, self.turns)))


SUITES = ("everyday", "heldout")


def builtin_suite(name: str = "everyday") -> list[Prompt]:
    """A suite of our own prompts (Apache-2.0 like the rest); SettingError for an unknown name.

    `everyday`: eight prompts of seven kinds. `heldout`: 66 of six kinds, eleven each, which the
    training of the built-in drafter never sees.
    """
    if name not in SUITES:
        raise SettingError(f"suite: {quoted(name)} is not one of {', '.join(SUITES)}")
    text = files("specdec_tui.benchmark").joinpath(f"{name}.jsonl").read_text(encoding="utf-8")
    return _parse(text, f"the built-in suite {name}")


def read_suite(path: Path) -> list[Prompt]:
    """Prompts of a JSON-lines file; SettingError names the first line that is wrong."""
    try:
        text = read_text(path, most=LARGEST_SUITE)
    except OSError as error:
        raise SettingError(f"prompts: cannot read {path}: {reason_of(error)}") from None
    return _parse(text, str(path))


def _parse(text: str, source: str) -> list[Prompt]:
    prompts = [_parse_line(line, f"{source} line {n}") for n, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not prompts:
        raise SettingError(f"prompts: {source} holds no prompt")
    return prompts


def _parse_line(line: str, where: str) -> Prompt:
    allowed = 'a JSON object with "prompt" (text) or "turns" (list of texts), and optionally "category"'
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):  # the latter: nested too deeply
        entry = None
    if not isinstance(entry, dict):
        raise SettingError(f"prompts: {where} is not {allowed}")
    turns = entry["turns"] if "turns" in entry else [entry.get("prompt")]
    category = entry.get("category", "")
    if (
        not isinstance(turns, list)
        or not turns
        or not all(isinstance(turn, str) and turn.strip() for turn in turns)
        or not isinstance(category, str)
    ):
        raise SettingError(f"prompts: {where} is not {allowed}")
    return Prompt(tuple(turns), category)
