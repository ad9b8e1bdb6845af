"""From logits to a token: temperature, top-k, top-p, min-p, typical-p, and the two kinds of chance a run draws from.

The order is the field's (and transformers'): temperature, then top-k, then top-p on what top-k
left, then min-p, then typical-p on what all of them left. Vocabularies have 50 to 150 thousand
entries and the CPU does this every step, so nothing here sorts a whole vocabulary unless it must.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Protocol

import torch

FIRST_LOOK = 256  # candidates looked at before looking wider: nearly always enough
MOST_NOISE = 64  # positions whose noise is kept: more than a round of 32 drafts touches


@dataclass(frozen=True, slots=True)
class Sampler:
    """How a next-token distribution is made from logits. Settings a processor does not use are ignored.

    `processor` is greedy, multinomial, topk, nucleus or topknucleus; temperature 0 means greedy,
    `top_k` 0 and `top_p` 1 keep everything. Of any processor but greedy, `min_p` keeps tokens at least that
    share as probable as the best one (0 all; Nguyen et al. 2024, arXiv 2407.01082), and `typical_p` the smallest
    set of that probability whose surprise is nearest to the entropy (1 all; Meister et al. 2022, arXiv 2202.00666).

    The sets are deterministic: every token that ties with the last one kept, at the top-k or the
    top-p edge, is kept too. So the distribution depends on the logits alone, not on the order in
    which some kernel happens to sort equal values.
    """

    processor: str = "greedy"
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    typical_p: float = 1.0

    @property
    def is_greedy(self) -> bool:
        return self.processor == "greedy" or self.temperature == 0

    @property
    def uses_top_k(self) -> bool:
        return self.processor in ("topk", "topknucleus") and self.top_k > 0

    @property
    def uses_top_p(self) -> bool:
        return self.processor in ("nucleus", "topknucleus") and self.top_p < 1

    @property
    def uses_min_p(self) -> bool:
        return not self.is_greedy and self.min_p > 0

    @property
    def uses_typical_p(self) -> bool:
        return not self.is_greedy and self.typical_p < 1

    @property
    def narrows(self) -> bool:
        """Whether some tokens get no chance."""
        return self.uses_top_k or self.uses_top_p or self.uses_min_p or self.uses_typical_p

    def probabilities(self, logits: torch.Tensor, *, whole: bool = False) -> torch.Tensor:
        """The processed distribution: float32 [..., V] from logits [..., V] of any float type.

        Greedy gives one-hot rows at the lowest id among the highest logits; the decoding loop
        never asks for those and compares ids instead. `logits` is left as it is. With `whole` the
        vocabulary is sorted at once: the same result without a look at the values in between,
        for a device that must not be waited for.
        """
        if self.is_greedy:
            best = torch.tensor(best_ids(logits.reshape(-1, logits.shape[-1])), device=logits.device)
            rows = torch.zeros(logits.shape, dtype=torch.float32, device=logits.device)
            return rows.scatter_(-1, best.view(*logits.shape[:-1], 1), 1.0)
        logits = logits.float()
        if self.uses_top_k or self.uses_top_p or self.uses_min_p:
            width = logits.shape[-1]
            first_look = width if whole else max(FIRST_LOOK, 2 * self.top_k)
            rows = self._narrowed(logits.reshape(-1, width), first_look).view(logits.shape)
        else:
            rows = self._scaled(logits).softmax(-1)
        return typical(rows, self.typical_p) if self.uses_typical_p else rows

    @property
    def divisor(self) -> float:
        """The temperature, or where float32 would round it to 0, the least that leaves the best tokens alone."""
        return max(self.temperature, torch.finfo(torch.float32).tiny)

    def _scaled(self, logits: torch.Tensor) -> torch.Tensor:
        # The best token goes to 0 first: a tiny temperature must not overflow to inf - inf.
        return (logits - logits.amax(-1, keepdim=True)) / self.divisor

    def _narrowed(self, logits: torch.Tensor, count: int) -> torch.Tensor:
        """The distributions of rows [n, V], from the best `count` of each; wider for rows that need it."""
        width = logits.shape[-1]
        count = min(width, count)
        top_k = min(self.top_k, width) if self.uses_top_k else 0
        log_mass = None if top_k or not self.uses_top_p else self._scaled(logits).logsumexp(-1, keepdim=True)
        values, ids = _highest(logits, count)
        values = (values - values[..., :1]) / self.divisor
        edge = self._edge(values, top_k, log_mass)
        kept = torch.where(values >= edge, values, -torch.inf).softmax(-1)
        rows = torch.zeros_like(logits).scatter_(-1, ids, kept)
        # The edge, or a token that ties with it, may lie behind the last candidate looked at.
        unsure = (values[:, -1:] >= edge)[:, 0]
        if count < width and bool(unsure.any()):
            rows[unsure] = self._narrowed(logits[unsure], count * 8)
        return rows

    def _edge(self, values: torch.Tensor, top_k: int, log_mass: torch.Tensor | None) -> torch.Tensor:
        """The least of the kept values [n, count], sorted and with the best at 0: [n, 1]."""
        edge = values[..., top_k - 1 : top_k] if top_k else torch.full_like(values[..., :1], -torch.inf)
        if self.uses_top_p:
            edge = self._edge_of_mass(values, edge, log_mass)
        return edge.clamp(min=math.log(self.min_p)) if self.uses_min_p else edge

    def _edge_of_mass(self, values: torch.Tensor, edge: torch.Tensor, log_mass: torch.Tensor | None) -> torch.Tensor:
        kept = torch.where(values >= edge, values, -torch.inf)
        if log_mass is None:
            log_mass = kept.logsumexp(-1, keepdim=True)
        mass = (kept - log_mass).exp().cumsum(-1, dtype=torch.float64)
        last = (mass < self.top_p).sum(-1, keepdim=True).clamp_(max=values.shape[-1] - 1)
        return torch.maximum(edge, values.gather(-1, last))


def typical(rows: torch.Tensor, mass: float) -> torch.Tensor:
    """Of distributions [..., V] the smallest sets of probability `mass` whose surprise is nearest to the entropy.

    Normalised again. What ties with the last one kept is kept.
    """
    surprise = -rows.log()
    entropy = (surprise.nan_to_num(posinf=0.0) * rows).sum(-1, keepdim=True)
    apart = (surprise - entropy).abs()
    near, order = apart.sort(dim=-1, stable=True)
    last = (rows.gather(-1, order).cumsum(-1, dtype=torch.float64) < mass).sum(-1, keepdim=True)
    kept = torch.where(apart <= near.gather(-1, last.clamp_(max=rows.shape[-1] - 1)), rows, 0.0)
    return kept / kept.sum(-1, keepdim=True)


def best_ids(scores: torch.Tensor) -> list[int]:
    """The id of the highest score of each row of [n, V]; the lowest id on an exact tie."""
    found: list[int] = _best(scores).tolist()
    return found


def best_id(scores: torch.Tensor) -> int:
    """The same of one row [V]."""
    return int(_best(scores))


def _best(scores: torch.Tensor) -> Any:
    if scores.is_cpu and scores.dtype in (torch.float32, torch.float64):
        # NumPy's vectorised argmax also takes the first; torch's takes 20 times as long on a CPU.
        return scores.detach().numpy().argmax(-1)
    return scores.argmax(-1)


def _highest(logits: torch.Tensor, count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """`topk` of rows [n, V]; which of equal values come last is left open."""
    width = logits.shape[-1]
    if logits.device.type != "cpu" or count == width:
        return logits.topk(count)
    # NumPy's partition and a sort of the few take less than half the time of torch's topk on a CPU.
    best = logits.detach().numpy().argpartition(width - count, axis=-1)[:, width - count :]
    ids = torch.from_numpy(best.copy())
    values, order = logits.gather(-1, ids).sort(-1, descending=True)
    return values, ids.gather(-1, order)


class Drawable(Protocol):
    """Weights of a vocabulary that are not a tensor of all of it."""

    def draw(self, uniform: float) -> int: ...


def draw_id(weights: torch.Tensor | Drawable, uniform: float) -> int:
    """An id drawn in proportion to `weights` [V] (any positive sum) by inverting their running sum.

    `uniform` is from [0, 1). An id of weight zero is never drawn. FloatingPointError when the
    weights are not finite.
    """
    if not isinstance(weights, torch.Tensor):
        return weights.draw(uniform)
    running = weights.cumsum(-1, dtype=torch.float64)
    # (0, total]: the first running sum that reaches it belongs to an id of positive weight.
    place = running[-1:] * (1.0 - uniform)
    index = int(torch.searchsorted(running, place))
    if index >= weights.shape[-1]:
        raise FloatingPointError("the model's probabilities are not finite numbers")
    return index


# splitmix64 (Steele et al. 2014), on 64-bit words held as int64: sums and products wrap around.
_STEP, _FIRST, _SECOND = (value - (1 << 64) for value in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))


def _mix(words: torch.Tensor) -> torch.Tensor:
    """splitmix64's output function of int64 words of any shape: neighbouring words give unrelated ones."""
    words = words + _STEP
    for bits, factor in ((30, _FIRST), (27, _SECOND)):
        words = (words ^ (words >> bits & (1 << 64 - bits) - 1)) * factor
    return words ^ (words >> 31 & (1 << 33) - 1)


