"""The only decoding loop: rounds of draft, verify, emit and rewind, told as records.

Every strategy runs through here and differs only in its drafter; autoregressive decoding is the
loop without one. What the clock readings contain is part of the definition of every figure.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import torch

from specdec_tui.backends.model import CausalModel
from specdec_tui.decoding.device_run import DeviceRun, Programs
from specdec_tui.decoding.drafters import Drafter
from specdec_tui.decoding.records import EndReason, Record, RunEnded, RunStarted
from specdec_tui.decoding.rules import rule_for
from specdec_tui.decoding.run import Run
from specdec_tui.decoding.sampling import Dice, Sampler


def decode(
    target: CausalModel,
    prompt_ids: Sequence[int],
    *,
    strategy: str,
    drafter: Drafter | None = None,
    sampler: Sampler,
    rule: str = "rejection",
    gamma: int = 4,
    max_new_tokens: int = 128,
    end_ids: frozenset[int] = frozenset(),
    seed: int = 0,
    use_cache: bool = True,
    insight: bool = False,
    cancelled: Callable[[], bool] = lambda: False,
    programs: Programs | None = None,
    clock: Callable[[], float] = time.perf_counter,
) -> Iterator[Record]:
    """Run one strategy on a prompt and yield its records, `RunEnded` always last.

    `cancelled` is asked before the prefill and between rounds. Whatever a model raises becomes
    `RunEnded(ERROR)`. `insight` adds entropies and alternatives without changing any token.
    Text and figures belong to the same seed on every device; the clock is only running while
    this loop computes, not while the consumer holds a record. With `programs` rounds stay on the
    device where the models allow it: the same records, and a notice where they do not.
    """
    yield RunStarted(strategy, len(prompt_ids), gamma, max_new_tokens)
    try:
        chance = (rule_for(rule, sampler), Dice(seed, target.vocab_size, target.device))
        parts = (target, drafter, sampler, *chance, gamma, max_new_tokens, end_ids, insight, clock)
        run = Run(*parts)
        if programs is not None:
            run = DeviceRun(*parts, programs=programs, rule_name=rule, seed=seed)
        end = yield from run.records(prompt_ids, use_cache, cancelled)
    except Exception as error:
        end = RunEnded(EndReason.ERROR, describe_error(error))
    yield end


def describe_error(error: Exception) -> str:
    """One plain sentence for a person."""
    text = str(error).strip().split("\n")[0]
    lowered = text.lower()
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        words in lowered for words in ("out of memory", "not enough memory", "can't allocate memory")
    ):
        return "out of memory: try a shorter prompt, fewer new tokens, a smaller gamma, or quantized models"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
