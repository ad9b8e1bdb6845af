"""What-ifs: runs that begin behind a part of another run's text, or are that run with other settings.

Importing this module costs no torch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from specdec_tui.decoding.records import Origin, strategy_of
from specdec_tui.settings import Settings
from specdec_tui.strategy_parts import AsRead, read_as, unfit, writer_of

if TYPE_CHECKING:
    from specdec_tui.backends.loading import Pair
    from specdec_tui.decoding.ngram import NgramStore


@dataclass(frozen=True, slots=True)
class WhatIf:
    """One what-if to be played.

    `name`: that of its steps, `speculative~1`. `settings`: all that it runs with, the changes of its `origin` among
    them; their length counts the `given` tokens. `prompt_text` and `prompt_tokens`: exactly what was read by the run
    that it is a what-if of, where that is a what-if too by the one that it began with. `given`: ids of the new tokens
    that it goes on behind, `origin.given` of them. `weights`: the form that the target's have in it; empty: as loaded.
    """

    name: str
    origin: Origin
    settings: Settings
    prompt_text: str
    prompt_tokens: int
    given: tuple[int, ...] = ()
    weights: str = ""

    @property
    def strategy(self) -> str:
        return strategy_of(self.name)


def as_read_before(pair: Pair, request: WhatIf, last: Mapping[str, AsRead], cancelled: Callable[[], bool]) -> AsRead:
    """The prompt of a what-if exactly as it was read before: by the `last` run, else read again from its text.

    ValueError, in one line, where the models loaded now read it otherwise, and `in_time.Stopped`.
    """
    from specdec_tui.backends.tokenizer import Prompt
    from specdec_tui.decoding.strategies import STRATEGIES as ROWS

    if request.strategy not in ROWS:
        raise ValueError(f"there is no strategy '{request.strategy}' here")
    if ROWS[request.strategy].searches and request.given:
        raise ValueError("a search cannot be gone on with from the middle of its text")
    writer = writer_of(pair, request.strategy)
    if problem := unfit(ROWS[request.strategy].runs_on, writer.model, request.given):
        raise ValueError(problem)  # of a trace that others wrote: no tokenizer has a text for them
    for known in last.values():
        if known.tokenizer is writer.tokenizer and known.prompt.text == request.prompt_text:
            prompt = known.prompt
            break
    else:
        prompt = Prompt(writer.tokenizer.read_again(request.prompt_text, cancelled), request.prompt_text)
    if len(prompt.ids) != request.prompt_tokens:
        raise ValueError(
            f"these models read the prompt as {len(prompt.ids):,} tokens, not the {request.prompt_tokens:,} of "
            "the run: no what-if of it would be exact"
        )
    return read_as(pair, request.strategy, prompt, request.settings)


def new_store_of(settings: Settings) -> NgramStore:
    """An empty n-gram store as the settings ask for."""
    from specdec_tui.decoding.strategies import new_store

    return new_store(settings)
