"""The user's keys: what the config file may say, and that keys do and are called what it says everywhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from shell import make_app, ready, toasts, until
from widget_data import painted

from specdec_tui.setting_sources import read_config, resolve
from specdec_tui.settings import SettingError
from specdec_tui.tui.commands.command import APP, key_names, use_keymap
from specdec_tui.tui.commands.config_store import save_settings
from specdec_tui.tui.commands.footer import entries_of
from specdec_tui.tui.commands.keymap import ids, read_keymap
from specdec_tui.tui.commands.palette_rows import rows_for
from specdec_tui.tui.commands.table import COMMANDS
from specdec_tui.tui.screens.help import help_text

DOCS = Path(__file__).parents[3] / "docs" / "keymap.md"


@pytest.fixture(autouse=True)
def our_keys() -> Iterator[None]:
    yield
    use_keymap({})


def read(folder: Path, entries: str) -> tuple[dict[str, str], list[str]]:
    path = folder / "config.toml"
    path.write_text(f"gamma = 3\n[keymap]\n{entries}\n", encoding="utf-8")
    assert read_config(path) == {"gamma": "3"}
    return read_keymap(path)


@pytest.mark.parametrize(
    ("entries", "keymap"),
    [
        ('run-again = "f5, r"', {"run-again": "f5,r"}),
        ('run-again = ["Ctrl+G", "ctrl+shift+left"]', {"run-again": "ctrl+g,ctrl+shift+left"}),
        ('copy = "!"', {"copy": "exclamation_mark"}),
        ('copy = "ctrl++"', {"copy": "ctrl+plus"}),
        ('slower-race = ";"\nfaster-race = ","', {"slower-race": "semicolon", "faster-race": "comma"}),
        ('run-again = "n"\nnew-chat = "r"', {"run-again": "n", "new-chat": "r"}),
        ('next-token = "l"', {"next-token": "l"}),  # in its scope nothing else has it
        ('quit = "ctrl+x"', {"quit": "ctrl+x,ctrl+q"}),  # never lost
        ('stop-or-quit = "f8"', {"stop-or-quit": "f8,ctrl+c"}),
        ('copy = "Й"', {"copy": "Й"}),
        ("", {}),
    ],
)
def test_a_command_takes_the_keys_that_the_config_gives_it(
    entries: str, keymap: dict[str, str], tmp_path: Path
) -> None:
    assert read(tmp_path, entries) == (keymap, [])


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ('runagain = "f5"', "'runagain' is no command with a key, perhaps run-again is meant"),
        ('stop = "f5"', "'stop' is no command"),
        ('run-again = "foo"', "run-again: 'foo' is not valid: give a key as"),
        ('run-again = "ctrl+"', "run-again: 'ctrl+' is not valid"),
        ('run-again = "hold+r"', "'hold+r' is not valid"),
        ('run-again = "shift+r"', "give R itself"),
        ('run-again = ""', "'' is not valid"),
        ("run-again = []", "0 keys are not valid"),
        ("run-again = 5", "this value is not valid"),
        ('run-again = "\\u001b"', r"'\x1b' is not valid"),
        ('run-again = "shift+\\u001b"', r"'shift+\x1b' is not valid: give a key as"),
        ('run-again = "n"', "n would be a key of both run-again and new-chat"),
        ('copy = "ctrl+q"', "ctrl+q would be a key of both copy and quit"),
        ('copy = "f5"\nrun-again = "f5"', "f5 would be a key of both"),
        ('help = "enter"', "needed where one types"),
        ('help = "a"', "needed where one types"),
        ('run = "x"', "needed where one types"),
        ('help = "ctrl+j"', "ctrl+j would be a key of both help and new-line"),
    ],
)
def test_a_bad_entry_is_one_line_and_the_others_count(entries: str, words: str, tmp_path: Path) -> None:
    keymap, problems = read(tmp_path, entries + '\nexport = "f9"')
    assert len(problems) == 1 and words in problems[0] and problems[0].endswith("config.toml)")
    assert "\n" not in problems[0] and keymap["export"] == "f9"


def test_a_keymap_that_is_no_table_is_said_and_a_damaged_file_is_said_once(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text("keymap = 5", encoding="utf-8")
    assert read_config(path) == {} and "a table is needed" in read_keymap(path)[1][0]
    path.write_text("[keymap", encoding="utf-8")
    assert read_keymap(path) == ({}, [])
    with pytest.raises(SettingError, match="cannot read the config file"):
        resolve({}, {}, path)


def test_settings_that_the_app_saves_stay_settings_behind_a_keymap(tmp_path: Path) -> None:
    path = tmp_path / "config.toml"
    path.write_text('[keymap]\nrun-again = "f5"\n', encoding="utf-8")
    save_settings(path, {"gamma": 7, "theme": "specdec-light"})
    assert read_config(path) == {"gamma": "7", "theme": "specdec-light"}
    assert read_keymap(path) == ({"run-again": "f5"}, [])


def test_every_command_with_keys_has_an_id_in_the_help_and_in_the_document() -> None:
    text = DOCS.read_text(encoding="utf-8")
    assert {id for id, _ in ids()} == {command.id for command in COMMANDS if command.keys}
    for command in COMMANDS:
        if command.keys:
            keys = ", ".join(f"`{name}`" for name in key_names(command))
            row = f"| `{command.id}` | {keys} | {command.scope} | {command.help} |"
            assert row in text, "docs/keymap.md is of other commands: python tools/keymap_doc.py writes it anew"
    assert text.count("\n| `") == len(ids())
    assert all(id in help_text(drafters=4).plain for id, _ in ids())


def test_footer_palette_and_help_name_a_users_key() -> None:
    use_keymap({"view": "f6", "models": "ctrl+o"})
    footer = {name: keys for entry in entries_of("after a run", 0) for name, keys in [(entry.label, entry.keys)]}
    assert footer["View"] == [("f6", "f6")] and footer["Models"] == [("^o", "ctrl+o")]
    from specdec_tui.settings import ModelChoice, Settings

    (row, *_) = rows_for("models", Settings(), ModelChoice())
    assert row.help.endswith("· ctrl+o")
    lines = help_text().plain.splitlines()
    assert any(line.split()[:2] == ["f6", "next"] for line in lines)
    assert any(line.split() == ["view", "f6"] for line in lines)


async def test_keys_do_what_the_config_says_and_sentences_name_them() -> None:
    keymap = {
        "run-again": "f5",
        "run": "ctrl+g",
        "panes": "f7",
        "view": "n",
        "new-chat": "v",
        "models": "M",
        "next-line-or-round": "j",
        "quit": "ctrl+x,ctrl+q",
        "refused-drafts": "X",
    }
    app = make_app(ScriptedEngine(), strategies=("target", "speculative"))
    app.use_keys(keymap)
    assert app.at_once["ctrl+x"] == app.at_once["ctrl+q"] == "quit"
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        assert "^g Run" in painted(app.footer)[0] and "f7 Panes" in painted(app.footer)[0]
        app.prompt_box.insert("go")
        await pilot.press("enter", "f5", "ctrl+r", "escape")
        await pilot.pause()
        assert app.prompt_box.text == "go\n" and not app.runs.running
        await pilot.press("ctrl+g")
        await until(pilot, lambda: app.recordings.trace is not None and not app.runs.running, "run")
        await pilot.press("f7")
        assert not app.prompt_box.has_focus
        pane = app.grid.panes["speculative"]
        await pilot.press("n")
        assert pane.view == "rounds", "n is the view's key"
        await pilot.press("r", "x")
        assert len(app.runs.engine._engine.runs) == 1, "r is nobody's key any more"  # type: ignore[attr-defined]
        await pilot.press("X", "f5")
        await until(pilot, lambda: len(app.runs.engine._engine.runs) == 2, "f5")  # type: ignore[attr-defined]
        await until(pilot, lambda: not app.runs.running)
        assert pane.token_view.with_drafts
        # A key that the pane shares between its cursor and scrolling stays that of scrolling.
        app.grid.go_to("speculative")
        pane.feed([])
        await pilot.press("up")
        pane.inspect()
        first = pane.cursor
        await pilot.press("home", "j")
        assert pane.cursor is not None and pane.cursor != first and pane.cursor.row > 0
        pane.close_inspector()
        bound = {key for node, map in app.screen._binding_chain for key in map.key_to_bindings}
        assert {"up", "down", "home", "j", "n", "f5"} <= bound
        app.preferences.toggle_strategy("speculative-2")
        assert any("M loads them" in said for said in toasts(app))
        assert all(binding.id for binding in app._bindings.key_to_bindings["tab"]) and APP
