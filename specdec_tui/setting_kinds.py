"""Kinds of settings: how a value is read from text, what it takes in words, and how it is written."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit


class Texts(tuple[str, ...]):
    """Texts, written as a JSON list: they may hold commas and line breaks."""


class Names(tuple[str, ...]):
    """Names of models, written as a plain text where there is one, else as a JSON list."""


class Wrong(ValueError):
    """A value that is not valid, and in what: a few words that stand in the place of what is allowed."""


class Biases(tuple[tuple[int, float], ...]):
    """Token ids and what is added to their logits."""


@dataclass(frozen=True)
class Kind:
    """How one setting is read from text: `parse` raises ValueError, `allowed` says what it takes.

    `written` is the text of any value that a config file or a trace holds: of a wrong one, a text that `parse` refuses.
    `joined`: its flag may be repeated, and this makes one text of them all.
    """

    parse: Callable[[str], Any]
    allowed: str
    choices: tuple[str, ...] = ()
    written: Callable[[Any], str] = lambda value: _written(value)
    joined: Callable[[list[str]], str] | None = None


_NO_ADDRESS = "give http://HOST:PORT/v1 or https://HOST/v1, without a user, a password or a query"


def _address(text: str) -> str:
    text = text.strip()
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise Wrong(_NO_ADDRESS) from None
    is_one = parts.scheme in ("http", "https") and parts.hostname and port != 0 and text.isprintable()
    if text and (not is_one or "@" in parts.netloc or any(sign in text for sign in " ?#")):
        raise Wrong(_NO_ADDRESS)
    return text


ADDRESS = Kind(_address, "an address like http://host:port/v1")
"""Of a server, or none. It is shown and kept, so what nobody may see has no place in it."""


def whole(low: int, high: int, allowed: str = "") -> Kind:
    def parse(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise ValueError
        return value

    return Kind(parse, allowed or f"a whole number from {low} to {high}")


def real(low: float, high: float, *, above: bool = False) -> Kind:
    def parse(text: str) -> float:
        value = float(text)
        if not low <= value <= high or (above and value == low):
            raise ValueError
        return value

    return Kind(parse, f"a number {'above' if above else 'from'} {low:g} {'up ' if above else ''}to {high:g}")


def choice(*names: str) -> Kind:
    def parse(text: str) -> str:
        value = text.strip().lower()
        if value not in names:
            raise ValueError
        return value

    return Kind(parse, "one of " + ", ".join(filter(None, names)), names)


def _switch(text: str) -> bool:
    value = text.strip().lower()
    if value in ("on", "true", "yes", "1"):
        return True
    if value in ("off", "false", "no", "0"):
        return False
    raise ValueError


SWITCH = Kind(_switch, "on or off", ("on", "off"))


def or_model(kind: Kind) -> Kind:
    """The same, or `auto` (None): as the model's own files ask."""

    def parse(text: str) -> Any:
        return None if text.strip().lower() == "auto" else kind.parse(text)

    return replace(kind, parse=parse, allowed=f"{kind.allowed}; or auto: as the model's files ask")


def names(most: int, alone: str, allowed: str) -> Kind:
    """Up to `most` names, each once; the name `alone` stands without others."""

    def parse(text: str) -> Names:
        found = Names(name.strip() for name in _texts(text))
        if not all(found):
            raise ValueError
        if len(found) > most:
            raise Wrong(f"there are {len(found)}, and at most {most} are allowed")
        if len(found) > 1 and any(name.lower() == alone for name in found):
            raise Wrong(f"'{alone}' stands without others")
        if len({os.path.normpath(name) for name in found}) < len(found):
            raise Wrong("one stands in it twice")
        return found

    return Kind(parse, allowed, written=_written_names, joined=_joined)


def _joined(texts: list[str]) -> str:
    return texts[0] if len(texts) == 1 else json.dumps(texts, ensure_ascii=False)


def _texts(text: str) -> Texts:
    if text.strip()[:1] not in ("[", ""):
        return Texts((text,))
    try:
        found = json.loads(text or "[]")
    except RecursionError:
        raise ValueError from None
    if not isinstance(found, list) or not all(isinstance(part, str) and part for part in found):
        raise ValueError
    if len(found) > MOST_PARTS:
        raise ValueError
    return Texts(found)


def _biases(text: str) -> Biases:
    pairs = [part.partition(":") for part in text.split(",") if part.strip()]
    found = [(int(id), float(bias)) for id, _, bias in pairs]
    if len(found) > MOST_PARTS or any(id < 0 or not abs(bias) <= LARGEST_BIAS for id, bias in found):
        raise ValueError
    return Biases(found)


def _written(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else format_value(value)


def _written_texts(value: Any) -> str:
    whole = isinstance(value, list | tuple) and all(isinstance(part, str) for part in value)
    return json.dumps(list(value)) if whole else format_value(value)


def _written_names(value: Any) -> str:
    return value if isinstance(value, str) else _written_texts(value)


def _written_biases(value: Any) -> str:
    pairs = list(value.items()) if isinstance(value, dict) else value
    whole = isinstance(pairs, list | tuple) and all(isinstance(pair, list | tuple) and len(pair) == 2 for pair in pairs)
    return ",".join(f"{id}:{bias}" for id, bias in pairs) if whole else format_value(value)


MOST_PARTS = 1000
LARGEST_BIAS = 1000.0
TEXTS = Kind(_texts, 'a text, or a JSON list of texts: ["END", "\\n\\n"]; [] for none', written=_written_texts)
BIASES = Kind(
    _biases,
    "token ids and what is added to their logits, as 11:-100,50256:5 (from -1000 to 1000)",
    written=_written_biases,
)


def format_value(value: Any) -> str:
    """The text that a setting's kind reads back to `value`."""
    if value is None:
        return "auto"
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, Names):
        return _joined(list(value)) if value else ""
    if isinstance(value, Texts):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Biases):
        return ",".join(f"{id}:{bias:g}" for id, bias in value)
    if isinstance(value, tuple):
        return ",".join(value)
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)
