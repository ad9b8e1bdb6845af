"""A run whose rounds stay on the device: the same records as the plain run, from captured programs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch

from specdec_tui.backends.answering import Answering
from specdec_tui.backends.errors import first_line, is_out_of_memory
from specdec_tui.backends.model import CausalModel, StaticModel, StaticSequence, bucket
from specdec_tui.decoding.controls import NO_CONTROLS, Controls
from specdec_tui.decoding.device_round import Batch, DeviceRound, Mark, RoundResult, host_mark
from specdec_tui.decoding.drafters import Drafter, ModelDrafter, Proposal
from specdec_tui.decoding.ending import Completes, nowhere
from specdec_tui.decoding.prompt import Stopped
from specdec_tui.decoding.records import Capturing, Insight, Notice, PrefillDone, Record, RunEnded, Status
from specdec_tui.decoding.round_state import Plan
from specdec_tui.decoding.rules import Verdict
from specdec_tui.decoding.run import Run
from specdec_tui.decoding.sampling import Sampler

STEPS = 4  # rounds that the host reads at once, where it drafts none
SLOW = 0.015  # seconds of a round beyond which each is read by itself, so that a screen lives
KEPT_BYTES = 64 << 20  # scores of rounds that are read at once: 3.6 MB a round of 3 drafts and 128,256 ids
# Drafts that are too many are written, and then forgotten. The same for every plan, and so the same capacity: how
# attention is cut into shares, and so how its sums round, must not depend on the strategy.
SPARE = 33
_KEPT = 6  # programs kept for later runs: each holds caches of its own

Capture = Callable[[Callable[[], None], list[torch.Tensor]], Callable[[], None]]
"""Makes a program that repeats a step, from the step and the tensors that it changes for good."""


def no_capture(step: Callable[[], None], state: list[torch.Tensor]) -> Callable[[], None]:
    """For a device without graphs: the program is the step itself."""
    return step


@dataclass(frozen=True, eq=False)
class Need:
    """The program a run needs: rounds of `plan` by these models, for a text of at most `capacity` tokens."""

    target: CausalModel
    drafter: CausalModel | None
    plan: Plan
    capacity: int

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for needs that one program serves: of equal capacity, since sums round by it."""
        return (id(self.target), id(self.drafter), self.plan, self.capacity)


def need_of(
    target: CausalModel,
    drafter: Drafter | None,
    *,
    sampler: Sampler,
    rule: str,
    gamma: int,
    end_ids: frozenset[int],
    completes: Completes = nowhere,
    controls: Controls = NO_CONTROLS,
    capacity: int,
) -> Need:
    """What a run needs whose text grows to `capacity` tokens. ValueError with the reason where there is no program."""
    if isinstance(target, Answering):
        raise ValueError("the target is on a server")
    if controls.asked:
        raise ValueError(f"{controls.asked[0].replace('_', ' ')} asks what stands before each token")
    if completes is not nowhere:
        raise ValueError("stop strings are looked for in the text")
    own = drafter if isinstance(drafter, ModelDrafter) and gamma else None
    model = None if own is None else own.model
    if drafter is not None and gamma and (reason := drafter.goes_step_by_step):
        raise ValueError(reason)
    if model is not None and model.device.type != target.device.type:
        raise ValueError("target and drafter are on different devices")
    limit = None if model is None else model.context_length
    if limit is not None and capacity > limit:
        raise ValueError(f"the text may outgrow the drafter's context of {limit} tokens")
    plan = Plan(
        gamma if drafter else 0,
        target.vocab_size,
        Sampler() if sampler.is_greedy else sampler,
        "" if sampler.is_greedy else rule,
        tuple(sorted(end_ids)),
        1 if drafter is not None and own is None else _steps(gamma if own else 0, target.vocab_size),
        None if own is None else own.fit,
        0 if model is None else model.vocab_size,
    )
    return Need(target, model, plan, bucket(capacity + SPARE))


