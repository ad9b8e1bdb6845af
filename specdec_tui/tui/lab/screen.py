"""The γ-lab on the screen: a curve, one round to scale, the sum in words, and figures that can be moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

from rich.cells import cell_len
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Static

from specdec_tui.decoding.forecast import AS_MEASURED, Supposed
from specdec_tui.traces.bounds import MOST_DRAFTS
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.figures.words import QUIET, WARN
from specdec_tui.tui.lab.gamma_plot import HERE, GammaPlot, legend_of
from specdec_tui.tui.lab.reading import FIGURES, Progress, Reading, Subject, moved, read, read_on, sweep_seconds
from specdec_tui.tui.lab.words import (
    Line,
    about_text,
    advice_lines,
    figure_line,
    losing_lines,
    purpose_lines,
    round_lines,
    source_line,
    sum_line,
    table_lines,
)

_BESIDE = 110  # columns from which words have room beside the curve
_LEAST_PLOT = 6  # rows
_SECOND = 1.0


class Laboratory(Protocol):
    """What the screen asks of the app."""

    @property
    def strategies(self) -> Sequence[str]:
        """Those of the run on the screen."""

    @property
    def about(self) -> str:
        """The prompt of the run, and how it was made."""

    @property
    def notice(self) -> str:
        """What is read here where it is no run of the user's, in a sentence: then nothing of it is swept or taken."""

    @property
    def progress(self) -> Progress | None:
        """None where no sweep is at work."""

    def subject(self, strategy: str) -> Subject:
        """What is known of a strategy now."""

    def no_sweep(self, strategy: str) -> str:
        """Why none can be made of it, also later; empty where one can."""

    def sweep(self, strategy: str) -> None:
        """Measure it at several γ in the background. Says why not where it cannot be."""

    def stop_sweep(self) -> None:
        """What was measured stays."""

    def take(self, gamma: int) -> None:
        """Make it the γ of the next run."""


