"""Where characters and words end in bytes that are still growing."""

from __future__ import annotations

import unicodedata
from codecs import getincrementaldecoder


def whole_and_rest(data: bytes) -> tuple[bytes, bytes]:
    """`data` up to where its last character begins that is not complete, and the rest."""
    decoder = getincrementaldecoder("utf-8")("replace")
    decoder.decode(data)
    rest = decoder.getstate()[0]
    return data[: len(data) - len(rest)], rest


def is_word(character: str) -> bool:
    """Whether a character is part of a word that spaces end: not so in scripts that are written without."""
    return character.isalnum() and unicodedata.east_asian_width(character) not in "WF"


def before_the_last_word(data: bytes) -> int:
    """Bytes of whole characters before the word in which they end, and the space before that."""
    text = data.decode(errors="replace")
    begin = len(text)
    while begin and is_word(text[begin - 1]):
        begin -= 1
    if begin and text[begin - 1].isspace():
        begin -= 1
    return len(text[:begin].encode())
