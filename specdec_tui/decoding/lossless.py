"""Did a strategy write what the target alone would have written? Checked, not assumed.

In float32 the answer is identity. In half precision a pass over γ+1 tokens uses other matrix
kernels than a pass over one, so two nearly equal scores can change places. Such a token must
then be a near-tie of the target's own first choice, and that is what teacher forcing shows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import islice
from math import inf, isfinite, isnan, log, nan

import torch

from specdec_tui.backends.answering import Answering
from specdec_tui.backends.model import CausalModel, Referenced, Rounding
from specdec_tui.decoding.controls import NO_CONTROLS, Controls
from specdec_tui.decoding.records import Lossless, LosslessStatus, first_difference
from specdec_tui.decoding.sampling import PositionNoise, Sampler, best_id

CHUNK = 128  # rows scored at once: 128 rows of 150 thousand float32 are 77 MB


def near_tie_bound(dtype: torch.dtype | None) -> float:
    """The largest gap, in logits, that rounding may explain for a model computing in `dtype`.

    Measured between one pass over 8 tokens and 8 passes over one: 6e-5 in float32, 0.78 in
    bfloat16 (8 bits of precision; logits near 20 are 0.125 apart). The bounds leave some room
    above that. float16 has 3 bits more than bfloat16; twice its share covers larger models.
    int8 stands for weights quantized by bitsandbytes, which also rounds the activations, block by
    block: there one token alone and the same token in a block of 8 were up to 1.7 logits apart, in
    8 bits; in 4 bits a seventh of that. So much would hide real faults: `check` measures how far
    rounding goes on the very text, and takes that where it is less. None, the dtype of a server,
    which may be any, is taken for bfloat16.
    """
    bounds = {torch.float32: 1e-3, torch.float64: 1e-6, torch.float16: 0.25, torch.int8: 3.0}
    return 1.0 if dtype is None else bounds.get(dtype, 1.0)


def check(
    target: CausalModel,
    prompt_ids: Sequence[int],
    ids: Sequence[int],
    reference_ids: Sequence[int] | None,
    *,
    sampler: Sampler,
    rule: str,
    seed: int,
    bound: float,
    cut_short: bool = False,
    controls: Controls = NO_CONTROLS,
    given: Sequence[int] = (),
    cancelled: Callable[[], bool] = lambda: False,
) -> Lossless:
    """Compare a run's new tokens `ids` with the target's own.

    `given`: new tokens that the run began behind. They are taken as they are, not judged.

    `reference_ids` are the new tokens of the target's run with the same settings, None without
    such a run. `cut_short` says that one of the two runs was cancelled or failed: then lengths may
    differ. A run that is equal, as far as it goes, needs no model; others are teacher-forced through
    the target, by passes that share nothing with those of a run (`model.Referenced`). A target
    on a server raises what its calls do, `in_time.Stopped` once `cancelled` among it.
    """
    if not sampler.is_greedy and rule != "coupled":
        lossy = rule == "skip-adjustment"
        detail = (
            "lossy: without the residual correction the output is not distributed like the target's"
            if lossy
            else "same distribution as the target, but other random draws: the texts need not be equal"
        )
        return Lossless(LosslessStatus.NOT_APPLICABLE, detail=detail)
    divergence = None
    if reference_ids is not None:
        divergence = first_difference(ids, reference_ids, cut_short)
        if divergence is None and len(ids) <= len(reference_ids):
            return Lossless(LosslessStatus.IDENTICAL)

    def compared(bound: float) -> Lossless:
        rows = islice(_rows(target, prompt_ids, [*given, *ids], sampler, seed, controls, cancelled), len(given), None)
        gaps = _gaps(rows, ids, reference_ids, divergence, bound)
        return _verdict(divergence, gaps, bound, len(ids), reference_ids)

    found = compared(bound)
    if found.status is LosslessStatus.NEAR_TIES and isinstance(target, Rounding):
        measured = target.rounding(prompt_ids, [*given, *ids])
        if measured is not None and measured < bound:
            return compared(max(measured, near_tie_bound(torch.float32)))
    return found


def _gaps(
    rows: Iterable[_Row], ids: Sequence[int], reference_ids: Sequence[int] | None, divergence: int | None, bound: float
) -> list[float]:
    """By how much each token fails to be the target's first choice, of those that do."""
    gaps: list[float] = []
    for index, row in enumerate(rows):
        gap = row.gap(ids[index], bound)
        if gap is None and index == divergence and reference_ids is not None and index < len(reference_ids):
            # The run holds the first choice here: it is the reference that took the tie.
            gap = row.gap(reference_ids[index], bound)
        if gap is not None:
            gaps.append(gap)
    return gaps


