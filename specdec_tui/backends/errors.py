"""What went wrong inside a model, as one plain sentence for a person."""

from __future__ import annotations

import torch

_OUT_OF_MEMORY = ("out of memory", "not enough memory", "can't allocate memory")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether memory was short, also where another error came of that."""
    text = str(error).lower()
    if isinstance(error, MemoryError | torch.OutOfMemoryError) or any(words in text for words in _OUT_OF_MEMORY):
        return True
    before = error.__cause__ or error.__context__
    return before is not None and is_out_of_memory(before)


def first_line(error: BaseException) -> str:
    """What an exception says, as one line for a person; its type where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def describe_error(error: Exception) -> str:
    """One plain sentence for a person."""
    if is_out_of_memory(error):
        return "out of memory: try a shorter prompt, fewer new tokens, a smaller gamma, or quantized models"
    name, text = type(error).__name__, first_line(error)
    return text if text == name else f"{name}: {text}"
