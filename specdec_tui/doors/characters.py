"""Strings that others wrote – models, prompts, files, libraries – made safe for where they go.

A terminal obeys some characters instead of showing them: escape sequences recolour it, rename
its window or fill its clipboard, and bidirectional controls reorder what a reader sees.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import Any
from unicodedata import category, normalize

LONGEST_MESSAGE = 2000
"""Characters of a message of one line: what a model's file says may be of any length."""
LONGEST_NAME = 100
"""Characters of a name within a message: a token may be a page of text."""

_C1 = "␦"
_BIDI = "⇆"
_SEPARATOR = "␤"
_SURROGATE = "\N{REPLACEMENT CHARACTER}"

_SYMBOLS: dict[int, str] = {
    **{code: chr(0x2400 + code) for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: "␡",
    **dict.fromkeys(range(128, 160), _C1),
    **dict.fromkeys((1564, 8206, 8207, *range(8234, 8239), *range(8294, 8304)), _BIDI),
    0x2028: _SEPARATOR,
    0x2029: _SEPARATOR,
    **dict.fromkeys(range(55296, 57344), _SURROGATE),
}
_OBEYED = re.compile("[\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u206f]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_LINE_ENDS = re.compile(r"\r\n|[\n\r\t\v\f\x85\u2028\u2029]")


def visible(text: str) -> str:
    """`text` with every character that a terminal would obey replaced by a symbol of one cell.

    Replaced are C0 (except newline and tab), DEL, C1, bidirectional controls, U+2028, U+2029 and
    lone surrogates. One character becomes one character, so offsets into `text` stay valid.
    Zero-width joiners and variation selectors stay: emoji need them.
    """
    # isprintable is false for everything replaced here, and ten times faster than translating.
    return text if text.isprintable() else text.translate(_SYMBOLS)


def one_line(text: str) -> str:
    """`text` as a message of one line: visible, line ends as blanks, no longer than `LONGEST_MESSAGE`."""
    text = text.strip()
    if len(text) > LONGEST_MESSAGE:
        text = text[:LONGEST_MESSAGE] + " …"
    return text if text.isprintable() else visible(_LINE_ENDS.sub(" ", text))


def named(text: str) -> str:
    """A name that a file gives (a token's, a tensor's), for a message that names a few: of one line, and cut."""
    return one_line(text if len(text) <= LONGEST_NAME else text[:LONGEST_NAME] + "…")


def copyable(text: str) -> str:
    """`text` for the clipboard: as it is, but for what would make a terminal obey where it is pasted.

    Line ends of every kind, tabs and bidirectional controls stay; other controls and lone surrogates
    are symbols, as they are shown.
    """
    if text.isprintable():
        return text
    return "".join(visible(c) if c not in "\r\n\t" and category(c) in ("Cc", "Cs") else c for c in text)


def escaped(written: str) -> str:
    """JSON with what a terminal would obey as \\uXXXX: it reads back to the same text.

    C0 is escaped in JSON anyhow; lone surrogates, which no file can hold, become U+FFFD.
    """
    written = _LONE_SURROGATE.sub(_SURROGATE, written)
    return _OBEYED.sub(lambda found: f"\\u{ord(found.group()):04x}", written)


def json_text(value: Any, *, indent: int | None = 1) -> str:
    """`value` as JSON that may be shown on a terminal. ValueError for numbers that are not finite."""
    return escaped(json.dumps(value, ensure_ascii=False, allow_nan=False, indent=indent))


# What an encoding that lacks a character shows in its place.
_LIKENESSES = {
    "α": "alpha",
    "γ": "gamma",
    "τ": "tau",
    "×": "x",
    "✓": "yes",
    "✗": "no",
    "–": "-",
    "—": "-",
    "−": "-",
    "·": "|",
    "…": "...",
    "≤": "<=",
    "≥": ">=",
    "≈": "~",
    "→": "->",
    "←": "<-",
    "†": "+",
    "‡": "++",
    "¶": "P",
    "°": "o",
    "‘": "'",
    "’": "'",
    "“": '"',
    "”": '"',
}
LOOKS_ALIKE = "looks-alike"
"""The name of the codec error handler that writes likenesses, so that no output ends in an error."""


def likeness(text: str) -> str:
    """`text` in ASCII that looks like it; "?" where nothing does."""
    return "".join(c if c < "\x80" else _LIKENESSES.get(c) or _unaccented(c) for c in text)


def fit(text: str, encoding: str) -> str:
    """`text` with likenesses for what `encoding` lacks."""
    return text if text.isascii() else text.encode(encoding, LOOKS_ALIKE).decode(encoding)


def _unaccented(character: str) -> str:
    return normalize("NFKD", character).encode("ascii", "ignore").decode("ascii") or "?"


def _lacking(error: UnicodeError) -> tuple[str | bytes, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return likeness(error.object[error.start : error.end]), error.end


codecs.register_error(LOOKS_ALIKE, _lacking)