def _verdict(
    divergence: int | None, gaps: list[float], bound: float, length: int, reference_ids: Sequence[int] | None
) -> Lossless:
    ties, largest = len(gaps), max(gaps, default=0.0)
    if any(isnan(gap) for gap in gaps):
        return Lossless(LosslessStatus.DIFFERENT, 0, divergence, None, "the target's scores are not numbers")
    if reference_ids is not None and divergence is not None and divergence == min(length, len(reference_ids)):
        detail = f"ended after {length} tokens, the target's own run after {len(reference_ids)}"
        return Lossless(LosslessStatus.DIFFERENT, ties, divergence, largest if isfinite(largest) else None, detail)
    if largest > bound:
        ties = sum(gap <= bound for gap in gaps)
        if largest == inf:
            return Lossless(LosslessStatus.DIFFERENT, ties, divergence, None, "a token that the target gives no chance")
        detail = f"a token scores {largest:.3g} below the target's first choice; rounding explains {bound:g}"
        return Lossless(LosslessStatus.DIFFERENT, ties, divergence, largest, detail)
    if ties:
        detail = f"{ties} near-tie{'s' if ties > 1 else ''} within {bound:g}, 0 errors"
        return Lossless(LosslessStatus.NEAR_TIES, ties, divergence, largest, detail)
    return Lossless(LosslessStatus.IDENTICAL, gap=largest, detail="every token is the target's first choice")


class _Row:
    """What the target thinks at one position: scores [V], in logits, of which the highest in the set is its choice."""

    def __init__(self, scores: torch.Tensor, kept: _KeptSet | None = None) -> None:
        self._scores, self._kept = scores, kept

    def gap(self, token: int, bound: float) -> float | None:
        """None for the first choice (lowest id on a tie), else by how much `token` fails to be it."""
        if not self._scores.amax().isfinite():  # a NaN anywhere is the highest
            return nan
        if best_id(self._among(0.0)) == token:
            return None
        # Tokens that rounding may put outside the set bind nobody.
        best, own = float(self._among(bound).amax()), float(self._scores[token])
        behind = 0.0 if best <= own else best - own
        return max(behind, 0.0 if self._kept is None else self._kept.distance(token))

    def _among(self, slack: float) -> torch.Tensor:
        if self._kept is None:
            return self._scores
        return torch.where(self._kept.inside(slack), self._scores, -torch.inf)


