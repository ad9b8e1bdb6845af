"""p, q and the residual side by side, on one scale."""

from __future__ import annotations

from dataclasses import replace

import pytest
from rich.cells import cell_len

from specdec_tui.decoding.records import Insight, Status, Token
from specdec_tui.tui.inspector.alternatives import Place, alternatives, bar, full_bar

P = ((1, 0.4), (2, 0.25), (3, 0.1))
Q = ((2, 0.2), (1, 0.1))
REST = ((1, 0.75), (3, 0.25))
SEEN = Insight(1.0, 1.0, P, Q, REST)
DRAFTED = Token(2, Status.REJECTED, 5, 0.05, 0.2, 0.25, 0.8, SEEN)
DRAWN = Token(1, Status.RESAMPLED, 5, 0.4, insight=SEEN)
PLACE = Place(DRAFTED, (DRAFTED, DRAWN), greedy=False)
TEXTS = {1: " one", 2: " two", 3: " three"}


def lines(place: Place = PLACE, width: int = 80) -> list[str]:
    return ["".join(text for text, _ in line) for line in alternatives(place, TEXTS, width)]


def of_at_most(highest: float) -> Place:
    seen = Insight(1.0, 1.0, ((1, highest),), ((2, highest),), ((1, highest),))
    return Place(replace(DRAFTED, p=0.01, q=0.01, insight=seen), (), greedy=False)


def row(name: str, place: Place = PLACE, width: int = 80) -> str:
    return next(line for line in lines(place, width) if f"·{name} " in line)


def test_a_bar_has_the_length_that_one_reckons_by_hand() -> None:
    # The highest of all values is 0.75, so a full bar is 1. At 80 cells each of three columns has 20:
    # 6 for the figure, 1 between, 12 for the bar, 1 behind it. 0.4 of 12 cells are 4.8: 4 and six eighths.
    assert lines()[0].split()[:3] == ["full", "bar", "1"]
    assert row("one").split() == ["↻·one", "0.400", "████▊", "0.100", "█▎", "0.750", "█████████"]
    assert bar(0.5, 12) == "██████" and bar(0.0, 12) == ""


def test_all_columns_and_rows_are_on_one_scale() -> None:
    eighths = {
        value: 8 * len(text.rstrip("▏▎▍▌▋▊▉")) + "▏▎▍▌▋▊▉".find(text[-1]) + 1
        for line in lines()
        for value, text in zip(line.split()[1::2], line.split()[2::2], strict=False)
        if set(text) <= set("█▏▎▍▌▋▊▉")
    }
    assert len(eighths) >= 5
    for value, length in eighths.items():
        assert length == pytest.approx(float(value) * 96, abs=1), value


@pytest.mark.parametrize(
    ("highest", "full"), [(0.763, 1), (0.5, 0.5), (0.21, 0.5), (0.2, 0.2), (1, 1), (0.004, 0.005), (0, 1)]
)
def test_a_full_bar_is_the_next_round_figure(highest: float, full: float) -> None:
    assert full_bar(highest) == pytest.approx(full)


def test_the_token_and_what_was_drawn_here_come_first_and_are_marked() -> None:
    rows = [line for line in lines() if "·" in line[:3]]
    assert [line[:6].strip() for line in rows] == ["▸✗·two", "↻·one", "·thr"]
    assert rows[0].startswith("▸✗·two") and rows[1].startswith(" ↻·one") and rows[2].startswith("  ·three")


def test_what_is_outside_the_ten_has_the_figures_of_its_record() -> None:
    ten = tuple((n, 0.05) for n in range(10, 20))
    drafted = replace(DRAFTED, id=77, p=0.00005, q=0.03, insight=Insight(2.0, 2.0, ten, ten))
    drawn = replace(DRAWN, id=78, p=0.02)
    place = Place(drafted, (drafted, drawn), greedy=False)
    first, second = [line for line in lines(place) if "#77" in line or "#78" in line]
    assert first.split()[:3] == ["▸✗#77", "<.001", "0.030"]
    assert second.split()[:2] == ["↻#78", "0.020"] and "<.050" in second  # q is not told: at most the tenth's


