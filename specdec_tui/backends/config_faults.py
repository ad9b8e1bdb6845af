"""Which field of a config is at fault where a library fails over it: found by leaving out one after the other.

Libraries say what went wrong inside of them ("unsupported operand type(s) for **"); what a person can mend is
the field. Whichever, left to its default, makes the same step go well is the one.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from functools import reduce
from operator import getitem
from typing import Any

import accelerate
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig

from specdec_tui.backends.config_fields import needed_in, shown
from specdec_tui.backends.errors import in_words, is_raw, plainly

NO_SENSE = "transformers cannot make sense of it"
_LARGEST = 2**63 - 1
SECONDS = 10.0  # that the search may take
Fields = dict[str, Any]
Step = Callable[[Fields], object]

_FIELD = re.compile(r"Validation error for field '(\w+)'")
_CLASS = re.compile(r"^Class validation error for validator '\w+': (?:\w+: )?")
_EXPECTED = re.compile(r"\b(bool|int|float|str|list|tuple|dict)\b")
_KINDS = {
    "bool": "true or false",
    "int": "a whole number",
    "float": "a number",
    "str": "a name",
    "list": "a list",
    "tuple": "a list",
    "dict": "a group of fields",
}


def read(fields: Fields) -> PreTrainedConfig:
    """The config that transformers makes of a config.json."""
    return CONFIG_MAPPING[fields["model_type"]].from_dict(deepcopy(fields))


def build(fields: Fields, attention: str | None = "eager") -> Any:
    """The model of a config, without memory for its weights."""
    with accelerate.init_empty_weights(include_buffers=True):
        return AutoModelForCausalLM.from_config(read(fields), attn_implementation=attention).eval()


class _Answered(TorchDispatchMode):
    """What is asked of numbers that are not there (is all of a mask true?) is answered with 1."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return 1 if func is torch.ops.aten._local_scalar_dense.default else func(*args, **(kwargs or {}))


def run(fields: Fields) -> object:
    """A pass of such a model over a few tokens, on shapes alone."""
    model, ids = build(fields, None), torch.zeros(1, 12, dtype=torch.int64, device="meta")
    with torch.no_grad(), _Answered():
        return model(ids, use_cache=False, return_dict=True).logits


def fault(error: Exception, config: Mapping[str, Any], step: Step) -> str:
    """What is wrong with a config over which `step` failed, as the end of a sentence: the field and what would do."""
    text = " ".join(str(error).split())
    if named := _FIELD.match(text):
        field = named[1]
        place, value = next(_places(config, field), (field, _told(text)))
        return _sentence(place, value, _needed(text) or _usual(place, _defaults(dict(config)).get(field)))
    if _CLASS.match(text) and not is_raw(said := _CLASS.sub("", text)):
        return said
    fields, said = dict(config), plainly(error)
    found = None if _goes_well(fields, step) else _culprit(fields, step)
    if found is None and (isinstance(error, OverflowError) or "overflow" in text.lower()):
        found = next(((path, held, None) for path, held in _numbers(fields) if abs(held) > _LARGEST), None)
    if found is None:
        return in_words(error, NO_SENSE)
    path, value, usual = found
    if is_raw(said):
        return _sentence(path, value, _usual(path, usual))
    return _sentence(path, value, said if usual is None else f"{said} ({shown(usual)} is usual)")


def _sentence(path: str, value: object, needed: str) -> str:
    return f"{path} is {value if isinstance(value, _Raw) else shown(value)}: {needed}"


class _Raw(str):
    """Words of a library in place of a value."""


def _told(text: str) -> _Raw:
    value = re.search(r"(?:with value |\(value: )(.{1,40}?)(?: doesn't match|\)|$)", text)
    return _Raw(value[1] if value else "wrong")


