"""Kernels from logits to tokens, in Triton: the best id, the processed distribution, and a draw from it.

A vocabulary is cut into tiles, one program each; what programs learn is put together by those of the next kernel,
in one order. Nothing is sorted. With v = (logit - best) / temperature, the tokens that top-k and top-p keep are those
of v at least the edge, as `decoding.sampling` has it; a search finds the edge exactly, by the bits of the distance
d = -v: for numbers that are not negative, bits as an integer stand in the order of the numbers. Three passes fix
them from the top, each with a histogram of `BINS`: how many tokens, or how much probability, the nearer bins hold.
Probability is summed in whole numbers, so that the order of the sums changes nothing.

Sizes are compile-time numbers; settings lie on the device as float64: 1 / temperature, k, p, and the distance
-log(min-p). With `overlap` (programmatic dependent launch) every kernel waits for the one before it.
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import (  # type: ignore[import-not-found]
    gdc_launch_dependents,
    gdc_wait,
    globaltimer,
)

BINS = tl.constexpr(2048)
LEVELS = tl.constexpr(3)
STATE = tl.constexpr(12)  # numbers that a search keeps between its passes
_COARSE, _FINE = tl.constexpr(32), tl.constexpr(64)  # BINS in two steps
_NONE = tl.constexpr(-(1 << 63))
_LOW = tl.constexpr(0x7FFFFFFF)


@triton.jit
def best_of(value: tl.tensor, token: tl.tensor) -> tl.tensor:
    """int64 that is highest for the highest float32 `value`, not-a-number before all, and then for the lowest id."""
    bits = tl.where(value == 0.0, 0.0, value).to(tl.int32, bitcast=True)
    order = tl.where(value != value, _LOW, bits ^ ((bits >> 31) & _LOW))
    return (order.to(tl.int64) << 32) | (token ^ _LOW).to(tl.int64)


@triton.jit
def id_of(best: tl.tensor) -> tl.tensor:
    """The id in what `best_of` gave, int64."""
    return (best & 0xFFFFFFFF) ^ _LOW


@triton.jit
def keep(
    history: tl.tensor,
    slot: tl.tensor,
    values: tl.tensor,
    place: tl.tensor,
    inside: tl.tensor,
    size: tl.constexpr,
) -> None:
    """Write values to their place in history float32 [steps, size], in the part of the round that has this slot."""
    tl.store(history + tl.load(slot) * size + place, values, mask=inside)


@triton.jit
def stamp(mark: tl.tensor) -> None:
    """Write the GPU's clock in nanoseconds, int64, as the first program of a grid."""
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0):
        tl.store(mark, globaltimer())


