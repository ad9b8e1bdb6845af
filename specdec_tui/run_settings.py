"""What a run is asked: the settings, and where they say `auto` what the target's own files ask of `generate`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specdec_tui.setting_kinds import format_value
from specdec_tui.settings import Settings

if TYPE_CHECKING:
    from specdec_tui.backends.model import CausalModel
    from specdec_tui.backends.tokenizer import PromptTokenizer
    from specdec_tui.decoding.beam import Beams
    from specdec_tui.decoding.controls import Controls
    from specdec_tui.decoding.sampling import Sampler

_OFF: dict[str, Any] = {
    "repetition_penalty": 1.0,
    "no_repeat_ngram": 0,
    "min_new_tokens": 0,
    "min_p": 0.0,
    "typical_p": 1.0,
}
_WHEN_SAMPLING = ("min_p", "typical_p")
Asked = Mapping[str, Any]
"""What a model's files ask, by setting (`backends.generation_fields.Asked`)."""


def _effective(settings: Settings, asked: Asked, name: str) -> Any:
    own = getattr(settings, name)
    return asked.get(name, _OFF.get(name)) if own is None else own


def sampler_of(settings: Settings, asked: Asked | None = None) -> Sampler:
    from specdec_tui.decoding.sampling import Sampler

    narrow = {name: _effective(settings, asked or {}, name) for name in _WHEN_SAMPLING}
    return Sampler(settings.processor, settings.temperature, settings.top_k, settings.top_p, **narrow)


@dataclass(frozen=True, slots=True)
class Writer:
    """The model that a text is written by, with its tokenizer, where its texts end and what its files ask."""

    model: CausalModel
    tokenizer: PromptTokenizer
    end_ids: frozenset[int]
    asked: Asked


def rounds_of(writer: Writer, settings: Settings) -> dict[str, Any]:
    """What decides the rounds of a strategy, and so the programs that play them: arguments of `decode`."""
    from specdec_tui.backends.model import begin_of
    from specdec_tui.decoding.ending import nowhere

    ends = frozenset() if settings.ignore_eos else writer.end_ids
    stops = writer.asked.get("stop_strings", ()) if settings.stop_strings is None else settings.stop_strings
    return {
        "sampler": sampler_of(settings, writer.asked),
        "rule": settings.rule,
        "gamma": settings.gamma,
        "end_ids": ends,
        "completes": writer.tokenizer.completes(stops) if stops else nowhere,
        "controls": controls_of(
            settings, writer.asked, ends, lambda word: writer.tokenizer.ids_of_word(word), begin_of(writer.model)
        ),
    }


def beams_of(settings: Settings) -> Beams:
    """How the searches of a run are done."""
    from specdec_tui.decoding.beam import Beams

    return Beams(settings.beam_width, settings.length_penalty, settings.early_stopping)


def controls_of(
    settings: Settings,
    asked: Asked,
    end_ids: frozenset[int],
    ids_of: Callable[[str], Sequence[Sequence[int]]],
    begin: tuple[int, ...] | None = None,
) -> Controls:
    """The controls of a run. `ids_of`: the ids that a forbidden text can be written as."""
    from specdec_tui.decoding.controls import Controls

    if settings.bad_words is None:
        banned = tuple(map(tuple, asked.get("bad_words", ())))
    else:
        banned = tuple(tuple(ids) for word in settings.bad_words for ids in ids_of(word))
    if settings.logit_bias is None:
        biases = tuple((tuple(ids), bias) for ids, bias in asked.get("logit_bias", ()))
    else:
        biases = tuple(((id,), bias) for id, bias in settings.logit_bias)
    return Controls(
        repetition_penalty=_effective(settings, asked, "repetition_penalty"),
        presence_penalty=settings.presence_penalty,
        frequency_penalty=settings.frequency_penalty,
        no_repeat_ngram=_effective(settings, asked, "no_repeat_ngram"),
        min_new_tokens=_effective(settings, asked, "min_new_tokens"),
        min_length=asked.get("min_length", 0) if settings.min_new_tokens is None else 0,
        biases=biases,
        banned=banned,
        forced_first=asked.get("forced_bos_token"),
        forced_last=tuple(asked.get("forced_eos_token", ())),
        last_at=settings.max_new_tokens - 1,
        end_ids=end_ids,
        begin=begin,
    )


def from_the_model(settings: Settings, asked: Asked) -> str:
    """A sentence on what a run does because the model's files ask for it; empty for nothing."""
    greedy = sampler_of(settings).is_greedy
    names = [
        name
        for name in asked
        if getattr(settings, "min_new_tokens" if name == "min_length" else name, None) is None
        and not (greedy and name in _WHEN_SAMPLING)
    ]
    if not names:
        return ""
    return "as the model's generation config asks: " + ", ".join(
        f"{_word(name)} {_short(asked[name])}" for name in names
    )


def _word(name: str) -> str:
    return name.replace("_", " ")


def _short(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"({len(value)})"
    return format_value(value)
