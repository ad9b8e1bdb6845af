"""p, q and the residual side by side, on one scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from specdec_tui.decoding.records import Insight, RoundVerified, Status, Token
from specdec_tui.tui.inspector.alternatives import alternatives, bar, full_bar, rows
from specdec_tui.tui.inspector.look import Look, Manner

P = ((1, 0.4), (2, 0.25), (3, 0.1))
Q = ((2, 0.2), (1, 0.1))
REST = ((1, 0.75), (3, 0.25))
SEEN = Insight(1.0, 1.0, P, Q, REST)
DRAFTED = Token(2, Status.REJECTED, 5, 0.05, 0.2, 0.25, 0.8, SEEN)
DRAWN = Token(1, Status.RESAMPLED, 5, 0.4, insight=SEEN)
TEXTS = {1: " one", 2: " two", 3: " three"}


def look_at(token: Token, *drawn: Token, texts: dict[int, str] = TEXTS, **manner: object) -> Look:
    """A token of a round of one draft, which is `token` itself, and of what was drawn in its place."""
    drafts = (token,) if token.status is not Status.BONUS else ()
    emitted = drawn[0] if drawn else token if not drafts else None
    record = RoundVerified(0, drafts, emitted, 0.1, 0.1, 0.1)
    return Look(record, token, "", texts, Manner(**manner))  # type: ignore[arg-type]


PLACE = look_at(DRAFTED, DRAWN)


def lines(place: Look = PLACE, width: int = 80) -> list[str]:
    return ["".join(text for text, _ in line) for line in alternatives(place, width)]


def of_at_most(highest: float) -> Look:
    seen = Insight(1.0, 1.0, ((1, highest),), ((2, highest),), ((1, highest),))
    return look_at(replace(DRAFTED, p=0.01, q=0.01, insight=seen))


def row(name: str, place: Look = PLACE, width: int = 80) -> str:
    return next(line for line in lines(place, width) if f"·{name} " in line)


def test_a_bar_has_the_length_that_one_reckons_by_hand() -> None:
    # The highest of all values is 0.75, so a full bar is 0.8. At 80 cells each of three columns has 19 beside the
    # words: 6 for the figure, 1 between, 11 for the bar, 1 behind it. 0.4 is half of it: 5 and four eighths.
    assert lines()[0].split()[:3] == ["full", "bar", "0.8"]
    assert row("one").split() == ["↻·one", "0.400", "█████▌", "0.100", "█▍", "0.750", "██████████▎", "drawn"]
    assert bar(0.5, 12) == "██████" and bar(0.0, 12) == ""


@pytest.mark.parametrize("width", [36, 48, 60, 80, 120, 180])
def test_all_columns_and_rows_are_on_one_scale(width: int) -> None:
    drawn = [line for line in lines(width=width)[1:] if line[2:3] == "·"]
    pairs = [pair for line in drawn for pair in zip(line.split()[1:], line.split()[2:], strict=False)]
    eighths = {
        float(value): 8 * len(text.rstrip("▏▎▍▌▋▊▉")) + "▏▎▍▌▋▊▉".find(text[-1]) + 1
        for value, text in pairs
        if set(text) <= set("█▏▎▍▌▋▊▉")
    }
    assert len(eighths) >= 5
    cells = eighths[0.75] / 0.75
    for value, length in eighths.items():
        assert length == pytest.approx(value * cells, abs=1.2), (value, width)


@pytest.mark.parametrize(
    ("highest", "full"), [(0.763, 0.8), (0.5, 0.5), (0.21, 0.3), (0.2, 0.2), (1, 1), (0.004, 0.004), (0, 1)]
)
def test_a_full_bar_is_the_next_round_figure(highest: float, full: float) -> None:
    assert full_bar(highest) == pytest.approx(full)


@pytest.mark.parametrize("width", [30, 60, 120])
def test_what_was_drafted_and_drawn_comes_first_and_is_marked_by_more_than_its_colour(width: int) -> None:
    found = [line for line in lines(width=width) if line[2:3] == "·"]
    assert found[0].startswith("▸✗·two") and found[1].startswith(" ↻·one") and found[2].startswith("  ·three")
    if width >= 80:
        assert found[0].endswith(" drafted") and found[1].endswith(" drawn")
    assert rows(PLACE) == [2, 1, 3]


def test_what_is_outside_the_ten_has_the_figures_of_its_record() -> None:
    ten = tuple((n, 0.05) for n in range(10, 20))
    drafted = replace(DRAFTED, id=77, p=0.00005, q=0.03, insight=Insight(2.0, 2.0, ten, ten))
    drawn = replace(DRAWN, id=78, p=0.02)
    first, second = [line for line in lines(look_at(drafted, drawn)) if "#77" in line or "#78" in line]
    assert first.split()[:3] == ["▸✗#77", "<.001", "0.030"]
    assert second.split()[:2] == ["↻#78", "0.020"] and "<.050" in second  # q is not told: at most the tenth's


def test_where_fewer_than_ten_are_listed_the_others_have_no_chance_and_zero_is_a_dot_or_a_dash() -> None:
    assert row("three").split() == ["·three", "0.100", "█▍", ".", "0.250", "███▌"]
    assert "–" in row("two").split()  # of the residual: p is below q


def test_the_residual_of_what_p_gives_less_than_q_is_exactly_nothing() -> None:
    """It said `<.004` of a rejected draft: the tenth's share, as of any token outside the ten."""
    p = ((1, 0.4), (2, 0.05), (3, 0.03), (4, 0.02), *((n, 0.004) for n in range(20, 26)))
    q = ((2, 0.2), (1, 0.1), (3, 0.03), (50, 0.02), *((n, 0.001) for n in range(20, 26)))
    rest = tuple((n, 0.004) for n in range(20, 29))
    seen = Insight(1.0, 1.0, p, q, ((1, 0.6), *rest))
    place = look_at(replace(DRAFTED, insight=seen), DRAWN)
    told = {line[2:].split()[0]: line.split() for line in lines(place) if "#" in line}
    told |= {name: row(name, place).split() for name in ("two", "three", "one")}
    assert told["two"][-2:] == ["–", "drafted"] and "0.600" in told["one"]
    assert told["#50"][-1] == "–"  # p is at most .004, q is .020
    assert told["#4"][-1] == "<.004"  # q may be less than that
    assert told["three"][-1] == "<.004"  # equal as far as they are told


