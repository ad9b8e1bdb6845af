"""The sentences of the tour: figures from the run, and words that follow them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import accumulate
from textwrap import wrap

import pytest

from specdec_tui.decoding.records import (
    Checked,
    EndReason,
    Event,
    Lossless,
    LosslessStatus,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.decoding.standing import Standing, Verdict
from specdec_tui.tui.tour.facts import facts_of
from specdec_tui.tui.tour.speeds import how_sure
from specdec_tui.tui.tour.steps import HARD, STEPS, words_of
from specdec_tui.tui.tour.sums import Given, RoundBounds, steady
from specdec_tui.tui.tour.words import LATER, Said, Scene

PLAIN_SECONDS = 0.030


def run(
    name: str, gamma: int, kept: tuple[int, ...], draft: float, verify: float, tokens: int = 60, other: float = 0.0
) -> Iterator[Event]:
    """A run whose rounds keep so many drafts in turn; clocks are always the same."""
    yield Step(name, RunStarted(name, 9, gamma, tokens), prompt_text="p")
    yield Step(name, PrefillDone(Token(1, Status.SAMPLED, 0), 0.1), ("a",))
    position = number = 0
    while position < tokens - gamma - 2:
        count = min(gamma, kept[number % len(kept)]) if kept else 0
        drafts = []
        for place in range(gamma if kept else 0):
            fate = Status.ACCEPTED if place < count else Status.REJECTED if place == count else Status.UNVERIFIED
            drafts.append(Token(5 + place, fate, position + 1 + place, p=0.02, q=0.40, acceptance=0.05, draw=0.83))
        last = Status.BONUS if count == gamma else Status.RESAMPLED if kept else Status.SAMPLED
        emitted = Token(9, last, position + 1 + count)
        record = RoundVerified(number, tuple(drafts), emitted, draft * len(drafts), verify, other)
        yield Step(name, record, (*(f" guess{place}" for place in range(len(drafts))), " [b]right[/b]\x1b"))
        position, number = position + count + 1, number + 1
    yield Step(name, RunEnded(EndReason.LENGTH))


def played(
    gamma: int = 4,
    kept: tuple[int, ...] = (3, 4, 1),
    draft: float = 0.002,
    verify: float = 0.033,
    other: float = 0.0,
) -> list[Event]:
    events = [*run("target", gamma, (), 0.0, PLAIN_SECONDS)]
    for name in ("speculative", "lookup"):
        events += run(name, gamma, kept, draft, verify, other=other)
    return [*events, *(Checked(name, Lossless(LosslessStatus.IDENTICAL)) for name in ("speculative", "lookup"))]


def said(index: int, events: list[Event], drawn: str = "", panes: int = 1) -> Said:
    return words_of(STEPS[index], Scene(facts_of(events), steady(), drawn, panes))


def words(index: int, events: list[Event], drawn: str = "", panes: int = 1) -> str:
    """What is said in any case."""
    return said(index, events, drawn, panes).text


def also(index: int, events: list[Event]) -> str:
    return " ".join(said(index, events).also)


def disturbed(gamma: int = 4, plain: float = 0.090, kept: tuple[int, ...] = (0, 1)) -> list[Event]:
    """A run whose passes took far less than the target's, which cannot be."""
    return [
        *run("target", gamma, (), 0.0, plain),
        *run("speculative", gamma, kept, 0.002, 0.020),
        *run("lookup", gamma, kept, 0.002, 0.020),
    ]


def test_there_are_eight_steps_and_each_tells_of_its_run_in_a_few_sentences() -> None:
    assert len(STEPS) == 8
    for events in (played(), disturbed(), played(16, (2, 1, 0), 0.009, 0.120), disturbed(16)):
        for index, step in enumerate(STEPS):
            told = words(index, events)
            assert len(told) > 100 and len(wrap(told, 78)) <= 6, (step.title, told)  # at 80×24 it is all there
            whole = " ".join([told, *said(index, events).also])
            assert "\x1b" not in whole and "\n" not in whole and "None" not in whole and "nan" not in whole
            assert "  " not in whole and "" not in said(index, events).also


