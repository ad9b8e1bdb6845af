"""What empty panes say: what their strategy does, what will happen, and while models load, how far that is."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from specdec_tui.glossary import STRATEGIES
from specdec_tui.tui.commands.header import one_row

EXAMPLES = ("Why is the sky blue?", "Write a Python function that reverses a list.", "List five famous scientists.")


def welcome(strategy: str, number: int | None) -> Content:
    """What a strategy does, and its key; None: it has none here."""
    key = "" if number is None else f"{number} switches it on and off (outside the prompt)"
    return Content.assemble(STRATEGIES.get(strategy, ""), ("\n" + key, "$text-muted"))


def obstacle(why: str) -> Content:
    """Why no prompt can run, and what can be done."""
    keys = "m loads models, H opens a trace (escape first)."
    return Content.assemble("\n\n", (one_row(why), "$text-warning"), "\n", keys)


def invitation(off: Sequence[tuple[int, str]], stage: str) -> Content:
    """What to do, what that will do, which strategies are off, and at what a load is (nothing: none is at work)."""
    parts: list[str | tuple[str, str]] = []
    if stage:
        parts += [("\n\nLoading the models: ", "$text-warning"), stage, "\nA prompt can be typed meanwhile."]
    parts += ["\n\nType a prompt and press enter: every pane runs it, and each token takes the colour of its fate."]
    if off:
        names = ", ".join(f"{number} {name}" for number, name in off)
        parts.append((f"\nOff now: {names}. Escape leaves the prompt, then the number brings it back.", "$text-muted"))
    parts += ["\nFor example: ", ("\n".join(EXAMPLES), "$text-primary")]
    return Content.assemble(*parts)
