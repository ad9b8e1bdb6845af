"""The top line: which pair is loaded, where, how large, and the state of the app."""

from __future__ import annotations

import re
from datetime import datetime
from time import monotonic
from typing import Literal

from textual.app import RenderResult
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specdec_tui.backends.pair import Health, PairInfo, Progress
from specdec_tui.doors.characters import visible
from specdec_tui.tui.commands.table import key

State = Literal["loading", "ready", "waiting", "running", "failed", "trace"]

_LOOKS = {
    "loading": ("◌", "$text-warning"),
    "ready": ("●", "$text-success"),
    "waiting": ("◌", "$text-warning"),  # for the run of another tab
    "running": ("▶", "$text-accent"),
    "failed": ("✗", "$text-error"),
    "trace": ("○", "$text-muted"),  # of a run, and no models to make another with
}
_LONGEST_ROW = 2000  # characters: more than a row of any screen shows
_BAR_CELLS, _SHORT_BAR_CELLS = 16, 8
_WIDE = 100
_TURNS = "◐◓◑◒"
_TURN_SECONDS = 0.5
_ASIDE = re.compile(r"(.*\S) \([^()]*\)")
_STOPS = {"waiting": "stops", "running": "stops", "loading": "abandons"}
_ROOM_FOR_KEYS = {"loading": 100}  # columns: what is loaded comes first


class Header(Widget):
    """One line. What it has no room for is left out part by part, never cut within, but for names; the state stays."""

    state: reactive[State] = reactive[State]("loading")
    pair: reactive[PairInfo | None] = reactive[PairInfo | None](None)
    progress: reactive[Progress | None] = reactive[Progress | None](None)
    health: reactive[Health | None] = reactive[Health | None](None)

    _since = 0.0

    def watch_state(self, old: State, state: State) -> None:
        """A load shows that it goes on, also where its progress stands still."""
        if state == "loading":
            self._since = monotonic()
        self.auto_refresh = _TURN_SECONDS if state == "loading" else None

    def render(self) -> RenderResult:
        glyph, colour = _LOOKS[self.state]
        waited = ""
        if self.state == "loading" and self._since:
            seconds = monotonic() - self._since
            glyph, waited = _TURNS[int(seconds / _TURN_SECONDS) % len(_TURNS)], f" {seconds:.0f} s"
        right = Content.assemble((f"{glyph} {self.state}{waited}", f"bold {colour}"))
        if self.state in _STOPS and self.size.width >= _ROOM_FOR_KEYS.get(self.state, 0):
            right = Content.assemble((f"{key('stop or quit')} {_STOPS[self.state]}  ", "$text-muted"), right)
        rights = [right]
        if self.progress is not None:
            bar = Content.assemble(_bar(self.progress, self.size.width), "  ", right)
            # Only a load is more than the name of the pair: what is made in the background stands behind it.
            if self.state != "loading":
                rights.insert(0, Content.assemble((f"{one_row(self.progress.stage)} ", "$text-muted"), bar))
            rights.insert(-1, bar)
        return _fitted(self._subjects(), rights, self.content_size.width)

    def _subjects(self) -> list[Content]:
        """What is told on the left, the longest first."""
        if self.state == "loading" and self.progress is not None:
            return [Content(words) for words in _without_asides(one_row(self.progress.stage))]
        if self.pair is None:
            return [Content("no models: press m to choose a pair" if self.state == "failed" else "")]
        return describe(self.pair, self.health)


def _fitted(subjects: list[Content], rights: list[Content], width: int) -> Content:
    """Subject and state in one line: as much of both as fits, in whole parts; only the last names may be cut."""
    title = Content.styled("specdec-tui", "bold $text-primary")
    lefts = [Content.assemble(title, "  ", subject) for subject in subjects] + [subjects[-1]]
    for right in rights:
        room = max(0, width - right.cell_length - 2)
        for left in lefts:
            if left.cell_length <= room:
                return Content.assemble(left.truncate(room, pad=True), "  ", right)
    right = rights[-1]
    return Content.assemble(
        lefts[-1].truncate(max(0, width - right.cell_length - 2), ellipsis=True, pad=True), "  ", right
    )


def _without_asides(words: str) -> list[str]:
    """Words as they are, and with one after the other of the brackets at their end left out."""
    found = [words]
    while shorter := _ASIDE.match(found[-1]):
        found.append(shorter[1])
    return found


def describe(pair: PairInfo, health: Health | None = None) -> list[Content]:
    """`target + drafter · device · dtype · memory`, names as given, never as markup; then with fewer of the facts.

    Of a target on a server how that is comes first of them.
    """
    models = pair.models
    names = Content(" + ").join([Content(one_row(model.name)) for model in models])
    facts = [
        _each(model.device for model in models),
        _each(model.precision for model in models),
        *([size(memory)] if (memory := sum(model.memory_bytes for model in models)) else []),
    ]
    if health is not None:
        names = Content.assemble(names, " ", _server(health))
    told = [
        Content.assemble(names, (" · " + " · ".join(facts[:count]), "$text-muted"))
        for count in range(len(facts), 0, -1)
    ]
    return [*told, names]


def _server(health: Health) -> Content:
    """`● 12 ms`, or that it does not answer."""
    if health.seconds is None:
        return Content.styled("✗ server does not answer", "$text-error")
    added = f" (+{health.added * 1e3:.3g} added)" if health.added else ""
    seconds = f" {max(0.0, health.seconds - health.added) * 1e3:.3g} ms{added}"
    return Content.assemble(("●", "$text-success"), (seconds, "$text-muted"))


def _each(values: object) -> str:
    """Distinct values joined by `+`: one word when target and drafter agree."""
    return "+".join(dict.fromkeys(one_row(str(value)) for value in values))  # type: ignore[attr-defined]


def size(count: int) -> str:
    """Bytes for people, in powers of ten."""
    if count >= 1e9:
        return f"{count / 1e9:.1f} GB"
    return f"{count / 1e6:.0f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


def local_time(moment: str) -> str:
    """An ISO 8601 time as `2026-11-28 13:05` where the user is; as it stands where it is none."""
    try:
        return datetime.fromisoformat(moment).astimezone().strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError):
        return one_row(moment)[:16]


def one_row(text: str) -> str:
    """Untrusted text on one row: the beginning of it, where it is long, as marks without a width fill none."""
    cut = " …" if len(text) > _LONGEST_ROW else ""
    return visible(" ".join(text[:_LONGEST_ROW].split())) + cut


def _bar(progress: Progress, width: int) -> Content:
    if progress.fraction is None:
        return Content("")
    fraction = min(1.0, max(0.0, progress.fraction))
    cells = _BAR_CELLS if width >= _WIDE else _SHORT_BAR_CELLS
    full = round(fraction * cells)
    return Content.assemble(
        ("━" * full, "$text-warning"),
        ("━" * (cells - full), "$text-disabled"),
        f" {fraction:4.0%}",
    )
