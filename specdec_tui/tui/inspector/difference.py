"""Where two texts part: what both models put first there, and by how much. No widget here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import log

from specdec_tui.decoding.chances import Top, in_digits, known
from specdec_tui.tui.figures.words import QUIET
from specdec_tui.tui.inspector.alternatives import Line, RowMark, bars
from specdec_tui.tui.inspector.look import Column, Look, name_of
from specdec_tui.tui.inspector.text import hint, wrapped
from specdec_tui.tui.tokens.chips import clip
from specdec_tui.tui.tokens.run_log import RunLog
from specdec_tui.tui.tokens.style import GLYPHS

MOST_EACH = 5
_MOST_OF_A_NAME = 20


@dataclass(frozen=True, slots=True)
class Parting:
    """`position`: the new-token index where two texts differ first, None where they do not as far as both go.

    `shared`: how many of their tokens were compared up to there. `longer`: whether one of them goes on alone.
    """

    position: int | None
    shared: int
    longer: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """One of two panes, and its token at the place."""

    name: str
    look: Look

    @property
    def top(self) -> Top:
        seen = self.look.token.insight
        return () if seen is None else seen.target_top

    @property
    def column(self) -> Column:
        """What its model gave here: raw under greedy."""
        token = self.look.token
        own = {} if token.p is None or self.look.greedy else {token.id: token.p}
        return Column(self.name, self.top, own)


def parting(ours: RunLog, theirs: RunLog) -> Parting:
    """Where two texts part; both in ids of the same tokenizer. The text that a what-if was given is compared too."""
    own, other = ours.emitted_ids(), theirs.emitted_ids()
    both = sorted(own.keys() & other.keys())
    for shared, position in enumerate(both):
        if own[position] != other[position]:
            return Parting(position, shared)
    return Parting(None, len(both), len(own) != len(other))


def difference_lines(ours: Side, theirs: Side, width: int, rows: int = 100) -> list[Line]:
    """Both tokens, the gap between both first choices in either pane, and both top fives on one scale."""
    position = ours.look.token.position
    wrote = " · ".join(f"{side.name} {_named(side)}" for side in (ours, theirs))
    lines = [*wrapped(f"first difference: token {position + 1}", "bold", width), *wrapped(wrote, "", width)]
    if not ours.top or not theirs.top:
        return [*lines, *wrapped(hint(), QUIET, width)]
    gaps = [line for text in _gaps(ours, theirs) for line in wrapped(text, "", width)]
    table = _table(ours, theirs, width)
    if len(lines) + len(gaps) + 3 > rows:
        return [*lines, *table, [], *gaps]
    return [*lines, *gaps, [], *table, [], *wrapped(_kinds(ours, theirs), QUIET, width)]


def _named(side: Side) -> str:
    token = side.look.token
    return f"wrote {GLYPHS[token.status]}{clip(name_of(token.id, side.look.texts), _MOST_OF_A_NAME)}"


def _gaps(ours: Side, theirs: Side) -> Iterator[str]:
    """How far the one first choice lies before the other in each pane; a sentence where both put the same first."""
    first, second = ours.top[0][0], theirs.top[0][0]
    if first == second:
        name = clip(name_of(first, dict(theirs.look.texts) | dict(ours.look.texts)), _MOST_OF_A_NAME)
        shares = " and ".join(in_digits(side.top[0][1]) for side in (ours, theirs))
        yield f"both put {name} first ({shares}): not the models part here but the draws"
        first, second = ours.look.token.id, theirs.look.token.id
    texts = dict(theirs.look.texts) | dict(ours.look.texts)  # of a token that one of both never had to spell
    for side in (ours, theirs):
        yield f"{side.name}: {_gap(side, first, second, texts)}"


def _gap(side: Side, first: int, second: int, texts: Mapping[int, str]) -> str:
    """`p(·our) 0.335 − p(·are) 0.131 = 0.204, ln 0.94`: under greedy the logarithm is the gap of the logits."""
    found = [(token, *known(side.top, token)) for token in (first, second)]
    told = " − ".join(
        f"p({clip(name_of(token, texts), _MOST_OF_A_NAME)}) {'' if exact else 'below '}{in_digits(share)}"
        for token, share, exact in found
    )
    (_, high, sure), (_, low, also) = found
    if not (sure and also):
        return told
    told += f" = {high - low:+.3f}".replace("-", "−")
    if high <= 0 or low <= 0:
        return told
    gap = log(high / low) * (1.0 if side.look.greedy else side.look.manner.temperature)
    return f"{told}, in logits {gap:+.2f}".replace("-", "−")


def _table(ours: Side, theirs: Side, width: int) -> list[Line]:
    sides = (ours, theirs)
    wrote = [side.look.token.id for side in sides]
    best: dict[int, float] = {}
    for side in sides:
        for token, share in side.top[:MOST_EACH]:
            best[token] = max(share, best.get(token, 0.0))
    ids = list(dict.fromkeys([*wrote, *sorted(best, key=lambda token: (-best[token], token))]))
    marks = {}
    for side, sign in zip(reversed(sides), "◂▸", strict=True):
        status = side.look.token.status
        marks[side.look.token.id] = RowMark(
            f"{sign}{GLYPHS[status]}", f"$token-{status.value} bold", clip(side.name, 8)
        )
    texts = dict(theirs.look.texts) | dict(ours.look.texts)
    return bars([side.column for side in sides], ids, marks, texts, width)


def _kinds(ours: Side, theirs: Side) -> str:
    """What the columns are."""
    kinds = ["raw" if side.look.greedy else "processed" for side in (ours, theirs)]
    same = f"{kinds[0]} probabilities" if kinds[0] == kinds[1] else f"{kinds[0]} and {kinds[1]} probabilities"
    words = "plain softmax: its logarithms differ as the logits do" if "raw" in kinds else "as drawn from"
    return f"{same} of the model that wrote each text, its top {MOST_EACH}: {words}"
