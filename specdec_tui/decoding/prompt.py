"""How a model takes in a prompt: in pieces, so that it can be cancelled."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from specdec_tui.backends.model import CausalModel, Expecting, ModelContext, reads_at_once

PREFILL_CHUNK = 256
"""Tokens of a prompt that a model on the CPU reads between two looks at whether to go on: half a second's work."""
GPU_CHUNK = 2048
"""The same of other devices."""


class Stopped(Exception):
    """The run was cancelled while it read the prompt."""


def read_prompt(
    model: CausalModel,
    context: ModelContext,
    ids: Sequence[int],
    use_cache: bool,
    cancelled: Callable[[], bool],
    given: int = 0,
) -> torch.Tensor:
    """Logits [1, vocab_size] behind a prompt. `Stopped`, when cancelled, within a piece of it.

    `given`: so many of the ids, the last ones, are new tokens already, behind the prompt.
    """
    last, size = 0, PREFILL_CHUNK if model.device.type == "cpu" else GPU_CHUNK
    if isinstance(context, Expecting):
        context.expect(len(ids) - given)
    if use_cache and not reads_at_once(context):
        last = (len(ids) - 1) // size * size
    for begin in range(0, last, size):
        context.extend(ids[begin : begin + size], keep=1)
        model.synchronize()
        if cancelled():
            raise Stopped
    return context.extend(ids[last:], keep=1)
