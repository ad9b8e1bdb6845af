"""Kernels that write a processed distribution and draw from it, in Triton.

A draw inverts the running sum of the weights, as `decoding.sampling.draw_id` does, in two steps: the sums of tiles,
then the weights of one tile. All sums are float64. They are added in another order than there, so that the id can be
the next one where the place drawn is within rounding (about 1e-15 of the sum) of the border between two.
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.rounds.choosing import (
    BINS,
    LEVELS,
    STATE,
    best_of,
    keep,
    kept,
    peak_of,
    recalled,
    searched,
    stamp,
    total_of,
)
from specdec_tui.backends.gpu.rounds.nearest import nearest_edge

_NONE = tl.constexpr(-(1 << 63))
# splitmix64, as in `decoding.sampling`.
_STEP = tl.constexpr(0x9E3779B97F4A7C15 - (1 << 64))
_FIRST = tl.constexpr(0xBF58476D1CE4E5B9 - (1 << 64))
_SECOND = tl.constexpr(0x94D049BB133111EB - (1 << 64))


@triton.jit
def _mix(words: tl.tensor) -> tl.tensor:
    words = words + _STEP
    words = (words ^ ((words >> 30) & ((1 << 34) - 1))) * _FIRST
    words = (words ^ ((words >> 27) & ((1 << 37) - 1))) * _SECOND
    return words ^ ((words >> 31) & ((1 << 33) - 1))


@triton.jit
def _noise(seed: tl.tensor, position: tl.tensor, token: tl.tensor) -> tl.tensor:
    """`sampling.PositionNoise` of some ids, float32. 1 - u is exact, so that its logarithm is log1p(-u)."""
    words = _mix(_mix(seed ^ _mix(position)) + token.to(tl.int64) * _STEP)
    uniform = ((words >> 11) & ((1 << 53) - 1)).to(tl.float64) * (2.0**-53)
    return tl.maximum(-tl.log(1.0 - uniform), 1e-30).to(tl.float32)


@triton.jit
def _edge(
    rows: tl.tensor,
    settings: tl.tensor,
    bins: tl.tensor,
    state: tl.tensor,
    near: tl.tensor,
    total: tl.tensor,
    top: tl.tensor,
    row: tl.tensor,
    searches: tl.constexpr,
    listed: tl.constexpr,
    mass: tl.constexpr,
    scale: tl.constexpr,
    width: tl.constexpr,
    tile: tl.constexpr,
    room: tl.constexpr,
) -> tl.tensor:
    """The key of the edge of a row, and the probability up to it: of the last search, or by what is listed."""
    if listed:
        row_start = rows + row.to(tl.int64) * width
        count = tl.load(total + 2 * row + 1)
        return nearest_edge(row_start, settings, near + row * room, count, top, mass, scale, width, tile, room)
    last = row * searches + searches - 1
    edge, _goal, held = searched(bins + last * LEVELS * 2 * BINS, state + last * STATE, settings, LEVELS, mass)
    return edge, held


@triton.jit
def sum_kept(
    rows: tl.tensor,
    settings: tl.tensor,
    peaks: tl.tensor,
    bins: tl.tensor,
    state: tl.tensor,
    near: tl.tensor,
    total: tl.tensor,
    searches: tl.constexpr,
    listed: tl.constexpr,
    mass: tl.constexpr,
    scale: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    tile: tl.constexpr,
    room: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """total int64 [n, 2] at 0 += the probability that is kept, min-p too, in units of 1 / scale. Grid (tiles, n)."""
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.program_id(1)
    x = tl.load(rows + row.to(tl.int64) * width + token, mask=token < width, other=-float("inf"))
    top = peak_of(peaks, row, tiles, many)
    distance = (top - x) * tl.load(settings).to(tl.float32)
    asked = (token < width) & (distance <= tl.load(settings + 3).to(tl.float32))
    if (searches > 0) or listed:
        edge, held = _edge(
            rows, settings, bins, state, near, total, top, row, searches, listed, mass, scale, width, tile, room
        )
        kept(state + (row + 1) * max(searches, 1) * STATE - STATE, LEVELS, edge, held, held)
        asked &= distance.to(tl.int32, bitcast=True) <= edge
    whole = (tl.exp(-distance).to(tl.float64) * scale).to(tl.int64)
    tl.atomic_add(total + 2 * row, tl.sum(tl.where(asked, whole, 0), 0), mask=top == top, sem="relaxed")


@triton.jit(do_not_specialize=["begin"], do_not_specialize_on_alignment=["chances", "history"])
def write_rows(
    rows: tl.tensor,
    settings: tl.tensor,
    peaks: tl.tensor,
    sums: tl.tensor,
    bins: tl.tensor,
    state: tl.tensor,
    near: tl.tensor,
    total: tl.tensor,
    chances: tl.tensor,
    running: tl.tensor,
    bests: tl.tensor,
    history: tl.tensor,
    slot: tl.tensor,
    seed: tl.tensor,
    length: tl.tensor,
    prompt: tl.tensor,
    begin: tl.tensor,
    steps: tl.constexpr,
    size: tl.constexpr,
    noisy: tl.constexpr,
    searches: tl.constexpr,
    listed: tl.constexpr,
    mass: tl.constexpr,
    floored: tl.constexpr,
    scale: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    tile: tl.constexpr,
    room: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """chances float32 [n, width]: the processed distributions of rows [n, width]. Grid (tiles, n).

    running float64 [n, tiles]: the sums of its tiles; or if `noisy` bests int64 [n, tiles]: `best_of` every tile under
    the noise of its position, that of the first row being `begin` behind that of the round. `floored`: min-p cuts too.
    Of several rounds (`steps` > 1) the rows go to history too, see `choosing.keep`.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    row = tl.program_id(1)
    inside = token < width
    place = row.to(tl.int64) * width + token
    x = tl.load(rows + place, mask=inside, other=-float("inf"))
    inverse = tl.load(settings).to(tl.float32)
    top = peak_of(peaks, row, tiles, many)
    distance = (top - x) * inverse
    weight = tl.exp(-distance)
    if (searches > 0) or listed:
        if floored:
            edge, _goal, held = recalled(state + (row + 1) * max(searches, 1) * STATE - STATE, LEVELS)
        else:
            edge, held = _edge(
                rows, settings, bins, state, near, total, top, row, searches, listed, mass, scale, width, tile, room
            )
        weight = tl.where(distance.to(tl.int32, bitcast=True) <= edge, weight, 0.0)
        whole = held.to(tl.float64) / scale
    else:
        whole = total_of(peaks, sums, top, inverse, row, tiles, many)
    if floored:
        weight = tl.where(distance <= tl.load(settings + 3).to(tl.float32), weight, 0.0)
        whole = tl.load(total + 2 * row).to(tl.float64) / scale
    chance = tl.div_rn(weight, whole.to(tl.float32))
    chance = tl.where(top == top, chance, float("nan"))
    tl.store(chances + place, chance, mask=inside)
    if steps > 1:
        keep(history, slot, chance, place, inside, size)
    at = row * tiles + tl.program_id(0)
    if noisy:
        position = tl.load(length) - tl.load(prompt) + begin + row
        noise = _noise(tl.load(seed), position, token)
        tl.store(bests + at, tl.max(tl.where(inside, best_of(tl.div_rn(chance, noise), token), _NONE), 0))
    else:
        tl.store(running + at, tl.sum(tl.where(inside, chance, 0.0).to(tl.float64), 0))


