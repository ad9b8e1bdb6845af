"""How one round is written: its numbers, then its tokens, wrapped to a width. No widget here."""

from __future__ import annotations

from specdec_tui.decoding.chances import is_greedy
from specdec_tui.decoding.records import DraftsProposed, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.tokens.chips import Run, cells_in, chip
from specdec_tui.tui.tokens.run_log import Row, Shown
from specdec_tui.tui.tokens.style import GLYPHS

_GAP = " "
_NARROW = 50
_WIDE = 76


def round_lines(row: Row, width: int, *, in_rows: bool = False) -> list[list[Run]]:
    """At least one line; continued lines are indented under the tokens.

    What insight knows of a token stands beside it; with `in_rows` every token has a row of its own for that.
    """
    if in_rows:
        return [*_tokens(row, width, 0), *_insight_rows(row, width)]
    # As many figures as there is room for in the lines that the first of them need.
    shortest = _tokens(row, width, 1)
    for figures in (3, 2):
        if len(lines := _tokens(row, width, figures)) <= len(shortest):
            return lines
    return shortest


def _head(record: Shown, width: int) -> str:
    match record:
        case PrefillDone(seconds=seconds):
            number, kept, milliseconds = "pre", "", f"{seconds * 1e3:.0f}"
        case DraftsProposed(round=index, drafts=drafts):
            number, kept, milliseconds = str(index + 1), f"?/{len(drafts)}", "…"
        case RoundVerified(round=index, drafts=drafts):
            accepted = sum(draft.status is Status.ACCEPTED for draft in drafts)
            number, kept = str(index + 1), f"{accepted}/{len(drafts)}" if drafts else ""
            milliseconds = f"{record.seconds * 1e3:.1f}"
    if width < _NARROW:
        return f"{number:>4} {kept:>4} "
    return f"{number:>4} {kept:>5} {milliseconds:>6} ms  "


def _tokens(row: Row, width: int, figures: int) -> list[list[Run]]:
    """A round in one sentence. `figures`: 0 none, 1 chance and draw, 2 p and q too, 3 entropies too."""
    head = _head(row.record, width)
    room = max(4, width - len(head))
    raw = is_greedy(row.tokens)
    lines: list[list[Run]] = [[Run(head, None)]]
    used = 0
    for index, (token, text) in enumerate(zip(row.tokens, row.texts, strict=False)):
        runs = chip(token, text, index, room)
        if figures and (told := _briefly(token, figures, raw)) and cells_in(runs) + len(told) <= room:
            runs.append(Run(told, None))
        cells = cells_in(runs)
        if used and used + len(_GAP) + cells > room:
            lines.append([Run(" " * len(head), None)])
            used = 0
        if used:
            lines[-1].append(Run(_GAP, None))
            used += len(_GAP)
        lines[-1] += runs
        used += cells
    return lines


def _briefly(token: Token, figures: int, raw: bool) -> str:
    """What insight adds to a token in its line: ` .31<.93 p.75 q.50 H1.5 Hq0.9`."""
    seen = token.insight
    if seen is None:
        return ""
    parts = []
    if token.acceptance is not None:
        parts.append(odds(token.acceptance, token.draw))
    if figures > 1:
        parts += [f"{name}{_short(value)}" for name, value in (("p", token.p), ("q", token.q)) if value is not None]
    if figures > 2:
        entropies = (("H", seen.target_entropy), ("Hq", seen.drafter_entropy))
        parts += [f"{'raw ' * raw}{name}{value:.1f}" for name, value in entropies if value is not None]
    return "".join(f" {part}" for part in parts)


def odds(chance: float, draw: float | None) -> str:
    """A chance to be accepted, and how the draw that decided stands to it; with digits enough to tell them apart."""
    if draw is None:
        return _short(chance)
    digits = _telling(chance, draw, 2)
    return f"{_short(draw, digits)}{'<' if draw < chance else '≥'}{_short(chance, digits)}"


def _telling(one: float, other: float | None, least: int) -> int:
    """Digits that tell two numbers apart, `least` or more."""
    if other is None:
        return least
    return next((n for n in range(least, 6) if f"{one:.{n}f}" != f"{other:.{n}f}"), 6)


def _short(value: float, digits: int = 2) -> str:
    return f"{value:.{digits}f}".removeprefix("0")


def _insight_rows(row: Row, width: int) -> list[list[Run]]:
    indent, column = (" " * 5, 12) if width < _WIDE else (" " * 9, 16)
    raw = is_greedy(row.tokens)
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
    """Chance to be accepted and its draw, processed probabilities of target and drafter, their entropies in nats.

    As many as fit, whole: a number cut short would be another number.
    """
    seen = token.insight
    digits, gap = (2, " ") if width < _WIDE else (3, "  ")
    parts: list[tuple[str, float | None, int]] = []
    if token.acceptance is not None:
        apart = _telling(token.acceptance, token.draw, digits)
        parts += [("accept", token.acceptance, apart), ("draw", token.draw, apart)]
    parts += [("p", token.p, digits), ("q", token.q, digits)]
    if seen is not None:
        prefix = "raw " if raw else ""
        parts += [(f"{prefix}H", seen.target_entropy, 2), (f"{prefix}Hq", seen.drafter_entropy, 2)]
    line = ""
    for name, value, places in parts:
        if value is not None:
            part = f"{gap}{name} {value:.{places}f}"
            if len(line) + len(part) > room:
                break
            line += part
    return line
