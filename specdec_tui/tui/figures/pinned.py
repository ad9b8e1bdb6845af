"""The figures that a person pinned, and by how much those of a later run differ from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import EndReason
from specdec_tui.doors.characters import visible
from specdec_tui.tui.figures.words import GOOD, QUIET, WARN, Part

if TYPE_CHECKING:
    from specdec_tui.decoding.differences import Difference, Measured
    from specdec_tui.decoding.figures import RunFigures

BEYOND, WITHIN = "beyond the noise", "within the noise"
UP, DOWN, ALIKE, UNLIKE = "▲", "▼", "≈", "?"
_ANOTHER_PROMPT, _ANOTHER_LENGTH = "another prompt", "another length"


@dataclass(frozen=True, slots=True)
class Made:
    """What a run was made with: its prompt, its length in tokens, the names of its models, and all of it in short."""

    prompt: str = ""
    length: int = 0
    models: tuple[str, ...] = ()
    settings: str = ""


@dataclass(frozen=True, slots=True)
class Pinned:
    """The runs of one prompt, under a letter; `when` they were made."""

    letter: str
    when: str
    made: Made
    runs: Mapping[str, Measured]

    @property
    def name(self) -> str:
        """What it was: `A: γ 4 · greedy · 64 tokens · 21:05`."""
        return f"{self.letter}: {self.made.settings} · {self.when}"


@dataclass(frozen=True, slots=True)
class Changes:
    """What became of a strategy since the pin, by figure; `why`: nothing of it can be compared."""

    letter: str
    figures: Mapping[str, Difference] = field(default_factory=lambda: MappingProxyType({}))
    why: str = ""
    praised: bool = False
    """Whether the run's own speedup may be called what it seems: else none of its gains is painted as good."""

    def mark(self, figure: str) -> str:
        """Whether it went up or down, or no further than noise, or cannot be compared; empty of no such figure."""
        if (found := self.figures.get(figure)) is None:
            return UNLIKE if self.why else ""
        return UNLIKE if found.why else ALIKE if not found.is_beyond else UP if found.change > 0 else DOWN

    def style(self, figure: str) -> str:
        mark = self.mark(figure)
        if mark == UP:
            return GOOD if self.praised or figure in "ατ" else "bold"
        return WARN if mark == DOWN else QUIET


def changes_since(
    pinned: Pinned, made: Made, runs: Mapping[str, Measured], praised: Sequence[str]
) -> dict[str, Changes]:
    """By strategy, of all that ran; none of the pinned runs themselves. `praised`: whose speedup is what it seems."""
    if is_pinned(pinned, runs):
        return {}
    from specdec_tui.decoding.differences import differences  # not at a start

    same_target = pinned.made.models[:1] == made.models[:1]
    found = {}
    for name, now in runs.items():
        before = pinned.runs.get(name)
        why = "not pinned" if before is None else _unlike(pinned.made, made, before.run, now.run)
        told = {} if why or before is None else differences(before, now, same_target)
        found[name] = Changes(pinned.letter, told, why, name in praised)
    return found


def is_pinned(pinned: Pinned, runs: Mapping[str, Measured]) -> bool:
    """Whether these are the very runs, as they are or read again: no two have the same times to the last digit."""
    return pinned.runs.keys() == runs.keys() and all(
        (one.run.rounds, one.run.decode_seconds, one.run.prefill_seconds)
        == (runs[name].run.rounds, runs[name].run.decode_seconds, runs[name].run.prefill_seconds)
        for name, one in pinned.runs.items()
    )


def _unlike(pinned: Made, made: Made, before: RunFigures, now: RunFigures) -> str:
    """Why figures of two runs are of different texts; empty where they are not."""
    same_tokens = before.prompt_tokens == now.prompt_tokens or pinned.models != made.models
    if pinned.prompt != made.prompt or not same_tokens:
        return _ANOTHER_PROMPT
    if pinned.length != made.length:
        return _ANOTHER_LENGTH
    for when, run in (("", now), ("the pinned run ", before)):
        if run.end is None:
            return f"{when}not ended"
        if run.end.reason in (EndReason.CANCELLED, EndReason.ERROR):
            return f"{when}{run.end.words}"
    return ""


_DIGITS = {"tok/s": 1}


def change_text(figure: str, found: Difference) -> str:
    """`+0.4`, `−0.02`, with the sign of a speedup behind it."""
    text = f"{found.change:+.{_DIGITS.get(figure, 2)}f}".replace("-", "−")
    return f"{text}×" if figure == "speedup" else text


def noise_text(figure: str, found: Difference) -> str:
    return f"±{found.noise:.{_DIGITS.get(figure, 2)}f}"


