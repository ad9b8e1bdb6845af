"""One prompt through the enabled strategies: order, seed, warm-up, schedule, cancel, history, lossless check.

Importing this module costs no torch: `LocalEngine.load` brings it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from specdec_tui.backends.pair import Health, LoadError, PairInfo, Progress, PromptError, ReportProgress
from specdec_tui.decoding.figures import OF_THE_DRAFTER
from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Finished,
    LosslessStatus,
    RunEnded,
    RunStarted,
    Step,
)
from specdec_tui.loaded import Loaded
from specdec_tui.playing import Beginning, begin_run, judge
from specdec_tui.run_settings import rounds_of, sampler_of
from specdec_tui.settings import STRATEGIES, ModelChoice, Settings, whole_characters
from specdec_tui.several_drafters import running
from specdec_tui.strategy_parts import AsRead, as_read, models_of, parts_of, unfit, writer_of
from specdec_tui.strategy_run import StrategyRun, in_turn, interleaved
from specdec_tui.what_ifs import WhatIf, as_read_before, new_store_of

if TYPE_CHECKING:
    from specdec_tui.backends.loading import Pair
    from specdec_tui.decoding.device_run import Need, Programs
    from specdec_tui.decoding.ngram import NgramStore


SHORT_PROMPT = 64  # tokens of a prompt that programs made ahead have room for


@dataclass(frozen=True, slots=True)
class Waiting:
    """A run or what-ifs wait: so many that others asked for come before them. No clock runs yet."""

    before: int


class Engine(Protocol):
    """What the app and the benchmark drive. Not thread-safe: one call at a time."""

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        """Load a pair and make it the current one. LoadError leaves the previous pair in place."""
        ...

    def prepare(self, settings: Settings, cancelled: Callable[[], bool], progress: ReportProgress) -> None:
        """Make ahead what runs with these settings need and there is not yet; ends early when `cancelled`."""
        ...

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event | Waiting]:
        """Run every enabled strategy on a prompt; the last event is `Finished`. Before the first one it may be waited.

        `cancelled` is asked between rounds, and while a tokenizer is at work. With chat on, the prompt
        and the target's answer join the history, unless no token of an answer was made; with `again`
        they take the place of the last turn; `aside` of the conversation it begins one of its own, and the present one
        stays as it is. PromptError when the chat template or the tokenizer refuses the prompt.
        """
        ...

    def what_ifs(self, requests: Sequence[WhatIf], cancelled: Callable[[], bool]) -> Iterator[Event | Waiting]:
        """Play what-ifs of runs, each behind the tokens that it is given; the last event is `Finished`.

        `Step`s and `Checked` carry the names of the requests. Where one of their settings says interleaved they
        alternate as the strategies of a run do, the one with the fewest own tokens next, each on its own clock; else
        one is played after another. Each has an n-gram store of its own, which begins empty: no later run knows of it.
        The conversation stays as it is. PromptError, in one line and before any event, where a prompt cannot be read
        again as it was, or the target cannot be held in the form of weights that is asked for.
        """
        ...

    def new_chat(self) -> None:
        """Forget the conversation."""
        ...

    def health(self, cancelled: Callable[[], bool]) -> Health | None:
        """How the target's server is; None where it is on none, or was not waited for."""
        ...


@runtime_checkable
class Elsewhere(Protocol):
    """What else an engine tells that computes in another process."""

    def environment(self) -> Mapping[str, Any]:
        """The machine and versions that it computes with; empty before a load."""
        ...


def never_begun(strategies: Iterable[str], settings: Settings, why: str) -> Iterator[Event]:
    """A run that was stopped before a model saw its prompt, and at what."""
    for name in strategies:
        yield Step(name, RunStarted(name, 0, settings.gamma, settings.max_new_tokens))
        yield Step(name, RunEnded(EndReason.CANCELLED, why))
    yield Finished(cancelled=True)


