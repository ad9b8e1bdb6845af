"""Drafts of a model with another tokenizer, by way of text: it writes, the target's tokenizer reads.

Universal assisted generation (Gante et al. 2024, in transformers). The drafter writes greedily, without a look at what
verification draws, so a draft is one-hot and any rule stays exact.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from specdec_tui.backends.model import CausalModel
from specdec_tui.decoding.alignment import Follower
from specdec_tui.decoding.drafters import DraftSetup, Proposal
from specdec_tui.decoding.rows import Scores
from specdec_tui.decoding.sampling import best_id

if TYPE_CHECKING:
    from specdec_tui.backends.translation import Translation

_STEPS = 4  # of the drafter, at most, for each draft, and as many more


class RetokenizeDrafter:
    """A smaller model of another tokenizer, whose text is cut into the target's tokens.

    Only drafts that what it would write next cannot change are proposed, so it writes a little ahead of them.
    """

    goes_step_by_step = "the drafter's tokenizer is not the target's"

    def __init__(self, model: CausalModel, translation: Translation, told: str = "") -> None:
        """`told`: what every run of it says of itself."""
        self.model = model
        self._translation = translation
        self._follower = Follower(model, translation, by_token=False, told=told)
        self._end_ids: frozenset[int] = frozenset()

    @property
    def notice(self) -> str:
        return self._follower.notice

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self._end_ids = setup.end_ids
        self._follower.start(ids, setup)

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        proposal = Proposal()
        for token in self._written(ids, most)[:most]:
            proposal.add(token, None)
            if token in self._end_ids:
                break
        return proposal

    def draft_one(self, text: Sequence[int], position: int) -> tuple[int, None] | None:
        """The token that it would put behind `text`; None where it does not know one."""
        found = self.propose(text, 1, position).ids
        return (found[0], None) if found else None

    def _written(self, ids: Sequence[int], most: int) -> list[int]:
        """Target ids of what the drafter writes behind a text, `most` of them or what it comes to."""
        spelling = self._translation.drafter
        own = self._follower.alignment.behind(ids)
        if own is None:
            return []
        text, written, found = self._translation.target.text(ids[-_LOOKED_AT:]), b"", list[int]()
        for _ in range(_STEPS * (most + 1)):
            logits = self._follower.logits(own)
            if logits is None:
                break
            token = best_id(logits)
            if token not in spelling.bytes_of:  # it has ended its text, or says what no text can say
                return self._translation.written(text, written, ended=True) or []
            own, written = [*own, token], written + spelling.bytes_of[token]
            read = self._translation.written(text, written, ended=False)
            if read is None and (found or b" " in written[1:]):
                break  # the word that the text ends in goes on: what follows that word changes nothing of it
            found = read or []
            if len(found) >= most:
                break
        return found

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        self._follower.alignment.cut(kept)

    def synchronize(self) -> None:
        self.model.synchronize()


_LOOKED_AT = 24  # tokens of the target's text that are looked at where the drafter's goes on
