"""Kernels that end a round, in Triton: what the drafts are worth, the token behind them, and the state of the next.

The rules are those of `decoding.device_rules`, in the same precision and order; a sum over the vocabulary is float64.
Imported only where there is Triton.
"""

from __future__ import annotations

import triton  # type: ignore[import-not-found]
import triton.language as tl  # type: ignore[import-not-found]
from triton.language.extra.cuda import gdc_launch_dependents, gdc_wait  # type: ignore[import-not-found]

from specdec_tui.backends.gpu.rounds.choosing import id_of
from specdec_tui.backends.gpu.rounds.drawing import reached, rest_of

GREEDY, COUPLED, REJECTION, BLOCK, SKIP = (tl.constexpr(number) for number in range(5))  # the first two compare ids
_NONE = tl.constexpr(-(1 << 63))
_FACTS = tl.constexpr(7)  # numbers of a round apart from those of its drafts


@triton.jit
def _joint(before: tl.tensor, p: tl.tensor, q: tl.tensor) -> tl.tensor:
    """The weight behind a draft in the rule `block`, float64, from the one before it."""
    ratio = before * p / tl.where(q > 0, q, 1.0)
    # Unlike a minimum, `where` keeps what is not a number.
    return tl.where(q > 0, tl.where(ratio > 1, 1.0, ratio), (p > 0).to(tl.float64))


@triton.jit
def _chance_of(chances: tl.tensor, block: tl.tensor, index: tl.constexpr, width: tl.constexpr) -> tl.tensor:
    return tl.load(chances + index * width + tl.load(block + 1 + index)).to(tl.float64)


