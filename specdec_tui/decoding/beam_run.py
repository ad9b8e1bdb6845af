"""A run that searches: its rounds are the steps of a beam search, told as what they settle and what is still open."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import torch

from specdec_tui.backends.model import Branches
from specdec_tui.decoding.beam import Beams, Node, Search, path
from specdec_tui.decoding.branches import SeparateBranches, branches_of
from specdec_tui.decoding.insight import insights
from specdec_tui.decoding.prompt import read_prompt
from specdec_tui.decoding.records import (
    LONGEST_BEAM,
    Beam,
    DraftsProposed,
    EndReason,
    Notice,
    PrefillDone,
    Record,
    RoundVerified,
    RunEnded,
    Status,
    Token,
)
from specdec_tui.decoding.run import Run

NO_CHANCE = "a beam search draws nothing: it goes by the plain probabilities, whatever the processor"
STEP_BY_STEP = "step by step, not captured: a search goes on with several texts"


@dataclass
class BeamRun(Run):
    """A run without a drafter. `ids` is what is settled; the search holds the texts behind it.

    Controls change log-probabilities, for each text by what it holds, as `generate` has it in a beam search.
    """

    beams: Beams = field(default_factory=Beams)
    is_captured: bool = False
    search: Search | None = None
    branches: Branches | None = None
    _pending: list[Node] = field(default_factory=list)
    _is_stopped: bool = False

    def _get_ready(self, use_cache: bool) -> Iterator[Record]:
        if not self.sampler.is_greedy:
            yield Notice(NO_CHANCE)
        if self.is_captured:
            yield Notice(STEP_BY_STEP)
        yield from super()._get_ready(use_cache)

    def _prefill(self, use_cache: bool) -> PrefillDone:
        begin, width, prompt = self.clock(), self.beams.width, list(self.ids)
        capacity = len(prompt) + self.room
        self.search = Search(self.beams, self.room, self._ends, len(self.ending.ids))
        self.context = self.target.open(use_cache=use_cache, capacity=capacity)
        logits = read_prompt(self.target, self.context, prompt, use_cache, self.cancelled)
        recomputes = self.context.recomputes
        self.branches = branches_of(self.target, self.context, prompt, width, capacity, use_cache, self.cancelled)
        rows = self._advance(logits, [[]])
        seconds = self.clock() - begin
        self._look_into(rows)
        first, beams = self._told()
        return PrefillDone(first[0] if first else None, seconds, recomputes=recomputes, beams=beams)

    def _play(self, number: int) -> Iterator[Record]:
        assert self.search is not None and self.branches is not None, "the prefill comes first"
        yield from self._open_text(number)
        if number == 0 and isinstance(self.branches, SeparateBranches):
            yield Notice(f"a step is {self.beams.width} passes here, one for each beam")
        texts, begin = self.search.texts(), self.clock()
        try:
            logits = self.branches.extend(self.search.parents, self.search.tokens)
            self.target.synchronize()
            verified = self.clock()
            rows = self._advance(logits, texts)
            end = self.clock()
            self._look_into(rows)
        except Exception:  # no text is lost: the best one is the answer, as of a search that is stopped
            self.search.stop()
            yield RoundVerified(number, (), None, 0.0, self.clock() - begin, 0.0, *self._told())
            raise
        yield RoundVerified(number, (), None, 0.0, verified - begin, end - verified, *self._told())

    def _end(self, cancelled: object) -> RunEnded | None:
        if self.search is None:
            return super()._end(self.cancelled)
        if not self.search.over:
            return None  # where it is stopped, it is stopped within a step, which then tells its best text
        return RunEnded(EndReason.CANCELLED) if self._is_stopped else super()._end(lambda: False)

    def _ends(self, new: Sequence[int]) -> bool:
        return self.ending.at([*self.ids[: self.prompt_length], *new])

    def _advance(self, logits: torch.Tensor, texts: Sequence[Sequence[int]]) -> torch.Tensor:
        """A step of the search behind these texts; the log-probabilities that it went by."""
        assert self.search is not None
        rows = logits.log_softmax(-1)
        if self.controls.asked:
            prompt, apply = self.ids[: self.prompt_length], self.controls.apply
            pairs = zip(rows, texts, strict=True)
            rows = torch.cat([apply(row[None], [*prompt, *text], len(prompt)) for row, text in pairs])
        self.search.advance(rows)
        if not self.search.over and self.cancelled():
            self.search.stop()
            self._is_stopped = True
        return rows

    def _look_into(self, rows: torch.Tensor) -> None:
        """Insights of the last step's tokens, where they are wanted. The clock is no longer running."""
        if self.insight and self.search is not None:
            seen = insights(rows, (), greedy=True)
            for node in self.search.new:
                node.insight = seen[node.row if len(seen) > 1 else 0]

    def _told(self) -> tuple[tuple[Token, ...], tuple[Beam, ...]]:
        """What the last step settled, and the texts behind it. The clock is no longer running."""
        search = self.search
        assert search is not None
        best, known = search.best(), self.position
        settled = path(best, known)
        if not search.over:
            settled = settled[: search.settled() - known]
        self.ids += [node.id for node in settled]
        self._pending = self._pending if self._follow(settled) else []
        tokens = tuple(_token(node, Status.SAMPLED) for node in settled)
        found = [] if search.over else search.hypotheses()
        return tokens, tuple(self._beam(one.end, one.score, one.ended) for one in found)

    def _follow(self, settled: Sequence[Node]) -> bool:
        """Whether what was pending goes on behind what was settled; then it loses that."""
        goes_on = self._pending[: len(settled)] == list(settled)[: len(self._pending)]
        del self._pending[: len(settled)]
        return goes_on

    def _beam(self, end: Node, score: float, ended: bool) -> Beam:
        nodes = path(end, max(self.position, end.length - LONGEST_BEAM))
        before = max(0, end.length - LONGEST_BEAM - self.position)
        return Beam(tuple(node.id for node in nodes), score, before, ended)

    def _open_text(self, number: int) -> Iterator[Record]:
        """The best text behind the settled one, as far as it is new."""
        assert self.search is not None
        best = path(self.search.hypotheses()[0].end, self.position)
        kept = 0
        while kept < min(len(best), len(self._pending)) and best[kept] is self._pending[kept]:
            kept += 1
        self._pending = best
        if best:
            yield DraftsProposed(number, tuple(_token(node, Status.PENDING) for node in best[kept:]), kept)


def _token(node: Node, status: Status) -> Token:
    p = math.exp(min(0.0, node.log_p))
    if status is Status.PENDING:
        return Token(node.id, status, node.length - 1)
    return Token(node.id, status, node.length - 1, p=p, insight=node.insight)
