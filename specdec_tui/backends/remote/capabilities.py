"""What a server can do, found out by asking it: a claim of its documents is no proof, an answer that fits is.

What cannot be verified exactly is refused: `probe` raises ServerError with the reason, and what is only in part
exact is left out of the `Capabilities` with a reason of its own.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from specdec_tui.backends.answering import Drawing, Told
from specdec_tui.backends.remote.client import ServerError
from specdec_tui.backends.remote.completions import Completions, body

MOST_ALTERNATIVES = 1000
_TRIED = (1000, 200, 100, 50, 20, 10, 5, 3, 2)
_APART = 0.1
"""Log-probabilities of one place, asked in two ways, may differ by so much: in bfloat16 passes cut in other ways do."""
_BATCH = 8  # draws of one place
_HOT = 2.0  # the most that is allowed: behind one token alone, where much may follow, eight equal draws are no chance
_COLD = 0.02  # one at which all draws are the best token
_DRAFTS = 4
_TIMED = 4
_LEAST_SURE = -3.0  # a token that is as likely as this is among the alternatives, wherever it stands

Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a server was seen to do.

    `alternatives`: most that it tells of a place. `scores_seconds` and `prefixes_seconds`: what a round of four drafts
    took in each way, None where that way is not exact there, with the reason in `why_not`. `draws`: what its own draws
    follow (temperature, top_k, top_p, min_p); none where they are not independent of each other. `plain`: whether what
    it tells is the plain softmax however it draws; where it is what it draws from, sampling goes by its draws alone.
    """

    alternatives: int
    scores_seconds: float | None = None
    prefixes_seconds: float | None = None
    draws: frozenset[str] = frozenset()
    plain: bool = True
    why_not: tuple[str, ...] = ()

    @property
    def faster(self) -> str:
        """The way that took less: `scores` or `prefixes`."""
        if self.scores_seconds is None or self.prefixes_seconds is None:
            return "prefixes" if self.scores_seconds is None else "scores"
        return "scores" if self.scores_seconds < self.prefixes_seconds else "prefixes"