def test_where_fewer_than_ten_are_listed_the_others_have_no_chance() -> None:
    assert row("three").split()[-3] == "0" or " 0 " in row("three")


def test_the_residual_of_what_p_gives_less_than_q_is_exactly_nothing() -> None:
    """It said `<.004` of a rejected draft: the tenth's share, as of any token outside the ten."""
    p = ((1, 0.4), (2, 0.05), (3, 0.03), (4, 0.02), *((n, 0.004) for n in range(20, 26)))
    q = ((2, 0.2), (1, 0.1), (3, 0.03), (50, 0.02), *((n, 0.001) for n in range(20, 26)))
    rest = tuple((n, 0.004) for n in range(20, 29))
    seen = Insight(1.0, 1.0, p, q, ((1, 0.6), *rest))
    drafted = replace(DRAFTED, insight=seen)
    rows = {line[2:].split()[0]: line for line in lines(Place(drafted, (drafted, DRAWN), greedy=False)) if "#" in line}
    rows |= {name: row(name, Place(drafted, (drafted, DRAWN), greedy=False)) for name in ("two", "three", "one")}
    assert rows["two"].split()[-1] == "0" and "0.600" in rows["one"]
    assert rows["#50"].split()[-1] == "0"  # p is at most .004, q is .020
    assert rows["#4"].split()[-1] == "<.004"  # q may be less than that
    assert rows["three"].split()[-1] == "<.004"  # equal as far as they are told


def test_under_greedy_the_columns_are_raw_and_never_the_one_hot_figures() -> None:
    drafted = replace(DRAFTED, p=0.0, q=1.0, acceptance=0.0, draw=None, insight=replace(SEEN, residual_top=()))
    place = Place(drafted, (drafted, replace(DRAWN, p=1.0)), greedy=True)
    text = " ".join(lines(place))
    assert "plain softmax, before greedy" in text and "raw p" in text and "raw q" in text
    assert row("two", place).split()[1] == "0.250" and "1.000" not in text


def test_columns_that_are_not_known_are_left_out() -> None:
    bonus = Token(1, Status.BONUS, 9, 0.4, insight=Insight(1.0, None, P))
    text = " ".join(lines(Place(bonus, (bonus,), greedy=False)))
    assert "residual" not in text and "q drafter" not in text


def test_a_joint_weight_stands_in_the_definition() -> None:
    assert "max(0, w·p − q)" in " ".join(lines(replace(PLACE, weight="w·")))


def test_parts_of_a_character_are_told_apart_by_their_ids_and_bars_of_nothing_are_drawn() -> None:
    seen = Insight(target_top=((1, 0.0), (2, 0.0)))
    token = replace(DRAFTED, p=None, q=None, insight=seen)
    drawn = alternatives(Place(token, (token,), False), {1: "\N{REPLACEMENT CHARACTER}", 2: ""}, 60)
    text = "\n".join("".join(text for text, _ in line) for line in drawn)
    assert "\N{REPLACEMENT CHARACTER}#1" in text and "#2" in text and "█" not in text


def test_bars_take_the_width_there_is() -> None:
    for width in range(20, 200):
        drawn = lines(width=width)
        assert max(map(cell_len, drawn)) <= width
        if width >= 60:
            assert max(line.count("█") for line in drawn) >= 0.75 * (0.75 * width / 3 - 10)


def test_the_scale_of_bars_and_the_names_of_columns_are_never_cut() -> None:
    for width in range(26, 200):
        head, *rest = lines(of_at_most(0.04), width)
        assert head.split()[-3:] in (["p", "q", "residual"], ["p", "q", "p−q"]) and ("0.05" in head) == any(
            "█" in line for line in rest
        )
