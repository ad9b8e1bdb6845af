"""What the inspector looks at: a token, its round, what else could have stood there. No widget here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from specdec_tui.decoding.chances import Top, is_greedy, joint_weights, known
from specdec_tui.decoding.records import (
    EMITTED,
    DraftsProposed,
    Origin,
    PrefillDone,
    RoundVerified,
    Status,
    Token,
    tokens_of,
)
from specdec_tui.settings import Settings
from specdec_tui.tui.tokens.chips import spell
from specdec_tui.tui.tokens.run_log import Shown

_PART_OF_CHARACTER = "\N{REPLACEMENT CHARACTER}"


@dataclass(frozen=True, slots=True)
class Manner:
    """How a run draws and judges: its verification rule, whether it is greedy, and what else is told of its draws."""

    rule: str = "rejection"
    greedy: bool = False
    temperature: float = 1.0


def manner_of(settings: Settings, origin: Origin | None = None) -> Manner:
    """That of a run with these settings; a what-if has some of its own."""
    changed = {} if origin is None else dict(origin.changes)
    processor = changed.get("processor", settings.processor).partition(" ")[0]
    try:
        temperature = float(changed.get("temperature", settings.temperature))
    except ValueError:  # of a trace that somebody wrote
        temperature = settings.temperature
    rule = changed.get("rule", settings.rule)
    return Manner(rule, processor == "greedy" or temperature == 0, temperature)


@dataclass(frozen=True, slots=True)
class Column:
    """A distribution: its name, its alternatives, and what the record itself knows of it."""

    name: str
    top: Top
    own: Mapping[int, float] = field(default_factory=dict)

    def value(self, token: int) -> tuple[float, bool]:
        """A probability; False: it is at most that."""
        return (self.own[token], True) if token in self.own else known(self.top, token)


@dataclass(frozen=True, slots=True)
class Look:
    """A token, the round it is of, its own text and the texts of ids as far as they are known.

    `manner` is that of its run. `searches`: it is of a search. `model`: whose run it is where it has no drafts.
    `origin`: of a what-if. `by_calls`: its target is on a server. `served`: a server drafted by itself, and did not
    tell its refused drafts.
    """

    record: Shown
    token: Token
    text: str
    texts: Mapping[int, str]
    manner: Manner = field(default_factory=Manner)
    searches: bool = False
    model: str = "target"
    origin: Origin | None = None
    by_calls: bool = False
    served: bool = False

    @property
    def round(self) -> tuple[Token, ...]:
        return tokens_of(self.record)

    @property
    def drafts(self) -> tuple[Token, ...]:
        match self.record:
            case DraftsProposed(drafts=drafts) | RoundVerified(drafts=drafts) if not self.searches:
                return drafts
        return ()

    @property
    def here(self) -> tuple[Token, ...]:
        """What was drafted or drawn in the token's place, itself among them."""
        return tuple(token for token in self.round if token.position == self.token.position) or (self.token,)

    @property
    def greedy(self) -> bool:
        """Whether the figures of its insight are raw: as its run was asked, or as its record tells."""
        return self.manner.greedy or is_greedy(self.round)

    @property
    def drafted(self) -> Token | None:
        """The draft in the token's place."""
        return next((token for token in self.here if token in self.drafts), None)

    @property
    def drawn(self) -> Token | None:
        """The token that became text in the token's place."""
        return next((token for token in self.here if token.status in EMITTED), None)

    @property
    def ends_kept(self) -> bool:
        """Whether it is the first place behind the drafts that were kept, where a refused draft is replaced."""
        return any(token.status is Status.REJECTED for token in self.here)

    @property
    def is_sure(self) -> bool:
        """Whether the draft is that of a drafter without a distribution: its q is 1."""
        draft = self.drafted
        if draft is None or draft.q != 1.0 or draft.status is Status.PENDING:
            return False
        seen = draft.insight
        return not seen.drafter_top if seen is not None else not self.greedy

    @property
    def weights(self) -> list[float]:
        """Under the block rule: what the target's probabilities weigh before the first draft, and behind each."""
        drafts = [(token.p or 0.0, token.q or 0.0) for token in self.drafts]
        return joint_weights([p for p, _ in drafts], [q for _, q in drafts])

    @property
    def weight(self) -> float:
        """What p weighs in the residual of this place."""
        if self.manner.rule != "block" or self.greedy or (draft := self.drafted) is None:
            return 1.0
        return self.weights[self.drafts.index(draft)]

    @property
    def round_words(self) -> str:
        """`round 5, draft 2 of 4`."""
        if isinstance(self.record, PrefillDone):
            return "prefill"
        words, draft = f"round {self.record.round + 1}", self.drafted
        if draft is None:
            return words
        words = f"{words}, draft {self.drafts.index(draft) + 1}"
        untold = getattr(self.record, "untold", 0)
        return words if untold is None else f"{words} of {len(self.drafts) + untold}"

    @property
    def columns(self) -> list[Column]:
        """The distributions of this place: p, q and the residual, as far as they were recorded."""
        seen = self.token.insight
        if seen is None:
            return []
        raw = "raw " if self.greedy else ""
        p = {t.id: t.p for t in self.here if t.p is not None and not self.greedy}
        q = {t.id: t.q for t in self.here if t.q is not None and not self.greedy}
        sure = self.is_sure and not self.greedy
        target = Column(f"{raw}p", seen.target_top, p)
        drafter = Column(f"{raw}q", tuple(q.items()) if sure else seen.drafter_top, q)
        nothing = {} if self.greedy or not drafter.top else self._nothing_left(target, drafter)
        columns = [target, drafter, Column("residual", self.residual, nothing)]
        return [column for column in columns if column.top]

    @property
    def residual(self) -> Top:
        """What the correction of this place was drawn from; empty where there was none."""
        seen = [token.insight.residual_top for token in (self.token, *self.here) if token.insight is not None]
        return next((top for top in seen if top), ())

    def _nothing_left(self, target: Column, drafter: Column) -> dict[int, float]:
        """Of ids that the residual does not list: those whose share of it is exactly 0, for p is below q.

        What p weighs is never more than 1. Alternatives are rounded alike, so the order of two is that of the
        probabilities; of equal ones it is not known.
        """
        ids = {*self.chosen, *(token for column in (target, drafter) for token, _ in column.top)}
        found = {}
        for token in ids - set(dict(self.residual)):
            (p, _), (q, is_q) = target.value(token), drafter.value(token)  # p or more than p
            if p == 0 or (is_q and p < q):
                found[token] = 0.0
        return found

    @property
    def chosen(self) -> list[int]:
        """Ids: the token itself, and what else was drafted or drawn here."""
        return list(dict.fromkeys([self.token.id, *(token.id for token in self.here)]))

    @property
    def rows(self) -> list[int]:
        """Ids, each once: what was chosen here, then the others, the most probable first."""
        first = self.chosen
        best: dict[int, float] = {}
        for column in self.columns:
            for token, value in column.top:
                best[token] = max(value, best.get(token, 0.0))
        return [*first, *(token for token in sorted(best, key=lambda t: (-best[t], t)) if token not in first)]


def name_of(token: int, texts: Mapping[int, str]) -> str:
    """An id as it is read; parts of a character all look the same, and are told apart by their ids."""
    text = texts.get(token, "")
    return spell(text) if text.strip(_PART_OF_CHARACTER) else f"{text}#{token}"