class _KeptSet:
    """The top-k and top-p set of a row of logits [V], and what of it holds where rounding moves logits.

    Two logits that rounding can bring nearer by x may change places, and so which of them lies above an edge; and the
    mass above an edge against the rest has its odds changed by exp(x/T) at most.
    """

    def __init__(self, logits: torch.Tensor, sampler: Sampler) -> None:
        self._sampler = sampler
        order = logits.argsort(descending=True, stable=True)
        self._ranked = logits[order].double()
        self._rank = torch.empty_like(order)
        self._rank[order] = torch.arange(len(order), device=order.device)
        mass = ((self._ranked - self._ranked[0]) / sampler.temperature).exp()
        self._mass_before = torch.cat((torch.zeros_like(mass[:1]), mass.cumsum(0)))

    def inside(self, slack: float, token: int | None = None) -> torch.Tensor:
        """Bool [V], or [1] for one token: in the set (0), surely in it if logits are off by `slack`, or for -x
        possibly in it if they are off by x."""
        ranks = self._rank if token is None else self._rank[token : token + 1]
        values = self._ranked[ranks]
        inside = torch.ones_like(values, dtype=torch.bool)
        surely = possibly = exactly = len(self._ranked)
        if self._sampler.uses_top_k and self._sampler.top_k < len(self._ranked):
            last_in, first_out = self._ranked[self._sampler.top_k - 1], self._ranked[self._sampler.top_k]
            surely = int((self._ranked - first_out > abs(slack)).sum())
            possibly = int((self._ranked >= last_in - abs(slack)).sum())
            exactly = int((self._ranked >= last_in).sum())  # what ties with the last one in is in
            inside = ranks < (surely if slack > 0 else possibly if slack < 0 else exactly)
        if self._sampler.uses_min_p:
            inside &= self._ranked[0] - values + slack <= -log(self._sampler.min_p) * self._sampler.temperature
        if self._sampler.uses_typical_p:
            inside &= self._typical(slack)[ranks]
        if not self._sampler.uses_top_p:
            return inside
        before, own = self._mass_before, self._mass_before[ranks + 1] - self._mass_before[ranks]
        above = torch.searchsorted(-self._ranked, -(values - slack)).clamp(max=possibly)
        higher = before[above]
        rest = before[exactly if slack == 0 else possibly] - higher
        if slack > 0:  # all that may lie above does, and of the edge of top-k only the token itself is left
            higher = (higher - own * (above > ranks)).clamp(min=0)
            rest = torch.maximum(before[surely] - higher, own)
        odds = torch.tensor(self._sampler.top_p, dtype=torch.float64).logit()
        return inside & ((higher <= 0) | (higher.log() - rest.log() + slack / self._sampler.temperature < odds))

    def _typical(self, slack: float) -> torch.Tensor:
        """Bool [V], by rank: in the set of typical-p. Logits off by x move surprise and entropy by 2x/T each."""
        rows = replace(self._sampler, typical_p=1.0).probabilities(self._ranked.float(), whole=True).double()
        surprise = -rows.log()
        apart = (surprise - (surprise.nan_to_num(posinf=0.0) * rows).sum()).abs()
        near, order = apart.sort(stable=True)
        last = int((rows[order].cumsum(0) < self._sampler.typical_p).sum())
        edge = near[min(last, len(near) - 1)]
        return apart + 4 * slack / self._sampler.temperature <= edge

    def distance(self, token: int) -> float:
        """By how much logits must be off for a token to be in the set: 0 if it is, infinite if it has no chance."""
        if bool(self.inside(0.0, token)):
            return 0.0
        near, far = 0.0, float(self._ranked[0] - self._ranked[self._rank[token]])
        if not isfinite(far):
            return inf
        while far - near > 1e-3 * far:
            middle = (near + far) / 2
            near, far = (near, middle) if bool(self.inside(-middle, token)) else (middle, far)
        return far


def _rows(
    target: CausalModel,
    prompt_ids: Sequence[int],
    ids: Sequence[int],
    sampler: Sampler,
    seed: int,
    controls: Controls,
    cancelled: Callable[[], bool],
) -> Iterator[_Row]:
    """One row per new token, of passes that are fed the run's own tokens."""
    text, prompt = [*prompt_ids, *ids], len(prompt_ids)
    noise = PositionNoise(seed, target.vocab_size, target.device)
    if isinstance(target, Answering):
        own = target.reference(prompt_ids, ids, cancelled)
    elif isinstance(target, Referenced):
        own = target.reference(prompt_ids, ids)
    else:
        own = _recomputed(target, prompt_ids, ids)
    for position, logits in enumerate(own):
        row = controls.apply(logits[None], text[: prompt + position], prompt)[0]
        yield _Row(row) if sampler.is_greedy else _coupled_row(row, sampler, noise.at(position))


def _recomputed(target: CausalModel, prompt_ids: Sequence[int], ids: Sequence[int]) -> Iterator[torch.Tensor]:
    """The logits before each new token, of a context that keeps nothing, in pieces of at most `CHUNK` tokens."""
    text = [*prompt_ids, *ids]
    context = target.open(use_cache=False, capacity=len(text))
    for start in range(0, len(text) - 1, CHUNK):
        fed = text[start : min(start + CHUNK, len(text) - 1)]
        keep = min(len(fed), max(1, start + len(fed) - len(prompt_ids) + 1))
        logits = context.extend(fed, keep=keep)
        if start + len(fed) >= len(prompt_ids):
            yield from logits


def _coupled_row(logits: torch.Tensor, sampler: Sampler, noise: torch.Tensor) -> _Row:
    kept = _KeptSet(logits, sampler) if sampler.narrows else None
    # T·(logits/T + g): the coupled draw's argmax, in units of logits.
    return _Row(logits - sampler.temperature * noise.log(), kept)
