"""What tells a person nothing: an exception's own words in place of what is wrong with a model's files."""

from __future__ import annotations

import re

# What Python and torch say over their own variables. On its own here: the product's list may not judge itself.
_RAW = re.compile(
    r"is not there|has no attribute|'\w+' object|\b[A-Z]\w*(?:Error|Exception)\b|storage object|unsupported operand"
    r"|unhashable|invalid literal|cannot convert|could not convert|argument must be|argument '\w+'"
    r"|not supported between|too big to convert|[Oo]verflow|negative dimension"
    r"|<class '|update sequence element|positional argument|keyword argument"
    r"|not subscriptable|NoneType|index out of range|another dtype|Traceback|one of its sizes"
)


def raw_words(message: str) -> str:
    """The first such words in a message; empty where it has none."""
    found = _RAW.search(message)
    return found[0] if found else ""
