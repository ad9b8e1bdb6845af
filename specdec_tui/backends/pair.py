"""What a loaded pair looks like from above, and how loading reports itself. No torch here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from specdec_tui.doors.characters import one_line


class LoadError(Exception):
    """A pair that cannot be loaded: one line that says what is wrong and what would work.

    It may quote models' files and what libraries say of them, so it is made harmless here.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class LoadAbandoned(BaseException):
    """Raised by a load's progress report when nobody wants the load any more. No library takes it for its own error."""


class PromptError(Exception):
    """A prompt that cannot be given to the model, e.g. because its chat template refuses it."""


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of loading: `fraction` from 0 to 1, None where there is nothing to count."""

    stage: str
    fraction: float | None = None


ReportProgress = Callable[[Progress], None]
"""May raise (LoadAbandoned): whoever loads asks it often, and lets what it raises pass."""


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
