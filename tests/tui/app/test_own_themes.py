"""Themes of a user's own: files beside the config file."""

from __future__ import annotations

from pathlib import Path

import pytest
from contrast import contrast
from scripted_engine import ScriptedEngine
from shell import make_app, ready, toasts, until
from textual.color import Color

from specdec_tui.setting_sources import read_config
from specdec_tui.settings import FIELDS, SettingError, parse_value
from specdec_tui.theme_files import THEMES, own_themes, themes_folder
from specdec_tui.tui.app.own_themes import COLOURS, check_theme, own_theme
from specdec_tui.tui.app.themes import TOKEN_DEFAULTS
from specdec_tui.tui.commands.palette_rows import Refuse, rows_for

NORD = """
name = "nord"
primary = "#88C0D0"
secondary = "#81A1C1"
accent = "#B48EAD"
foreground = "#D8DEE9"
background = "#2E3440"
success = "#A3BE8C"
warning = "#EBCB8B"
error = "#BF616A"
surface = "#3B4252"
panel = "#434C5E"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", str(tmp_path / "config.toml"))
    themes_folder().mkdir()
    return themes_folder()


def test_a_theme_is_a_file_and_what_it_leaves_open_follows_from_its_colours(folder: Path) -> None:
    (folder / "nord.toml").write_text(NORD + '[variables]\ntoken-bonus = "teal"\nunverified-style = "dim italic"\n')
    assert parse_value("theme", " Nord") == "nord"
    theme = own_theme("nord", "truecolor")
    assert (theme.dark, theme.primary, theme.surface) == (True, "#88C0D0", "#3B4252")
    assert set(theme.variables) == set(TOKEN_DEFAULTS)
    assert theme.variables["token-accepted"] == theme.success and theme.variables["token-sampled"] == theme.foreground
    assert Color.parse(theme.variables["token-bonus"]) == Color.parse("teal")
    assert theme.variables["unverified-style"] == "dim italic"
    grounds = [Color.parse(theme.surface or ""), Color.parse(theme.background or "")]
    assert all(contrast(Color.parse(theme.variables["quiet"]), ground) >= 4.5 for ground in grounds)
    assert all(contrast(Color.parse(theme.variables["edge"]), ground) >= 1.5 for ground in grounds)
    (folder / "paper.toml").write_text('primary = "navy"\ndark = false\n')
    light = own_theme("paper", None)
    assert not light.dark and Color.parse(light.background or "").brightness > 0.8
    assert light.variables["token-bonus"] == light.primary


def test_a_terminal_of_sixteen_colours_gets_ours_of_the_same_kind(folder: Path) -> None:
    (folder / "paper.toml").write_text('primary = "#123456"\ndark = false\n')
    theme = own_theme("paper", "standard")
    assert (theme.name, theme.dark, theme.background) == ("paper", False, "#ffffff")
    assert "#123456" not in (theme.primary, *theme.variables.values())


def test_the_document_names_every_field_and_variable() -> None:
    text = (Path(__file__).parents[3] / "docs" / "themes.md").read_text(encoding="utf-8")
    assert all(f"`{name}`" in text for name in TOKEN_DEFAULTS)
    example = text.split("```toml\n")[1].split("```")[0]
    assert all(f"{name} = " in example for name in COLOURS if name != "boost")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "there is nothing in it: give at least primary"),
        ('accent = "red"', "primary is missing"),
        ('primary = "blau"', "primary: 'blau' is not valid: give a colour as #79b8ff"),
        ('primary = "ansi_red"', "'ansi_red' is not valid"),
        ('primary = "#12345680"', "'#12345680' is not valid"),
        ("primary = 5", "primary: '5' is not valid"),
        ('primary = "red"\nprimery = "red"', "'primery' is no field of a theme: allowed are name, dark, primary"),
        ('primary = "red"\nname = "other"', "name: 'other' is not valid: give mine"),
        ('primary = "red"\ndark = "yes"', "dark: 'yes' is not valid: give true or false"),
        ('primary = "red"\ntext_alpha = 2', "text_alpha: '2' is not valid: give a number from 0 to 1"),
        ('primary = "red"\nvariables = 1', "variables: '1' is not valid"),
        ('primary = "red"\n[variables]\ntoken = "red"', "'token' is none of ours: allowed are token-accepted"),
        ('primary = "red"\n[variables]\nquiet = "35%"', "quiet: '35%' is not valid: give a colour"),
        ('primary = "red"\n[variables]\nunverified-style = "blinking"', "give words of none, bold"),
        ("primary = ", "cannot be read: "),
        ("primary = " + "9" * 5000, "cannot be read: a number in it has too many digits"),
    ],
)
def test_a_wrong_file_is_one_line_that_names_it_and_what_is_allowed(text: str, words: str, folder: Path) -> None:
    (folder / "mine.toml").write_text(text)
    with pytest.raises(SettingError) as caught:
        check_theme("mine")
    told = str(caught.value)
    assert words in told and told.startswith("theme mine: ") and told.endswith("mine.toml)") and "\n" not in told


def test_a_link_to_nothing_is_told_as_what_it_is(folder: Path) -> None:
    (folder / "mine.toml").symlink_to(folder / "gone.toml")
    with pytest.raises(SettingError, match="theme mine: there is no such file behind the link"):
        check_theme("mine")


def test_only_files_with_plain_names_are_themes_and_no_folder_is_none(folder: Path) -> None:
    for name in ("b.toml", "a_1.toml", "My Theme.toml", "c.yaml", "specdec-dark.toml", "x" * 60 + ".toml"):
        (folder / name).write_text('primary = "red"')
    assert own_themes() == ("a_1", "b")
    kind = FIELDS["theme"].metadata["kind"]
    assert kind.choices == (*THEMES, "a_1", "b") and "a_1, b" in kind.allowed and str(folder) in kind.allowed
    with pytest.raises(SettingError, match="theme: 'c' is not valid: give one of specdec-dark"):
        parse_value("theme", "c")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    assert own_themes() == ()


async def test_a_theme_is_offered_taken_read_again_when_chosen_again_and_a_broken_one_changes_nothing(
    folder: Path,
) -> None:
    file = folder / "nord.toml"
    file.write_text(NORD)
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(pilot)
        rows = {row.text: row for row in rows_for("theme ", app.settings, app.choice)}
        assert "theme nord" in rows and not isinstance(rows["theme nord"].does, Refuse)
        app.preferences.change({"theme": "nord"})
        await pilot.pause()
        assert app.theme == "nord" and app.settings.theme == "nord"
        grid = app.grid.panes["target"]
        assert grid.background_colors[1] == Color.parse("#3B4252")
        file.write_text(NORD.replace("#3B4252", "#101820"))
        app.preferences.change({"theme": "nord"})
        await until(pilot, lambda: grid.background_colors[1] == Color.parse("#101820"), "read again")
        await pilot.press("escape", "s")
        await pilot.pause()
        (folder / "late.toml").write_text('primary = "blue"\ndark = false')
        app.preferences.change({"theme": "late"})  # the side bar was opened before it was there
        await pilot.pause()
        assert app.theme == "late"
        file.write_text("primary = 5")
        app.preferences.change({"theme": "nord", "gamma": 5})
        await pilot.pause()
        assert app.theme == app.settings.theme == "late" and app.settings.gamma == 5
        assert any("theme nord: primary" in said for said in toasts(app))
        assert read_config(folder.parent / "config.toml")["theme"] == "late"


async def test_a_theme_that_broke_meanwhile_leaves_the_app_in_its_own(folder: Path) -> None:
    (folder / "nord.toml").write_text("primary = 5")
    app = make_app(ScriptedEngine(), theme="nord")
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        assert app.theme == "specdec-dark" and any("theme nord" in said for said in toasts(app))
