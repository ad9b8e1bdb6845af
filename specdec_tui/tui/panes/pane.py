"""One strategy on the screen: its figures, its text or rounds, and how its run stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.message import Message
from textual.reactive import reactive
from textual.widget import Widget
from textual.widgets import Static

from specdec_tui.decoding.figures import RunFigures
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
    Status,
    Step,
    tokens_of,
)
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.doors.characters import visible
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import INSPECT, VIEWS, bindings
from specdec_tui.tui.figures.charts_view import ChartsView
from specdec_tui.tui.figures.scale import Scale
from specdec_tui.tui.figures.words import (
    BAD,
    PLAIN_STRATEGIES,
    PaneState,
    Part,
    figure_lines,
    speed_words,
    status_line,
    status_parts,
)
from specdec_tui.tui.lines.line_view import SCROLLING, LineView
from specdec_tui.tui.panes.find_bar import FindBar
from specdec_tui.tui.panes.note_box import NoteBox
from specdec_tui.tui.panes.pace import Pace
from specdec_tui.tui.tokens.cursor_pane import CursorPane
from specdec_tui.tui.tokens.cursor_view import CursorView
from specdec_tui.tui.tokens.rounds_view import RoundsView
from specdec_tui.tui.tokens.run_log import Place
from specdec_tui.tui.tokens.token_view import TokenView
from specdec_tui.tui.tokens.transcript import Turn
from specdec_tui.tui.tokens.tree_view import TreeView

# Numbers that change faster than this cannot be read, and painting them takes time from decoding.
_FIGURES_SECONDS = 0.4
_SHORT, _TALL = 5, 12


class StrategyPane(CursorPane, can_focus=True):
    """A pane for one strategy. It is fed `Step`s in batches and remembers everything it was fed."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(INSPECT),  # these first: they share keys with the scrolling, which has them when nobody inspects
        *(Binding(key, f"scroll_view('{action}')", label, show=False) for key, action, label in SCROLLING),
    ]

    class FatesChanged(Message):
        """Other fates of tokens than before can stand in the pane."""

    view: reactive[str] = reactive(VIEWS[0], init=False)

    def __init__(self, number: int, strategy: str, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self.number = number
        self.strategy = strategy
        self.state = PaneState.IDLE
        self._figures = RunFigures()
        self._baseline: RunFigures | None = None
        self._baseline_label = ""
        self._scale: Scale | None = None
        self.told: tuple[Standing | None, float | None] = (None, None)
        """What stands on the screen: how the run stands against the target's, and its tokens/s."""
        self.tells: Callable[[], object] = lambda: None
        """Called when that has changed: elsewhere the same must be said."""
        self.can_repeat = True
        """Whether there are models to run again with."""
        self.lossless: Lossless | None = None
        """The verdict on the run, once there is one."""
        self._max_new_tokens = 0
        self._texts: list[str] = []
        self._answer = ""
        self._lines = Pace(self, _FIGURES_SECONDS, self._paint_lines)
        self._subtitle: list[Part] = []
        self._figure_line = Static(classes="figures", markup=False)
        self.token_view = TokenView(self.run_log, classes="view")
        self.rounds_view = RoundsView(self.run_log, classes="view")
        self.tree_view = TreeView(self.run_log, classes="view")
        self.charts_view = ChartsView(classes="view")
        self._views: dict[str, Widget] = {
            "text": self.token_view,
            "rounds": self.rounds_view,
            "tree": self.tree_view,
            "charts": self.charts_view,
        }
        self._welcome = Static(classes="welcome", markup=False)
        self._notes = NoteBox()
        self._status_line = Static(classes="status", markup=False)
        self.name_drafter("")

    def compose(self) -> ComposeResult:
        self._show_view()
        yield self._figure_line
        yield self._welcome
        yield from self._views.values()
        yield self._notes
        yield self._status_line

    def name_drafter(self, name: str) -> None:
        """Have its drafter's name in the title; empty where there is but one."""
        title = Content.styled(f"{self.number} {visible(self.strategy)}", "bold")
        self.border_title = Content.assemble(title, " · ", one_row(name)) if name else title

    def welcome(self, text: Content) -> None:
        """What stands in the pane as long as it tells of no run."""
        self._welcome.update(text)

    def _show_view(self) -> None:
        self._welcome.display = self.state.is_empty
        for name, view in self._views.items():
            view.display = name == self.view and not self._welcome.display

    @property
    def figures(self) -> RunFigures:
        """The figures of the run so far."""
        return self._figures

    @property
    def plain_text(self) -> str:
        """The text emitted so far, exactly as the engine gave it."""
        return "".join(self._texts)

    @property
    def answer(self) -> str:
        """The whole answer without special tokens; while it grows, the text so far."""
        return self._answer or self.plain_text

    @property
    def shown_view(self) -> LineView:
        """The view of lines that is shown; the text behind the charts, which have none."""
        shown = self._views[self.view]
        return shown if isinstance(shown, LineView) else self.token_view

    @property
    def fates(self) -> frozenset[Status]:
        """Of the tokens that can stand in the shown view."""
        view = self._views[self.view]
        if not isinstance(view, CursorView):
            return frozenset()
        plain = self.strategy in PLAIN_STRATEGIES
        fates = frozenset({Status.SAMPLED}) if plain else view.fates
        looks_ahead = self.has_class("-running") and (not plain or self._figures.searches)
        return fates | {Status.PENDING} if looks_ahead else fates

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

    def _empty(self, state: PaneState, max_new_tokens: int) -> None:
        self.state = state
        self._figures = RunFigures()
        self._baseline, self._baseline_label = None, ""
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
                    self.run_log.searches = record.beams > 0
                    self.add_class("-running")
                    self.post_message(self.FatesChanged())
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
        if ended or self._lines.is_time:
            self._lines.now()  # in the same painting as the text: what costs is the number of paintings
        else:
            self._lines.soon()

    def _end(self, record: RunEnded) -> None:
        self.state = PaneState.ENDED
        self.run_log.drop_pending()
        self.remove_class("-running")
        self.post_message(self.FatesChanged())
        if record.message:
            failed = record.reason.value == "error"
            self.set_class(failed, "-failed")
            self._notes.add(record.message, BAD if failed else "")

    def break_off(self) -> None:
        """No more of the run is known."""
        self.state = PaneState.BROKEN_OFF
        self.remove_class("-running")
        self.post_message(self.FatesChanged())
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
        self.post_message(self.FatesChanged())

    def checked(self, lossless: Lossless) -> None:
        """Show the verdict of the lossless check."""
        self.lossless = lossless
        if lossless.status is LosslessStatus.DIFFERENT:
            self.add_class("-failed")
            if lossless.detail:
                self.note(lossless.detail, BAD)
        self._lines.now()

    def set_baseline(self, figures: RunFigures | None, label: str = "") -> None:
        """Measure speedup against the target's own run, as far as it is; None: no such run.

        `label` says which one it is where it is none of those beside this run, and without one, how to come by it.
        """
        self._baseline, self._baseline_label = figures, label
        if self.state is PaneState.ENDED:
            self._lines.now()
        else:
            self._lines.soon()

    def set_scale(self, scale: Scale) -> None:
        """Draw bars and plots on this scale, which is that of all panes."""
        if scale != self._scale:
            self._scale = scale
            if self.view == "charts":
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
        self.post_message(self.FatesChanged())
        for bar in self.query(FindBar):
            bar.look_in(self.shown_view)
        self._lines.now()

    def find(self) -> None:
        """Open the line that finds text in the shown view, or go back to it."""
        for bar in self.query(FindBar):
            bar.action_again()
            return
        if self.view == "charts":
            self.view = "text"
        self.mount(FindBar(self.shown_view), before=self._status_line)

    def action_scroll_view(self, how: str) -> None:
        """Scroll the shown view by one of its own actions: `scroll_up`, `page_down`, `scroll_end`…"""
        if self.view != "charts":  # they fit themselves to the room
            getattr(self.shown_view, f"action_{how}")()

    def on_resize(self, event: events.Resize) -> None:
        self.set_class(self.size.height < _SHORT, "-short")
        self.set_class(self.size.height >= _TALL and self.strategy not in PLAIN_STRATEGIES, "-tall")
        self._lines.now()
        if self.has_focus_within:
            self.scroll_visible(animate=False)

    def _paint_lines(self) -> None:
        width = max(1, self.size.width - 2)
        is_target = self.strategy == "target"
        # A pane too low for a status line has it in its border.
        short = self.has_class("-short")
        in_charts = self.view == "charts"
        figures = figure_lines(
            self._figures,
            self._baseline,
            is_target,
            width,
            label=self._baseline_label,
            rows=2 if self.has_class("-tall") and not in_charts else 1,
            beside_gauges=in_charts and not short,
            can_grow=not in_charts and not short,
            can_repeat=self.can_repeat,
        )
        status, first = status_parts(self.state, self._figures, self._max_new_tokens, self.lossless, is_target)
        self.set_class("\n" in figures.plain, "-two-rows")
        self._figure_line.update(figures, layout=False)
        line = status_line(status, max(1, width - 4) if short else width, first)
        self._status_line.update(Content.assemble(*line), layout=False)
        subtitle = line if short else [(self._caption, "")] if self._caption else []
        if subtitle != self._subtitle:
            self._subtitle = subtitle
            self.border_subtitle = Content.assemble(*subtitle) if subtitle else None
        if in_charts:
            self.charts_view.show(self._figures, self._baseline, is_target, self._scale)
        found = None if is_target else standing(self._figures, self._baseline)
        self.told = found, self._figures.decode_tokens_per_second
        self.tells()
