"""How much longer a tokenizer can make a text, told by its steps alone: forty that double it are a terabyte of "a".

A model's files choose the steps by which a text becomes tokens and tokens text. What each of them can make of
a character multiplies; a product that the memory has no room for is refused before a library fills it.
"""

from __future__ import annotations

import json
from math import prod
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

ROOM = 1 << 28  # characters that a text may become
_SEQUENCES = ("normalizers", "pretokenizers", "processors", "decoders")
# Steps of which a few in a row are usual, and each makes up to so much of a character: maps of characters, bytes in
# place of characters.
_USUAL = {"Precompiled": 4, "ByteLevel": 2}

_known: WeakKeyDictionary[PreTrainedTokenizerBase, tuple[int, int]] = WeakKeyDictionary()


class TooMuch(ValueError):
    """A text that may become too long."""

    def __init__(self, times: int) -> None:
        much = f"{times:,}" if times < 10**12 else "more than a trillion"
        super().__init__(f"it can make {much} times as much of it, for which there is no room")


def check_reading(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    """TooMuch where a text may become too long while it is cut into tokens."""
    if len(text) * (times := _growths(tokenizer)[0]) > ROOM:
        raise TooMuch(times)


def check_writing(tokenizer: PreTrainedTokenizerBase, tokens: int) -> None:
    """TooMuch where the text of so many tokens may become too long."""
    if tokens * (times := _growths(tokenizer)[1]) > ROOM:
        raise TooMuch(times)


def _growths(tokenizer: PreTrainedTokenizerBase) -> tuple[int, int]:
    if tokenizer not in _known:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        steps = {name: getattr(backend, name, None) for name in ("normalizer", "pre_tokenizer", "post_processor")}
        _known[tokenizer] = prod(map(_of, steps.values())), _of(getattr(backend, "decoder", None))
    return _known[tokenizer]


def _of(part: Any) -> int:
    """Of a part of a library's tokenizer, which tells its steps as JSON."""
    return 1 if part is None else growth(json.loads(part.__getstate__()))


def growth(step: dict[str, Any]) -> int:
    """How many characters (or tokens) a step can make of one, steps within it included."""
    inner = [growth(one) for name in _SEQUENCES for one in step.get(name) or ()]
    kind = step.get("type")
    if kind == "Replace":
        # An expression may match between any two characters.
        replaced = len(step["pattern"]["String"]) if "String" in step["pattern"] else 0
        inner.append(-(-len(step["content"]) // replaced) if replaced else 1 + len(step["content"]))
    elif kind == "Prepend":
        inner.append(1 + len(step["prepend"]))
    elif kind == "TemplateProcessing":
        inner.append(sum("Sequence" in part for part in step["single"]))
    return prod(max(1, one) for one in [*inner, _USUAL.get(str(kind), 1)])