@triton.jit(do_not_specialize_on_alignment=["history"])
def tile_bests(
    rows: tl.tensor,
    bests: tl.tensor,
    history: tl.tensor,
    slot: tl.tensor,
    mark: tl.tensor,
    steps: tl.constexpr,
    size: tl.constexpr,
    stamped: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    tile: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """bests int64 [n, tiles]: `best_of` every tile of rows float32 [n, width]. Grid (tiles, n).

    Of several rounds (`steps` > 1) the rows go to history too, see `keep`. `stamped`: the time when they were there
    goes to mark.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    if stamped:
        stamp(mark)
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.program_id(1)
    place = row.to(tl.int64) * width + token
    value = tl.load(rows + place, mask=token < width, other=0.0)
    if steps > 1:
        keep(history, slot, value, place, token < width, size)
    best = tl.max(tl.where(token < width, best_of(value, token), _NONE), 0)
    tl.store(bests + row * tiles + tl.program_id(0), best)


@triton.jit(do_not_specialize_on_alignment=["draft"])
def take_best(
    bests: tl.tensor,
    draft: tl.tensor,
    feed: tl.tensor,
    mark: tl.tensor,
    known: tl.constexpr,
    stamped: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """The draft int64 [1] from bests [tiles], and what the drafter reads for it: 0 from id `known` on. One program.

    `stamped`: the time when it is there goes to mark.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    place = tl.arange(0, many)
    token = id_of(tl.max(tl.load(bests + place, mask=place < tiles, other=_NONE), 0))
    tl.store(draft, token)
    tl.store(feed, tl.where(token < known, token, 0))
    if stamped:
        stamp(mark)


@triton.jit
def tile_peaks(
    rows: tl.tensor,
    settings: tl.tensor,
    peaks: tl.tensor,
    sums: tl.tensor,
    bins: tl.tensor,
    total: tl.tensor,
    crests: tl.tensor,
    mark: tl.tensor,
    cleared: tl.constexpr,
    parts: tl.constexpr,
    stamped: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    tile: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """Of every tile of rows [n, width] the highest logit, and the sum of exp(-distance) to it. Grid (tiles, n).

    peaks and sums float32 [n, tiles]; a peak is not a number where a logit is none. bins int64 [n, cleared] and total
    int64 [n, 2] become 0. crests float32 [n, tiles, parts]: the highest logits of equal parts of the tiles, if any.
    `stamped`: the time when the rows were there goes to mark.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    if stamped:
        stamp(mark)
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.program_id(1)
    x = tl.load(rows + row.to(tl.int64) * width + token, mask=token < width, other=-float("inf"))
    broken = tl.max((x != x).to(tl.int32), 0)
    top = tl.max(x, 0)
    safe = tl.where(top == -float("inf"), 0.0, top)
    inverse = tl.load(settings).to(tl.float32)
    held = tl.sum(tl.exp(-((safe - x) * inverse)), 0)
    at = row * tiles + tl.program_id(0)
    tl.store(peaks + at, tl.where(broken > 0, float("nan"), top))
    tl.store(sums + at, held)
    if tl.program_id(0) == 0:
        tl.store(total + 2 * row + tl.arange(0, 2), tl.zeros((2,), tl.int64))
    if parts > 0:
        crest = tl.max(tl.reshape(x, (parts, tile // parts)), 1)
        tl.store(crests + at * parts + tl.arange(0, parts), crest)
    if cleared > 0:
        share: tl.constexpr = (cleared + tiles - 1) // tiles
        for begin in range(0, share, BINS):
            lane = begin + tl.arange(0, BINS)
            place = tl.program_id(0) * share + lane
            empty = tl.zeros((BINS,), tl.int64)
            tl.store(bins + row * cleared + place, empty, mask=(lane < share) & (place < cleared))


@triton.jit
def peak_of(peaks: tl.tensor, row: tl.tensor, tiles: tl.constexpr, many: tl.constexpr) -> tl.tensor:
    """The highest logit of a row; not a number where the row has no distribution."""
    place = tl.arange(0, many)
    peak = tl.load(peaks + row * tiles + place, mask=place < tiles, other=-float("inf"))
    top = tl.max(peak, 0)
    fine = (tl.max((peak != peak).to(tl.int32), 0) == 0) & (tl.abs(top) < float("inf"))
    return tl.where(fine, top, float("nan"))


@triton.jit
def total_of(
    peaks: tl.tensor,
    sums: tl.tensor,
    top: tl.tensor,
    inverse: tl.tensor,
    row: tl.tensor,
    tiles: tl.constexpr,
    many: tl.constexpr,
) -> tl.tensor:
    """The sum of exp(-distance) over a row, float64."""
    place = tl.arange(0, many)
    peak = tl.load(peaks + row * tiles + place, mask=place < tiles, other=-float("inf"))
    held = tl.load(sums + row * tiles + place, mask=place < tiles, other=0.0)
    return tl.sum(held.to(tl.float64) * tl.exp(-((top - peak) * inverse)).to(tl.float64), 0)


@triton.jit
def _bin(distance: tl.tensor, key: tl.tensor) -> tl.tensor:
    """The first histogram's bin: 64 to a nat between 1/32 and 24, two to a power of two elsewhere. At most 2025.

    Each holds at most BINS² keys.
    """
    middle = 242 + (tl.minimum(distance, 24.0) * 64.0).to(tl.int32)
    return tl.where(key < 0x3D000000, key >> 22, tl.where(key < 0x41C00000, middle, 1515 + (key >> 22)))


@triton.jit
def _first_key(place: tl.tensor) -> tl.tensor:
    """The lowest key in a bin of the first histogram."""
    middle = ((place - 242).to(tl.float32) * 0.015625).to(tl.int32, bitcast=True)
    return tl.where(place < 244, place << 22, tl.where(place < 1778, middle, (place - 1515) << 22))


@triton.jit
def searched(
    bins: tl.tensor, state: tl.tensor, settings: tl.tensor, level: tl.constexpr, mass: tl.constexpr
) -> tl.tensor:
    """What a search knows once `level` of its histograms [LEVELS, 2, BINS] are full.

    The first key of the bin that holds the edge; what is still to be reached, in it; and the probability before it,
    after the last level with it.
    """
    if level == 1:
        first = tl.zeros((), tl.int32)
        goal = tl.load(settings + 1).to(tl.int64)
        held = tl.zeros((), tl.int64)
    else:
        first, goal, held = recalled(state, level - 1)
    coarse, fine = tl.arange(0, _COARSE), tl.arange(0, _FINE)
    counts = bins + (level - 1) * 2 * BINS
    masses = counts + BINS
    grid = fine[:, None] * _COARSE + coarse[None, :]
    far = tl.sum(tl.load(masses + grid), 0)
    if mass:
        own = far
        if level == 1:
            goal = tl.maximum(tl.ceil(tl.sum(own, 0).to(tl.float64) * tl.load(settings + 2)).to(tl.int64), 1)
    else:
        own = tl.sum(tl.load(counts + grid), 0)
    block = tl.minimum(tl.sum((tl.cumsum(own, 0) < goal).to(tl.int32), 0), _COARSE - 1)
    goal -= tl.sum(tl.where(coarse < block, own, 0), 0)
    held += tl.sum(tl.where(coarse < block, far, 0), 0)
    close = tl.load(masses + fine * _COARSE + block)
    own = close
    if not mass:
        own = tl.load(counts + fine * _COARSE + block)
    place = tl.minimum(tl.sum((tl.cumsum(own, 0) < goal).to(tl.int32), 0), _FINE - 1)
    goal -= tl.sum(tl.where(fine < place, own, 0), 0)
    held += tl.sum(tl.where(fine < place + (level == LEVELS), close, 0), 0)
    place += block * _FINE
    if level == 1:
        first = _first_key(place)
    elif level == 2:
        first += place << 11
    else:
        first += place
    return first, goal, held


@triton.jit
def recalled(state: tl.tensor, level: tl.constexpr) -> tl.tensor:
    """What was `kept` of a level."""
    place = state + 4 * (level - 1)
    return tl.load(place).to(tl.int32), tl.load(place + 1), tl.load(place + 2)


@triton.jit
def kept(state: tl.tensor, level: tl.constexpr, first: tl.tensor, goal: tl.tensor, held: tl.tensor) -> None:
    """For the kernels that follow: one program of a row does it."""
    if tl.program_id(0) == 0:
        place = state + 4 * (level - 1)
        tl.store(place, first.to(tl.int64))
        tl.store(place + 1, goal)
        tl.store(place + 2, held)


@triton.jit
def fill_bins(
    rows: tl.tensor,
    settings: tl.tensor,
    peaks: tl.tensor,
    sums: tl.tensor,
    bins: tl.tensor,
    state: tl.tensor,
    level: tl.constexpr,
    mass: tl.constexpr,
    second: tl.constexpr,
    searches: tl.constexpr,
    scale: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    tile: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """A pass of a search for the edge of top-k, or with `mass` of top-p, over rows [n, width]. Grid (tiles, n).

    bins int64 [n, searches, LEVELS, 2, BINS]: tokens, and probability in units of 1 / scale; state int64
    [n, searches, STATE]. The `second` search is among what the first one, of top-k, keeps.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.program_id(1)
    x = tl.load(rows + row.to(tl.int64) * width + token, mask=token < width, other=-float("inf"))
    inverse = tl.load(settings).to(tl.float32)
    top = peak_of(peaks, row, tiles, many)
    distance = (top - x) * inverse
    key = distance.to(tl.int32, bitcast=True)
    weight = tl.exp(-distance)
    whole = (weight.to(tl.float64) * scale).to(tl.int64)
    bins += (row * searches + second) * LEVELS * 2 * BINS
    state += (row * searches + second) * STATE
    asked = (token < width) & (distance == distance)
    place = _bin(distance, key)
    if second:
        if level == 1:
            edge, goal, held = searched(bins - LEVELS * 2 * BINS, state - STATE, settings, LEVELS, False)
            kept(state - STATE, LEVELS, edge, goal, held)
        else:
            edge, goal, held = recalled(state - STATE, LEVELS)
        asked &= key <= edge
    elif level == 1:
        if mass:
            # Tokens that together have less than half of what may be left out have no edge among them: they are
            # counted as a whole.
            least = total_of(peaks, sums, top, inverse, row, tiles, many) * (1.0 - tl.load(settings + 2)) / (2 * width)
            rest = tl.sum(tl.where(asked & (weight < least), whole, 0), 0)
            asked &= weight >= least
            tl.atomic_add(bins + BINS + (BINS - 1), rest, mask=top == top, sem="relaxed")
        else:
            # As many tiles as tokens are kept have a peak of at least `bound`.
            lane = tl.arange(0, many)
            peak = tl.load(peaks + row * tiles + lane, mask=lane < tiles, other=-float("inf"))
            higher = tl.sum((peak[None, :] > peak[:, None]).to(tl.int32), 1)
            count = tl.load(settings + 1).to(tl.int32)
            bound = tl.min(tl.where(higher < count, peak, float("inf")), 0)
            asked &= x >= tl.where(count > tiles, -float("inf"), bound)
    if level > 1:
        first, goal, held = searched(bins, state, settings, level - 1, mass)
        kept(state, level - 1, first, goal, held)
        asked &= place == _bin(first.to(tl.float32, bitcast=True), first)
        if level == 2:
            place = (key - first) >> 11
        else:
            asked &= (key >= first) & (key - first < BINS)
            place = key - first
    # Bins that follow each other lie in lines of their own: many programs add to them at once.
    slot = (place % _FINE) * _COARSE + place // _FINE
    here = bins + (level - 1) * 2 * BINS + tl.where(asked, slot, 0)
    if not mass:
        tl.atomic_add(here, tl.full((tile,), 1, tl.int64), mask=asked, sem="relaxed")
    tl.atomic_add(here + BINS, whole, mask=asked, sem="relaxed")
