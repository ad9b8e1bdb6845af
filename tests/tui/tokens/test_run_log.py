"""Walking over the tokens of a run."""

from __future__ import annotations

from specdec_tui.decoding.records import (
    Beam,
    DraftsProposed,
    Origin,
    PrefillDone,
    RoundVerified,
    RunStarted,
    Status,
    Token,
)
from specdec_tui.tui.tokens.run_log import Place, RunLog


def verdict(number: int, position: int) -> RoundVerified:
    drafts = (
        Token(1, Status.ACCEPTED, position),
        Token(2, Status.REJECTED, position + 1),
        Token(3, Status.UNVERIFIED, position + 2),
    )
    return RoundVerified(number, drafts, Token(4, Status.RESAMPLED, position + 1), 0.1, 0.1, 0.1)


def filled() -> RunLog:
    """A first token and two rounds, each of an accepted draft and a correction."""
    log = RunLog()
    log.add(PrefillDone(Token(0, Status.SAMPLED, 0), 0.1), ("a",))
    log.add(verdict(0, 1), ("b", "x", "y", "c"))
    log.add(verdict(1, 3), ("d", "x", "y", "e"))
    return log


def test_stepping_visits_every_token_or_only_those_of_the_text() -> None:
    log = filled()
    for emitted, wanted in ((False, "abxycdxye"), (True, "abcde")):
        place = log.first(emitted)
        assert place is not None
        texts = [log.text(place)]
        while (there := log.step(place, 1, emitted)) != place:
            place = there
            texts.append(log.text(place))
        assert "".join(texts) == wanted
        assert place == log.last(emitted)
        for _ in range(20):
            place = log.step(place, -1, emitted)
        assert place == log.first(emitted)


def test_a_round_further_the_cursor_stays_at_its_column() -> None:
    log = filled()
    assert log.step_row(Place(1, 2), 1) == Place(2, 2)
    assert log.step_row(Place(1, 2), -1) == Place(0, 0)
    assert log.step_row(Place(2, 1), 1) == Place(2, 1)
    assert log.step_row(Place(2, 3), -1, emitted=True) == Place(0 + 1, 3)


def test_a_position_leads_to_its_emitted_token() -> None:
    log = filled()
    assert [log.text(place) for p in range(5) if (place := log.find(p))] == list("abcde")
    assert log.find(5) is None
    assert RunLog().find(0) is None


def test_a_draft_that_was_not_emitted_is_nearest_to_the_end_of_its_round() -> None:
    log = filled()
    assert log.nearest_emitted(Place(1, 0)) == Place(1, 0)
    assert log.nearest_emitted(Place(1, 1)) == log.nearest_emitted(Place(1, 2)) == Place(1, 3)
    log.add(DraftsProposed(2, (Token(9, Status.PENDING, 5),)), ("p",))
    assert log.nearest_emitted(Place(3, 0)) == Place(2, 3)


def test_pending_drafts_give_their_row_to_the_verdict_or_leave() -> None:
    log = filled()
    log.add(DraftsProposed(2, (Token(9, Status.PENDING, 5),)), ("p",))
    assert (log.settled, len(log.rows)) == (3, 4)
    assert log.find(5, Status.PENDING) == Place(3, 0)
    log.add(verdict(2, 5), ("f", "x", "y", "g"))
    assert (log.settled, len(log.rows)) == (4, 4)
    log.add(DraftsProposed(3, (Token(9, Status.PENDING, 7),)), ("p",))
    log.drop_pending()
    log.drop_pending()
    assert len(log.rows) == 4
    assert not log.holds(Place(4, 0))


def sampled(*places: int) -> tuple[Token, ...]:
    return tuple(Token(20 + place, Status.SAMPLED, place) for place in places)


def pending(*places: int) -> tuple[Token, ...]:
    return tuple(Token(20 + place, Status.PENDING, place) for place in places)


def step(number: int, *settled: int) -> RoundVerified:
    return RoundVerified(number, (), None, 0.0, 0.1, 0.0, sampled(*settled), (Beam((1,), -1.0),))


def test_what_is_open_of_a_search_is_put_together_from_what_was_told_of_it() -> None:
    log = RunLog()
    log.add(PrefillDone(None, 0.1, beams=(Beam((20,), -1.0),)), ())
    log.add(DraftsProposed(0, pending(0)), ("a",))
    log.add(step(0), ())
    log.add(DraftsProposed(1, pending(1, 2), kept=1), ("b", "c"))
    assert (log.rows[-1].tokens, log.rows[-1].texts) == (pending(0, 1, 2), ("a", "b", "c"))
    log.add(step(1, 0), ("a",))
    log.add(DraftsProposed(2, pending(2), kept=1), ("d",))
    assert (log.rows[-1].tokens, log.rows[-1].texts) == (pending(1, 2), ("b", "d"))
    log.add(step(2), ())
    log.add(DraftsProposed(3, pending(1)), ("e",))
    assert (log.rows[-1].tokens, log.rows[-1].texts) == (pending(1), ("e",))


def test_a_position_is_found_between_rounds_that_settled_nothing() -> None:
    log = RunLog()
    log.add(PrefillDone(None, 0.1, beams=(Beam((20,), -1.0),)), ())
    for number, settled in enumerate([(), (0, 1), (), (), (2,), ()]):
        log.add(step(number, *settled), ("x",) * len(settled))
    assert [log.find(place) for place in range(4)] == [Place(2, 0), Place(2, 1), Place(5, 0), None]


def test_a_run_without_tokens_has_no_place() -> None:
    log = RunLog()
    assert log.first() is None and log.last() is None
    log.add(PrefillDone(None, 0.1), ())
    assert log.first() is None and log.last() is None


def test_rejections_are_visited_in_both_directions_or_the_tokens_in_their_places() -> None:
    log = filled()
    for emitted, wanted in ((False, "xx"), (True, "ce")):
        place: Place | None = Place(0, 0)
        visited = []
        while place is not None and (place := log.step_rejection(place, 1, emitted)) is not None:
            visited.append(place)
        assert "".join(map(log.text, visited)) == wanted
        place = log.last()
        back = []
        while place is not None and (place := log.step_rejection(place, -1, emitted)) is not None:
            back.append(place)
        if emitted:
            assert back == visited[-2::-1]  # from the last token, which is one of them
        else:
            assert back == visited[::-1]
    assert log.step_rejection(Place(1, 0), 1) == Place(1, 1) and log.step_rejection(Place(1, 3), -1) == Place(1, 1)
    assert log.step_rejection(Place(0, 0), -1) is None and RunLog().step_rejection(Place(0, 0), 1) is None


def test_the_text_in_ids_is_by_position() -> None:
    assert filled().emitted_ids() == {0: 0, 1: 1, 2: 4, 3: 1, 4: 4}
    child = RunLog()
    child.start(RunStarted("target~1", 3, 0, 9, origin=Origin("target", 2, 7)))
    child.add(PrefillDone(Token(5, Status.SAMPLED, 3), 0.1), ("a",))
    assert child.emitted_ids() == {2: 7, 3: 5}  # its first own difference is the token that it was given
    child.given = (8, 9, 7)
    assert child.emitted_ids() == {0: 8, 1: 9, 2: 7, 3: 5}  # where it is known, the whole line of it
    child.clear()
    assert child.emitted_ids() == {}
