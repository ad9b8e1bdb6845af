"""The one table of commands: palette, key bindings, footer and help are all made from it.

A command without an argument is a row here. A setting needs no row: every field of
`settings.FIELDS` is a palette command of its own, with its value as the argument.
"""

from __future__ import annotations

from textual.binding import Binding

from specdec_tui.glossary import FATES, FIGURES
from specdec_tui.settings import STRATEGIES, WEIGHT_FORMS, parse_speed
from specdec_tui.several_drafters import key_of, shown
from specdec_tui.tui.commands.command import (
    ANYWHERE,
    EXPORTS,
    FIND,
    INSPECT,
    PROMPT,
    RACE,
    SIDE_BAR,
    TOUR,
    VIEWS,
    Command,
    check_export,
    check_trace,
    check_view,
    check_what_if,
    key_names,
)
from specdec_tui.tui.commands.examples import EXAMPLES


def _toggles() -> tuple[Command, ...]:
    return tuple(
        Command(
            f"toggle {name}",
            f"switch the strategy {name} on or off",
            f"toggle_strategy('{name}')",
            str(key_of(name)),
            also="baseline reference" if name == "target" else "",
        )
        for name in STRATEGIES
    )


def _pane_goers() -> tuple[Command, ...]:
    return (
        Command("next pane", "go to the next pane", "next_pane(1)", "tab"),
        Command("previous pane", "go to the previous pane", "next_pane(-1)", "shift+tab"),
        *(
            Command(
                f"go to {name}",
                f"go to the pane of {name}",
                f"go_to_pane('{name}')",
                f"alt+{key_of(name)}",
                also="baseline reference" if name == "target" else "",
            )
            for name in STRATEGIES
        ),
    )


def _scrolls() -> tuple[Command, ...]:
    """Where no pane has the focus; one that has it takes these keys itself."""
    ways = (
        ("page down", "pagedown", "page_down"),
        ("page up", "pageup", "page_up"),
        ("to the start", "home", "scroll_home"),
        ("to the end", "end", "scroll_end"),
    )
    return tuple(
        Command(name, f"scroll the current pane {name}", f"scroll_pane('{how}')", key, in_palette=False)
        for name, key, how in ways
    )


def _cursor_moves() -> tuple[Command, ...]:
    moves = (
        ("next token", "right", "next"),
        ("previous token", "left", "previous"),
        ("next line or round", "down", "down"),
        ("previous line or round", "up", "up"),
        ("next round", "right_square_bracket,ctrl+right", "next_round"),
        ("previous round", "left_square_bracket,ctrl+left", "previous_round"),
        ("first token", "home", "first"),
        ("last token", "end", "last"),
    )
    rejections = (("next rejection", "n", 1), ("previous rejection", "N", -1))
    goers = tuple(
        Command(name, f"{name} of this pane, and why", f"go_to_rejection({by})", key, INSPECT, in_palette=False)
        for name, key, by in rejections
    )
    goers += (
        Command(
            "first difference",
            "first token that the target (or next pane) has otherwise",
            "go_to_difference",
            "d",
            INSPECT,
            in_palette=False,
        ),
    )
    pages = (("next page", "pagedown", 1), ("previous page", "pageup", -1))
    turns = tuple(
        Command(
            f"{name} of the inspector",
            f"{name} of the inspector",
            f"turn_inspector({by})",
            key,
            INSPECT,
            in_palette=False,
        )
        for name, key, by in pages
    )
    return (
        turns
        + goers
        + tuple(
            Command(name, name, f"move_cursor('{how}')", keys, INSPECT, in_palette=False) for name, keys, how in moves
        )
    )


def _examples() -> tuple[Command, ...]:
    told = [(number, one, f"run an example: {one.kind}") for number, one in enumerate(EXAMPLES)]
    return (
        *(Command(f"example {one.kind}", help, f"example({n})", one.key, also="try demo") for n, one, help in told),
        *(
            Command(f"try {one.kind}", f"{help} (panes still empty)", f"try_example({n})", one.letter, in_palette=False)
            for n, one, help in told
        ),
    )


