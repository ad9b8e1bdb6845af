"""What-ifs: a run is gone on with from one of its tokens, with another token or other settings, in a pane beside it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Protocol

from textual.notifications import SeverityLevel

from specdec_tui.decoding.figures import OF_THE_DRAFTER
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    Origin,
    RunEnded,
    RunStarted,
    Status,
    Step,
)
from specdec_tui.doors.characters import visible
from specdec_tui.setting_kinds import format_value
from specdec_tui.settings import SettingError, Settings, flag_of, implied_processor, quoted
from specdec_tui.traces.children import WEIGHTS, Line, line_of, next_name, settings_of, weights_of
from specdec_tui.tui.app.joining import Home, is_same_run
from specdec_tui.tui.app.notices import Holds, always
from specdec_tui.tui.app.runs import Play
from specdec_tui.tui.commands.table import key
from specdec_tui.what_ifs import WhatIf

if TYPE_CHECKING:
    from specdec_tui.backends.pair import ModelInfo, PairInfo
    from specdec_tui.traces.format import Trace
    from specdec_tui.tui.app.what_if_rows import Candidate, Forms
    from specdec_tui.tui.commands.dialog import Answer, Dialog
    from specdec_tui.tui.panes.pane import StrategyPane

_PLACEHOLDER = "another token, or a setting and its value: gamma 8"
_PLACEHOLDER_WHOLE = "a setting and its value: weights expanded"
_NEVER_JUDGED = "This draft was never judged: the text went on otherwise before it. ✗ is where"
_OF_DRAWS = frozenset(("top_k", "top_p", "min_p", "typical_p"))
_OF_A_MODEL = ("name", "dtype", "quantization", "parameters")


class WhatIfScreen(Protocol):
    """What what-ifs ask of the screen."""

    @property
    def current_pane(self) -> StrategyPane:
        """The pane that keys act on."""

    @property
    def shown_trace(self) -> Trace | None:
        """What the panes show, once it has ended."""

    @property
    def why_no_what_if(self) -> str:
        """What the app is at, or lacks, so that none can begin now; empty where one can."""

    @property
    def pair(self) -> PairInfo | None:
        """What is loaded."""

    def say(
        self, text: str, severity: SeverityLevel = "information", timeout: float = 5, holds: Holds = always
    ) -> None:
        """Tell a person."""

    def ask(
        self, dialog: Dialog[Answer], answered: Callable[[Answer], None], left: Callable[[], None] = lambda: None
    ) -> None:
        """Open a dialog; `answered` is called with its answer."""

    def play(self, request: WhatIf, play: Play) -> bool:
        """Have a what-if played and its pane brought into sight; False where the engine is not free."""

    def goes_on_beside(self, batch: Sequence[Step | Checked]) -> None:
        """Show what has happened in it."""

    def break_what_if(self, error: str) -> Sequence[Event]:
        """The engine failed. The end of what was at work, as it is shown."""

    def home(self) -> Home:
        """Where a what-if of the run that the panes show now belongs."""

    def keep_what_if(self, events: Sequence[Event], home: Home) -> None:
        """It is over: it joins the trace of its run."""

    def settle(self) -> None:
        """Something here is not as it was."""


@dataclass(frozen=True, slots=True)
class Start:
    """The run that a what-if goes on from, the trace that it belongs to, and what it was made with."""

    home: Home
    line: Line
    settings: Settings
    forms: Forms


class WhatIfs:
    """One at a time."""

    def __init__(self, screen: WhatIfScreen) -> None:
        self._screen = screen
        self._events: list[Event] = []
        self._at_work: tuple[str, Home] | None = None  # its name, and where it belongs

    def ask(self) -> None:
        """What is to be other at the token that is inspected, and then play it."""
        from specdec_tui.tui.app.what_if_rows import candidates  # not at a start

        pane = self._screen.current_pane
        if why := self._screen.why_no_what_if:
            self._screen.say(why, "warning")
        elif not pane.inspecting or pane.cursor is None or not pane.run_log.holds(pane.cursor):
            begins = f"A what-if goes on from one token: {key('inspect')} inspects one, then {key('branch')}"
            self._screen.say(begins, "warning")
        elif (start := self._start(pane)) is not None:
            token = pane.run_log.token(pane.cursor)
            if token.status is Status.UNVERIFIED:
                self._screen.say(_NEVER_JUDGED, "warning")
            else:
                self._ask(start, token.position, candidates(pane.run_log, pane.cursor), _PLACEHOLDER)

    def ask_whole(self, words: str = "") -> None:
        """The whole text of the current pane anew with another setting: that in these words, else a chosen one."""
        from specdec_tui.tui.app.what_if_rows import what_if_rows
        from specdec_tui.tui.commands.palette_rows import Change, Refuse

        if why := self._screen.why_no_what_if:
            self._screen.say(why, "warning")
        elif (start := self._start(self._screen.current_pane)) is None:
            return
        elif not words:
            self._ask(start, 0, (), _PLACEHOLDER_WHOLE)
        else:
            row = next(iter(what_if_rows((), start.settings, start.forms)(words)), None)
            match None if row is None else row.does:
                case Change(values=values):
                    self._begin(start, 0, None, values)
                case Refuse(message=message):
                    self._screen.say(message, "warning")
                case _:
                    self._screen.say(f"{quoted(words)} is no setting that a text follows from", "warning")

    def _ask(self, start: Start, position: int, found: Sequence[Candidate], placeholder: str) -> None:
        from specdec_tui.tui.app.what_if_rows import what_if_rows
        from specdec_tui.tui.commands.palette import Palette
        from specdec_tui.tui.commands.palette_rows import Change, Row, Take

        def chosen(row: Row) -> None:
            match row.does:
                case Take(token=other):
                    self._begin(start, position, other, {})
                case Change(values=values):
                    self._begin(start, position, None, values)

        rows = what_if_rows(found, start.settings, start.forms)
        self._screen.ask(Palette(rows, placeholder=placeholder), chosen)

    def _start(self, pane: StrategyPane) -> Start | None:
        """The run of a pane as what a what-if goes on from; None where none can, which is said."""
        from specdec_tui.tui.app.what_if_rows import Forms

        trace, pair = self._screen.shown_trace, self._screen.pair
        if (refusal := self._refusal(pane, trace)) or trace is None:
            self._screen.say(refusal, "warning")
            return None
        line, home = line_of(trace, pane.strategy), self._screen.home()
        try:
            settings = settings_of(trace, line.changes)
        except SettingError as error:
            self._screen.say(f"{visible(line.name)} cannot be gone on from: {error}", "error")
            return None
        forms = Forms(weights_of(trace, line.changes), () if pair is None else pair.target.weight_forms)
        if pane.figures.strategy in OF_THE_DRAFTER:
            forms = replace(
                forms, all=(), why="it is that of the target's weights, and this run is of the drafter alone"
            )
        return Start(home, line, settings, forms)

    def _refusal(self, pane: StrategyPane, trace: Trace | None) -> str:
        """Why no what-if can be of the run of a pane; empty where one can."""
        if trace is None or pane.strategy not in trace.strategies:
            return "There is no finished run to go on from here"
        if pane.figures.served:
            return "A server wrote this text: no model here goes on with it exactly"
        if pane.figures.searches:
            return "A search writes no token after another: there is no place to go on from"
        if (made := trace.header.pair()) is not None and not _same(made, self._screen.pair):
            loads = f"{key('models')} loads that pair, for no other goes on exactly"
            return f"The run was made with {visible(made.name)}: {loads}"
        return ""

    def _begin(self, start: Start, position: int, token: int | None, values: Mapping[str, Any]) -> None:
        """Play it with these settings other than those of its parent."""
        home, line, parent = start.home, start.line, start.settings
        trace = home.trace
        name = next_name(trace, line.name)
        form = values.get(WEIGHTS, start.forms.now)
        asked, values = values, {field: value for field, value in values.items() if field != WEIGHTS}
        values |= implied_processor(values, parent.processor)
        settings = replace(parent, **values)
        given = line.ids[:position] + (() if token is None else (token,))
        known = trace.header.run_settings()
        changed = {field: getattr(settings, field) for field in (*dict(line.changes), *values) if field != WEIGHTS}
        changes = tuple((field, format_value(new)) for field, new in changed.items() if new != getattr(known, field))
        changes += ((WEIGHTS, form),) if form != weights_of(trace, ()) else ()
        try:
            settings = settings_of(trace, changes)
        except SettingError as error:
            self._screen.say(str(error), "error")
            return
        if idle := _draws_nothing(asked, settings):
            self._screen.say(idle, "warning")
        elif not name:
            self._screen.say("This trace holds as many what-ifs as one can", "warning")
        elif token is None and settings == parent and form == start.forms.now:
            self._screen.say("That is what the run was made with: choose another value")
        elif len(given) >= settings.max_new_tokens:
            left = f"length {settings.max_new_tokens} leaves no token behind this one: a greater length does"
            self._screen.say(left, "warning")
        else:
            origin = Origin(line.name, position, token, changes)
            request = WhatIf(name, origin, settings, line.prompt_text, line.prompt_tokens, given, form)
            self._events, self._at_work = [], (name, home)
            if not self._screen.play(request, Play(self._went_on, self._ended)):
                self._at_work = None
                self._screen.say("The engine is at work: try again when it is ready", "warning")

    @property
    def _is_shown(self) -> bool:
        """Whether the panes show the run that the one at work is of: one may have left that meanwhile."""
        return self._at_work is not None and is_same_run(self._screen.shown_trace, self._at_work[1].trace)

    def _went_on(self, batch: Sequence[Event]) -> None:
        self._events += batch
        if self._is_shown:
            self._screen.goes_on_beside([event for event in batch if not isinstance(event, Finished)])

    def _ended(self, error: str) -> None:
        if error:
            self._events += self._screen.break_what_if(error) if self._is_shown else []
            self._screen.say(f"No what-if: {error}", "error", timeout=20)
        if self._at_work is not None and self._has_begun:
            self._close(EndReason.ERROR, error)
            if not self._is_shown:
                self._screen.say("The what-if has ended: it is in the trace that it was begun in")
            self._screen.keep_what_if(self._events, self._at_work[1])
        self._events, self._at_work = [], None
        self._screen.settle()

    def unfinished(self) -> tuple[Sequence[Event], Home] | None:
        """The app is left: the one at work as far as it went, and where it belongs; None where none has begun."""
        if self._at_work is None or not self._has_begun:
            return None
        self._close(EndReason.CANCELLED)
        return self._events, self._at_work[1]

    @property
    def _has_begun(self) -> bool:
        return any(isinstance(event, Step) and isinstance(event.record, RunStarted) for event in self._events)

    def _close(self, reason: EndReason, message: str = "") -> None:
        """What did not come to its end has one."""
        if not any(isinstance(event, Step) and isinstance(event.record, RunEnded) for event in self._events):
            assert self._at_work is not None
            self._events.append(Step(self._at_work[0], RunEnded(reason, message)))


def _draws_nothing(asked: Mapping[str, Any], settings: Settings) -> str:
    """That what is asked shapes only draws, where nothing is drawn; empty where something is, or it does more."""
    if not asked or not set(asked) <= _OF_DRAWS or (settings.processor != "greedy" and settings.temperature):
        return ""
    names = " and ".join(map(flag_of, asked))
    return f"Nothing is drawn here, so {names} would change nothing: processor multinomial 0.7 draws"


def _same(made: PairInfo, loaded: PairInfo | None) -> bool:
    """Whether two pairs are of the same models in the same precision; on which device is all the same.

    So is the form of weights: a what-if runs in that of its run, whatever is loaded.
    """
    if loaded is None:
        return False

    def facts(model: ModelInfo) -> tuple[object, ...]:
        return tuple(getattr(model, name) for name in _OF_A_MODEL)

    return [*map(facts, (made.target, *made.drafters))] == [*map(facts, (loaded.target, *loaded.drafters))]
