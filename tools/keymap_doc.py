"""Writes the table of ids in docs/keymap.md anew, from the table of commands: `python tools/keymap_doc.py`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from specdec_tui.tui.commands.command import key_names
from specdec_tui.tui.commands.table import COMMANDS

DOCUMENT = Path(__file__).parents[1] / "docs" / "keymap.md"
HEAD = "| id | keys | scope | what it does |"


def table() -> Iterator[str]:
    """Its lines, one for each command with a key."""
    yield HEAD
    yield "|---|---|---|---|"
    for command in COMMANDS:
        if command.keys:
            keys = ", ".join(f"`{name}`" for name in key_names(command))
            yield f"| `{command.id}` | {keys} | {command.scope} | {command.help} |"


def written() -> str:
    """The document as it should be."""
    before = DOCUMENT.read_text(encoding="utf-8").partition(HEAD)[0]
    return before + "\n".join(table()) + "\n"


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")
