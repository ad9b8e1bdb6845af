"""What the dialog of a what-if offers."""

from __future__ import annotations

import pytest

from specdec_tui.decoding.records import RoundVerified, Status, Token
from specdec_tui.settings import Settings
from specdec_tui.tui.app.what_if_rows import Forms, candidates, what_if_rows
from specdec_tui.tui.commands.palette_rows import Change, Refuse
from specdec_tui.tui.tokens.run_log import Place, RunLog


@pytest.mark.parametrize(
    ("processor", "idle"),
    [("multinomial", {"top-k", "top-p"}), ("topk", {"top-p"}), ("nucleus", {"top-k"}), ("topknucleus", set())],
)
def test_settings_that_change_nothing_with_the_processor_are_not_offered(processor: str, idle: set[str]) -> None:
    listed = {row.text for row in what_if_rows([], Settings(processor=processor))("")}
    assert {"gamma", "temperature", "rule", "seed"} <= listed
    assert {"top-k", "top-p"} - listed == idle
    typed = what_if_rows([], Settings(processor=processor))("top-k 7")
    assert typed and typed[0].text == "top-k 7", "who asks for it by name finds it"


def test_from_greedy_any_setting_of_sampling_leads_on() -> None:
    assert {"temperature", "top-k", "top-p"} <= {row.text for row in what_if_rows([], Settings())("")}


def test_a_refused_draft_that_is_drawn_again_is_what_was_written_too() -> None:
    """The rule skip-adjustment draws from p itself, which may give the draft once more."""
    log, other = RunLog(), RunLog()
    refused = Token(7, Status.REJECTED, 0, 0.4, 0.6)
    for one, drawn in ((log, 7), (other, 8)):
        one.add(RoundVerified(0, (refused,), Token(drawn, Status.RESAMPLED, 0, 0.4), 0.1, 0.1, 0.1), (" a", " b"))
    (again,) = candidates(log, Place(0, 0))
    assert again.fate == "the refused draft ✗, as written ↻"
    assert [one.fate for one in candidates(other, Place(0, 1))] == ["the refused draft ✗", "as written ↻"]


def test_parts_of_a_character_are_told_apart_by_their_ids() -> None:
    log = RunLog()
    refused = Token(7, Status.REJECTED, 0, 0.4, 0.6)
    log.add(RoundVerified(0, (refused,), Token(8, Status.RESAMPLED, 0, 0.4), 0.1, 0.1, 0.1), ("\ufffd", "\ufffd"))
    assert [one.text for one in candidates(log, Place(0, 0))] == ["\ufffd#7", "\ufffd#8"]


PACKED = Forms("packed", ("packed", "expanded"))


def test_forms_of_the_weights_are_offered_where_the_target_has_several() -> None:
    rows = what_if_rows([], Settings(), PACKED)
    assert {row.text: row.help for row in rows("")}["weights"].endswith("now packed")
    assert [row.text for row in rows("weights ") if isinstance(row.does, Change)] == [
        "weights packed",
        "weights expanded",
    ]
    assert rows("weights expanded")[0].does == Change({"weights": "expanded"})
    assert rows("weights packed-int8")[0].does == Refuse(
        "weights packed-int8: this target can be held in packed or expanded"
    )


def test_a_target_of_one_form_is_offered_none_and_says_why() -> None:
    rows = what_if_rows([], Settings())
    assert "weights" not in {row.text for row in rows("")}
    why = "weights expanded: this target's weights have one form: others take a GGUF file on a CPU"
    assert rows("weights expanded")[0].does == Refuse(why)
    assert rows("gamma 2")[0].does == Change({"gamma": 2})
