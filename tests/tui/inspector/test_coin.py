"""The strip from 0 to 1: what is accepted, and where the coin fell."""

from __future__ import annotations

import pytest
from rich.cells import cell_len

from specdec_tui.tui.inspector.coin import COIN, coin_line


def strip(chance: float, draw: float | None, width: int = 64) -> str:
    return "".join(text for text, _ in coin_line(chance, draw, width))


def test_threshold_and_coin_stand_where_one_reckons_them_by_hand() -> None:
    # 64 cells: `0 `, 60 cells for 0 to 1, ` 1`. 0.45 of 60 is 27: the edge is the 27th, the coin's 0.82 cell 49.
    line = strip(0.45, 0.82)
    assert line[2:].index("┫") == 26 and line[2:].index(COIN) == 49
    assert " accept " in line[:28] and "▲ 0.82" in line
    assert line.startswith("0 ") and line.endswith(" 1")


@pytest.mark.parametrize("width", [12, 20, 36, 55, 76, 200])
def test_the_coin_is_never_on_the_wrong_side_and_no_line_is_wider(width: int) -> None:
    steps = [n / 40 for n in range(41)]
    for chance in (*steps, 0.0004, 0.9996, 1e-9):
        for draw in (*steps[:-1], 0.9999, 0.0001, None):
            parts = coin_line(chance, draw, width)
            assert cell_len("".join(text for text, _ in parts)) == width
            coin = [style for text, style in parts if text == COIN]
            if draw is None:
                assert not coin
            else:
                assert coin == [f"bold $token-{'accepted' if draw < chance else 'rejected'}"], (chance, draw)


def test_a_small_chance_and_a_large_one_leave_both_sides_in_sight() -> None:
    assert strip(0.002, 0.83).startswith("0 ┫ accept ┄") and "┄" in strip(0.9999, 0.2)
    assert "┄" not in strip(1.0, 0.3) and "━" not in strip(0.0, 0.3)


def test_words_cover_neither_edge_nor_coin() -> None:
    for chance, draw in ((0.2, 0.1), (0.2, 0.19), (0.5, 0.25), (0.02, 0.03), (0.99, 0.985), (1.0, 0.99)):
        line = strip(chance, draw, 50)
        assert line.count(COIN) == 1 and ("┫" in line or line[1:].index(COIN) <= 50)


def test_numbers_of_a_trace_that_somebody_wrote_do_not_break_it() -> None:
    for chance, draw in ((7.0, 3.0), (-1.0, -2.0), (0.5, 1.0)):
        assert cell_len(strip(chance, draw)) == 64
