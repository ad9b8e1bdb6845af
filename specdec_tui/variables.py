"""The names of our environment variables: which are ours, and which only nearly."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

PREFIX = "SPECDEC_TUI_"
PLACES = ("CONFIG", "DATA_DIR", "CACHE_DIR")
"""Variables that name files and folders and are no settings."""
API_KEY = "API_KEY"
"""The variable of the key to a target's server. It is no setting: those are shown, and stand in files."""
SERVE_TOKEN = "SERVE_TOKEN"
"""That of the token that browsers have to show."""
SECRETS = (API_KEY, SERVE_TOKEN)

_OURS = re.compile("^SPECDEC_?TUI_?(?=.)", re.IGNORECASE)  # a name that is meant for us, if not quite spelt so
_NEAR = 0.8  # how much of two spellings has to be the same


def setting_in(key: str, settings: Iterable[str]) -> str:
    """What stands behind our prefix in a variable's name, or behind what is nearly it (`SPECDEC_GAMMA`).

    Empty for variables of others, and for those of places and the key. The setting need not be one of `settings`.
    """
    word = _behind_nearly_ours(key, settings) or _OURS.sub("", key)
    return "" if word == key or key.removeprefix(PREFIX) in (*PLACES, *SECRETS) else word


def what_is_meant(word: str, settings: Iterable[str]) -> str:
    """The end of a sentence on a variable that is none: the nearest one, and all that there are."""
    names = [*map(str.upper, settings), *PLACES, *SECRETS]
    near = get_close_matches(word.upper(), names, 1)
    meant = f", perhaps {PREFIX}{near[0]} is meant" if near else ""
    return f"{meant}: allowed are {PREFIX} and one of {', '.join(names)}"


def api_key() -> str:
    """The key to a target's server; empty where there is none."""
    return os.environ.get(PREFIX + API_KEY, "").strip()


def _behind_nearly_ours(key: str, settings: Iterable[str]) -> str:
    upper = key.upper().replace("-", "_")
    if key.upper().startswith(PREFIX):
        return ""
    for name in sorted([*map(str.upper, settings), *SECRETS], key=len, reverse=True):
        if upper.endswith(f"_{name}"):
            near = SequenceMatcher(None, upper.removesuffix(name), PREFIX).ratio()
            return name if near >= _NEAR else ""
    return ""
