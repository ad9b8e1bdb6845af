"""A target on a server: what is told of its rounds, by hand, and from which latency on drafting loses."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from server_runs import call, drafting, figures_of, streamed, target

from specdec_tui.decoding.costs import costs
from specdec_tui.decoding.figures import speedup
from specdec_tui.decoding.forecast import Supposed, basis_of, curve, forecast
from specdec_tui.decoding.latency import CALL_FIGURES, Latency, break_even_latency, call_figures, latency
from specdec_tui.decoding.records import RoundVerified
from specdec_tui.decoding.reliability import reliability
from specdec_tui.decoding.shares import Part, shares
from specdec_tui.decoding.standing import Verdict, standing
from specdec_tui.decoding.time_verdict import time_verdict


def test_the_way_is_a_part_of_decoding_and_round_trips_are_counted() -> None:
    run, plain = drafting(), target()
    assert run.wire_seconds == pytest.approx(40 * 0.030)
    assert run.decode_seconds == pytest.approx(40 * 0.064) == pytest.approx(run.course.seconds)
    assert run.calls == 40 and run.calls_per_round == 1
    assert plain.calls == 10 and plain.calls_per_round is None
    assert plain.decode_seconds == pytest.approx(160 * 0.020) and plain.wire_seconds == 0
    assert run.window().by_calls and run.window().calls_per_round == 1


def test_the_parts_of_the_time_have_the_way_apart_from_the_server() -> None:
    found = dict(shares(drafting()).parts)
    assert found[Part.WIRE] == pytest.approx(40 * 0.030) and found[Part.TARGET] == pytest.approx(40 * 0.025)
    assert shares(drafting()).total == pytest.approx(40 * 0.064 + 0.2)


def test_a_call_is_priced_with_its_way_in_tokens_of_an_open_stream() -> None:
    found = costs(drafting(), target())
    assert found.cost_ratio == pytest.approx(2 / 20)
    assert found.verify_ratio == pytest.approx((25 + 30 + 1) / 20)
    assert found.tokens == pytest.approx(4) and found.steps == pytest.approx(64 / 20)
    assert found.predicted_speedup == pytest.approx(4 * 20 / 64)
    assert found.remainder == pytest.approx(0) and speedup(target(), drafting()) == pytest.approx(80 / 64)


@pytest.mark.parametrize(
    ("wire", "server", "limit", "words"),
    [
        (30.0, 25.0, 0.046, "drafting wins below 46 ms of latency (now 30 ms)"),
        (0.0, 25.0, 0.046, "drafting wins below 46 ms of latency (now 0 ms)"),
        (100.0, 25.0, 0.046, "drafting loses from 46 ms of latency on (now 100 ms)"),
        (30.0, 80.0, -0.009, "drafting loses at any latency"),
    ],
)
def test_break_even_is_what_a_rounds_tokens_take_in_a_stream_beyond_its_other_parts(
    wire: float, server: float, limit: float, words: str
) -> None:
    run, plain = drafting(wire=wire, server=server), target()
    found = latency(run, plain)
    assert found is not None
    assert found.limit == pytest.approx(limit) and found.now == pytest.approx(wire / 1e3)
    assert found.text == words
    told = costs(run, plain).predicted_speedup
    assert told is not None and (told > 1) == (found.now < found.limit)
    assert words in time_verdict(run, plain)


def test_at_the_break_even_a_round_is_as_fast_as_the_stream() -> None:
    found = break_even_latency(tokens=4, steps=3.2, step=0.020, wire=0.030)
    assert found == Latency(pytest.approx(0.046), 0.030)
    assert costs(drafting(wire=46.0), target()).predicted_speedup == pytest.approx(1)


def test_one_slow_call_moves_no_break_even() -> None:
    rounds = [call(number, wire=130.0 if number == 20 else 30.0) for number in range(40)]
    found = latency(figures_of("speculative", rounds), target())
    assert found is not None and found.limit == pytest.approx(0.046) and found.now == pytest.approx(0.030)


def test_without_a_server_nothing_is_told_of_calls() -> None:
    rounds = [replace(call(number), wire_seconds=0.0, calls=0) for number in range(40)]
    plain = [replace(streamed(number), wire_seconds=0.0, calls=0) for number in range(160)]
    runs = figures_of("speculative", rounds, by_calls=False), figures_of("target", plain, by_calls=False)
    assert latency(*runs) is None and call_figures(*runs) == {} and runs[0].calls_per_round is None
    assert tuple(call_figures(drafting(), target())) == CALL_FIGURES
    assert call_figures(drafting(), target())["break_even_latency_seconds"] == pytest.approx(0.046)


def rounds_without_drafts(server: float, wire: float = 2.0) -> list[RoundVerified]:
    return [call(n, "aaar" if n % 2 else "", server=server, wire=wire) for n in range(64)]


def test_a_call_without_drafts_is_no_step_of_a_stream_to_hold_against_the_targets() -> None:
    # Nearly twice as long as a token of the stream, as a whole request may take: nothing contradicts the clock.
    found = reliability(figures_of("speculative", rounds_without_drafts(server=38.0)), target())
    assert found is not None and found.is_steady, found


def test_calls_that_take_less_than_a_token_of_the_stream_disturb_the_clock() -> None:
    found = reliability(figures_of("speculative", rounds_without_drafts(server=8.0)), target())
    assert found is not None and found.is_disturbed
    assert found.reason == "calls took 10 ms, a token of target's stream 20 ms"


def test_the_way_does_not_change_with_the_pace_of_the_server() -> None:
    """A server that slows down by half slows its own part alone; to take the way with it would look like a jump."""
    dice = Random(4)
    pace = [1.0 + 0.5 * (place >= 64) for place in range(128)]
    plain = [streamed(place, 20.0 * pace[place] * dice.gauss(1, 0.01)) for place in range(128)]
    rounds = [call(n, "aaar", 8.0 * pace[4 * n], 25.0 * pace[4 * n], wire=300.0) for n in range(32)]
    found = reliability(figures_of("speculative", rounds), figures_of("target", plain))
    assert found is not None and found.is_steady, found


def test_faster_than_the_target_is_said_of_a_near_server_and_slower_of_a_far_one() -> None:
    near, far = (standing(drafting(wire=wire), target()) for wire in (1.0, 100.0))
    assert near is not None and near.verdict is Verdict.FASTER
    assert far is not None and far.verdict is Verdict.SLOWER


def test_a_forecast_has_the_way_at_any_number_of_drafts() -> None:
    basis = basis_of(drafting(), target())
    here = forecast(basis, 4)
    assert here.speedup == pytest.approx(80 / 64) and here.wire == pytest.approx(1.5)
    assert here.verifying - here.wire == pytest.approx(1.3) and here.drafting == pytest.approx(0.4)
    one = forecast(basis, 1)  # two tokens for a draft and a call that takes as long as any
    assert one.wire == pytest.approx(1.5) and one.speedup == pytest.approx(2 / (0.1 + 2.8))
    assert one.passes_estimated
    assert curve(basis, 8)[0].speedup == 1 and curve(basis, 8)[0].wire == 0


def test_another_price_of_a_call_is_another_distance_at_any_number_of_drafts() -> None:
    basis = basis_of(drafting(), target())
    one, four = (forecast(basis, gamma, Supposed(verify_ratio=1.8)) for gamma in (1, 4))
    assert one.verifying == pytest.approx(1.8) and four.verifying == pytest.approx(1.8)
    assert forecast(basis, 4, Supposed(verify_ratio=0.8)).wire == pytest.approx(0.8)  # no more than all of it


def test_calls_that_vary_by_themselves_are_predicted_by_the_mean_of_most() -> None:
    """As where a server computes more of a text again the longer its last block is: 30, 30, 60 and 80 ms."""
    from specdec_tui.decoding.costs import costs
    from specdec_tui.decoding.figures import RunFigures
    from specdec_tui.decoding.records import PrefillDone, RoundVerified, RunStarted, Status, Token

    def figures(strategy: str, rounds: list[RoundVerified]) -> RunFigures:
        found = RunFigures()
        found.add(RunStarted(strategy, 3, 1, 300))
        found.add(PrefillDone(Token(1, Status.SAMPLED, 0), 0.1, by_calls=True, calls=1))
        for one in rounds:
            found.add(one)
        return found

    def drafted(n: int) -> RoundVerified:
        at, seconds = 1 + 2 * n, (0.03, 0.03, 0.06, 0.08)[n % 4]
        drafts = (Token(2, Status.ACCEPTED, at),)
        return RoundVerified(n, drafts, Token(3, Status.BONUS, at + 1), 0.0, seconds, 0.0, calls=1)

    plain = [RoundVerified(n, (), Token(2, Status.SAMPLED, n + 1), 0.0, 0.02, 0.0) for n in range(200)]
    told = costs(figures("lookup", [drafted(n) for n in range(96)]), figures("target", plain))
    # 2 tokens a round, 40 ms of the stream. By the median 45 ms; without the least nine and the greatest nine of 96
    # calls the mean of 39 · 30, 24 · 60 and 15 · 80 ms.
    assert (
        told.predicted_speedup is not None and abs(told.predicted_speedup - 40 * 78 / 3810) < 1e-6 and not told.missing
    )
