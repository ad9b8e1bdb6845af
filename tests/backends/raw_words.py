"""What tells a person nothing: an exception's own words in place of what is wrong with a model's files."""

from __future__ import annotations

import re

# What Python and torch say over their own variables. On its own here: the product's list may not judge itself.
# What a template reaches for ("… of 'str' object is unsafe") is the template's own doing.
_RAW = re.compile(
    r"is not there|has no attribute|'\w+' object(?! is unsafe)|\b[A-Z]\w*(?:Error|Exception)\b"
    r"|storage object|unsupported operand|unhashable|invalid literal|cannot convert|could not convert"
    r"|argument must be|argument '\w+'|not supported between|too big to convert|[Oo]verflow|negative dimension"
    r"|<class '|update sequence element|positional argument|keyword argument"
    r"|not subscriptable|NoneType|index out of range|another dtype|Traceback|one of its sizes"
)


def raw_words(message: str) -> str:
    """The first such words in a message; empty where it has none."""
    found = _RAW.search(message)
    return found[0] if found else ""