def test_the_figures_are_those_of_the_run() -> None:
    events = played()
    figures = facts_of(events)["speculative"].figures
    assert "Round 1: 3 of 4 drafts were kept" in words(0, events) and "4 tokens for one pass" in words(0, events)
    assert f"τ = {figures.tokens_per_target_call:.2f}" in words(0, events)
    assert "“guess3” refused? The target's first choice there is “[b]right[/b]" in words(1, events)
    assert f"all {figures.new_tokens} tokens are those" in words(1, events)
    assert "drafts 0.27 (4 × c 0.067 each) + check v 1.10 = 1.37 plain passes" in words(2, events)
    assert "p 0.02, the drafter's q 0.40: kept with chance p/q = 0.05, the coin fell at 0.83" in also(3, events)
    assert "“[b]right" in also(3, events) and "from the residual, what the target has more of" in also(3, events)


def test_the_acceptance_rate_comes_with_the_drafts_it_is_of_and_those_it_is_not_of() -> None:
    events = played()
    fates = [
        draft.status
        for event in events
        if isinstance(event, Step) and event.strategy == "speculative" and isinstance(event.record, RoundVerified)
        for draft in event.record.drafts
    ]
    kept, refused = fates.count(Status.ACCEPTED), fates.count(Status.REJECTED)
    assert f"kept, is {kept} of {kept + refused} = {kept / (kept + refused):.2f}, not of all {len(fates)}" in words(
        1, events
    )


def test_every_letter_is_named_where_it_comes_first() -> None:
    for events in (played(), disturbed()):
        told = [words(index, events) for index in range(8)]
        assert "writes γ = 4 drafts" in told[0] and "τ = " in told[0] and "f1: all letters" in told[0]
        assert "α, the share of judged drafts" in told[1] and "c" not in re.findall(r"\w+", told[0] + told[1])
        third = " ".join([told[2], also(2, events)])
        assert re.search(r"drafts \S+ \(\S+ × c \S+ each\) \+ check v \S+ = \S+ plain passes", third), third
        assert "temperature T = 1" in told[3] and "c: a draft, v: the check" in told[3]
    assert "means here, in the panes medians" in also(2, played())
    assert HARD.settings.temperature == 1.0


@pytest.mark.parametrize(
    ("draft", "verify", "told", "untold"),
    [
        (0.002, 0.033, "faster than the target", "slower than"),
        (0.030, 0.040, "slower than the target", "faster than"),
    ],
    ids=["faster", "slower"],
)
def test_words_follow_the_figures_whatever_the_story_is(draft: float, verify: float, told: str, untold: str) -> None:
    events = played(draft=draft, verify=verify)
    for index in (2, 3, 4):
        assert told in words(index, events) and untold not in words(index, events)


def records_of(events: list[Event], strategy: str) -> list[RoundVerified]:
    """The rounds that lie within the text that the target has, too."""
    rounds: dict[str, list[RoundVerified]] = {"target": [], strategy: []}
    for event in events:
        if isinstance(event, Step) and event.strategy in rounds and isinstance(event.record, RoundVerified):
            rounds[event.strategy].append(event.record)
    made = accumulate(len(record.new_tokens) for record in rounds[strategy])
    return [record for record, until in zip(rounds[strategy], made, strict=True) if until <= len(rounds["target"])]