def cell(changes: Changes | None, figure: str, with_noise: bool = False) -> Part:
    """Of a table: `+0.4 ▲`, `−0.02 ≈`, `?` where nothing can be said."""
    if changes is None or not (mark := changes.mark(figure)):
        return ("–", "")
    if mark == UNLIKE:
        return (mark, QUIET)
    found = changes.figures[figure]
    noise = f" {noise_text(figure, found)}" if with_noise else ""
    return (f"{change_text(figure, found)}{noise} {mark}", changes.style(figure))


def groups(changes: Changes | None, width: int) -> list[list[Part]]:
    """Of a pane: every difference with whether it exceeds the noise, in as many words as all of them have room for."""
    if changes is None:
        return []
    begin: Part = (f"vs. {changes.letter} ", QUIET)
    if changes.why:
        return [[begin, (changes.why, WARN)]]
    told: list[list[Part]] = []
    for form in (_each_in_words, _by_word, _by_marks):
        told = [*form(changes), *_doubts(changes)]
        if sum(len(text) for group in told for text, _ in group) + 2 * len(told) - 2 + len(begin[0]) <= width:
            break
    return [[begin, *told[0]], *told[1:]] if told else []


def _each_in_words(changes: Changes) -> list[list[Part]]:
    return [
        [*_change(changes, figure), (f" {BEYOND if found.is_beyond else WITHIN}", changes.style(figure))]
        for figure, found in _compared(changes)
    ]


def _by_word(changes: Changes) -> list[list[Part]]:
    """What is beyond the noise, then what is within it."""
    told = []
    for word, is_beyond in ((BEYOND, True), (WITHIN, False)):
        figures = [figure for figure, found in _compared(changes) if found.is_beyond is is_beyond]
        if figures:
            parts = [[*_change(changes, figure), (", ", QUIET)] for figure in figures]
            told.append([*[part for group in parts for part in group][:-1], (f" {word}", QUIET)])
    return told


def _by_marks(changes: Changes) -> list[list[Part]]:
    return [
        [*_change(changes, figure), *([] if found.is_beyond else [(f" {ALIKE}", QUIET)])]
        for figure, found in _compared(changes)
    ]


def _compared(changes: Changes) -> list[tuple[str, Difference]]:
    return [(figure, found) for figure, found in changes.figures.items() if not found.why]


def _doubts(changes: Changes) -> list[list[Part]]:
    """What cannot be compared, by the reason."""
    by_reason: dict[str, list[str]] = {}
    for figure, found in changes.figures.items():
        if found.why:
            by_reason.setdefault(found.why, []).append(figure)
    return [[(f"{', '.join(figures)}: {why}", WARN)] for why, figures in by_reason.items()]


def _change(changes: Changes, figure: str) -> list[Part]:
    """`α −0.02`, `+0.4 tok/s ▲`."""
    found, style = changes.figures[figure], changes.style(figure)
    name: list[Part] = [(f"{figure} ", QUIET)] if figure in "ατ" else []
    told: list[Part] = [*name, (change_text(figure, found), style)]
    if figure == "tok/s":
        told.append((" tok/s", QUIET))
    return [*told, (f" {changes.mark(figure)}", style)] if found.is_beyond else told


def note(
    pinned: Pinned, made: Made, changes: Mapping[str, Changes], baselines: Sequence[RunFigures | None]
) -> list[list[Part]]:
    """Below a table: what was pinned, what is other now beside the settings, and what its marks mean.

    `baselines`: the target's own run then and now.
    """
    if not changes:
        return [[(f"pinned {visible(pinned.name)}: this run", QUIET)]]
    told: list[list[Part]] = [[(f"Δ vs. pinned {visible(pinned.name)}", QUIET)]]
    if pinned.made.models != made.models:
        told.append([(f"other models: {visible(' + '.join(pinned.made.models) or 'unknown')} then", WARN)])
    marks = {one.mark(figure) for one in changes.values() for figure in one.figures}
    if marks & {UP, DOWN}:
        told.append([(f"{UP} {DOWN} {BEYOND}", QUIET)])
    if ALIKE in marks:
        told.append([(f"{ALIKE} {WITHIN}", QUIET)])
    whys: dict[str, list[str]] = {}
    for name, one in changes.items():
        for why in dict.fromkeys([one.why, *(found.why for found in one.figures.values())]):
            if why:
                whys.setdefault(why, []).append(name)
    for why, names in whys.items():
        whom = "" if len(names) == len(changes) else f" ({', '.join(map(visible, names))})"
        told.append([(f"{UNLIKE} not comparable: {why}{whom}", WARN)])
    from specdec_tui.decoding.differences import target_drift

    drift = target_drift(*baselines) if pinned.made.models[:1] == made.models[:1] else None
    target = changes.get("target")
    if drift is not None and target is not None and target.mark("tok/s") in (UP, DOWN):
        told.append([("target moved too: so much of a change in tok/s may be the machine", WARN)])
    return told
