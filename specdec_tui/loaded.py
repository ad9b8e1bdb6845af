"""The models that are loaded, and what is known of them: one of it serves every engine over the same pair.

Importing this module costs no torch: `Loaded.load` brings it in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from specdec_tui.backends.pair import PairInfo, Progress, ReportProgress
from specdec_tui.backends.threads import prepare_threads
from specdec_tui.decoding.records import NOT_MEASURED, PassSeconds, PassTimes
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.strategy_parts import models_of
from specdec_tui.warming import (
    MOST_AHEAD,
    MOST_SECONDS,
    MOST_TRIES,
    lengths_measured,
    pass_limit,
    pass_seconds,
    warm_up,
)

if TYPE_CHECKING:
    from specdec_tui.backends.loading import Pair
    from specdec_tui.decoding.device_run import Programs


def captured_on_gpus(pair: Pair) -> Programs | None:
    """How the rounds of a pair are played: captured on GPUs, where models allow it; on a CPU (None) step by step."""
    if all(model.device.type != "cuda" for model in models_of(pair).values()):
        return None
    from specdec_tui.backends import cuda_graphs
    from specdec_tui.decoding.device_run import Programs

    return Programs(cuda_graphs.capture, cuda_graphs.mark)


class Loaded:
    """A pair, its programs and what its passes take. Not thread-safe: one call at a time, of whichever engine.

    `programs_of` says how the rounds of a pair are played.
    """

    def __init__(self, programs_of: Callable[[Pair], Programs | None] = captured_on_gpus) -> None:
        prepare_threads()
        self._programs_of = programs_of
        self.pair: Pair | None = None
        self.programs: Programs | None = None
        self._was_kept = False
        self._warm: set[tuple[str, str, int, bool]] = set()
        self._passes: dict[tuple[str, str, tuple[int, ...]], PassTimes] = {}
        self._tries: dict[tuple[str, str, tuple[int, ...]], int] = {}
        self._in_forms: dict[str, Pair] = {}

    def load(self, choice: ModelChoice, progress: ReportProgress) -> PairInfo:
        """Load a pair in the place of the present one. LoadError leaves that in place."""
        progress(Progress("Starting torch"))
        from specdec_tui.backends.answering import Answering
        from specdec_tui.backends.kept_pairs import kept_pair
        from specdec_tui.backends.memory import give_back

        if self.programs is not None:
            self.programs = None  # the new pair needs their memory more than a refused load needs them
            give_back()
        before = self.pair
        self.let_go()
        try:
            pair = kept_pair(choice, progress)
            self._was_kept = pair is not None
            if pair is None:
                from specdec_tui.backends.loading import load_pair  # brings in transformers: seconds

                pair = load_pair(choice, progress)
            self.pair = pair
        finally:
            self.programs = None if self.pair is None else self._programs_of(self.pair)
        self._warm.clear()
        self._passes.clear()
        self._tries.clear()
        if before is not None:
            if isinstance(before.target, Answering):
                before.target.close()
            before = None
            give_back()
        return pair.info

    def get_checks_ready(self, cancelled: Callable[[], bool]) -> None:
        """Bring in what the check of a run needs, where a load did without it."""
        if self._was_kept:
            from specdec_tui.backends.kept_pairs import bring_in_layers

            bring_in_layers(cancelled)

    def in_form(self, form: str) -> Pair:
        """The pair with its target's weights in this form; as it was loaded where that has it, or for an empty one.

        Kept until `let_go`, or another load. LoadError where that cannot be.
        """
        from specdec_tui.backends.weight_forms import form_of, pair_in_form

        assert self.pair is not None
        if form in ("", form_of(self.pair.target)):
            return self.pair
        if form not in self._in_forms:
            self._in_forms[form] = pair_in_form(self.pair, form)
        return self._in_forms[form]

    def let_go(self) -> None:
        """Nobody needs other forms of the weights than the loaded one for now: they may take much memory."""
        if self._in_forms:
            from specdec_tui.backends.memory import give_back

            self._in_forms.clear()
            give_back()

    def warm_up(
        self, strategy: str, settings: Settings, cancelled: Callable[[], bool], ahead: bool = False, form: str = ""
    ) -> PassTimes:
        """What passes of the strategy's model take, once every model has seen each length that a round can have.

        `form`: that of the target's weights, see `in_form`; what passes of another one took says nothing of it.
        Whatever fails here fails again in the run that needs it, and is told there.
        """
        from specdec_tui.backends.answering import Answering
        from specdec_tui.backends.weight_forms import form_of
        from specdec_tui.decoding.strategies import STRATEGIES as ROWS

        pair = self.in_form(form)
        models = {name: model for name, model in models_of(pair).items() if not isinstance(model, Answering)}
        for name, model in models.items():
            key = (name, form_of(model), settings.gamma, settings.cache)
            if key in self._warm:
                continue
            with suppress(Exception):
                warm_up(model, settings.gamma, settings.cache, cancelled)
            if cancelled():
                return NOT_MEASURED
            self._warm.add(key)
        whose, lengths = ROWS[strategy].runs_on, lengths_measured(settings.gamma)
        if not settings.cache or whose not in models:
            return NOT_MEASURED
        what = whose, form_of(models[whose]), lengths
        tries = self._tries.get(what, 0)
        if not tries or (ahead and tries < MOST_TRIES and not self._passes[what].seconds):
            found: PassSeconds = ()
            limit = None
            with suppress(Exception):
                found = pass_seconds(models[whose], lengths, cancelled, MOST_AHEAD if ahead else MOST_SECONDS)
                limit = pass_limit(models[whose]) if found else None
            if cancelled():
                return NOT_MEASURED
            self._passes[what], self._tries[what] = PassTimes(found, limit), tries + 1
        return self._passes[what]
