"""Finding text in a text that grows."""

from __future__ import annotations

import random
import re
from time import process_time

import pytest

from specdec_tui.tui.lines.find import Search, cells_of


def found(search: Search) -> list[int]:
    return [search.span(match)[0] for match in range(len(search))]


def test_matches_go_across_parts() -> None:
    search = Search(["spec", "ulative dec", "od", "", "ing"])
    search.look_for("decoding")
    assert [search.span(0)] == [(12, 20)]


def test_capitals_in_the_query_make_case_count() -> None:
    search = Search(["Blue blue BLUE"])
    search.look_for("blue")
    assert found(search) == [0, 5, 10]
    search.look_for("Blue")
    assert found(search) == [0]


@pytest.mark.parametrize("query", [".*", "[/x]", "a(b", "\\", "世界", "İ", "👩\u200d👩"])
def test_a_query_is_taken_literally_and_places_stay_right(query: str) -> None:
    search = Search(["İİ ", query, " and ", query])
    search.look_for(query)
    assert search.span(len(search) - 1) == (3 + len(query) + 5, 3 + 2 * len(query) + 5)


def test_an_empty_query_and_one_that_is_not_there_find_nothing() -> None:
    search = Search(["text"])
    for query in ("", "nowhere"):
        search.look_for(query)
        assert len(search) == 0
        assert search.first_from(0) is None


@pytest.mark.parametrize("query", ["a", "aa", "aba", "abab", "b a"])
def test_growing_and_shrinking_gives_what_a_search_of_the_whole_gives(query: str) -> None:
    chance = random.Random(5)
    parts: list[str] = []
    search = Search()
    search.look_for(query)
    for _ in range(400):
        if parts and chance.random() < 0.2:
            del parts[chance.randrange(max(0, len(parts) - 4), len(parts)) :]
            search.cut(len(parts))
        new = ["".join(chance.choice("aab ") for _ in range(chance.randrange(5))) for _ in range(chance.randrange(4))]
        parts += new
        search.extend(new)
        assert found(search) == [match.start() for match in re.finditer(query, "".join(parts))]


def test_the_first_match_from_a_place_goes_around_the_end() -> None:
    search = Search(["x..x..x"])
    search.look_for("x")
    assert [search.first_from(offset) for offset in (0, 1, 4, 7)] == [0, 1, 2, 0]


def test_matches_within_a_stretch_include_those_that_reach_into_it() -> None:
    search = Search(["..abc...abc."])
    search.look_for("abc")
    assert list(search.within(4, 8)) == [0]
    assert list(search.within(5, 8)) == []
    assert list(search.within(5, 9)) == [1]


def test_new_text_costs_nothing_for_the_text_before(monkeypatch: pytest.MonkeyPatch) -> None:
    search = Search(["word "] * 40_000)
    search.look_for("zebra")
    seen = 0

    class Counting:
        def finditer(self, text: str, start: int) -> list[re.Match[str]]:
            nonlocal seen
            seen += len(text)
            return []

    search._pattern = Counting()  # type: ignore[assignment]
    for _ in range(1000):
        search.extend(["more"])
    assert seen < 20_000


def test_a_text_of_200_000_characters_is_searched_at_once() -> None:
    chance = random.Random(1)
    search = Search([chance.choice(["the ", "quick ", "brown", " fox\n", "日本 "]) for _ in range(48_000)])
    for query in ("the", "o", "quick brown", "Zz", "日本"):
        best = 1.0
        for _ in range(3):
            began = process_time()
            search.look_for(query)
            best = min(best, process_time() - began)
        assert best < 0.05


@pytest.mark.parametrize(
    ("line", "start", "end", "cells"),
    [
        ("plain text", 6, 10, (6, 10)),
        ("ends\n", 2, 5, (2, 4)),
        ("世界 fox", 1, 2, (2, 4)),
        ("世界 fox", 3, 6, (5, 8)),
        ("\tfox", 1, 4, (4, 7)),
        ("a\tb", 1, 2, (1, 4)),
        ("e\u0301a", 1, 2, (0, 1)),
        ("👩\u200d👩 x", 4, 5, (3, 4)),
        ("abc", 5, 9, (3, 3)),
    ],
)
def test_cells_of_characters_on_a_line(line: str, start: int, end: int, cells: tuple[int, int]) -> None:
    assert cells_of(line, start, end) == cells
