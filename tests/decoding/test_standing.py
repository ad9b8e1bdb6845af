"""What may be said of a speedup: good only where clock and tokens allow it."""

from __future__ import annotations

import pytest

from specdec_tui.decoding.figures import RunFigures, speedup
from specdec_tui.decoding.records import EndReason, PrefillDone, RoundVerified, RunEnded, RunStarted, Status, Token
from specdec_tui.decoding.standing import BEYOND_TAU, BEYOND_TOKENS, SAME_TEXT, Verdict, interval_text, standing
from specdec_tui.decoding.sweep import Point


def run_of(strategy: str, rounds: int, step: float, *, accepted: int = 0, drafts: int = 0) -> RunFigures:
    """Rounds alike; a round without drafts after each that has some."""
    found = RunFigures()
    found.add(RunStarted(strategy, 3, max(1, drafts), 999))
    found.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index in range(rounds):
        fates = [Status.ACCEPTED] * accepted + [Status.REJECTED] * (drafts > accepted)
        own = tuple(Token(1, fate, 0) for fate in fates) if index % 2 else ()
        found.add(RoundVerified(index, own, Token(2, Status.SAMPLED, 0), 0.0, step, 0.0))
    return found


TARGET = run_of("target", 80, 0.1)


def faster_run() -> RunFigures:
    return run_of("speculative", 60, 0.105, accepted=3, drafts=4)


def test_a_run_that_is_faster_in_every_way_is_called_faster() -> None:
    run, target = faster_run(), run_of("target", 200, 0.1)
    found = standing(run, target)
    assert found is not None and found.verdict is Verdict.FASTER
    assert found.text == f"{speedup(target, run):.2f}×"


def test_an_impossible_speedup_is_disturbed_and_shown_as_its_interval() -> None:
    """One-token passes of 172 ms in the target and of 58 ms in the run: 2.9× at 1 token a pass."""
    found = standing(run_of("lookup", 80, 0.058, drafts=1), run_of("target", 80, 0.172))
    assert found is not None and found.ratio > 2.9
    assert found.verdict is Verdict.DISTURBED and "58 ms" in found.reason
    assert found.text == interval_text(found.low or 0, found.high or 0) and found.low == pytest.approx(1.0, abs=0.05)


@pytest.mark.parametrize("percent", range(1, 60, 3))
def test_a_speedup_above_the_tokens_of_a_pass_is_never_called_faster(percent: int) -> None:
    for accepted in (0, 1):
        run = run_of("lookup", 80, 0.1 / (1 + percent / 100), accepted=accepted, drafts=1)
        found = standing(run, TARGET)
        assert found is not None and run.tokens_per_target_call is not None
        if found.ratio > run.tokens_per_target_call:
            assert found.verdict is not Verdict.FASTER


def test_too_few_rounds_are_called_short_whatever_their_ratio() -> None:
    for run, text in ((run_of("lookup", 4, 0.1, accepted=1, drafts=1), "1.50×"), (run_of("lookup", 4, 0.2), "0.50×")):
        found = standing(run, TARGET)
        assert found is not None and (found.verdict, found.text) == (Verdict.SHORT, text)
    assert found.reason == "4 rounds beside target's are too few to tell"


def test_a_ratio_of_the_first_moments_that_rounds_to_nothing_is_no_number() -> None:
    found = standing(run_of("lookup", 4, 30.0), TARGET)
    assert found is not None and found.ratio < 0.005
    assert (found.verdict, found.text, found.marked[:1]) == (Verdict.SHORT, "–", "–")


def test_about_equal_is_neither_faster_nor_slower() -> None:
    found = standing(run_of("lookup", 80, 0.1), TARGET)
    assert found is not None and found.verdict is Verdict.OPEN


def test_without_a_baseline_or_its_rounds_there_is_no_standing() -> None:
    assert standing(TARGET, None) is None
    assert standing(TARGET, RunFigures()) is None
    assert standing(RunFigures(), TARGET) is None


def test_the_ends_of_an_interval_can_be_told_apart() -> None:
    assert interval_text(0.9, 2.04) == "0.90–2.04×"
    assert interval_text(0.97, 1.03) == "0.97–1.03×" and interval_text(1.01, 1.04) == "1.01–1.04×"


def test_nothing_good_is_said_of_a_run_that_failed() -> None:
    baseline, run = run_of("target", 200, 0.1), faster_run()
    run.add(RunEnded(EndReason.ERROR, "out of memory"))
    found = standing(run, baseline)
    assert found is not None and found.ratio > 1.005 and found.verdict is Verdict.OPEN


def test_of_a_baseline_of_another_time_neither_faster_nor_slower_is_said() -> None:
    """Its machine may have been another one: 0.35× was told of a busy one, 1.88× of the same at rest."""
    slower_run = run_of("lookup", 150, 0.108, drafts=1)
    for run, verdict in ((faster_run(), Verdict.FASTER), (slower_run, Verdict.SLOWER)):
        baseline = run_of("target", 200, 0.1)
        assert (side_by_side := standing(run, baseline)) is not None and side_by_side.verdict is verdict
        baseline.is_of_another_time = True
        found = standing(run, baseline)
        assert found is not None and found.ratio == side_by_side.ratio and found.verdict is Verdict.OPEN


def test_a_baseline_that_recomputes_makes_nothing_green_and_is_marked() -> None:
    baseline, run = run_of("target", 200, 0.1), faster_run()
    baseline.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1, recomputes=True))
    found = standing(run, baseline)
    assert found is not None and found.ratio > 1.005 and found.verdict is Verdict.OPEN
    assert found.marked == f"{found.ratio:.2f}×†" and found.remarks == "† target recomputes"


