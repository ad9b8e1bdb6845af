"""Whether two runs of a strategy differ by more than chance: figure by figure, with the noise of each. No torch here.

The noise is what the difference of two repeats would stay below in 19 of 20 cases:

- tokens/s and speedup: how the time of rounds with as many drafts scatters between parts of each run (`blocking`), for
  a speedup as `reliability` has it. Where the two texts are not the same, also how the tokens of rounds scatter: other
  draws would have had others. Tokens/s moreover by as much as the target's own moved between the two, the control that
  ran on the same machine both times; without it by the tenth that clocks of two times may differ by.
- α: the binomial error of its judged drafts (Agresti and Coull 1998, doi 10.1080/00031305.1998.10480550).
- τ: how the tokens of rounds scatter between parts of each run.

The latter two are of texts of this kind: decoded again, a greedy text is the same one and has the same α and τ.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, hypot, log, sqrt

from specdec_tui.decoding.blocking import blocks, compare
from specdec_tui.decoding.course import LEAST_SECONDS
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.reliability import TOLERANCE
from specdec_tui.decoding.standing import Standing, standing

FIGURES = ("tok/s", "speedup", "α", "τ")
"""What is compared, in the order in which it is told."""
TOO_SHORT, ANOTHER_SCHEDULE = "too short", "another schedule"
_SIGMAS = 2.0  # about 95 %


@dataclass(frozen=True, slots=True)
class Measured:
    """A run, the target's own that it is compared with, and its text."""

    run: RunFigures
    baseline: RunFigures | None = None
    text: str = ""


@dataclass(frozen=True, slots=True)
class Difference:
    """A figure before and now; `noise` is in the figure's own unit. `why`: it cannot be compared."""

    before: float
    now: float
    noise: float = 0.0
    why: str = ""

    @property
    def change(self) -> float:
        return self.now - self.before

    @property
    def is_beyond(self) -> bool:
        """Whether it is more than noise; a sum of clock readings is off by its last digits."""
        return not self.why and abs(self.change) > self.noise + 1e-9 * abs(self.before)


def differences(before: Measured, now: Measured, same_target: bool = True) -> dict[str, Difference]:
    """By figure, of those that both runs have; `same_target`: the model, so that its own pace tells of the machine."""
    stands = standing(before.run, before.baseline), standing(now.run, now.baseline)
    why = _clock_doubt(before, now, stands)
    found = {
        "tok/s": _rate(before, now, same_target),
        "speedup": _speedup(before, now, stands),
        "α": _acceptance(before.run, now.run),
        "τ": _tokens(before.run, now.run),
    }
    told = {name: one for name, one in found.items() if one is not None}
    return {name: replace(one, why=why) if why and name in FIGURES[:2] else one for name, one in told.items()}


def target_drift(before: RunFigures | None, now: RunFigures | None) -> float | None:
    """The logarithm of by how much the target's own tokens/s moved; None without it in both."""
    rates = [None if run is None else run.decode_tokens_per_second for run in (before, now)]
    return log(rates[1] / rates[0]) if rates[0] and rates[1] else None


def clock_error(run: RunFigures) -> float | None:
    """The standard error, as a share, of a run's seconds; None where there are too few rounds to tell.

    Each part of the run is due what its rounds take on average in all of it, by their number of drafts.
    """
    course = run.course
    means = {n: passes.mean or 0.0 for n, passes in course.rounds_by_drafts(0, run.rounds).items()}
    pairs = []
    for first, last in blocks(run.rounds):
        due = sum(passes.count * means[n] for n, passes in course.rounds_by_drafts(first, last).items())
        pairs.append((course.seconds_between(first, last), due))
    found = compare(pairs)
    return None if found is None else found.error


def text_error(run: RunFigures) -> float | None:
    """The standard error, as a share, of the tokens of a round; None where there are too few to tell."""
    course = run.course
    parts = blocks(run.rounds)
    found = compare([(course.tokens_after(b) - course.tokens_after(a), float(b - a)) for a, b in parts])
    return None if found is None else found.error


def _clock_doubt(before: Measured, now: Measured, stands: Sequence[Standing | None]) -> str:
    """Why clocks of the two cannot be compared; empty where they can."""
    doubts = [one.doubt for one in stands if one is not None and one.doubt]
    if disturbed := [doubt for doubt in doubts if "disturbed" in doubt]:
        return disturbed[0]
    if before.run.is_alone != now.run.is_alone:
        return ANOTHER_SCHEDULE
    return doubts[0] if doubts else ""


def _rate(before: Measured, now: Measured, same_target: bool) -> Difference | None:
    old, new = before.run.decode_tokens_per_second, now.run.decode_tokens_per_second
    if old is None or new is None:
        return None
    error = _speed_error(before, now)
    if error is None:
        return Difference(old, new, why=TOO_SHORT)
    noise = _SIGMAS * error
    if now.run.strategy != "target":
        drift = target_drift(before.baseline, now.baseline) if same_target and _are_of_their_time(before, now) else None
        noise += log(1 + TOLERANCE) if drift is None else abs(drift)
    return Difference(old, new, _width(old, new, noise))


def _are_of_their_time(*runs: Measured) -> bool:
    return not any(one.baseline is None or one.baseline.is_of_another_time for one in runs)


def _speed_error(before: Measured, now: Measured) -> float | None:
    """Of the logarithm of the ratio of the two speeds."""
    errors = [clock_error(one.run) for one in (before, now)]
    if not _is_same_text(before, now):
        errors += [text_error(one.run) for one in (before, now)]
    known = [error for error in errors if error is not None]
    return hypot(*known) if len(known) == len(errors) else None


def _speedup(before: Measured, now: Measured, stands: Sequence[Standing | None]) -> Difference | None:
    old, new = stands
    if old is None or new is None or now.run.strategy == "target":
        return None
    halves = [log(one.ratio / one.low) if one.low and one.low >= LEAST_SECONDS else None for one in (old, new)]
    errors = [] if _is_same_text(before, now) else [text_error(one.run) for one in (before, now)]
    known = [half for half in halves if half is not None] + [_SIGMAS * error for error in errors if error is not None]
    if len(known) < len(halves) + len(errors):
        return Difference(old.ratio, new.ratio, why=TOO_SHORT)
    return Difference(old.ratio, new.ratio, _width(old.ratio, new.ratio, hypot(*known)))


def _acceptance(before: RunFigures, now: RunFigures) -> Difference | None:
    old, new = before.acceptance_rate, now.acceptance_rate
    if old is None or new is None:
        return None
    variances = []
    for run in (before, now):
        judged = run.judged + _SIGMAS**2
        share = (run.accepted + _SIGMAS**2 / 2) / judged
        variances.append(share * (1 - share) / judged)
    return Difference(old, new, _SIGMAS * sqrt(sum(variances)))


def _tokens(before: RunFigures, now: RunFigures) -> Difference | None:
    old, new = before.tokens_per_target_call, now.tokens_per_target_call
    if old is None or new is None or not (before.drafted or now.drafted):
        return None
    errors = text_error(before), text_error(now)
    if errors[0] is None or errors[1] is None:
        return Difference(old, new, why=TOO_SHORT)
    return Difference(old, new, _SIGMAS * hypot(old * errors[0], new * errors[1]))


def _is_same_text(before: Measured, now: Measured) -> bool:
    return bool(now.text) and before.text == now.text


def _width(old: float, new: float, noise: float) -> float:
    """What a change by `noise`, a logarithm, is in the figure's unit, in the direction in which it moved."""
    return old * (exp(noise) - 1) if new >= old else old * (1 - exp(-noise))
