"""The text of ids, and of runs of bytes among them as far as they are characters.

Tokenizers that spell unknown characters in byte tokens (`<0xE4>`) decode a run of them whole or not at
all: one invalid byte turns every character of the run into U+FFFD, those before it too. Here only
invalid bytes become U+FFFD, as in any other UTF-8 text, so characters that stand stay.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from weakref import WeakKeyDictionary

from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_known: WeakKeyDictionary[PreTrainedTokenizerBase, dict[int, int]] = WeakKeyDictionary()


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
    """The text of ids, exactly as the tokens spell it."""
    text: str = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
    if REPLACEMENT not in text or not (spelled := byte_tokens(tokenizer)):
        return text
    if skip_special_tokens:
        special = set(tokenizer.all_special_ids)
        ids = [token for token in ids if token not in special]
    between = text.split(REPLACEMENT)
    marks = list(_marks(tokenizer, ids, spelled))
    if sum(count for count, _ in marks) != len(between) - 1:
        return text  # another decoder than is known here
    parts, used = [between[0]], 1
    for count, meant in marks:
        parts += [meant, between[used + count - 1]]
        used += count
    return "".join(parts)


def byte_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, int]:
    """The byte of each id that stands for one; empty for a tokenizer that does not fall back to bytes."""
    if tokenizer not in _known:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        falls_back = backend is not None and '"ByteFallback"' in json.dumps(json.loads(backend.to_str())["decoder"])
        vocabulary = tokenizer.get_vocab().items() if falls_back else ()
        _known[tokenizer] = {id: int(found[1], 16) for token, id in vocabulary if (found := _BYTE.fullmatch(token))}
    return _known[tokenizer]


def _marks(
    tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], spelled: dict[int, int]
) -> Iterator[tuple[int, str]]:
    """In order, how many U+FFFD the tokenizer wrote in a row, and what they stand for."""
    run = bytearray()
    for token in (*ids, None):
        if token in spelled:
            run.append(spelled[token])
            continue
        if run:
            meant = run.decode(errors="replace")
            valid = meant.encode() == run
            yield from [(1, REPLACEMENT)] * meant.count(REPLACEMENT) if valid else [(len(run), meant)]
            run.clear()
        if token is not None:
            yield from [(1, REPLACEMENT)] * str(tokenizer.convert_ids_to_tokens(token)).count(REPLACEMENT)
