"""How the run of a strategy over a prompt begins, and how it is checked once it is over.

Importing this module costs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import Lossless, LosslessStatus, Origin, PassTimes, Record, strategy_of
from specdec_tui.run_settings import beams_of
from specdec_tui.settings import Settings
from specdec_tui.strategy_parts import AsRead, parts_of, unfit
from specdec_tui.strategy_run import (
    StrategyRun,
    as_far_as_it_went,
    ended_rightly,
    not_checkable,
    refused,
    with_notices,
)

if TYPE_CHECKING:
    from specdec_tui.backends.loading import Pair
    from specdec_tui.decoding.device_run import Programs
    from specdec_tui.decoding.ngram import NgramStore

STRETCH = 16
"""Tokens that a target on a server streams at once where strategies alternate."""
NO_SERVER = "added-latency changes nothing here: it is for a target on a server (target-url)"
_SLOWED = "a tokenizer that was given up is still at work beside this run: speeds may be lower for it"


@dataclass(frozen=True, slots=True)
class Beginning:
    """What a run begins with apart from its prompt: new tokens that it has already, as the what-if `origin`, `name`."""

    name: str = ""
    given: tuple[int, ...] = ()
    origin: Origin | None = None


def begin_run(
    pair: Pair,
    strategy: str,
    read: AsRead,
    settings: Settings,
    cancelled: Callable[[], bool],
    *,
    store: Callable[[], NgramStore],
    programs: Programs | None,
    warm_up: Callable[[], PassTimes],
    at: Beginning = Beginning(),
    alone: bool = False,
) -> StrategyRun:
    """The run of a strategy over a prompt, not begun yet. One that cannot be begun ends with an error at once.

    `alone`: see `decode`.
    """
    from specdec_tui.backends.answering import Answering, Calls
    from specdec_tui.backends.in_time import still_at_work
    from specdec_tui.backends.weight_forms import difference_told
    from specdec_tui.decoding.loop import decode
    from specdec_tui.decoding.strategies import STRATEGIES as ROWS

    ids, left = read.prompt.ids, settings.max_new_tokens - len(at.given)
    records: Iterator[Record]
    info = pair.info.target
    turn = 0
    try:
        if read.refusal:
            raise ValueError(read.refusal)
        model, drafter = parts_of(pair, strategy, settings, store())
        whose = "target" if model is pair.target else "drafter"
        info = pair.info.drafter if whose == "drafter" and pair.info.drafter is not None else info
        if (problem := unfit(whose, model, [*ids, *at.given])) is not None:
            raise ValueError(problem)
    except ValueError as error:
        records = refused(strategy, len(ids) + len(at.given), settings, str(error), left, at.origin)
    else:
        if isinstance(model, Answering) and drafter is None and settings.schedule == "interleaved":
            turn = STRETCH
        records = decode(
            model,
            ids,
            strategy=strategy,
            given=at.given,
            origin=at.origin,
            drafter=drafter,
            beams=beams_of(settings) if ROWS[strategy].searches else None,
            max_new_tokens=left,
            seed=settings.seed,
            use_cache=settings.cache,
            cancelled=cancelled,
            programs=programs if settings.capture else None,
            warm_up=warm_up,
            insight=settings.insight,
            calls=Calls(turn, settings.added_latency / 1000),
            alone=alone,
            **read.rounds,
        )
    notices = [
        *info.notices,
        *read.notices,
        *([told] if (told := difference_told(info.weights)) else []),
        *([_SLOWED] if still_at_work() else []),
        *([NO_SERVER] if settings.added_latency and not isinstance(pair.target, Answering) else []),
    ]
    run = StrategyRun(
        at.name or strategy,
        with_notices(records, notices),
        read.tokenizer,
        read.tokenizer.stream(),
        read.prompt.text,
        cancelled,
        own_tokens=read.tokenizer is not pair.tokenizer,
        turn=turn,
    )
    run.begin_behind(at.given)
    return run


def judge(
    pair: Pair,
    run: StrategyRun,
    reference: StrategyRun | None,
    prompt_ids: Sequence[int],
    settings: Settings,
    read: AsRead,
    cancelled: Callable[[], bool],
) -> Lossless:
    """The lossless check of a run. One of a prompt that was cancelled is compared, but costs no further pass."""
    from specdec_tui.backends.errors import describe_error
    from specdec_tui.backends.in_time import Stopped
    from specdec_tui.backends.model import begin_of
    from specdec_tui.decoding.ending import Ending
    from specdec_tui.decoding.lossless import check, near_tie_bound

    ending = Ending(read.rounds["end_ids"], read.rounds["completes"])
    lossless = not_checkable(run, reference, settings, cancelled())
    if lossless is None:
        try:
            lossless = check(
                pair.target,
                prompt_ids,
                run.ids,
                None if reference is None else reference.ids,
                sampler=read.rounds["sampler"],
                controls=read.rounds["controls"],
                rule=settings.rule,
                seed=settings.seed,
                bound=near_tie_bound(pair.target.dtype),
                cut_short=run.cut_short or (reference is not None and reference.cut_short),
                given=run.given,
                cancelled=cancelled,
            )
        except Stopped:
            lossless = Lossless(LosslessStatus.NOT_APPLICABLE, detail="stopped, not checked")
        except Exception as error:  # the runs are over: their text and figures must not be lost with it
            detail = f"could not be checked: {describe_error(error)}"
            lossless = Lossless(LosslessStatus.NOT_APPLICABLE, detail=detail)
        before = prompt_ids if begin_of(pair.target) is None else []
        if reference is None and not ended_rightly(run, ending, before, settings):
            lossless = Lossless(LosslessStatus.DIFFERENT, detail="it did not end where it had to")
    lossless = as_far_as_it_went(run, lossless)
    if cancelled() or run.searches or strategy_of(run.strategy) == "drafter":
        return lossless
    return _with_distance(pair, [*prompt_ids, *run.given, *run.ids], lossless)


def _with_distance(pair: Pair, text: Sequence[int], lossless: Lossless) -> Lossless:
    """A verdict on a text of a target that rounds its activations: what it was checked against, and how far that is."""
    from specdec_tui.decoding.form_distance import OWN, form_distance

    try:
        found = form_distance(pair.target, text[:-1])
    except Exception:  # the verdict counts without it
        return lossless
    if found is None:
        return lossless
    told = f"{lossless.detail}; " * bool(lossless.detail) + f"{OWN}: {found.in_words()}"
    return replace(lossless, detail=told, distance=found)
