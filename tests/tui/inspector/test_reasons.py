"""Why a token has its fate: every rule in words of its own, with the numbers of the record."""

from __future__ import annotations

from dataclasses import replace

from specdec_tui.decoding.records import Insight, Origin, PrefillDone, RoundVerified, Status, Token
from specdec_tui.settings import Settings
from specdec_tui.tui.inspector.look import Look, Manner, manner_of
from specdec_tui.tui.inspector.reasons import Why, why

TEXTS = {n: f" w{n}" for n in range(40)}
TOP = ((1, 0.5), (2, 0.3), (3, 0.2))
SEEN = Insight(1.0, 1.0, TOP, ((2, 0.6), (1, 0.4)), ((1, 0.8), (3, 0.2)))
REFUSED = Token(2, Status.REJECTED, 5, 0.3, 0.6, 0.5, 0.83, SEEN)
DRAWN = Token(1, Status.RESAMPLED, 5, 0.5, insight=SEEN)


def reasons(token: Token, *others: Token, rule: str = "rejection", greedy: bool = False, **more: object) -> Why:
    """Of a token of the round that it makes with others, in their order."""
    tokens = sorted([token, *others], key=lambda one: (one.status in _OWN, one.position))
    drafts = tuple(one for one in tokens if one.status not in _OWN)
    record = RoundVerified(4, drafts, next((one for one in tokens if one.status in _OWN), None), 0.1, 0.1, 0.1)
    return why(Look(record, token, "", TEXTS, Manner(rule, greedy), **more))  # type: ignore[arg-type]


_OWN = (Status.RESAMPLED, Status.BONUS, Status.SAMPLED)


def test_a_rejection_is_told_in_numbers_and_with_what_came_in_its_place() -> None:
    found = reasons(REFUSED, DRAWN)
    assert found.given == "The drafter gave it 0.600, the target 0.300."
    assert found.rule == "accept with min(1, p/q) = 0.50 — the coin fell at 0.83: rejected"
    assert found.so == "so: replaced by ↻·w1, drawn from what p has more than q: norm(max(0, p − q))"
    assert (found.chance, found.draw) == (0.5, 0.83)


def test_the_token_in_its_place_tells_of_the_refused_draft_and_of_its_share_in_the_residual() -> None:
    found = reasons(DRAWN, REFUSED)
    assert found.given == "Of the draft ✗·w2: the drafter gave it 0.600, the target 0.300."
    assert (found.chance, found.draw) == (0.5, 0.83)
    assert found.so.endswith("drawn from what p has more than q: norm(max(0, p − q)), which gave it 0.800")


def test_a_draft_that_the_target_wants_no_less_is_always_kept() -> None:
    found = reasons(Token(2, Status.ACCEPTED, 5, 0.6, 0.3, 1.0, 0.31))
    assert found.rule == "accept with min(1, p/q) = 1 — the coin fell at 0.31: accepted"
    assert "no less than the drafter" in found.so
    assert reasons(Token(2, Status.ACCEPTED, 5, 0.3, 0.6, 0.5, 0.31)).so == "so: kept"


def test_a_draw_and_the_chance_it_was_compared_with_never_look_equal() -> None:
    assert (
        "= 0.7723 — the coin fell at 0.7717"
        in reasons(Token(1, Status.ACCEPTED, 0, 0.5, 0.64741, 0.77231, 0.77171)).rule
    )
    assert "= 0.002 — the coin fell at 0.83" in reasons(Token(1, Status.REJECTED, 0, 0.001, 0.5, 0.002, 0.83)).rule


def test_a_chance_that_is_not_p_over_q_is_not_called_so() -> None:
    found = reasons(Token(1, Status.ACCEPTED, 0, 0.2, 0.5, 0.9, 0.3))
    assert "min(1, p/q)" not in found.rule and "= 0.90" in found.rule


def test_a_verdict_against_the_coin_is_not_painted_as_right() -> None:
    for fate, draw in ((Status.ACCEPTED, 0.9), (Status.REJECTED, 0.1)):
        assert "this rule would not do" in reasons(Token(1, fate, 0, 0.25, 0.5, 0.5, draw)).rule


