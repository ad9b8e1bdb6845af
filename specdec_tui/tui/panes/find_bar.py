"""The line at the bottom of a pane that finds text in what the pane shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Input, Static

from specdec_tui.tui.commands.command import FIND
from specdec_tui.tui.commands.table import bindings, key

if TYPE_CHECKING:
    from specdec_tui.tui.lines.line_view import LineView

# While text arrives, the count is brought up to date as often as it can be read.
_COUNT_SECONDS = 0.4


class FindInput(Input):
    """Takes every printable key, so that the footer shows none of the app's."""

    def check_consume_key(self, key: str, character: str | None = None) -> bool:
        # Textual does not know which character these names stand for.
        named = ("slash", "plus", "minus", "equals_sign", "comma", "full_stop")
        return key in named or super().check_consume_key(key, character)


class FindBar(Horizontal):
    """Finds while one types; escape closes it and keeps the place."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(FIND)]

    def __init__(self, view: LineView) -> None:
        super().__init__()
        self._view = view
        self._input = FindInput(placeholder="find", compact=True, select_on_focus=False)
        self._count = Static(markup=False, classes="count")
        self._shown = ""
        view.begin_search()

    def compose(self) -> ComposeResult:
        yield Static("/", classes="sign")
        yield self._input
        yield self._count

    def on_mount(self) -> None:
        self._input.focus()
        self.set_interval(_COUNT_SECONDS, self._show_count)

    def on_unmount(self) -> None:
        self._view.search = None

    def look_in(self, view: LineView) -> None:
        """Go on in another view of the pane."""
        if view is not self._view:
            self._view.end_search()
            self._view = view
            self.call_after_refresh(self._go_on)  # it has no lines before it is shown

    def _go_on(self) -> None:
        self._view.fit()  # its own message that it is shown may come later
        self._find(self._input.value)

    def action_again(self) -> None:
        """Type another text in place of this one."""
        self._input.focus()
        self._input.action_select_all()

    def action_step(self, by: int) -> None:
        if self._view.search is not None:
            self._view.search.step(by, self._view.scroll_offset.y)
            self._show()

    def action_close(self) -> None:
        self._view.end_search()
        if isinstance(self.parent, Widget):
            self.parent.focus()
        self.remove()

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        self._find(event.value)

    @on(Input.Submitted)
    def _entered(self, event: Input.Submitted) -> None:
        event.stop()
        self.action_step(1)

    def _find(self, query: str) -> None:
        if not self.is_attached:
            return
        search = self._view.search or self._view.begin_search()
        search.look_for(query, self._view.scroll_offset.y)
        self._show()

    def _show(self) -> None:
        self._view.show_match()
        self._show_count()

    def _show_count(self) -> None:
        search = self._view.search
        if search is None:
            return
        found = len(search.matches)
        if not search.matches.query:
            text = f"{key('close the search')} closes"
        elif search.is_reading:
            text = f"{found} so far"
        elif not found:
            text = "nothing found"
        else:
            text = f"{found} found" if search.current is None else f"{search.current + 1} of {found}"
        if text != self._shown:
            self._shown = text
            self._count.update(Content.styled(text, "$text-warning" if text == "nothing found" else ""))