def test_a_disturbed_clock_teaches_the_tokens_of_a_round_and_between_how_many_passes_it_took() -> None:
    for events, index, strategy, sure in (
        (disturbed(), 2, "speculative", "faster for sure"),
        (disturbed(16, 0.060, (0, 0, 1)), 3, "speculative", "cannot say whether"),
        (disturbed(), 4, "lookup", "faster for sure"),
    ):
        told, rounds = words(index, events), records_of(events, strategy)
        tokens = sum(len(record.new_tokens) for record in rounds)
        found = re.search(
            r"gave (\S+) tokens \((\d+) in (\d+) rounds\) and took (\S+)(?: to (\S+))? plain passes "
            r"\(\w+ (\S+)–(\S+) \+ check (\S+)–(\S+)\): so (\d\S+)–(\S+)×",
            told,
        )
        assert found is not None, told
        each, all_of_them, count, least, most, *parts, low, high = found.groups()
        seconds = [sum(record.draft_seconds for record in rounds), sum(record.seconds for record in rounds)]
        for end, drafts, check in ((least, *parts[::2]), (most, *parts[1::2])):
            assert float(drafts) == pytest.approx(float(end) * seconds[0] / seconds[1], abs=0.006)
            assert f"{float(drafts) + float(check):.2f}" == end
        assert (int(all_of_them), int(count)) == (tokens, len(rounds)) and each == f"{tokens / len(rounds):.2f}"
        assert f"{float(each) / float(high):.2f}" == least and f"{float(each) / float(low):.2f}" == most
        standing = facts_of(events)[strategy].standing
        assert standing is not None and standing.text == f"{low}–{high}×"
        assert sure in told, told
    assert RoundBounds(Given(54, 36), 1.0, 1.0).text == "1.00 plain passes or more"  # ≤ 1.50×
    assert "This clock was disturbed. " in words(2, disturbed())
    assert "Look-up's clock was disturbed" in also(4, disturbed()) and "clock was" not in words(4, disturbed())
    assert "clock disturbed" in words(7, disturbed())


def test_what_an_interval_says_for_sure_goes_by_the_ends_that_are_shown() -> None:
    def sure(low: float, high: float) -> str:
        return how_sure(Standing(low, Verdict.DISTURBED, low, high))

    assert sure(1.004, 1.5).startswith("this clock cannot say whether") and sure(1.006, 1.5).startswith("faster")
    assert sure(3.41, 3.44) == "faster for sure"
    assert sure(1.5, 1.5).startswith("this clock cannot say whether"), "shown as ≤ 1.50×"
    assert sure(0.5, 0.996).startswith("this clock cannot say") and sure(0.5, 0.994).startswith("slower for sure")


@pytest.mark.parametrize("index", range(8))
def test_a_run_that_was_stopped_or_drafted_nothing_leaves_no_hole_in_the_words(index: int) -> None:
    assert "did not get so far" in words(index, [])
    assert "did not get so far" in words(index, played()[:1])
    none = [*run("target", 4, (), 0.0, 0.03), *run("speculative", 4, (), 0.0, 0.03), *run("lookup", 4, (), 0.0, 0.03)]
    assert "None" not in words(index, none) and words(index, none)


def test_where_no_draft_pays_the_tour_says_so() -> None:
    assert "do not speculate" in words(7, played(kept=(0, 1, 0), draft=0.015, verify=0.045))
    assert "it is γ" in words(7, played(kept=(4,), draft=0.0005, verify=0.031))


def summed(told: str) -> tuple[str, ...]:
    """The figures of a sum as they are said."""
    found = re.search(
        r"(\S+)(?: \(\S+ × c \S+ each\))? \+ check v (\S+) = (\S+) plain passes(?: and gave|,) (\S+) tokens "
        r"\((\d+) in (\d+) rounds\): "
        r"(\S+) / (\S+) (.) (\S+)×",
        told,
    )
    assert found is not None, told
    return found.groups()


def test_on_a_disturbed_clock_the_sum_of_the_recording_is_told_even_at_80_columns() -> None:
    found = steady()
    assert found is not None and found.standing is not None and found.best is not None
    for events in (disturbed(), disturbed(16)):
        both = [said(2, events).text, said(2, events).also[0]]
        assert "recording" in both[1] and len(wrap(" ".join(both), 78)) <= 6, both
    told = also(2, disturbed())
    assert told.index("In the recording, on a steady clock") < told.index("Bars contain the prefill")
    drafting, checking, whole, tokens, made, rounds, *_, speedup = summed(told)
    assert (made, rounds) == ("33", "11") and tokens == "3.00" and f"{speedup}×" == found.standing.text
    assert f"{float(drafting) + float(checking):.2f}" == whole
    assert f"recording of the demo pair it is γ {found.best[1].gamma}" in words(7, disturbed())
    without = words_of(STEPS[2], Scene(facts_of(disturbed())))  # a damaged installation
    assert "recording" not in " ".join([without.text, *without.also]) and "for sure" in without.text


