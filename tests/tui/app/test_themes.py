"""Every theme is complete, and its text can be read."""

from __future__ import annotations

import pytest
from contrast import contrast
from rich._palettes import STANDARD_PALETTE
from rich.color import ColorSystem
from rich.style import Style
from textual.color import Color
from textual.theme import Theme

from specdec_tui.decoding.records import Status
from specdec_tui.theme_files import THEMES as NAMES
from specdec_tui.tui.app.themes import THEMES, TOKEN_DEFAULTS, themes_for
from specdec_tui.tui.tokens.style import stressed

BLACK, WHITE = Color(0, 0, 0), Color(255, 255, 255)


def test_contrast_is_measured_as_wcag_does() -> None:
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast(Color.parse("#777777"), WHITE) == pytest.approx(4.48, abs=0.01)


def test_the_themes_are_those_the_settings_name() -> None:
    assert tuple(theme.name for theme in THEMES) == NAMES


COLOURS = sorted(set(TOKEN_DEFAULTS) - {"unverified-style"})
SIXTEEN = themes_for("standard")


def readable(theme: Theme) -> dict[str, str]:
    """What text is written in."""
    text = {name: theme.variables[name] for name in COLOURS if name not in ("edge", "faint")}
    return text | {name: getattr(theme, name) for name in ("foreground", "primary", "accent", "error", "warning")}


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_token_colour_can_be_read_on_every_ground(theme: Theme) -> None:
    assert set(theme.variables) == set(TOKEN_DEFAULTS)
    assert {f"token-{status.value}" for status in Status} <= set(theme.variables)
    for ground in ("background", "surface", "panel"):
        for name, value in readable(theme).items():
            ratio = contrast(Color.parse(value), Color.parse(getattr(theme, ground)))
            assert ratio >= 4.5, f"{name} on {ground}: {ratio:.2f}"


@pytest.mark.parametrize("theme", SIXTEEN, ids=lambda theme: theme.name)
def test_sixteen_colours_can_be_read_too(theme: Theme) -> None:
    assert set(TOKEN_DEFAULTS) <= set(theme.variables)
    for name, value in readable(theme).items():
        ratio = contrast(Color.parse(value), Color.parse(theme.background or ""))
        assert ratio >= 3, f"{name}: {ratio:.2f}"


def test_there_are_the_same_themes_whatever_the_terminal_shows() -> None:
    for system in (None, "standard", "windows", "256", "truecolor"):
        assert [(theme.name, theme.dark) for theme in themes_for(system)] == [(t.name, t.dark) for t in THEMES]
    assert themes_for("256") == themes_for("truecolor") == themes_for(None) == THEMES


def shown_as(value: str, system: ColorSystem) -> int | None:
    return Color.parse(value).rich_color.downgrade(system).number


@pytest.mark.parametrize("theme", [*THEMES, *SIXTEEN], ids=lambda theme: theme.name)
def test_every_state_has_a_colour_of_its_own_in_true_and_in_256_colours(theme: Theme) -> None:
    colours = [theme.variables[f"token-{status.value}"] for status in Status]
    assert len(set(colours)) == len(Status)
    assert len({shown_as(colour, ColorSystem.EIGHT_BIT) for colour in colours}) == len(Status)


@pytest.mark.parametrize("theme", SIXTEEN, ids=lambda theme: theme.name)
def test_of_sixteen_colours_each_state_has_its_own_and_none_is_the_grounds(theme: Theme) -> None:
    ground = shown_as(theme.background or "", ColorSystem.STANDARD)
    colours = [shown_as(theme.variables[f"token-{status.value}"], ColorSystem.STANDARD) for status in Status]
    assert len({*colours, ground}) == len(Status) + 1
    good, warn, bad = (
        shown_as(value or "", ColorSystem.STANDARD) for value in (theme.success, theme.warning, theme.error)
    )
    assert len({good, warn, bad}) == 3


@pytest.mark.parametrize("theme", SIXTEEN, ids=lambda theme: theme.name)
def test_the_colours_of_sixteen_are_just_those_that_rich_counts(theme: Theme) -> None:
    known = {STANDARD_PALETTE[number].hex for number in range(16)}
    assert {theme.variables[name] for name in COLOURS} <= known
    assert {theme.primary, theme.secondary, theme.accent, theme.background, theme.surface, theme.panel} <= known


def test_a_fainter_fate_is_not_taken_for_another_of_sixteen_colours() -> None:
    red, black = Color.parse("#ff5555").rich_color, Color.parse("#000000").rich_color
    own = Style(color=red, bgcolor=black)
    assert stressed(own, -1, False, "standard") == own != stressed(own, -1, False, "256")
    assert stressed(own, -1, True, "standard").dim  # without colours there is nothing to be taken for
