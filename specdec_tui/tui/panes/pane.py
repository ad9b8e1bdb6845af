"""One strategy on the screen: its figures, its text or rounds, and how its run stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.form_distance import OWN
from specdec_tui.decoding.records import (
    EMITTED,
    Capturing,
    DraftsProposed,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
    tokens_of,
)
from specdec_tui.doors.characters import visible
from specdec_tui.tui.commands.command import INSPECT, VIEWS
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import bindings
from specdec_tui.tui.figures.words import BAD, PaneState, speed_words
from specdec_tui.tui.lines.line_view import SCROLLING, LineView
from specdec_tui.tui.panes.fates import Fates
from specdec_tui.tui.panes.figured_pane import FiguredPane
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.panes.note_box import NoteBox
from specdec_tui.tui.tokens.rounds_view import RoundsView
from specdec_tui.tui.tokens.token_view import TokenView
from specdec_tui.tui.tokens.transcript import Turn
from specdec_tui.tui.tokens.tree_view import TreeView

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.cursor_view import CursorView
    from specdec_tui.tui.tokens.run_log import Place

_SHORT, _TALL = 5, 12
DRAWN = ("charts", "time")
"""Views that draw figures and show no tokens."""


class StrategyPane(FiguredPane, can_focus=True):
    """A pane for one strategy. It is fed `Step`s in batches and remembers everything it was fed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(INSPECT),  # these first: they share keys with the scrolling, which has them when nobody inspects
        *(Binding(key, f"scroll_view('{how}')", label, show=False, id=how) for key, how, label in SCROLLING),
    ]

    class FatesChanged(Message):
        """Other fates of tokens than before are in sight in the pane."""

    view: reactive[str] = reactive(VIEWS[0], init=False)

    def __init__(self, number: int | str, strategy: str, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(strategy, id=id, classes=classes)
        self.number = number
        self._texts: list[str] = []
        self._answer = ""
        self.fates = Fates(self, lambda: self.post_message(self.FatesChanged()))
        self.token_view = TokenView(self.run_log, seams=not self.is_plain, classes="view")
        self.rounds_view = RoundsView(self.run_log, classes="view")
        self.tree_view = TreeView(self.run_log, classes="view")
        self._views: dict[str, Widget] = {
            "text": self.token_view,
            "rounds": self.rounds_view,
            "tree": self.tree_view,
            "charts": self.charts_view,
            "time": self.time_view,
        }
        self._welcome = Static(classes="welcome", markup=False)
        self._notes = NoteBox()
        self.name_drafter("")

    def compose(self) -> ComposeResult:
        self._show_view()
        yield self._figure_line
        yield self._welcome
        yield from dict.fromkeys((self.token_view, self._views[self.view]))
        yield self._notes
        yield self._status_line

    def name_drafter(self, name: str) -> None:
        """Have its drafter's name in the title; empty where there is but one."""
        title = Content.styled(f"{self.number} {visible(self.strategy)}".lstrip(), "bold")
        self.border_title = Content.assemble(title, " · ", one_row(name)) if name else title

    def welcome(self, text: Content) -> None:
        """What stands in the pane as long as it tells of no run."""
        self._welcome.update(text)

    def _show_view(self) -> None:
        self._welcome.display = self.state.is_empty
        for name, view in self._views.items():
            view.display = name == self.view and not self._welcome.display
        # One that is never looked at costs nothing: it joins the screen when it is first chosen.
        shown = self._views[self.view]
        if shown.parent is None and self._notes.parent is not None and self.is_attached:
            self.mount(shown, before=self._notes)

    @property
    def plain_text(self) -> str:
        """The text emitted so far, exactly as the engine gave it."""
        return "".join(self._texts)

    @property
    def answer(self) -> str:
        """The whole answer without special tokens, or the text so far."""
        return self._answer or self.plain_text

    @property
    def shown_view(self) -> LineView:
        """The view of lines that is shown; the text behind what is drawn, which has none."""
        shown = self._views[self.view]
        return shown if isinstance(shown, LineView) else self.token_view

    def on_cursor_view_scrolled(self) -> None:
        self.fates.more()
        self._paint_caption()

    def on_show(self) -> None:
        self.fates.others()

    @property
    def _caption(self) -> str:
        view = self.cursor_view
        caption = self.view if view is None else view.caption
        transcript = self.token_view.transcript
        has_turns = transcript.is_shown and not self.state.is_empty
        return f"{caption} · turn {transcript.number}" if caption and has_turns else caption

    @property
    def cursor_views(self) -> tuple[CursorView, ...]:
        return self.token_view, self.rounds_view, self.tree_view

    def begin(self, max_new_tokens: int, turn: int = 0, prompt: str = "") -> None:
        """Clear the pane for a new run that may emit so many tokens.

        It answers `prompt` as the given turn of a conversation, whose earlier turns stay above it; 0: of none.
        """
        self.token_view.transcript.begin(turn, prompt)
        self._empty(PaneState.WAITING, max_new_tokens)

    def sit_out(self) -> None:
        """Others run: nothing of an earlier run may stand beside them. Turns come back with the next that it is in."""
        if self.state is not PaneState.ABSENT:
            self._empty(PaneState.ABSENT, 0)

    def rest(self) -> None:
        """As before anything ran."""
        self.close_inspector()
        self._empty(PaneState.IDLE, 0)

    def _empty(self, state: PaneState, max_new_tokens: int) -> None:
        self.state = state
        self._figures = RunFigures()
        self._baseline, self._baseline_label, self._changes = None, "", None
        self.lossless = None
        self._max_new_tokens = max_new_tokens
        self._texts = []
        self._answer = ""
        self._notes.empty()
        self.run_log.clear()
        for view in self.cursor_views:
            view.clear()
        self.cursor_to_start()
        self._show_view()
        self.fates.others()
        self.remove_class("-running", "-failed")
        self._lines.now()

    def feed(self, steps: Sequence[Step]) -> None:
        """Take a batch of steps of this strategy: one repaint, however many rounds it holds."""
        ended = False
        settled = self.run_log.settled
        if self.state.is_empty:
            self.state = PaneState.WAITING
            self._show_view()
        for step in steps:
            record = step.record
            self._figures.add(record)
            self.run_log.alternatives.update(step.alternatives)
            match record:
                case RoundVerified() | PrefillDone():
                    self.state = PaneState.RUNNING
                    self.run_log.add(record, step.texts)
                    pairs = zip(tokens_of(record), step.texts, strict=False)
                    self._texts += [text for token, text in pairs if token.status in EMITTED]
                case DraftsProposed():
                    self.run_log.add(record, step.texts)
                case RunStarted():
                    self.state, self._max_new_tokens = PaneState.PREFILL, record.max_new_tokens
                    self.run_log.start(record)
                    self.add_class("-running")
                    self.fates.others()
                case Capturing():
                    self.state = PaneState.CAPTURING
                case Notice():
                    self._notes.add(record.message)
                    if self.state is PaneState.CAPTURING:  # in vain
                        self.state = PaneState.PREFILL
                case RunEnded():
                    ended = True
                    self._answer = step.answer
                    if self._texts:
                        self.run_log.rest = step.texts
                        self._texts += step.texts
                    self._end(record)
        self._notes.paint()
        for view in self.cursor_views:
            view.sync()
        self.log_changed(settled)
        self.fates.more()
        if ended or self._lines.is_time:
            self._lines.now()  # in the same painting as the text: what costs is the number of paintings
        else:
            self._lines.soon()
            if self.counts_at_once:
                self._paint_status()

    def _end(self, record: RunEnded) -> None:
        self.state = PaneState.ENDED
        self.run_log.drop_pending()
        self.remove_class("-running")
        self.fates.others()
        if record.message:
            failed = record.reason.value == "error"
            self.set_class(failed, "-failed")
            self._notes.add(record.message, BAD if failed else "")

    def break_off(self) -> None:
        """No more of the run is known."""
        self.state = PaneState.BROKEN_OFF
        self.remove_class("-running")
        self.fates.others()
        self._lines.now()

    def turn_ended(self, turn: int, prompt: str) -> None:
        """The run answered `prompt` as this turn of the conversation: the turns behind it stand below it."""
        rows = self.run_log.rows
        pieces = [(token.status, text) for row in rows for token, text in zip(row.tokens, row.texts, strict=False)]
        if pieces:
            pieces += [(pieces[-1][0], text) for text in self.run_log.rest]
            words = speed_words(self._figures, self._baseline, self.strategy == "target", self._baseline_label)
            self.token_view.transcript.ended(Turn(turn, prompt, tuple(pieces), words))

    def forget_turns(self) -> None:
        """Another conversation begins with the next run."""
        self.token_view.transcript.forget()
        self.token_view.lay_out_again()

    def show_drafts(self, wanted: bool) -> None:
        """Let drafts that did not become text stand in it, struck out, or leave them out."""
        self.token_view.with_drafts = wanted
        self.view_changed()
        self.fates.others()

    def checked(self, lossless: Lossless) -> None:
        """Show the verdict of the lossless check."""
        self.lossless = lossless
        if lossless.status is LosslessStatus.DIFFERENT:
            self.add_class("-failed")
            if lossless.detail:
                self.note(lossless.detail, BAD)
        elif OWN in lossless.detail:
            self.note(lossless.detail)
        self._lines.now()

    def note(self, text: str, style: str = "") -> None:
        """Say something under the text, in full."""
        self._notes.add(text, style)
        self._notes.paint()

    def inspect(self, place: Place | None = None) -> None:
        """Mark a token; where no view shows any, the rounds come first."""
        if self.cursor_view is None:
            self.view = "rounds"
        super().inspect(place)

    def validate_view(self, view: str) -> str:
        return view if view in VIEWS else VIEWS[0]

    def watch_view(self, view: str) -> None:
        self._show_view()
        self.set_class(view == "charts", "-charts")
        for one in self.cursor_views:
            one.sync()
        self.view_changed()
        self.fates.others()
        for bar in self.query(FindBar):
            bar.look_in(self.shown_view)
        self._lines.now()

    def find(self) -> None:
        """Open the line that finds text in the shown view, or go back to it."""
        for bar in self.query(FindBar):
            bar.action_again()
            return
        if self.view in DRAWN:
            self.view = "text"
        self.mount(FindBar(self.shown_view), before=self._status_line)

    def action_scroll_view(self, how: str) -> None:
        """Scroll the shown view by one of its own actions: `scroll_up`, `page_down`, `scroll_end`…"""
        if self.view not in DRAWN:  # they fit themselves to the room
            getattr(self.shown_view, f"action_{how}")()

    def on_resize(self, event: events.Resize) -> None:
        self.fates.others()
        self.set_class(self.size.height < _SHORT, "-short")
        self.set_class(self.size.height >= _TALL and not self.is_plain, "-tall")
        self._lines.now()
        if self.has_focus_within:
            self.scroll_visible(animate=False)
