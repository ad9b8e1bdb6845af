"""The only decoding loop: rounds of draft, verify, emit and rewind, told as records.

Every strategy runs through here and differs only in its drafter; autoregressive decoding is the
loop without one. What the clock readings contain is part of the definition of every figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from specdec_tui.backends.answering import AT_ONCE, Answering, Calls
from specdec_tui.backends.errors import NotDone, describe_error
from specdec_tui.backends.model import CausalModel, begin_of
from specdec_tui.decoding.beam import Beams
from specdec_tui.decoding.beam_run import BeamRun
from specdec_tui.decoding.controls import NO_CONTROLS, Controls
from specdec_tui.decoding.device_run import DeviceRun, Programs
from specdec_tui.decoding.drafters import Drafter
from specdec_tui.decoding.ending import Completes, Ending, nowhere
from specdec_tui.decoding.records import EndReason, Origin, PassTimes, Record, RunEnded, RunStarted
from specdec_tui.decoding.remote_run import RemoteRun
from specdec_tui.decoding.rules import rule_for
from specdec_tui.decoding.run import Run, nothing
from specdec_tui.decoding.sampling import Dice, Sampler


def decode(
    target: CausalModel,
    prompt_ids: Sequence[int],
    *,
    strategy: str,
    given: Sequence[int] = (),
    origin: Origin | None = None,
    drafter: Drafter | None = None,
    beams: Beams | None = None,
    sampler: Sampler,
    rule: str = "rejection",
    gamma: int = 4,
    max_new_tokens: int = 128,
    end_ids: frozenset[int] = frozenset(),
    completes: Completes = nowhere,
    controls: Controls = NO_CONTROLS,
    seed: int = 0,
    use_cache: bool = True,
    insight: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
    programs: Programs | None = None,
    warm_up: Callable[[], PassTimes] = nothing,
    calls: Calls = AT_ONCE,
    alone: bool = False,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Record]:
    """Run one strategy on a prompt and yield its records, `RunEnded` always last.

    `cancelled` is asked before the prefill, between pieces of a long prompt, and between rounds.
    `completes` says where a stop string ends the text, and `controls` change logits by the text so far.
    Whatever a model raises becomes `RunEnded(ERROR)`. `insight` adds entropies and alternatives
    without changing any token. Text and figures belong to the same seed on every device; the clock
    is only running while this loop computes, not while the consumer holds a record. With `programs`
    rounds stay on the device where the models allow it: the same records, and a notice where they
    do not. `warm_up` is called before the clock of a run that goes step by step, and
    returns what passes of the target take, to be told with the prefill. With `beams` the text is searched
    for: no drafter, rule or chance has part in it, and its rounds are steps of the search. `calls`: how a target on a
    server is asked. `alone`: nothing else is computed or timed while the consumer holds a record. The device may then
    have rounds under way meanwhile, whose time is told by its own clock.

    `given`: new tokens that the text has already, behind the prompt; the run goes on behind them as if it had made
    them. Positions, controls, stop strings and noise count them; `max_new_tokens` and `RunStarted` do not: they tell
    of what this run is to do, as what it reads first is one prompt to its clock. Where the text before is the same, so
    is what follows, under greedy sampling and the coupled rule token by token, under the others by its distribution
    (`Dice` says what their chance is). No search begins behind given tokens. `origin` is told with `RunStarted`.
    """
    yield RunStarted(
        strategy,
        len(prompt_ids) + len(given),
        gamma,
        max_new_tokens,
        beams=0 if beams is None else beams.width,
        origin=origin,
    )
    try:
        if beams is not None and given:
            raise ValueError("a search cannot be gone on with from the middle of its text")
        chance = (rule_for(rule, sampler), Dice(seed, target.vocab_size, target.device, len(given)))
        ending = Ending(end_ids, completes)
        if begin_of(target) is not None:
            ending = ending.behind(len(prompt_ids))
        most = len(given) + max_new_tokens
        parts = (target, drafter, sampler, *chance, gamma, most, ending, controls, insight, clock)
        run = Run(*parts, warm_up=warm_up, given=tuple(given))
        if isinstance(target, Answering):
            if beams is not None:
                raise NotDone("a beam search needs whole distributions, which a server does not tell")
            run = RemoteRun(*parts, given=tuple(given), rule_name=rule, calls=calls)
        elif beams is not None:
            run = BeamRun(*parts, warm_up=warm_up, beams=beams, is_captured=programs is not None)
        elif programs is not None:
            own = partial(DeviceRun, programs=programs, rule_name=rule, seed=seed, alone=alone)
            run = own(*parts, warm_up=warm_up, given=tuple(given))
        end = yield from run.records(prompt_ids, use_cache, cancelled)
    except Exception as error:
        end = RunEnded(EndReason.ERROR, describe_error(error))
    yield end
