"""The one door for strings that others wrote: models, prompts, files, libraries.

A terminal obeys some characters instead of showing them: escape sequences recolour it, rename
its window or fill its clipboard, and bidirectional controls reorder what a reader sees.
"""

from __future__ import annotations

from unicodedata import category

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


def visible(text: str) -> str:
    """`text` with every character that a terminal would obey replaced by a symbol of one cell.

    Replaced are C0 (except newline and tab), DEL, C1, bidirectional controls, U+2028, U+2029 and
    lone surrogates. One character becomes one character, so offsets into `text` stay valid.
    Zero-width joiners and variation selectors stay: emoji need them.
    """
    # isprintable is false for everything replaced here, and ten times faster than translating.
    return text if text.isprintable() else text.translate(_SYMBOLS)


def copyable(text: str) -> str:
    """`text` for the clipboard: as it is, but for what would make a terminal obey where it is pasted.

    Line ends of every kind, tabs and bidirectional controls stay; other controls and lone surrogates
    are symbols, as they are shown.
    """
    if text.isprintable():
        return text
    return "".join(visible(c) if c not in "\r\n\t" and category(c) in ("Cc", "Cs") else c for c in text)


def editable(text: str) -> str:
    """`text` for a box that shows and counts characters as they are: lines end in newlines, controls are symbols.

    Unlike `visible` it leaves bidirectional controls alone: they belong to what a person writes.
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    return "".join(visible(character) if category(character) == "Cc" else character for character in lines)