def _race_moves() -> tuple[Command, ...]:
    moves = (
        ("pause the race", "pause or go on; at its end: once more", "pause", "space"),
        ("next round of the race", "the chosen strategy's next round", "round(1)", "right"),
        ("previous round of the race", "the chosen strategy's round before", "round(-1)", "left"),
        ("back in the race", "a tenth of the race back", "jump(-1)", "left_square_bracket,shift+left"),
        ("on in the race", "a tenth of the race on", "jump(1)", "right_square_bracket,shift+right"),
        ("to the start of the race", "to its start", "end(-1)", "home"),
        ("to the end of the race", "to its end", "end(1)", "end"),
        ("next lane", "choose the next lane (a pane's own, inside one: tab)", "lane(1)", "down"),
        ("previous lane", "choose the lane before", "lane(-1)", "up"),
    )
    return tuple(
        Command(name, help, f"race_{action}", keys, RACE, in_palette=False) for name, help, action, keys in moves
    )


# Words on the screen that the help explains; γ leads to its setting.
_EXPLAINED = " ".join(
    ["keys shortcuts glossary legend letters tau alpha entropy coin probability", *(FIGURES.keys() - {"γ"}), *FATES]
)
_BIGGER = "zoom full fullscreen maximize bigger larger enlarge"

