"""Frozen runs and a tiny host app for the widgets that show generation."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

from textual.app import App, ComposeResult
from textual.containers import Grid
from textual.strip import Strip
from textual.widget import Widget

from specdec_tui.decoding.records import (
    DraftsProposed,
    EndReason,
    Insight,
    PassLimit,
    PassSeconds,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.tui.app.themes import THEMES, TOKEN_DEFAULTS
from specdec_tui.tui.lines.inks import INKS

STYLE_SHEET = Path(__file__).parents[2] / "app.tcss"

STORY = (
    "Speculative decoding lets a small drafter write a few tokens ahead of a large target model. "
    "The target then checks all of them in one pass: what it agrees with is kept, and the first "
    "token it refuses is replaced by its own.\n\n"
    "1. The drafter proposes γ tokens.\n"
    "2. The target scores them together.\n"
    "3. Accepted tokens are emitted, plus one more.\n\n"
    "Since a pass over five tokens costs hardly more than a pass over one, the text comes out "
    "faster — and it is exactly the text the target would have written alone. "
)


LENGTH_REACHED = RunEnded(EndReason.LENGTH)


class HostApp(App[None]):
    """Shows the widgets it is given, in a grid, under the app's own style sheet."""

    CSS_PATH = STYLE_SHEET
    COMPONENT_CLASSES: ClassVar[set[str]] = INKS
    CSS = "Grid { grid-size: 2; grid-gutter: 0; } Grid.-one { grid-size: 1; } Grid.-three { grid-size: 3; }"
    ENABLE_COMMAND_PALETTE = False

    def __init__(
        self, *widgets: Widget, theme: str = "specdec-dark", columns: str = "", ansi_color: bool | None = None
    ) -> None:
        super().__init__(ansi_color=ansi_color)
        self._widgets = widgets
        self._columns = columns
        for known in THEMES:
            self.register_theme(known)
        self.theme = theme

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return TOKEN_DEFAULTS

    def compose(self) -> ComposeResult:
        with Grid(classes=self._columns):
            yield from self._widgets


def words_of(text: str) -> list[str]:
    """Token-like pieces: a word with the space before it, or one line break."""
    pieces: list[str] = []
    for character in text:
        if not pieces or character in " \n" or pieces[-1].endswith("\n"):
            pieces.append(character)
        else:
            pieces[-1] += character
    return pieces


PASSES: PassSeconds = tuple(enumerate((0.050, 0.0505, 0.052, 0.055, 0.059, 0.064, 0.07, 0.077, 0.085), 1))
"""Of passes over one to nine tokens of the models of these runs."""
PASS_LIMIT = PassLimit(1_500_000_000, 600_000_000, 3.0e10, 1.0e11, 2)
"""50 ms to read the weights, 6 ms to multiply a token with them: they cross between 8 and 9 tokens."""


def run_steps(
    strategy: str,
    pieces: Sequence[str],
    *,
    gamma: int = 4,
    seed: int = 7,
    alpha: float = 0.7,
    round_seconds: float = 0.06,
    insight: bool = False,
    end: RunEnded | None = LENGTH_REACHED,
    max_new_tokens: int | None = None,
    prompt_tokens: int = 23,
    passes: PassSeconds = (),
    pass_limit: PassLimit | None = None,
) -> list[Step]:
    """The whole stream of a run that emits exactly `pieces`, one a token."""
    chance = random.Random(seed)
    budget = len(pieces) if max_new_tokens is None else max_new_tokens
    steps = [Step(strategy, RunStarted(strategy, prompt_tokens, gamma, budget), (), "prompt")]
    prefill = PrefillDone(Token(0, Status.SAMPLED, 0), 0.21, passes=passes, pass_limit=pass_limit)
    steps.append(Step(strategy, prefill, (pieces[0],)))
    at, index = 1, 0

    def token(status: Status, position: int) -> Token:
        p, q = round(chance.random(), 3), round(chance.random(), 3)
        seen = Insight(round(3 * p, 2), round(3 * q, 2)) if insight else None
        return Token(position, status, position, p, q, min(1.0, p / q if q else 1.0), None, seen)

    while at < len(pieces):
        room = min(gamma, len(pieces) - at - 1)
        kept = 0
        while kept < room and chance.random() < alpha:
            kept += 1
        drafts = []
        texts = []
        for i in range(room):
            status = Status.ACCEPTED if i < kept else Status.REJECTED if i == kept else Status.UNVERIFIED
            drafts.append(token(status, at + i))
            texts.append(pieces[at + i] if i < kept else f" not{i}")
        if drafts:
            waiting = tuple(Token(d.id, Status.PENDING, d.position, None, d.q) for d in drafts)
            steps.append(Step(strategy, DraftsProposed(index, waiting), tuple(texts)))
        status = Status.SAMPLED if not drafts else Status.BONUS if kept == room else Status.RESAMPLED
        emitted = token(status, at + kept)
        draft_seconds = 0.008 * room
        steps.append(
            Step(
                strategy,
                RoundVerified(index, tuple(drafts), emitted, draft_seconds, round_seconds, 0.001),
                (*texts, pieces[at + kept]),
            )
        )
        at += kept + 1
        index += 1
    if end is not None:
        steps.append(Step(strategy, end))
    return steps


def with_changed_pace(steps: Sequence[Step], factor: float = 6.0) -> list[Step]:
    """The same, the first half of the text so many times slower: as on a machine whose load went away."""
    rounds = [step.record for step in steps if isinstance(step.record, RoundVerified)]
    half = sum(len(record.new_tokens) for record in rounds) / 2
    found, written = [], 0
    for step in steps:
        record = step.record
        if isinstance(record, RoundVerified):
            if written < half:
                seconds = (
                    factor * part for part in (record.draft_seconds, record.verify_seconds, record.other_seconds)
                )
                step = replace(step, record=RoundVerified(record.round, record.drafts, record.emitted, *seconds))
            written += len(record.new_tokens)
        found.append(step)
    return found


def painted(widget: Widget) -> list[str]:
    """The lines a widget draws, without trailing blanks."""
    return [strip.text.rstrip() for strip in strips_of(widget)]


def strips_of(widget: Widget) -> list[Strip]:
    return [widget.render_line(y) for y in range(widget.size.height)]


def escape_bytes(strips: Iterable[Strip]) -> set[str]:
    """Control characters in what goes to the terminal as text."""
    return {
        character
        for strip in strips
        for segment in strip
        for character in segment.text
        if ord(character) < 0x20 or 0x7F <= ord(character) < 0xA0
    }
