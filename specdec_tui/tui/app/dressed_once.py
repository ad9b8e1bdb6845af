"""An app whose widgets get their styles once, when they come: Textual 8.2.8 reckons those of all five times at a start.

For the default theme and for the app's own, for a first screen that comes to the front, for its size.
"""

from __future__ import annotations

from textual.app import App

from specdec_tui.theme_files import THEMES
from specdec_tui.tui.app.own_themes import take_theme
from specdec_tui.tui.app.themes import TOKEN_DEFAULTS, themes_for
from specdec_tui.tui.lines.compositor import SparingScreen


class DressedOnce(App[int]):
    """Its theme is known before its widgets are, and its screen has the classes of its size."""

    _worn: object = None

    def dress(self, theme: str) -> str:
        """Take a theme before there are widgets. Why it cannot be that one, in a line; else empty."""
        for known in themes_for(self.console.color_system):
            self.register_theme(known)
        self.theme = THEMES[0]
        problem = take_theme(self, theme)
        self.stylesheet.set_variables(self.get_css_variables())
        self._worn = self._look
        return problem

    @property
    def _look(self) -> tuple[object, ...]:
        """All that styles are made of besides the sheet."""
        return self.theme, self.current_theme.dark, self.get_css_variables(), self.ansi_theme

    def refresh_css(self, animate: bool = True) -> None:
        """Whatever theme is taken asks for it, and so do those that were taken before the start."""
        if self._worn != (look := self._look):
            self._worn = look
            super().refresh_css(animate)

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return TOKEN_DEFAULTS

    def get_default_screen(self) -> SparingScreen:
        screen, (width, height) = SparingScreen(), self.size
        across = screen._get_breakpoint_classes(width, self.HORIZONTAL_BREAKPOINTS or [])
        down = screen._get_breakpoint_classes(height, self.VERTICAL_BREAKPOINTS or [])
        screen.add_class(*across, *down, update=False)
        return screen
