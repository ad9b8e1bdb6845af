"""Drafts of a model with another tokenizer, from the tokens that both have.

Token-level intersection (TLI): Timor et al. 2025, arXiv 2502.05202. The drafter's distribution is taken over the
tokens of the target that it has too, all others get no chance, and what is drawn is drawn from that: it is the q of
verification, and the ordinary rules stay exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch

from specdec_tui.backends.model import CausalModel
from specdec_tui.decoding.alignment import Follower
from specdec_tui.decoding.drafters import DraftSetup, DrawingDrafter
from specdec_tui.decoding.rows import Scores

if TYPE_CHECKING:
    from specdec_tui.backends.translation import Translation


class SharedDrafter(DrawingDrafter):
    """A smaller model of another tokenizer, whose distribution is mapped onto the target's vocabulary of `width`."""

    goes_step_by_step = "the drafter's tokenizer is not the target's"

    def __init__(self, model: CausalModel, width: int, translation: Translation, told: str = "") -> None:
        """`told`: what every run of it says of itself."""
        super().__init__(model)
        places = translation.place_in(width)
        places = places.masked_fill(places >= model.vocab_size, -1).to(model.device)
        self._places, self._unshared = places.clamp(min=0), places < 0
        self._follower = Follower(model, translation, by_token=True, told=told)

    @property
    def notice(self) -> str:
        return self._follower.notice

    @property
    def both(self) -> torch.Tensor:
        """Bool [width]: the ids of tokens that both have."""
        return ~self._unshared

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self.begin(ids, setup)
        self._follower.start(ids, setup)

    def logits_behind(self, text: Sequence[int]) -> torch.Tensor | None:
        own = self._follower.alignment.behind(text)
        logits = None if own is None else self._follower.logits(own)
        return None if logits is None else self.fit(logits)

    def fit(self, logits: torch.Tensor) -> torch.Tensor:
        """The drafter's logits [V'] on the target's vocabulary [V]."""
        return logits[self._places].masked_fill(self._unshared, -torch.inf)

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        self._follower.alignment.cut(kept)