def test_where_tokens_a_second_do_not_give_the_speedup_it_is_said_over_what_it_is() -> None:
    """A race: 68.2 beside 39.9 tok/s and 1.97×, over the text both had; passes had become slower since."""
    target = run_of("target", 40, 0.02)
    run = run_of("lookup", 27, 0.02, accepted=1, drafts=1)
    assert (found := standing(run, target)) is not None and SAME_TEXT not in found.marks
    for index in range(27, 47):
        run.add(RoundVerified(index, (), Token(2, Status.SAMPLED, 0), 0.0, 0.03, 0.0))
    found = standing(run, target)
    rates = [one.decode_tokens_per_second or 0 for one in (run, target)]
    assert found is not None and abs(rates[0] / rates[1] / found.ratio - 1) > 0.05
    assert found.marked.endswith("×‡") and found.remarks == "‡ over the text both have"


def test_a_disturbed_interval_is_marked_only_where_it_hides_what_the_speeds_say() -> None:
    found = standing(run_of("lookup", 80, 0.058, drafts=1), run_of("target", 80, 0.172))
    assert found is not None and found.is_disturbed and found.marks == ""


def test_an_interval_ends_where_the_tokens_of_a_round_do() -> None:
    run = run_of("lookup", 80, 0.04)  # one token a round, in less time than the target's
    found = standing(run, TARGET)
    assert found is not None and found.is_disturbed and found.ratio > 2
    assert found.high is not None and found.high <= 1


@pytest.mark.parametrize("percent", range(-12, 30, 2))
@pytest.mark.parametrize("rounds", [9, 12, 40])
def test_a_steady_speedup_above_the_shown_tau_is_possible_and_says_so(percent: int, rounds: int) -> None:
    """τ of 9 rounds of 5 tokens is 4.60 with the prefill: 5.3× beside it was called steady, without a word."""
    run = RunFigures()
    run.add(RunStarted("lookup", 3, 4, 999))
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index in range(rounds):
        drafts = tuple(Token(1, Status.ACCEPTED, 0) for _ in range(4))
        run.add(RoundVerified(index, drafts, Token(2, Status.BONUS, 0), 0.0, 0.1 / (1 + percent / 100), 0.0))
    found, tau = standing(run, run_of("target", 5 * rounds, 0.1)), run.tokens_per_target_call
    assert found is not None and tau is not None
    if found.ratio > tau + 0.005 and not found.is_disturbed:
        assert found.ratio <= 5 * 1.0001 or found.ratio <= tau * 1.1
        assert found.verdict is not Verdict.FASTER
        assert (found.remarks == "¶ τ counts the prefill") == (found.ratio <= 5.0001)
    else:
        assert "¶" not in found.marks
    if found.ratio > max(5.0001, tau * 1.1):
        assert found.is_disturbed


@pytest.mark.parametrize("percent", range(-12, 30))
@pytest.mark.parametrize("rounds", [9, 40, 200])
@pytest.mark.parametrize("text", [0.6, 1.0])
def test_no_speedup_stands_above_the_shown_tau_without_a_mark_or_a_doubt(
    percent: int, rounds: int, text: float
) -> None:
    """1.31× at τ 1.28 was steady: neither green nor starred, and without a word."""
    run = RunFigures()
    run.add(RunStarted("lookup", 3, 1, 999))
    run.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1))
    for index in range(rounds):
        drafts = (Token(1, Status.ACCEPTED, 0),) if index % 4 == 0 else ()
        run.add(RoundVerified(index, drafts, Token(2, Status.SAMPLED, 0), 0.0, 0.1 / (1 + percent / 100), 0.0))
    found = standing(run, run_of("target", int(1.25 * rounds * text), 0.1))
    tau = run.tokens_per_target_call
    assert found is not None and tau is not None
    if not found.is_disturbed and round(found.ratio, 2) > round(tau, 2):
        assert set(found.marks) & {BEYOND_TAU, BEYOND_TOKENS, SAME_TEXT} and found.remarks
        assert found.verdict is not Verdict.FASTER
    if not found.is_disturbed and text == 1 and rounds > 9 and found.ratio > 1.3:
        assert found.marks.endswith(BEYOND_TOKENS)
    if found.is_disturbed and found.high is not None:
        shown = float(found.text.removesuffix("×").split("–")[-1].removeprefix("≤ "))
        assert shown <= round(found.high, 2)


def test_ends_of_an_interval_are_rounded_as_tau_and_the_points_of_the_lab_are() -> None:
    """1.3 stood beside a τ of 1.25, and then 2.2–2.8 in a pane for what the γ-lab has as 2.26–2.88."""
    assert interval_text(0.88, 1.25) == "0.88–1.25×" and interval_text(1.279, 1.288) == "1.28–1.29×"
    assert interval_text(3.678, 3.678) == f"≤ {3.678:.2f}×"
    assert interval_text(0.3 * 3, 4.0 - 1e-12) == "0.90–4.00×"
    assert interval_text(2.26, 2.88) == Point(4, None, 2.26, 2.88, 1).text == "2.26–2.88×"


@pytest.mark.parametrize("most", [1.04 + step / 100 for step in range(40)])
def test_no_form_of_an_interval_reaches_above_what_tokens_allow(most: float) -> None:
    for low in (0.5, 0.95, most - 0.1, most - 0.03, most):
        shown = interval_text(low, most).removesuffix("×").removeprefix("≤ ").split("–")
        assert shown[-1] == f"{most:.2f}", "what τ says of as many tokens"
        assert float(shown[0]) <= round(low, 2) or len(shown) == 1
