"""The round of the chosen strategy in three lines."""

from __future__ import annotations

import pytest
from rich.cells import cell_len
from scripted_engine import ScriptedEngine
from widget_data import run_steps

from specdec_tui.decoding.records import (
    Beam,
    DraftsProposed,
    EndReason,
    Event,
    PrefillDone,
    RoundVerified,
    RunEnded,
    RunStarted,
    Status,
    Step,
    Token,
)
from specdec_tui.settings import Settings
from specdec_tui.tui.race.race import Race
from specdec_tui.tui.race.round_text import chosen_words, round_lines


def a_race() -> Race:
    settings = Settings(strategies=("target", "speculative", "lookup"), max_new_tokens=60)
    return Race(ScriptedEngine().run("why", settings, lambda: False))


def three(race: Race, strategy: str, width: int = 110) -> list[str]:
    return [line.plain.rstrip() for line in round_lines(race.moment(strategy), width)]


def to_round(race: Race, strategy: str, number: int) -> None:
    race.seek(0)
    while not chosen_words(race.moment(strategy)).endswith(f"round {number}"):
        assert race.step(strategy, 1)


def test_a_round_is_drafted_one_after_another_verified_at_once_and_kept_in_part() -> None:
    race = a_race()
    to_round(race, "speculative", 4)
    draft, verify, keep = three(race, "speculative")
    assert draft.count("?") == 4 and draft.count("→") == 3 and draft.endswith("4 draft passes, one after another")
    assert (
        verify.count("✓") == 3 and verify.count("✗") == 1 and verify.endswith("the target reads all 5 places at once")
    )
    assert keep.count("✓") == 3 and keep.count("↻") == 1 and keep.endswith("4 tokens for 1 target pass")
    places = [draft.index("?"), verify.index("✓"), keep.index("✓")]
    assert len(set(places)) == 1 and verify.index("✗") == keep.index("↻"), "what belongs together stands in a column"


def test_while_drafts_wait_nothing_of_their_verdict_is_told_but_what_was_kept_before() -> None:
    race = a_race()
    to_round(race, "speculative", 4)
    end = race.seconds
    race.seek(end - 0.01)
    moment = race.moment("speculative")
    assert moment.shown is not None and isinstance(moment.shown.record, DraftsProposed)
    draft, verify, keep = three(race, "speculative")
    assert draft.count("?") == 4 and verify.count("…") == 4
    assert not set("✗○↻") & set(draft + verify) and keep.startswith(" keep   before: ")
    assert "for 1 target pass" not in keep


def test_a_round_without_drafts_says_so() -> None:
    race = a_race()
    to_round(race, "target", 3)
    draft, verify, keep = three(race, "target")
    assert "none: one token a pass" in draft and "the target writes one token" in verify
    assert keep.count("›") == 1 and keep.endswith("1 token for 1 pass")


def test_before_the_first_round_the_prompt_is_read() -> None:
    race = a_race()
    race.seek(0.1)
    assert three(race, "target")[1].endswith("reads 12 prompt tokens") and chosen_words(race.moment("target"))
    race.step("target", 1)
    assert "the first token" in three(race, "target")[2]


def test_what_was_copied_took_no_pass() -> None:
    race = a_race()
    to_round(race, "lookup", 1)
    while "copied" not in three(race, "lookup")[0]:
        assert race.step("lookup", 1)
    assert three(race, "lookup")[0].endswith("no pass")


@pytest.mark.parametrize("gamma", [1, 4, 16])
@pytest.mark.parametrize("width", [1, 4, 20, 38, 78, 198])
def test_three_lines_that_fit_whatever_the_width_and_however_many_drafts(gamma: int, width: int) -> None:
    words = [" wort", "日本語", "\x1b[31m", "\n", " [b]x[/b]", " a" * 30] * 12
    race = Race(run_steps("speculative", words, gamma=gamma, end=RunEnded(EndReason.LENGTH)))
    while race.step("speculative", 1):
        told = round_lines(race.moment("speculative"), width)
        assert len(told) == 3 and all(cell_len(line.plain) <= width for line in told)
        assert "\x1b" not in "".join(line.plain for line in told)


def test_of_more_drafts_than_have_room_the_rest_is_counted() -> None:
    race = Race(run_steps("speculative", [f" word{i}" for i in range(60)], gamma=16, end=RunEnded(EndReason.LENGTH)))
    race.step("speculative", 1)
    race.step("speculative", 1)
    draft, verify, keep = three(race, "speculative", 60)
    assert draft.endswith(verify.rsplit(" ", 1)[1]) and "+" in verify.rsplit(" ", 1)[1]
    assert any(sign in keep for sign in "↻+"), "the token of the target's own is always there"


def test_a_search_goes_on_with_several_texts_and_settles_some() -> None:
    beams = (Beam((1,), -1.0), Beam((2,), -2.0))
    settled = (Token(1, Status.SAMPLED, 0),)
    events: list[Event] = [
        Step("beam", RunStarted("beam", 3, 0, 9, beams=2)),
        Step("beam", PrefillDone(None, 0.5, beams=beams)),
        Step("beam", RoundVerified(0, (), None, 0.0, 0.25, 0.0, settled, beams), ("Light",)),
        Step("beam", RunEnded(EndReason.LENGTH)),
    ]
    race = Race(events)
    race.seek(race.length)
    draft, verify, keep = three(race, "beam")
    assert "it searches" in draft and "goes on with 2 texts in one pass" in verify
    assert "Light" in keep and keep.endswith("1 token settled")
