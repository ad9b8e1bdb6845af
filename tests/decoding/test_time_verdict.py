"""Why a run was faster or slower, in one sentence: never against the verdict on its speedup."""

from __future__ import annotations

from test_standing import TARGET, run_of

from specdec_tui.decoding.costs import TIMES_VARY, costs
from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.forecast import basis_of, break_even
from specdec_tui.decoding.records import EndReason, PrefillDone, RoundVerified, RunEnded, RunStarted, Status, Token
from specdec_tui.decoding.standing import Verdict, standing
from specdec_tui.decoding.time_verdict import time_verdict


def drafting(
    kept: list[int], *, draft: float = 0.044, step: float = 0.1, drafts: int = 4, ended: bool = True
) -> RunFigures:
    """Rounds of so many drafts of `draft` seconds each, of which so many are kept."""
    found = RunFigures()
    found.add(RunStarted("speculative", 3, drafts, 999))
    found.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index, count in enumerate(kept):
        fates = [Status.ACCEPTED] * count + [Status.REJECTED] * (count < drafts)
        fates += [Status.UNVERIFIED] * (drafts - len(fates))
        own = tuple(Token(1, fate, 0) for fate in fates)
        found.add(RoundVerified(index, own, Token(2, Status.SAMPLED, 0), draft * drafts, step, 0.0))
    if ended:
        found.add(RunEnded(EndReason.LENGTH))
    return found


def verdict_of(run: RunFigures, target: RunFigures) -> Verdict:
    found = standing(run, target)
    assert found is not None
    return found.verdict


def test_a_slower_run_is_told_by_the_price_of_a_draft_and_by_how_many_are_accepted() -> None:
    run = drafting([1, 0, 0] * 20, drafts=1)
    assert verdict_of(run, TARGET) is Verdict.SLOWER
    # A round of a draft costs 0.44 + 1 plain steps and gives 1 + α tokens.
    assert time_verdict(run, TARGET) == (
        "slower: a draft costs 0.44 of a target pass, and 0.33 of the drafts judged are accepted; break-even is 0.44"
    )


def test_the_share_told_is_of_judged_drafts_and_not_of_all() -> None:
    run = drafting([3, 4, 0, 1] * 12)
    judged = [draft for kept in [3, 4, 0, 1] * 12 for draft in [True] * kept + [False] * (kept < 4)]
    told = time_verdict(run, TARGET)
    assert f"{sum(judged) / len(judged):.2f} of the drafts judged are accepted" in told
    assert f"{sum(judged) / run.drafted:.2f} of" not in told


def test_a_run_at_work_is_told_without_the_threshold_that_takes_longest() -> None:
    told = time_verdict(drafting([1, 0, 0] * 20, drafts=1, ended=False), TARGET)
    assert told == "slower: a draft costs 0.44 of a target pass, and 0.33 of the drafts judged are accepted"


def test_break_even_is_where_the_prediction_of_the_same_costs_is_one() -> None:
    run = drafting([1, 0, 2, 1, 0, 4] * 8)
    even = break_even(basis_of(run, TARGET), run.gamma)
    predicted, alpha = costs(run, TARGET).predicted_speedup, run.acceptance_rate
    assert even is not None and predicted is not None and alpha is not None
    assert f"break-even is {even:.2f}" in time_verdict(run, TARGET) and (predicted >= 1) == (alpha >= even)


def test_a_faster_run_has_its_word_and_a_wider_pass_that_costs_more_its_price() -> None:
    run = drafting([4, 3, 4, 4, 2, 4] * 6, draft=0.008, step=0.12)
    assert verdict_of(run, TARGET) is Verdict.FASTER
    told = time_verdict(run, TARGET)
    assert told.startswith("faster: a draft costs 0.08 of a target pass, a pass over 5 tokens 1.20, and 0.9")
    assert "of the drafts judged are accepted; break-even is 0." in told


def test_where_drafts_cost_too_much_no_acceptance_rate_would_do() -> None:
    assert "accepted; no acceptance rate would do" in time_verdict(drafting([4, 3] * 10, draft=0.12), TARGET)


def test_a_disturbed_clock_is_named_in_place_of_praise_and_of_prices() -> None:
    run, target = run_of("lookup", 80, 0.058, drafts=1), run_of("target", 80, 0.172)
    found = standing(run, target)
    assert found is not None and time_verdict(run, target) == f"clock disturbed: {found.reason}"


def test_the_word_is_never_against_the_verdict_whatever_the_run() -> None:
    words = {Verdict.FASTER: "faster", Verdict.SLOWER: "slower", Verdict.DISTURBED: "clock disturbed"}
    seen = set()
    for draft in (0.0, 0.01, 0.03, 0.06):
        for step in (0.05, 0.1, 0.2):
            for kept in ([0, 1], [2, 1, 3], [4, 4, 3]):
                for repeats in (1, 12):
                    run = drafting(kept * repeats, draft=draft, step=step)
                    verdict, told = verdict_of(run, TARGET), time_verdict(run, TARGET)
                    seen.add(verdict)
                    for which, word in words.items():
                        assert told.startswith(word) == (verdict is which), (verdict, told)
    assert seen >= {*words, Verdict.SHORT}


