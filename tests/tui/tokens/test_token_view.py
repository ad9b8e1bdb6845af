"""The coloured text: what is painted, where it is scrolled to, and what a cell leads back to."""

from __future__ import annotations

from rich.style import Style
from widget_data import HostApp, painted, strips_of

from specdec_tui.decoding.records import Status, Token
from specdec_tui.tui.lines.layout import expand_tabs
from specdec_tui.tui.tokens.style import token_styles
from specdec_tui.tui.tokens.token_view import TokenView


def tokens(count: int, status: Status = Status.SAMPLED, first: int = 0) -> list[Token]:
    return [Token(i, status, i) for i in range(first, first + count)]


def fill(view: TokenView, lines: int, first: int = 0) -> None:
    view.feed(tokens(lines, first=first), [f"line {first + i}\n" for i in range(lines)])


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
        view.feed(
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
        view.feed([], [], tokens(2, Status.PENDING), ["foo", " bar"])
        assert painted(view)[0] == "foo bar"
        view.feed(tokens(1, Status.RESAMPLED), ["baz"])
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
        view.feed(tokens(400), [f" word{i}" for i in range(400)])
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
        view.feed(tokens(2), ["世界", " b"], tokens(1, Status.PENDING, 2), [" c"])
        found = [view.token_at(0, column) for column in (0, 3, 5, 7)]
        assert [token.id if token else None for token in found] == [0, 0, 1, 2]
        assert view.token_at(0, 30) is None


async def test_an_emoji_made_of_several_tokens_is_drawn_in_one_piece() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        view.feed([Token(0, Status.ACCEPTED, 0), Token(1, Status.BONUS, 1)], ["a👨\u200d", "👩 b"])
        strip = view.render_line(0)
        assert [s.text for s in strip][:2] == ["a👨\u200d👩", " b"]
        assert strip.cell_length == view.size.width


async def test_tabs_reach_tab_stops_of_the_line_across_tokens() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)):
        view.feed([Token(0, Status.ACCEPTED, 0), Token(1, Status.BONUS, 1)], ["if x:\n\t", "a\tb"])
        assert painted(view)[:2] == ["if x:", "    a   b"]


async def test_selected_text_comes_without_the_breaks_of_the_wrapping() -> None:
    from textual.geometry import Offset
    from textual.selection import Selection

    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(24, 8)):
        text = "the quick brown fox jumps over\n\tthe lazy dog"
        view.feed(tokens(1), [text])
        assert len(view.layout_text.lines) == 3
        assert view.get_selection(Selection(None, None)) == (text, "\n")
        assert view.get_selection(Selection(Offset(4, 0), Offset(5, 1)))[0] == "quick brown fox jumps"  # type: ignore[index]


async def test_every_line_of_the_layout_can_be_painted_at_any_width() -> None:
    view = TokenView()
    async with HostApp(view, columns="-one").run_test(size=(40, 8)) as pilot:
        view.feed(tokens(300), [f" w{i}" if i % 9 else "\n" for i in range(300)])
        for width in (1, 2, 3, 7, 200):
            await pilot.resize_terminal(width, 8)
            await pilot.pause()
            drawn = "".join("".join(s.text for s in view.line_segments(i)) for i in range(view.line_count))
            assert drawn == "".join(map(expand_tabs, view.layout_text.lines))
