from __future__ import annotations

import pytest
from shell import until
from textual import events
from textual.app import App, ComposeResult

from specdec_tui.doors.characters import visible
from specdec_tui.tui.prompt.box import PromptBox


class Host(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.submitted: list[str] = []

    def compose(self) -> ComposeResult:
        yield PromptBox()

    def on_mount(self) -> None:
        self.query_one(PromptBox).focus()

    def on_prompt_box_submitted(self, message: PromptBox.Submitted) -> None:
        self.submitted.append(message.text)
        self.query_one(PromptBox).accept(message.text)


async def test_enter_submits_and_ctrl_j_begins_a_line() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "ctrl+j", "b", "enter")
        assert app.submitted == ["a\nb"]
        assert app.query_one(PromptBox).text == ""


async def test_keys_in_quick_succession_keep_their_order_around_enter() -> None:
    app = Host()
    async with app.run_test() as pilot:
        for key in ("g", "o", "enter", "m", "o"):
            app.post_message(events.Key(key, key if len(key) == 1 else "\r"))
        await until(pilot, lambda: app.submitted and app.query_one(PromptBox).text == "mo")
        assert app.submitted == ["go"]


async def test_a_paste_keeps_all_lines_and_does_not_submit() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.post_message(events.Paste("one\ntwo\n\nthree"))
        await pilot.pause()
        assert app.query_one(PromptBox).text == "one\ntwo\n\nthree"
        assert app.submitted == []


OBEYED = [
    "\u202e",
    "\u2066",
    "\u200f",
    "\u061c",
    "\u2028",
    "\u2029",
    "\x85",
    "\v",
    "\f",
    "\x1c",
    "\x1e",
    "\x1b",
    "\x9b",
]


@pytest.mark.parametrize("obeyed", OBEYED, ids=lambda c: f"{ord(c):04x}")
async def test_what_a_terminal_obeys_is_a_symbol_in_its_line_and_is_sent_as_it_was_pasted(obeyed: str) -> None:
    app = Host()
    async with app.run_test() as pilot:
        box = app.query_one(PromptBox)
        app.post_message(events.Paste(f"abc{obeyed}def\nnext{obeyed}"))
        await pilot.press("up", "home", *["right"] * 5)
        drawn = [box.render_line(y).text for y in range(box.size.height)]
        (line,) = [line for line in drawn if "abc" in line]
        assert line.strip() == f"abc{visible(obeyed)}def" and not any(obeyed in each for each in drawn)
        assert "e" in [segment.text for segment in box.render_line(drawn.index(line))], "the cursor is elsewhere"
        await pilot.press("backspace", "ctrl+z", "enter")
        assert app.submitted == [f"abc{obeyed}def\nnext{obeyed}"]


@pytest.mark.parametrize("obeyed", OBEYED, ids=lambda c: f"{ord(c):04x}")
async def test_an_earlier_prompt_comes_back_exactly(obeyed: str) -> None:
    app = Host()
    async with app.run_test() as pilot:
        text = f"a{obeyed}\r\n{obeyed}b{obeyed}"
        app.post_message(events.Paste(text))
        await pilot.press("enter", "up")
        box = app.query_one(PromptBox)
        assert app.submitted == [text] and box.text == text and len(box.document.lines) == 2
        box.action_select_all()
        await pilot.press("ctrl+x")
        assert (box.text, app.clipboard) == ("", text)


async def test_up_and_down_walk_through_the_history_and_keep_what_was_unsent() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "enter", "b", "enter", "x")
        box = app.query_one(PromptBox)
        seen = []
        for key in ("up", "up", "up", "down", "down", "down"):
            await pilot.press(key)
            seen.append(box.text)
        assert seen == ["b", "a", "a", "b", "x", "x"]


async def test_inside_several_lines_up_and_down_move_the_cursor() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "enter", "b", "ctrl+j", "c", "up")
        box = app.query_one(PromptBox)
        assert box.text == "b\nc"
        assert box.cursor_location[0] == 0
        await pilot.press("up")
        assert box.text == "a"


async def test_a_long_wrapped_line_is_walked_through_before_the_history() -> None:
    app = Host()
    async with app.run_test(size=(30, 12)) as pilot:
        box = app.query_one(PromptBox)
        await pilot.press("a", "enter")
        box.show("word " * 20)
        await pilot.pause()
        await pilot.press("up")
        assert box.text.startswith("word")


async def test_the_same_prompt_twice_is_one_entry() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("a", "enter", "b", "enter", "b", "enter", "up", "up")
        assert app.query_one(PromptBox).text == "a"


async def test_escape_leaves_the_box() -> None:
    app = Host()
    async with app.run_test() as pilot:
        await pilot.press("escape", "q")
        assert app.focused is None
        assert app.query_one(PromptBox).text == ""


@pytest.mark.parametrize("key", ["slash", "plus", "minus", "v", "1"])
async def test_keys_of_the_panes_are_typed_in_the_box(key: str) -> None:
    app = Host()
    async with app.run_test() as pilot:
        box = app.query_one(PromptBox)
        assert box.check_consume_key(key, key if len(key) == 1 else None)
        await pilot.press(key)
        assert len(box.text) == 1


async def test_a_prompt_given_back_does_not_overwrite_what_was_typed_since() -> None:
    app = Host()
    async with app.run_test() as pilot:
        box = app.query_one(PromptBox)
        await pilot.press("n")
        box.give_back("old")
        assert box.text == "old\nn"
