"""The registry of strategies: a new method is one new row here and a drafter of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from specdec_tui.backends.model import CausalModel, LoadedDrafter
from specdec_tui.decoding.choosing import ChoosingDrafter
from specdec_tui.decoding.drafters import AskedDrafter, Drafter, ModelDrafter
from specdec_tui.decoding.lookup import LookupDrafter
from specdec_tui.decoding.ngram import NgramDrafter, NgramStore
from specdec_tui.decoding.retokenize import RetokenizeDrafter
from specdec_tui.decoding.shared_vocabulary import SharedDrafter
from specdec_tui.settings import SPECULATIVE, Settings


@dataclass(frozen=True, slots=True)
class Parts:
    """What drafters are built from, for this target."""

    settings: Settings
    target: CausalModel
    drafters: tuple[LoadedDrafter, ...] = ()
    store: NgramStore | None = None


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row: `runs_on` says which model plays the target.

    `needs_drafter`: a drafter must be loaded, and `place` others before it. `searches`: it is a beam search, which no
    drafter helps.
    """

    name: str
    build: Callable[[Parts], Drafter | None]
    needs_drafter: bool = False
    runs_on: str = "target"
    searches: bool = False
    place: int = 0


def _nothing(parts: Parts) -> None:
    return None


def _model(parts: Parts, place: int = 0) -> AskedDrafter | None:
    if len(parts.drafters) <= place:
        return None
    drafter, width = parts.drafters[place], parts.target.vocab_size
    if drafter.other is None:
        return ModelDrafter(drafter.model, width, drafter.shared_ids)
    translation, way = drafter.other.translation, parts.settings.tokenizers
    told = "" if way == "auto" else f"drafter of another tokenizer, tokenizers {way}"
    shared = SharedDrafter(drafter.model, width, translation, told)
    retokenize = RetokenizeDrafter(drafter.model, translation, told)
    match way:
        case "shared":
            return shared
        case "retokenize":
            return retokenize
    return ChoosingDrafter(parts.target, translation, shared, retokenize)


def _ngram(parts: Parts) -> NgramDrafter:
    settings = parts.settings
    store = new_store(settings) if parts.store is None else parts.store  # an empty store is falsy
    fallback = _model(parts) if settings.ngram_unknown == "drafter" else None
    return NgramDrafter(store, settings.top_k_filler, fallback)


def _lookup(parts: Parts) -> LookupDrafter:
    return LookupDrafter(parts.settings.ngram_order)


STRATEGIES = {
    row.name: row
    for row in (
        Strategy("target", _nothing),
        Strategy("drafter", _nothing, needs_drafter=True, runs_on="drafter"),
        Strategy("speculative", _model, needs_drafter=True),
        Strategy("ngram", _ngram),
        Strategy("lookup", _lookup),
        Strategy("beam", _nothing, searches=True),
        Strategy("drafter-beam", _nothing, needs_drafter=True, runs_on="drafter", searches=True),
        *(
            Strategy(name, partial(_model, place=place), needs_drafter=True, place=place)
            for place, name in enumerate(SPECULATIVE[1:], 1)
        ),
    )
}


def new_store(settings: Settings) -> NgramStore:
    """An empty n-gram store as the settings ask for. Its owner keeps it, or calls `reset`, between prompts."""
    return NgramStore(settings.ngram_order, settings.ngram_storage)


def build_drafter(strategy: str, parts: Parts) -> Drafter | None:
    """The drafter of a strategy, None for those that decode without one.

    ValueError when the strategy is unknown or needs a drafter model and there is none. `ngram` with
    `ngram_unknown` = drafter just stops drafting at unknown contexts when there is no such model.
    """
    row = STRATEGIES.get(strategy)
    if row is None:
        raise ValueError(f"unknown strategy '{strategy}': there are {', '.join(STRATEGIES)}")
    if row.needs_drafter and (count := len(parts.drafters)) <= row.place:
        needed, loaded = "a drafter model" if not row.place else f"{row.place + 1} drafters", count or "none"
        raise ValueError(f"strategy '{strategy}' needs {needed}, and {loaded} is loaded")
    return row.build(parts)
