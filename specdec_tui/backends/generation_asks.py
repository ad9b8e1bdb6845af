"""What a model's generation config asks and is done here: its fields as values of settings.

A user's own setting comes before it, and a field whose value is not valid is told as not applied.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import isfinite
from typing import Any

_MOST = 4096  # sequences of tokens, or tokens of one
_LARGEST = 32768  # tokens
_SHOWN_AS = {"min_length": "min_new_tokens"}


def settings_asked(fields: Mapping[str, Any]) -> tuple[dict[str, Any], frozenset[str]]:
    """Values by setting (`min_length` counts the prompt too), and the fields that they are of."""
    found: dict[str, Any] = {}
    applied: set[str] = set()
    for field, (setting, read) in _READ.items():
        if field not in fields:
            continue
        try:
            value = read(fields[field])
        except (TypeError, ValueError, OverflowError):
            continue
        found[setting] = found[setting] + value if isinstance(value, list) and setting in found else value
        applied.add(field)
    return found, frozenset(applied)


def told_by_setting(applied: Mapping[str, Any]) -> dict[str, str]:
    """Fields that are applied as a reader of settings is told of them: by setting, lists by their length."""
    found: dict[str, list[str]] = {}
    for field, value in applied.items():
        if field in _READ:
            text = f"{len(value)} of them" if isinstance(value, list) else str(value)
            found.setdefault(_SHOWN_AS.get(_READ[field][0], _READ[field][0]), []).append(text)
    return {setting: ", ".join(texts) for setting, texts in found.items()}


def _number(low: float, high: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low < value <= high:
            raise ValueError
        return float(value)

    return read


def _count(most: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if type(value) is not int or not 0 < value <= most:
            raise ValueError
        return value

    return read


def _ids(value: Any) -> list[int]:
    if not isinstance(value, list | tuple) or not 0 < len(value) <= _MOST:
        raise ValueError
    if not all(type(id) is int and 0 <= id < 1 << 31 for id in value):
        raise ValueError
    return list(value)


def _sequences(value: Any) -> list[list[int]]:
    if not isinstance(value, list) or len(value) > _MOST:
        raise ValueError
    return [_ids(sequence) for sequence in value]


def _biases(value: Any) -> list[tuple[list[int], float]]:
    pairs = list(value.items()) if isinstance(value, dict) else value
    if not isinstance(pairs, list) or len(pairs) > _MOST:
        raise ValueError
    found = [(_ids(ids), float(bias)) for ids, bias in pairs]
    if not all(isfinite(bias) for _, bias in found):
        raise ValueError
    return found


def _texts(value: Any) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or len(texts) > _MOST or not all(isinstance(text, str) and text for text in texts):
        raise ValueError
    return texts


_READ: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "repetition_penalty": ("repetition_penalty", _number(0, 1000)),
    "no_repeat_ngram_size": ("no_repeat_ngram", _count(_LARGEST)),
    "min_new_tokens": ("min_new_tokens", _count(_LARGEST)),
    "min_length": ("min_length", _count(_LARGEST)),
    "min_p": ("min_p", _number(0, 1)),
    "typical_p": ("typical_p", _number(0, 1)),
    "bad_words_ids": ("bad_words", _sequences),
    "suppress_tokens": ("bad_words", lambda value: [[id] for id in _ids(value)]),
    "sequence_bias": ("logit_bias", _biases),
    "stop_strings": ("stop_strings", _texts),
    "forced_bos_token_id": ("forced_bos_token", lambda value: _ids([value])[0]),
    "forced_eos_token_id": ("forced_eos_token", lambda value: _ids([value] if type(value) is int else value)),
}
