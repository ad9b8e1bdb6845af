"""Whatever a terminal sends, keys stay what they are and nothing dies of it."""

from __future__ import annotations

import asyncio
from threading import Thread
from typing import Any

import pytest
from shell import make_app, ready, toasts, until
from textual import events
from textual.geometry import Size
from textual.message import Message

from specdec_tui.tui.terminal.flood import LARGEST, LONGEST_SEQUENCE, is_newer_focus, is_possible
from specdec_tui.tui.terminal.intake import Intake
from specdec_tui.tui.terminal.paste import PasteSafeParser


def messages(*reads: str) -> list[Message]:
    parser = PasteSafeParser()
    return [event for data in reads for event in parser.feed(data)]


class Numbered(Message):
    def __init__(self, number: int) -> None:
        self.number = number
        super().__init__()


def keys(*reads: str) -> list[str]:
    return [event.key for event in messages(*reads) if isinstance(event, events.Key)]


@pytest.mark.parametrize("begin", ["", "<", "?", " ", "<0;"])
@pytest.mark.parametrize("repeats", [16, 200, 4000])
@pytest.mark.parametrize("end", ["\x03", "u\x03", "\x1b[A\x03", "M\x03", "é\x03"])
def test_a_sequence_of_any_length_types_nothing_and_the_keys_behind_it_count(
    begin: str, repeats: int, end: str
) -> None:
    whole = f"\x1b[{begin}" + "1;" * repeats + end
    told = keys(whole)
    assert told[-1] == "ctrl+c" and len(told) <= 2, "digits would toggle strategies"
    third = len(whole) // 3
    assert keys(whole[:third], whole[third : 2 * third], whole[2 * third :]) == told


def test_a_sequence_that_another_key_breaks_off_types_nothing() -> None:
    assert keys("\x1b[1;2\x1b[A", "\x1b[12;\x11") == ["up", "ctrl+q"]


def test_the_longest_sequences_that_textual_knows_stay_whole() -> None:
    told = "\x1b[97:65;2:1;97:98:99:100:101u"
    assert len(told) <= LONGEST_SEQUENCE
    assert len(keys(told)) <= 1
    assert [type(one) for one in messages("\x1b[<35;1999;999M")] == [events.MouseMove]


@pytest.mark.parametrize("number", ["1114112", "999999999999", "55296"])
@pytest.mark.parametrize("form", ["\x1b[{}u", "\x1b[{};5u", "\x1b[97;1;{}u", "\x1b[97:{};2u"])
def test_a_key_of_no_character_is_none(number: str, form: str) -> None:
    assert keys(form.format(number), "x")[-1] == "x"


def test_moves_of_the_mouse_that_follow_each_other_are_one() -> None:
    moves = "".join(f"\x1b[<35;{column};7M" for column in range(1, 300))
    press = "\x1b[<0;299;7M"
    told = messages("\x1b[<35;1;7M", moves + press + moves)
    assert [type(one) for one in told] == [events.MouseMove] * 2 + [events.MouseDown, events.MouseMove]
    move = told[1]
    assert isinstance(move, events.MouseMove) and (move.x, move.delta_x) == (298, 298)


def test_a_screen_larger_than_any_is_not_believed() -> None:
    assert is_possible(events.Resize(Size(*LARGEST), Size(*LARGEST)))
    for size in ((LARGEST[0] + 1, 10), (10, LARGEST[1] + 1), (99999999, 9999999)):
        assert not is_possible(events.Resize(Size(*size), Size(*size)))
    assert is_possible(events.AppFocus())


@pytest.mark.parametrize(
    ("key", "told"), [("ctrl+q", ""), ("ctrl+c", "ctrl+c again quits"), ("ctrl+z", "No shell waits behind")]
)
async def test_behind_a_flood_of_keys_those_that_leave_act_at_once(key: str, told: str) -> None:
    """Twenty thousand bytes of noise held up ctrl+q for minutes."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        app.prompt_box.focus()
        leave = events.Key(key, None)
        assert not app.must_act_at_once(leave)  # it waits its turn behind what a person types ahead
        for _ in range(5000):
            app.post_message(events.Key("x", "x"))
            app._held.append(events.Key("x", "x"))
        assert app.must_act_at_once(leave) and not app.must_act_at_once(events.Key("x", "x"))
        app.act_at_once(key)
        assert not app._held and app.message_queue_size < 100
        if told:
            await until(pilot, lambda: any(told in text for text in toasts(app)))
        else:
            await until(pilot, lambda: app._exit)
    assert app.return_code == (None if told else 0)


async def test_what_is_dropped_leaves_nobody_waiting_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A box that had been told of a key found none, and the app ended in a traceback."""
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        app.prompt_box.focus()
        monkeypatch.setattr(app, "action_stop_or_quit", lambda: None)
        for _ in range(50):
            for pump in (app, app.screen, app.prompt_box):
                pump.post_message(events.Key("x", "x"))
            app.act_at_once("ctrl+c")
            await asyncio.sleep(0)
        await pilot.press("y")
        await until(pilot, lambda: app.prompt_box.text.endswith("y"))


async def until_all(taken: list[Any], count: int) -> None:
    """Until so many have been taken, and a moment longer: nothing more shall come."""
    async with asyncio.timeout(60):
        while len(taken) < count:
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)


async def test_of_a_flood_of_focus_reports_only_the_last_one_is_handed_on() -> None:
    """Each of them dressed the screen anew: a hundred held up ctrl+q for ten seconds."""
    taken: list[Message] = []
    intake = Intake(asyncio.get_running_loop(), taken.append, lambda: True, is_newer_focus)
    for message in messages("a" + "\x1b[I\x1b[O" * 500 + "b" + "\x1b[I", "\x1b[O\x1b[I"):
        intake.put(message)
    await until_all(taken, 4)
    assert [type(message) for message in taken] == [events.Key, events.AppBlur, events.Key, events.AppFocus]


async def test_what_is_read_is_handed_on_in_order_as_far_as_there_is_room() -> None:
    taken: list[int] = []
    room = 3
    loop = asyncio.get_running_loop()
    intake = Intake(loop, lambda message: taken.append(message.number), lambda: len(taken) < room, is_newer_focus)
    thread = Thread(target=lambda: [intake.put(Numbered(number)) for number in range(10)])
    thread.start()
    thread.join()
    await until_all(taken, 3)
    assert taken == [0, 1, 2] and len(intake) == 7
    intake.drop(lambda message: message.number % 2 == 1)
    room = 100
    await until_all(taken, 6)
    assert taken == [0, 1, 2, 4, 6, 8] and not len(intake)
    intake.put(Numbered(10))
    await until_all(taken, 7)
    assert taken[-1] == 10