@pytest.mark.parametrize("kept", [(3, 4, 1), (0, 1), (2,), (4, 4, 3), (1, 0, 2, 4)])
@pytest.mark.parametrize("draft", [0.0, 0.0021, 0.0073, 0.031])
def test_a_sum_can_be_done_again_from_the_records_and_adds_up_as_it_is_said(
    kept: tuple[int, ...], draft: float
) -> None:
    for gamma, verify, index in ((4, 0.0352, 2), (16, 0.0817, 3), (1, 0.0331, 4)):
        events = played(gamma, kept, draft, verify, other=0.002)
        rounds = records_of(events, "lookup" if index == 4 else "speculative")
        drafting, checking, whole, tokens, made, count, _, by, sign, quotient = summed(words(index, events))
        both = sum(len(record.new_tokens) for record in rounds)
        assert (int(made), int(count)) == (both, len(rounds)) and tokens == f"{both / len(rounds):.2f}"
        spent = sum(record.draft_seconds for record in rounds) / len(rounds)
        assert float(drafting) == pytest.approx(spent / PLAIN_SECONDS, abs=0.006)
        assert float(whole) == pytest.approx((spent + verify + 0.002) / PLAIN_SECONDS, abs=0.006)
        assert f"{float(drafting) + float(checking):.2f}" == whole == by
        assert float(quotient) == pytest.approx(
            both / len(rounds) * PLAIN_SECONDS / (spent + verify + 0.002), abs=0.006
        )
        assert (sign == "=") == (f"{float(tokens) / float(by):.2f}" == quotient)
        product = re.search(r"(\S+) \((\S+) × c (\S+) each\)", words(index, events))
        assert (product is None) == (drafting == "0.00")
        if product is not None:  # the mean number of drafts and the mean of one give what all of them took
            whole_of, drafts, each = map(float, product.groups())
            count_of = sum(len(record.drafts) for record in rounds) / len(rounds)
            assert f"{drafts * each:.2f}" == product[1] and drafts == pytest.approx(count_of, abs=0.051)
            assert each == pytest.approx(spent / count_of / PLAIN_SECONDS, abs=0.0051) and whole_of == float(drafting)


@pytest.mark.parametrize(
    ("verify", "word"), [(0.0297, "about as long"), (0.0363, "1.2 times as long"), (0.09, "3.0 times")]
)
def test_the_words_for_a_check_follow_its_number(verify: float, word: str) -> None:
    told = words(2, played(verify=verify))
    assert f"once for up to 5 and took {word}" in told
    checking = summed(told)[1]
    assert ("about" in word and 0.95 <= float(checking) < 1.05) or word.startswith(f"{float(checking):.1f}")


def test_what_a_round_may_give_at_most_is_said_beside_what_it_took() -> None:
    assert "Why not 5×? γ + 1 = 5 tokens are the most" in words(2, played())
    assert "17× needs all drafts kept and free" in also(2, disturbed(16))


@pytest.mark.parametrize(("kept", "gamma"), [((3, 4, 1), 4), ((2, 1, 0), 16), ((0, 1), 4)])
def test_the_tokens_that_α_lets_expect_are_the_powers_of_the_α_that_is_said(kept: tuple[int, ...], gamma: int) -> None:
    found = re.search(r"1 \+ α \+ α² \+ … \+ α\^γ tokens \(α (\S+), γ (\d+): (\S+)\)", words(7, played(gamma, kept)))
    assert found is not None
    alpha, told_gamma, tokens = found.groups()
    judged = [
        draft.status is Status.ACCEPTED
        for event in played(gamma, kept)
        if isinstance(event, Step) and event.strategy == "speculative" and isinstance(event.record, RoundVerified)
        for draft in event.record.drafts
        if draft.status is not Status.UNVERIFIED
    ]
    assert int(told_gamma) == gamma and f"{sum(judged) / len(judged):.2f}" == alpha
    assert tokens == f"{sum(float(alpha) ** place for place in range(gamma + 1)):.2f}"


