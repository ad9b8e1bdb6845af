"""The state of one run and its rounds, as the loop plays them: draft, verify, emit and rewind.

What the clock readings contain is part of the definition of every figure.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import torch

from specdec_tui.backends.model import CausalModel, ModelContext, longest_text, reads_at_once
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.drafters import Drafter, DraftSetup, Proposal
from specdec_tui.decoding.ending import Ending
from specdec_tui.decoding.insight import insights, with_residual
from specdec_tui.decoding.prompt import Stopped, read_prompt
from specdec_tui.decoding.records import (
    NOT_MEASURED,
    STOP_STRING,
    DraftsProposed,
    EndReason,
    Insight,
    Notice,
    PassTimes,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    Status,
    Token,
)
from specdec_tui.decoding.rows import Scores, get_ready, processed
from specdec_tui.decoding.rules import Rule, Verdict, chosen, residual
from specdec_tui.decoding.sampling import Dice, Sampler

TOKEN_BY_TOKEN = (
    "the target's code reads one token a pass: verifying drafts costs as many passes as plain decoding, "
    "so no drafter makes it faster"
)


def nothing() -> PassTimes:
    """For a model that need not be warmed up."""
    return NOT_MEASURED


def kept_length(base: int, accepted: int) -> int:
    """Tokens the target's context keeps of a pass over [last token, drafts…] behind `base` tokens."""
    return base + 1 + accepted