# Nothing destructive may come first: `enter` on the freshly opened palette runs the first row.
COMMANDS: tuple[Command, ...] = (
    Command("help", "keys, commands and settings", "help", "f1", ANYWHERE, also=_EXPLAINED),
    Command("help on a plain key", "the same help", "help", "h", in_palette=False),
    Command(
        "tour",
        "eight steps: what happens here, why, and when it pays",
        "tour",
        "question_mark",
        also="guide learn tutorial introduction lesson",
    ),
    Command("next step", "go on with the tour", "tour_step(1)", "space,enter", TOUR, in_palette=False),
    Command("step before", "go back in the tour", "tour_step(-1)", "backspace", TOUR, in_palette=False),
    Command("run", "run the prompt in the box", "submit", "enter", PROMPT),
    Command("new line", "begin a new line", "newline", "ctrl+j", PROMPT, in_palette=False),
    Command("undo", "take back what was typed", "undo", "ctrl+underscore,ctrl+slash", PROMPT, in_palette=False),
    Command("redo", "type it again", "redo", "ctrl+y", PROMPT, in_palette=False),
    Command("earlier prompts", "search the prompts you have run before", "earlier_prompts", "ctrl+r", PROMPT),
    Command("panes", "leave the prompt box", "leave_prompt", "escape", PROMPT, in_palette=False),
    Command("prompt", "go to the prompt box", "focus_prompt", "slash"),
    *_examples(),
    *_toggles(),
    *_pane_goers(),
    *_scrolls(),
    Command("run again", "run the last prompt again", "run_again", "r", also="repeat retry rerun disturbed"),
    Command(
        "view",
        f"next view: {', '.join(VIEWS)}",
        "cycle_view",
        "v",
        argument="one of " + ", ".join(VIEWS),
        values=VIEWS,
        check=check_view,
        also="plot chart graph speedups seconds shares where",
    ),
    Command(
        "refused drafts",
        "show refused drafts and seams of rounds in the text, or not",
        "toggle_drafts",
        "x",
        also="rejected unverified",
    ),
    Command(
        "inspect",
        "look into one token: chances, draw, alternatives",
        "inspect",
        "i",
        also="why explain raw processed residual accept logits",
    ),
    Command("find", "find text in the current pane", "find", "f,ctrl+f", also="search"),
    Command("copy", "copy the current pane's answer, or what is selected in it", "copy", "y", also="clipboard yank"),
    Command(
        "table",
        "show or hide the comparison table; in a race: its lanes",
        "toggle_table",
        "t",
        also="compare summary results figures numbers speedup speedups baseline fastest winner statistics stats metrics"
        " α τ alpha tau acceptance predicted measured lossless identical prefill drafted wasted",
    ),
    Command(
        "pin",
        "pin the figures of all panes: later runs say how they differ",
        "pin",
        "p",
        also="baseline a/b ab compare difference delta",
    ),
    Command("unpin", "forget what was pinned", "unpin", "P"),
    Command("more drafts", "one more draft token per round", "change_gamma(1)", "plus,equals_sign"),
    Command("fewer drafts", "one draft token less per round", "change_gamma(-1)", "minus"),
    Command(
        "lab",
        "what another gamma would bring, predicted and measured",
        "lab",
        "g",
        also="laboratory forecast curve sweep best predicted break-even what-if cost",
    ),
    Command(
        "race",
        "play the finished panes together in true time, and end it",
        "race",
        "R",
        argument="a speed: 1 is true time, 0.1 ten times slower",
        values=("1", "0.05", "0.1", "0.25", "0.5", "2", "4", "8", "16"),
        check=parse_speed,
        also="speed replay lanes pause step seek",
    ),
    Command(
        "what if",
        "the current pane's text anew with another setting, in a pane beside it",
        "what_if",
        argument="a setting and its value: weights expanded",
        values=tuple(f"weights {form}" for form in WEIGHT_FORMS),
        check=check_what_if,
        also="whatif counterfactual branch fork packed unpacked",
    ),
    Command("slower race", "half the speed of the race", "race_speed(-1)", "comma"),
    Command("faster race", "twice the speed of the race", "race_speed(1)", "full_stop"),
    Command("history", "runs that were kept: open, race, compare, export, delete", "history", "H", also="remove"),
    Command("open trace", "open a trace file", "open_trace", argument="a file", check=check_trace, also="load"),
    Command(
        "export",
        "write what the panes show to a file",
        "export",
        "e",
        argument="json, csv, svg or html, and a file",
        values=EXPORTS,
        check=check_export,
        also="report screenshot picture image",
    ),
    Command("models", "choose and load a pair of models", "models", "m", also="pair open hub huggingface gguf path"),
    Command("settings", "show or hide the side bar", "toggle_side_bar", "s", also="options preferences config"),
    Command("maximise", "one pane on the whole screen, and back", "toggle_maximise", "z", also=_BIGGER),
    Command("commands", "set anything", "commands", "ctrl+p", ANYWHERE, in_palette=False),
    Command(
        "stop or quit",
        "stop the run and keep its text (pressed again: quit)",
        "stop_or_quit",
        "ctrl+c",
        in_palette=False,
    ),
    Command("stop", "stop the run and keep its text", "stop", also="cancel abort"),
    Command("suspend", "back to the shell; fg there comes back", "suspend", "ctrl+z", ANYWHERE, also="job background"),
    Command("new chat", "forget the conversation", "new_chat", "n", also="clear reset", is_final=True),
    Command("quit", "leave the app", "quit", "ctrl+q", ANYWHERE, also="exit close bye", is_final=True),
    *_race_moves(),
    *_cursor_moves(),
    Command(
        "branch",
        "what if: go on from this token otherwise",
        "branch",
        "b",
        INSPECT,
        also="alternative fork counterfactual whatif",
    ),
    Command("next match", "the next place where the text is found", "step(1)", "enter,down", FIND, in_palette=False),
    Command("previous match", "the place before", "step(-1)", "up,shift+enter", FIND, in_palette=False),
    Command("another text", "find another text", "again", "ctrl+f", FIND, in_palette=False),
    Command("close the search", "close it and stay there", "close", "escape", FIND, in_palette=False),
    Command("next setting", "go to the next setting", "app.focus_next", "tab", SIDE_BAR, in_palette=False),
    Command("previous setting", "go to the one before", "app.focus_previous", "shift+tab", SIDE_BAR, in_palette=False),
    Command(
        "step out",
        "out of the search, inspector, side bar, pane, race or trace",
        "step_out",
        "escape",
        in_palette=False,
    ),
)


def commands_with(drafters: int) -> tuple[Command, ...]:
    """Those that there are for a person with so many drafters."""
    hidden = {f"{verb} {name}" for name in STRATEGIES if name not in shown(drafters) for verb in ("toggle", "go to")}
    return tuple(command for command in COMMANDS if command.name not in hidden)


BY_NAME = {command.name: command for command in COMMANDS}


def key(name: str) -> str:
    """The first key of a command, for a sentence that tells a person to press it."""
    return key_names(BY_NAME[name])[0]


def bindings(*scopes: str) -> list[Binding]:
    """Textual bindings of the commands in `scopes`; ids are the commands', for a user's keymap."""
    return [
        Binding(
            command.keys,
            command.action,
            command.name,
            show=False,
            priority=command.scope == ANYWHERE,
            tooltip=command.help,
            id=command.id,
        )
        for command in COMMANDS
        if command.keys and command.scope in scopes
    ]
