"""The one table of commands: palette, key bindings, footer and help are all made from it.

A command without an argument is a row here. A setting needs no row: every field of
`settings.FIELDS` is a palette command of its own, with its value as the argument.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from textual.binding import Binding

from specdec_tui.doors.reading import refuse_other_kinds
from specdec_tui.glossary import FATES, FIGURES
from specdec_tui.settings import STRATEGIES, SettingError, parse_path, parse_speed, quoted, reason_of
from specdec_tui.several_drafters import key_of, shown
from specdec_tui.tui.commands.paths import status_in_time

VIEWS = ("text", "rounds", "tree", "charts")
"""What a pane can show."""

EXPORTS = ("json", "csv", "svg", "html")
"""What a run can be written as."""
_EXPORT_WORDS = {"picture": "svg", "screenshot": "svg", "report": "html", "trace": "json", "table": "csv"}

APP = "app"
"""Scope of keys that count when no text box has the focus."""
ANYWHERE = "anywhere"
"""Scope of keys that count inside text boxes and dialogs too."""
PROMPT = "prompt"
"""Scope of keys that count inside the prompt box only."""

INSPECT = "inspect"
"""Scope of keys that count in a pane while one of its tokens is inspected."""
FIND = "find"
"""Scope of keys that count in the line that finds text."""
SIDE_BAR = "side bar"
"""Scope of keys that count in the side bar."""


@dataclass(frozen=True)
class Command:
    """`name` is typed in the palette, `action` is an action of the app.

    `keys` are Textual's key names, comma separated. In the palette an `argument` may follow the name
    (`values` are suggestions); the action then gets it as text. `check` raises SettingError for one that
    is not valid. `also` are other words that find it; `is_final`: it cannot be undone.
    """

    name: str
    help: str
    action: str
    keys: str = ""
    scope: str = APP
    in_palette: bool = True
    argument: str = ""
    values: tuple[str, ...] = ()
    check: Callable[[str], object] = str
    also: str = ""
    is_final: bool = False

    @property
    def id(self) -> str:
        return self.name.replace(" ", "-")

    def action_with(self, argument: str) -> str:
        """The action for an argument as typed."""
        return f"{self.action.partition('(')[0]}({argument!r})"


def following_view(view: str) -> str:
    """The view behind `view`, the first behind the last."""
    return VIEWS[(VIEWS.index(view) + 1) % len(VIEWS)]


def check_view(text: str) -> None:
    """SettingError when there is no such view."""
    if text not in VIEWS:
        raise SettingError(f"view: '{text}' is not valid: give one of {', '.join(VIEWS)}")


def export_kind(word: str) -> str:
    """The format that a word stands for, itself if it is none."""
    return _EXPORT_WORDS.get(word, word)


def check_export(text: str) -> None:
    """SettingError when a run cannot be written so: `text` is a format and perhaps a file."""
    kind = text.partition(" ")[0]
    if export_kind(kind) not in EXPORTS:
        raise SettingError(f"export: '{kind}' is not valid: give one of {', '.join(EXPORTS)}, and a file")


def check_trace(text: str) -> None:
    """SettingError where there is no such file, or none that may be looked at, as far as that can be known at once."""
    path = parse_path(text)
    try:
        if (status := status_in_time(path)) is not None:
            refuse_other_kinds(status, path)
    except OSError as error:
        reason = "there is no such file" if isinstance(error, FileNotFoundError) else reason_of(error)
        raise SettingError(f"open trace: {quoted(text)}: {reason}: give a file") from None


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
    return turns + tuple(
        Command(name, name, f"move_cursor('{how}')", keys, INSPECT, in_palette=False) for name, keys, how in moves
    )


# Words on the screen that the help explains; γ leads to its setting.
_EXPLAINED = " ".join(["keys shortcuts glossary legend letters tau alpha", *(FIGURES.keys() - {"γ"}), *FATES])
_BIGGER = "zoom full fullscreen maximize bigger larger enlarge"

# Nothing destructive may come first: `enter` on the freshly opened palette runs the first row.
COMMANDS: tuple[Command, ...] = (
    Command("help", "keys, commands and settings", "help", "f1", ANYWHERE, also=_EXPLAINED),
    Command("help on a plain key", "the same help", "help", "h,question_mark", in_palette=False),
    Command("run", "run the prompt in the box", "submit", "enter", PROMPT),
    Command("new line", "begin a new line", "newline", "ctrl+j", PROMPT, in_palette=False),
    Command("undo", "take back what was typed", "undo", "ctrl+underscore,ctrl+slash", PROMPT, in_palette=False),
    Command("redo", "type it again", "redo", "ctrl+y", PROMPT, in_palette=False),
    Command("earlier prompts", "search the prompts you have run before", "earlier_prompts", "ctrl+r", PROMPT),
    Command("panes", "leave the prompt box", "leave_prompt", "escape", PROMPT, in_palette=False),
    Command("prompt", "go to the prompt box", "focus_prompt", "slash"),
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
        also="plot chart graph speedups",
    ),
    Command(
        "refused drafts",
        "show refused drafts in the text, or leave them out",
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
        "show or hide the comparison table",
        "toggle_table",
        "t",
        also="compare summary results figures numbers speedup speedups baseline fastest winner statistics stats metrics"
        " α τ alpha tau acceptance predicted measured lossless identical prefill drafted wasted",
    ),
    Command("more drafts", "one more draft token per round", "change_gamma(1)", "plus,equals_sign"),
    Command("fewer drafts", "one draft token less per round", "change_gamma(-1)", "minus"),
    Command(
        "race",
        "play the finished panes together in true time, and end it",
        "race",
        "R",
        argument="a speed: 1 is true time, 0.1 ten times slower",
        values=("1", "0.1", "0.25", "0.5", "2", "4"),
        check=parse_speed,
        also="speed replay",
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
    *_cursor_moves(),
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


_KEY_NAMES = {
    "plus": "+",
    "minus": "-",
    "slash": "/",
    "underscore": "_",
    "equals_sign": "=",
    "escape": "esc",
    "left_square_bracket": "[",
    "right_square_bracket": "]",
    "comma": ",",
    "full_stop": ".",
    "question_mark": "?",
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "pagedown": "PgDn",
    "pageup": "PgUp",
}


def key_names(command: Command) -> list[str]:
    """The keys of a command as a person reads them."""
    chords = [key.split("+") for key in command.keys.split(",") if key]
    return ["+".join([*held, _KEY_NAMES.get(key, key)]) for *held, key in chords]


def bindings(*scopes: str) -> list[Binding]:
    """Textual bindings of the commands in `scopes`; ids are the commands' (for a user's keymap)."""
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