@dataclass
class Run:
    """The state of one run: `ids` is the text so far, of which the target's context holds all but the last."""

    target: CausalModel
    drafter: Drafter | None
    sampler: Sampler
    rule: Rule
    dice: Dice
    gamma: int
    max_new_tokens: int
    ending: Ending
    controls: Controls
    insight: bool
    clock: Callable[[], float]
    ids: list[int] = field(default_factory=list)
    prompt_length: int = 0
    context: ModelContext | None = None
    passes: PassTimes = NOT_MEASURED
    told: str = ""
    warm_up: Callable[[], PassTimes] = nothing
    cancelled: Callable[[], bool] = lambda: False
    given: tuple[int, ...] = ()
    """New tokens that the text has from the start; `max_new_tokens` counts them."""

    def records(
        self, prompt_ids: Sequence[int], use_cache: bool, cancelled: Callable[[], bool]
    ) -> Generator[Record, None, RunEnded]:
        """Generator of all records but the first and the last; it returns the last."""
        self.prompt_length = len(prompt_ids)
        self.ids = [*prompt_ids, *self.given]
        self.cancelled = cancelled
        if not self.ids:
            raise ValueError("the prompt has no tokens: there is nothing to continue")
        end = self._end(cancelled)
        if end is not None:
            if end.reason is not EndReason.CANCELLED:
                yield PrefillDone(None, 0.0)
            return end
        yield from self._get_ready(use_cache)
        number = 0
        try:
            yield self._prefill(use_cache)
            if self.drafter and self.context is not None and reads_at_once(self.context):
                yield Notice(TOKEN_BY_TOKEN)
            while (end := self._end(cancelled)) is None:
                for record in self._play(number):
                    number += isinstance(record, RoundVerified)
                    yield record
        except Stopped:
            return RunEnded(EndReason.CANCELLED)
        return end

    def _get_ready(self, use_cache: bool) -> Iterator[Record]:
        """What must be done before the clock runs, and be said of it."""
        self.passes = self.warm_up()
        get_ready(draws=not self.sampler.is_greedy, insight=self.insight)
        return iter(())

    def _play(self, number: int) -> Iterator[Record]:
        """The next round, counted `number`, and what must be said of it."""
        proposal, draft_seconds = self._propose()
        yield from self._proposed(number, proposal)
        yield self._verify(number, proposal, draft_seconds)

    def _proposed(self, number: int, proposal: Proposal) -> Iterator[Record]:
        notice = self.drafter.notice if self.drafter else ""
        if notice and notice != self.told:
            self.told = notice
            yield Notice(notice)
        if proposal.ids:
            yield DraftsProposed(
                number,
                tuple(Token(t, Status.PENDING, self.position + i) for i, t in enumerate(proposal.ids)),
            )

    @property
    def position(self) -> int:
        """New tokens so far: the place of the next one."""
        return len(self.ids) - self.prompt_length

    @cached_property
    def longest(self) -> int | None:
        """See `longest_text`; the prompt's length is known when it is asked for."""
        return longest_text(self.target, self.prompt_length)

    @property
    def room(self) -> int:
        """Tokens the text can still grow by: what length and context leave."""
        limit = self.longest
        left = self.max_new_tokens - self.position
        return left if limit is None else min(left, limit - len(self.ids))

    def _end(self, cancelled: Callable[[], bool]) -> RunEnded | None:
        if self.position and self.ending.at(self.ids):
            return RunEnded(EndReason.END_TOKEN, "" if self.ids[-1] in self.ending.ids else STOP_STRING)
        if self.position >= self.max_new_tokens:
            return RunEnded(EndReason.LENGTH)
        if self.room <= 0:
            limit, written = self.longest, self.target.context_length
            what = f"the prompt of {len(self.ids)} tokens leaves no room in"
            if self.position:
                what = "prompt and new tokens fill" if limit == written else "the new tokens fill"
                limit = written
            return RunEnded(EndReason.CONTEXT, f"{what} the model's context of {limit} tokens")
        return RunEnded(EndReason.CANCELLED) if cancelled() else None

    def _prefill(self, use_cache: bool) -> PrefillDone:
        begin = self.clock()
        capacity = len(self.ids) + self.room
        self.context = self.target.open(use_cache=use_cache, capacity=capacity)
        begin_at, position = len(self.ids), self.position
        logits = read_prompt(self.target, self.context, self.ids, use_cache, self.cancelled, position)
        scores = self._scores(logits)
        if self.drafter:
            self.drafter.start(self.ids, self._setup(capacity, use_cache))
        first = self.rule.draw(scores[0], position, self.dice)
        self.ids.append(first)
        if self.drafter:
            self.drafter.settle(self.ids, begin_at, scores)
        self._synchronize()
        seconds = self.clock() - begin
        seen = self._seen(scores, Proposal())[0]
        token = self._emitted(first, Status.SAMPLED, position, float(scores[0][first]), seen)
        told = self.passes
        recomputes = self.context.recomputes
        return PrefillDone(token, seconds, recomputes=recomputes, passes=told.seconds, pass_limit=told.limit)

    def _setup(self, capacity: int, use_cache: bool) -> DraftSetup:
        ends, controls = self.ending.ids, self.controls
        how = (use_cache, controls, self.cancelled, self.position)
        return DraftSetup(self.sampler, self.rule, self.dice, ends, capacity, *how)

    def _propose(self) -> tuple[Proposal, float]:
        most = min(self.gamma, self.room - 1)
        if self.drafter is None or most < 1:
            return Proposal(), 0.0
        begin = self.clock()
        proposal = self.drafter.propose(self.ids, most, self.position)
        self.drafter.synchronize()
        seconds = self.clock() - begin
        proposal.cut(self.ending, self.ids)
        return proposal, seconds

    def _verify(self, number: int, proposal: Proposal, draft_seconds: float) -> RoundVerified:
        context = self.context
        assert context is not None, "the prefill comes first"
        drafts, position, base = proposal.ids, self.position, context.length
        begin = self.clock()
        logits = rows_of(context, [self.ids[-1], *drafts])
        self.target.synchronize()
        verified = self.clock()
        scores = self._scores(logits, drafts)
        verdict = self._judge(proposal, scores)
        if verdict.accepted < len(drafts):
            context.rewind(kept_length(base, verdict.accepted))
        self.ids += drafts[: verdict.accepted]
        kept = len(self.ids)
        if verdict.emitted is not None:
            self.ids.append(verdict.emitted)
        if self.drafter:
            self.drafter.settle(self.ids, kept, scores[: verdict.accepted + 1])
        self._synchronize()
        end = self.clock()
        p, q = (verdict.p, verdict.q) if verdict.p or not drafts else chosen(drafts, proposal.rows, scores)
        verdict = replace(verdict, p=p, q=q)
        score = 0.0 if verdict.emitted is None else float(scores[verdict.accepted][verdict.emitted])
        seconds = (draft_seconds, verified - begin, end - verified)
        return self._round(number, position, proposal, verdict, score, seconds, self._seen(scores, proposal, verdict))

    def _seen(self, scores: Scores, proposal: Proposal, verdict: Verdict | None = None) -> Sequence[Insight | None]:
        """An insight for each row of scores, where they are wanted. The clock is no longer running."""
        if not self.insight:
            return [None] * len(scores)
        named = [[draft] for draft in proposal.ids] + [[]]
        if verdict is not None and verdict.emitted is not None:
            named[verdict.accepted].append(verdict.emitted)
        seen = insights(scores, proposal.rows, named, greedy=self.sampler.is_greedy)
        if verdict is not None and verdict.accepted < len(proposal.ids) and self.rule.weight is not None:
            at = verdict.accepted
            weight = self.rule.weight(verdict.p[:at], verdict.q[:at])
            rest = residual(scores[at], proposal.rows[at], proposal.ids[at], weight)
            seen[at] = with_residual(seen[at], rest, named[at][1:])
        return seen

    def _judge(self, proposal: Proposal, scores: Scores) -> Verdict:
        if not proposal.ids:
            return Verdict(0, self.rule.draw(scores[0], self.position, self.dice))
        bonus = not self.ending.at([*self.ids, *proposal.ids])
        return self.rule.verify(proposal.ids, proposal.rows, scores, self.position, self.dice, bonus)

    def _round(
        self,
        number: int,
        position: int,
        proposal: Proposal,
        verdict: Verdict,
        score: float,
        seconds: tuple[float, float, float],
        seen: Sequence[Insight | None],
    ) -> RoundVerified:
        """The record of a round; `score` is the emitted token's. The clock is no longer running."""
        accepted, drafts = verdict.accepted, proposal.ids
        none: list[float | None] = [None] * len(drafts)
        tokens = tuple(
            Token(
                draft,
                _fate(index, accepted),
                position + index,
                _number(verdict.p[index]),
                _number(verdict.q[index]),
                _number((verdict.acceptance or none)[index]),
                (verdict.draws or none)[index],
                seen[index],
            )
            for index, draft in enumerate(drafts)
        )
        emitted = None
        if verdict.emitted is not None:
            status = Status.SAMPLED if not drafts else Status.BONUS if accepted == len(drafts) else Status.RESAMPLED
            emitted = self._emitted(verdict.emitted, status, position + accepted, score, seen[accepted])
        return RoundVerified(number, tokens, emitted, *seconds)

    def _emitted(self, token: int, status: Status, position: int, score: float, seen: Insight | None) -> Token:
        if not math.isfinite(score):
            raise FloatingPointError(f"the target's scores are not numbers (NaN or infinite){_cure(self.target)}")
        return Token(token, status, position, p=1.0 if self.sampler.is_greedy else score, insight=seen)

    def _scores(self, logits: torch.Tensor, drafts: Sequence[int] = ()) -> Scores:
        """The scores of rows behind the text and each of `drafts`."""
        logits = self.controls.apply(logits, [*self.ids, *drafts], self.prompt_length)
        return logits if self.sampler.is_greedy else processed(self.sampler, logits)

    def _synchronize(self) -> None:
        self.target.synchronize()
        if self.drafter:
            self.drafter.synchronize()


def rows_of(context: ModelContext, ids: list[int]) -> torch.Tensor:
    """Logits after each of `ids`, as if each were the last one.

    Attention gives what it hides the weight 0, and 0 times a value that is no number is none: one such draft spoils
    the rows before it too. Then the ids go in one by one, up to the first whose own row is no number.
    """
    base = context.length
    logits = context.extend(ids, keep=len(ids))
    if len(ids) == 1 or not bool(logits[0].isnan().any()):
        return logits
    context.rewind(base)
    rows = torch.full_like(logits, math.nan)
    for index, token in enumerate(ids):
        rows[index] = context.extend([token], keep=1)[0]
        if bool(rows[index].isnan().any()):
            break
    return rows


def _cure(target: CausalModel) -> str:
    """What may help where scores are not finite: a wider dtype, unless there is none."""
    match getattr(target, "dtype", None):
        case torch.float16:
            return " in float16: try --dtype bfloat16 or float32"
        case torch.bfloat16:
            return " in bfloat16: try --dtype float32"
    return ": its weights or its config are not right"


def _number(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _fate(index: int, accepted: int) -> Status:
    if index < accepted:
        return Status.ACCEPTED
    return Status.REJECTED if index == accepted else Status.UNVERIFIED
