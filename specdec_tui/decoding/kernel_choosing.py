"""How tokens are chosen in a round on a GPU, by the kernels of `backends.gpu`: the same in far fewer launches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from specdec_tui.decoding.round_state import Plan, RoundState
from specdec_tui.decoding.rules import ROUNDING

TILE = 2048  # ids that one program looks at
ROOM = 1024  # candidates of top-k that are listed
_PARTS = 8  # of a tile, whose highest logits bound the k-th highest of all
_MOST_LISTED = 256  # tokens that top-k keeps where it goes by a list
_WARPS = 8
MOST_DRAFTS = 62  # what is known of drafts fits into a few registers of each thread


class _Kernels(NamedTuple):
    choosing: ModuleType
    nearest: ModuleType
    drawing: ModuleType
    finishing: ModuleType


class _Kept(NamedTuple):
    """Where rows of each round are kept: `steps` parts of `size` numbers, of which the first row's place is given."""

    rows: Tensor
    steps: int
    size: int


@cache
def kernels() -> _Kernels | None:
    """The kernels; None where there is no Triton."""
    try:
        from specdec_tui.backends.gpu.rounds import choosing, drawing, finishing, nearest
    except ImportError:
        return None
    return _Kernels(choosing, nearest, drawing, finishing)


def fits(plan: Plan, device: torch.device) -> bool:
    """Whether the kernels choose as this plan asks: typical-p needs the vocabulary sorted."""
    small = plan.gamma <= MOST_DRAFTS and plan.width < 1 << 30
    return device.type == "cuda" and small and not plan.sampler.uses_typical_p and kernels() is not None


