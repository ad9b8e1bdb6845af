"""What a tab's process and the process with the models tell each other: frozen records, pickled.

They travel over a pair of sockets that were made for one another, so nobody else can take part: no address, no key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specdec_tui.backends.pair import Health, PairInfo, Progress
from specdec_tui.decoding.records import Event
from specdec_tui.session import Waiting
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.what_ifs import WhatIf


@dataclass(frozen=True, slots=True)
class Welcome:
    """The first thing a tab hears: what it begins with."""

    settings: Settings
    choice: ModelChoice


# What a tab asks for


@dataclass(frozen=True, slots=True)
class Load:
    choice: ModelChoice


@dataclass(frozen=True, slots=True)
class Prepare:
    settings: Settings


@dataclass(frozen=True, slots=True)
class Run:
    prompt: str
    settings: Settings
    again: bool
    aside: bool


@dataclass(frozen=True, slots=True)
class PlayWhatIfs:
    requests: tuple[WhatIf, ...]


@dataclass(frozen=True, slots=True)
class NewChat:
    pass


@dataclass(frozen=True, slots=True)
class LookAfter:
    pass


Wish = Load | Prepare | Run | PlayWhatIfs | NewChat | LookAfter


@dataclass(frozen=True, slots=True)
class Asked:
    """A wish, and the number that its answers will carry."""

    number: int
    wish: Wish


@dataclass(frozen=True, slots=True)
class Cancel:
    """What was asked under this number is to end; its answers come to their end all the same."""

    number: int


# What it hears


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """What answers, and what it runs on."""

    info: PairInfo
    environment: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    number: int
    item: Progress | LoadedPair | Health | Waiting | Event


@dataclass(frozen=True, slots=True)
class Done:
    """The last answer to what was asked."""

    number: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The last answer, in the place of `Done`."""

    number: int
    error: Exception


class EngineFailed(Exception):
    """A fault behind the engine, in one line."""
