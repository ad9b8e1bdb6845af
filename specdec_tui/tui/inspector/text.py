"""What is known about one token, written for a width. No widget here.

Parts are (text, Textual style); their text is shown as it is and never read as markup.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from specdec_tui.decoding.chances import chances, has_joint_chance, is_greedy, judgement, kind, was_judged
from specdec_tui.decoding.records import DraftsProposed, PrefillDone, RoundVerified, Status, Token, tokens_of
from specdec_tui.glossary import fate_word
from specdec_tui.tui.figures.words import QUIET
from specdec_tui.tui.inspector.alternatives import LEAST_WIDTH, Line, Place, alternatives
from specdec_tui.tui.tokens.chips import clip, spell
from specdec_tui.tui.tokens.run_log import Shown
from specdec_tui.tui.tokens.style import GLYPHS

HINT = "no alternatives: ctrl+p, insight on, then r"
_FATES = {
    Status.PENDING: "pending: the target has not judged it yet",
    Status.ACCEPTED: "accepted: the target keeps this draft",
    Status.REJECTED: "rejected: the target refused this draft",
    Status.UNVERIFIED: "unverified: a draft before it was refused, so it was never judged",
    Status.RESAMPLED: "resampled: the target's token instead of the refused draft",
    Status.BONUS: "bonus: the target's token behind a full acceptance",
    Status.SAMPLED: "sampled: drawn without drafts",
}
_FATES_IN_A_SEARCH = {
    Status.PENDING: "pending: in the best text so far; another may still win",
    Status.SAMPLED: "settled: every text that can still win has it",
}
_TESTED = "unverified: behind the refused draft; its own test failed too"  # under the block rule all are tested
_TEXT_STYLES = {Status.REJECTED: "strike", Status.RESAMPLED: "bold", Status.BONUS: "bold", Status.UNVERIFIED: "italic"}
_GAP = 2
_FACTS = 30
_MOST_FACTS = 46
_HEADS = 2  # rows above the bars: the token, and the heads of the columns


@dataclass(frozen=True, slots=True)
class Look:
    """A token, the round it is of, its own text and the texts of ids as far as they are known.

    `searches`: it is of a search.
    """

    record: Shown
    token: Token
    text: str
    alternatives: Mapping[int, str]
    searches: bool = False

    @property
    def word(self) -> str:
        """What its fate is called."""
        return fate_word(self.token.status.value, self.searches)

    @property
    def round(self) -> tuple[Token, ...]:
        return tokens_of(self.record)

    @property
    def place(self) -> Place:
        here = [token for token in self.round if token.position == self.token.position]
        weighted = any(token.status is Status.REJECTED and has_joint_chance(token) for token in self.round)
        return Place(self.token, here or [self.token], is_greedy(self.round), "w·" if weighted else "")


def inspector_lines(look: Look, width: int, rows: int = 100) -> list[Line]:
    """Facts and alternatives, side by side where the width allows; no line is wider than `width` cells.

    Where only so many `rows` are in sight at once, the bars of what was drafted and drawn are among them.
    """
    if width < _FACTS + _GAP + LEAST_WIDTH:
        above, below = facts(look, width), alternatives(look.place, look.alternatives, width)
        needed = _HEADS + len(look.place.chosen)
        if rows < needed or (below and len(above) + needed >= rows):
            title, fate = _title(look, width, look.word), _fate(look, width)
            rest = [*above[1 + len(fate) :], *fate]
            return [title, *rest, [], *below] if rows < needed else [title, *below, [], *rest]
        return [*above, *([[]] if below else []), *below]
    left = max(_FACTS, min(_MOST_FACTS, width // 3))
    return _beside(facts(look, left), alternatives(look.place, look.alternatives, width - left - _GAP), left)


def facts(look: Look, width: int) -> list[Line]:
    """All about the token but the alternatives."""
    token, greedy = look.token, look.place.greedy
    lines = [_title(look, width), *_fate(look, width)]
    told = chances(token, greedy)
    side_by_side = "   ".join(told)
    for text in [side_by_side] if cell_len(side_by_side) <= width else told:
        lines += _wrapped(text, "", width)
    for text in judgement(token, greedy):
        lines += _wrapped(text, "", width)
    seen = token.insight
    if _is_certain(look):
        lines += _wrapped("q = 1: a drafter without a distribution is sure of its draft", QUIET, width)
    if seen is not None:
        entropies = [("target", seen.target_entropy), ("drafter", seen.drafter_entropy)]
        known = [f"{name} {value:.2f}" for name, value in entropies if value is not None]
        if known:
            lines += _wrapped(f"{kind(greedy)} entropy: {', '.join(known)} nats", "", width)
    where = "prefill" if isinstance(look.record, PrefillDone) else f"round {look.record.round + 1}"
    lines += _wrapped(f"{where}, token {token.position + 1}", QUIET, width)
    lines += _clock(look.record, width)
    return lines if seen is not None else [*lines, *_wrapped(HINT, QUIET, width)]


def _title(look: Look, width: int, fate: str = "") -> Line:
    token = look.token
    colour = f"$token-{token.status.value}"
    fate = f"  {fate}" if fate else ""
    number = f"  id {token.id}"
    if len(number) + len(fate) + 6 > width:
        number = ""
    chip = clip(spell(look.text), max(4, width - len(number) - len(fate) - 2))
    return [
        (f"{GLYPHS[token.status]} ", colour),
        (chip, f"{colour} {_TEXT_STYLES.get(token.status, '')}"),
        (fate, colour),
        (number, QUIET),
    ]


def _fate(look: Look, width: int) -> list[Line]:
    token = look.token
    tested = token.status is Status.UNVERIFIED and was_judged(token)
    told = _FATES | _FATES_IN_A_SEARCH if look.searches else _FATES
    return _wrapped(_TESTED if tested else told[token.status], f"$token-{token.status.value}", width)


def _is_certain(look: Look) -> bool:
    token, seen = look.token, look.token.insight
    drafter = seen.drafter_top if seen is not None else ()
    return token.q == 1.0 and not drafter and token.status is not Status.PENDING and not look.place.greedy


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
    text = ", ".join(f"{name} {seconds * 1e3:.1f}" for name, seconds in readings)
    return _wrapped(f"clock: {text} ms", QUIET, width)


def _beside(left: Sequence[Line], right: Sequence[Line], width: int) -> list[Line]:
    lines: list[Line] = []
    for row in range(max(len(left), len(right))):
        line = list(left[row]) if row < len(left) else []
        if row < len(right):
            line.append((" " * (width + _GAP - sum(cell_len(text) for text, _ in line)), ""))
            line += right[row]
        lines.append(line)
    return lines


def _wrapped(text: str, style: str, width: int) -> list[Line]:
    return [[(line, style)] for line in textwrap.wrap(text, max(8, width))]
