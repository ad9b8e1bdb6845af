"""Why a run was faster or slower than the target, in one sentence. No torch here.

Its word is that of `standing`; what stands behind it comes from `costs`, so neither says anything where clocks
contradict each other.
"""

from __future__ import annotations

from specdec_tui.decoding.costs import Costs, costs
from specdec_tui.decoding.course import LEAST_SECONDS
from specdec_tui.decoding.figures import OF_THE_DRAFTER, REFUSED_UNTOLD, RunFigures
from specdec_tui.decoding.forecast import basis_of, break_even, missing
from specdec_tui.decoding.latency import latency
from specdec_tui.decoding.records import EndReason
from specdec_tui.decoding.reliability import ms_text
from specdec_tui.decoding.standing import BEYOND_TOKENS, RECOMPUTES, Standing, Verdict, standing

_NOTABLE = 0.05  # by which a pass over several tokens must differ from a plain one to be told
_NOTHING = 0.005  # of a pass: a draft that takes less has no price worth a figure


def time_verdict(run: RunFigures, baseline: RunFigures | None) -> str:
    """Takes bounded work however long the runs, so a screen may ask at every repaint.

    Break-even is told of a run that has ended: it takes longer than all else here, and a run at work must not wait.
    """
    if not run.rounds:
        return "no rounds yet"
    if run.decode_seconds < LEAST_SECONDS:
        return "no measurable time yet"
    if run.strategy == "target":
        return _of_target(run)
    found = standing(run, baseline)
    if found is not None and found.is_disturbed:
        return f"clock disturbed: {found.reason}"
    if run.searches:
        return _of_search(run, found)
    if run.strategy in OF_THE_DRAFTER:
        return _of_drafter(run, found)
    what = costs(run, baseline)
    alpha = run.acceptance_rate
    if found is None or baseline is None:
        lacks = "no run of the target to compare with" if baseline is None else "no rounds of the target yet"
        return f"{lacks}: {_survival(run)}" if alpha is not None else lacks
    is_known = run.end is not None and not missing(run, baseline)
    even = break_even(basis_of(run, baseline), run.gamma) if is_known else None
    far = latency(run, baseline)
    reasons = _reasons(run, what) + (_threshold(even) if is_known else "") + (f"; {far.text}" if far else "")
    if not is_known or not _contradicts(found.verdict, alpha or 0.0, even):
        return f"{_word(run, baseline, found)}: {reasons}"
    told = f"its parts predict {what.predicted_speedup:.2f}×, the clock says {found.text}"
    return f"{_word(run, baseline, found)}, although {reasons}: {told}"


def _of_target(run: RunFigures) -> str:
    token = ms_text(run.decode_seconds / max(1, run.new_tokens - run.prefill_tokens))
    if run.by_calls:
        return f"the baseline: a stream from the server, {token} a token"
    again = ", which computes the whole text again" if run.recomputes else ""
    return f"the baseline: each token costs a pass of its own{again}, {token} a token"


def _of_drafter(run: RunFigures, found: Standing | None) -> str:
    token = ms_text(run.decode_seconds / max(1, run.new_tokens - run.prefill_tokens))
    share = f", {1 / found.ratio:.2f} of the target's" if found is not None and not found.doubt else ""
    return f"the drafter alone: {token} a token{share}, for another text than the target's"


def _of_search(run: RunFigures, found: Standing | None) -> str:
    step = ms_text(run.decode_seconds / run.rounds)
    share = f", {1 / found.ratio:.2f} times the target's time a token" if found is not None and not found.doubt else ""
    return f"a search: {step} a step over all its texts{share}, for another text than the target's"


def _word(run: RunFigures, baseline: RunFigures | None, found: Standing) -> str:
    """The verdict in a few words, with why it is no more than that."""
    match found.verdict:
        case Verdict.FASTER | Verdict.SLOWER:
            return found.verdict.value
        case Verdict.SHORT | Verdict.UNCHECKED:
            return f"{found.doubt} to call it faster or slower" if found.verdict is Verdict.SHORT else found.doubt
    if run.end is not None and run.end.reason is EndReason.ERROR:
        return "failed, so neither faster nor slower"
    if baseline is not None and baseline.is_of_another_time:
        return "neither faster nor slower can be said against a target of another time"
    if RECOMPUTES in found.marks:
        return "flattered by a target that computes its whole text at each step"
    if BEYOND_TOKENS in found.marks:
        return "more than its tokens allow, so not called faster"
    return "as fast as the target" if abs(found.ratio - 1) < 0.005 else "not surely faster"


def _reasons(run: RunFigures, found: Costs) -> str:
    """What decides it: the price of a draft and of checking, and how many drafts are accepted."""
    if found.missing:
        is_cheap = run.drafted and run.draft_seconds / run.drafted < _NOTHING * run.verify_seconds / run.rounds
        price = "but a draft costs next to nothing" if is_cheap else "so what a draft costs in passes is not summed up"
        return f"{found.missing}, {price}; {_survival(run)}"
    if run.acceptance_rate is None:
        return _survival(run)
    parts = []
    if found.cost_ratio is not None:
        plain = "a token of the server's stream" if run.by_calls else "a target pass"
        price = f"{found.cost_ratio:.2f} of {plain}" if found.cost_ratio >= _NOTHING else "next to nothing"
        parts.append(f"a draft costs {price}")
    if found.verify_ratio is not None and abs(found.verify_ratio - 1) >= _NOTABLE:
        what = "call" if run.by_calls else "pass"
        parts.append(f"a {what} over {run.gamma + 1} tokens {found.verify_ratio:.2f}")
    return f"{', '.join(parts)}{',' if parts else ''} and {_survival(run)}" if parts else _survival(run)


def _threshold(even: float | None) -> str:
    """The acceptance rate that would do at this price."""
    if even is None:
        return "; no acceptance rate would do"
    return f"; break-even is {even:.2f}" if even >= 0.005 else "; at this price any acceptance rate does"


def _survival(run: RunFigures) -> str:
    """α in words: of all drafts fewer are kept, for those behind a refused one are never judged."""
    alpha = run.acceptance_rate
    if not run.drafts_are_told:
        return REFUSED_UNTOLD
    return "it had no drafts" if alpha is None else f"{alpha:.2f} of the drafts judged are accepted"


def _contradicts(verdict: Verdict, alpha: float, even: float | None) -> bool:
    """Whether the acceptance rate says the opposite of the clock."""
    pays = even is not None and alpha >= even
    return (verdict is Verdict.FASTER and not pays) or (verdict is Verdict.SLOWER and pays)
