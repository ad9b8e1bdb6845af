"""One prompt through the enabled strategies: order, seed, warm-up, schedule, cancel, history, lossless check.

Importing this module costs no torch: `LocalEngine.load` brings it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

from specdec_tui.backends.pair import LoadError, PairInfo, Progress, PromptError, ReportProgress
from specdec_tui.backends.threads import prepare_threads
from specdec_tui.decoding.figures import OF_THE_DRAFTER
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    Lossless,
    LosslessStatus,
    Record,
    RunEnded,
    RunStarted,
    Step,
)
from specdec_tui.run_settings import beams_of, rounds_of
from specdec_tui.settings import STRATEGIES, ModelChoice, Settings, whole_characters
from specdec_tui.several_drafters import running
from specdec_tui.strategy_parts import AsRead, as_read, models_of, parts_of, unfit, warm_up, writer_of
from specdec_tui.strategy_run import (
    StrategyRun,
    as_far_as_it_went,
    ended_rightly,
    in_turn,
    interleaved,
    not_checkable,
    refused,
    with_notices,
)

if TYPE_CHECKING:
    from specdec_tui.backends.loading import Pair
    from specdec_tui.decoding.device_run import Need, Programs
    from specdec_tui.decoding.ngram import NgramStore


SHORT_PROMPT = 64  # tokens of a prompt that programs made ahead have room for
_SLOWED = "a tokenizer that was given up is still at work beside this run: speeds may be lower for it"


class Engine(Protocol):
    """What the app and the benchmark drive. Not thread-safe: one call at a time."""

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        """Load a pair and make it the current one. LoadError leaves the previous pair in place."""
        ...

    def prepare(self, settings: Settings, cancelled: Callable[[], bool], progress: ReportProgress) -> None:
        """Make ahead what runs with these settings need and there is not yet; ends early when `cancelled`."""
        ...

    def run(
        self, prompt: str, settings: Settings, cancelled: Callable[[], bool], *, again: bool = False
    ) -> Iterator[Event]:
        """Run every enabled strategy on a prompt; the last event is `Finished`.

        `cancelled` is asked between rounds, and while a tokenizer is at work. With chat on, the prompt
        and the target's answer join the history, unless no token of an answer was made; with `again`
        they take the place of the last turn. PromptError when the chat template or the tokenizer refuses the prompt.
        """
        ...

    def new_chat(self) -> None:
        """Forget the conversation."""
        ...


def captured_on_gpus(pair: Pair) -> Programs | None:
    """How the rounds of a pair are played: captured on GPUs, where models allow it; on a CPU (None) step by step."""
    if all(model.device.type != "cuda" for model in models_of(pair).values()):
        return None
    from specdec_tui.backends import cuda_graphs
    from specdec_tui.decoding.device_run import Programs

    return Programs(cuda_graphs.capture, cuda_graphs.mark)


class LocalEngine:
    """The engine over models loaded into this process. `programs_of` says how the rounds of a pair are played."""

    def __init__(self, programs_of: Callable[[Pair], Programs | None] = captured_on_gpus) -> None:
        prepare_threads()
        self._programs_of = programs_of
        self._pair: Pair | None = None
        self._programs: Programs | None = None
        self._history: list[tuple[str, str]] = []
        self._store: NgramStore | None = None
        self._warm: set[tuple[str, int, bool]] = set()
        self._last_turn_in_history = False

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        progress(Progress("Starting torch"))
        from specdec_tui.backends.loading import load_pair
        from specdec_tui.backends.memory import give_back

        if self._programs is not None:
            self._programs = None  # the new pair needs their memory more than a refused load needs them
            give_back()
        replaces = self._pair is not None
        try:
            self._pair = pair = load_pair(choice, progress)
        finally:
            self._programs = None if self._pair is None else self._programs_of(self._pair)
        self._store = None
        self._warm.clear()
        self.new_chat()
        if replaces:
            give_back()
        return pair.info

    def prepare(self, settings: Settings, cancelled: Callable[[], bool], progress: ReportProgress) -> None:
        pair, programs = self._pair, self._programs
        if pair is None or programs is None or not (settings.capture and settings.cache):
            return
        needs, held = self._needs(pair, settings, cancelled), []
        try:
            for index, need in enumerate(needs):
                if cancelled():
                    return
                if not programs.settled(need):
                    progress(Progress("Capturing rounds", index / len(needs)))
                with suppress(ValueError):  # told by the run that needs it
                    held.append(programs.lend(need))
                if settings.schedule != "interleaved":  # one at a time, as the runs will have them
                    while held:
                        programs.take_back(held.pop())
        finally:
            for program in held:
                programs.take_back(program)

    def _needs(self, pair: Pair, settings: Settings, cancelled: Callable[[], bool]) -> list[Need]:
        """What the next run needs if it is a short prompt behind the conversation so far."""
        from specdec_tui.backends.in_time import Stopped
        from specdec_tui.decoding.device_run import need_of
        from specdec_tui.decoding.strategies import STRATEGIES as ROWS

        before: list[int] = []
        with suppress(ValueError, Stopped):
            before = pair.tokenizer.encode("", self._history if settings.chat else (), settings.chat, cancelled).ids
        room = len(before) + SHORT_PROMPT + settings.max_new_tokens
        needs: list[Need] = []
        for name in running(settings.strategies, len(pair.drafters)):
            if ROWS[name].searches:
                continue
            with suppress(ValueError):  # told by the run
                model, drafter = parts_of(pair, name, settings, None)
                capacity = min(room, model.context_length or room)
                rounds = rounds_of(writer_of(pair, name), settings)
                needs.append(need_of(model, drafter, **rounds, capacity=capacity))
        if settings.schedule == "interleaved":
            return needs  # all of them at once, also the same one twice
        return list({need.key: need for need in needs}.values())

    def check_prompt(self, turns: Sequence[str], settings: Settings) -> None:
        """PromptError, in one line, where these user turns of a conversation cannot all be run.

        Of the answers between them only so much is known: they have a token, and with `ignore_eos` all.
        """
        from specdec_tui.backends.model import longest_text
        from specdec_tui.decoding.strategies import STRATEGIES as ROWS

        pair = self._pair
        if pair is None:
            raise LoadError("no models are loaded")
        before: list[tuple[str, str]] = []
        strategies = running(settings.strategies, len(pair.drafters))
        for number, turn in enumerate(map(whole_characters, turns), 1):
            read = {name: writer_of(pair, name).tokenizer for name in ("target", *strategies)}
            try:
                ids_by = {
                    own: own.encode(turn, before if settings.chat else (), settings.chat).ids
                    for own in set(read.values())
                }
            except ValueError as error:
                raise PromptError(str(error)) from error
            before.append((turn, "…"))
            where = f"turn {number}: " if len(turns) > 1 else ""
            for name in strategies:
                ids = ids_by[read[name]]
                least = len(ids)
                if settings.chat and settings.ignore_eos:
                    least += (number - 1) * (settings.max_new_tokens - 1)
                models = models_of(pair)
                whose = ROWS[name].runs_on if ROWS[name].runs_on in models else "target"
                if (problem := unfit(whose, models[whose], ids)) is not None:
                    raise PromptError(where + problem)
                if (limit := longest_text(models[whose], least)) is not None and least >= limit:
                    raise PromptError(
                        f"{where}its {least:,} tokens leave no room in the {whose}'s context of {limit:,} tokens"
                    )

    def new_chat(self) -> None:
        self._history.clear()
        self._last_turn_in_history = False

    def run(
        self, prompt: str, settings: Settings, cancelled: Callable[[], bool], *, again: bool = False
    ) -> Iterator[Event]:
        from specdec_tui.backends.in_time import Stopped

        pair = self._pair
        if pair is None:
            raise LoadError("no models are loaded")
        prompt, strategies = whole_characters(prompt), running(settings.strategies, len(pair.drafters))
        before = self._history[:-1] if again and self._last_turn_in_history else self._history
        try:
            plain = as_read(pair, "target", prompt, before, settings, cancelled)
            read = {
                name: plain
                if writer_of(pair, name).tokenizer is pair.tokenizer
                else as_read(pair, name, prompt, before, settings, cancelled)
                for name in strategies
            }
        except Stopped as at_work:
            for name in strategies:
                yield Step(name, RunStarted(name, 0, settings.gamma, settings.max_new_tokens))
                yield Step(name, RunEnded(EndReason.CANCELLED, str(at_work)))
            yield Finished(cancelled=True)
            return
        except ValueError as error:
            raise PromptError(str(error)) from error
        if settings.reset_in_between:
            self._store = None
        if self._programs is not None and not (settings.capture and settings.cache):
            self._programs.give_up()
        runs = [self._start(pair, name, own, settings, cancelled) for name, own in read.items()]
        answers: dict[str, str] = {}
        for step in interleaved(runs) if settings.schedule == "interleaved" else in_turn(runs):
            if isinstance(step.record, RunEnded):
                answers[step.strategy] = step.answer
            yield step
        stopped = cancelled()
        yield from self._check(pair, plain.prompt.ids, runs, settings, plain.rounds, stopped)
        if settings.chat:
            self._remember(prompt, before, runs, answers)
        else:
            self._last_turn_in_history = False
        yield Finished(cancelled=stopped)

    def _start(
        self, pair: Pair, name: str, read: AsRead, settings: Settings, cancelled: Callable[[], bool]
    ) -> StrategyRun:
        from specdec_tui.backends.in_time import still_at_work
        from specdec_tui.decoding.loop import decode
        from specdec_tui.decoding.strategies import STRATEGIES as ROWS

        ids = read.prompt.ids
        records: Iterator[Record]
        info = pair.info.target
        try:
            if read.refusal:
                raise ValueError(read.refusal)
            model, drafter = parts_of(pair, name, settings, self._store_for(settings))
            whose = "target" if model is pair.target else "drafter"
            info = pair.info.drafter if whose == "drafter" and pair.info.drafter is not None else info
            if (problem := unfit(whose, model, ids)) is not None:
                raise ValueError(problem)
        except ValueError as error:
            records = refused(name, len(ids), settings, str(error))
        else:
            records = decode(
                model,
                ids,
                strategy=name,
                drafter=drafter,
                beams=beams_of(settings) if ROWS[name].searches else None,
                max_new_tokens=settings.max_new_tokens,
                seed=settings.seed,
                use_cache=settings.cache,
                cancelled=cancelled,
                programs=self._programs if settings.capture else None,
                warm_up=lambda: self._warm_up(pair, settings, cancelled),
                insight=settings.insight,
                **read.rounds,
            )
        notices = [
            *info.notices,
            *read.notices,
            *([_SLOWED] if still_at_work() else []),
        ]
        return StrategyRun(
            name,
            with_notices(records, notices),
            read.tokenizer,
            read.tokenizer.stream(),
            read.prompt.text,
            cancelled,
            own_tokens=read.tokenizer is not pair.tokenizer,
        )

    def _store_for(self, settings: Settings) -> NgramStore:
        from specdec_tui.decoding.strategies import new_store

        wanted = (settings.ngram_order, settings.ngram_storage)
        if self._store is None or (self._store.order, self._store.storage) != wanted:
            self._store = new_store(settings)
        return self._store

    def _warm_up(self, pair: Pair, settings: Settings, cancelled: Callable[[], bool]) -> None:
        """Every block length a round can have, once, untimed: kernels pick their plans on first sight.

        Whatever fails here fails again in the run that needs it, and is told there.
        """
        for name, model in models_of(pair).items():
            key = (name, settings.gamma, settings.cache)
            if key in self._warm:
                continue
            self._warm.add(key)
            with suppress(Exception):
                warm_up(model, settings, cancelled)

    def _check(
        self,
        pair: Pair,
        ids: list[int],
        runs: list[StrategyRun],
        settings: Settings,
        rounds: dict[str, Any],
        stopped: bool,
    ) -> Iterator[Checked]:
        """The lossless check of every run. A cancelled prompt is compared, but costs no further pass."""
        from specdec_tui.backends.errors import describe_error
        from specdec_tui.backends.model import begin_of
        from specdec_tui.decoding.ending import Ending
        from specdec_tui.decoding.lossless import check, near_tie_bound

        bound = near_tie_bound(pair.target.dtype)
        ending = Ending(rounds["end_ids"], rounds["completes"])
        given = ids if begin_of(pair.target) is None else []
        target = next((run for run in runs if run.strategy == "target" and run.ids and not run.failed), None)
        for run in sorted(runs, key=lambda run: run is not target):
            reference = None if run is target else target
            lossless = not_checkable(run, reference, settings, stopped)
            if lossless is None:
                try:
                    lossless = check(
                        pair.target,
                        ids,
                        run.ids,
                        None if reference is None else reference.ids,
                        sampler=rounds["sampler"],
                        controls=rounds["controls"],
                        rule=settings.rule,
                        seed=settings.seed,
                        bound=bound,
                        cut_short=run.cut_short or (reference is not None and reference.cut_short),
                    )
                except Exception as error:  # the runs are over: their text and figures must not be lost with it
                    detail = f"could not be checked: {describe_error(error)}"
                    lossless = Lossless(LosslessStatus.NOT_APPLICABLE, detail=detail)
                if reference is None and not ended_rightly(run, ending, given, settings):
                    lossless = Lossless(LosslessStatus.DIFFERENT, detail="it did not end where it had to")
            lossless = as_far_as_it_went(run, lossless)
            if run is target and lossless.status is LosslessStatus.DIFFERENT:
                target = None  # no yardstick: equal to it is not right
            yield Checked(run.strategy, lossless)

    def _remember(
        self, prompt: str, before: list[tuple[str, str]], runs: list[StrategyRun], answers: dict[str, str]
    ) -> None:
        """The target's answer joins the history; without it that of the first strategy that has one."""
        for run in sorted(runs, key=lambda run: (run.strategy in OF_THE_DRAFTER, STRATEGIES.index(run.strategy))):
            if run.ids:
                self._history = [*before, (prompt, answers.get(run.strategy, ""))]
                self._last_turn_in_history = True
                return
