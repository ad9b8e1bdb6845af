"""Text that others wrote, safe inside HTML: escaped, with what a browser would obey or drop made visible."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape

from specdec_tui.doors.characters import visible

_BLANKS = str.maketrans({" ": "·", "\n": "↵", "\t": "⇥"})


def safe(text: object) -> str:
    """`text` for an element or a quoted attribute. Controls, bidirectional ones too, become symbols."""
    return escape(visible(str(text)), quote=True)


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
