"""The lanes of a race: who is how far, and at its end who was when."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine

from specdec_tui.decoding.figures import RunFigures
from specdec_tui.decoding.records import EndReason, Event, RunEnded, Step
from specdec_tui.decoding.standing import Standing, Verdict, standing
from specdec_tui.settings import STRATEGIES, Settings
from specdec_tui.tui.race.lanes import lane_lines, lanes_of, ordinal
from specdec_tui.tui.race.race import Race

FOUR = ("target", "speculative", "ngram", "lookup")
PLAIN = STRATEGIES[:7]


def a_run(*strategies: str, tokens: int = 60) -> list[Event]:
    settings = Settings(strategies=strategies or FOUR, max_new_tokens=tokens)
    return list(ScriptedEngine().run("why", settings, lambda: False))


def lines(race: Race, width: int = 78, chosen: str = "speculative", **standings: Standing) -> list[str]:
    return [line.plain.rstrip() for line in lane_lines(lanes_of(race, standings), race, chosen, width)]


def test_a_lane_tells_tokens_rate_and_how_far_it_is_ahead_of_the_target_at_the_same_time() -> None:
    race = Race(a_run())
    race.seek(1.1)
    target, speculative, *_ = lines(race)
    assert " 18/60 " in target and " ahead" not in target and "19.6/s" in target and target.endswith("█ step…")
    assert speculative.startswith("▸3 speculative ") and " 24/60 " in speculative and " 6 ahead " in speculative
    assert speculative.count("█") > target.count("█") and speculative.endswith("▒ draft…")


def test_without_a_target_nobody_is_ahead_of_it() -> None:
    race = Race(a_run("speculative", "lookup"))
    race.seek(1.1)
    assert "ahead" not in "".join(lines(race)) and all(lane.ahead is None for lane in lanes_of(race, {}))


def test_lanes_keep_their_order_until_the_end_and_no_place_is_told_sooner() -> None:
    race = Race(a_run())
    while not race.over:
        assert [lane.strategy for lane in lanes_of(race, {})] == list(FOUR)
        for lane in lanes_of(race, {}):
            assert (lane.place is None) == (lane.moment.end is None)
            assert lane.moment.tokens < 60 or lane.place is not None or lane.strategy == "target"
        race.advance(0.03)
    assert [lane.place for lane in lanes_of(race, {})] == [1, 2, 3, 4]


def test_the_end_ranks_with_words_on_the_clock() -> None:
    race = Race(a_run())
    race.seek(race.length)
    doubt = Standing(9.0, Verdict.DISTURBED, 1.0, 1.6, "its own plain rounds say so")
    told = lines(race, 78, ngram=Standing(1.4, Verdict.FASTER), speculative=doubt, lookup=Standing(1.1, Verdict.SHORT))
    ngram, lookup, speculative, target = told
    assert "1st 2.35 s" in ngram and "1.40×" in ngram and ngram.rstrip().endswith("steady")
    assert lookup.rstrip().endswith("too short")
    assert (
        "9.00" not in speculative and "1.00–1.60×" in speculative and speculative.rstrip().endswith("clock disturbed")
    )
    assert "baseline" in target and "steady" not in target


def test_the_seconds_of_the_ranking_say_that_the_prefill_is_in_them_where_there_is_room() -> None:
    race = Race(a_run())
    assert "prefill" not in "".join(line for line in lines(race, 160) if "prefill…" not in line)
    race.seek(race.length)
    found = {"ngram": Standing(1.4, Verdict.FASTER)}
    assert "1st 2.35 s with prefill" in lines(race, 120, **found)[0]
    narrow = lines(race, 60, **found)[0]
    assert "1st 2.35 s" in narrow and "prefill" not in narrow and "1.40×" in narrow


def test_an_impossible_speedup_is_painted_as_a_warning_and_its_range_is_what_is_told() -> None:
    race = Race(a_run())
    race.seek(race.length)
    doubt = {"ngram": Standing(9.0, Verdict.DISTURBED, 1.0, 1.6, "…")}
    first = lane_lines(lanes_of(race, doubt), race, "target", 100)[0]
    styles = {first.plain[span.start : span.end].strip(): str(span.style) for span in first.spans}
    assert "resampled" in styles["1.00–1.60×"] and "accepted" not in " ".join(styles.values())


def test_who_failed_or_was_stopped_has_no_place() -> None:
    reasons = {"lookup": EndReason.CANCELLED, "ngram": EndReason.ERROR}
    events: list[Event] = [
        replace(event, record=RunEnded(reasons[event.strategy]))
        if isinstance(event, Step) and isinstance(event.record, RunEnded) and event.strategy in reasons
        else event
        for event in a_run()
    ]
    race = Race(events)
    race.seek(race.length)
    told = lines(race)
    assert [line.split()[0].strip("▸") for line in told[:2]] == ["3", "1"]
    assert {line.split()[1]: "stopped" in line for line in told[2:]} == {"ngram": False, "lookup": True}
    assert "failed" in "".join(told[2:])


@pytest.mark.parametrize("width", [1, 4, 20, 38, 58, 78, 118, 198])
def test_a_line_is_never_wider_than_its_room_and_columns_are_whole(width: int) -> None:
    race = Race(a_run(*PLAIN))
    for part in range(11):
        race.seek(race.length * part / 10)
        told = lines(race, width)
        assert len(told) == len(PLAIN) and all(cell_len(line) <= width for line in told)
        if width >= 78:
            assert all("/60 " in line or line.endswith("/60") for line in told)


def test_the_name_the_phase_and_the_count_are_the_last_to_go() -> None:
    race = Race(a_run())
    race.seek(1.1)
    assert all("/60" in line and line[1] in "1345" for line in lines(race, 38))
    assert lines(race, 38)[1].endswith("draft…")


def test_a_bar_that_is_full_is_a_whole_text_and_all_are_on_one_scale() -> None:
    race = Race(a_run())
    race.seek(race.length)
    bars = [line.count("█") for line in lines(race)]
    assert len(set(bars)) == 1 and bars[0] > 8
    race.seek(race.length * 0.3)
    shares = [(line.count("█"), lane.moment.tokens) for line, lane in zip(lines(race), lanes_of(race, {}), strict=True)]
    assert sorted(shares) == sorted(shares, key=lambda share: share[1])


def test_places_are_called_as_people_call_them() -> None:
    assert [ordinal(place) for place in (1, 2, 3, 4, 9)] == ["1st", "2nd", "3rd", "4th", "9th"]


def test_what_writes_another_text_is_told_so_in_the_ranking() -> None:
    events = a_run("target", "drafter")
    race = Race(events)
    race.seek(race.length)
    figures = {"target": RunFigures(), "drafter": RunFigures()}
    for event in events:
        if isinstance(event, Step):
            figures[event.strategy].add(event.record)
    found = standing(figures["drafter"], figures["target"])
    assert found is not None and not found.doubt and race.finished[0][0] == "drafter"
    target, drafter = lines(race, 90, "", drafter=found)
    assert "1st" in target and "s, another text" in drafter and race.places == {"target": 1}
    assert lines(race, 40, "", drafter=found)[1].rstrip().endswith("s, other")
    race.seek(race.finished[0][1])
    told = lines(race, 90, "")
    assert told[1].endswith("s, another text") and "1st" not in "".join(told), "while it is on, too"
    begin = told[1].index(" s, another") - 4
    race.seek(0.1)
    assert lines(race, 90, "")[1][begin:].startswith(("█", "░", "▒")), "its column has room from the start"
