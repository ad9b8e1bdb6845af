"""What is done with a model before the clock of its first run: passes of every length, and what they take.

Importing this module costs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import PassLimit, PassSeconds

if TYPE_CHECKING:
    from specdec_tui.backends.model import CausalModel, ModelContext

PROMPT = 8  # tokens of the context that passes are made in
REPEATS = 8
MOST_SECONDS, MOST_AHEAD = 2.0, 10.0
"""Of the repeats together, and of the first one, which is not measured: where a person waits, and where none does. A
model that is too slow for `LEAST_PASSES` of them is left."""
MOST_TRIES = 3  # where a clock was disturbed, or a model is slow, while nothing runs
_STRIDE = 997  # unlike tokens: of a mixture of experts equal ones would read fewer experts than a text does
_FINE, _COARSE = tuple(range(1, 10)), (13, 17, 25, 33)


def lengths_measured(gamma: int) -> tuple[int, ...]:
    """Tokens of the passes that are measured for so many drafts: one to nine, and of a larger γ some beyond."""
    return (*_FINE, *(length for before, length in zip(_FINE[-1:] + _COARSE, _COARSE, strict=False) if before <= gamma))


def warm_up(model: CausalModel, gamma: int, use_cache: bool, cancelled: Callable[[], bool]) -> None:
    """Every block length that a round can have, once: kernels pick their plans on first sight."""
    with_room = _lengths(model, range(1, gamma + 2))
    context, prompt = _opened(model, use_cache, with_room)
    for length in with_room:
        if cancelled():
            return
        _pass(model, context, prompt, length)
    model.synchronize()


def pass_seconds(
    model: CausalModel,
    lengths: Sequence[int],
    cancelled: Callable[[], bool],
    most_seconds: float = MOST_SECONDS,
    clock: Callable[[], float] = perf_counter,
) -> PassSeconds:
    """(tokens, seconds) of a pass of each of these lengths, medians of repeats that take turns.

    Behind few tokens, with a cache. A first repeat is not measured. Nothing where it is `cancelled`, where every pass
    computes the whole text again, where it would take longer than `most_seconds`,
    or where a longer pass took less than a shorter one: the clock was disturbed.
    """
    from specdec_tui.decoding.forecast import LEAST_PASSES, rises

    lengths = _lengths(model, lengths)
    context, prompt = _opened(model, True, lengths)
    found: dict[int, list[float]] = {length: [] for length in lengths}
    begin, repeat = clock(), 0
    for repeat in range(REPEATS + 1):
        for length in lengths:
            if cancelled() or context.recomputes:
                return ()
            model.synchronize()
            began = clock()
            _pass(model, context, prompt, length)
            model.synchronize()
            if repeat:
                found[length].append(clock() - began)
        spent = sum(map(sum, found.values()))
        took = spent / repeat * max(LEAST_PASSES, repeat + 1) if repeat else clock() - begin
        if took > most_seconds:
            break
    if repeat < LEAST_PASSES:
        return ()
    told = {length: median(seconds) for length, seconds in found.items()}
    return tuple(told.items()) if rises(told) else ()


def pass_limit(model: CausalModel) -> PassLimit | None:
    """What passes of a model on the CPU take at least on this machine, which is measured once; None of others."""
    from specdec_tui.backends.model import Costing

    if not isinstance(model, Costing):
        return None
    import torch

    from specdec_tui.backends.machine import integer_adds_per_second, machine

    found, cost = machine(torch.get_num_threads()), model.pass_cost
    integers = integer_adds_per_second(torch.get_num_threads()) if cost.integer_adds else 1.0
    if found is None or integers is None:
        return None
    floats = cost.multiply_adds - cost.integer_adds
    seconds = floats / found.multiply_adds_per_second + cost.integer_adds / integers  # one matrix after the other
    rates = found.read_bytes_per_second, cost.multiply_adds / seconds
    return PassLimit(cost.weight_bytes, cost.multiply_adds, *rates, found.threads, cost.integer_adds)


def _lengths(model: CausalModel, lengths: Sequence[int]) -> list[int]:
    """As far as the model's context has room for them."""
    room = model.context_length or PROMPT + max(lengths)
    return [length for length in lengths if length <= room - min(PROMPT, room - 1)]


def _opened(model: CausalModel, use_cache: bool, lengths: Sequence[int]) -> tuple[ModelContext, int]:
    prompt = min(PROMPT, (model.context_length or PROMPT + 1) - 1)
    context = model.open(use_cache=use_cache, capacity=prompt + max(lengths, default=0))
    if prompt:
        context.extend([0] * prompt, keep=prompt)
    return context, prompt


def _pass(model: CausalModel, context: ModelContext, prompt: int, length: int) -> None:
    context.extend([place * _STRIDE % model.vocab_size for place in range(length)], keep=length)
    context.rewind(prompt)
