"""What empty panes say: what their strategy does, what will happen, and while models load, how far that is."""

from __future__ import annotations

from collections.abc import Sequence

from textual.content import Content

from specdec_tui.glossary import STRATEGIES
from specdec_tui.tui.commands.command import key_names
from specdec_tui.tui.commands.examples import EXAMPLES
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import BY_NAME, key

_OR = "Or press "


def welcome(strategy: str, has_key: bool) -> Content:
    """What a strategy does, and its key, if it has one here."""
    told = f"{key(f'toggle {strategy}')} switches it on and off (outside the prompt)" if has_key else ""
    return Content.assemble(STRATEGIES.get(strategy, ""), ("\n" + told, "$text-muted"))


def obstacle(why: str) -> Content:
    """Why no prompt can run, and what can be done."""
    keys = f"{key('models')} loads models, {key('history')} opens a trace ({key('panes')} first)."
    return Content.assemble("\n\n", (one_row(why), "$text-warning"), "\n", keys)


def invitation(off: Sequence[str], stage: str, is_new: bool = True) -> Content:
    """What to do, what that will do, which strategies are off, and at what a load is (nothing: none is at work).

    `is_new`: whether a person has not gone through the tour yet.
    """
    parts: list[str | tuple[str, str]] = []
    if stage:
        parts += [("\n\nLoading the models: ", "$text-warning"), stage, "\nA prompt can be typed meanwhile."]
    # A low pane ends anywhere: each line says something by itself, and what leads on comes first.
    tour = "\n\nNew here? ", (f"{key('panes')}, then {key('tour')}", "bold $text-primary"), ": a guided tour."
    parts += tour if is_new else ["\n"]
    parts += [
        f"\nType a prompt and press {key('run')}: every pane runs it, and each token takes the colour of its fate."
    ]
    for index, one in enumerate(EXAMPLES):
        anywhere, plain = (key_names(BY_NAME[f"{verb} {one.kind}"]) for verb in ("example", "try"))
        parts += [f"\n{' ' * len(_OR) if index else _OR}", (anywhere[0], "bold $text-primary")]
        parts += [(f" {' '.join(plain)}  ", "$text-muted"), one.prompt]
    if off:
        names = ", ".join(f"{key(f'toggle {name}')} {name}" for name in off)
        parts.append(
            (f"\nOff now: {names}. {key('panes')} leaves the prompt, then the key brings it back.", "$text-muted")
        )
    return Content.assemble(*parts)
