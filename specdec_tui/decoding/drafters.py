"""What proposes drafts: the protocol of all drafters, and the drafter that is a smaller model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch

from specdec_tui.backends.model import CausalModel, ModelContext, longest_text
from specdec_tui.decoding.controls import Controls
from specdec_tui.decoding.ending import Ending
from specdec_tui.decoding.prompt import read_prompt
from specdec_tui.decoding.rows import Row, Scores, processed_row
from specdec_tui.decoding.rules import Rule
from specdec_tui.decoding.sampling import Dice, Sampler


@dataclass(frozen=True, slots=True)
class Proposal:
    """Drafts of one round; `rows` holds the drafter's scores (`Row`) for each, None where q is one-hot.

    Scores are processed probabilities, or logits under greedy sampling. They are the very rows
    the drafts were drawn from.
    """

    ids: list[int] = field(default_factory=list)
    rows: list[Row | None] = field(default_factory=list)

    def add(self, token: int, row: Row | None) -> None:
        self.ids.append(token)
        self.rows.append(row)

    def cut(self, ending: Ending, text: Sequence[int]) -> None:
        """Drop what follows the first end of `text` and the drafts: it could never be part of it."""
        grown = list(text)
        for index, token in enumerate(self.ids):
            grown.append(token)
            if ending.at(grown):
                del self.ids[index + 1 :], self.rows[index + 1 :]
                return


@dataclass(frozen=True, slots=True)
class DraftSetup:
    """What a drafter must know of the run it drafts for. `capacity`: most tokens the text can reach.

    `given`: so many of the ids that it starts with, the last ones, are new tokens, behind the prompt.
    """

    sampler: Sampler
    rule: Rule
    dice: Dice
    end_ids: frozenset[int]
    capacity: int
    use_cache: bool = True
    controls: Controls = field(default_factory=Controls)
    cancelled: Callable[[], bool] = lambda: False
    given: int = 0


class Drafter(Protocol):
    """Proposes what may come next. `start` begins each run; one run at a time."""

    @property
    def notice(self) -> str:
        """A sentence the reader must know about this run (drafts missing, and why); else empty."""
        ...

    @property
    def goes_step_by_step(self) -> str:
        """Why its rounds cannot be played as captured programs; empty where they can."""
        ...

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        """Take in what the run begins behind. This time counts as prefill. `prompt.Stopped` where it was cancelled."""
        ...

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        """At most `most` >= 1 drafts to follow `ids`, the whole text; the first is for `position`."""
        ...

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        """A round (or the prefill) is over: the text is now `ids`.

        Of what was drafted and of the text before, the first `kept` tokens hold. `scores` [n, V]
        are the target's rows that made the tokens from index kept−n+1 on.
        """
        ...

    def synchronize(self) -> None:
        """Wait for the drafter's device."""
        ...


class AskedDrafter(Drafter, Protocol):
    """One that can also be asked for a single draft, behind those of another drafter."""

    def draft_one(self, text: Sequence[int], position: int) -> tuple[int, Row | None] | None:
        """The token it would put behind `text`, and its row; None where it has none."""
        ...


class DrawingDrafter:
    """A smaller model that draws its drafts from a distribution over the target's vocabulary.

    What it thinks of a text is `logits_behind`; sampler, controls and rule are the run's, so what a draft is drawn
    from is what verification is given.
    """

    goes_step_by_step = ""

    def __init__(self, model: CausalModel) -> None:
        self.model = model
        self._setup: DraftSetup | None = None
        self._prompt = 0  # tokens

    def begin(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self._setup, self._prompt = setup, len(ids) - setup.given

    def logits_behind(self, text: Sequence[int]) -> torch.Tensor | None:
        """Logits [V] of what follows the target's `text`; None where nothing is to be drafted."""
        raise NotImplementedError

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        proposal, text = Proposal(), list(ids)
        for place in range(position, position + most):
            drawn = self.draft_one(text, place)
            if drawn is None:
                break
            proposal.add(*drawn)
            text.append(drawn[0])
            if drawn[0] in self._running.end_ids:
                break
        return proposal

    def draft_one(self, text: Sequence[int], position: int) -> tuple[int, Row] | None:
        """The token the drafter would put behind `text`, and its row; None when `text` does not fit."""
        logits = self.logits_behind(text)
        if logits is None:
            return None
        controls = self._running.controls
        logits = controls.apply(logits[None], text, self._prompt)[0]
        if controls.asked and float(logits.amax()) == -torch.inf:
            return None  # all that it could draft is forbidden
        sampler = self._running.sampler
        row = logits if sampler.is_greedy else processed_row(sampler, logits)
        return self._running.rule.draw(row, position, self._running.dice), row

    def synchronize(self) -> None:
        self.model.synchronize()

    @property
    def _running(self) -> DraftSetup:
        assert self._setup is not None, "start comes first"
        return self._setup


class ModelDrafter(DrawingDrafter):
    """A smaller model of the same tokenizer.

    `width` is the target's vocabulary size: the drafter's rows are cut or padded to it, and
    `shared_ids` (bool [width], None for all) marks the ids that mean the same on both sides; all
    others get probability zero here. Ids the drafter has no embedding for are fed to it as id 0:
    that can only cost acceptance, never correctness.
    """

    def __init__(self, model: CausalModel, width: int, shared_ids: torch.Tensor | None = None) -> None:
        super().__init__(model)
        self._width = width
        self._unshared = None if shared_ids is None else ~shared_ids.to(model.device)
        self._context: ModelContext | None = None
        self._limit: int | None = None
        self._notice = ""

    @property
    def notice(self) -> str:
        return self._notice

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self.begin(ids, setup)
        self._limit = limit = longest_text(self.model, self._prompt)
        capacity = setup.capacity if limit is None else min(setup.capacity, limit)
        self._notice = ""
        self._context = self.model.open(use_cache=setup.use_cache, capacity=capacity)
        if limit is None or len(ids) <= limit:
            known = self._known(ids)
            read_prompt(self.model, self._context, known, setup.use_cache, setup.cancelled, setup.given)

    def logits_behind(self, text: Sequence[int]) -> torch.Tensor | None:
        """Everything not fed yet goes in at once: usually one token, two after a full acceptance."""
        assert self._context is not None, "start comes first"
        if self._limit is not None and len(text) > self._limit:
            limit = self.model.context_length
            self._notice = f"the drafter's context of {limit} tokens is full: no more drafts from it"
            return None
        self.rewind(len(text) - 1)  # the last token is always fed: its logits are what is asked for
        fresh = text[self._context.length :]
        return self.fit(self._context.extend(self._known(fresh), keep=1)[0])

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        self.rewind(kept)

    def rewind(self, length: int) -> None:
        """Forget what was fed beyond `length` tokens of the text, if anything."""
        assert self._context is not None, "start comes first"
        if self._context.length > length:
            self._context.rewind(length)

    def _known(self, ids: Sequence[int]) -> list[int]:
        size = self.model.vocab_size
        return [token if token < size else 0 for token in ids]

    def fit(self, logits: torch.Tensor) -> torch.Tensor:
        """The drafter's logits [V'] on the target's vocabulary [V]."""
        if logits.shape[-1] != self._width:
            logits = logits[: self._width]
            missing = self._width - logits.shape[-1]
            logits = torch.nn.functional.pad(logits, (0, missing), value=-torch.inf)
        return logits if self._unshared is None else logits.masked_fill(self._unshared, -torch.inf)
