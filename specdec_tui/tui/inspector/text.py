"""What is known about one token, written for a width. No widget here.

Parts are (text, Textual style); their text is shown as it is and never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specdec_tui.decoding.records import DraftsProposed, PrefillDone, RoundVerified, Status, Token
from specdec_tui.tui.figures.words import QUIET, Part
from specdec_tui.tui.tokens.chips import clip, spell
from specdec_tui.tui.tokens.run_log import Shown
from specdec_tui.tui.tokens.style import GLYPHS

Line = list[Part]

HINT = "switch insight on (ctrl+p, insight on) and run again for entropies and alternatives"
_FATES = {
    Status.PENDING: "pending: the target has not judged it yet",
    Status.ACCEPTED: "accepted: the target keeps this draft",
    Status.REJECTED: "rejected: the target refused this draft",
    Status.UNVERIFIED: "unverified: behind a rejection, never judged",
    Status.RESAMPLED: "resampled: the target's token instead of the refused draft",
    Status.BONUS: "bonus: the target's token behind a full acceptance",
    Status.SAMPLED: "sampled: drawn without drafts",
}
_TEXT_STYLES = {Status.REJECTED: "strike", Status.RESAMPLED: "bold", Status.BONUS: "bold", Status.UNVERIFIED: "italic"}
_GAP = 2
_FACTS = 30
_LEAST_BARS = 19
_EIGHTHS = " ▏▎▍▌▋▊▉█"


@dataclass(frozen=True, slots=True)
class Look:
    """A token, the round it is of, its own text and the texts of ids as far as they are known."""

    record: Shown
    token: Token
    text: str
    alternatives: Mapping[int, str]


def inspector_lines(look: Look, width: int) -> list[Line]:
    """Facts and bars, side by side as far as the width allows; no line is wider than `width` cells."""
    blocks = _bar_blocks(look)
    count = len(blocks)
    if blocks and width >= _FACTS + count * (_LEAST_BARS + _GAP):
        left = max(_FACTS, width - count * (_GAP + 36))
        own = (width - left) // count - _GAP
        return _beside([facts(look, left), *(bars(look, *block, own) for block in blocks)], [left, *[own] * count])
    if len(blocks) == 3 and width >= _FACTS + 2 * (_LEAST_BARS + _GAP):
        left = _FACTS
        own = (width - left) // 2 - _GAP
        first, second, third = (bars(look, *block, own) for block in blocks)
        return _beside([facts(look, left), [*first, [], *third], second], [left, own, own])
    lines = facts(look, width)
    if len(blocks) > 1 and width >= 2 * _LEAST_BARS + _GAP:
        own = (width - _GAP) // 2
        lines += [[], *_beside([bars(look, *block, own) for block in blocks[:2]], [own, own])]
        blocks = blocks[2:]
    for block in blocks:
        lines += [[], *bars(look, *block, width)]
    return lines


def facts(look: Look, width: int) -> list[Line]:
    """All about the token but the alternatives."""
    token = look.token
    colour = f"$token-{token.status.value}"
    number = f"  id {token.id}"
    chip = clip(spell(look.text), max(4, width - len(number) - 2))
    lines: list[Line] = [
        [
            (f"{GLYPHS[token.status]} ", colour),
            (chip, f"{colour} {_TEXT_STYLES.get(token.status, '')}"),
            (number, QUIET),
        ]
    ]
    where = "prefill" if isinstance(look.record, PrefillDone) else f"round {look.record.round + 1}"
    lines += _wrapped(f"{where}, token {token.position + 1}", QUIET, width)
    lines += _wrapped(_FATES[token.status], colour, width)
    chances = [f"{name} {_chance(value)}" for name, value in (("p", token.p), ("q", token.q)) if value is not None]
    lines += _wrapped(_join(chances, "   "), "", width)
    if _is_certain(look):
        lines += _wrapped("q = 1: greedy, or a drafter without a distribution", QUIET, width)
    if (odds := _odds(token)) is not None:
        lines += _wrapped(odds, "", width)
    seen = token.insight
    if seen is None:
        return [*lines, *_clock(look.record, width), *_wrapped(HINT, QUIET, width)]
    entropies = [("target", seen.target_entropy), ("drafter", seen.drafter_entropy)]
    known = [f"{name} {value:.2f}" for name, value in entropies if value is not None]
    if known:
        lines += _wrapped(f"entropy: {', '.join(known)} nats", "", width)
    return [*lines, *_clock(look.record, width)]


def _is_certain(look: Look) -> bool:
    drafter = look.token.insight.drafter_top if look.token.insight is not None else ()
    return look.token.q == 1.0 and not drafter and look.token.status is not Status.PENDING


def _odds(token: Token) -> str | None:
    """The chance of acceptance, and the uniform number that decided."""
    chance, draw = token.acceptance, token.draw
    if chance is None:
        return None
    if draw is None:
        return f"chance to be accepted {_chance(chance)}"
    digits = next((n for n in (2, 3, 4, 5) if f"{draw:.{n}f}" != f"{chance:.{n}f}"), 6)
    below = draw < chance
    match token.status:
        case Status.ACCEPTED:
            word = "accepted" if below else "kept by a later draft"
        case Status.REJECTED:
            word = "rejected"
        case _:
            word = "not passed"
    return f"draw {draw:.{digits}f} {'<' if below else '≥'} {chance:.{digits}f}: {word}"


def _clock(record: Shown, width: int) -> list[Line]:
    match record:
        case PrefillDone(seconds=seconds):
            readings = [("prefill", seconds)]
        case RoundVerified():
            readings = [
                ("draft", record.draft_seconds),
                ("verify", record.verify_seconds),
                ("other", record.other_seconds),
            ]
        case DraftsProposed():
            return []
    text = _join([f"{name} {seconds * 1e3:.1f}" for name, seconds in readings], ", ")
    return _wrapped(f"clock: {text} ms", QUIET, width)


_PART_OF_CHARACTER = "\N{REPLACEMENT CHARACTER}"
Block = tuple[str, tuple[tuple[int, float], ...]]


def _bar_blocks(look: Look) -> list[Block]:
    seen = look.token.insight
    if seen is None:
        return []
    tops = (("target", seen.target_top), ("drafter", seen.drafter_top), ("residual", seen.residual_top))
    return [(name, top) for name, top in tops if top]


def bars(look: Look, name: str, top: Sequence[tuple[int, float]], width: int) -> list[Line]:
    """A distribution's most probable ids as bars; the token itself is marked."""
    label = max(3, min(16, width - 1 - 6 - 4))
    room = width - 1 - label - 6
    highest = max(value for _, value in top) or 1.0
    lines: list[Line] = [[(clip(name, width), "bold")]]
    for token, value in top:
        text = look.alternatives.get(token, "")
        # Parts of a character all look the same: they are told apart by their ids.
        text = spell(text) if text.strip(_PART_OF_CHARACTER) else f"{text}#{token}"
        own = token == look.token.id
        drawn = clip(text, label)
        style = f"$token-{look.token.status.value} bold" if own else ""
        line: Line = [("▸" if own else " ", style), (drawn + " " * (label - cell_len(drawn)), style)]
        line.append((f" {value:.3f}" if value >= 0.0005 else " <.001", "bold" if own else ""))
        if room > 1:
            line.append((" " + _bar(value / highest, room - 1), style or QUIET))
        lines.append(line)
    return lines


def _bar(share: float, cells: int) -> str:
    eighths = round(share * cells * 8)
    whole, rest = divmod(eighths, 8)
    return "█" * whole + (_EIGHTHS[rest] if rest else "")


def _beside(blocks: Sequence[list[Line]], widths: Sequence[int]) -> list[Line]:
    lines: list[Line] = []
    for row in range(max(len(block) for block in blocks)):
        line: Line = []
        at = used = 0
        for block, width in zip(blocks, widths, strict=True):
            own = block[row] if row < len(block) else []
            if own:
                line += [(" " * (at - used), ""), *own] if at > used else own
                used = at + sum(cell_len(text) for text, _ in own)
            at += width + _GAP
        lines.append(line)
    return lines


def _wrapped(text: str, style: str, width: int) -> list[Line]:
    return [[(line, style)] for line in textwrap.wrap(text, max(8, width))]


def _chance(value: float) -> str:
    return f"{value:.3f}" if value >= 0.0005 or value == 0 else f"{value:.1e}"


def _join(words: Sequence[str], gap: str) -> str:
    return gap.join(words)
