"""How one round is written: its numbers, then its tokens, wrapped to a width. No widget here."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

from specdec_tui.decoding.chances import in_digits, is_greedy, was_judged
from specdec_tui.decoding.records import DraftsProposed, Insight, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.tokens.chips import Run, cells_in, chip
from specdec_tui.tui.tokens.style import GLYPHS

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.run_log import Row, Shown

_GAP = " "
_LEAST_CHIP = 6
_NARROW = 50
_WIDE = 76


def round_lines(row: Row, width: int, *, in_rows: bool = False) -> list[list[Run]]:
    """At least one line; continued lines are indented under the tokens.

    What insight knows of a token stands beside it; with `in_rows` every token has a row of its own for that,
    unless all of it fits into one line.
    """
    head = _head(row.record, width)
    room = max(4, width - len(head))
    raw = is_greedy(row.tokens)
    pairs = zip(row.tokens, row.texts, strict=False)
    words = [_Words(token, text, index, room, raw) for index, (token, text) in enumerate(pairs)]
    chosen = _figures(words, room, in_rows)
    lines = _flowing(words, chosen, head, room)
    return lines if chosen or not in_rows else [*lines, *_insight_rows(row, width, raw)]


class _Words:
    """A token as it stands in its round, and what may be told of it: ever more figures."""

    def __init__(self, token: Token, text: str, index: int, room: int, raw: bool) -> None:
        parts = [] if token.insight is None else _briefly(token, token.insight, raw)
        behind = list(accumulate(parts, lambda before, part: f"{before} {part}".strip()))
        # In brackets: a token may be a number itself, and not every screen has colours.
        self.told = tuple(f"[{figures}]" if figures else "" for figures in behind)
        # A long token makes room for the first figures.
        self.chip = chip(token, text, index, max(_LEAST_CHIP, room - len(self.told[0])) if parts else room)
        self.cells = cells_in(self.chip)

    def told_in(self, figures: int, room: int) -> str:
        """As many of so many figures as there is room for beside the token."""
        return next((told for told in reversed(self.told[:figures]) if self.cells + len(told) <= room), "")


def _figures(words: Sequence[_Words], room: int, in_rows: bool) -> int:
    """How many figures stand beside the tokens: all that fit into the lines which the first of them need."""
    most = max((len(word.told) for word in words), default=0)
    if in_rows:
        whole = sum(word.cells + len("".join(word.told[-1:])) + len(_GAP) for word in words) - len(_GAP)
        return most if whole <= room else 0
    fewest = _line_count(words, 1, room)
    return next((count for count in range(most, 1, -1) if _line_count(words, count, room) <= fewest), min(1, most))


def _line_count(words: Sequence[_Words], figures: int, room: int) -> int:
    lines, used = 1, 0
    for word in words:
        cells = word.cells + len(word.told_in(figures, room))
        if used and used + len(_GAP) + cells > room:
            lines, used = lines + 1, 0
        used += cells + (len(_GAP) if used else 0)
    return lines


def _flowing(words: Sequence[_Words], figures: int, head: str, room: int) -> list[list[Run]]:
    """A round in one sentence."""
    lines: list[list[Run]] = [[Run(head, None)]]
    used = 0
    for word in words:
        told = word.told_in(figures, room)
        cells = word.cells + len(told)
        if used and used + len(_GAP) + cells > room:
            lines.append([Run(" " * len(head), None)])
            used = 0
        if used:
            lines[-1].append(Run(_GAP, None))
            used += len(_GAP)
        lines[-1] += [*word.chip, Run(told, None)] if told else word.chip
        used += cells
    return lines


def _head(record: Shown, width: int) -> str:
    match record:
        case PrefillDone(seconds=seconds):
            number, kept, milliseconds = "pre", "", f"{seconds * 1e3:.0f}"
        case DraftsProposed(round=index, drafts=drafts):
            number, kept, milliseconds = str(index + 1), f"?/{len(drafts)}", "…"
        case RoundVerified(round=index, drafts=drafts):
            accepted = sum(draft.status is Status.ACCEPTED for draft in drafts)
            of = "?" if record.untold is None else len(drafts) + record.untold
            number, kept = str(index + 1), f"{accepted}/{of}" if of else ""
            milliseconds = f"{record.seconds * 1e3:.1f}"
    if width < _NARROW:
        return f"{number:>4} {kept:>4} "
    return f"{number:>4} {kept:>5} {milliseconds:>6} ms  "


def _briefly(token: Token, seen: Insight, raw: bool) -> list[str]:
    """What insight adds to a token in its line, in parts: `.31<.93`, `p=.75 q=.50`, `H=1.5 Hq=0.9`."""
    chances = (("p", token.p), ("q", token.q))
    entropies = (("H", seen.target_entropy), ("Hq", seen.drafter_entropy))
    return [
        "" if (chance := _chance(token)) is None else _odds(chance, token.draw),
        " ".join(f"{name}{_equal(_short(value))}" for name, value in chances if value is not None),
        " ".join(f"{'raw ' * raw}{name}={value:.1f}" for name, value in entropies if value is not None),
    ]


def _chance(token: Token) -> float | None:
    """The chance to be accepted, of what was judged."""
    return token.acceptance if was_judged(token) else None


def _odds(chance: float, draw: float | None) -> str:
    """How the coin that decided stands to the chance to be accepted; with digits enough to tell them apart.

    Without a coin the chance alone, and nothing where it is what the sign of the token says already.
    """
    if draw is None:
        return "" if chance in (0.0, 1.0) else f"accept{_equal(_short(chance))}"
    of_chance, of_draw = _digits(chance, draw, 2)
    return f"{_short(draw, of_draw)}{'<' if draw < chance else '≥'}{_short(chance, of_chance)}"


def _digits(chance: float, draw: float | None, least: int) -> tuple[int, int]:
    """Digits of a chance and of its draw, `least` or some more: apart from each other, the chance from 0 and 1 too."""
    places = range(least, 6)
    apart = next((n for n in places if draw is None or f"{chance:.{n}f}" != f"{draw:.{n}f}"), 6)
    sure = chance in (0.0, 1.0)
    return next((n for n in places if n >= apart and (sure or 0 < float(f"{chance:.{n}f}") < 1)), 6), apart


def _short(value: float, digits: int = 2) -> str:
    text = in_digits(value, digits)
    return f"{value:.0e}".replace("e-0", "e-") if "e" in text else text.replace("0.", ".", 1)


def _equal(number: str) -> str:
    """`=.75`, and `>.99` as it is."""
    return number if number[0] in "<>" else f"={number}"


def _insight_rows(row: Row, width: int, raw: bool) -> list[list[Run]]:
    indent, column = (" " * 5, 12) if width < _WIDE else (" " * 9, 16)
    found: list[list[Run]] = []
    for index, (token, text) in enumerate(zip(row.tokens, row.texts, strict=False)):
        if token.insight is None:
            continue
        runs = chip(token, text, index, column + len(GLYPHS[token.status]))
        runs.append(Run(" " * (1 + column - cells_in(runs)), None))
        numbers = _numbers(token, width, width - len(indent) - 1 - column, raw)
        found.append([Run(indent, None), *runs, Run(numbers, None)])
    return found


def _numbers(token: Token, width: int, room: int, raw: bool) -> str:
    """Chance to be accepted and its coin, processed probabilities of target and drafter, their entropies in nats.

    As many as fit, whole: a number cut short would be another number.
    """
    seen = token.insight
    digits, gap = (2, " ") if width < _WIDE else (3, "  ")
    chance = _chance(token)
    places = (digits, digits) if chance is None else _digits(chance, token.draw, digits)
    chances = [("accept", chance, places[0]), ("coin", token.draw, places[1])]
    chances += [("p", token.p, digits), ("q", token.q, digits)]
    parts = [f"{name} {in_digits(value, count)}" for name, value, count in chances if value is not None]
    if seen is not None:
        prefix = "raw " if raw else ""
        entropies = (("H", seen.target_entropy), ("Hq", seen.drafter_entropy))
        parts += [f"{prefix}{name} {value:.2f}" for name, value in entropies if value is not None]
    line = ""
    for part in parts:
        if len(line) + len(gap) + len(part) > room:
            break
        line += gap + part
    return line