@triton.jit
def rest_of(
    chances: tl.tensor,
    drafted: tl.tensor,
    draft: tl.tensor,
    weight: tl.tensor,
    token: tl.tensor,
    inside: tl.tensor,
    known: tl.constexpr,
) -> tl.tensor:
    """What the target still has to give for some ids after `draft` was refused, from pointers to a row of each."""
    p = tl.load(chances + token, mask=inside, other=0.0)
    if known:
        rest = p * weight - tl.load(drafted + token, mask=inside, other=0.0)
        return tl.where(rest < 0, 0.0, rest)  # unlike a maximum it keeps what is not a number
    return tl.where(token == draft, 0.0, p)


@triton.jit
def reached(weights: tl.tensor, place: tl.tensor, size: tl.constexpr) -> tl.tensor:
    """The first of float64 weights [size] whose running sum reaches `place`, and the sum before it.

    One without weight is never taken. Where rounding keeps all of them below, it is the last one with weight.
    """
    lane = tl.arange(0, size)
    running = tl.cumsum(weights, 0)
    found = tl.min(tl.where((running >= place) & (weights > 0), lane, size), 0)
    found = tl.where(found < size, found, tl.max(tl.where(weights > 0, lane, 0), 0))
    return found, tl.sum(tl.where(lane == found, running - weights, 0.0), 0)


@triton.jit(do_not_specialize=["index"], do_not_specialize_on_alignment=["draft", "chances"])
def draw_draft(
    chances: tl.tensor,
    running: tl.tensor,
    uniforms: tl.tensor,
    taken: tl.tensor,
    draft: tl.tensor,
    feed: tl.tensor,
    mark: tl.tensor,
    index: tl.tensor,
    known: tl.constexpr,
    stamped: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    tile: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """The draft int64 [1] from its row chances [width], with number `index` behind those taken; see `take_best`."""
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    lane = tl.arange(0, many)
    sums = tl.load(running + lane, mask=lane < tiles, other=0.0)
    place = tl.sum(sums, 0) * (1.0 - tl.load(uniforms + tl.load(taken) + index))
    piece, before = reached(sums, place, many)
    token = piece * tile + tl.arange(0, tile)
    weights = tl.load(chances + token, mask=token < width, other=0.0).to(tl.float64)
    found, _ = reached(weights, place - before, tile)
    drawn = tl.minimum(piece * tile + found, width - 1).to(tl.int64)
    tl.store(draft, drawn)
    tl.store(feed, tl.where(drawn < known, drawn, 0))
    if stamped:
        stamp(mark)