class KernelChoosing:
    """See `round_state.Choosing`. `tile` and `room`: powers of two.

    `stamps`: its kernels write the marks behind the drafts and behind the target's pass.
    """

    def __init__(
        self, plan: Plan, state: RoundState, tile: int = TILE, room: int = ROOM, *, stamps: bool = False
    ) -> None:
        found = kernels()
        assert found is not None, "needs Triton"
        self._choosing, self._nearest, self._drawing, self._finishing = found
        self._plan, self._state, self._room, self.stamps = plan, state, room, stamps
        sampler, gamma, width = plan.sampler, plan.gamma, plan.width
        device = self._device = state.length.device
        self._overlap = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        self._early: dict[str, Any] = {"launch_pdl": True} if self._overlap else {}
        self._greedy = sampler.is_greedy
        self._noisy = not self._greedy and plan.rule == "coupled"
        self._tiles = -(-width // tile)
        self._sizes = {"width": width, "tiles": self._tiles, "tile": tile, "overlap": self._overlap}
        self._many = _power(self._tiles)
        self._feed = self._empty(1, dtype=torch.int64)
        self._bests = self._empty(gamma + 1, self._tiles, dtype=torch.int64)
        self.scores = torch.zeros(0)
        self._drawn: list[Tensor] = []
        self.drawn_from: Sequence[Tensor] = ()
        if self._greedy:
            return
        top_k = min(sampler.top_k, width) if sampler.uses_top_k else 0
        floor = -math.log(sampler.min_p) if sampler.uses_min_p else 0.0
        # As torch divides on a GPU: by the reciprocal in float32.
        inverse = float(1 / torch.tensor(sampler.divisor, dtype=torch.float32))
        values = [inverse, top_k, sampler.top_p, floor]
        self._settings = torch.tensor(values, dtype=torch.float64, device=device)
        self._listed = 0 < top_k <= min(_MOST_LISTED, self._tiles * _PARTS // 4)
        asked = ((False, top_k > 0), (True, sampler.uses_top_p))
        self._searches = [mass for mass, wanted in asked if wanted and not self._listed]
        self._scale = 2.0 ** (62 - width.bit_length())
        count, levels = len(self._searches), int(self._choosing.LEVELS)
        self._cleared = count * levels * 2 * int(self._choosing.BINS)
        self._bins = self._empty(gamma + 1, self._cleared, dtype=torch.int64)
        self._search_state = self._empty(gamma + 1, max(1, count) * int(self._choosing.STATE), dtype=torch.int64)
        self._near = self._empty(gamma + 1 if self._listed else 0, room, dtype=torch.int32)
        self._crests = self._empty(gamma + 1 if self._listed else 0, self._tiles, _PARTS)
        self._total = self._empty(gamma + 1, 2, dtype=torch.int64)
        self._peaks, self._sums = (self._empty(gamma + 1, self._tiles) for _ in range(2))
        self._running = self._empty(gamma + 1, self._tiles, dtype=torch.float64)
        self._rests = self._empty(gamma, self._tiles, dtype=torch.float64)
        self._chances = self._empty(gamma + 1, width)
        self._drafted = self._empty(gamma if state.drafts else 0, width)
        self.drawn_from = [self._drafted] * (len(self._drafted) > 0)

    def _empty(self, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.zeros(shape, dtype=dtype, device=self._device)

    @property
    def rows(self) -> Sequence[Tensor] | None:
        return self._drawn or None

    def start(self) -> tuple[Tensor, Tensor]:
        self._drawn = []
        return self._known(self._state.tail), self._state.places[:1]

    def _known(self, ids: Tensor) -> Tensor:
        unknown = self._plan.drafter_ids < self._plan.width
        return torch.where(ids < self._plan.drafter_ids, ids, 0) if unknown else ids

    def draft(self, index: int, logits: Tensor) -> tuple[Tensor, Tensor]:
        with torch.cuda.device_of(logits):  # Triton launches on the current device, wherever the arrays are
            self._draft(index, logits)
        unknown = self._plan.drafter_ids < self._plan.width
        return self._feed if unknown else self._state.block[index + 1 : index + 2], self._state.places[index + 2 :][:1]

    def _draft(self, index: int, logits: Tensor) -> None:
        state, logits, last = self._state, logits.contiguous()[None], self.stamps and index == self._plan.gamma - 1
        draft, known = state.block[index + 1 :], self._plan.drafter_ids
        if self._greedy:
            self._drawn.append(logits[0])
            self._tile_bests(logits, self._place_of(index), False)
        else:
            self._process(logits, self._drafted[index:], index, self._place_of(index), False)
            self._drawn.append(self._drafted[index])
        if self._greedy or self._noisy:
            self._choosing.take_best[(1,)](
                self._bests,
                draft,
                self._feed,
                state.marks[1:],
                known,
                last,
                self._tiles,
                self._many,
                self._overlap,
                num_warps=1,
                **self._early,
            )
            return
        self._drawing.draw_draft[(1,)](
            self._drafted[index:], self._running, state.chance, state.taken, draft, self._feed, state.marks[1:], index,
            known, last, many=self._many, **self._sizes, num_warps=_WARPS, **self._early,
        )  # fmt: skip

    def _place_of(self, index: int) -> _Kept:
        """Where the row of a draft is kept."""
        plan, kept = self._plan, self._state.kept_rows
        return _Kept(kept.view(-1)[index * plan.width :] if len(kept) else kept, len(kept), plan.gamma * plan.width)

    @property
    def _place(self) -> _Kept:
        """Where the target's rows are kept."""
        kept = self._state.kept
        return _Kept(kept, len(kept), (self._plan.gamma + 1) * self._plan.width)

    def _tile_bests(self, logits: Tensor, kept: _Kept, stamped: bool) -> None:
        state = self._state
        self._choosing.tile_bests[(self._tiles, len(logits))](
            logits, self._bests, kept.rows, state.slot, state.marks[2:], kept.steps, kept.size, stamped, **self._sizes,
            num_warps=_WARPS, **self._early,
        )  # fmt: skip

    def _process(self, logits: Tensor, chances: Tensor, begin: int, kept: _Kept, stamped: bool) -> None:
        """The distributions of logits [n, V] into the first rows of `chances`, with what a draw from them needs.

        The first row is of the position `begin` behind that of the round.
        """
        state, grid, count = self._state, (self._tiles, len(logits)), len(self._searches)
        options = {**self._sizes, "num_warps": _WARPS, **self._early}
        self._choosing.tile_peaks[grid](
            logits, self._settings, self._peaks, self._sums, self._bins, self._total, self._crests, state.marks[2:],
            self._cleared, _PARTS if self._listed else 0, stamped, **options,
        )  # fmt: skip
        options["many"] = self._many
        for second, mass in enumerate(self._searches):
            for level in range(1, int(self._choosing.LEVELS) + 1):
                self._choosing.fill_bins[grid](
                    logits, self._settings, self._peaks, self._sums, self._bins, self._search_state, level, mass,
                    second, count, self._scale, **options,
                )  # fmt: skip
        options["room"] = self._room
        if self._listed:
            self._nearest.gather_near[grid](
                logits, self._settings, self._peaks, self._crests, self._near, self._total, _PARTS, **options
            )
        mass, floored = self._plan.sampler.uses_top_p, self._plan.sampler.uses_min_p
        found = (self._bins, self._search_state, self._near, self._total)
        if floored:
            self._drawing.sum_kept[grid](
                logits, self._settings, self._peaks, *found, count, self._listed, mass, self._scale, **options
            )
        self._drawing.write_rows[grid](
            logits, self._settings, self._peaks, self._sums, *found, chances, self._running, self._bests,
            kept.rows, state.slot, state.noise.seed, state.length, state.prompt, begin, kept.steps, kept.size,
            self._noisy, count, self._listed, mass, floored, self._scale, **options,
        )  # fmt: skip

    def block(self) -> tuple[Tensor, Tensor]:
        return self._state.block, self._state.places[1:2]

    def finish(self, logits: Tensor) -> None:
        with torch.cuda.device_of(logits):
            self._finish(logits.contiguous())

    def _finish(self, logits: Tensor) -> None:
        state, plan, gamma = self._state, self._plan, self._plan.gamma
        known = state.drafts and gamma > 0
        names = {"rejection": "REJECTION", "coupled": "COUPLED", "block": "BLOCK", "skip-adjustment": "SKIP"}
        rule = int(getattr(self._finishing, "GREEDY" if self._greedy else names[plan.rule]))
        scores, options = logits, {**self._sizes, "num_warps": _WARPS, **self._early}
        drafted = running = rests = logits
        if self._greedy:
            self._tile_bests(logits, self._place, self.stamps)
        else:
            self._process(logits, self._chances, 0, self._place, self.stamps)
            scores, running = self._chances, self._running
            drafted = self._drafted if known else scores
            rests = self._rests if gamma else running
            if gamma and plan.rule in ("rejection", "block"):
                self._finishing.tile_rests[(self._tiles, gamma)](
                    scores, drafted, state.block, rests, plan.rule == "block", gamma, known, **options
                )
        self._finishing.finish[(1,)](
            scores, drafted, running, rests, self._bests, state.chance, state.ends, state.marks, state.count,
            state.limit, state.length, state.taken, state.slot, state.tail, state.block, state.places, state.out,
            rule, gamma, known, state.drafts, len(plan.end_ids), plan.steps, ROUNDING,
            many=self._many, lanes=_power(gamma + 2), **options,
        )  # fmt: skip
        self.scores = scores


def _power(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()
