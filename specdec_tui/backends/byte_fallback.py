"""The text of ids, and of runs of bytes among them as far as they are characters.

Tokenizers that spell unknown characters in byte tokens (`<0xE4>`) decode a run of them whole or not at
all: one invalid byte turns every character of the run into U+FFFD, those before it too. Here only
invalid bytes become U+FFFD, as in any other UTF-8 text, so characters that stand stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from specdec_tui.backends.gguf.file_tokenizer import FileTokenizer
from specdec_tui.backends.growth import check_writing

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"

_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
_decoders: WeakKeyDictionary[PreTrainedTokenizerBase, str] = WeakKeyDictionary()
_known: WeakKeyDictionary[PreTrainedTokenizerBase, dict[int, int]] = WeakKeyDictionary()


def decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
    """The text of ids, exactly as the tokens spell it; TooMuch where the tokenizer may make too much of them."""
    text = _decode(tokenizer, ids, skip_special_tokens)
    if REPLACEMENT not in text or not (bytes_of := byte_tokens(tokenizer)):
        return text
    if skip_special_tokens:
        special = set(tokenizer.all_special_ids)
        ids = [token for token in ids if token not in special]
    spelling = {byte: id for id, byte in bytes_of.items()}
    if not spelling.keys() >= set(REPLACEMENT.encode()):
        return text
    return _decode(tokenizer, list(_repaired(ids, bytes_of, spelling)), skip_special_tokens)


def _decode(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int], skip_special_tokens: bool) -> str:
    text: str
    check_writing(tokenizer, len(ids))
    if may_take_long(tokenizer) and _decodes_plainly(tokenizer):
        # The same, but the interpreter is free meanwhile: one text alone holds it until it is done.
        (text,) = tokenizer.backend_tokenizer.decode_batch([list(ids)], skip_special_tokens=skip_special_tokens)
    else:
        text = tokenizer.decode(ids, skip_special_tokens=skip_special_tokens, clean_up_tokenization_spaces=False)
    return text


def _decodes_plainly(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether its library's decoder is all that it decodes with."""
    if isinstance(tokenizer, FileTokenizer):
        return True
    from transformers import TokenizersBackend

    return type(tokenizer)._decode is TokenizersBackend._decode


def may_take_long(tokenizer: PreTrainedTokenizerBase) -> bool:
    """Whether decoding is more than one walk over the text: only regular expressions are."""
    return '"Regex"' in _decoder(tokenizer)


def _decoder(tokenizer: PreTrainedTokenizerBase) -> str:
    """What a tokenizer decodes with, as JSON; empty where that is no library's."""
    if tokenizer not in _decoders:
        decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
        _decoders[tokenizer] = "" if decoder is None else decoder.__getstate__().decode()
    return _decoders[tokenizer]


def _repaired(ids: Sequence[int], bytes_of: Mapping[int, int], spelling: Mapping[int, int]) -> Iterator[int]:
    """The same ids, with U+FFFD spelled in bytes in place of invalid ones, so that every run is valid."""
    run = bytearray()
    for token in ids:
        if token in bytes_of:
            run.append(bytes_of[token])
            continue
        yield from (spelling[byte] for byte in run.decode(errors="replace").encode())
        run.clear()
        yield token
    yield from (spelling[byte] for byte in run.decode(errors="replace").encode())


def byte_tokens(tokenizer: PreTrainedTokenizerBase) -> dict[int, int]:
    """The byte of each id that stands for one; empty for a tokenizer that does not fall back to bytes."""
    if tokenizer not in _known:
        vocabulary = tokenizer.get_vocab().items() if '"ByteFallback"' in _decoder(tokenizer) else ()
        _known[tokenizer] = {id: int(found[1], 16) for token, id in vocabulary if (found := _BYTE.fullmatch(token))}
    return _known[tokenizer]
