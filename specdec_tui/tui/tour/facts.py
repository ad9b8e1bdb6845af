"""What the tour tells of a run: figures and tokens of the run on the screen, read from its records. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from specdec_tui.decoding.costs import Costs, costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.forecast import Forecast, basis_of, best_of, curve, forecast, missing, top_of
from specdec_tui.decoding.records import Checked, Event, Lossless, RoundVerified, Status, Step, Token
from specdec_tui.decoding.standing import Standing, standing
from specdec_tui.traces.bounds import MOST_DRAFTS

_FIRST = 6  # rounds: they are on the screen


@dataclass(frozen=True, slots=True)
class Refusal:
    """A draft that the target refused, and what stands in its place. `round` counts as the records do."""

    round: int
    drafted: str
    token: Token
    written: str


@dataclass(frozen=True, slots=True)
class Told:
    """A round of which all can be seen: so many drafts, so many kept, so many tokens."""

    round: int
    drafts: int
    kept: int
    tokens: int


@dataclass(slots=True)
class Facts:
    """Of one strategy's run, as far as it went; `baseline` is the target's own, None where there is none."""

    figures: RunFigures = field(default_factory=RunFigures)
    baseline: RunFigures | None = None
    lossless: Lossless | None = None
    rounds: list[tuple[RoundVerified, tuple[str, ...]]] = field(default_factory=list)

    @property
    def standing(self) -> Standing | None:
        return standing(self.figures, self.baseline)

    @property
    def costs(self) -> Costs:
        return costs(self.figures, self.baseline)

    @property
    def telling_round(self) -> Told | None:
        """Of the first in which one was refused, that with most drafts kept, else the first with drafts; or None."""
        told = [_told(record) for record, _ in self.rounds if record.drafts]
        refused = [one for one in told[:_FIRST] if 0 < one.kept < one.drafts]
        return max(refused, key=lambda one: one.kept, default=told[0] if told else None)

    @property
    def refusal(self) -> Refusal | None:
        """The first refused draft that a clear word of text was drafted for; None where no draft was refused."""
        found = [one for record, texts in self.rounds if (one := _refusal(record, texts)) is not None]
        words = [one for one in found if _is_word(one.drafted) and _is_word(one.written)]
        return next(iter(words or found), None)

    @property
    def best(self) -> tuple[Forecast, Forecast] | None:
        """What is expected at the γ of the run and at the best one; None where nothing can be predicted."""
        if (here := self.mean_round) is None or self.baseline is None:
            return None
        basis = basis_of(self.figures, self.baseline)
        return here, best_of(curve(basis, top_of(basis.gamma, MOST_DRAFTS)))

    @property
    def mean_round(self) -> Forecast | None:
        """What a round costs and gives, as measured; None where nothing can be said of it."""
        if self.baseline is None or missing(self.figures, self.baseline):
            return None
        basis = basis_of(self.figures, self.baseline)
        return forecast(basis, basis.gamma)


def _is_word(text: str) -> bool:
    return any(map(str.isalpha, text))


def facts_of(events: Sequence[Event]) -> Mapping[str, Facts]:
    """Of each strategy of a run."""
    found: dict[str, Facts] = {}
    for event in events:
        if isinstance(event, Step):
            facts = found.setdefault(event.strategy, Facts())
            facts.figures.add(event.record)
            if isinstance(event.record, RoundVerified):
                facts.rounds.append((event.record, event.texts))
        elif isinstance(event, Checked) and event.strategy in found:
            found[event.strategy].lossless = event.lossless
    if "target" in found:
        for name, facts in found.items():
            facts.baseline = None if name == "target" else found["target"].figures
    return found


def _told(record: RoundVerified) -> Told:
    kept = sum(draft.status is Status.ACCEPTED for draft in record.drafts)
    return Told(record.round, len(record.drafts), kept, len(record.new_tokens))


def _refusal(record: RoundVerified, texts: Sequence[str]) -> Refusal | None:
    if record.emitted is None or len(texts) <= len(record.drafts):
        return None
    for draft, text in zip(record.drafts, texts, strict=False):
        if draft.status is Status.REJECTED:
            return Refusal(record.round, text, draft, texts[len(record.drafts)])
    return None