def test_without_the_residual_the_correction_is_called_lossy() -> None:
    found = reasons(REFUSED, DRAWN, rule="skip-adjustment")
    assert "min(1, p/q) = 0.50" in found.rule
    assert "replaced by ↻·w1, drawn from p itself" in found.so and "biased, so the text is lossy" in found.so
    assert "lossy" not in reasons(REFUSED, DRAWN).so
    assert "lossy" not in reasons(replace(REFUSED, status=Status.ACCEPTED), rule="skip-adjustment").so


def test_coupled_drafts_are_judged_by_the_targets_own_draw_with_the_same_noise() -> None:
    refused = replace(REFUSED, acceptance=None, draw=None)
    found = reasons(refused, DRAWN, rule="coupled")
    assert "the same noise g_t, argmax(log p + g_t); the target's own draw is ↻·w1: rejected" in found.rule
    assert found.chance is None and "norm" not in found.so and "min(1" not in found.rule
    kept = reasons(replace(refused, status=Status.ACCEPTED), rule="coupled")
    assert "own draw is the same: accepted" in kept.rule and "the target alone would have written" in kept.so


def test_a_block_has_its_joint_weight_and_a_weighted_residual() -> None:
    first = Token(7, Status.ACCEPTED, 4, 0.2, 0.4, 0.55, 0.9)
    second = replace(REFUSED, acceptance=0.25, draw=0.83)
    found = reasons(second, first, DRAWN, rule="block")
    assert found.rule == (
        "block: accept with the joint weight w of the block = 0.25 — the coin fell at 0.83: not passed; "
        "w = min(1, w·p/q) over its drafts = 0.250"  # 0.2/0.4 · 0.3/0.6
    )
    assert "norm(max(0, w·p − q)), w = 0.500" in found.so and "↻·w1" in found.so
    kept = reasons(first, second, DRAWN, rule="block")
    assert (
        "joint chance of the block up to here = 0.55 — the coin fell at 0.90: not passed; w = min(1, p/q) = 0.500"
        in (kept.rule)
    )
    assert kept.so == "so: accepted all the same, for a longer block passed"
    behind = reasons(Token(1, Status.UNVERIFIED, 6, 0.2, 0.5, 0.3, 0.9), first, second, DRAWN, rule="block")
    assert "its own test failed too" in behind.so and "not passed" in behind.rule and "never judged" not in behind.rule


def test_greedy_says_that_only_the_arg_max_counts_and_which_figures_are_raw() -> None:
    refused = replace(REFUSED, p=0.0, q=1.0, acceptance=0.0, draw=None)
    found = reasons(refused, replace(DRAWN, p=1.0), greedy=True)
    assert found.given == "Raw, the drafter gave it 0.600, the target 0.300."
    assert "only the arg-max counts" in found.rule and "the target's is ↻·w1, so this one is rejected" in found.rule
    assert found.chance is None and found.draw is None and "norm" not in found.so
    kept = reasons(replace(refused, status=Status.ACCEPTED, p=1.0, acceptance=1.0), greedy=True)
    assert "the target's is this one: accepted" in kept.rule
    bonus = reasons(
        Token(1, Status.BONUS, 6, 1.0, insight=Insight(1.0, None, TOP)),
        replace(refused, status=Status.ACCEPTED),
        greedy=True,
    )
    assert "arg-max: greedy draws nothing" in bonus.so and bonus.given == "Raw, the target gave it 0.500."


def test_what_greedy_refused_has_its_raw_chance_or_the_bound_of_it() -> None:
    top = tuple((n, 0.5 / 2**n) for n in range(10))
    draft = Token(77, Status.REJECTED, 3, 0.0, 1.0, 0.0, None, Insight(1.0, 0.5, top, ((77, 0.9), (1, 0.1))))
    assert reasons(draft, greedy=True).given == "Raw, the drafter gave it 0.900, the target below 0.001."


