"""A run whose target is on a server: a call in place of each pass, and a stream where nothing is drafted."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from specdec_tui.backends.answering import AT_ONCE, Answered, AnsweringModel, Calls, Told
from specdec_tui.backends.in_time import Stopped
from specdec_tui.backends.remote.errors import OtherModel, ServerError
from specdec_tui.decoding.chances import MOST_ALTERNATIVES
from specdec_tui.decoding.drafters import Proposal
from specdec_tui.decoding.insight import insights, of_told, with_residual
from specdec_tui.decoding.records import (
    EndReason,
    Insight,
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    Status,
    Token,
)
from specdec_tui.decoding.remote_rules import (
    Place,
    drawing_of,
    draws_there,
    is_plain,
    places,
    refuse,
    scores_of,
    verify,
)
from specdec_tui.decoding.remote_stream import PlainText
from specdec_tui.decoding.rows import get_ready
from specdec_tui.decoding.rules import RULES, Verdict, residual
from specdec_tui.decoding.run import Run

OWN_DRAWS = (
    "where its alternatives tell too little the server draws, and a draft is kept if it is that token: "
    "another text each time"
)
OWN_TEXT = "the server draws: another text each time, whatever the seed"
STRETCHES = "streamed {count} tokens a turn: opening it again is not counted"
CHANGED = "the server answers as another model does by now, which may have begun anywhere in this text: connect again"


@dataclass
class RemoteRun(Run):
    """See `run.Run`."""

    rule_name: str = "rejection"
    calls: Calls = AT_ONCE

    @cached_property
    def server(self) -> AnsweringModel:
        target = self.target
        assert isinstance(target, AnsweringModel)
        return target

    def records(
        self, prompt_ids: Sequence[int], use_cache: bool, cancelled: Callable[[], bool]
    ) -> Generator[Record, None, RunEnded]:
        self._plain = PlainText(self.server, drawing_of(self.sampler), self._shown, cancelled, self.calls)
        self.server.notices()  # of calls that were no run's
        records = super().records(prompt_ids, use_cache, cancelled)
        try:
            while True:
                try:
                    record = next(records)
                except StopIteration as over:
                    yield from self._news()
                    return self._still_the_models(over.value)
                yield from self._news()
                yield record
        except Stopped:
            return RunEnded(EndReason.CANCELLED)
        except Exception:
            yield from self._news()
            raise
        finally:
            self._plain.close()

    def _news(self) -> Iterator[Notice]:
        """What happened to calls, before the record that tells what they took."""
        yield from map(Notice, (*self.server.notices(), *self._plain.notices))
        self._plain.notices.clear()

    def _still_the_models(self, end: RunEnded) -> RunEnded:
        """The end of a run. A server may change its model between two calls over one connection."""
        if end.reason is EndReason.CANCELLED:
            return end
        try:
            with suppress(Stopped):
                self.server.check(self.cancelled, anyway=True)
        except OtherModel:
            return RunEnded(EndReason.ERROR, CHANGED)
        except ServerError:
            return end  # the text was whole before
        return end

    def _get_ready(self, use_cache: bool) -> Iterator[Record]:
        drafts = self.drafter is not None
        refuse(self.server, self.rule_name, self.sampler, self.controls.asked, drafts)
        self._draws = draws_there(self.server, self.sampler)
        get_ready(draws=drafts and not self.sampler.is_greedy, insight=self.insight)
        self.server.begin(self.calls.added_latency, self.cancelled)
        if not drafts and not self.sampler.is_greedy:
            yield Notice(OWN_TEXT)
        elif self._draws:
            yield Notice(OWN_DRAWS)
        if not drafts and 0 < self.calls.stretch < self.room:
            yield Notice(STRETCHES.format(count=self.calls.stretch))

    def _prefill(self, use_cache: bool) -> PrefillDone:
        begin, begin_at, position = self.clock(), len(self.ids), self.position
        if self.drafter is None:
            place = self._streamed().place
            token = place.drawn(self.sampler)
            answered = Answered((place.told,), self.server.round_trip)
        else:
            self.drafter.start(self.ids, self._setup(len(self.ids) + self.room, use_cache))
            answered = self._ask(())
            place = self._places(answered.told)[0]
            token = place.token(self.sampler, self.dice)
        self.ids.append(token)
        if self.drafter:
            self.drafter.settle(self.ids, begin_at, self._scores_of([place]))
            self.drafter.synchronize()
        seconds = self.clock() - begin
        first = self._own(place, token, Status.SAMPLED, position, self._seen_at(place, Proposal(), 0, token))
        wire = min(answered.wire_seconds, seconds)
        return PrefillDone(first, seconds, by_calls=True, wire_seconds=wire, calls=answered.calls)

    def _play(self, number: int) -> Iterator[Record]:
        if self.drafter is None:
            came = self._streamed()
            token, position = came.place.drawn(self.sampler), self.position
            self.ids.append(token)
            seen = self._seen_at(came.place, Proposal(), 0, token)
            own = self._own(came.place, token, Status.SAMPLED, position, seen)
            yield RoundVerified(number, (), own, 0.0, came.seconds, 0.0, calls=int(came.opened))
            return
        proposal, draft_seconds = self._propose()
        yield from self._proposed(number, proposal)
        begin = self.clock()
        answered = self._ask(proposal.ids)
        called = self.clock() - begin
        self.server.check(self.cancelled)
        yield self._judged(number, proposal, answered, draft_seconds, called)

    def _judged(
        self, number: int, proposal: Proposal, answered: Answered, draft_seconds: float, called: float
    ) -> RoundVerified:
        begin, position, drafts = self.clock(), self.position, proposal.ids
        found, bonus = self._places(answered.told), not self.ending.at([*self.ids, *drafts])
        verdict = verify(self.rule_name, proposal, found, position, self.sampler, self.dice, bonus)
        self.ids += drafts[: verdict.accepted]
        kept = len(self.ids)
        if verdict.emitted is not None:
            self.ids.append(verdict.emitted)
        assert self.drafter is not None
        self.drafter.settle(self.ids, kept, self._scores_of(found[: verdict.accepted + 1]))
        self.drafter.synchronize()
        other, wire = self.clock() - begin, min(answered.wire_seconds, called)
        seen = self._seen_of(found, proposal, verdict)
        record = self._round(number, position, proposal, verdict, 0.0, (draft_seconds, called - wire, other), seen)
        if record.emitted is not None:
            at, last = verdict.accepted, record.emitted
            own = self._own(found[at], last.id, last.status, last.position, seen[at])
            record = replace(record, emitted=own)
        return replace(record, wire_seconds=wire, calls=answered.calls)

    def _ask(self, drafts: Sequence[int]) -> Answered:
        sampler, drawing, wanted = self.sampler, drawing_of(self.sampler), self._shown
        if not sampler.is_greedy:
            wanted = max(wanted, sampler.top_k + 1 if sampler.uses_top_k else self.server.alternatives)

        def asked(draws: bool) -> Answered:
            return self.server.ask(self.ids, drafts, drawing, wanted, draws, self.cancelled)

        answered = asked(self._draws)
        if sampler.is_greedy or all(place.is_decided for place in self._places(answered.told)):
            return answered
        # More tokens tie at the edge of what is kept than were told: there the server has to draw after all.
        again = asked(True)
        wire, calls = answered.wire_seconds + again.wire_seconds, answered.calls + again.calls
        return replace(again, wire_seconds=wire, calls=calls)

    def _streamed(self) -> _Came:
        came = self._plain.next(self.ids, self.room)
        return _Came(Place(came.told, None), came.seconds, came.opened)

    def _places(self, told: Sequence[Told]) -> list[Place]:
        return places(told, self.sampler, self.server)

    def _scores_of(self, found: Sequence[Place]) -> torch.Tensor:
        return scores_of(found, self.sampler, self.target.vocab_size)

    @property
    def _shown(self) -> int:
        """Alternatives that are asked for where the eyes alone need more than one."""
        return MOST_ALTERNATIVES if self.insight else 1

    def _own(self, place: Place, token: int, status: Status, position: int, seen: Insight | None) -> Token:
        """A token of the target's own, with its probability where that is known."""
        p = 1.0 if self.sampler.is_greedy else place.probability(token, self.sampler)
        return Token(token, status, position, p=None if p != p else p, insight=seen)

    def _seen_of(self, found: Sequence[Place], proposal: Proposal, verdict: Verdict) -> list[Insight | None]:
        """What both thought at each place of a round, as far as it is known. The clock does not run."""
        at, emitted = verdict.accepted, verdict.emitted
        seen = [
            self._seen_at(place, proposal, index, emitted if index == at else None) for index, place in enumerate(found)
        ]
        row, weight = found[at].row, RULES[self.rule_name].weight
        if at < len(proposal.ids) and row is not None and weight is not None and (own := seen[at]) is not None:
            share = weight(verdict.p[:at], verdict.q[:at])
            rest = residual(row, proposal.rows[at], proposal.ids[at], share)
            seen[at] = with_residual(own, rest, [] if emitted is None else [emitted])
        return seen

    def _seen_at(self, place: Place, proposal: Proposal, index: int, emitted: int | None) -> Insight | None:
        if not self.insight:
            return None
        q = proposal.rows[index] if index < len(proposal.rows) else None
        named = [*proposal.ids[index : index + 1], *([] if emitted is None else [emitted])]
        greedy = self.sampler.is_greedy
        if place.row is not None:
            return insights(place.row[None], [q], [named], greedy=False)[0]
        told = place.told if greedy or is_plain(self.sampler) else None
        return of_told(told, q, named, greedy=greedy)


@dataclass(frozen=True, slots=True)
class _Came:
    place: Place
    seconds: float
    opened: bool
