"""What the dialog of a what-if lists: tokens that could stand at a place, settings that could differ from there.

Pure functions from what was typed to rows, without a screen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import EMITTED, Status, Token
from specdec_tui.settings import FIELDS, ModelChoice, Settings, unused_by
from specdec_tui.tui.commands.palette_rows import Ask, Change, Refuse, Row, Take, rows_for
from specdec_tui.tui.inspector.look import name_of

if TYPE_CHECKING:
    from specdec_tui.tui.tokens.run_log import Place, RunLog

MOST_TOKENS = 24

DECIDING = (
    "gamma",
    "temperature",
    "rule",
    "weights",
    "processor",
    "top_k",
    "top_p",
    "min_p",
    "typical_p",
    "seed",
    "max_new_tokens",
    "min_new_tokens",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "no_repeat_ngram",
    "bad_words",
    "logit_bias",
    "stop_strings",
    "ignore_eos",
    "ngram_order",
    "ngram_storage",
    "top_k_filler",
)
"""Settings that a text, or its rounds, follow from."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that could stand at a place: what both models gave it there, and what became of it."""

    id: int
    text: str
    p: float | None = None
    q: float | None = None
    fate: str = ""

    @property
    def told(self) -> str:
        chances = [f"{name} {value:.3g}" for name, value in (("p", self.p), ("q", self.q)) if value is not None]
        return " · ".join([*([self.fate] if self.fate else []), *chances])


_FATES = {
    Status.REJECTED: "the refused draft ✗",
    Status.RESAMPLED: "as written ↻",
    Status.ACCEPTED: "as written ✓",
}


def candidates(log: RunLog, place: Place) -> list[Candidate]:
    """Those of the place of a token: a refused draft first, then by what the target gives them, what was written last.

    They are what the run told: its tokens there, and where it was recorded with insight the ten most probable of each.
    """
    position = log.token(place).position
    row = log.rows[place.row]
    here = [(t, text) for t, text in zip(row.tokens, row.texts, strict=False) if t.position == position]
    here = [(token, text) for token, text in here if token.status is not Status.UNVERIFIED]
    p: dict[int, float] = {}
    q: dict[int, float] = {}
    for token, _ in here:
        if (seen := token.insight) is not None:
            p |= dict(seen.target_top)
            q |= dict(seen.drafter_top)
        p |= {} if token.p is None or token.id in p else {token.id: token.p}
        q |= {} if token.q is None or token.id in q else {token.id: token.q}
    texts = {**log.alternatives, **{token.id: text for token, text in here}}
    fates: dict[int, str] = {}
    for token, _ in here:  # a refused draft may be drawn again, where the rule lets it
        fates[token.id] = ", ".join(filter(None, [fates.get(token.id, ""), _fate(token)]))

    def order(id: int) -> tuple[int, float, float]:
        fate = fates.get(id, "")
        return 0 if fate.endswith("✗") else 2 if fate else 1, -p.get(id, 0.0), -q.get(id, 0.0)

    ids = sorted({*p, *q, *fates}, key=order)
    return [
        Candidate(id, name_of(id, texts) if id in texts else f"token {id}", p.get(id), q.get(id), fates.get(id, ""))
        for id in ids[:MOST_TOKENS]
    ]


def _fate(token: Token) -> str:
    return _FATES.get(token.status, "as written" if token.status in EMITTED else "")


@dataclass(frozen=True, slots=True)
class Forms:
    """The form that the target's weights have in a run, and all that they can be held in; `why` there are no others."""

    now: str = ""
    all: tuple[str, ...] = ()
    why: str = "this target's weights have one form: others take a GGUF file on a CPU"


def what_if_rows(found: Sequence[Candidate], settings: Settings, forms: Forms = Forms()) -> Callable[[str], list[Row]]:
    """Maps what was typed to rows: tokens that hold it, and settings as the palette has them."""

    def rows(text: str) -> list[Row]:
        typed = text.strip()
        own = [Row(one.text, one.told, Take(one.id)) for one in found if not typed or typed in one.text]
        if not typed:
            return own + [row for row in _settings("", settings, forms) if isinstance(row.does, Ask)]
        meant = _settings(text, settings, forms)
        begun = any(not isinstance(row.does, Ask) for row in meant[:1])
        return meant + own if begun else own + meant

    return rows


def _settings(text: str, settings: Settings, forms: Forms) -> list[Row]:
    """Of the palette's rows those of settings that a text follows from, in its order; unasked in ours."""
    listed = [row for row in rows_for(text, settings, ModelChoice(weights=forms.now or "auto")) if _decides(row)]
    listed = _that_can_be(listed, forms)
    if text:
        return listed
    heads = {_head(name): at for at, name in enumerate(DECIDING)}
    idle = {_head(name) for name in _idle(settings)}
    return sorted((row for row in listed if row.text not in idle), key=lambda row: heads.get(row.text, len(heads)))


def _that_can_be(rows: Sequence[Row], forms: Forms) -> list[Row]:
    """Without forms of weights that the target cannot have; where nothing is left of them, with a row that says so."""
    found: list[Row] = []
    refused: list[Row] = []
    for row in rows:
        asked = row.does.values.get("weights") if isinstance(row.does, Change) else None
        if asked is not None and asked not in forms.all:
            why = forms.why if not forms.all else f"this target can be held in {' or '.join(forms.all)}"
            refused.append(replace(row, help=why, does=Refuse(f"weights {asked}: {why}")))
        elif len(forms.all) > 1 or row.does != Ask("weights "):
            found.append(row)
    return found or refused[:1]


def _head(name: str) -> str:
    """What the palette calls a setting."""
    return str(FIELDS[name].metadata.get("palette", name.replace("_", "-")))


def _idle(settings: Settings) -> set[str]:
    """Settings that change nothing with this processor: who types one leaves it for another. All leave greedy."""
    return set() if settings.processor == "greedy" else set(unused_by(settings.processor, ("top_k", "top_p")))


def _decides(row: Row) -> bool:
    match row.does:
        case Change(values=values):
            return set(values) <= set(DECIDING)
        case Ask(text=text) | Refuse(message=text):
            head = row.text.split()[0] if isinstance(row.does, Refuse) else text.strip()
            return head.replace("-", "_") in DECIDING or head in _HEADS
    return False


_HEADS = {FIELDS[name].metadata.get("palette", "") for name in DECIDING} - {""}