def _steps(gamma: int, width: int) -> int:
    """Rounds that are read at once: see `RoundState.kept`."""
    return max(1, min(STEPS, KEPT_BYTES // (4 * (2 * gamma + 1) * width)))


@dataclass
class Program:
    """A round and how to play it. `seconds`: what making it took, until a run has told it."""

    key: tuple[object, ...]
    round: DeviceRound
    play: Callable[[], None]
    seconds: float


@dataclass
class Programs:
    """The programs of a pair: each is made once for a need, and lent to one run at a time."""

    capture: Capture = no_capture
    mark: Mark = host_mark
    _idle: list[Program] = field(default_factory=list)
    _refused: dict[tuple[object, ...], str] = field(default_factory=dict)
    _lent: int = 0

    def settled(self, need: Need) -> bool:
        """Whether `lend` has nothing to make: the program is there, or known to be impossible."""
        return need.key in self._refused or need.key in self._keys

    def lend(self, need: Need) -> Program:
        """The program for a need, made if there is none. ValueError with a reason where it cannot be had.

        Where memory is short, idle programs are given up for it, the one not used for longest first.
        """
        if need.key in self._keys:
            self._lent += 1
            return self._idle.pop(self._keys.index(need.key))
        while need.key not in self._refused:
            try:
                made = self._make(need)
                self._lent += 1
                return made
            except Exception as error:  # a capture fails in many ways, also in those of compilers
                reason, short = first_line(error), is_out_of_memory(error)
            # The error is gone here, and with it what it held of the program.
            if not short:
                self._refused[need.key] = reason
            elif not self._idle:
                others = " beside the programs of the other strategies (schedule sequential needs one at a time)"
                raise ValueError("out of memory" + others * bool(self._lent))
            else:
                self._idle.pop()
        raise ValueError(self._refused[need.key])

    @property
    def _keys(self) -> list[tuple[object, ...]]:
        return [program.key for program in self._idle]

    def _make(self, need: Need) -> Program:
        begin = time.perf_counter()
        sequences = [open_static(model, need.capacity) for model in (need.target, need.drafter) if model is not None]
        drafting = sequences[1] if need.drafter else None
        made = DeviceRound(sequences[0], drafting, need.plan, self.mark)
        made.begin([0, 0], 1, 2, (), 0)
        return Program(need.key, made, self.capture(made.step, made.state), time.perf_counter() - begin)

    def take_back(self, program: Program) -> None:
        self._lent -= 1
        self._idle.insert(0, program)
        del self._idle[_KEPT:]

    def give_up(self) -> bool:
        """Let idle programs go, for their memory. Whether there were any."""
        there = bool(self._idle)
        self._idle.clear()
        return there


def open_static(model: CausalModel, capacity: int) -> StaticSequence:
    """ValueError, with the reason, where a model cannot be run without the host."""
    if not isinstance(model, StaticModel):
        raise ValueError("this kind of model cannot be run without the host")
    return model.open_static(capacity)


@dataclass
class DeviceRun(Run):
    """A run with `programs`. Where they cannot be had it is the plain run, and says so.

    `alone`: nothing else is computed or timed while a consumer holds a record, so the next rounds may be under way.
    """

    programs: Programs = field(default_factory=Programs)
    rule_name: str = "rejection"
    seed: int = 0
    alone: bool = False
    program: Program | None = None
    _under_way: Batch | None = None
    _slow: bool = False
    _stream: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # of the dice, where the rounds began
    _used: int = 0  # numbers that rounds have taken from there

    def records(
        self, prompt_ids: Sequence[int], use_cache: bool, cancelled: Callable[[], bool]
    ) -> Generator[Record, None, RunEnded]:
        try:
            return (yield from super().records(prompt_ids, use_cache, cancelled))
        finally:
            self._give_back()

    def _give_back(self) -> None:
        """The program is idle again; nothing of it is under way."""
        program, self.program = self.program, None
        if program is not None:
            self._wait(program)
            self.programs.take_back(program)

    def _wait(self, program: Program) -> None:
        if self._under_way is not None:
            program.round.read(self._under_way)
            self._under_way = None

    def _need(self, use_cache: bool) -> Need:
        """ValueError with a reason where there can be no program."""
        if not use_cache:
            raise ValueError("the cache is off")
        return need_of(
            self.target,
            self.drafter,
            sampler=self.sampler,
            rule=self.rule_name,
            gamma=self.gamma,
            end_ids=self.ending.ids,
            completes=self.ending.completes,
            controls=self.controls,
            capacity=len(self.ids) + self.room,
        )

    def _get_ready(self, use_cache: bool) -> Iterator[Record]:
        try:
            yield from self._borrow(self._need(use_cache))
            return
        except ValueError as error:
            reason = str(error)
        yield Notice(f"step by step, not captured: {reason}")
        yield from super()._get_ready(use_cache)

    def _borrow(self, need: Need) -> Iterator[Record]:
        """Get the program and tell what it is. ValueError with a reason where it cannot be had."""
        if not self.programs.settled(need):
            yield Capturing()
        self.program = self.programs.lend(need)
        for model in (need.target, need.drafter):
            if isinstance(model, StaticModel) and model.static_note:
                yield Notice(model.static_note)

    def _prefill(self, use_cache: bool) -> PrefillDone:
        prefill = super()._prefill if self.program is None else self._prefill_program
        try:
            return prefill(use_cache)
        except Exception as error:
            began = self.position > len(self.given)
            if not is_out_of_memory(error) or began or not self.programs.give_up():
                raise
        return prefill(use_cache)

    def _go_on(self) -> None:
        """Stopped where the run was cancelled."""
        if self.cancelled():
            raise Stopped

    def _prefill_program(self, use_cache: bool) -> PrefillDone:
        assert self.program is not None
        capacity = len(self.ids) + self.room
        begin = self.clock()
        played = self.program.round
        prompt = torch.tensor(self.ids, device=played.target.card.device)
        scores = self._scores(played.target.prefill(prompt, self._go_on))
        if played.drafter is not None:
            known = prompt < played.plan.drafter_ids
            ids = torch.where(known, prompt, 0).to(played.drafter.card.device)
            played.drafter.prefill(ids, self._go_on)
        elif self.drafter:
            self.drafter.start(self.ids, self._setup(capacity, use_cache))
        position = self.position
        first = self.rule.draw(scores[0], position, self.dice)
        self.ids.append(first)
        if self.drafter and played.drafter is None:
            self.drafter.settle(self.ids, len(self.ids) - 1, scores)
        self._stream, self._used, self._slow = self.dice.state, 0, False
        most = min(played.uniforms, (2 * self.gamma + 1) * self.room)  # a round has a token of its own
        played.begin(self.ids, self.prompt_length, capacity, self.dice.uniforms(most), self.seed)
        self._synchronize()
        seconds = self.clock() - begin
        seen = self._seen(scores, Proposal())[0]
        token = self._emitted(first, Status.SAMPLED, position, float(scores[0][first]), seen)
        making, self.program.seconds = self.program.seconds, 0.0
        return PrefillDone(token, seconds, making, captured=True)

    def _play(self, number: int) -> Iterator[Record]:
        if self.program is None:
            yield from super()._play(number)
            return
        played = self.program.round
        given, draft_seconds = Proposal(), 0.0
        if self._drafts_on_host:
            given, draft_seconds = self._propose()
        begin = self.clock()
        if self._drafts_on_host:
            played.give(self.ids[-1], given.ids)
        batch, was_ahead = self._under_way or self._send(self.room), self._under_way is not None
        assert batch is not None, "there is room"
        least = self.room - batch.rounds * (played.plan.gamma + 1)
        self._under_way = self._send(least) if self._goes_ahead else None
        results, on_device = played.read(batch)
        # Of rounds that follow others on the device, or are followed, the host cannot tell when they began or ended.
        seconds = on_device if was_ahead or self._under_way else self.clock() - begin
        self._slow = seconds > SLOW * len(results)
        passes = sum(result.draft_seconds + result.verify_seconds for result in results)
        other = max(0.0, seconds - passes) / len(results)
        for index, result in enumerate(results):
            if result.drafts and (not result.sound or not math.isfinite(result.score)):
                yield from self._go_on_plainly()
                return
            yield from self._told(number + index, result, (batch, index), draft_seconds, other)
            if self._end(lambda: False):
                return

    @property
    def _drafts_on_host(self) -> bool:
        assert self.program is not None
        return self.drafter is not None and self.program.round.drafter is None

    @property
    def _goes_ahead(self) -> bool:
        """Whether rounds may be played before those before them are told: insight reads scores on the device."""
        return self.alone and not self.insight and not self._drafts_on_host

    def _send(self, room: int) -> Batch | None:
        """Play rounds that begin with room for a token even where those before keep all drafts; None without any."""
        assert self.program is not None
        played = self.program.round
        rounds = min(1 if self._slow else played.plan.steps, (room - 1) // (played.plan.gamma + 1) + 1)
        return played.send(self.program.play, rounds) if rounds > 0 else None

    def _go_on_plainly(self) -> Iterator[Record]:
        """Do without the program from here, at the same place of the text and of the stream of chance.

        A draft may have scores that are no numbers, and in one pass it spoils those before it: see `run.rows_of`.
        """
        assert self.program is not None
        yield Notice("goes on step by step: scores of a captured round are not numbers (NaN)")
        drafted = self.program.round.drafter is not None
        self._give_back()
        self.dice.go_back(self._stream, self._used)
        capacity = len(self.ids) + self.room
        self.context = self.target.open(capacity=capacity)
        self.context.extend(self.ids[:-1], keep=1)
        if self.drafter and drafted:
            setup = self._setup(capacity, use_cache=True)
            self.drafter.start(self.ids[:-1], replace(setup, given=setup.given - 1))

    def _told(
        self, number: int, result: RoundResult, place: tuple[Batch, int], draft_seconds: float, other: float
    ) -> Iterator[Record]:
        """The records of a round that is over, of a batch at an index. The clock runs only while drafters are told."""
        if not result.sound:
            raise FloatingPointError("the model's probabilities are not finite numbers")
        assert self.program is not None
        played, position, drafts = self.program.round, self.position, result.drafts
        self._used += played.uniforms_of(len(drafts))
        own = played.rows_of(*place) if self.insight else None
        proposal = Proposal(drafts, [None] * len(drafts) if own is None else [*own[: len(drafts)]])
        yield from self._proposed(number, proposal)
        ended = bool(drafts) and result.accepted == len(drafts) and drafts[-1] in self.ending.ids
        p, q, *rest = result.numbers
        acceptance, draws = ([None if math.isnan(value) else value for value in numbers] for numbers in rest)
        verdict = Verdict(result.accepted, None if ended else result.emitted, p, q, acceptance, draws)
        self.ids += drafts[: result.accepted]
        kept = len(self.ids)
        if not ended:
            self.ids.append(result.emitted)
        if self._drafts_on_host:
            assert self.drafter is not None
            begin = self.clock()
            self.drafter.settle(self.ids, kept, played.scores_of(*place)[: result.accepted + 1])
            other += self.clock() - begin
        seconds = (draft_seconds + result.draft_seconds, result.verify_seconds, other)
        seen: Sequence[Insight | None] = [None] * (played.plan.gamma + 1)
        if self.insight:
            seen = self._seen(played.scores_of(*place), proposal, verdict)
        yield self._round(number, position, proposal, verdict, result.score, seconds, seen)
