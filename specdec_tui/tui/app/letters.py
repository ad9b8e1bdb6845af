"""The plain letters of the examples: they count while the panes are empty, later a slip would replace a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specdec_tui.tui.commands.command import keys_of
from specdec_tui.tui.commands.table import BY_NAME, key

if TYPE_CHECKING:
    from specdec_tui.tui.commands.examples import Example


def instead_of(example: Example) -> str:
    """What the letter of an example says where it does nothing: another meaning that it has, or the key that does."""
    if set(keys_of(BY_NAME[f"try {example.kind}"])) & set(keys_of(BY_NAME["branch"])):
        return f"{key('inspect')} inspects a token, then {key('branch')} goes on from it otherwise"
    return f"{key(f'example {example.kind}')} runs the example: {example.kind}"