@triton.jit
def tile_rests(
    chances: tl.tensor,
    drafted: tl.tensor,
    block: tl.tensor,
    rests: tl.tensor,
    joint: tl.constexpr,
    gamma: tl.constexpr,
    known: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    tile: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """rests float64 [gamma, tiles]: sums of what the target still has to give at each draft. Grid (tiles, gamma).

    chances [gamma + 1, width] of the target, drafted [gamma, width] of the drafter, `known` if it has any; block
    int64 [gamma + 1]: the last token, then the drafts. `joint`: by the weights of the rule `block`.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    row = tl.program_id(1)
    weight = tl.full((), 1.0, tl.float64)
    if joint and known:
        for index in tl.static_range(gamma - 1):
            p, q = _chance_of(chances, block, index, width), _chance_of(drafted, block, index, width)
            weight = tl.where(index < row, _joint(weight, p, q), weight)
    token = tl.program_id(0) * tile + tl.arange(0, tile)
    own, theirs = chances + row.to(tl.int64) * width, drafted + row.to(tl.int64) * width
    draft = tl.load(block + 1 + row)
    rest = rest_of(own, theirs, draft, weight.to(tl.float32), token, token < width, known)
    tl.store(rests + row * tiles + tl.program_id(0), tl.sum(rest.to(tl.float64), 0))


@triton.jit
def finish(
    scores: tl.tensor,
    drafted: tl.tensor,
    running: tl.tensor,
    rests: tl.tensor,
    bests: tl.tensor,
    uniforms: tl.tensor,
    ends: tl.tensor,
    marks: tl.tensor,
    given: tl.tensor,
    limit: tl.tensor,
    length: tl.tensor,
    taken: tl.tensor,
    slot: tl.tensor,
    tail: tl.tensor,
    block: tl.tensor,
    places: tl.tensor,
    out: tl.tensor,
    rule: tl.constexpr,
    gamma: tl.constexpr,
    known: tl.constexpr,
    asked: tl.constexpr,
    end_count: tl.constexpr,
    steps: tl.constexpr,
    rounding: tl.constexpr,
    width: tl.constexpr,
    tiles: tl.constexpr,
    many: tl.constexpr,
    tile: tl.constexpr,
    lanes: tl.constexpr,
    overlap: tl.constexpr,
) -> None:
    """Judge the drafts in block [gamma + 1], draw the token behind them, write the results and the new state.

    scores [gamma + 1, width] and drafted [gamma, width]: rows of target and drafter, the latter if `known`; running
    [gamma + 1, tiles] and rests [gamma, tiles]: their sums by tiles; bests [gamma + 1, tiles]: the target's ids, for
    the rules that compare. `asked`: the drafts are the drafter's; otherwise `given` of them are there. lanes: a power
    of two above gamma. One program.
    """
    if overlap:
        gdc_launch_dependents()
        gdc_wait()
    lane = tl.arange(0, lanes)
    real = lane < gamma
    ids = tl.load(block + 1 + lane, mask=real, other=0)
    old_length = tl.load(length)
    count = tl.minimum(tl.maximum(tl.load(limit) - old_length - 1, 0), gamma)
    if asked:
        ended = lane < 0
        for index in tl.static_range(end_count):
            ended = ended | (ids == tl.load(ends + index))
        first_end = tl.min(tl.where(ended & real, lane, gamma), 0)
        count = tl.minimum(count, tl.minimum(first_end + 1, gamma).to(tl.int64))
    else:
        count = tl.minimum(count, tl.load(given))
    exists = lane < count
    none = tl.full((lanes,), float("nan"), tl.float64)
    if rule == GREEDY:
        p, q = none, none
    else:
        p = tl.load(scores + lane.to(tl.int64) * width + ids, mask=real, other=0.0).to(tl.float64)
        q = tl.full((lanes,), 1.0, tl.float64)
        if known:
            q = tl.load(drafted + lane.to(tl.int64) * width + ids, mask=real, other=0.0).to(tl.float64)
    acceptance, draws = none, none
    sound = tl.full((), 1, tl.int32)
    used = tl.zeros((), tl.int64)
    piece = tl.arange(0, many)
    if rule <= COUPLED:
        own = tl.zeros((lanes,), tl.int64)
        for index in tl.static_range(gamma + 1):
            best = tl.max(tl.load(bests + index * tiles + piece, mask=piece < tiles, other=_NONE), 0)
            own = tl.where(lane == index, id_of(best), own)
        same = own == ids
        accepted = tl.min(tl.where(real & ~(same & exists), lane, gamma), 0)
        emitted = tl.sum(tl.where(lane == accepted, own, 0), 0)
        if rule == GREEDY:
            p = same.to(tl.float64)
            q = tl.full((lanes,), 1.0, tl.float64)
            acceptance = p
    else:
        stream = uniforms + tl.load(taken)
        if known:
            stream += count
        used = count + 1
        if known:
            used += count
        draws = tl.load(stream + lane, mask=real, other=0.0)
        weight = tl.full((), 1.0, tl.float64)
        if rule == BLOCK:
            joint = tl.full((lanes,), 1.0, tl.float64)  # behind each draft
            spare = tl.zeros((lanes,), tl.float64)
            for index in tl.static_range(gamma):
                here = lane == index
                p_here, q_here = tl.sum(tl.where(here, p, 0.0), 0), tl.sum(tl.where(here, q, 0.0), 0)
                before = weight
                weight = _joint(weight, p_here, q_here)
                joint = tl.where(here, weight, joint)
                if index > 0:
                    if known:
                        left = tl.sum(tl.load(rests + index * tiles + piece, mask=piece < tiles, other=0.0), 0)
                    else:
                        left = before * (1.0 - p_here)
                        left = tl.where(left < 0, 0.0, left)
                    spare = tl.where(lane == index - 1, left, spare)
            near = tl.full((), rounding, tl.float64)
            open_ended = ~((spare <= near) & (joint >= 1.0 - near))  # also for what is not a number
            ratio = tl.where(open_ended, spare / tl.where(open_ended, spare + 1.0 - joint, 1.0), 1.0)
            acceptance = tl.where(lane + 1 < tl.minimum(count, gamma), ratio, joint)
            accepted = tl.max(tl.where((draws < acceptance) & exists, lane + 1, 0), 0)
            weight = tl.where(accepted == 0, 1.0, tl.sum(tl.where(lane == accepted - 1, joint, 0.0), 0))
        else:
            accepted = tl.min(tl.where(real & ~((draws * q < p) & exists), lane, gamma), 0)
            ratio = p / tl.where(q > 0, q, 1.0)
            acceptance = tl.where((q > 0) & ~(ratio > 1), ratio, 1.0)
        uniform = tl.load(stream + count)
        if rule != BLOCK:
            draws = tl.where(lane <= accepted, draws, none)
        row = scores + accepted.to(tl.int64) * width
        sums = tl.load(running + accepted * tiles + piece, mask=piece < tiles, other=0.0)
        resampled = accepted < 0
        if (rule != SKIP) and (gamma > 0):
            place = tl.minimum(accepted, gamma - 1)
            left = tl.load(rests + place * tiles + piece, mask=piece < tiles, other=0.0)
            resampled = (accepted < count) & (tl.sum(left, 0) > 0)
            sums = tl.where(resampled, left, sums)
        whole = tl.sum(sums, 0)
        sound = (tl.abs(whole) < float("inf")).to(tl.int32)
        goal = whole * (1.0 - uniform)
        chosen, before = reached(sums, goal, many)
        token = chosen * tile + tl.arange(0, tile)
        weights = tl.load(row + token, mask=token < width, other=0.0)
        if (rule != SKIP) and (gamma > 0):
            draft = tl.sum(tl.where(lane == place, ids, 0), 0)
            theirs = drafted + place.to(tl.int64) * width
            rest = rest_of(row, theirs, draft, weight.to(tl.float32), token, token < width, known)
            weights = tl.where(resampled, rest, weights)
        found, _ = reached(weights.to(tl.float64), goal - before, tile)
        emitted = tl.minimum(chosen * tile + found, width - 1).to(tl.int64)
    score = tl.load(scores + accepted.to(tl.int64) * width + emitted)
    if rule == COUPLED:
        sound = (tl.abs(score) < float("inf")).to(tl.int32)
    last = tl.load(block + accepted)
    at = tl.load(slot)
    old_taken = tl.load(taken)
    started, verified_at = tl.load(marks), tl.load(marks + 2)
    drafted_at = tl.load(marks + 1) if asked else started
    tl.debug_barrier()  # what follows overwrites what other threads may still have to read
    out += at * (_FACTS + 5 * gamma)
    tl.store(out, (drafted_at - started).to(tl.float64))
    tl.store(out + 1, (verified_at - drafted_at).to(tl.float64))
    tl.store(out + 2, accepted.to(tl.float64))
    tl.store(out + 3, emitted.to(tl.float64))
    tl.store(out + 4, count.to(tl.float64))
    tl.store(out + 5, sound.to(tl.float64))
    tl.store(out + 6 + lane, ids.to(tl.float64), mask=real)
    tl.store(out + 6 + gamma, score.to(tl.float64))
    numbers = out + _FACTS + gamma + lane
    tl.store(numbers, p, mask=real)
    tl.store(numbers + gamma, q, mask=real)
    tl.store(numbers + 2 * gamma, acceptance, mask=real)
    tl.store(numbers + 3 * gamma, draws, mask=real)
    tl.store(slot, (at + 1) % steps)
    tl.store(taken, old_taken + used)
    tl.store(tail, last)
    tl.store(tail + 1, emitted)
    tl.store(block, emitted)
    new_length = old_length + accepted + 1
    tl.store(length, new_length)
    tl.store(places + lane, new_length - 2 + lane, mask=lane < gamma + 2)
