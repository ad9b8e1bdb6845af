"""Several drafters at once: which strategies run with so many, and what tells them apart."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from specdec_tui.backends.pair import ModelInfo, PairInfo
from specdec_tui.decoding.figures import OF_THE_DRAFTER
from specdec_tui.settings import FIRST_ALONE, SPECULATIVE, STRATEGIES

_WITH_THE_FIRST = OF_THE_DRAFTER


def running(asked: Iterable[str], drafters: int) -> tuple[str, ...]:
    """The strategies that the setting means with so many drafters, in their order.

    `speculative` is one for each of them. Where none of those that were named one by one is loaded, the first
    takes their place.
    """
    given, own = set(asked), set(SPECULATIVE[: max(1, drafters)])
    named = {SPECULATIVE[0] if name == FIRST_ALONE else name for name in given & {*SPECULATIVE, FIRST_ALONE}}
    if SPECULATIVE[0] in given:
        named = own
    elif named:
        named = named & own or {SPECULATIVE[0]}
    return tuple(name for name in STRATEGIES if name in (named if name in SPECULATIVE else given))


def asked_for(wanted: Collection[str], asked: Iterable[str], drafters: int) -> list[str]:
    """The words of the setting that mean the strategies `wanted`; it was `asked` before.

    What is not changed stays as it was asked for: it may say more than shows with so many drafters.
    """
    given, own = set(asked), set(SPECULATIVE[: max(1, drafters)])
    words = set(wanted).difference(SPECULATIVE)
    if own.intersection(wanted) == own.intersection(running(given, drafters)):
        words |= given & {*SPECULATIVE, FIRST_ALONE}
    elif own.issubset(wanted):
        words.add(SPECULATIVE[0])
    else:
        words |= {FIRST_ALONE if name == SPECULATIVE[0] else name for name in own.intersection(wanted)}
    return sorted(words)


def shown(drafters: int) -> tuple[str, ...]:
    """The strategies that there are for a person: those of further drafters only where these are loaded."""
    return tuple(name for name in STRATEGIES if name not in SPECULATIVE[max(1, drafters) :])


def key_of(strategy: str) -> int | str:
    """The digit that a strategy has on the keyboard: 0 is the tenth; a run that was imported has none: ''."""
    return (STRATEGIES.index(strategy) + 1) % 10 if strategy in STRATEGIES else ""


def drafters_in(pair: PairInfo | None) -> int:
    return 0 if pair is None else len(pair.drafters)


def drafter_of(strategy: str, pair: PairInfo, *, falls_back: bool = False) -> ModelInfo | None:
    """The drafter that takes part in a strategy, None where none does; `falls_back`: in `ngram` the first does."""
    place = SPECULATIVE.index(strategy) if strategy in SPECULATIVE else 0
    takes_part = strategy in (*SPECULATIVE, *_WITH_THE_FIRST) or (falls_back and strategy == "ngram")
    return pair.drafters[place] if takes_part and place < len(pair.drafters) else None


def labels(pair: PairInfo | None) -> Mapping[str, str]:
    """Of the strategies with a drafter, its short name; nothing where there is but one to be with."""
    if pair is None or len(pair.drafters) < 2:
        return {}
    names = short_names([drafter.name for drafter in pair.drafters])
    return dict(zip(SPECULATIVE, names, strict=False)) | dict.fromkeys(_WITH_THE_FIRST, names[0])


def short_names(names: Sequence[str]) -> list[str]:
    """The last part of each hub id or folder, or so many of the last as tell them apart."""
    parts = [name.rstrip("/").split("/") for name in names]
    for count in range(1, max(map(len, parts)) + 1):
        found = ["/".join(part[-count:]) for part in parts]
        if len(set(found)) == len(found):
            return found
    return list(names)


def labelled(strategy: str, drafters: Mapping[str, str]) -> str:
    """A strategy with its drafter's name where `labels` has one."""
    return f"{strategy} · {drafters[strategy]}" if strategy in drafters else strategy
