"""The key to a server: it goes into one header, and nowhere else."""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase

_SHOWN = "[key]"
_SHORTEST = 4  # characters of a piece that would tell something
_NO_WORD = 8  # characters of a key that no answer has by chance
_ESCAPED = frozenset('"\\/')  # by JSON with a backslash before them
_LOWER = str.maketrans(ascii_uppercase, ascii_lowercase)  # str.lower makes two characters of some


class Key:
    """A key that no repr shows. ValueError, without it, where no header may hold it."""

    __slots__ = ("_marks", "_pieces", "_spelled", "_value")

    def __init__(self, value: str) -> None:
        value = value.strip()
        if not (value.isascii() and value.isprintable()):
            raise ValueError("it has a character that no HTTP header may have: allowed are those of ASCII that print")
        self._value = value
        size = min(len(value), max(_SHORTEST, len(value) * 2 // 3))
        self._pieces = frozenset(value.lower()[at : at + size] for at in range(len(value) - size + 1)) if value else ()
        self._marks: tuple[bytes, ...] = ()
        if len(value) >= _NO_WORD:
            self._spelled = re.compile("".join(map(_spellings, value)).encode(), re.IGNORECASE)
            self._marks = value.lower().encode(), b"%", rb"\u00", *((b"\\",) if _ESCAPED & set(value) else ())

    def __bool__(self) -> bool:
        return bool(self._value)

    def __repr__(self) -> str:
        return f"Key({_SHOWN if self._value else ''})"

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._value}"} if self._value else {}

    def out_of(self, answer: bytes) -> bytes:
        """`answer` without the key, as it is or escaped as in JSON or an address.

        A key of less than 8 characters stays: an answer may have it by chance.
        """
        lower = answer.lower() if self._marks else b""
        found = any(mark in lower for mark in self._marks)  # a search for a pattern takes far longer
        return self._spelled.sub(_SHOWN.encode(), answer) if found else answer

    def hidden(self, text: str) -> str:
        """`text` without the key, and without two thirds of it: servers echo keys that they do not know."""
        if not self._pieces:
            return text
        text = self.out_of(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")
        size, lower = len(next(iter(self._pieces))), text.translate(_LOWER)
        parts, within = list[str](), 0  # up to `within` all is taken over, or of the key
        for at in range(len(text)):
            if lower[at : at + size] in self._pieces:
                if at > within or not within:
                    parts += [text[within:at], _SHOWN]
                within = at + size
        return "".join(parts) + text[within:] if parts else text


def _spellings(character: str) -> str:
    """A pattern of the ways in which JSON and addresses write it."""
    code, itself = f"{ord(character):02x}", re.escape(character)
    escaped = rf"|\\{itself}" if character in _ESCAPED else ""
    return rf"(?:{itself}|\\u00{code}|%{code}{escaped})"
