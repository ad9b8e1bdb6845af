"""A whole round as one tensor program: drafts, verification, rewinds and the new tail of the text.

Nothing in `DeviceRound.step` waits for the device or looks at a value, so the program can be
captured once and replayed: a round then costs one launch, or one for each stretch on a card where models are on
several, and some of them one small copy to the host. The sequences are rewound by what `length` says, and by nothing
else.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from specdec_tui.backends import cuda_graphs
from specdec_tui.backends.cards import cross
from specdec_tui.backends.model import StaticSequence
from specdec_tui.decoding import kernel_choosing
from specdec_tui.decoding.kernel_choosing import KernelChoosing
from specdec_tui.decoding.round_state import Choosing, Plan, RoundState
from specdec_tui.decoding.torch_choosing import TorchChoosing

Mark = Callable[[Tensor], None]
"""Writes the time, in nanoseconds of any clock, into an int64 [1] when the device gets there."""

Choose = Callable[[Plan, RoundState, Mark], Choosing]


def host_mark(place: Tensor) -> None:
    """For a device that computes as it is told."""
    place.fill_(time.perf_counter_ns())


def fastest(plan: Plan, state: RoundState, mark: Mark) -> Choosing:
    """By kernels of our own where they serve."""
    if not kernel_choosing.fits(plan, state.length.device):
        return TorchChoosing(plan, state)
    return KernelChoosing(plan, state, stamps=mark is cuda_graphs.mark)


class Stretch(Protocol):
    """What a device is given between two calls, and the time that it takes for that alone."""

    def begin(self) -> None: ...

    def end(self) -> None: ...

    def seconds(self) -> float:
        """Waits for the end. What was given before the beginning does not count, nor time without work behind the end.

        Until the first of the work gets there, from the beginning on, does.
        """
        ...


class HostStretch:
    """For a device that computes as it is told."""

    def __init__(self) -> None:
        self._begin = self._end = 0.0

    def begin(self) -> None:
        self._begin = time.perf_counter()

    def end(self) -> None:
        self._end = time.perf_counter()

    def seconds(self) -> float:
        return self._end - self._begin


@dataclass(frozen=True, slots=True)
class Batch:
    """Rounds under way. `first`: the place of their results, which stand in `results` when the stretch has ended."""

    rounds: int
    first: int
    results: Tensor
    stretch: Stretch


class RoundResult(NamedTuple):
    """One round as the host sees it. `numbers`: p, q, acceptance and draw of each draft, NaN for none."""

    draft_seconds: float
    verify_seconds: float
    drafts: list[int]
    accepted: int
    emitted: int
    score: float
    sound: bool
    numbers: list[list[float]]


class DeviceRound:
    """The program and its state. Texts have at least two tokens here: the prompt and the first answer's.

    `drafter` None: drafts come from the host through `give`, or there are none (γ = 0). On a card of its own it has a
    state of its own: what a round changes goes there and comes back with the drafts.
    """

    def __init__(
        self,
        target: StaticSequence,
        drafter: StaticSequence | None,
        plan: Plan,
        mark: Mark = host_mark,
        choose: Choose = fastest,
    ) -> None:
        self.plan, self.target, self.drafter, self._mark = plan, target, drafter, mark
        device, apart = target.card.device, drafter is not None and drafter.card != target.card
        drafts, capacity = drafter is not None, target.capacity
        self._state = self._theirs = RoundState(plan, drafts, capacity, device, draws=not apart)
        self._choosing = self._drawing = choose(plan, self._state, mark)
        if drafter is not None and apart:
            self._theirs = RoundState(plan, True, capacity, drafter.card.device, judges=False)
            self._drawing = choose(plan, self._theirs, mark)
        on_gpu = device.type == "cuda"
        self._unread: list[tuple[Tensor, Stretch]] = [
            (
                torch.empty_like(self._state.out, device="cpu", pin_memory=on_gpu),
                cuda_graphs.Stretch(device) if on_gpu else HostStretch(),
            )
            for _ in range(2)
        ]
        self._given = torch.empty_like(self._state.from_host, device="cpu", pin_memory=on_gpu)
        self._slot = 0

    @property
    def state(self) -> list[Tensor]:
        """The tensors that a round changes for the next one."""
        return [state.now for state in self._states]

    @property
    def _states(self) -> list[RoundState]:
        return [self._state, *[self._theirs] * (self._theirs is not self._state)]

    @property
    def uniforms(self) -> int:
        """Uniform numbers that a run may use up at most."""
        return self._state.uniforms

    def uniforms_of(self, drafts: int) -> int:
        """Uniform numbers that a round with so many drafts has used up."""
        return ((1 + (self.drafter is not None)) * drafts + 1) if self.uniforms else 0

    def begin(self, ids: Sequence[int], prompt_length: int, limit: int, uniforms: Sequence[float], seed: int) -> None:
        """Go on behind the text `ids`, of which both sequences hold all but the last; it may grow to `limit`."""
        for state in self._states:
            state.begin(ids, prompt_length, limit, uniforms, seed)
        self._slot = 0

    def give(self, last: int, drafts: Sequence[int]) -> None:
        """Drafts of the host for the next round, at most γ, behind the last token of the text."""
        padded = [last, *drafts, *[0] * (self.plan.gamma - len(drafts)), len(drafts)]
        self._given.copy_(torch.tensor(padded))
        self._state.from_host.copy_(self._given, non_blocking=True)

    @torch.inference_mode()
    def step(self) -> None:
        """One round. Its row of results goes to the next place of `steps`."""
        marks, choosing = self._state.marks, self._choosing
        self._mark(marks[:1])
        if self.drafter is not None:
            self._draft(self.drafter)
            if self._drawing is not choosing or not choosing.stamps:
                self._mark(marks[1:2])
        block, place = choosing.block()
        logits = self.target.extend(block, place, self.plan.gamma + 1)
        if not choosing.stamps:
            self._mark(marks[2:])
        choosing.finish(logits)

    def _draft(self, drafter: StaticSequence) -> None:
        here, there, drawing = self.target.card, drafter.card, self._drawing
        cross(here, there, self._state.now, into=[self._theirs.now])
        feed, place = drawing.start()
        for index in range(self.plan.gamma):
            logits = drafter.extend(feed, place, 1)[0]
            if self.plan.fit is not None:
                logits = self.plan.fit(logits)
            feed, place = drawing.draft(index, logits)
        drafted = [self._state.now, *self._choosing.drawn_from]
        cross(there, here, self._theirs.now, *drawing.drawn_from, into=drafted)

    def send(self, play: Callable[[], None], rounds: int) -> Batch:
        """Play at most `steps` rounds, and let their results come to the host. Does not wait.

        A second batch may be sent before the first is read.
        """
        results, stretch = self._unread[0]
        self._unread.reverse()
        batch = Batch(rounds, self._slot, results, stretch)
        stretch.begin()
        for _ in range(rounds):
            play()
        results.copy_(self._state.out, non_blocking=True)
        stretch.end()
        self._slot = (self._slot + rounds) % self.plan.steps
        return batch

    def scores_of(self, batch: Batch, index: int) -> Tensor:
        """The target's scores [γ+1, V] in a round of a batch; they hold until the next round is played."""
        several = self.plan.steps > 1
        return self._state.kept[(batch.first + index) % self.plan.steps] if several else self._choosing.scores

    def rows_of(self, batch: Batch, index: int) -> Sequence[Tensor] | None:
        """The drafter's scores [V] of each draft, as long; None where it has none."""
        if self.drafter is None or self.plan.steps == 1:
            return self._drawing.rows
        return list(self._theirs.kept_rows[(batch.first + index) % self.plan.steps])

    def read(self, batch: Batch) -> tuple[list[RoundResult], float]:
        """What came of each round, and the seconds that the device took for all, waiting for them."""
        seconds, gamma = batch.stretch.seconds(), self.plan.gamma
        rows, found = batch.results.tolist(), []
        for index in range(batch.first, batch.first + batch.rounds):
            drafting, verifying, accepted, emitted, count, sound, *rest = rows[index % len(rows)]
            n = int(count)
            drafts, score = [int(token) for token in rest[:n]], rest[gamma]
            numbers = [rest[gamma * (1 + kind) + 1 :][:n] for kind in range(4)]
            verdict = (int(accepted), int(emitted), score, bool(sound))
            found.append(RoundResult(drafting / 1e9, verifying / 1e9, drafts, *verdict, numbers))
        return found, seconds
