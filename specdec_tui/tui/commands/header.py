"""The top line: which pair is loaded, where, how large, and the state of the app."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import takewhile
from time import monotonic
from typing import Literal

from rich.cells import cell_len, set_cell_size
from textual.app import RenderResult
from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specdec_tui.backends.pair import Health, ModelInfo, PairInfo, Progress
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
_FOLDER_OF_GGUF = re.compile(r"(?<!\S)\S*/(?=[^/\s]+\.gguf\b)", re.IGNORECASE)
_PATH = re.compile(r"[/~]|\.\.?/|.*/.*\.gguf$", re.IGNORECASE | re.DOTALL)  # and no hub id
_LEAST_NAME = 12  # cells of a model's name, below which facts give way
_TITLE = Content.styled("specdec-tui", "bold $text-primary")
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
        return _fitted(self._lefts, rights, self.content_size.width)

    def _lefts(self, room: int) -> list[Content]:
        """What may be told on the left in so many cells, the best first; only the last one may be longer."""
        if self.state == "loading" and self.progress is not None:
            words = _without_asides(_FOLDER_OF_GGUF.sub("", one_row(self.progress.stage)))
        elif self.pair is not None:
            return described(self.pair, room, self.health)
        else:
            words = ["no models: press m to choose a pair" if self.state == "failed" else ""]
        return [*(Content.assemble(_TITLE, "  ", told) for told in words), Content(words[-1])]


def _fitted(lefts: Callable[[int], list[Content]], rights: list[Content], width: int) -> Content:
    """Subject and state in one line: as much of both as fits, in whole parts; only the last names may be cut."""
    for right in rights:
        room = max(0, width - right.cell_length - 2)
        for left in lefts(room):
            if left.cell_length <= room:
                return Content.assemble(left.truncate(room, pad=True), "  ", right)
    right = rights[-1]
    room = max(0, width - right.cell_length - 2)
    return Content.assemble(lefts(room)[-1].truncate(room, ellipsis=True, pad=True), "  ", right)


def _without_asides(words: str) -> list[str]:
    """Words as they are, and with one after the other of the brackets at their end left out."""
    found = [words]
    while shorter := _ASIDE.match(found[-1]):
        found.append(shorter[1])
    return found


def described(pair: PairInfo, room: int, health: Health | None = None) -> list[Content]:
    """`target + drafter · device · dtype · memory`, never as markup, and the same with less and less of it.

    Names are as long as so many cells have room for, but of no more than `_LEAST_NAME` where they are cut; of files and
    folders they are the last part of the path. Of a target on a server how that is comes first of the facts.
    """
    models, names = pair.models, short_names([model.name for model in pair.models])
    device, dtype = _each(model.device for model in models), _each(map(_dtype_and_form, models))
    memory = [size(count)] if (count := sum(model.memory_bytes for model in models)) else []
    short = [device, dtype, *memory]
    found = []
    for facts in ([device, _precision(models), *memory], short, short[:2], short[:1], []):
        behind = Content.styled("".join(f" · {fact}" for fact in facts), "$text-muted")
        if health is not None:
            behind = Content.assemble(" ", _server(health), behind)
        for title in (Content.assemble(_TITLE, "  "), Content("")):
            left = room - title.cell_length - behind.cell_length
            found.append(Content.assemble(title, Content(" + ".join(_cut(names, left))), behind))
    return [*found, Content(" + ".join(names))]


def short_names(names: Sequence[str]) -> list[str]:
    """Of paths their last parts, or as many more as tell them apart; other names as they are."""
    parts = [name.rstrip("/").split("/") if _PATH.match(name) else [name] for name in names]
    for count in range(1, max(map(len, parts))):
        found = ["/".join(part[-count:]) for part in parts]
        if len(set(found)) == len(set(names)):
            return [one_row(name) for name in found]
    return [one_row(name) for name in names]


def _cut(names: Sequence[str], room: int) -> list[str]:
    """Names that stand in so many cells with ` + ` between them: the longest are cut, to `_LEAST_NAME` at most.

    Where they would be cut to the same, what tells them apart is kept.
    """
    room -= 3 * (len(names) - 1)
    sizes = [cell_len(name) for name in names]
    most = max([_LEAST_NAME, *sizes])
    while most > _LEAST_NAME and sum(min(most, own) for own in sizes) > room:
        most -= 1
    cut = {name: elided(name, most) for name in names}
    for _ in names:  # those that are still alike are told apart further on
        alike: dict[str, list[str]] = {}
        for name, short in cut.items():
            alike.setdefault(short, []).append(name)
        for group in alike.values():
            same = sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, zip(*group, strict=False)))
            for name in group if len(group) > 1 else ():
                cut[name] = _begin(name[:same], most // 2) + _begin(name[same:], most - most // 2)
    return [cut[name] for name in names]


def elided(text: str, cells: int) -> str:
    """A text in at most so many cells: a mark in its middle stands for what is left out."""
    if cell_len(text) <= cells:
        return text
    begin, end = "", ""
    for count in range(1, len(text)):
        head, tail = text[: (count + 1) // 2], text[len(text) - count // 2 :]
        if cell_len(head) + cell_len(tail) >= cells:
            break
        begin, end = head, tail
    return f"{begin}…{end}"


def _begin(text: str, cells: int) -> str:
    return text if cell_len(text) <= cells else set_cell_size(text, cells - 1).rstrip() + "…"


def _precision(models: Sequence[ModelInfo]) -> str:
    """Of all of them; said in one where they compute in the same."""
    if len({(model.dtype, model.quantization) for model in models}) > 1 or models[0].quantization not in ("", "none"):
        return _each(model.precision for model in models)
    held, forms = (
        _each(filter(None, values)) for values in zip(*((m.held_dtype, m.weights) for m in models), strict=True)
    )
    told = [*([f"held in {held}"] if held else []), *([forms] if forms else [])]
    return one_row(models[0].dtype) + (f" ({', '.join(told)})" if told else "")


def _dtype_and_form(model: ModelInfo) -> str:
    """Its precision without what its weights are held in."""
    return replace(model, held_dtype="").precision


def _server(health: Health) -> Content:
    """`● 12 ms`, or that it does not answer."""
    if health.seconds is None:
        return Content.styled("✗ server does not answer", "$text-error")
    added = f" (+{health.added * 1e3:.3g} added)" if health.added else ""
    seconds = f" {max(0.0, health.seconds - health.added) * 1e3:.3g} ms{added}"
    return Content.assemble(("●", "$text-success"), (seconds, "$text-muted"))


def _each(values: Iterable[str]) -> str:
    """Distinct values joined by `+`: one word when target and drafter agree."""
    return "+".join(dict.fromkeys(map(one_row, values)))


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