def test_rounds_with_fewer_drafts_are_told_beside_the_drafts_that_were_kept() -> None:
    assert "have fewer" not in also(3, played())
    events = played()
    rounds = [at for at, event in enumerate(events) if isinstance(event, Step) and event.strategy == "speculative"]
    last = events[rounds[-2]]
    assert isinstance(last, Step) and isinstance(last.record, RoundVerified)
    cut = replace(last.record, drafts=last.record.drafts[:1])
    events[rounds[-2]] = replace(last, record=cut, texts=(last.texts[0], last.texts[-1]))
    assert "of 57 drafts in 15 rounds were kept (rounds near the end have fewer than 4)" in also(3, events)


def test_the_lab_is_said_to_reach_as_far_as_its_curve_and_only_where_there_is_one() -> None:
    assert "each γ up to 24, and the α from which γ 16 pays" in also(3, played(16, (2, 1, 0), 0.0006, 0.120))
    assert "γ-lab" not in also(3, disturbed(16)) + words(3, disturbed(16))


def test_the_passes_of_a_run_are_said_to_hold_the_prompts_own() -> None:
    figures = facts_of(played())["speculative"].figures
    assert f"{figures.target_calls} passes, the prompt's among them" in words(0, played())


def test_when_drafting_does_not_pay_is_told_by_a_sum_and_a_rule_with_and_without_a_steady_clock() -> None:
    dear, unsteady, paid = played(16, (2, 1, 0), 0.0006, 0.120), disturbed(16), played()
    assert "γ = 16, a check of 17 tokens" in words(3, dear)
    assert "drafts 0.32 (16 × c 0.02 each) + check v 4.00 = 4.32 plain passes" in words(3, dear)
    assert "2.00 / 4.32 = 0.46×, slower than the target" in words(3, dear)
    assert re.search(r"passes \(drafts \S+ \+ check \S+\): so", words(3, unsteady))
    wasted = "Of 16 drafts 1.0 were kept, and v grows with γ: with fewer drafts such a text may pay (steps 6 to 8"
    assert wasted in also(3, dear) and "drafts 3.0 were kept" not in also(3, played(4)) and "fewer" not in also(3, paid)
    assert {step.ask.settings.gamma for step in STEPS[5:] if step.ask is not None} == {LATER}
    assert {step.ask.prompt for step in STEPS[5:] if step.ask is not None} == {HARD.prompt}
    for events in (dear, unsteady, paid):
        rule = "where a round's tokens, 1 + kept, are more than its passes, γ·c + v (c: a draft, v: the check)"
        assert rule in words(3, events) and "lower α" in also(3, events)
    assert "drafting took 62% of the time, checking 38%" in also(3, unsteady)
    assert "faster than" in words(3, paid) and "enough were kept" in words(3, paid) and "slower" not in words(3, paid)


def test_the_usual_rule_is_said_to_keep_the_chances_and_the_coupled_one_the_text() -> None:
    told = words(5, played())
    assert "the seed gives the target's own text" in told and "largest log p + g wins" in told
    assert "draws other tokens, by the target's own chances" in told
    assert "g for each word, which comes from seed and place and is not shown" in told
    assert "draws from what the target has more of" in also(5, played())


def test_the_charts_are_told_of_in_the_form_in_which_they_are_there() -> None:
    pictures = "0–100  ┃ target's mean 30  ▒draft █verify\nby position 1: 0.9"
    row = "ms, last 10   draft 14.6 ▁▂  verify 61.8 ▆  target's mean 52.9"
    told = words(6, played(), pictures)
    assert "▒ drafting, █ the target's pass; the line across" in told and "By position" in told
    told = words(6, played(), row)
    assert "Row ms" in told and len(wrap(told, 76)) <= 5 and "the target's mean is a plain pass" in told
    assert "▒" not in told and "line across" not in told and "By position" not in told
    assert "a bar for each of the last 2 rounds" in told and "one scale" not in told
    assert "a bar for the last round." in words(6, played(), "ms draft 14.6 ▁ verify 61.8 ▆")
    assert "one scale in all panes" in words(6, played(), row, panes=2)
    assert "one scale" not in words(6, played(), "ms draft 14.6 verify 61.8", panes=2), "no bars there"
    assert "▒" not in words(6, played()) and "Row ms" not in words(6, played())
