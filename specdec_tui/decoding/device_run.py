"""A run whose rounds stay on the device: the same records as the plain run, from captured programs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field

import torch

from specdec_tui.backends.model import CausalModel, StaticModel, StaticSequence
from specdec_tui.decoding.device_round import DeviceRound, Mark, Plan, RoundResult, host_mark
from specdec_tui.decoding.drafters import ModelDrafter, Proposal
from specdec_tui.decoding.records import Notice, PrefillDone, Record, RunEnded, Status
from specdec_tui.decoding.rules import Verdict
from specdec_tui.decoding.run import Run

STEPS = 4  # rounds without drafts that the host reads at once
# Drafts that are too many are written, and then forgotten. The same for every plan, and so the same capacity: how
# attention is cut into shares, and so how its sums round, must not depend on the strategy.
SPARE = 33
_KEPT = 6  # programs kept for later runs: each holds caches of its own

Capture = Callable[[Callable[[], None], list[torch.Tensor]], Callable[[], None]]
"""Makes a program that repeats a step, from the step and the tensors that it changes for good."""


def no_capture(step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:
    """For a device without graphs: the program is the step itself."""
    return step


@dataclass
class Program:
    """A round and how to play it. `seconds`: what making it took, for the first run that has it."""

    key: tuple[object, ...]
    round: DeviceRound
    play: Callable[[], None]
    seconds: float


@dataclass
class Programs:
    """The programs of a pair: each is made once for a plan and a capacity, and lent to one run at a time."""

    capture: Capture = no_capture
    mark: Mark = host_mark
    _idle: list[Program] = field(default_factory=list)
    _refused: dict[tuple[object, ...], str] = field(default_factory=dict)

    def lend(self, target: CausalModel, drafter: CausalModel | None, plan: Plan, capacity: int) -> Program:
        """A program with room for a text of `capacity` tokens. ValueError with a reason where it cannot be had."""
        key = (id(target), id(drafter), plan)
        for program in self._idle:
            if program.key == key and program.round.target.capacity >= capacity:
                self._idle.remove(program)
                return program
        if key in self._refused:
            raise ValueError(self._refused[key])
        begin = time.perf_counter()
        try:
            room = capacity + SPARE
            sequences = [open_static(model, room) for model in (target, drafter) if model is not None]
            made = DeviceRound(sequences[0], sequences[1] if drafter else None, plan, target.device, self.mark)
            made.begin([0, 0], 1, 2, (), 0)
            play = self.capture(made.step, made.state)
        except (RuntimeError, ValueError) as error:  # also torch's own: a capture fails in many ways
            self._refused[key] = str(error).split("\n")[0]
            raise ValueError(self._refused[key]) from error
        return Program(key, made, play, time.perf_counter() - begin)

    def take_back(self, program: Program) -> None:
        program.seconds = 0.0
        self._idle.insert(0, program)
        del self._idle[_KEPT:]


def open_static(model: CausalModel, capacity: int) -> StaticSequence:
    """ValueError, with the reason, where a model cannot be run without the host."""
    if not isinstance(model, StaticModel):
        raise ValueError("this kind of model cannot be run without the host")
    return model.open_static(capacity)


@dataclass
class DeviceRun(Run):
    """A run with `programs`. Where they cannot be had it is the plain run, and says so."""

    programs: Programs = field(default_factory=Programs)
    rule_name: str = "rejection"
    seed: int = 0
    program: Program | None = None
    reason: str = ""

    def records(
        self, prompt_ids: Sequence[int], use_cache: bool, cancelled: Callable[[], bool]
    ) -> Generator[Record, None, RunEnded]:
        try:
            return (yield from super().records(prompt_ids, use_cache, cancelled))
        finally:
            if self.program is not None:
                self.programs.take_back(self.program)

    @property
    def _drafting_model(self) -> CausalModel | None:
        return self.drafter.model if isinstance(self.drafter, ModelDrafter) else None

    def _borrow(self, capacity: int) -> Program:
        """A program for this run. ValueError with a reason where it cannot be had."""
        model = self._drafting_model
        if self.drafter is not None and self.drafter.needs_rows and model is None:
            raise ValueError("the drafter asks a model between its own drafts")
        limit = None if model is None else model.context_length
        if limit is not None and capacity > limit:
            raise ValueError(f"the text may outgrow the drafter's context of {limit} tokens")
        plan = Plan(
            self.gamma if self.drafter else 0,
            self.target.vocab_size,
            self.sampler,
            self.rule_name,
            tuple(sorted(self.end_ids)),
            1 if self.drafter or self.insight else STEPS,
            self.drafter.fit if isinstance(self.drafter, ModelDrafter) else None,
            0 if model is None else model.vocab_size,
        )
        return self.programs.lend(self.target, model, plan, capacity)

    def _prefill(self, use_cache: bool) -> PrefillDone:
        capacity = len(self.ids) + self.room
        if not use_cache:
            return super()._prefill(use_cache)
        try:
            self.program = self._borrow(capacity)
        except ValueError as error:
            self.reason = str(error)
            return super()._prefill(use_cache)
        begin = self.clock()
        played, device = self.program.round, self.target.device
        prompt = torch.tensor(self.ids, device=device)
        scores = self._scores(played.target.prefill(prompt))
        if played.drafter is not None:
            known = prompt < played.plan.drafter_ids
            played.drafter.prefill(torch.where(known, prompt, 0))
        elif self.drafter:
            self.drafter.start(self.ids, self._setup(capacity, use_cache))
        first = self.rule.draw(scores[0], 0, self.dice)
        self.ids.append(first)
        if self.drafter and played.drafter is None:
            self.drafter.settle(self.ids, self.prompt_length, scores)
        played.begin(self.ids, self.prompt_length, capacity, self.dice.uniforms(played.uniforms), self.seed)
        self._synchronize()
        seconds = self.clock() - begin
        seen = self._seen(scores, Proposal())[0]
        token = self._emitted(first, Status.SAMPLED, 0, float(scores[0][first]), seen)
        return PrefillDone(token, seconds, self.program.seconds)

    def _play(self, number: int) -> Iterator[Record]:
        if self.program is None:
            if self.reason and not self.told:
                self.told = f"step by step, not captured: {self.reason}"
                yield Notice(self.told)
            yield from super()._play(number)
            return
        played, count = self.program.round, self.program.round.plan.steps
        given, draft_seconds = Proposal(), 0.0
        if played.drafter is None and self.drafter:
            given, draft_seconds = self._propose()
            played.give(given.ids)
        begin = self.clock()
        played.rewind_results()
        for _ in range(min(count, self.room)):
            self.program.play()
        results = played.read(min(count, self.room))
        seconds = (self.clock() - begin) / len(results)
        for index, result in enumerate(results):
            yield from self._told(number + index, result, draft_seconds, seconds)
            if self._end(lambda: False):
                return

    def _told(self, number: int, result: RoundResult, draft_seconds: float, seconds: float) -> Iterator[Record]:
        """The records of a round that is over."""
        if not result.sound:
            raise FloatingPointError("the model's probabilities are not finite numbers")
        assert self.program is not None
        played, position, drafts = self.program.round, self.position, result.drafts
        rows: list[torch.Tensor | None] = [None] * len(drafts)
        if played.rows is not None:
            rows = list(played.rows[: len(drafts)])
        proposal = Proposal(drafts, rows)
        yield from self._proposed(number, proposal)
        ended = bool(drafts) and result.accepted == len(drafts) and drafts[-1] in self.end_ids
        p, q, *rest = result.numbers
        acceptance, draws = ([None if math.isnan(value) else value for value in numbers] for numbers in rest)
        verdict = Verdict(result.accepted, None if ended else result.emitted, p, q, acceptance, draws)
        begin = self.clock()
        self.ids += drafts[: result.accepted]
        kept = len(self.ids)
        if not ended:
            self.ids.append(result.emitted)
        if self.drafter and played.drafter is None:
            self.drafter.settle(self.ids, kept, played.scores[: result.accepted + 1])
        seconds += self.clock() - begin
        drafting, verifying = draft_seconds + result.draft_seconds, result.verify_seconds
        other = max(0.0, seconds - result.draft_seconds - verifying)
        seen = self._seen(played.scores, proposal)
        yield self._round(number, position, proposal, verdict, result.score, (drafting, verifying, other), seen)