class LocalEngine:
    """A conversation with models loaded into this process, which other engines may share: one call at a time of all."""

    alone = True
    """Nothing else is computed or timed while a consumer holds an event; of strategies that alternate others are."""

    def __init__(self, loaded: Loaded | None = None) -> None:
        self.loaded = Loaded() if loaded is None else loaded
        self._history: list[tuple[str, str]] = []
        self._store: NgramStore | None = None
        self._last_turn_in_history = False
        self._read: dict[str, AsRead] = {}  # by strategy, the prompt of the last run

    @property
    def _pair(self) -> Pair | None:
        return self.loaded.pair

    @property
    def _programs(self) -> Programs | None:
        return self.loaded.programs

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        info = self.loaded.load(choice, progress)
        self._store = None
        self._read = {}
        self.new_chat()
        return info

    def prepare(self, settings: Settings, cancelled: Callable[[], bool], progress: ReportProgress) -> None:
        from specdec_tui.decoding.rows import get_ready

        pair, programs = self._pair, self._programs
        if pair is None:
            return
        if programs is None or not (settings.capture and settings.cache):
            self.loaded.warm_up("target", settings, cancelled, ahead=True)
            get_ready(draws=not sampler_of(settings).is_greedy, insight=True)
            self.loaded.get_checks_ready(cancelled)
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

    def health(self, cancelled: Callable[[], bool]) -> Health | None:
        from specdec_tui.backends.answering import Answering
        from specdec_tui.backends.in_time import Stopped
        from specdec_tui.backends.remote.errors import ServerError

        pair = self._pair
        if pair is None or not isinstance(pair.target, Answering):
            return None
        try:
            return Health(pair.target.ping(cancelled), added=pair.target.added_latency)
        except ServerError as error:
            return Health(None, str(error))
        except Stopped:
            return None

    def new_chat(self) -> None:
        self._history.clear()
        self._last_turn_in_history = False

    def run(
        self,
        prompt: str,
        settings: Settings,
        cancelled: Callable[[], bool],
        *,
        again: bool = False,
        aside: bool = False,
    ) -> Iterator[Event]:
        from specdec_tui.backends.in_time import Stopped

        pair = self._pair
        if pair is None:
            raise LoadError("no models are loaded")
        self.loaded.let_go()
        prompt, strategies = whole_characters(prompt), running(settings.strategies, len(pair.drafters))
        kept = self._history[:-1] if again and self._last_turn_in_history else self._history
        before = [] if aside else kept
        try:
            plain = as_read(pair, "target", prompt, before, settings, cancelled)
            read = {
                name: plain
                if writer_of(pair, name).tokenizer is pair.tokenizer
                else as_read(pair, name, prompt, before, settings, cancelled)
                for name in strategies
            }
        except Stopped as at_work:
            yield from never_begun(strategies, settings, str(at_work))
            return
        except ValueError as error:
            raise PromptError(str(error)) from error
        if settings.reset_in_between and not aside:
            self._store = None
        if self._programs is not None and not (settings.capture and settings.cache):
            self._programs.give_up()
        self._read = {"target": plain, **read}
        together = settings.schedule == "interleaved"
        runs = [
            begin_run(
                pair,
                name,
                own,
                settings,
                cancelled,
                store=partial(new_store_of if aside else self._store_for, settings),
                programs=self._programs,
                warm_up=partial(self.loaded.warm_up, name, settings, cancelled),
                alone=self.alone and not (together and len(read) > 1),
            )
            for name, own in read.items()
        ]
        answers: dict[str, str] = {}
        for step in interleaved(runs) if together else in_turn(runs):
            if isinstance(step.record, RunEnded):
                answers[step.strategy] = step.answer
            yield step
        stopped = cancelled()
        yield from self._check(pair, plain, runs, settings, cancelled)
        if settings.chat and not aside:
            self._remember(prompt, before, runs, answers)
        elif not aside:
            self._last_turn_in_history = False
        yield Finished(cancelled=stopped)

    def what_ifs(self, requests: Sequence[WhatIf], cancelled: Callable[[], bool]) -> Iterator[Event]:
        from specdec_tui.backends.in_time import Stopped

        pair = self._pair
        if pair is None:
            raise LoadError("no models are loaded")
        try:
            read = [as_read_before(pair, one, self._read, cancelled) for one in requests]
            pairs = [self.loaded.in_form(one.weights) for one in requests]
        except Stopped as at_work:
            raise PromptError(str(at_work)) from None
        except (ValueError, LoadError) as error:
            raise PromptError(str(error)) from error
        together = any(one.settings.schedule == "interleaved" for one in requests)
        runs = [
            begin_run(
                formed,
                one.strategy,
                own,
                one.settings,
                cancelled,
                store=partial(new_store_of, one.settings),
                programs=self._programs if one.settings.cache else None,
                warm_up=partial(self.loaded.warm_up, one.strategy, one.settings, cancelled, form=one.weights),
                at=Beginning(one.name, one.given, one.origin),
                alone=self.alone and not (together and len(requests) > 1),
            )
            for one, own, formed in zip(requests, read, pairs, strict=True)
        ]
        yield from interleaved(runs) if together else in_turn(runs)
        stopped = cancelled()
        for one, run, own, formed in zip(requests, runs, read, pairs, strict=True):
            yield Checked(run.strategy, judge(formed, run, None, own.prompt.ids, one.settings, own, cancelled))
        yield Finished(cancelled=stopped)

    def _store_for(self, settings: Settings) -> NgramStore:
        from specdec_tui.decoding.strategies import new_store

        wanted = (settings.ngram_order, settings.ngram_storage)
        if self._store is None or (self._store.order, self._store.storage) != wanted:
            self._store = new_store(settings)
        return self._store

    def _check(
        self, pair: Pair, read: AsRead, runs: list[StrategyRun], settings: Settings, cancelled: Callable[[], bool]
    ) -> Iterator[Checked]:
        """The lossless check of every run over a prompt as the target has `read` it."""
        target = next((run for run in runs if run.strategy == "target" and run.ids and not run.failed), None)
        for run in sorted(runs, key=lambda run: run is not target):
            reference = None if run is target else target
            lossless = judge(pair, run, reference, read.prompt.ids, settings, read, cancelled)
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
