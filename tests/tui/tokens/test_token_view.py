"""The coloured text: what is painted, where it is scrolled to, and what a cell leads back to."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from rich.style import Style
from textual.geometry import Offset
from textual.selection import Selection
from widget_data import HostApp, painted, strips_of

from specdec_tui.decoding.records import DraftsProposed, RoundVerified, Status, Token
from specdec_tui.tui.lines.layout import expand_tabs
from specdec_tui.tui.tokens.run_log import Place
from specdec_tui.tui.tokens.style import token_styles
from specdec_tui.tui.tokens.token_view import TokenView
from specdec_tui.tui.tokens.transcript import MOST_TOKENS, MOST_TURNS, Transcript, Turn


def tokens(count: int, status: Status = Status.SAMPLED, first: int = 0) -> list[Token]:
    return [Token(i, status, i) for i in range(first, first + count)]


def feed(
    view: TokenView,
    tokens: Sequence[Token],
    texts: Sequence[str],
    pending: Sequence[Token] = (),
    pending_texts: Sequence[str] = (),
) -> None:
    """A round of these tokens, then drafts that wait."""
    view.run_log.add(RoundVerified(0, tuple(tokens), None, 0.0, 0.0, 0.0), tuple(texts))
    if pending:
        view.run_log.add(DraftsProposed(1, tuple(pending)), tuple(pending_texts))
    view.sync()


def fill(view: TokenView, lines: int, first: int = 0) -> None:
    feed(view, tokens(lines, first=first), [f"line {first + i}\n" for i in range(lines)])


def style_of(view: TokenView, word: str) -> Style:
    return next(
        segment.style
        for strip in strips_of(view)
        for segment in strip
        if word in segment.text and segment.style is not None
    )


async def test_each_status_has_a_style_of_its_own() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        looks = {
            (style.color.name if style.color else "", style.bold, style.italic, style.strike)
            for style in token_styles(view).values()
        }
        assert len(looks) == len(Status)


async def test_without_colours_style_alone_tells_the_states_apart(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setenv("NO_COLOR", "1")
    view = TokenView()
    async with HostApp(view, columns="-one", ansi_color=True).run_test(size=(40, 8)):
        looks = {status: (s.bold, s.italic, s.strike, s.underline, s.dim) for status, s in token_styles(view).items()}
        emitted = {looks[s] for s in (Status.ACCEPTED, Status.RESAMPLED, Status.BONUS, Status.SAMPLED)}
        assert len(emitted) == 4
        assert len(set(looks.values())) == len(Status)


async def test_tokens_are_painted_in_the_style_of_their_fate() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        feed(
            view,
            [Token(0, Status.SAMPLED, 0), Token(1, Status.ACCEPTED, 1), Token(2, Status.RESAMPLED, 2)],
            ["One", " two", " three"],
            [Token(3, Status.PENDING, 3)],
            [" four"],
        )
        assert painted(view)[0] == "One two three four"
        styles = token_styles(view)
        for word, status in (("One", "sampled"), ("two", "accepted"), ("three", "resampled"), ("four", "pending")):
            assert style_of(view, word) == styles[Status(status)]


async def test_pending_drafts_make_way_for_what_was_emitted() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        feed(view, [], [], tokens(2, Status.PENDING), ["foo", " bar"])
        assert painted(view)[0] == "foo bar"
        feed(view, tokens(1, Status.RESAMPLED), ["baz"])
        assert painted(view)[0] == "baz"
        assert view.layout_text.text == "baz"


async def test_the_view_follows_the_tail_until_the_reader_scrolls_up_and_again_after_end() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)) as pilot:
        fill(view, 50)
        await pilot.pause()
        assert painted(view)[-1] == "line 49"
        view.scroll_to(y=10, animate=False)
        await pilot.pause()
        fill(view, 50, first=50)
        await pilot.pause()
        assert painted(view)[0] == "line 10"
        view.action_scroll_end()
        await pilot.pause()
        assert painted(view)[-1] == "line 99"
        fill(view, 5, first=100)
        await pilot.pause()
        assert painted(view)[-1] == "line 104"


async def test_scrolling_down_to_the_end_follows_again() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)) as pilot:
        fill(view, 50)
        view.scroll_to(y=5, animate=False)
        view.scroll_to(y=view.max_scroll_y, animate=False)
        fill(view, 5, first=50)
        await pilot.pause()
        assert painted(view)[-1] == "line 54"


async def test_a_resize_keeps_the_place_of_a_reader_who_scrolled_up() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(60, 8)) as pilot:
        feed(view, tokens(400), [f" word{i}" for i in range(400)])
        view.scroll_to(y=12, animate=False)
        await pilot.pause()
        first = painted(view)[0].split()[0]
        await pilot.resize_terminal(31, 8)
        await pilot.pause()
        assert first in painted(view)[0]
        await pilot.resize_terminal(60, 8)
        await pilot.pause()
        assert first in painted(view)[0]


async def test_a_new_line_does_not_lay_out_the_screen() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)) as pilot:
        fill(view, 3)
        await pilot.pause()
        updates = view._layout_updates
        fill(view, 100, first=3)
        assert view._layout_updates == updates
        assert view.max_scroll_y == 103 - 8


async def test_a_cell_leads_back_to_its_token() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        feed(view, tokens(2), ["世界", " b"], tokens(1, Status.PENDING, 2), [" c"])
        found = [view.token_at(0, column) for column in (0, 3, 5, 7)]
        assert [token.id if token else None for token in found] == [0, 0, 1, 2]
        assert view.token_at(0, 30) is None


async def test_an_emoji_made_of_several_tokens_is_drawn_in_one_piece() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        feed(view, [Token(0, Status.ACCEPTED, 0), Token(1, Status.BONUS, 1)], ["a👨\u200d", "👩 b"])
        strip = view.render_line(0)
        assert [s.text for s in strip][:2] == ["a👨\u200d👩", " b"]
        assert strip.cell_length == view.size.width


async def test_tabs_reach_tab_stops_of_the_line_across_tokens() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        feed(view, [Token(0, Status.ACCEPTED, 0), Token(1, Status.BONUS, 1)], ["if x:\n\t", "a\tb"])
        assert painted(view)[:2] == ["if x:", "    a   b"]


async def test_selected_text_comes_without_the_breaks_of_the_wrapping() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(24, 8)):
        text = "the quick brown fox jumps over\n\tthe lazy dog"
        feed(view, tokens(1), [text])
        assert len(view.layout_text.lines) == 3
        assert view.get_selection(Selection(None, None)) == (text, "\n")
        assert view.get_selection(Selection(Offset(4, 0), Offset(5, 1)))[0] == "quick brown fox jumps"  # type: ignore[index]


async def test_every_line_of_the_layout_can_be_painted_at_any_width() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)) as pilot:
        feed(view, tokens(300), [f" w{i}" if i % 9 else "\n" for i in range(300)])
        for width in (1, 2, 3, 7, 200):
            await pilot.resize_terminal(width, 8)
            await pilot.pause()
            drawn = "".join("".join(s.text for s in view.line_segments(i)) for i in range(view.line_count))
            assert drawn == "".join(map(expand_tabs, view.layout_text.lines))


def round_with_a_fork(view: TokenView) -> None:
    drafts = (Token(1, Status.ACCEPTED, 1), Token(2, Status.REJECTED, 2), Token(3, Status.UNVERIFIED, 3))
    view.run_log.add(RoundVerified(0, (Token(0, Status.SAMPLED, 0),), None, 0.0, 0.0, 0.0), ("The",))
    verdict = RoundVerified(1, drafts, Token(4, Status.RESAMPLED, 2), 0.0, 0.0, 0.0)
    view.run_log.add(verdict, (" quick", " brown\n", " fox", " red"))
    view.sync()


async def test_refused_drafts_stand_struck_out_in_the_text_when_wanted_and_are_not_copied() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(60, 8)):
        round_with_a_fork(view)
        assert painted(view)[0] == "The quick red"
        view.with_drafts = True
        assert painted(view)[0] == "The▏ quick ✗ brown↵ ○ fox ↻ red"
        assert style_of(view, "brown").strike and style_of(view, "fox").strike
        assert not any(style_of(view, sign).strike for sign in "▏✗○↻")
        assert view.fates == {*Status} - {Status.PENDING, Status.BONUS}
        assert view.get_selection(Selection(None, None)) == ("The quick red", "\n")
        assert view.get_selection(Selection(Offset(5, 0), Offset(29, 0))) == ("quick r", "\n")
        assert view.place_at(0, 3) == Place(1, 0) and view.place_at(0, 11) == view.place_at(0, 15) == Place(1, 1)
        view.point(Place(1, 1))
        assert "brown" in "".join(s.text for s in view.render_line(0) if s.style and s.style.reverse)
        feed(view, [Token(5, Status.BONUS, 3)], [" fish"])
        assert painted(view)[0] == "The▏ quick ✗ brown↵ ○ fox ↻ red▏ fish"
        view.with_drafts = False
        assert painted(view)[0] == "The quick red fish"


async def test_of_a_long_refused_draft_the_first_tokens_are_struck_out_and_the_others_counted() -> None:
    view = TokenView()
    refused = [Token(1, Status.REJECTED, 1), *(Token(1, Status.UNVERIFIED, n) for n in range(2, 11))]
    async with HostApp(view, columns="-one").run_test(size=(60, 8)):
        view.with_drafts = True
        texts = ["The", *(f" no{n}" for n in range(10)), " red"]
        feed(view, [Token(1, Status.ACCEPTED, 0), *refused, Token(2, Status.RESAMPLED, 1)], texts)
        assert painted(view)[0] == "The ✗ no0 ○ no1 no2 (+7) ↻ red"
        assert style_of(view, "no0").strike and style_of(view, "no2").strike and not style_of(view, "+7").strike
        assert view.get_selection(Selection(None, None)) == ("The red", "\n")
        assert view.place_at(0, 21) == Place(0, 4)
        view.point(Place(0, 8))  # one of the counted
        assert "+7" in "".join(s.text for s in view.render_line(0) if s.style and s.style.reverse)
        begun(view, 2, Turn(1, "prompt 1", ((Status.REJECTED, " no"),) * 6 + ((Status.SAMPLED, " yes"),), ""))
        assert painted(view)[1] == " ✗ no no no (+3) yes"


async def test_words_are_found_through_seams_and_signs_and_the_marks_are_no_text() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(9, 12)) as pilot:
        for number, (word, fate) in enumerate(
            (("The en", Status.BONUS), ("coun", Status.BONUS), ("ter: en", Status.BONUS))
        ):
            feed(view, [Token(number, fate, number)], [word])
        feed(view, [Token(4, Status.REJECTED, 3), Token(5, Status.RESAMPLED, 3)], ["ough", "counter"])
        view.with_drafts = True
        await pilot.pause()
        assert [line.rstrip() for line in view.layout_text.lines] == [
            "The",
            "en▏coun▏",
            "ter:",
            "en▏✗ough",
            "↻counter",
        ]
        search = view.begin_search()
        search.look_for("encounter", 0)
        assert len(search.matches) == 1, "the second one has a refused draft in it, which is text of the screen"
        marked = [search.found_on(line) for line in range(view.line_count)]
        cells = "".join(
            view.layout_text.lines[line][first:behind]
            for line, spans in enumerate(marked)
            for first, behind, _ in spans
        )
        assert cells == "en▏coun▏ter"
        search.look_for("▏", 0)
        assert not len(search.matches)
        search.look_for("ough", 0)
        assert len(search.matches) == 1 and search.current_line == view.layout_text.line_of(
            view.layout_text.text.index("ough")
        )
        view.with_drafts = False
        assert len(view.search.matches) == 0 and view.search.matches.part_count == 4  # type: ignore[union-attr]


async def test_the_cursor_walks_over_lines_of_marks_and_each_cell_of_a_wide_text_leads_to_its_token() -> None:
    view = TokenView()
    words = ["你好", "世界", "，再", "见", "吧"]
    async with HostApp(view, columns="-one").run_test(size=(8, 30)) as pilot:
        for n, word in enumerate(words * 3):
            fates = (Status.ACCEPTED, Status.REJECTED, Status.UNVERIFIED, Status.RESAMPLED)
            feed(view, [Token(n, fate, n) for fate in fates], [word, "不\n", "是", word])
        view.with_drafts = True
        await pilot.pause()
        assert view.get_selection(Selection(None, None)) == ("".join(word * 2 for word in words * 3), "\n")
        for width in (8, 4, 3, 2):
            await pilot.resize_terminal(width, 30)
            await pilot.pause()
            seen, place = [], Place(0, 0)
            while not seen or place != seen[-1]:
                seen.append(place)
                place = view.step_line(place, 1)
            assert seen == sorted(set(seen)) and seen[-1].row >= 13, width
            while (before := view.step_line(place, -1)) != place:
                assert before < place
                place = before
            assert place.row <= 1, width


def test_a_text_of_many_rounds_has_a_seam_before_each_and_plain_ones_none() -> None:
    run = [Token(0, Status.SAMPLED, 0), *(Token(n, Status.BONUS, n) for n in range(1, 6))]
    for seams, count in ((True, 5), (False, 0)):
        view = TokenView(seams=seams)
        for token in run:
            view.run_log.add(RoundVerified(0, (token,), None, 0.0, 0.0, 0.0), (" w",))
        view.with_drafts = True
        assert view.layout_text.text.count("▏") == count
        turn = Turn(1, "p", tuple((token.status, " w") for token in run), "")
        transcript = Transcript(seams)
        transcript.begin(1, "p")
        transcript.ended(turn)
        transcript.begin(2, "q")
        assert "".join(text for _, text in transcript.pieces(True, 80)).count("▏") == count
        assert "▏" not in "".join(text for _, text in transcript.pieces(False, 80))


def turn(number: int, *words: str) -> Turn:
    pieces = tuple((Status.ACCEPTED, word) for word in words)
    return Turn(number, f"prompt {number}", pieces, f"{number}.0 tok/s · 1.50×")


def begun(view: TokenView, number: int, *earlier: Turn) -> None:
    for one in earlier:
        view.transcript.begin(one.number, one.prompt)
        view.transcript.ended(one)
    view.transcript.begin(number, f"prompt {number}")
    view.run_log.clear()
    view.clear()


async def test_earlier_turns_stand_above_the_present_one_with_their_prompts_colours_and_figures() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(60, 12)):
        begun(view, 2, turn(1, "Blue", " light.", "\n"))
        feed(view, tokens(1), ["At night"])
        lines = painted(view)
        assert lines[:2] == ["› prompt 1", "Blue light."]
        assert lines[2].startswith("── turn 1 · 1.0 tok/s · 1.50× ───") and len(lines[2]) == view.size.width - 1
        assert lines[3:5] == ["› prompt 2", "At night"]
        assert style_of(view, "Blue") == token_styles(view)[Status.ACCEPTED]
        assert style_of(view, "At night") == token_styles(view)[Status.SAMPLED]
        assert view.place_at(1, 0) is None  # the inspector knows the present turn only
        assert view.place_at(4, 0) == Place(0, 0)
        assert view.step_line(Place(0, 0), -1) == Place(0, 0)
        search = view.begin_search()
        search.look_for("light", 0)
        assert search.current_line == 1
        assert view.get_selection(Selection(Offset(0, 1), Offset(4, 1))) == ("Blue", "\n")


async def test_the_figures_of_an_earlier_turn_stay_in_one_line_the_first_ones_where_it_is_narrow() -> None:
    view = TokenView()
    figures = "9.0 tok/s · clock disturbed 0.9–2.0× · α 0.34 · τ 1.22"
    async with HostApp(view, columns="-one").run_test(size=(81, 12)) as pilot:
        words = tuple((Status.ACCEPTED, f"{n}\n") for n in range(20))
        begun(view, 7, *(Turn(number, "prompt", words, figures) for number in range(1, 7)))
        feed(view, tokens(30), [f"new {n}\n" for n in range(30)])
        view.scroll_to(y=view.line_count - 20, animate=False)
        await pilot.pause()
        top = painted(view)[0]
        assert top.startswith("new")
        for width, told in ((41, "9.0 tok/s · α 0.34 · τ 1.22"), (25, "9.0 tok/s"), (81, figures)):
            await pilot.resize_terminal(width, 12)
            await pilot.pause()
            lines = [view.line_text(line) for line in range(view.line_count)]
            rules = [line.rstrip("─ ") for line in lines if line.startswith("──")]
            assert rules == [f"── turn {number} · {told}" for number in range(1, 7)]
            assert painted(view)[0] == top


async def test_a_reader_of_earlier_turns_is_left_alone_while_the_answer_grows_and_through_resizes() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(60, 6)) as pilot:
        begun(view, 2, turn(1, *(f"line {i}\n" for i in range(40))))
        fill(view, 3)
        await pilot.pause()
        assert painted(view)[-1] == "line 2"
        view.scroll_to(y=5, animate=False)
        fill(view, 20, first=3)
        await pilot.pause()
        assert painted(view)[0] == "line 4"
        await pilot.resize_terminal(30, 6)
        await pilot.pause()
        assert painted(view)[0] == "line 4"


async def test_a_run_of_the_past_stands_alone_and_the_conversation_comes_back() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(60, 12)):
        begun(view, 2, turn(1, "one"))
        view.transcript.ended(turn(2, "two"))
        begun(view, 0)
        feed(view, tokens(1), ["past"])
        assert painted(view)[0] == "past" and view.line_count == 1
        begun(view, 3)
        assert [line for line in painted(view) if line[:1] == "›"] == ["› prompt 1", "› prompt 2", "› prompt 3"]


@pytest.mark.parametrize(("number", "kept"), [(3, [1, 2]), (2, [1]), (1, [])], ids=["next", "again", "new chat"])
def test_a_turn_keeps_those_before_it_and_no_other(number: int, kept: list[int]) -> None:
    transcript = Transcript()
    for one in (turn(1, "a"), turn(2, "b")):
        transcript.begin(one.number, one.prompt)
        transcript.ended(one)
    transcript.begin(number, "next")
    assert [one.number for one in transcript.turns] == kept
    assert transcript.is_shown == bool(kept)


def test_the_oldest_turns_go_first_and_it_is_said() -> None:
    transcript = Transcript()
    for number in range(1, MOST_TURNS + 4):
        transcript.begin(number, "p")
        transcript.ended(turn(number, "a"))
    transcript.begin(MOST_TURNS + 4, "p")
    assert len(transcript.turns) == MOST_TURNS
    first = next(transcript.pieces(False, 80))[1]
    assert first == f"turns 1–3 are gone: at most {MOST_TURNS} turns and 16,000 tokens are kept here\n"
    transcript.ended(turn(MOST_TURNS + 4, *["w"] * MOST_TOKENS))
    transcript.begin(MOST_TURNS + 5, "p")
    assert [one.number for one in transcript.turns] == [MOST_TURNS + 4]


async def test_a_hostile_prompt_obeys_nobody_and_a_long_one_loses_its_end() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(60, 12)):
        begun(view, 2, Turn(1, "\x1b[31m\n[/x] " + "p" * 5000, ((Status.SAMPLED, "a"),), "1 tok/s"))
        assert painted(view)[0].startswith("› ␛[31m [/x]")
        assert view.line_count < 12
