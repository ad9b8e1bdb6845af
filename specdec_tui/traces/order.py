"""Whether the events of a trace can come one behind the other, and its verdicts be those of its tokens."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from specdec_tui.decoding.records import (
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Origin,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Step,
    first_difference,
    strategy_of,
)
from specdec_tui.decoding.sweep import can_be_swept
from specdec_tui.traces.bounds import LONGEST_ANSWER, MOST_NOTICES, MOST_STRATEGIES, MOST_TOKENS
from specdec_tui.traces.header import AGREES, NOT_TO_ITS_END, TraceError
from specdec_tui.traces.played import Played
from specdec_tui.traces.values import BadField, shown

_TOKEN_BY_TOKEN = ("rejection", "skip-adjustment")


class Order:
    """Whether every run begins before its records, which are in order, ends once and holds no more than a run can."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        """`settings`: those that the header names, of all runs."""
        self._gamma = settings.get("gamma")
        self._token_by_token = settings.get("rule") in _TOKEN_BY_TOKEN
        self._runs: dict[str, _Held] = {}
        self._checks: list[tuple[int, Checked]] = []
        self._finished = False

    def check(self, event: Event, line: int) -> None:
        """BadField where the event of this line cannot come behind those before it."""
        if self._finished:
            raise BadField("event", "must not come behind 'finished'")
        if isinstance(event, Finished):
            self._finished = True
            return
        run = self._runs.get(event.strategy)
        record = event.record if isinstance(event, Step) else None
        if isinstance(record, RunStarted):
            if run is not None:
                raise BadField("event", f"must start a run of {shown(event.strategy)} only once")
            if len(self._runs) == MOST_STRATEGIES:
                raise BadField("strategy", f"must be one of at most {MOST_STRATEGIES} different ones")
            changes = {} if record.origin is None else dict(record.origin.changes)
            if type(self._gamma) is int and record.gamma != self._gamma and "gamma" not in changes:
                raise BadField("gamma", f"contradicts the settings: {self._gamma} there, {record.gamma} here")
            if record.origin is not None:
                self._check_origin(record.origin, event.strategy)
            judged = changes["rule"] in _TOKEN_BY_TOKEN if "rule" in changes else self._token_by_token
            self._runs[event.strategy] = run = _Held(played=Played(judged))
        elif run is None:
            raise BadField("event", f"must not come before 'run_started' of {shown(event.strategy)}")
        elif run.ended and record is not None:
            raise BadField("event", f"must not come behind 'run_ended' of {shown(event.strategy)}")
        run.take(event)
        if isinstance(event, Checked):
            self._checks.append((line, event))

    def _check_origin(self, origin: Origin, name: str) -> None:
        """BadField where a what-if can be no child of what was read."""
        if strategy_of(name) == name:
            raise BadField("origin", f"must not stand in {shown(name)}: what-ifs are named like 'target~1'")
        parent = self._runs.get(origin.parent)
        if parent is None:
            raise BadField("origin.parent", f"must be a run that began before, not {shown(origin.parent)}")
        held = parent.played.first + len(parent.played.ids)
        if not origin.position <= held:
            raise BadField("origin.position", f"must be at most the {held:,} new tokens of {shown(origin.parent)}")
        if origin.position and origin.position < parent.played.first:
            least = parent.played.first
            raise BadField("origin.position", f"must be 0, or from {least:,} on, where {shown(origin.parent)} begins")
        if origin.swept and not can_be_swept(origin):
            raise BadField(
                "origin.swept", "must be of a run from its first token on that has nothing but its γ changed"
            )

    def as_checked(self, event: Event) -> Event:
        """An event as it may be told: older versions called runs identical that had failed on their way."""
        if not isinstance(event, Checked) or self._runs[event.strategy].played.end is not EndReason.ERROR:
            return event
        return replace(event, lossless=NOT_TO_ITS_END) if event.lossless.status in AGREES else event

    def check_verdicts(self) -> None:
        """TraceError at the first verdict that the tokens of the file refute."""
        played = {name: run.played for name, run in self._runs.items()}
        for line, event in self._checks:
            own, target = played[event.strategy], played.get("target")
            if event.strategy == "target" or own.is_child or target is None:
                target = None  # a what-if has another beginning, or other settings
            elif not target.ids or target.end in (None, EndReason.ERROR):
                target = None
            elif any(c.strategy == "target" and c.lossless.status is LosslessStatus.DIFFERENT for _, c in self._checks):
                target = None  # no yardstick: equal to it is not right
            try:
                _check_verdict(event.lossless, own, target)
            except BadField as error:
                raise TraceError(f"line {line}: {error}") from None


def _check_verdict(told: Lossless, own: Played, target: Played | None) -> None:
    compared = told.status is not LosslessStatus.NOT_APPLICABLE
    if compared and not own.ids:
        raise BadField("lossless.status", f"must be not_applicable, not {told.status}: the run has no tokens")
    if told.ties > len(own.ids):
        raise BadField("lossless.ties", f"must be at most the {len(own.ids):,} tokens of the run")
    if told.status is LosslessStatus.IDENTICAL and (told.ties or told.first_divergence is not None):
        raise BadField("lossless.status", "contradicts its ties or its first_divergence: identical has none")
    if compared and target is not None:
        found = first_difference(own.ids, target.ids, own.cut_short or target.cut_short)
        if told.status is LosslessStatus.IDENTICAL and found is not None:
            raise BadField("lossless.status", f"contradicts the rounds: the target has another token at {found}")
        if told.first_divergence not in (None, found):
            said = "none" if found is None else found
            raise BadField("lossless.first_divergence", f"contradicts the rounds: {said}, not {told.first_divergence}")


_OF_ROUNDS, _ONCE = (DraftsProposed, RoundVerified), (PrefillDone, Checked)


@dataclass(slots=True)
class _Held:
    """How much of a run was read."""

    ended: bool = False
    events: Counter[type] = field(default_factory=Counter)
    characters: int = 0
    proposed: int = -1
    """The last round whose drafts were read."""
    played: Played = field(default_factory=Played)

    def take(self, event: Step | Checked) -> None:
        kind = type(event.record) if isinstance(event, Step) else Checked
        rounds = self.events[RoundVerified]
        if kind is PrefillDone and rounds:
            raise BadField("event", f"must not come behind the first round of {shown(event.strategy)}")
        if isinstance(event, Step) and getattr(event.record, "round", rounds) != rounds:
            raise BadField("round", f"must be {rounds}, the next one of {shown(event.strategy)}")
        if kind in _OF_ROUNDS and not self.events[PrefillDone]:
            raise BadField("event", f"must not come before 'prefill_done' of {shown(event.strategy)}")
        if kind is DraftsProposed:
            if self.proposed == rounds:
                raise BadField("event", f"must not come twice for round {rounds} of {shown(event.strategy)}")
            self.proposed = rounds
        self.events[kind] += 1
        self.ended = self.ended or kind is RunEnded
        most = MOST_TOKENS if kind in _OF_ROUNDS else 1 if kind in _ONCE else MOST_NOTICES
        if self.events[kind] > most:
            raise BadField("event", f"comes too often: {shown(event.strategy)} has at most {most:,} of its kind")
        if isinstance(event, Step) and kind is not DraftsProposed:
            self.characters += sum(map(len, event.texts))
            if self.characters > LONGEST_ANSWER:
                raise BadField("texts", f"must have at most {LONGEST_ANSWER:,} characters in a run")
        if isinstance(event, Step):
            self.played.take(event)
