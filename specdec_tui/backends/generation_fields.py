"""What a model's files ask of `generate`: fields with their values, to be done or to be said.

A generation config may change which tokens `generate` takes: penalties, forbidden and forced tokens,
least lengths, other searches. What there is a setting for is done (`generation_asks`); the others are left
out, and whoever compares with `generate` must know it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from math import isfinite
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from specdec_tui.backends.gguf.header import GgufHeader
from specdec_tui.doors.reading import read_text

# Fields that change the tokens `generate` takes, and the numbers at which they do not. What the user's own settings
# say is none of them (those of `sampling_asked`, the length), nor what only decides the speed.
_NEUTRAL: dict[str, tuple[float, ...]] = {
    "repetition_penalty": (1,),
    "encoder_repetition_penalty": (1,),
    "no_repeat_ngram_size": (0,),
    "encoder_no_repeat_ngram_size": (0,),
    "bad_words_ids": (),
    "force_words_ids": (),
    "constraints": (),
    "sequence_bias": (),
    "suppress_tokens": (),
    "begin_suppress_tokens": (),
    "forced_bos_token_id": (),
    "forced_eos_token_id": (),
    "forced_decoder_ids": (),
    "min_length": (0,),
    "min_new_tokens": (0,),
    "max_time": (),
    "stop_strings": (),
    "exponential_decay_length_penalty": (),
    "guidance_scale": (1,),
    "min_p": (0,),
    "typical_p": (1,),
    "top_h": (),
    "epsilon_cutoff": (0,),
    "eta_cutoff": (0,),
    "watermarking_config": (),
    "num_beams": (1,),
    "num_beam_groups": (1,),
    "num_return_sequences": (1,),
    "diversity_penalty": (0,),
    "penalty_alpha": (0,),
    "dola_layers": (),
    "token_healing": (),
    "remove_invalid_values": (),
}
# Caches that hold the keys, values and states that were computed: where they lie and how they grow changes no token.
# A quantized one holds others.
_SAME_CACHES = (
    *("dynamic", "dynamic_full", "static", "offloaded", "offloaded_static"),
    *("sliding_window", "hybrid", "hybrid_chunked", "offloaded_hybrid", "offloaded_hybrid_chunked"),
)
_SAMPLING = ("temperature", "top_k", "top_p")
_OF_BEAMS: dict[str, tuple[float, ...]] = {"length_penalty": (1,), "early_stopping": ()}

_OF_GGUF = "general.sampling."
_USERS_OWN = ("temp", "top_k", "top_p", "penalty_last_n", "xtc_threshold", "mirostat_tau", "mirostat_eta")
_NEUTRAL_GGUF: dict[str, tuple[float, ...]] = {"penalty_repeat": (0, 1), "typ_p": (1,)}

_INNER = ("text_config", "decoder", "generator")  # where configs of several models keep the decoder's
_LARGEST = 1 << 20  # bytes of a file that is read
_MOST_IDS, _LONGEST, _DEEPEST = 64, 200, 3


def _fields(folder: Path, loaded: PreTrainedModel) -> dict[str, Any]:
    """What there is to ask `generate`, by field.

    Of `generation_config.json`, else of what transformers made of the files, else of the old place for
    them, the config itself: a field of a later one counts where the earlier ones do not have it.
    """
    config = _read(folder / "config.json")
    inner = next((part for name in _INNER if isinstance(part := config.get(name), dict)), {})
    known: Mapping[str, Any] = loaded.generation_config.to_dict() if loaded.generation_config is not None else {}
    found: dict[str, Any] = {}
    for table in (_read(folder / "generation_config.json"), known, config, inner):
        found = {name: value for name, value in table.items() if value is not None} | found
    return found


def asked_of_generate(folder: Path, loaded: PreTrainedModel) -> dict[str, Any]:
    """The fields that ask for something, each with its value as it stands there; empty where none does."""
    found = _fields(folder, loaded)
    asked = {name: found[name] for name, neutral in _NEUTRAL.items() if not _is_neutral(found.get(name), neutral)}
    if found.get("min_new_tokens") is not None:
        asked.pop("min_length", None)  # `generate` writes over it, also with 0
    if "num_beams" in asked:
        asked |= {name: found[name] for name, neutral in _OF_BEAMS.items() if not _is_neutral(found.get(name), neutral)}
    if (kind := found.get("cache_implementation")) is not None and kind not in _SAME_CACHES:
        asked["cache_implementation"] = kind
    return asked


def sampling_asked(folder: Path, loaded: PreTrainedModel) -> str:
    """How a model's files want its tokens drawn, in words; empty where they do not ask to sample."""
    found = _fields(folder, loaded)
    return _drawn(found, _SAMPLING) or "any token" if found.get("do_sample") is True else ""


def sampling_asked_of_gguf(header: GgufHeader) -> str:
    """The same of a GGUF file."""
    return _drawn(_sampling_of(header), _USERS_OWN)


def _sampling_of(header: GgufHeader) -> dict[str, Any]:
    return {key.removeprefix(_OF_GGUF): value for key, value in header.numbers.items() if key.startswith(_OF_GGUF)}


def _drawn(found: Mapping[str, Any], names: Iterable[str]) -> str:
    numbers = {name.replace("_", "-"): found[name] for name in names if type(found.get(name)) in (int, float)}
    texts = {name: f"{value:g}" if isinstance(value, float) else told(value) for name, value in numbers.items()}
    return ", ".join(f"{name} {text}" for name, text in texts.items())


def asked_of_gguf(header: GgufHeader) -> dict[str, Any]:
    """What a GGUF file asks of a sampler (`general.sampling.*`), by field."""
    return {
        name: value
        for name, value in _sampling_of(header).items()
        if name not in _USERS_OWN and not _is_neutral(value, _NEUTRAL_GGUF.get(name, (0,)))
    }


def _is_neutral(value: Any, neutral: tuple[float, ...]) -> bool:
    if value is None or value is False or value in ([], {}, ""):
        return True
    return isinstance(value, int | float) and not isinstance(value, bool) and value in neutral


def told(value: Any) -> Any:
    """A value as a report may hold it: as it is where it is short, shallow and all of JSON's numbers; else its text."""
    if isinstance(value, list) and len(value) <= _MOST_IDS and all(type(part) is int for part in value):
        return value
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    cut = text if len(text) <= _LONGEST else text[: _LONGEST - 1] + "…"
    return value if cut == text and _is_plain(value, _DEEPEST) else cut


def _is_plain(value: Any, levels: int) -> bool:
    if isinstance(value, list | dict):
        parts = value.values() if isinstance(value, dict) else value
        return levels > 0 and all(_is_plain(part, levels - 1) for part in parts)
    return isfinite(value) if isinstance(value, float) else isinstance(value, bool | int | str | None)


def _read(path: Path) -> dict[str, Any]:
    """The table of a JSON file; empty where there is no such thing (whoever loads the model tells of that)."""
    try:
        table = json.loads(read_text(path, most=_LARGEST))
    except (OSError, ValueError, RecursionError):
        return {}
    return table if isinstance(table, dict) else {}
