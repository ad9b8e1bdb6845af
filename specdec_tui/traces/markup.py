"""Text that others wrote, safe inside HTML: escaped, with what a browser would obey or drop made visible."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from unicodedata import category

_BIDI = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_BLANKS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


def safe(text: object) -> str:
    """`text` for an element or a quoted attribute. Controls, bidirectional ones too, become symbols."""
    written = str(text)
    if not written.isprintable():
        written = "".join(map(_symbol, written))
    return escape(written, quote=True)


def spelled(text: str) -> str:
    """A piece of text inside a sentence: its blanks visible, an empty piece (inside a character) as ∅. Not escaped."""
    return text.translate(_BLANKS) or "∅"


def element(name: str, *parts: str, **attributes: object) -> str:
    """`<name …>parts</name>`; parts are HTML already, attributes are made safe (`class_` for class)."""
    written = "".join(f' {key.rstrip("_").replace("_", "-")}="{safe(value)}"' for key, value in attributes.items())
    return f"<{name}{written}>{''.join(parts)}</{name}>"


def table(head: Iterable[str], rows: Iterable[Iterable[str]], class_: str = "") -> str:
    """A table of texts; the first cell of each row heads it."""
    titles = "".join(element("th", safe(word), scope="col") for word in head)
    body = "".join("<tr>" + "".join(_cell(column, word) for column, word in enumerate(row)) + "</tr>\n" for row in rows)
    headings = f"<thead><tr>{titles}</tr></thead>" if titles else ""
    return element("div", element("table", headings, f"<tbody>{body}</tbody>", class_=class_), class_="wide")


def _cell(column: int, word: str) -> str:
    return element("td", safe(word)) if column else element("th", safe(word), scope="row")


def _symbol(character: str) -> str:
    code = ord(character)
    if character in "\n\t":
        return character
    if code < 32:
        return chr(0x2400 + code)
    if character in _BIDI:
        return "⇆"
    kind = category(character)
    if kind == "Cc":
        return "␦"
    return "\N{REPLACEMENT CHARACTER}" if kind == "Cs" else "␤" if kind in ("Zl", "Zp") else character
