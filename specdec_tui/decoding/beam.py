"""Beam search over one text, step for step as transformers' `generate(num_beams=…, do_sample=False)` does it.

Its sums, its order of ties and its three ways to stop are those of `GenerationMixin._beam_search` (transformers 5), so
that in float32 the ids are the same. What it adds is how much of the text no hypothesis can change any more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from specdec_tui.decoding.records import Insight

_NEVER = -1.0e9  # what transformers adds to a score that must not win
_DEAD = -1.0e8


@dataclass(frozen=True, slots=True)
class Beams:
    """How a search is done: how many texts at once, and what `generate` takes under the same names.

    `length_penalty`: the sum of log-probabilities of an ended text is divided by its new tokens to this power.
    `early_stopping`: `on` ends with as many ended texts as beams, `off` where no beam can improve on them as it is,
    `never` where none can at whatever length.
    """

    width: int = 4
    length_penalty: float = 1.0
    early_stopping: str = "off"


@dataclass(eq=False, slots=True)
class Node:
    """The last token of a text, and the text before it. `log_p`: what it added to the text's score.

    `row`: of the log-probabilities of its step. `insight`: of its place, once somebody has looked.
    """

    id: int
    before: Node | None
    length: int
    log_p: float
    row: int
    insight: Insight | None = None


def path(end: Node | None, behind: int = 0) -> list[Node]:
    """The tokens of a text behind the first so many, in order."""
    found: list[Node] = []
    while end is not None and end.length > behind:
        found.append(end)
        end = end.before
    return found[::-1]


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A text with its score, divided by its length as an ended one's is."""

    end: Node
    score: float
    ended: bool


class Search:
    """A search in progress. `ends`: whether a text, given as its new tokens, is over; `end_count`: of end tokens."""

    def __init__(self, beams: Beams, longest: int, ends: Callable[[Sequence[int]], bool], end_count: int) -> None:
        self._beams, self._longest, self._ends = beams, longest, ends
        self._kept = max(2, 1 + end_count) * beams.width
        self._length = 0
        self._running: list[Node | None] = [None] * beams.width
        self._scores = torch.full((beams.width,), _NEVER)
        self._scores[0] = 0.0  # else all beams would be the same text
        self._ended: list[Node | None] = [None] * beams.width
        self._ended_scores = torch.full((beams.width,), _NEVER)
        self._sent = torch.zeros(beams.width, dtype=torch.bool)
        self._improvable = True
        self.parents: list[int] = []
        """Of each beam: its place among the beams of the step before."""
        self.new: list[Node] = []
        """The nodes that the last step made and that are held."""
        self.over = self._is_stopped = False

    @property
    def tokens(self) -> list[int]:
        """The last token of each beam."""
        return [node.id for node in self._running if node is not None]

    def texts(self) -> list[list[int]]:
        """The new tokens of each beam."""
        return [[each.id for each in path(node)] for node in self._running]

    def advance(self, log_probs: torch.Tensor) -> None:
        """Take a step by the log-probabilities [width, V] behind each beam; at first [1, V], behind the prompt.

        FloatingPointError where none is a number.
        """
        width, size = self._beams.width, log_probs.shape[-1]
        scores = self._scores.to(log_probs.device)
        totals = (log_probs.expand(width, size) + scores[:, None]).reshape(-1)
        values, places = (found.cpu() for found in totals.topk(min(self._kept, len(totals))))
        if not values[0] > _DEAD:
            raise FloatingPointError("no token can follow: the target's scores are not numbers, or all are forbidden")
        self._length += 1
        rows, tokens = places // size, places % size
        own = log_probs[(rows if len(log_probs) > 1 else rows * 0).to(log_probs.device), tokens.to(log_probs.device)]
        found = [
            Node(token, self._running[row], self._length, log_p, row)
            for token, row, log_p in zip(tokens.tolist(), rows.tolist(), own.tolist(), strict=True)
        ]
        hits = torch.tensor([self._is_over(node) for node in found])
        kept = (values + hits.float() * _NEVER).topk(width)[1]
        self._scores = (values + hits.float() * _NEVER)[kept]
        self._end_some(found, values, hits)
        self._running = [found[index] for index in kept.tolist()]
        self.parents = [found[index].row for index in kept.tolist()]
        self._improvable = self._improvable and self._can_improve()
        is_full = bool(self._sent.all()) and self._beams.early_stopping == "on"
        self.over = not self._improvable or is_full or bool(hits.all())
        held = {id(node) for node in (*self._running, *self._ended)}
        self.new = [node for node in found if id(node) in held]

    def _is_over(self, node: Node) -> bool:
        return node.length >= self._longest or self._ends([each.id for each in path(node)])

    def _end_some(self, found: Sequence[Node], values: torch.Tensor, hits: torch.Tensor) -> None:
        """Those of the best `width` that are over join the ended texts, of which the best are kept."""
        width = self._beams.width
        just = hits & (torch.arange(len(found)) < width)
        scores = values / (self._length**self._beams.length_penalty)
        if bool(self._sent.all()) and self._beams.early_stopping == "on":
            scores = scores + _NEVER
        if not self._improvable:
            scores = scores + _NEVER
        scores = scores + (~just).float() * _NEVER
        merged = torch.cat((self._ended_scores, scores))
        best = merged.topk(width)[1]
        ended = [*self._ended, *found]
        self._ended = [ended[index] for index in best.tolist()]
        self._ended_scores, self._sent = merged[best], torch.cat((self._sent, just))[best]

    def _can_improve(self) -> bool:
        longest = self._beams.early_stopping == "never" and self._beams.length_penalty > 0
        length = self._longest if longest else self._length
        possible = self._scores[:1] / (length**self._beams.length_penalty)
        worst = torch.where(self._sent, self._ended_scores.min(), _NEVER)
        return bool((possible > worst).any())

    def stop(self) -> None:
        """End it where it is, with the text that is the best now."""
        self.over = self._is_stopped = True

    def hypotheses(self) -> list[Hypothesis]:
        """All that can still be told of: ended texts and beams, by what they score as they are; the best first.

        Of a search that ended by itself only the ended ones can be its answer.
        """
        ended = [
            Hypothesis(node, score, True)
            for node, score, sent in zip(self._ended, self._ended_scores.tolist(), self._sent.tolist(), strict=True)
            if sent and node is not None
        ]
        penalty = max(1, self._length) ** self._beams.length_penalty
        beams = [
            Hypothesis(node, score / penalty, False)
            for node, score in zip(self._running, self._scores.tolist(), strict=True)
            if node is not None and score > _DEAD
        ]
        return sorted([*ended, *beams], key=lambda one: -one.score)

    def best(self) -> Node:
        """The text to answer with, were the search over now.

        A penalty far below 0 takes ended texts beyond what stands for none (`generate` answers nothing then): the
        first beam is there all the same.
        """
        found = self.hypotheses()
        answers = [] if self._is_stopped else [one for one in found if one.ended]
        beams = [node for node in self._running if node is not None]
        return (answers or found)[0].end if found else beams[0]

    def settled(self) -> int:
        """Tokens at the beginning that all texts share which can still be the answer."""
        live: list[Node | None] = [*self._running]
        if bool(self._sent[0]):
            live.append(self._ended[0])  # the others can only fall behind it
        common = live[0]
        for node in live[1:]:
            common = _common(common, node)
        return 0 if common is None else common.length


def _common(one: Node | None, other: Node | None) -> Node | None:
    """The last token that two texts share with all before it."""
    while one is not other:
        if one is None or other is None:
            return None
        if one.length >= other.length:
            one = one.before
        else:
            other = other.before
    return one
