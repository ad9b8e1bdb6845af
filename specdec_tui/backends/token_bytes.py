"""The bytes that each token of a tokenizer stands for.

Read from what its decoder does (the library tells its steps as JSON): an alphabet that stands for bytes, marks of words
and spaces, tokens for single bytes. Tokenizers of another kind are asked to decode.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from specdec_tui.backends.byte_fallback import REPLACEMENT, byte_tokens, decode
from specdec_tui.backends.errors import panics_raise
from specdec_tui.backends.growth import check_reading
from specdec_tui.backends.spelling import Spelling
from specdec_tui.backends.utf8 import is_word

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


def spelling_of(tokenizer: PreTrainedTokenizerBase, size: int) -> Spelling:
    """How a tokenizer spells text, in ids below `size`, that of its model's vocabulary."""

    def read(text: str) -> list[int]:
        check_reading(tokenizer, text)
        with panics_raise():
            return list(tokenizer(text, add_special_tokens=False, split_special_tokens=True)["input_ids"])

    bytes_of, keeps_spaces = _bytes_of(tokenizer, size)
    return Spelling(bytes_of, read, keeps_spaces, *_around(tokenizer))


def _around(tokenizer: PreTrainedTokenizerBase) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a tokenizer puts before a text of its model, and behind it."""
    try:
        with panics_raise():
            plain, whole = (list(tokenizer("a", add_special_tokens=own)["input_ids"]) for own in (False, True))
    except Exception:
        return (), ()
    for at in range(len(whole) - len(plain) + 1):
        if whole[at : at + len(plain)] == plain:
            return tuple(whole[:at]), tuple(whole[at + len(plain) :])
    return (), ()


def _bytes_of(tokenizer: PreTrainedTokenizerBase, size: int) -> tuple[dict[int, bytes], bool]:
    steps = list(_steps(_decoder(tokenizer)))
    kinds = {step["type"] for step in steps}
    template = str(tokenizer.chat_template or "")
    added = {id: str(token) for id, token in tokenizer.added_tokens_decoder.items()}
    special = set(tokenizer.all_special_ids) | {id for id, token in added.items() if token in template}
    special |= {id for id, token in tokenizer.added_tokens_decoder.items() if token.special}
    spelled: Callable[[str], bytes | None]
    if "ByteLevel" in kinds:
        spelled = _from_alphabet
    elif "WordPiece" in kinds:
        spelled = _of_word_piece(next(step["prefix"] for step in steps if step["type"] == "WordPiece"))
    elif kinds & {"Metaspace", "ByteFallback", "BPEDecoder"} or any(_replaced(step) for step in steps):
        single = {id: bytes([byte]) for id, byte in byte_tokens(tokenizer).items()}
        by_marks = _of_marks(steps)
        read = {id: single.get(id) or by_marks(token) for id, token in _tokens(tokenizer, size)}
        # What a vocabulary has characters for is never written in bytes.
        return _ordinary(read, added, special, last=single.keys()), True
    else:
        return _ordinary(_asked(tokenizer, size), added, special), False
    found = {id: spelled(token) for id, token in _tokens(tokenizer, size)}
    return _ordinary(found, added, special), "WordPiece" not in kinds


def _ordinary(
    found: Mapping[int, bytes | None], added: dict[int, str], special: set[int], last: Collection[int] = ()
) -> dict[int, bytes]:
    """In the order of their ids, but for the `last`. Added tokens stand for themselves, however others are spelled."""
    named = {id: added[id].encode() if id in added else text for id, text in found.items() if id not in special}
    return {id: text for id in sorted(named, key=lambda id: (id in last, id)) if (text := named[id])}


def _tokens(tokenizer: PreTrainedTokenizerBase, size: int) -> Iterator[tuple[int, str]]:
    return ((id, token) for token, id in tokenizer.get_vocab().items() if id < size)


def _decoder(tokenizer: PreTrainedTokenizerBase) -> dict[str, Any]:
    """What a tokenizer decodes with; empty where that is no library's."""
    decoder = getattr(getattr(tokenizer, "backend_tokenizer", None), "decoder", None)
    return {} if decoder is None else json.loads(decoder.__getstate__())


def _steps(step: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "decoders" in step:
        for inner in step["decoders"]:
            yield from _steps(inner)
    elif step:
        yield step


def _replaced(step: dict[str, Any]) -> str:
    """The mark that a step replaces, wherever it stands; empty where it does something else."""
    return str(step["pattern"].get("String", "")) if step["type"] == "Replace" else ""


def _of_marks(steps: list[dict[str, Any]]) -> Callable[[str], bytes]:
    marks = [(mark, step["content"]) for step in steps if (mark := _replaced(step))]
    marks += [(step["replacement"], " ") for step in steps if step["type"] == "Metaspace"]
    marks += [(step["suffix"], " ") for step in steps if step["type"] == "BPEDecoder"]

    def spelled(token: str) -> bytes:
        for mark, content in marks:
            token = token.replace(mark, content)
        return token.encode(errors="ignore")

    return spelled


def _of_word_piece(prefix: str) -> Callable[[str], bytes]:
    def spelled(token: str) -> bytes:
        if token.startswith(prefix) and token != prefix:
            return token[len(prefix) :].encode(errors="ignore")
        return (" " + token if is_word(token[:1] or ".") else token).encode(errors="ignore")

    return spelled


def _byte_alphabet() -> dict[str, int]:
    """The characters by which byte-level vocabularies write bytes: their own where printable, else others in order."""
    own = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(256 + at): byte for at, byte in enumerate(others)}


_ALPHABET = _byte_alphabet()


def _from_alphabet(token: str) -> bytes | None:
    try:
        return bytes(_ALPHABET[character] for character in token)
    except KeyError:
        return None


def _asked(tokenizer: PreTrainedTokenizerBase, size: int) -> dict[int, bytes | None]:
    """What each token adds to a text that is decoded, behind itself: alone some lose the space before them."""
    found: dict[int, bytes | None] = {}
    for id, _ in _tokens(tokenizer, size):
        try:
            with panics_raise():
                once, twice = decode(tokenizer, [id]), decode(tokenizer, [id, id])
        except Exception:  # a token that it cannot write
            continue
        piece = twice[len(once) :] if twice.startswith(once) else ""
        found[id] = None if REPLACEMENT in piece else piece.encode(errors="ignore")
    return found