def test_a_clock_that_contradicts_the_acceptance_rate_says_so_in_the_sentence() -> None:
    """Medians do not see hiccups: the parts of this run predict a gain, and every fifth round took 25 times as long."""
    run = RunFigures()
    run.add(RunStarted("speculative", 3, 4, 999))
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    drafts = tuple(Token(1, fate, 0) for fate in (Status.ACCEPTED, Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED))
    for index in range(80):
        seconds = 2.5 if index % 5 == 2 else 0.1
        run.add(RoundVerified(index, drafts, Token(2, Status.RESAMPLED, 0), 0.032, seconds, 0.0))
    run.add(RunEnded(EndReason.LENGTH))
    target = run_of("target", 300, 0.1)
    assert verdict_of(run, target) is Verdict.SLOWER
    told = time_verdict(run, target)
    assert told.startswith(
        "slower, although a draft costs 0.08 of a target pass, and 0.67 of the drafts judged are accepted; break-even"
    )
    assert told.endswith(": its parts predict 2.27×, the clock says 0.49×")


def test_runs_without_drafts_have_sentences_of_their_own() -> None:
    assert time_verdict(RunFigures(), None) == "no rounds yet"
    assert time_verdict(TARGET, TARGET).startswith("the baseline: each token costs a pass of its own, 100 ms a token")
    assert time_verdict(run_of("drafter", 80, 0.02), TARGET).startswith("the drafter alone: 20 ms a token, 0.20 of")
    assert time_verdict(run_of("lookup", 80, 0.1), TARGET).endswith("it had no drafts")
    assert (
        time_verdict(drafting([1] * 9), None)
        == "no run of the target to compare with: 0.50 of the drafts judged are accepted"
    )


def test_a_search_is_told_by_its_steps_and_that_its_text_is_another() -> None:
    run = RunFigures()
    run.add(RunStarted("beam", 3, 0, 99, beams=4))
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index in range(20):
        run.add(RoundVerified(index, (), None, 0.0, 0.4, 0.0, settled=(Token(2, Status.SAMPLED, 0),)))
    run.add(RunEnded(EndReason.LENGTH))
    assert time_verdict(run, TARGET).startswith("a search: 400 ms a step over all its texts")
    assert time_verdict(run, TARGET).endswith("for another text than the target's")


def test_a_target_of_another_time_that_recomputes_or_a_failed_run_are_never_called_faster() -> None:
    run = drafting([4, 3, 4, 4, 2, 4] * 6, draft=0.008)
    other = run_of("target", 80, 0.1)
    other.is_of_another_time = True
    assert "faster:" not in time_verdict(run, other)
    again = RunFigures()
    again.add(RunStarted("target", 3, 1, 999))
    again.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1, recomputes=True))
    for index in range(80):
        again.add(RoundVerified(index, (), Token(2, Status.SAMPLED, 0), 0.0, 0.1, 0.0))
    assert time_verdict(run, again).startswith("flattered by a target")
    run.add(RunEnded(EndReason.ERROR, "out of memory"))
    assert time_verdict(run, TARGET).startswith("failed, so neither")


def test_step_times_that_vary_leave_the_prices_out_and_keep_the_word() -> None:
    run = RunFigures()
    run.add(RunStarted("speculative", 3, 1, 999))
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    target = RunFigures()
    target.add(RunStarted("target", 3, 1, 999))
    target.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index in range(200):
        pace = 1 if index % 4 < 2 else 3
        run.add(
            RoundVerified(index, (Token(1, Status.REJECTED, 0),), Token(2, Status.RESAMPLED, 0), 0.01, 0.11 * pace, 0.0)
        )
        target.add(RoundVerified(index, (), Token(2, Status.SAMPLED, 0), 0.0, 0.1 * pace, 0.0))
    assert costs(run, target).missing == TIMES_VARY and verdict_of(run, target) is Verdict.SLOWER
    assert time_verdict(run, target) == (
        "slower: step times vary, so what a draft costs in passes is not summed up; "
        "0.00 of the drafts judged are accepted"
    )


def test_step_times_that_vary_do_not_hide_that_a_draft_costs_next_to_nothing() -> None:
    """The row above the sentence has the mean time of a draft: it must not be called unknown below."""
    run, target = RunFigures(), RunFigures()
    for found, name in ((run, "lookup"), (target, "target")):
        found.add(RunStarted(name, 3, 1, 999))
        found.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index in range(200):
        pace = 1 if index % 4 < 2 else 3
        drafts = (Token(1, Status.ACCEPTED, 0),)
        run.add(RoundVerified(index, drafts, Token(2, Status.BONUS, 0), 0.000007, 0.11 * pace, 0.0))
        target.add(RoundVerified(index, (), Token(2, Status.SAMPLED, 0), 0.0, 0.1 * pace, 0.0))
    assert costs(run, target).missing == TIMES_VARY and verdict_of(run, target) is Verdict.FASTER
    assert time_verdict(run, target) == (
        "faster: step times vary, but a draft costs next to nothing; 1.00 of the drafts judged are accepted"
    )
