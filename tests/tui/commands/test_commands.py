from __future__ import annotations

from specdec_tui.settings import STRATEGIES
from specdec_tui.several_drafters import key_of
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.commands.command import (
    _KEY_NAMES,
    ANYWHERE,
    APP,
    FIND,
    INSPECT,
    PROMPT,
    RACE,
    SIDE_BAR,
    key_names,
)
from specdec_tui.tui.commands.table import COMMANDS, bindings
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.panes.pane import StrategyPane
from specdec_tui.tui.prompt.box import PromptBox
from specdec_tui.tui.screens.help import help_text


def test_every_command_has_an_action() -> None:
    for command in COMMANDS:
        owners = {PROMPT: PromptBox, INSPECT: StrategyPane, FIND: FindBar}
        name = command.action.partition("(")[0]
        owner = SpecdecApp if name.startswith("app.") else owners.get(command.scope, SpecdecApp)
        assert hasattr(owner, f"action_{name.removeprefix('app.')}"), command.name


def test_names_ids_and_keys_are_unique() -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    assert len({command.id for command in COMMANDS}) == len(COMMANDS)
    # The inspector's keys come before the app's, which have them when nobody inspects.
    for scopes in (
        (APP, ANYWHERE, PROMPT),
        (APP, ANYWHERE, RACE),
        (ANYWHERE, INSPECT),
        (ANYWHERE, FIND),
        (ANYWHERE, SIDE_BAR),
    ):
        # A pane with the focus scrolls by its own keys, before the app does.
        commands = [c for c in COMMANDS if c.scope in scopes and not c.action.startswith("scroll_pane")]
        keys = [key for command in commands for key in command.keys.split(",") if key]
        once = [key for key in keys if key != "escape"]  # it leads out of whatever one is in
        if INSPECT in scopes:
            once.remove("n")  # there it is the next rejection, elsewhere a new chat
        assert len(set(once)) == len(once)


def test_keys_are_named_as_they_stand_on_a_keyboard_also_in_a_chord() -> None:
    names = [name for command in COMMANDS for name in key_names(command)]
    assert {"ctrl+_", "ctrl+/", "/"} <= set(names)
    technical = {name for name, sign in _KEY_NAMES.items() if not sign.isalpha()}
    assert not [name for name in names if technical & set(name.split("+"))]
    assert not [name for name in names if "_" in name.removesuffix("_")]


def test_the_keys_of_the_contract_are_bound() -> None:
    bound = {key for binding in bindings(APP, ANYWHERE, PROMPT) for key in binding.key.split(",")}
    assert {str(key_of(name)) for name in STRATEGIES} <= bound
    assert {"v", "i", "t", "plus", "minus", "r", "m", "s", "z", "n", "slash", "escape", "enter"} <= bound
    assert {"f", "ctrl+f", "y", "ctrl+r"} <= bound
    assert {"ctrl+j", "ctrl+p", "ctrl+c", "ctrl+q", "f1"} <= bound
    assert {"R", "e", "H", "comma", "full_stop"} <= bound
    assert {"h", "question_mark", "tab", "shift+tab"} <= bound
    assert {f"alt+{key_of(name)}" for name in STRATEGIES} <= bound


def test_every_binding_has_an_id_for_a_users_keymap() -> None:
    assert all(binding.id for binding in bindings(APP, ANYWHERE, PROMPT, INSPECT))


def test_the_help_names_every_command_that_has_a_key() -> None:
    text = help_text(240, drafters=4).plain
    assert all(command.help in text for command in COMMANDS if command.keys)