def _needed(text: str) -> str:
    """`true or false is needed`, of a library's "expected bool, got str" or "doesn't match any type in (…)"."""
    among = re.search(r"match any type in \((.*?)\)\. Errors", text) or re.search(r"expected (\w+)", text)
    kinds = list(dict.fromkeys(_KINDS[kind] for kind in _EXPECTED.findall(among[1] if among else "")))
    if not kinds:
        return ""
    if "a number" in kinds and "a whole number" in kinds:
        kinds.remove("a whole number")
    return f"{' or '.join(kinds)} is needed{', or nothing' if 'NoneType' in text.split('Errors')[0] else ''}"


def _usual(path: str, value: object) -> str:
    """What would do in a field that has this value where it is left out."""
    if needed := needed_in(path):
        return needed
    if value is None:
        return "leave it out, or take another value"
    kind = "true or false" if isinstance(value, bool) else _KINDS.get(type(value).__name__, "another value")
    return f"{kind} is needed, such as {shown(value)}" if not isinstance(value, dict) else f"{kind} is needed"


def _places(config: Mapping[str, Any], field: str) -> Iterator[tuple[str, Any]]:
    """Where a config gives a field: in itself, by the name that older ones use, or in a part of it."""
    for name in (field, {"rope_parameters": "rope_scaling", "dtype": "torch_dtype"}.get(field, field)):
        if name in config:
            yield name, config[name]
    for part, inner in config.items():
        if isinstance(inner, dict) and field in inner:
            yield f"{part}.{field}", inner[field]


def _culprit(config: Fields, step: Step) -> tuple[str, Any, Any] | None:
    """The field without which the step goes well, its value and its default; None where no single one is it."""
    usual, end = _defaults(config), time.monotonic() + SECONDS
    for field, value in config.items():
        if field in ("model_type", "architectures") or (field in usual and _same(usual[field], value)):
            continue
        if time.monotonic() > end:
            return None
        if not _goes_well({name: held for name, held in config.items() if name != field}, step):
            continue
        return _within((field,), config, step, usual.get(field), end)
    return None


def _within(path: tuple[str, ...], config: Fields, step: Step, usual: Any, end: float) -> tuple[str, Any, Any]:
    """The field inside of a group that is at fault, or the group."""
    value: Any = reduce(getitem, path, config)
    for inner in value if isinstance(value, dict) else ():
        if time.monotonic() > end:
            break
        less = deepcopy(config)
        del reduce(getitem, path, less)[inner]
        if _goes_well(less, step):
            return _within((*path, inner), config, step, None, end)
    return ".".join(path), value, usual


def _numbers(fields: Fields, within: str = "") -> Iterator[tuple[str, int | float]]:
    for name, value in fields.items():
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield within + name, value
        elif isinstance(value, dict):
            yield from _numbers({str(key): part for key, part in value.items()}, f"{within}{name}.")


def _goes_well(config: Fields, step: Step) -> bool:
    try:
        with torch.inference_mode(False):  # where this is asked within a pass: no model can be built in there
            step(config)
    except Exception:
        return False
    return True


def _defaults(config: Fields) -> Fields:
    try:
        return dict(CONFIG_MAPPING[config["model_type"]]().to_dict())
    except Exception:  # some have none
        return {}


def _same(one: object, other: object) -> bool:
    return type(one) is type(other) and bool(one == other)


def out_of_the_usual(config: PreTrainedConfig) -> str:
    """Numbers of a config that may make scores infinite or none: `eps is -1 (1e-05 is usual)`; empty for none."""
    usual, found = _defaults(config.to_dict()), []
    for field, value in _numbers(config.to_dict()):
        if field.endswith("_token_id"):
            continue
        known = usual.get(field)
        known = known if isinstance(known, int | float) and not isinstance(known, bool) else None
        odd = not math.isfinite(value) or abs(value) > 1e6 * max(1.0, abs(known or 0))
        if odd or (known is not None and known > 0 and value <= 0):
            found.append(
                f"{field} is {shown(value)}"
                + (" (mostly left out)" if known is None else f" ({shown(known)} is usual)")
            )
    return ", ".join(found[:3])
