"""Every theme is complete, and its text can be read."""

from __future__ import annotations

import pytest
from contrast import contrast
from textual.color import Color
from textual.theme import Theme

from specdec_tui.decoding.records import Status
from specdec_tui.settings import THEMES as NAMES
from specdec_tui.tui.app.themes import THEMES, TOKEN_DEFAULTS

BLACK, WHITE = Color(0, 0, 0), Color(255, 255, 255)


def test_contrast_is_measured_as_wcag_does() -> None:
    assert contrast(BLACK, WHITE) == pytest.approx(21)
    assert contrast(Color.parse("#777777"), WHITE) == pytest.approx(4.48, abs=0.01)


def test_the_themes_are_those_the_settings_name() -> None:
    assert tuple(theme.name for theme in THEMES) == NAMES


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_every_token_colour_can_be_read_on_every_ground(theme: Theme) -> None:
    assert set(theme.variables) == set(TOKEN_DEFAULTS)
    assert {f"token-{status.value}" for status in Status} <= set(theme.variables)
    text = {name: value for name, value in theme.variables.items() if name not in ("edge", "faint")}
    text |= {name: getattr(theme, name) for name in ("foreground", "primary", "accent", "error", "warning")}
    for ground in ("background", "surface", "panel"):
        for name, value in text.items():
            ratio = contrast(Color.parse(value), Color.parse(getattr(theme, ground)))
            assert ratio >= 4.5, f"{name} on {ground}: {ratio:.2f}"


@pytest.mark.parametrize("theme", THEMES, ids=lambda theme: theme.name)
def test_states_that_stand_side_by_side_have_different_colours(theme: Theme) -> None:
    colours = [theme.variables[f"token-{s.value}"] for s in Status if s is not Status.PENDING]
    assert len(set(colours)) == len(colours)