def test_a_drafter_without_a_distribution_is_sure_of_its_draft() -> None:
    seen = Insight(1.0, None, TOP, (), ((1, 0.7), (3, 0.3)))
    draft = replace(REFUSED, q=1.0, acceptance=0.3, insight=seen)
    found = reasons(draft, replace(DRAWN, insight=seen))
    assert found.given == "The drafter is sure of its draft (q = 1), the target gave it 0.300."
    assert "min(1, p/q) = 0.30" in found.rule and "what p has besides the draft" in found.so


def test_a_token_that_was_never_judged_has_no_chance_to_be_accepted() -> None:
    for rule in ("rejection", "coupled", "skip-adjustment", "block"):
        found = reasons(Token(1, Status.UNVERIFIED, 6, 0.5, 0.4, 1.0, None), REFUSED, DRAWN, rule=rule)
        assert "never judged" in found.rule and "with the refused draft in it" in found.so
        assert found.chance is None and "accept with" not in found.rule and found.given == "The drafter gave it 0.400."


def test_tokens_of_the_targets_own_have_sentences_of_their_own() -> None:
    kept = Token(2, Status.ACCEPTED, 5, 0.6, 0.3, 1.0, 0.31)
    bonus = reasons(Token(3, Status.BONUS, 6, 0.25), kept)
    assert bonus.given == "The target gave it 0.250." and bonus.so == "so: drawn from p"
    assert "bonus: the draft was kept, so the same pass gives a token more" in bonus.rule
    assert "no draft in this round" in reasons(Token(3, Status.SAMPLED, 6, 0.25)).rule
    coupled = reasons(Token(3, Status.SAMPLED, 6, 0.25), rule="coupled")
    assert "with the noise of its place: argmax(log p + g_t)" in coupled.so
    first = Token(3, Status.SAMPLED, 0, 0.25)
    assert "the prompt alone" in why(Look(PrefillDone(first, 0.1), first, "", TEXTS)).rule
    for origin, words in (
        (Origin("target", 0, None, (("gamma", "2"),)), "the first token comes of the prompt alone"),
        (Origin("target", 12), "its first own token comes of the prompt and 12 kept tokens"),
        (Origin("target", 1, 7), "comes of the prompt, 1 kept token and the one that was put there"),
        (Origin("target", 0, 7), "comes of the prompt and the one that was put there"),
    ):
        assert why(Look(PrefillDone(first, 0.1), first, "", TEXTS, origin=origin)).rule.endswith(words)
    alone = reasons(Token(3, Status.SAMPLED, 6, 0.25), model="drafter")
    assert alone.given == "The drafter gave it 0.250."


def test_nothing_of_a_search_is_called_drawn() -> None:
    for fate, words in ((Status.SAMPLED, "every text that can still win"), (Status.PENDING, "another may still win")):
        found = reasons(Token(3, fate, 4, 0.25), searches=True)
        assert words in found.rule
        assert not any(word in f"{found.rule} {found.so}" for word in ("drawn", "sampled", "judged"))


def test_texts_of_models_are_cut_and_their_escapes_shown() -> None:
    record = RoundVerified(0, (REFUSED,), DRAWN, 0.1, 0.1, 0.1)
    found = why(Look(record, REFUSED, "", {1: "\x1b[31m" + "x" * 5000}))
    assert "\x1b" not in found.so and "␛" in found.so and len(found.so) < 140


def test_the_manner_of_a_run_is_that_of_its_settings() -> None:
    settings = Settings(processor="multinomial", temperature=0.8, rule="block")
    assert manner_of(settings) == Manner("block", False, 0.8)
    assert manner_of(replace(settings, temperature=0.0)).greedy and manner_of(Settings()).greedy


def test_where_a_server_drew_itself_its_token_decides() -> None:
    draft, own = Token(2, Status.REJECTED, 5, q=0.6), Token(1, Status.RESAMPLED, 5)
    found = reasons(draft, own, by_calls=True)
    assert "the server drew itself" in found.rule and found.rule.endswith("it drew ↻·w1")
    assert found.so == "so: replaced by ↻·w1"
    kept = reasons(replace(draft, status=Status.ACCEPTED), by_calls=True)
    assert kept.rule.endswith("kept when it is that token; it drew this one") and kept.so == "so: kept"
