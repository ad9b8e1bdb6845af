"""The only decoding loop: rounds of draft, verify, emit and rewind, told as records.

Every strategy runs through here and differs only in its drafter; autoregressive decoding is the
loop without one. What the clock readings contain is part of the definition of every figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from specdec_tui.backends.errors import describe_error
from specdec_tui.backends.model import CausalModel, begin_of
from specdec_tui.decoding.beam import Beams
from specdec_tui.decoding.beam_run import BeamRun
from specdec_tui.decoding.controls import NO_CONTROLS, Controls
from specdec_tui.decoding.device_run import DeviceRun, Programs
from specdec_tui.decoding.drafters import Drafter
from specdec_tui.decoding.ending import Completes, Ending, nowhere
from specdec_tui.decoding.records import EndReason, Record, RunEnded, RunStarted
from specdec_tui.decoding.rules import rule_for
from specdec_tui.decoding.run import Run, nothing
from specdec_tui.decoding.sampling import Dice, Sampler


def decode(
    target: CausalModel,
    prompt_ids: Sequence[int],
    *,
    strategy: str,
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
    warm_up: Callable[[], None] = nothing,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Record]:
    """Run one strategy on a prompt and yield its records, `RunEnded` always last.

    `cancelled` is asked before the prefill, between pieces of a long prompt, and between rounds.
    `completes` says where a stop string ends the text, and `controls` change logits by the text so far.
    Whatever a model raises becomes `RunEnded(ERROR)`. `insight` adds entropies and alternatives
    without changing any token. Text and figures belong to the same seed on every device; the clock
    is only running while this loop computes, not while the consumer holds a record. With `programs`
    rounds stay on the device where the models allow it: the same records, and a notice where they
    do not. `warm_up` is called before the clock of a run that goes step by step. With `beams` the text is searched
    for: no drafter, rule or chance has part in it, and its rounds are steps of the search.
    """
    yield RunStarted(strategy, len(prompt_ids), gamma, max_new_tokens, beams=0 if beams is None else beams.width)
    try:
        chance = (rule_for(rule, sampler), Dice(seed, target.vocab_size, target.device))
        ending = Ending(end_ids, completes)
        if begin_of(target) is not None:
            ending = ending.behind(len(prompt_ids))
        parts = (target, drafter, sampler, *chance, gamma, max_new_tokens, ending, controls, insight, clock)
        run = Run(*parts, warm_up=warm_up)
        if beams is not None:
            run = BeamRun(*parts, warm_up=warm_up, beams=beams, is_captured=programs is not None)
        elif programs is not None:
            run = DeviceRun(*parts, warm_up=warm_up, programs=programs, rule_name=rule, seed=seed)
        end = yield from run.records(prompt_ids, use_cache, cancelled)
    except Exception as error:
        end = RunEnded(EndReason.ERROR, describe_error(error))
    yield end