@dataclass
class _Probe:
    completions: Completions
    ids: list[int]
    cancelled: Callable[[], bool]
    why_not: list[str] = field(default_factory=list)
    alternatives: int = 1

    def alternatives_told(self) -> int:
        """Most alternatives, of those that are worth asking for."""
        width = self.completions.vocab_size
        counts = ([width] if width <= MOST_ALTERNATIVES else []) + [count for count in _TRIED if count < width]
        refusal: ServerError | None = None
        for count in counts:
            try:
                told, _ = self.completions.prefixes(self.ids, (), Drawing(), count, self.cancelled)
            except ServerError as error:
                if error.kind not in ("refused", "busy") or (refusal is not None and error.kind == "busy"):
                    raise
                refusal = error
                continue
            return len(told[0].ids)
        raise refusal or ServerError("it tells of no alternatives", "answer")

    def own_text(self) -> list[int]:
        """The ids of the probe and what the server itself puts behind them, greedily, one by one."""
        ids = list(self.ids)
        for _ in range(_DRAFTS):
            told, _ = self.completions.prefixes(ids, (), Drawing(), self.alternatives, self.cancelled)
            if told[0].drawn != told[0].ids[0] and told[0].logprobs[0] - told[0].known[told[0].drawn or 0] > _APART:
                raise ServerError("at temperature 0 it does not write its most probable token", "answer")
            ids.append(told[0].ids[0])
        return ids

    def agrees(self, way: str, ids: Sequence[int], alone: Sequence[Told]) -> bool:
        """Whether a round asked in one call tells what calls for each place alone do."""
        text, drafts = ids[: len(self.ids)], ids[len(self.ids) :]
        asked = self.completions.scores if way == "scores" else self.completions.prefixes
        what = {"scores": "log-probabilities of a prompt", "prefixes": "several prompts in one call"}[way]
        try:
            together, _ = asked(text, drafts, Drawing(), self.alternatives, self.cancelled)
        except ServerError as error:
            if error.kind not in ("refused", "answer", "busy"):
                raise
            self.why_not.append(f"{what}: {error}")
            return False
        if any(_apart(one, other) > _APART for one, other in zip(together, alone, strict=True)):
            self.why_not.append(f"{what} are not those of their places (off by one, or of other texts)")
            return False
        return True

    def seconds(self, way: str, ids: Sequence[int]) -> float:
        """Of a round of four drafts behind a text that the server has seen: drafts that it has not."""
        asked = self.completions.scores if way == "scores" else self.completions.prefixes
        found = []
        for index in range(_TIMED):
            drafts = [(ids[place] + index + 1) % self.completions.vocab_size for place in range(_DRAFTS)]
            begin = time.perf_counter()
            asked(ids, drafts, Drawing(), min(self.alternatives, 10), self.cancelled)
            found.append(time.perf_counter() - begin)
        return min(found)  # what else a machine does makes a call longer, never shorter

    def draws(self) -> frozenset[str]:
        """What the server's own draws follow, each seen where it leaves one token only."""
        if len(set(self._drawn(Drawing(_HOT)))) == 1:
            self.why_not.append("its draws of one call are the same ones: no draws of its own are used")
            return frozenset()
        narrow = {
            "temperature": Drawing(_COLD),
            "top_k": Drawing(_HOT, top_k=1),
            "top_p": Drawing(_HOT, top_p=1e-6),
            "min_p": Drawing(_HOT, min_p=1.0),
        }
        found = {name for name, drawing in narrow.items() if len(set(self._drawn(drawing))) == 1}
        if "top_p" in found and not self.narrows_what_is_hot():
            found.remove("top_p")
        self.why_not += [f"it does not draw by {name.replace('_', '-')}" for name in narrow if name not in found]
        return frozenset(found)

    def narrows_what_is_hot(self) -> bool:
        """Whether top-p counts probabilities behind the temperature: just below the best one's plain probability it
        leaves that token alone where they are plain, and more where they are those of a higher temperature."""
        told, _ = self.completions.prefixes(self.ids[:1], (), Drawing(), self.alternatives, self.cancelled)
        best = math.exp(told[0].logprobs[0])
        return len(set(self._drawn(Drawing(_HOT, top_p=0.999 * best), 4 * _BATCH))) > 1

    def is_plain(self) -> bool:
        """Whether it tells the same of a place however it is to draw there."""
        cold, hot = (
            self.completions.prefixes(self.ids, (), drawing, self.alternatives, self.cancelled)[0][0]
            for drawing in (Drawing(), Drawing(_HOT, top_p=0.9))
        )
        if _apart(cold, hot) <= _APART:
            return True
        self.why_not.append("its log-probabilities are those that it draws from: sampling goes by its draws alone")
        return False

    def _drawn(self, drawing: Drawing, count: int = _BATCH) -> list[int | None]:
        completions = self.completions
        question = {**body(completions.name, drawing, 1), "prompt": [self.ids[:1]] * count}
        choices = completions.post(question, self.cancelled).body.choices
        return [choice.token_ids[0] if choice.token_ids else None for choice in choices]


def probe(
    completions: Completions, ids: Sequence[int], long: Sequence[int], cancelled: Callable[[], bool]
) -> Capabilities:
    """What a server can do, by a text of a few `ids`, and one of the usual length for what it takes.

    ServerError, with the reason, where drafts cannot be verified exactly by it.
    """
    found = _Probe(completions, list(ids), cancelled)
    found.alternatives = found.alternatives_told()
    own = found.own_text()
    alone = [
        found.completions.prefixes(own[: len(ids) + place], (), Drawing(), found.alternatives, cancelled)[0][0]
        for place in range(_DRAFTS + 1)
    ]
    ways = {way: found.agrees(way, own, alone) for way in ("scores", "prefixes")}
    if not any(ways.values()):
        raise ServerError(f"drafts cannot be verified by it: {'; '.join(found.why_not)}", "answer")
    took: dict[str, float | None] = {}
    for way, is_exact in ways.items():
        if is_exact:
            found.seconds(way, long)
        took[way] = found.seconds(way, long) if is_exact else None
    draws = found.draws() if ways["prefixes"] else frozenset()
    plain = not ways["prefixes"] or found.is_plain()
    return Capabilities(found.alternatives, took["scores"], took["prefixes"], draws, plain, tuple(found.why_not))


def _apart(one: Told, other: Told) -> float:
    """The largest difference of two answers about one place, over what is probable in either."""
    mine, theirs = one.known, other.known
    likely = {id for told in (one, other) for id, value in told.known.items() if value > _LEAST_SURE}
    floor = min(one.logprobs[-1], other.logprobs[-1])
    return max((abs(mine.get(id, floor) - theirs.get(id, floor)) for id in likely), default=0.0)


def is_same(one: Told, other: Told) -> bool:
    """Whether two answers about one place may be of the same model, its rounding granted."""
    return _apart(one, other) < 5 * _APART
