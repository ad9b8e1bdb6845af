"""Which loaded models `LeanModel` is for, on which machines, and whether it gives their logits."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.decoder import describe
from specdec_tui.backends.errors import first_line

# Tokens of passes of several sorts: with products of one to five tokens, and of a prompt.
_TRIED = (5, 4, 7)


def fits(model: PreTrainedModel) -> bool:
    """Whether a loaded model is of a shape this is for: dense, on the CPU.

    Whether this machine can, says `why_not`.
    """
    return (
        not getattr(model, "is_quantized", False)
        and model.dtype in (torch.float32, torch.bfloat16)
        and all(weight.device.type == "cpu" and weight.dtype is model.dtype for weight in model.parameters())
        and not isinstance(describe(model), str)
    )


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
    """Whether a `LeanModel` gives the logits `expected` [n, vocab_size] after each of `ids`, in passes of all sorts."""
    from specdec_tui.backends.lean.model import LeanModel

    assert isinstance(model, LeanModel)
    context, rows, begin = model.open(), [], 0
    for size in (len(ids) // 2, *_TRIED, *[1] * len(ids)):
        if part := ids[begin : begin + size]:
            rows.append(context.extend(part, len(part)))
            begin += len(part)
    bound = 0.1 if model.rounded else 1e-3
    difference = (torch.cat(rows) - expected).abs().max().item()
    return difference <= bound * max(1.0, expected.abs().max().item())  # False for NaN
