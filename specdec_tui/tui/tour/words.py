"""The sentences of the tour: figures from the run on the screen alone, and words that follow them. Pure.

Where a run is faster than the story has it, or its clock was disturbed, they say so. Every letter is named where it
comes first: γ and τ in the first step, α in the second, c and v in the third, T in the fourth.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from specdec_tui.decoding.chances import in_digits
from specdec_tui.decoding.costs import expected_tokens_per_round
from specdec_tui.decoding.forecast import Forecast, top_of
from specdec_tui.decoding.records import LosslessStatus
from specdec_tui.decoding.standing import Verdict
from specdec_tui.traces.bounds import MOST_DRAFTS
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import key
from specdec_tui.tui.tour.facts import Facts, Refusal
from specdec_tui.tui.tour.speeds import DISTURBED, parts, quotient, ratio, sum_sentence
from specdec_tui.tui.tour.sums import sum_of

LATER = 4
"""The γ of the steps behind the one with many drafts."""
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True)
class Scene:
    """What there is to tell of: the run on the screen, and how it is drawn there.

    `steady`: of the recording that comes with the package, where this run's clock says little; None: there is none.
    `drawn`: what the charts show, in text; `panes`: how many with charts are in sight.
    """

    runs: Mapping[str, Facts]
    steady: Facts | None = None
    drawn: str = ""
    panes: int = 1


@dataclass(frozen=True, slots=True)
class Said:
    """What is said in any case, and sentences that follow where there is room, the most needed first."""

    text: str
    also: tuple[str, ...] = ()


def again() -> str:
    return f"{key('run again')} runs it again."


def of_a_round(scene: Scene) -> Said:
    facts = scene.runs["speculative"]
    told, figures = facts.telling_round, facts.figures
    if told is None:
        return Said(f"No round had a draft here. {again()}")
    be = "was" if told.kept == 1 else "were"
    last = "the next was refused (✗) and replaced by the target (↻)" if told.kept < told.drafts else "it added one (+)"
    return Said(
        f"Each row is a round: the drafter, a small model, writes γ = {figures.gamma} drafts one after another; the "
        f"target reads them all in one pass. Round {told.round + 1}: {_of(told.kept, told.drafts)} {be} kept (✓), "
        f"{last}: {_count(told.tokens, 'token')} for one pass. Alone it takes a pass for each, a plain pass. Here "
        f"{_count(figures.new_tokens, 'token')} took {figures.target_calls} passes, the prompt's among them: τ = "
        f"{figures.tokens_per_target_call or 0:.2f} a pass. {key('help')}: all letters.",
        ("The last rounds may have fewer drafts: there was no room for more.",),
    )


def of_the_text(scene: Scene) -> Said:
    facts = scene.runs["speculative"]
    found, figures = facts.refusal, facts.figures
    if found is None:
        why = "Every draft was what the target would have written, so none was refused here."
    else:
        why = (
            f"Why was {_quoted(found.drafted)} refused? The target's first choice there is {_quoted(found.written)}, "
            f"and greedy decoding writes first choices only: its own token replaces the first draft that differs."
        )
    unjudged = (
        f", not of all {figures.drafted}: those behind a refusal (○) are never judged" if figures.unverified else ""
    )
    bars = "The bars below are the chances that both models gave: greedy takes the longest one of the target's."
    alpha = (
        f"α, the share of judged drafts that were kept, is {figures.accepted} of {figures.judged} = "
        f"{figures.acceptance_rate or 0:.2f}{unjudged}."
    )
    said = why, "So a bad drafter costs time, never text.", _verdict(facts), alpha if figures.judged else ""
    return Said(" ".join(filter(None, said)), (bars,) if found is not None else ())


def of_speed(scene: Scene) -> Said:
    facts = scene.runs["speculative"]
    gamma, told = facts.figures.gamma, sum_of(facts)
    most = (
        f"Why not {gamma + 1}×? γ + 1 = {gamma + 1} tokens are the most a round gives: {gamma + 1}× needs all drafts "
        f"kept and free, and a check as short as one pass."
    )
    prefill = "Bars contain the prefill, the speedup does not."
    letters = "c and v, what a draft and a check took, are means here, in the panes medians."
    if told is not None:
        reads = (
            f"A plain pass reads all weights of the target for one token; the check reads them once for up to "
            f"{gamma + 1} and took {_times(told.checking)}."
        )
        return Said(f"{reads} {sum_sentence(facts, 'drafts', 'check')} {most}", (prefill, letters))
    reads = f"The check reads the target's weights once for up to {gamma + 1} tokens, a plain pass for one."
    also = _recorded_sum(scene.steady), most, prefill
    return Said(
        f"{reads} {_disturbed(facts)}{sum_sentence(facts, 'drafts', 'check')}",
        tuple(filter(None, also)),
    )


def _times(passes: float) -> str:
    """How long a check took, in words that follow its number."""
    told = f"{passes:.1f}"
    return "about as long" if told == "1.0" else f"{told} times as long"


def _disturbed(facts: Facts, whose: str = "This") -> str:
    return f"{whose} {DISTURBED} " if facts.standing is not None and facts.standing.is_disturbed else ""


def _recorded_sum(steady: Facts | None) -> str:
    """The sum of the recording that comes with the app, in place of one of this run."""
    told = None if steady is None else sum_of(steady)
    return (
        ""
        if told is None
        else f"In the recording, on a steady clock: {parts(told, 'drafts', 'check')}, {quotient(told)}."
    )


def of_slowness(scene: Scene) -> Said:
    facts = scene.runs["speculative"]
    figures, told = facts.figures, sum_of(facts)
    end = ""
    if told is not None and facts.standing is not None and facts.standing.verdict is Verdict.FASTER:
        end = " Here enough were kept."
    rule = "It pays where a round's tokens, 1 + kept, are more than its passes, γ·c + v (c: a draft, v: the check)."
    when = "Hard text and high T lower α; a large γ or drafter costs more."
    words = sum_sentence(facts, "drafts", "check")
    also = _wasted(facts), _refused(facts.refusal), when, _spent(facts), _of_the_lab(facts)
    return Said(
        f"A story drawn by chance (temperature T = 1), γ = {figures.gamma}, a check of {figures.gamma + 1} tokens. "
        f"{words}{end} {rule}",
        tuple(filter(None, also)),
    )


def _wasted(facts: Facts) -> str:
    """Where most drafts of a round were for nothing, what other γ is tried later."""
    figures = facts.figures
    kept = figures.accepted / figures.rounds if figures.rounds else 0.0
    if figures.gamma <= LATER or kept > figures.gamma / 2:
        return ""
    return (
        f"Of {figures.gamma} drafts {kept:.1f} were kept, and v grows with γ: with fewer drafts such a text may pay "
        f"(steps 6 to 8: this story at γ {LATER})."
    )


def _refused(found: Refusal | None) -> str:
    """Why the marked draft was, and what came in its place."""
    if found is None or (chance := _chance(found.token.p, found.token.q)) is None:
        return ""
    assert found.token.p is not None and found.token.q is not None
    p, q = _fraction(found.token.p, found.token.q)
    coin = "" if found.token.draw is None else f", the coin fell at {found.token.draw:.2f}"
    return (
        f"Why was {_quoted(found.drafted)} refused? The target's chance is p {p}, the drafter's q {q}: kept with "
        f"chance p/q = {in_digits(chance, 2)}{coin}. {_quoted(found.written)} is drawn from the residual, what the "
        f"target has more of."
    )


def _fraction(above: float, below: float) -> tuple[str, str]:
    """Two chances with digits enough that dividing what is printed gives their quotient, as far as four say it."""
    told = in_digits(above / below, 2)
    for digits in (2, 3, 4):
        printed = in_digits(above, digits), in_digits(below, digits)
        over, under = (float(one.removeprefix(">")) for one in printed)
        if under and in_digits(over / under, 2) == told:
            break
    return printed


def _of_the_lab(facts: Facts) -> str:
    """Up to where its curve goes, if there is one."""
    if facts.best is None:
        return ""
    top = top_of(facts.figures.gamma, MOST_DRAFTS)
    return (
        f"The γ-lab ({key('lab')}) tells it for each γ up to {top}, and the α from which γ {facts.figures.gamma} pays."
    )


def _spent(facts: Facts) -> str:
    """How many were kept, and how the time was spent."""
    figures = facts.figures
    fewer = ""
    if figures.drafted < figures.rounds * figures.gamma:
        fewer = f" (rounds near the end have fewer than {figures.gamma})"
    seconds = figures.decode_seconds or 1.0
    drafting, checking = figures.draft_seconds / seconds, (figures.verify_seconds + figures.wire_seconds) / seconds
    return (
        f"{figures.accepted} of {_count(figures.drafted, 'draft')} in {_count(figures.rounds, 'round')} were "
        f"kept{fewer}, all are paid for: drafting took {drafting:.0%} of the time, checking {checking:.0%}."
    )


def of_copies(scene: Scene) -> Said:
    facts, other = scene.runs["lookup"], scene.runs["speculative"]
    figures, told = facts.figures, facts.costs
    if not figures.drafted:
        return Said("Look-up found nothing to copy here: it drafts what followed the last words earlier in the text.")
    price = "" if told.cost_ratio is None else f" (c = {told.cost_ratio:.3f})"
    return Said(
        f"No model drafts here: look-up copies what followed the last words earlier in the text, for next to nothing"
        f"{price}, and code repeats itself: {figures.accepted} of {figures.drafted} copied tokens were kept, τ = "
        f"{figures.tokens_per_target_call or 0:.2f}. {sum_sentence(facts, 'copies', 'check')} The drafter model: "
        f"{ratio(other)}.",
        tuple(
            filter(
                None,
                (
                    "Sound or nonsense, the code is this target's: no method changes it.",
                    _disturbed(facts, "Look-up's").strip(),
                ),
            )
        ),
    )


def of_coupling(scene: Scene) -> Said:
    facts = scene.runs["speculative"]
    refused = ""
    if (found := facts.refusal) is not None:
        refused = f" So {_quoted(found.drafted)} was refused: the target drew {_quoted(found.written)}."
    return Said(
        "Rule “coupled”: both models draw with the same dice, a number g for each word, which comes from seed and "
        "place and is not shown; the largest log p + g wins. A draft is kept where both drew the same, so the seed "
        f"gives the target's own text.{refused} The usual rule (step 4) draws other tokens, by the "
        "target's own chances.",
        (
            *filter(None, (_verdict(facts),)),
            "The usual one refuses a draft just as often as the drafter proposes it too often, and draws from what the "
            "target has more of.",
        ),
    )


def of_charts(scene: Scene) -> Said:
    figures, drawn = scene.runs["speculative"].figures, scene.drawn
    rates = [rate for rate in figures.conditional_acceptance if rate is not None]
    places = ""
    if "by position" in drawn or "if all before it were" in drawn:
        places = " By position: a place counts where all before it were kept."
        if len(rates) > 1:
            places += f" Here place 1: {rates[0]:.2f}, place {len(rates)}: {rates[-1]:.2f}."
    has_bars = re.search(rf"[{_BARS}░▒]", drawn) is not None
    scales = "Bars and axes have one scale in all panes. " if scene.panes > 1 and has_bars else ""
    return Said(
        f"{scales}Acceptance (α {figures.acceptance_rate or 0:.2f}) is the share of judged drafts that were kept."
        f"{places} {_of_rounds(drawn)}"
    )


def _of_rounds(drawn: str) -> str:
    """How the milliseconds of rounds are read: in the form that there is room for."""
    beyond = "what a round takes beyond it must be paid by its tokens."
    if "▒draft" in drawn:
        line = f"; the line across is its plain pass: {beyond}" if "┃" in drawn else "."
        return f"The last rounds in milliseconds: ▒ drafting, █ the target's pass{line}"
    if found := re.search(rf"draft \S+ ([{_BARS}]+)|verify \S+ ([{_BARS}]+)", drawn):
        count = len(found[1] or found[2])
        rounds = f"a bar for each of the last {count} rounds" if count > 1 else "a bar for the last round"
        mean = (
            "; the target's mean is a plain pass: what a round takes beyond it pays only by more tokens."
            if "target's mean" in drawn
            else "."
        )
        return f"Row ms: drafting and the check (verify), {rounds}{mean}"
    if "verify " in drawn:
        return "Row ms: drafting and the check (verify) of a round."
    return "On a larger screen there are the milliseconds of rounds, too."


def of_gamma(scene: Scene) -> Said:
    facts = scene.runs["speculative"]
    rule = (
        f"Before trying a γ, one run's α, c and v tell: a round gives about 1 + α + α² + … + α^γ tokens"
        f"{_expected(facts)} for γ·c + v plain passes. A further draft adds less, costs c and makes v larger: so one "
        "γ is best."
    )
    lab = f"The γ-lab ({key('lab')})"
    if (found := facts.best) is not None:
        return Said(
            f"{rule} With the α, c and v of this run {_best(*found)} {lab} draws the curve: arrows try other figures, "
            f"enter takes the best γ until the tour ends."
        )
    recorded = scene.steady.best if scene.steady is not None else None
    why = f"Of this run no curve can be drawn: {facts.costs.missing or 'too little was measured'}."
    if recorded is None:
        return Said(f"{rule} {why} {again()} {lab} draws the curve of a steady run.")
    return Said(
        f"{rule} {why} In the recording of the demo pair {_best(*recorded)} {key('next step')} shows its curve in "
        f"the γ-lab: arrows try other figures. {again()}"
    )


def _expected(facts: Facts) -> str:
    """Tokens of a round that the formula gives for this α, as it is said, and γ."""
    rate, gamma = facts.figures.acceptance_rate, facts.figures.gamma
    if rate is None:
        return ""
    return f" (α {rate:.2f}, γ {gamma}: {expected_tokens_per_round(round(rate, 2), gamma):.2f})"


def _best(now: Forecast, best: Forecast) -> str:
    if best.gamma == 0:
        return f"none pays: do not speculate (γ {now.gamma}: {now.speedup:.2f}×)."
    if best.gamma == now.gamma:
        return f"it is the γ {now.gamma} it had: {now.speedup:.2f}× expected."
    return f"it is γ {best.gamma}: {best.speedup:.2f}× expected, at its own γ {now.gamma} {now.speedup:.2f}×."


def _verdict(facts: Facts) -> str:
    lossless = facts.lossless
    if lossless is None or facts.baseline is None:
        return ""
    match lossless.status:
        case LosslessStatus.IDENTICAL:
            return f"Checked: all {_count(facts.figures.new_tokens, 'token')} are those of its own run."
        case LosslessStatus.NEAR_TIES:
            return f"Checked: the same but for {_count(lossless.ties, 'near-tie')} that rounding decides."
        case LosslessStatus.DIFFERENT:
            return "The check found a difference here, which should not be: the pane says where."
    return ""


def _chance(p: float | None, q: float | None) -> float | None:
    return None if p is None or not q else min(1.0, p / q)


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}" if number == 1 else f"{number:,} {what}s"


def _of(part: int, whole: int) -> str:
    return f"{part} of {_count(whole, 'draft')}"


def _quoted(text: str) -> str:
    """A token of a model, on one row, its blanks and line ends to be seen by the quotes."""
    return f"“{one_row(text).strip() or text.encode('unicode_escape').decode()}”"
