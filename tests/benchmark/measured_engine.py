"""An engine whose runs are known beforehand."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from specdec_tui.backends.pair import LoadError, ModelInfo, PairInfo, PromptError, ReportProgress
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Notice,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import ModelChoice, Settings

INFO = PairInfo(
    ModelInfo("t", "cpu", "float32", "none", 10, 40, 64), (ModelInfo("d", "cpu", "float32", "none", 5, 20, 64),), True
)


class ScriptedEngine:
    """Answers every prompt with a first token, then rounds of known lengths and times."""

    def __init__(self, error: str = "") -> None:
        self.calls: list[str] = []
        self.checked: list[Sequence[str]] = []
        self.error = error

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        if choice.target == "missing":
            raise LoadError("no such model")
        return INFO

    def check_prompt(self, turns: Sequence[str], settings: Settings) -> None:
        self.checked.append(turns)
        if any("refused" in turn for turn in turns):
            raise PromptError("the chat template \x1b]52;c;aGk=\x07 refuses this")

    def new_chat(self) -> None:
        self.calls.append("new chat")

    def run(self, prompt: str, settings: Settings, cancelled: Callable[[], bool]) -> Iterator[Event]:
        self.calls.append(prompt)
        for strategy in settings.strategies:
            if self.error and strategy == "speculative":
                yield Step(strategy, RunEnded(EndReason.ERROR, self.error))
                continue
            yield Step(strategy, RunStarted(strategy, 7, 2, 9))
            yield Step(strategy, Notice("not captured"))
            yield Step(strategy, PrefillDone(Token(100, Status.SAMPLED, 0), 0.5), ("A",))
            if strategy == "target":
                for n in range(4):
                    step = RoundVerified(n, (), Token(n, Status.SAMPLED, n + 1), 0.0, 0.1, 0.0)
                    yield Step(strategy, step, ("x",))
            else:
                drafts = (Token(0, Status.ACCEPTED, 1), Token(9, Status.REJECTED, 2))
                yield Step(
                    strategy, RoundVerified(0, drafts, Token(1, Status.RESAMPLED, 2), 0.04, 0.12, 0.0), ("",) * 3
                )
                drafts = (Token(2, Status.ACCEPTED, 3), Token(3, Status.ACCEPTED, 4))
                yield Step(strategy, RoundVerified(1, drafts, None, 0.04, 0.12, 0.0), ("",) * 2)
            yield Step(strategy, RunEnded(EndReason.END_TOKEN), answer="Axxxx")
        for strategy in settings.strategies:
            yield Checked(strategy, Lossless(LosslessStatus.IDENTICAL))
        yield Finished()
