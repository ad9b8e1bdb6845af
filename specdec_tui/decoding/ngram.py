"""N-gram assisted decoding: drafts from counts of what followed a context before.

After the method its users know from romsto/Speculative-Decoding, with its definitions made
precise: `onelevel` looks at contexts of exactly n−1 tokens, `basic` at n−1 down to 1 tokens, the
longest known one first. The next token is the one with the highest count, on a tie the one
counted most recently.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from specdec_tui.decoding.drafters import AskedDrafter, DraftSetup, Proposal
from specdec_tui.decoding.rows import Scores, dense

MOST_CONTEXTS = 65_536
MOST_FOLLOWERS = 32


class _Followers:
    """Counts of what followed one context. `best` is always the highest, latest count: no search."""

    __slots__ = ("best", "counts")

    def __init__(self) -> None:
        self.counts: dict[int, int] = {}
        self.best = -1

    def add(self, token: int, most: int) -> None:
        count = self.counts.pop(token, 0) + 1
        if count == 1 and len(self.counts) >= most:
            # Insertion order is the order of last counting: min() finds the oldest of the rarest.
            rarest = min(self.counts, key=lambda known: (self.counts[known], known == self.best))
            del self.counts[rarest]
        self.counts[token] = count
        if self.best not in self.counts or count >= self.counts[self.best]:
            self.best = token


class NgramStore:
    """Bounded counts {context -> {next token -> count}}; the contexts unused for longest go first.

    It outlives a run: its owner calls `reset` to forget, or does not.
    """

    def __init__(
        self,
        order: int,
        storage: str = "basic",
        *,
        most_contexts: int = MOST_CONTEXTS,
        most_followers: int = MOST_FOLLOWERS,
    ) -> None:
        if order < 2 or storage not in ("basic", "onelevel"):
            raise ValueError(f"no n-gram storage '{storage}' of order {order}")
        self.order = order
        self.storage = storage
        self._lengths = range(order - 1, 0 if storage == "basic" else order - 2, -1)
        self._most_contexts = most_contexts
        self._most_followers = most_followers
        self._contexts: OrderedDict[tuple[int, ...], _Followers] = OrderedDict()

    def __len__(self) -> int:
        """Contexts known."""
        return len(self._contexts)

    def followers(self, context: Sequence[int]) -> dict[int, int]:
        """The counts of what followed exactly this context, for a look inside."""
        found = self._contexts.get(tuple(context))
        return dict(found.counts) if found else {}

    def reset(self) -> None:
        self._contexts.clear()

    def add(self, text: Sequence[int], end: int, token: int) -> None:
        """Count that `token` followed `text[:end]`, in every context length the storage keeps."""
        for length in self._lengths:
            if length <= end:
                context = tuple(text[end - length : end])
                followers = self._contexts.get(context)
                if followers is None:
                    followers = self._contexts[context] = _Followers()
                    if len(self._contexts) > self._most_contexts:
                        self._contexts.popitem(last=False)
                else:
                    self._contexts.move_to_end(context)
                followers.add(token, self._most_followers)

    def learn(self, text: Sequence[int], start: int) -> None:
        """Count the tokens of `text` from index `start` on, each behind what precedes it."""
        for index in range(max(start, 1), len(text)):
            self.add(text, index, text[index])

    def predict(self, text: Sequence[int]) -> int | None:
        """The most likely token after `text`; None when its context is unknown."""
        for length in self._lengths:
            if length <= len(text):
                context = tuple(text[-length:])
                followers = self._contexts.get(context)
                if followers is not None:
                    self._contexts.move_to_end(context)
                    return followers.best
        return None


class NgramDrafter:
    """Drafts from an n-gram store, up to the first unknown context.

    `top_k_filler` above 1 also counts, at each verified position, those of the target's top
    tokens that have a non-zero processed probability and did not come (under greedy sampling
    there are none). They are counted before the token that came, so that it wins ties. With a
    `fallback` model, a token at an unknown context comes from that model, and the store is asked
    again behind it.
    """

    def __init__(self, store: NgramStore, top_k_filler: int = 0, fallback: AskedDrafter | None = None) -> None:
        self._store = store
        self._filler = top_k_filler
        self._fallback = fallback
        self._setup: DraftSetup | None = None

    @property
    def goes_step_by_step(self) -> str:
        return "the drafter asks a model between its own drafts" if self._fallback else ""

    @property
    def notice(self) -> str:
        return self._fallback.notice if self._fallback else ""

    def start(self, ids: Sequence[int], setup: DraftSetup) -> None:
        self._setup = setup
        self._store.learn(ids, 1)
        if self._fallback:
            self._fallback.start(ids, setup)

    def propose(self, ids: Sequence[int], most: int, position: int) -> Proposal:
        assert self._setup is not None, "start comes first"
        proposal, text = Proposal(), list(ids)
        for place in range(position, position + most):
            token = self._store.predict(text)
            if token is not None:
                proposal.add(token, None)
            else:
                drawn = self._fallback.draft_one(text, place) if self._fallback else None
                if drawn is None:
                    break
                proposal.add(*drawn)
            text.append(proposal.ids[-1])
            if text[-1] in self._setup.end_ids:
                break
        return proposal

    def settle(self, ids: Sequence[int], kept: int, scores: Scores) -> None:
        assert self._setup is not None, "start comes first"
        start = kept - len(scores) + 1
        if self._filler > 1 and not self._setup.sampler.is_greedy:
            rows_there = dense(scores)
            top = rows_there.topk(min(self._filler, rows_there.shape[-1]))
            rows = zip(range(start, len(ids)), top.values.tolist(), top.indices.tolist(), strict=False)
            for index, values, tokens in rows:
                # Rising probability, so that among equal counts the likeliest is the most recent.
                for value, token in zip(reversed(values), reversed(tokens), strict=True):
                    if value > 0 and token != ids[index]:
                        self._store.add(ids, index, token)
        self._store.learn(ids, start)
        if self._fallback:
            self._fallback.settle(ids, kept, scores)

    def synchronize(self) -> None:
        if self._fallback:
            self._fallback.synchronize()
