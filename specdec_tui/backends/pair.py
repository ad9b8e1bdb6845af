"""What a loaded pair looks like from above, and how loading reports itself. No torch here."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from specdec_tui.backends.generation_asks import told_by_setting
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
    """A prompt that cannot be given to the model, e.g. as its chat template refuses it: one line, made harmless."""

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


@dataclass(frozen=True, slots=True)
class Progress:
    """A step of loading: `fraction` from 0 to 1, None where there is nothing to count."""

    stage: str
    fraction: float | None = None


ReportProgress = Callable[[Progress], None]
"""May raise (LoadAbandoned): whoever loads asks it often, and lets what it raises pass."""


@dataclass(frozen=True, slots=True)
class Health:
    """How the server of a target is: `seconds` there and back; None where it did not answer, and `fault` says why.

    `added`: so many of them are waited here, to stand for a distance.
    """

    seconds: float | None
    fault: str = ""
    added: float = 0.0


SERVED_BY = "server "
"""How the device of a model on a server begins; the server's `host:port` follows."""
_UNKNOWN_OF_SERVED = "quantization", "parameters", "memory_bytes"


def known(model: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a `ModelInfo` by their names, for people and other programs: None where a server does not tell."""
    is_served = str(model.get("device")).startswith(SERVED_BY)
    return {name: None if is_served and name in _UNKNOWN_OF_SERVED else fact for name, fact in model.items()}


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """One loaded model: `memory_bytes` is what its weights take, `context_length` None when unbounded.

    `dtype` is what it computes in, `held_dtype` what its weights are held in where that is another. `weights`: their
    form, of the `weight_forms` that they can be held in; empty where there is no choice.
    `generation_config_applied` and `generation_config_not_applied`: what its files ask of `generate` and is done
    unless a setting says otherwise, and what is not, by field; `caveats`:
    sentences on what else its files hold that is not used. `seen`: what a server that it is on was seen to do.
    """

    name: str
    device: str
    dtype: str
    quantization: str
    parameters: int
    memory_bytes: int
    context_length: int | None
    held_dtype: str = ""
    caveats: tuple[str, ...] = ()
    generation_config_not_applied: Mapping[str, Any] = field(default_factory=dict, hash=False)
    generation_config_applied: Mapping[str, Any] = field(default_factory=dict, hash=False)
    seen: tuple[str, ...] = ()
    weights: str = ""
    weight_forms: tuple[str, ...] = ()

    @property
    def is_served(self) -> bool:
        """Whether it is on a server."""
        return self.device.startswith(SERVED_BY)

    @property
    def precision(self) -> str:
        """What its numbers are, in words: quantization, else what it computes in and how its weights are held."""
        if self.quantization not in ("", "none"):
            return self.quantization
        held = [*([f"held in {self.held_dtype}"] if self.held_dtype else []), *([self.weights] if self.weights else [])]
        return f"{self.dtype} ({', '.join(held)})" if held else self.dtype

    @property
    def notices(self) -> tuple[str, ...]:
        """What a reader of its texts must know."""
        return (*self.caveats, self.not_applied) if self.not_applied else self.caveats

    @property
    def asks(self) -> Mapping[str, str]:
        """What its generation config asks for and settings at `auto` do, by setting, in words."""
        return told_by_setting(self.generation_config_applied)

    @property
    def not_applied(self) -> str:
        """A sentence on what of its generation config is not applied; empty where that is nothing."""
        if not self.generation_config_not_applied:
            return ""
        fields = [
            f"{name} {value if isinstance(value, str) else json.dumps(value)}"
            for name, value in self.generation_config_not_applied.items()
        ]
        return f"{self.name}: its generation config asks for {', '.join(fields)}: not applied here."


@dataclass(frozen=True, slots=True)
class PairInfo:
    """A loaded target with its drafters; `notes` are sentences for the user (padded vocabularies, offload…)."""

    target: ModelInfo
    drafters: tuple[ModelInfo, ...]
    chat_template: bool
    notes: tuple[str, ...] = ()

    @property
    def drafter(self) -> ModelInfo | None:
        """The first of them."""
        return self.drafters[0] if self.drafters else None

    @property
    def models(self) -> tuple[ModelInfo, ...]:
        """All of them, the target first."""
        return self.target, *self.drafters

    @property
    def name(self) -> str:
        """What it is made of: `target + drafter`."""
        return " + ".join(model.name for model in self.models)
