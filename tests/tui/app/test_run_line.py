"""The line above the panes, and the notices in it."""

from __future__ import annotations

from scripted_engine import ScriptedEngine
from shell import make_app, ready, until
from textual.content import Content
from widget_data import painted

from specdec_tui.settings import Settings
from specdec_tui.tui.app.notices import Notice, Notices
from specdec_tui.tui.app.run_line import happening, side_by_side, with_notices
from specdec_tui.tui.race.race import Race


def shown(*arguments: object, width: int = 80) -> str:
    return side_by_side(happening(*arguments), width).plain  # type: ignore[arg-type]


def test_the_line_tells_of_the_prompt_that_runs_and_of_the_one_that_waits() -> None:
    assert shown("why [b]blue\x1b", "", True, "", None) == "› why [b]blue␛"
    assert shown("why", "next\none", True, "", None) == "› why  waiting  next one"
    assert shown("", "early", False, "", None) == "waiting  early"
    assert shown("why", "early", False, "", None) == "waiting  early"  # the models are being changed
    assert shown("why", "", False, "trace · 17:31", None) == "trace · 17:31 › why"


def test_the_line_tells_how_many_runs_of_others_come_first() -> None:
    assert shown("why", "", True, "", None, 2) == "› why  waiting for another tab (2 before you)"
    assert shown("why", "", True, "", None, None) == "› why"


def test_of_two_long_prompts_both_are_seen() -> None:
    line = shown("a" * 200, "b" * 200, True, "", None, width=60)
    assert line == f"› {'a' * 26}…  waiting  {'b' * 19}…" and len(line) == 60
    assert shown("why", "b" * 200, True, "", None, width=60) == f"› why  waiting  {'b' * 43}…"


def test_a_race_shows_its_clock_and_how_it_goes() -> None:
    race_events = list(ScriptedEngine().run("why", Settings(max_new_tokens=12), lambda: False))
    race = Race(race_events, 0.5)
    race.advance(1)
    assert shown("why", "", False, "", race).startswith("race ▶ 0.5×  0.50 of ")
    race.playing = False
    assert shown("why", "", False, "", race).startswith("race paused 0.5×  0.50 of ")
    before = shown("why", "", False, "", race).count("━")
    race.seek(race.length)
    after = shown("why", "", False, "", race)
    assert after.startswith("race over 0.5×") and " s with prefill  ━" in after
    assert "prefill" not in shown("why", "", False, "", Race(race_events, 0.5))
    assert after.count("━") == 24 > before > 0


def test_a_notice_stands_behind_the_prompt_or_in_its_place_and_is_never_cut() -> None:
    prompt = [Content("› " + "why " * 30)]
    for length in (5, 30, 57, 58, 59, 77, 78, 79, 200):
        line = with_notices(prompt, [Notice("x" * length, "information", 0)], 78).plain
        assert "x" * length in line
        assert len(line) == 78 or line == "x" * length
        assert ("why" in line) == (length <= 56)
    assert with_notices([], [Notice("short", "error", 0)], 30).plain.endswith("✗ short")


async def test_a_notice_on_a_low_screen_ends_in_a_mark_where_it_has_no_room() -> None:
    """`The table compares strategies after a` stood there, at 40 columns."""
    app = make_app(ScriptedEngine())
    async with app.run_test(size=(40, 12)) as pilot:
        await ready(pilot)
        said = "The table compares strategies after a run"
        app.say(said)
        await pilot.pause()
        assert [line.strip() for line in painted(app.run_line)] == ["The table compares strategies after a…"]
        await pilot.resize_terminal(40, 24)
        await until(pilot, lambda: " ".join(line.strip() for line in painted(app.run_line)) == said)


def test_information_gives_way_to_what_is_said_next_and_problems_stand_for_their_time() -> None:
    now = [0.0]
    notices = Notices(lambda: now[0])
    assert notices.say("no such model", "error", 20)
    assert notices.say("ngram off") and not notices.say("ngram off")
    assert notices.say("ngram on")
    assert [notice.text for notice in notices.shown] == ["ngram on", "no such model"]
    now[0] = 6
    assert [notice.text for notice in notices.shown] == ["no such model"]
    assert notices.say("ngram on\x1b[2J [b]")
    assert notices.shown[0].content.plain == "ngram on␛[2J [b]"
    now[0] = 30
    assert notices.shown == []
