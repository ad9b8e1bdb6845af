"""An engine that follows a script: the same records every time, round by round when a test says so."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from specdec_tui.backends.pair import Health, ModelInfo, PairInfo, Progress, ReportProgress
from specdec_tui.decoding.records import (
    Checked,
    DraftsProposed,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.what_ifs import WhatIf

_STORY = (
    "Light travels in straight lines until it meets something. Blue light is scattered by air far "
    "more than red light is, because its waves are shorter, so on a clear day the whole sky sends "
    "blue towards our eyes.\n\nIn the evening the way through the air is long: most of the blue is "
    "gone before the light arrives, and what is left is orange and red."
)
WORDS = tuple(_STORY.split(" "))

# Accepted drafts of each round, repeated; costs in seconds are made up, but always the same.
PATTERNS = {"drafter": (0,), "speculative": (2, 4, 1, 3, 0, 4), "ngram": (0, 1, 0, 2), "lookup": (0, 0, 3, 0)}
STEP_SECONDS = {"target": 0.050, "drafter": 0.008, "speculative": 0.093, "ngram": 0.062, "lookup": 0.062}


FORMS = ("packed", "expanded", "packed-int8")


def formed(form: str = "packed") -> PairInfo:
    """The same pair, with a target whose weights can be held in several forms."""
    pair = info()
    return replace(pair, target=replace(pair.target, weights=form, weight_forms=FORMS))


def info(name: str = "scripted-target", *drafters: str) -> PairInfo:
    """A small pair; without `drafters` it has one of its own."""

    def model(model_name: str, count: int) -> ModelInfo:
        return ModelInfo(model_name, "cpu", "float32", "none", count, count * 4, 2048)

    others = tuple(model(drafter, 16_000_000) for drafter in drafters or ("scripted-drafter",))
    return PairInfo(model(name, 135_000_000), others, True)


@dataclass
class ScriptedEngine:
    """Satisfies `session.Engine`. With `gated`, a round waits for `step()`; a load for `load_gate`.

    Of the programs made ahead, so many as `captures` says, each waits for `capture()`.
    """

    gated: bool = False
    words: Sequence[str] = WORDS
    native_output: bytes = b""
    pair: PairInfo = field(default_factory=info)
    load_error: Exception | None = None
    run_error: Exception | None = None
    loads: list[ModelChoice] = field(default_factory=list)
    asked: list[WhatIf] = field(default_factory=list)
    """The what-ifs that were wanted."""
    runs: list[tuple[str, Settings]] = field(default_factory=list)
    repeats: list[bool] = field(default_factory=list)
    asides: list[bool] = field(default_factory=list)
    prepared: list[Settings] = field(default_factory=list)
    captures: int = 0
    reports: int = 0
    """Of a load, behind its gate."""
    chats: int = 0
    server: Health | None = None
    looks: int = 0
    verdicts: dict[str, Lossless] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.load_gate = threading.Event()
        self.load_gate.set()
        self._rounds = threading.Semaphore(0)
        self._captures = threading.Semaphore(0)

    def step(self, rounds: int = 1) -> None:
        """Let so many rounds pass."""
        self._rounds.release(rounds)

    def capture(self, programs: int = 1) -> None:
        """Let so many programs be made."""
        self._captures.release(programs)

    def health(self, cancelled: Callable[[], bool]) -> Health | None:
        self.looks += 1
        return self.server

    def prepare(self, settings: Settings, cancelled: Callable[[], bool], progress: ReportProgress) -> None:
        self.prepared.append(settings)
        for index in range(self.captures):
            if cancelled():
                return
            progress(Progress("Capturing rounds", index / self.captures))
            assert self._captures.acquire(timeout=60)
        self.captures = 0

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        self.loads.append(choice)
        progress(Progress("reading the target", 0.45))
        self.load_gate.wait(60)
        for step in range(self.reports):
            progress(Progress("loading the target", step / self.reports))
        if self.load_error is not None:
            error, self.load_error = self.load_error, None
            raise error
        if choice.target:
            return info(choice.target, *choice.drafter)
        return self.pair

    def new_chat(self) -> None:
        self.chats += 1

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event]:
        self.runs.append((prompt, settings))
        self.repeats.append(again)
        self.asides.append(aside)
        if self.native_output:
            os.write(1, self.native_output)
            os.write(2, self.native_output)
        if self.run_error is not None:
            raise self.run_error
        stopped = False
        for strategy in settings.strategies:
            for step in self._steps(strategy, prompt, settings, cancelled):
                yield step
                if isinstance(step.record, RunEnded):
                    stopped = step.record.reason is EndReason.CANCELLED
            if stopped:
                break
        if not stopped:
            for strategy in settings.strategies:
                yield Checked(strategy, self.verdicts.get(strategy, Lossless(LosslessStatus.IDENTICAL)))
        yield Finished(cancelled=stopped)

    def what_ifs(self, requests: Sequence[WhatIf], cancelled: Callable[[], bool]) -> Iterator[Event]:
        """One after another; a token that is no next word of the script is told as ` other`."""
        self.asked += requests
        if self.run_error is not None:
            raise self.run_error
        stopped = False
        for one in requests:
            for step in self._steps(one.strategy, one.prompt_text, one.settings, cancelled, one):
                yield replace(step, strategy=one.name)
                if isinstance(step.record, RunEnded):
                    stopped = step.record.reason is EndReason.CANCELLED
        if not stopped:
            for one in requests:
                yield Checked(one.name, self.verdicts.get(one.name, Lossless(LosslessStatus.IDENTICAL)))
        yield Finished(cancelled=stopped)

    def _given(self, request: WhatIf) -> str:
        return "".join(
            self._word(place) if token == 1000 + place else " other" for place, token in enumerate(request.given)
        )

    def _steps(
        self,
        strategy: str,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        request: WhatIf | None = None,
    ) -> Iterator[Step]:
        limit, position, number = settings.max_new_tokens, 0, 0
        started = RunStarted(strategy, 12, settings.gamma, limit)
        if request is not None:
            position, prompt = len(request.given), prompt + self._given(request)
            started = RunStarted(strategy, 12 + position, settings.gamma, limit - position, origin=request.origin)
        yield Step(strategy, started, prompt_text=prompt)
        yield Step(strategy, PrefillDone(self._token(position, Status.SAMPLED), 0.21), (self._word(position),))
        position += 1
        pattern = PATTERNS.get(strategy)
        while position < limit:
            if not self._may_go_on(cancelled):
                yield Step(strategy, RunEnded(EndReason.CANCELLED))
                return
            drafts = 0 if pattern is None or strategy == "drafter" else min(settings.gamma, limit - position - 1)
            accepted = min(drafts, pattern[number % len(pattern)]) if pattern else 0
            yield from self._round(strategy, number, position, drafts, accepted)
            position += accepted + 1
            number += 1
        yield Step(strategy, RunEnded(EndReason.LENGTH))

    def _round(self, strategy: str, number: int, position: int, drafts: int, accepted: int) -> Iterator[Step]:
        places = range(position, position + drafts)
        texts = [self._word(place) if place < position + accepted else f" guess{place}" for place in places]
        if drafts:
            pending = tuple(self._token(place, Status.PENDING) for place in places)
            yield Step(strategy, DraftsProposed(number, pending), tuple(texts))
        fates = [Status.ACCEPTED] * accepted + [Status.REJECTED] * (accepted < drafts)
        fates += [Status.UNVERIFIED] * (drafts - len(fates))
        last = Status.SAMPLED if not drafts else Status.BONUS if accepted == drafts else Status.RESAMPLED
        place = position + accepted
        record = RoundVerified(
            number,
            tuple(self._token(p, fate) for p, fate in zip(places, fates, strict=True)),
            self._token(place, last),
            draft_seconds=0.008 * drafts if strategy == "speculative" else 0.0,
            verify_seconds=STEP_SECONDS.get(strategy, 0.06),
            other_seconds=0.001,
        )
        yield Step(strategy, record, (*texts, self._word(place)))

    def _may_go_on(self, cancelled: Callable[[], bool]) -> bool:
        """Wait for leave to do a round; False when the run was cancelled meanwhile."""
        while self.gated and not cancelled():
            if self._rounds.acquire(timeout=0.01):
                break
        return not cancelled()

    def _word(self, place: int) -> str:
        return (" " if place else "") + self.words[place % len(self.words)]

    def _token(self, place: int, status: Status) -> Token:
        return Token(1000 + place, status, place, p=0.8, q=0.6, acceptance=0.9)


def text_of(tokens: int, words: Sequence[str] = WORDS) -> str:
    """What every strategy of a scripted run has emitted after so many tokens."""
    return " ".join(words[place % len(words)] for place in range(tokens))
