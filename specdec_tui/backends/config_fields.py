"""Fields of a config that some family reads without looking at them: their kinds and ranges. No torch here.

What a library makes of a wrong one is an error in words of Python, or a model whose scores are no numbers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specdec_tui.backends.pair import LoadError
from specdec_tui.doors.characters import named

# Where a config names how tokens are turned: one set of numbers, or one for each kind of layer.
_ROTATIONS = ("rope_parameters", "rope_scaling")
_BASES = (
    *("rope_theta", "rotary_emb_base", "rope_local_base_freq", "local_rope_theta", "global_rope_theta"),
    *("factor", "attention_factor", "low_freq_factor", "high_freq_factor", "beta_fast", "beta_slow"),
    "original_max_position_embeddings",
)
_FACTORS = ("short_factor", "long_factor")
_EPSILONS = ("rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "layernorm_epsilon", "norm_eps", "norm_epsilon")
_SHARES = ("partial_rotary_factor", "rotary_pct")
_DTYPE_FIELDS = ("dtype", "torch_dtype")
_DTYPE = re.compile(r"float32|bfloat16|float16|float64|float|half|double")
_MOST_BASE, _MOST_LABELS = 1e15, 1_000_000
_DEEPEST = 6  # groups within groups that are looked into


def check_fields(name: str, config: Mapping[str, Any]) -> None:
    """LoadError that names the first field whose value no model can be made of, and what would do."""
    _check_dtypes(name, config)
    _check_labels(name, config)
    for path, field, value in _fields(config, ()):
        fault = _fault(path, field, value)
        if fault:
            raise wrong(name, ".".join(path), value, fault)
    _check_rotations(name, config, ())


def needed_in(path: str) -> str:
    """What would do in a field that is checked here; empty for any other."""
    parts = path.split(".")
    return _fault(parts, parts[-1], "")


def wrong(name: str, field: str, value: object, needed: str) -> LoadError:
    """The one sentence for a field that cannot be used."""
    return LoadError(f"{name}: {named(field)} in its config is {shown(value)}: {needed}.")


def shown(value: object) -> str:
    """A value as Python writes it, cut where it is long."""
    try:
        text = named(repr(value))
    except ValueError:  # thousands of digits
        text = f"a number of {value.bit_length():,} bits" if isinstance(value, int) else type(value).__name__
    return text if len(text) <= 40 else f"{text[:39]}…"


def _fields(config: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str, Any]]:
    for field, value in config.items():
        yield (*path, field), field, value
        if isinstance(value, dict) and len(path) < _DEEPEST:
            yield from _fields(value, (*path, field))


def _fault(path: Sequence[str], field: str, value: Any) -> str:
    """What would do in place of a value; empty where it does, or where it is another check's or nobody's."""
    if value is None:
        return ""
    turns = any(part in _ROTATIONS for part in path[:-1])
    if field in _EPSILONS:
        return "" if _between(value, 1.0) else "a number above 0, at most 1, is needed"
    if field in _SHARES:
        return "" if _between(value, 1.0, least=0.0) else "a number from 0 to 1 is needed"
    if field in _BASES and (turns or "theta" in field or "base" in field):
        return "" if _between(value, _MOST_BASE) else f"a number above 0, at most {_MOST_BASE:g}, is needed"
    if field in _FACTORS and turns:
        good = isinstance(value, list) and value and all(_between(part, _MOST_BASE) for part in value)
        return "" if good else "a list of numbers above 0 is needed"
    if field in ("rope_type", "type") and turns:
        return "" if isinstance(value, str) and value else "a name is needed, such as 'default'"
    return "it must not be NaN" if isinstance(value, float) and math.isnan(value) else ""


def _between(value: object, most: float, least: float | None = None) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return (value > 0 if least is None else least <= value) and value <= most


def _check_dtypes(name: str, config: Mapping[str, Any]) -> None:
    parts = {f"{part}.": fields for part, fields in config.items() if part.endswith("_config")}
    for within, fields in {"": config, **parts}.items():
        for field in _DTYPE_FIELDS:
            value = fields.get(field) if isinstance(fields, dict) else None
            if not isinstance(value, str | None):
                raise wrong(name, within + field, value, "a name is needed")
            if value is not None and not _DTYPE.fullmatch(value):
                needed = "a kind of number is needed: float32, bfloat16, float16 or float64"
                raise wrong(name, within + field, value, needed)


def _check_rotations(name: str, config: Mapping[str, Any], path: tuple[str, ...]) -> None:
    for field, value in config.items():
        here = (*path, field)
        if field in _ROTATIONS and not isinstance(value, dict | None):
            raise wrong(name, ".".join(here), value, "a group of fields is needed")
        if not isinstance(value, dict) or len(path) == _DEEPEST:
            continue
        if field in _ROTATIONS:
            for kind, part in value.items():
                if kind.endswith("_attention") and not isinstance(part, dict | None):
                    raise wrong(name, ".".join((*here, kind)), part, "a group of fields is needed")
        low, high = value.get("low_freq_factor"), value.get("high_freq_factor")
        if low is not None and low == high:
            raise wrong(name, ".".join((*here, "high_freq_factor")), high, "more than its low_freq_factor is needed")
        _check_rotations(name, value, here)


def _check_labels(name: str, config: Mapping[str, Any]) -> None:
    """Names of classes, which no causal model has, and which are read all the same."""
    labels = config.get("id2label")
    if labels is not None:
        whole = isinstance(labels, dict) and all(re.fullmatch(r"\s*[+-]?\d{1,18}\s*", str(key)) for key in labels)
        if not whole:
            raise wrong(name, "id2label", labels, "a table of names by whole numbers is needed, or none")
    count = config.get("num_labels")
    if "num_labels" in config and (type(count) is not int or not 0 <= count <= _MOST_LABELS):
        raise wrong(name, "num_labels", count, f"a whole number from 0 to {_MOST_LABELS:,} is needed")
