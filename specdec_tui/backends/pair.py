"""What a loaded pair looks like from above, and how loading reports itself. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


class LoadError(Exception):
    """A pair that cannot be loaded: one message that says what is wrong and what would work."""


class PromptError(Exception):
    """A prompt that cannot be given to the model, e.g. because its chat template refuses it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of loading: `fraction` from 0 to 1, None where there is nothing to count."""

    stage: str
    fraction: float | None = None


ReportProgress = Callable[[Progress], None]


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One loaded model: `memory_bytes` is what its weights take, `context_length` None when unbounded."""

    name: str
    device: str
    dtype: str
    quantization: str
    parameters: int
    memory_bytes: int
    context_length: int | None


@dataclass(frozen=True, slots=True)
class PairInfo:
    """A loaded pair; `notes` are sentences for the user (padded vocabularies, cache unusable, offload…)."""

    target: ModelInfo
    drafter: ModelInfo | None
    chat_template: bool
    notes: tuple[str, ...] = ()