class LabScreen(Dialog[None]):
    """One strategy at a time. `update` brings what was measured meanwhile to the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("g", "close", show=False, id="lab"),  # ids are of commands: a user's keys for them count here too
        Binding("q", "close", show=False),
        Binding("escape", "stop_or_close", show=False),
        Binding("ctrl+c", "stop_or_stop_all", show=False, id="stop-or-quit"),
        Binding("up", "choose(-1)", show=False),
        Binding("down", "choose(1)", show=False),
        Binding("left", "move(-0.01)", show=False),
        Binding("right", "move(0.01)", show=False),
        Binding("shift+left,ctrl+left", "move(-0.1)", show=False),
        Binding("shift+right,ctrl+right", "move(0.1)", show=False),
        Binding("0", "reset", show=False),
        Binding("plus,equals_sign", "look(1)", show=False),
        Binding("minus", "look(-1)", show=False),
        Binding("tab", "next(1)", show=False),
        Binding("shift+tab", "next(-1)", show=False),
        *(Binding(str(digit), f"go({digit})", show=False) for digit in range(1, 10)),
        Binding("s", "sweep", show=False),
        Binding("enter", "take", show=False),
        Binding("pagedown", "scroll_words(1)", show=False),
        Binding("pageup", "scroll_words(-1)", show=False),
    ]

    def __init__(self, laboratory: Laboratory, strategy: str, keys: Sequence[str] = ()) -> None:
        """`keys`: the digits of the laboratory's strategies, as their panes have them."""
        super().__init__()
        self._laboratory = laboratory
        self._keys = dict(zip(keys, laboratory.strategies, strict=False))
        self._strategy = strategy
        self._figure = FIGURES[0]
        self.reading: Reading = read(laboratory.subject(strategy))

    def compose(self) -> ComposeResult:
        with Vertical(id="lab"):
            with Container(id="lab-parts"):
                with Vertical(id="lab-picture"):
                    yield Static(id="lab-heading", markup=False)
                    yield GammaPlot()
                with VerticalScroll(id="lab-said", can_focus=False):
                    yield Static(id="lab-words", markup=False)
            yield Static(id="lab-keys", markup=False)

    def on_mount(self) -> None:
        self.set_interval(_SECOND, self._tick)
        self.update()

    def on_resize(self, event: events.Resize) -> None:
        # In the new size; a modal screen has the breakpoints of the app.
        beside = event.size.width >= _BESIDE
        self.query_one("#lab-parts").set_class(beside, "-beside")
        self.call_after_refresh(self._write)

    # What it shows

    def update(self) -> None:
        """What is known may be more than it was."""
        self.reading = read(self._laboratory.subject(self._strategy), self._looked_at, self.reading.supposed)
        self._write()

    @property
    def _looked_at(self) -> int | None:
        return None if self.reading.basis is None else self.reading.gamma

    def _tick(self) -> None:
        if self._laboratory.progress is not None:
            self._write_words()

    def _write(self) -> None:
        if not self.is_mounted or not self.is_attached:
            return
        parts, picture = self.query_one("#lab-parts"), self.query_one("#lab-picture")
        has_room = self.size.height >= 2 * _LEAST_PLOT + 2 or parts.has_class("-beside")
        is_wanted = has_room and bool(legend_of(self.reading))
        parts.set_class(not is_wanted, "-words-alone")
        if picture.display != is_wanted:
            picture.display = is_wanted
            self.call_after_refresh(self._write)
        title = f"γ-lab · {self._strategy} · {self._laboratory.about}"
        room = max(1, self.size.width - 6)
        self.query_one("#lab").border_title = Content(one_row(title)).truncate(room, ellipsis=True)
        plot = self.query_one(GammaPlot)
        if plot.size.width and plot.is_mounted:
            plot.show(self.reading)
        self._write_words()

    def _write_words(self) -> None:
        width = self.query_one("#lab-said").scrollable_content_region.width
        heading = self.query_one("#lab-heading", Static)
        heading.update(_fitting(self._headings(), heading.size.width))
        lines = [Content.assemble(*line) for line in self.lines(width)]
        self.query_one("#lab-words", Static).update(Content("\n").join(lines))
        self.query_one("#lab-keys", Static).update(_fitting(self._key_words(), self.size.width - 4))

    def lines(self, width: int) -> list[Line]:
        """All that is said, in so many columns."""
        reading, progress = self.reading, self._laboratory.progress
        lines: list[Line] = [[(self._laboratory.notice, f"bold {WARN}")]] if self._laboratory.notice else []
        wide = self.size.width >= _BESIDE
        if progress is not None:  # first: it must be in sight where the words have to be scrolled
            left = "" if progress.seconds_left is None else f", {about_text(progress.seconds_left)} left"
            told = f"sweep of {progress.strategy}: {progress.done} of {progress.heats} parts measured{left}"
            lines.append([(told, "bold $text-accent"), (" · goes on when you leave; a prompt ends it", QUIET)])
        if reading.lacking:
            lines.append([(f"{reading.lacking[:1].upper()}{reading.lacking[1:]}.", "bold")])
            lines += [
                [(f"γ {gamma} measured ", QUIET), (point.text, "bold"), (f" {point.doubt}", WARN)]
                for gamma, point in reading.points.items()
            ]
            lines += losing_lines(reading)
            can_sweep = not (reading.subject.swept or self._laboratory.no_sweep(self._strategy))
            if reading.points and can_sweep and progress is None:
                again = f"A sweep (s{self._sweep_time}) runs the prompt again at several γ, the target's rounds between"
                lines.append([(f"{again} the others: what else the machine does then slows both alike.", QUIET)])
            if not legend_of(reading):
                lines += purpose_lines()
        else:
            lines += [figure_line(reading, self._figure), *round_lines(reading, width), sum_line(reading, wide)]
            lines += advice_lines(reading)
        if reading.subject.elsewhere:
            lines.append([(f"against {reading.subject.elsewhere}", WARN)])
        if not reading.lacking:
            lines.append(source_line(reading))
            lines += table_lines(reading) if wide else []
        return lines

    @property
    def _sweep_time(self) -> str:
        """How long a sweep will take, before it is begun."""
        seconds = sweep_seconds(self.reading)
        return "" if seconds is None else f", {about_text(seconds)}"

    def _headings(self) -> list[str]:
        """The longest first: the marks of the target and of the sum explain themselves sooner than the others."""
        marks, title = legend_of(self.reading, self.query_one(GammaPlot).seen), "speedup over γ"
        most = [mark for mark in marks if mark[0] not in (HERE, "┈")]
        lists = [marks, [mark for mark in marks if mark[0] != "┈"], most, [mark for mark in most if mark[0] != "⠤"]]
        return ["   ".join([title, *marks]), *("  ".join([title, *some]) for some in lists), title, "γ"]

    def _key_words(self) -> list[str]:
        wanted, progress = self.reading.wanted, self._laboratory.progress
        take = "" if wanted is None else f"enter takes γ {wanted}"
        if not self.reading.supposed.is_nothing:
            take = "0 as measured"
        sweep = f"s sweeps γ{self._sweep_time}" if progress is None else "esc stops the sweep"
        if progress is None and self._laboratory.no_sweep(self._strategy):
            sweep = ""
        if self._laboratory.notice or self.reading.subject.run.served:  # its γ is no setting
            sweep = take = ""
        leave = "esc leaves" if progress is None else f"{key('lab')} leaves"
        supposed = "" if self.reading.lacking else "↑↓ ←→ what if"
        look = "" if self.reading.lacking else "+ - γ"
        others = "tab strategy" if len(self._laboratory.strategies) > 1 else ""
        full = [sweep, take, supposed, look, others, leave]
        return [
            " · ".join(filter(None, parts))
            for parts in (
                full,
                [sweep, take, supposed, others, leave],
                [sweep, take, others, leave],
                [sweep, take, leave],
                [sweep, leave],
                [leave],
            )
        ]

    # Keys

    def action_stop_or_close(self) -> None:
        if self._laboratory.progress is not None:
            self._laboratory.stop_sweep()
        else:
            self.action_close()

    async def action_stop_or_stop_all(self) -> None:
        if self._laboratory.progress is not None:
            self._laboratory.stop_sweep()
        else:
            await self.run_action("app.stop_or_quit")

    def action_choose(self, by: int) -> None:
        self._figure = FIGURES[(FIGURES.index(self._figure) + by) % len(FIGURES)]
        self._write_words()

    def action_move(self, by: float) -> None:
        self._read_with(moved(self.reading, self._figure, by))

    def action_reset(self) -> None:
        self._read_with(AS_MEASURED)

    def _read_with(self, supposed: Supposed) -> None:
        self.reading = read_on(self.reading, self.reading.gamma, supposed)
        self._write()

    def action_look(self, by: int) -> None:
        if self.reading.basis is not None:
            gamma = min(MOST_DRAFTS, max(0, self.reading.gamma + by))
            self.reading = read_on(self.reading, gamma, self.reading.supposed)
            self._write()

    def action_next(self, by: int) -> None:
        names = list(self._laboratory.strategies) or [self._strategy]
        place = names.index(self._strategy) if self._strategy in names else 0
        self._turn_to(names[(place + by) % len(names)])

    def action_go(self, digit: int) -> None:
        if (strategy := self._keys.get(str(digit))) is not None:
            self._turn_to(strategy)

    def _turn_to(self, strategy: str) -> None:
        self._strategy = strategy
        self.reading = read(self._laboratory.subject(strategy))
        self.query_one("#lab-said", VerticalScroll).scroll_home(animate=False)
        self._write()

    def action_sweep(self) -> None:
        if self._laboratory.notice:
            self.app.notify(self._laboratory.notice, markup=False)
            return
        self._laboratory.sweep(self._strategy)
        self._write_words()

    def action_take(self) -> None:
        if not self.reading.supposed.is_nothing:
            self.app.notify("Figures are what-ifs: 0 takes them back, then enter takes the best γ", markup=False)
        elif self._laboratory.notice:
            self.app.notify(self._laboratory.notice, markup=False)
        elif self.reading.wanted is not None:
            self._laboratory.take(self.reading.wanted)

    def action_scroll_words(self, by: int) -> None:
        said = self.query_one("#lab-said", VerticalScroll)
        (said.scroll_page_down if by > 0 else said.scroll_page_up)(animate=False)


def _fitting(texts: Sequence[str], width: int) -> Content:
    """The first that fits into so many cells, the last cut short where none does."""
    found = next((text for text in texts if cell_len(text) <= width), texts[-1])
    return Content.styled(found, QUIET).truncate(max(1, width), ellipsis=True)
