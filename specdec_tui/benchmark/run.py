"""Measure prompts: every strategy on every prompt, repeats interleaved, warm-up untimed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from specdec_tui.backends.pair import PromptError
from specdec_tui.benchmark.suites import Prompt
from specdec_tui.decoding.costs import Costs, costs
from specdec_tui.decoding.figures import RECOMPUTES, RunFigures, speedup
from specdec_tui.decoding.latency import latency
from specdec_tui.decoding.records import (
    EMITTED,
    STOP_STRING,
    Checked,
    EndReason,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    Step,
    tokens_of,
)
from specdec_tui.decoding.reliability import Reliability, reliability
from specdec_tui.decoding.standing import standing
from specdec_tui.settings import Settings


class Engine(Protocol):
    """The part of the session's engine that measuring needs."""

    def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[object]: ...

    def new_chat(self) -> None: ...


NOT_CHECKED = Lossless(LosslessStatus.NOT_APPLICABLE)


@dataclass
class Result:
    """One strategy on one turn of one prompt, once. `baseline`: the target's figures of the same turn and repeat."""

    strategy: str
    prompt_index: int
    turn: int
    category: str
    repeat: int
    figures: RunFigures = field(default_factory=RunFigures)
    token_ids: list[int] = field(default_factory=list)
    text: str = ""
    lossless: Lossless = NOT_CHECKED
    notices: list[str] = field(default_factory=list)
    baseline: RunFigures | None = None

    @property
    def speedup(self) -> float | None:
        return None if self.baseline is None else speedup(self.baseline, self.figures)

    @property
    def reliability(self) -> Reliability | None:
        return reliability(self.figures, self.baseline)

    @property
    def marks(self) -> str:
        """What keeps its speedup from being what it seems, a mark each; of `standing.MARKS`."""
        found = standing(self.figures, self.baseline)
        return "" if found is None else found.marks

    @property
    def is_disturbed(self) -> bool:
        found = self.reliability
        return found is not None and found.is_disturbed

    @property
    def break_even_latency(self) -> float | None:
        """Seconds of a round trip from which on it is expected to be slower than the target; None without a server."""
        found = latency(self.figures, self.baseline)
        return None if found is None else found.limit

    @property
    def costs(self) -> Costs:
        return costs(self.figures, self.baseline)


class BenchmarkError(Exception):
    """A run ended with an error or without a token: a benchmark with holes in it is not a benchmark."""


class PromptChecker(Protocol):
    """The part of an engine that knows what its models can be given."""

    def check_prompt(self, turns: Sequence[str], settings: Settings) -> None: ...


class UnfitPrompt(Exception):
    """A prompt that cannot be measured, found before the first was: which, and why."""


def check_prompts(engine: PromptChecker, prompts: Sequence[Prompt], settings: Settings) -> None:
    """UnfitPrompt names the first prompt that a model's chat template refuses or its context has no room for."""
    for number, prompt in enumerate(prompts, 1):
        try:
            engine.check_prompt(prompt.turns, settings)
        except PromptError as error:
            raise UnfitPrompt(f"prompt {number} of {len(prompts)}: {error}") from error


def measure(
    engine: Engine,
    prompts: Sequence[Prompt],
    settings: Settings,
    *,
    repeat: int,
    warmup: int,
    progress: Callable[[int, int], None] = lambda done, total: None,
    results: list[Result] | None = None,
) -> list[Result]:
    """Results of `repeat` passes over all prompts; one pass finishes before the next begins.

    So a slow minute of the machine hits every strategy and prompt of that pass, not one of them.
    `warmup` untimed runs of the first prompt come before. `progress` gets (turns done, turns in all).
    `results` is the list to fill: what stops the work – BenchmarkError when a run ends with an error, or
    anything else – leaves in it all that was measured.
    """
    results = [] if results is None else results
    total = repeat * sum(len(prompt.turns) for prompt in prompts)
    for _ in range(warmup):
        for _turn in _measure_prompt(engine, prompts[0], settings, 0, 0, []):
            pass
    done = 0
    for pass_index in range(repeat):
        for prompt_index, prompt in enumerate(prompts):
            for _turn in _measure_prompt(engine, prompt, settings, prompt_index, pass_index, results):
                done += 1
                progress(done, total)
    return results


def _measure_prompt(
    engine: Engine, prompt: Prompt, settings: Settings, prompt_index: int, repeat: int, results: list[Result]
) -> Iterator[int]:
    """Add the results of a prompt turn by turn, also of a turn that is cut off: the strategies that had ended."""
    engine.new_chat()
    for turn, text in enumerate(prompt.turns):
        found: dict[str, Result] = {}
        try:
            for event in engine.run(text, settings, lambda: False):
                match event:
                    case Step(strategy=strategy):
                        new = Result(strategy, prompt_index, turn, prompt.category, repeat)
                        _add_step(found.setdefault(strategy, new), event)
                    case Checked(strategy=strategy, lossless=lossless):
                        found[strategy].lossless = lossless
        finally:
            results += _ended(found)
        yield turn


def _ended(found: Mapping[str, Result]) -> list[Result]:
    """The results of the runs that came to their end, each with its baseline."""
    ended = {
        name: result
        for name, result in found.items()
        if result.figures.end is not None and result.figures.end.reason is not EndReason.ERROR
    }
    target = ended.get("target")
    for result in ended.values():
        result.baseline = None if target is None else target.figures
        if result.figures.recomputes:
            result.notices.append(RECOMPUTES)
    return list(ended.values())


def _add_step(result: Result, step: Step) -> None:
    record = step.record
    result.figures.add(record)
    if isinstance(record, PrefillDone | RoundVerified):
        result.token_ids += [token.id for token in tokens_of(record) if token.status in EMITTED]
    elif isinstance(record, Notice):
        result.notices.append(record.message)
    elif isinstance(record, RunEnded):
        result.text = step.answer
        if record.message == STOP_STRING:
            result.notices.append(record.message)
        if record.reason is EndReason.ERROR:
            raise BenchmarkError(f"{result.strategy}: {record.message}")
        if record.reason is EndReason.CONTEXT and not result.token_ids:
            raise BenchmarkError(f"prompt {result.prompt_index + 1}: {record.message}")
