"""Which way a drafter of another tokenizer drafts: by the tokens that both have, or by way of text."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from specdec_tui.backends.answering import Answering
from specdec_tui.backends.model import CausalModel, Expecting, ReadingApart
from specdec_tui.decoding.drafters import DraftSetup, Proposal
from specdec_tui.decoding.retokenize import RetokenizeDrafter
from specdec_tui.decoding.rows import Row, Scores
from specdec_tui.decoding.sampling import best_ids
from specdec_tui.decoding.shared_vocabulary import SharedDrafter

if TYPE_CHECKING:
    from specdec_tui.backends.translation import Translation

ENOUGH = 0.9  # of the target's probability: below that too much of what it says could never be drafted
_POSITIONS = 48  # of the prompt
_WRITTEN = 16  # positions of what the target writes, where the prompt is read apart


class ChoosingDrafter:
    """Looks at each prompt, before it is drafted for, how much of what the target may say both tokenizers have.

    The target's plain probabilities at the last positions of the prompt say so: one pass, part of the prefill, and of
    the text at hand, be it prose, code or another script. Special tokens do not count: neither way drafts them.
    """

    goes_step_by_step = "the drafter's tokenizer is not the target's"

    def __init__(
        self,
        target: CausalModel,
        translation: Translation,
        shared: SharedDrafter,
        retokenize: RetokenizeDrafter,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._target, self._clock = target, clock
        self._ways = (shared, retokenize)
        self._chosen: SharedDrafter | RetokenizeDrafter = retokenize
        self._ordinary = translation.ordinary(target.vocab_size).to(target.device)
        self._both = shared.both.to(target.device)
        self._choice = ""

    @property
    def notice(self) -> str:
        return "; ".join(filter(None, (self._choice, self._chosen.notice)))

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        begin = self._clock()
        rows = _looked_at(self._target, ids, setup)
        share = self.share(rows)
        self._chosen = self._ways[0] if share >= ENOUGH else self._ways[1]
        seconds = self._clock() - begin
        way = "shared" if share >= ENOUGH else "retokenize"
        self._choice = (
            f"drafter of another tokenizer, tokenizers {way}: {100 * share:.3g} % of the target's probability lies on "
            f"the {int(self._both.sum()):,} tokens that both have (looked at {len(rows)} positions for {seconds:.2g} s "
            "of the prefill)"
        )
        self._chosen.start(ids, setup)

    def share(self, logits: torch.Tensor) -> float:
        """Of the target's probability of ordinary tokens, the part on those of both: from logits [n, V]."""
        rows = logits.float().softmax(-1)
        return float(rows[:, self._both].sum() / rows[:, self._ordinary].sum())

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        return self._chosen.propose(ids, most, position)

    def draft_one(self, text: Sequence[int], position: int) -> tuple[int, Row | None] | None:
        return self._chosen.draft_one(text, position)

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        self._chosen.settle(ids, kept, scores)

    def synchronize(self) -> None:
        self._chosen.synchronize()


def _looked_at(target: CausalModel, ids: Sequence[int], setup: DraftSetup) -> torch.Tensor:
    """The target's logits [n, V] at some positions of a text that begins with `ids`."""
    if not isinstance(target, ReadingApart):
        # What a text begins with is what models were trained to see there.
        some = [*ids[:1], *ids[1:][-(_POSITIONS - 1) :]]
        if isinstance(target, Answering):
            some = some if len(some) > 1 else [*some, some[0]]
            return torch.stack(list(target.reference(some[:1], some[1:], setup.cancelled)))
        return target.open(capacity=len(some)).extend(some, keep=len(some))
    context = target.open(capacity=len(ids) + _WRITTEN)
    if isinstance(context, Expecting):
        context.expect(len(ids) - setup.given)
    rows = [context.extend(list(ids), keep=1)]
    for _ in range(_WRITTEN - 1):
        rows.append(context.extend([best_ids(rows[-1])[0]], keep=1))
    return torch.cat(rows)