def test_under_greedy_the_columns_are_raw_and_never_the_one_hot_figures() -> None:
    drafted = replace(DRAFTED, p=0.0, q=1.0, acceptance=0.0, draw=None, insight=replace(SEEN, residual_top=()))
    place = look_at(drafted, replace(DRAWN, p=1.0), greedy=True)
    text = " ".join(lines(place))
    assert "plain softmax, before greedy" in text and "raw p target" in text and "raw q drafter" in text
    assert row("two", place).split()[1] == "0.250" and "1.000" not in text


def test_under_greedy_nothing_is_drawn_and_no_row_says_so() -> None:
    seen = replace(SEEN, residual_top=())
    place = look_at(replace(DRAFTED, insight=seen), replace(DRAWN, insight=seen), greedy=True)
    for width in (72, 80, 160):
        assert row("one", place, width).endswith(" arg-max") and row("two", place, width).endswith(" drafted")
        assert "drawn" not in " ".join(lines(place, width))


def test_columns_that_are_not_known_are_left_out() -> None:
    bonus = Token(1, Status.BONUS, 9, 0.4, insight=Insight(1.0, None, P))
    text = " ".join(lines(look_at(bonus)))
    assert "residual" not in text and "q drafter" not in text


def test_of_a_drafter_without_a_distribution_q_is_1_for_its_draft_and_nothing_else() -> None:
    seen = Insight(1.0, None, P, (), ((1, 0.8), (3, 0.2)))
    place = look_at(replace(DRAFTED, q=1.0, insight=seen), replace(DRAWN, insight=seen))
    assert row("two", place).split()[3] == "1" and row("one", place).split()[3] == "."


def test_a_joint_weight_stands_in_the_definition() -> None:
    assert "max(0, w·p − q)" in " ".join(lines(look_at(DRAFTED, DRAWN, rule="block")))


def test_parts_of_a_character_are_told_apart_by_their_ids_and_bars_of_nothing_are_drawn() -> None:
    seen = Insight(target_top=((1, 0.0), (2, 0.0)))
    token = replace(DRAFTED, p=None, q=None, insight=seen)
    text = "\n".join(lines(look_at(token, texts={1: "\N{REPLACEMENT CHARACTER}", 2: ""}), 60))
    assert "\N{REPLACEMENT CHARACTER}#1" in text and "#2" in text and "█" not in text


def test_bars_take_the_width_there_is() -> None:
    for width in range(20, 200):
        drawn = lines(width=width)
        assert max(map(cell_len, drawn)) <= width
        if width >= 70:
            assert max(line.count("█") for line in drawn) >= 0.75 * (0.75 * (width - 9) / 3 - 10)


def test_the_scale_of_bars_and_the_names_of_columns_are_never_cut() -> None:
    for width in range(26, 200):
        head, *rest = lines(of_at_most(0.04), width)
        told = " ".join(head.split()).removeprefix("full bar ").removeprefix("bar ≤").removeprefix("0.04 ")
        assert told in ("p target q drafter p−q → residual", "p q residual", "p q p−q"), width
        assert ("0.04" in head) == any("█" in line for line in rest), width
