"""Which loaded models `LeanModel` is for, on which machines, and whether it gives their logits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from specdec_tui.backends.decoder import Decoder, describe
from specdec_tui.backends.errors import first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model is of a shape this is for: dense, on the CPU.

    Whether this machine can, says `why_not`.
    """
    return (
        not getattr(model, "is_quantized", False)
        and model.dtype in (torch.float32, torch.bfloat16)
        and all(weight.device.type == "cpu" and weight.dtype is model.dtype for weight in model.parameters())
        and not why_not_lean(describe(model))
    )


def why_not_lean(decoder: Decoder | str) -> str:
    """Why a described model is none that `LeanModel` computes; empty where it is. A reason is handed on."""
    if isinstance(decoder, str):
        return decoder
    family = decoder.family
    found = {
        "it has layer norms": family.norm != "rms",
        "it lacks a norm before attention or before the MLP": not (family.norms[0] and family.norms[2]),
        "its queries and keys are normed as a whole": family.head_norms == "whole",
        "its attention and MLP read the same": family.parallel,
        "its MLP has no gate": not family.gated,
        "its queries, keys and values lie together by heads": family.grouped,
        "its positions are learned": bool(family.positions),
        "its attention has sinks": bool(family.sinks),
        "it is a mixture of experts": any(layer.experts for layer in decoder.layers),
        f"its activation is {decoder.activation}": decoder.activation not in ("silu", "gelu_tanh"),
        "it has biases beyond those of queries, keys and values": not set(decoder.biases) <= set(family.groups[0]),
    }
    return next((reason for reason, holds in found.items() if holds), "")


@cache
def why_not() -> str:
    """Why this machine cannot compile the fast pass; empty where it can."""
    # numba's threads would else be as many as there are cores, and its first launch makes them torch's too.
    # Somebody who has imported it has decided: it refuses another number once its threads run.
    if "numba" not in sys.modules:
        os.environ.setdefault("NUMBA_NUM_THREADS", str(torch.get_num_threads()))
    try:
        from specdec_tui.backends.lean import decoder_pass  # noqa: F401
    except Exception as error:  # its compiler is a native library, which may fail to load in many ways
        return f"numba does not work ({type(error).__name__}: {first_line(error)})"
    return ""


def agrees(model: object, ids: Sequence[int], expected: Tensor) -> bool:
    """Whether a `LeanModel` gives the logits `expected` [n, vocab_size] after each of `ids`, in passes of all sorts.

    Half of them as a prompt, behind it products of each number of tokens, the rest one by one.
    """
    from specdec_tui.backends.lean.model import LeanModel
    from specdec_tui.backends.lean.vectors import MOST_TOKENS

    assert isinstance(model, LeanModel)
    bound = (0.1 if model.rounded else 1e-3) * max(1.0, expected.abs().max().item())
    context, half = model.open(), len(ids) // 2

    def right(size: int) -> bool:
        begin, end = context.length, context.length + size
        difference = (context.extend(ids[begin:end], size) - expected[begin:end]).abs().max().item()
        return difference <= bound  # False for NaN

    if half and not right(half):
        return False
    for tokens in range(2, min(MOST_TOKENS, len(ids) - half) + 1):
        if not right(tokens):
            return False
        context.rewind(half)
    return all(right(1) for _ in range(half, len(ids)))
