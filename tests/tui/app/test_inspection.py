"""Where the inspector stands, without an app: one pane is inspected at a time, and the panel comes and goes with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from scripted_engine import WORDS, ScriptedEngine

from specdec_tui.decoding.records import Origin, PrefillDone, RoundVerified, RunStarted, Status, Step, Token
from specdec_tui.settings import Settings
from specdec_tui.tui.app.inspection import Inspection
from specdec_tui.tui.figures.words import PaneState
from specdec_tui.tui.tokens.run_log import Place, RunLog


class Pane:
    """As much of a pane as inspecting asks for."""

    def __init__(self, strategy: str, tokens: int, words: Sequence[str] = WORDS) -> None:
        self.strategy, self.inspecting, self.cursor = strategy, False, None
        self.state = PaneState.RUNNING if tokens else PaneState.IDLE
        self.run_log = RunLog()
        settings = Settings(max_new_tokens=max(1, tokens), strategies=("target",))
        for event in ScriptedEngine(words=words).run("why", settings, lambda: False) if tokens else ():
            if isinstance(event, Step) and isinstance(event.record, PrefillDone | RoundVerified):
                self.run_log.add(event.record, event.texts)

    def inspect(self, place: Place | None = None) -> None:
        self.inspecting, self.cursor = True, place or self.run_log.last()

    def close_inspector(self) -> None:
        self.inspecting, self.cursor = False, None


class Panel:
    """As much of the panel."""

    is_mounted, removed = True, False

    def __init__(self, place: object, keys: Sequence[str]) -> None:
        self.shown: list[str] = []
        self.keys = keys

    def show(self, look: object, name: str) -> None:
        self.shown.append(name)

    def show_difference(self, ours: Any, theirs: Any) -> None:
        self.shown.append(f"{ours.name} {theirs.name} {ours.look.token.position} {theirs.look.token.id}")

    def remove(self) -> None:
        self.removed = True

    def stand(self) -> None: ...

    def call_after_refresh(self, call: object) -> None: ...


class Screen:
    def __init__(self, *panes: Pane) -> None:
        self.all_panes: Any = panes
        self.shown_panes: Any = panes
        self.run_settings = Settings()
        self.current_pane: Any = panes[0]
        self.focused: Any = None
        self.said: list[str] = []
        self.panels: list[Any] = []

    def say(self, text: str, severity: str = "information", timeout: float = 5) -> None:
        self.said.append(text)

    room_for_panel: Any = None

    def go_into(self, pane: Any) -> None:
        self.focused = pane

    def leave_panes(self) -> None:
        self.focused = None

    def put_up(self, panel: Any) -> None:
        self.panels.append(panel)


@pytest.fixture(autouse=True)
def plain_panel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specdec_tui.tui.inspector.panel.Inspector", Panel)


def test_before_any_run_there_is_nothing_to_inspect() -> None:
    screen = Screen(Pane("target", 0))
    Inspection(screen).toggle()
    assert "Nothing to inspect yet" in screen.said[0] and screen.focused is None


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (PaneState.WAITING, "Nothing to inspect yet: lookup has not begun"),
        (PaneState.PREFILL, "Nothing to inspect yet: lookup has no token so far"),
        (PaneState.ENDED, "Nothing to inspect: lookup wrote no token"),
    ],
)
def test_of_a_pane_without_tokens_in_a_run_it_is_said_how_far_it_is(state: PaneState, words: str) -> None:
    pane = Pane("lookup", 0)
    pane.state = state
    screen = Screen(pane)
    Inspection(screen).toggle()
    assert screen.said == [words] and screen.focused is None


def test_the_panel_comes_with_the_first_pane_and_goes_with_the_last() -> None:
    one, other = Pane("target", 9), Pane("lookup", 9)
    screen = Screen(one, other)
    inspection = Inspection(screen)
    inspection.toggle()
    inspection.pointed(screen.current_pane)
    assert one.inspecting and screen.focused is one and len(screen.panels) == 1
    other.inspect()
    inspection.pointed(screen.all_panes[1])
    assert not one.inspecting and screen.panels[0].shown == ["target", "lookup"] and len(screen.panels) == 1
    assert inspection.close() and not other.inspecting
    inspection.pointed(screen.all_panes[1])
    assert inspection.panel is None and screen.panels[0].removed and screen.focused is None
    assert not inspection.close()


def test_another_pane_is_inspected_at_the_same_place_of_the_text() -> None:
    one, other, empty = Pane("target", 9), Pane("lookup", 9), Pane("ngram", 0)
    inspection = Inspection(Screen(one, other, empty))
    one.inspect(one.run_log.find(4))
    for pane in (empty, one):  # nothing to see there; nothing to do
        inspection.move_to(pane)  # type: ignore[arg-type]
        assert not other.inspecting and one.inspecting
    inspection.move_to(other)  # type: ignore[arg-type]
    assert other.cursor is not None and other.run_log.token(other.cursor).position == 4


def test_a_page_is_turned_only_where_there_is_a_panel() -> None:
    inspection = Inspection(Screen(Pane("target", 0)))
    inspection.turn(1)
    turned: list[int] = []
    inspection.panel = SimpleNamespace(
        size=SimpleNamespace(height=10), scroll_relative=lambda y, animate: turned.append(y)
    )  # type: ignore[assignment]
    inspection.turn(-1)
    assert turned == [-9]


def with_another_token(pane: Pane, position: int, id: int) -> Pane:
    """The same text, but for one token."""
    place = pane.run_log.find(position)
    assert place is not None
    row = pane.run_log.rows[place.row]
    record = row.record
    token = pane.run_log.token(place)
    if isinstance(record, PrefillDone):
        record = replace(record, token=replace(token, id=id))
    else:
        assert isinstance(record, RoundVerified)
        record = replace(record, emitted=replace(token, id=id))
    pane.run_log.rows[place.row] = replace(row, record=record)
    return pane


def test_the_first_difference_is_to_the_targets_pane_and_else_to_the_next_with_text() -> None:
    one, empty, other = Pane("lookup", 9), Pane("ngram", 0), with_another_token(Pane("speculative", 9), 3, 77)
    target = with_another_token(Pane("target", 9), 5, 88)
    for panes, told in (((one, empty, other), "lookup speculative 3 77"), ((target, one, other), "lookup target 5 88")):
        screen = Screen(*panes)
        inspection = Inspection(screen)
        one.inspect()
        inspection.go_to_difference(one)  # type: ignore[arg-type]
        inspection.pointed(one)  # type: ignore[arg-type]
        assert screen.panels[0].shown == [told]
        assert one.cursor == one.run_log.find(int(told.split()[2]))
        inspection.pointed(one)  # type: ignore[arg-type]  # the log grew
        one.cursor = one.run_log.find(1)
        inspection.pointed(one)  # type: ignore[arg-type]
        one.cursor = one.run_log.find(int(told.split()[2]))
        inspection.pointed(one)  # type: ignore[arg-type]
        assert screen.panels[0].shown == [told, told, "lookup", "lookup"], "back there it is a token as others"
        one.close_inspector()


def test_a_what_if_over_another_form_of_the_weights_is_compared_with_its_run() -> None:
    target, parent, child = Pane("target", 9), with_another_token(Pane("lookup", 9), 5, 88), Pane("lookup~1", 9)
    for changes, told in (((("weights", "expanded"),), "lookup~1 lookup 5 88"), ((("gamma", "1"),), "equal")):
        child.run_log.origin = Origin("lookup", 0, None, changes)
        screen = Screen(target, parent, child)
        inspection = Inspection(screen)
        child.inspect()
        inspection.go_to_difference(child)  # type: ignore[arg-type]
        inspection.pointed(child)  # type: ignore[arg-type]
        assert told in [*screen.panels[0].shown, *screen.said][-1]
        child.close_inspector()


def test_equal_texts_are_said_to_be_so_and_the_cursor_stays() -> None:
    one, same, longer, alien = Pane("target", 9), Pane("lookup", 9), Pane("ngram", 12), Pane("drafter", 9)
    alien.run_log.own_tokens = True
    for panes, words in (
        ((one, same), "equal: the same 9 tokens"),
        ((one, longer), "the same in all 9 tokens that both have"),
        ((one,), "no other pane has text"),
        ((one, alien), "no other pane has text"),
        ((alien, one), "its tokens are those of another tokenizer"),
    ):
        screen = Screen(*panes)
        panes[0].inspect(panes[0].run_log.find(4))
        Inspection(screen).go_to_difference(panes[0])  # type: ignore[arg-type]
        assert words in screen.said[0] and panes[0].cursor == panes[0].run_log.find(4)


def test_a_what_if_parts_from_its_run_at_the_token_that_it_was_given() -> None:
    parent, child = Pane("target", 9), Pane("target~1", 0)
    child.run_log.start(RunStarted("target~1", 3, 0, 9, origin=Origin("target", 2, 7)))
    child.run_log.add(PrefillDone(Token(5, Status.SAMPLED, 3), 0.1), ("a",))
    for pane, there in ((child, child.run_log.last()), (parent, parent.run_log.find(2))):
        screen = Screen(parent, child) if pane is child else Screen(child, parent)
        pane.inspect()
        Inspection(screen).go_to_difference(pane)  # type: ignore[arg-type]
        assert "part at token 3: the one that the what-if was given" in screen.said[0]
        assert pane.cursor == there


def test_texts_that_part_in_what_a_what_if_was_given_are_told_of_that_token_and_no_later_one() -> None:
    target = with_another_token(Pane("target", 9), 1, 88)  # differs from the run, long before what-ifs of it begin
    run = Pane("speculative", 9)
    first, second = Pane("speculative~1", 0), Pane("speculative~2", 0)
    for child, origin in (
        (first, Origin("speculative", 4, None, (("gamma", "2"),))),
        (second, Origin("speculative~1", 5, 7)),
    ):
        child.run_log.start(RunStarted("speculative", 3, 2, 9, origin=origin))
        own = origin.given
        child.run_log.given = (1000, 1001, 1002, 1003, 1004, 7)[:own]
        child.run_log.add(PrefillDone(Token(1000 + own, Status.SAMPLED, own), 0.1), ("a",))
    for pane, other, words in (
        (second, target, "part at token 2, before speculative~2 begins"),
        (first, target, "part at token 2, before speculative~1 begins"),
        (target, first, "part at token 2, before speculative~1 begins"),
        (second, run, "part at token 6: the one that the what-if was given"),
        (first, run, "the same in all 5 tokens that both have"),
    ):
        screen = Screen(pane, other)
        pane.inspect()
        Inspection(screen).go_to_difference(pane)  # type: ignore[arg-type]
        assert words in screen.said[0]
    assert target.cursor == target.run_log.find(1), "the pane that wrote it marks it"


def test_the_frame_names_the_keys_of_the_table() -> None:
    screen = Screen(Pane("target", 9))
    inspection = Inspection(screen)
    inspection.toggle()
    inspection.pointed(screen.current_pane)
    assert {"n N rejection", "[ ] round", "d difference", "esc closes"} <= set(screen.panels[0].keys)
