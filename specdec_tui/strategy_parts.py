"""Which models of a pair a strategy runs on and with, and whether they can read a prompt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from specdec_tui.run_settings import Writer, from_the_model, rounds_of
from specdec_tui.setting_kinds import Biases
from specdec_tui.settings import Settings

if TYPE_CHECKING:
    from specdec_tui.backends.loading import Pair
    from specdec_tui.backends.model import CausalModel
    from specdec_tui.backends.tokenizer import Prompt, PromptTokenizer
    from specdec_tui.decoding.drafters import Drafter
    from specdec_tui.decoding.ngram import NgramStore

OWN_TOKENS = (
    "written in the drafter's own tokenizer: token ids, and tokens a second, are its own and not to be compared with "
    "the target's"
)
UNBIASED = "logit-bias names token ids of the target: it is not applied here"


def models_of(pair: Pair) -> dict[str, CausalModel]:
    """A pair's models by what they are in it: target, drafter, drafter-2…"""
    drafters = enumerate(pair.drafters, 1)
    return {"target": pair.target} | {f"drafter-{n}" if n > 1 else "drafter": one.model for n, one in drafters}


def writer_of(pair: Pair, name: str) -> Writer:
    """What writes a strategy's text: with the tokenizer and ends of the drafter where that runs alone and has own."""
    from specdec_tui.decoding.strategies import STRATEGIES as ROWS

    if name in ROWS and ROWS[name].runs_on == "drafter" and pair.drafters and (own := pair.drafters[0].other):
        return Writer(pair.drafters[0].model, own.tokenizer, own.end_ids, {})
    return Writer(pair.target, pair.tokenizer, pair.end_ids, pair.asked)


class AsRead(NamedTuple):
    """A prompt as the model that goes on with it reads it, with its tokenizer, and what decides its rounds.

    `refusal`: why it cannot read it, where it cannot.
    """

    tokenizer: PromptTokenizer
    prompt: Prompt
    rounds: dict[str, Any]
    notices: tuple[str, ...]
    refusal: str = ""


def as_read(
    pair: Pair,
    name: str,
    prompt: str,
    history: Sequence[tuple[str, str]],
    settings: Settings,
    cancelled: Callable[[], bool],
) -> AsRead:
    """ValueError where the target's tokenizer fails over it, and `in_time.Stopped`, as its `encode`."""
    from specdec_tui.backends.tokenizer import Prompt

    own = writer_of(pair, name)
    try:
        given = own.tokenizer.encode(prompt, history if settings.chat else (), settings.chat, cancelled)
    except ValueError as error:
        if own.tokenizer is pair.tokenizer:
            raise
        return AsRead(own.tokenizer, Prompt([], ""), {}, (), str(error))  # what does not need it runs all the same
    return read_as(pair, name, given, settings)


def read_as(pair: Pair, name: str, given: Prompt, settings: Settings) -> AsRead:
    """A prompt whose ids are known."""
    own = writer_of(pair, name)
    if own.tokenizer is pair.tokenizer:
        asked = from_the_model(settings, own.asked)
        return AsRead(own.tokenizer, given, rounds_of(own, settings), (*([asked] if asked else []), *given.notices))
    # Ids in a setting are the target's.
    rounds = rounds_of(own, replace(settings, logit_bias=Biases()))
    notices = (*given.notices, OWN_TOKENS, *([UNBIASED] if settings.logit_bias else []))
    return AsRead(own.tokenizer, given, rounds, notices)


def unfit(whose: str, model: CausalModel, ids: Sequence[int]) -> str | None:
    """Why a model cannot read these ids; None where it can."""
    unknown = [token for token in ids if token >= model.vocab_size]
    if not unknown:
        return None
    return f"the prompt has tokens that the {whose} does not know: {unknown[:3]}"


def parts_of(pair: Pair, name: str, settings: Settings, store: NgramStore | None) -> tuple[CausalModel, Drafter | None]:
    """The model that a strategy runs on, and what drafts for it. ValueError when there is no such thing."""
    from specdec_tui.decoding.strategies import STRATEGIES as ROWS
    from specdec_tui.decoding.strategies import Parts, build_drafter

    drafter = build_drafter(name, Parts(settings, pair.target, pair.drafters, store))
    return models_of(pair)[ROWS[name].runs_on], drafter