def _seed_word(seed: int) -> torch.Tensor:
    """A word [1] from a seed of any size, on the CPU."""
    return _mix(torch.tensor([(seed + (1 << 63)) % (1 << 64) - (1 << 63)]))


class PositionNoise:
    """Exponential noise that belongs to a position of the text, whoever asks for it and when.

    argmax(p / e) over e ~ Exp(1) is a draw from p, the same as argmax(log p + g) with Gumbel noise
    g = −log e. Target and drafter looking at one position see the same e, which is what makes
    them agree often (the `coupled` rule) and the target's draw independent of any draft.

    The noise is a function of seed, position and id alone, computed where it is used: a seed means
    the same on every device, but for the rounding of the logarithm.
    """

    def __init__(self, seed: int, vocab_size: int, device: torch.device) -> None:
        self._seed = _seed_word(seed).to(device)
        self._steps = torch.arange(vocab_size, device=device) * _STEP
        self._kept: OrderedDict[int, torch.Tensor] = OrderedDict()

    @property
    def seed(self) -> torch.Tensor:
        """The word [1] that stands for the seed, on the device."""
        return self._seed

    def at(self, position: int) -> torch.Tensor:
        """Noise of a new-token position: float32 [V], above zero, on the device. Kept for a while."""
        noise = self._kept.get(position)
        if noise is None:
            if len(self._kept) >= MOST_NOISE:
                self._kept.popitem(last=False)
            noise = self._kept[position] = self.of(torch.tensor([position], device=self._seed.device))
        return noise

    def restart(self, seed: int) -> None:
        """The noise of another seed, in the same memory."""
        self._seed.copy_(_seed_word(seed))
        self._kept.clear()

    def of(self, position: torch.Tensor) -> torch.Tensor:
        """The noise of a position int64 [1] on the device: float32 [V]. No wait for the device."""
        return self._of(position, self._steps)

    def of_ids(self, position: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """The noise of some ids int64 [n] alone: float32 [n]."""
        return self._of(position, ids * _STEP)

    def _of(self, position: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        words = _mix(_mix(self._seed ^ _mix(position)) + steps)
        # Doubles, because a float32 uniform is exactly 0 once in 2^24 and its token would then win
        # at any probability.
        uniform = (words >> 11 & (1 << 53) - 1).double() * 2.0**-53
        return uniform.neg_().log1p_().neg_().clamp_(min=1e-30).float()


class Dice:
    """All chance of one run: a stream of uniform numbers and the position noise, both from one seed.

    The noise belongs to positions of the text, so a run that begins behind `given` new tokens sees what any other run
    of the seed sees there. The stream has no positions: for such a run it is one of its own, made from seed and place.
    Were it the seed's first numbers again, they would be the very ones that the given text was drawn with, and what
    follows would depend on them twice: no draw from the target's distribution behind that text.
    """

    def __init__(self, seed: int, vocab_size: int, device: torch.device, given: int = 0) -> None:
        word = _seed_word(seed)
        if given:
            word = _mix(word ^ _mix(torch.tensor([given])))
        self._generator = torch.Generator()
        self._generator.manual_seed(int(word) & (1 << 63) - 1)
        self.noise = PositionNoise(seed, vocab_size, device)

    def uniform(self) -> float:
        return float(torch.rand((), dtype=torch.float64, generator=self._generator))

    def go_back(self, state: torch.Tensor, used: int) -> None:
        """Be where the stream was at `state`, `used` numbers on."""
        self._generator.set_state(state)
        self.uniforms(used)

    @property
    def state(self) -> torch.Tensor:
        """Where the stream of uniform numbers is."""
        return self._generator.get_state()

    def uniforms(self, count: int) -> list[float]:
        """`count` independent numbers from [0, 1)."""
        return torch.rand(count, dtype=torch.float64, generator=self._generator).tolist()
