"""Where the inspector stands, without an app: one pane is inspected at a time, and the panel comes and goes with it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from scripted_engine import ScriptedEngine

from specdec_tui.decoding.records import PrefillDone, RoundVerified, Step
from specdec_tui.settings import Settings
from specdec_tui.tui.app.inspection import Inspection
from specdec_tui.tui.figures.words import PaneState
from specdec_tui.tui.tokens.run_log import Place, RunLog


class Pane:
    """As much of a pane as inspecting asks for."""

    def __init__(self, strategy: str, tokens: int) -> None:
        self.strategy, self.inspecting, self.cursor = strategy, False, None
        self.state = PaneState.RUNNING if tokens else PaneState.IDLE
        self.run_log = RunLog()
        settings = Settings(max_new_tokens=max(1, tokens), strategies=("target",))
        for event in ScriptedEngine().run("why", settings, lambda: False) if tokens else ():
            if isinstance(event, Step) and isinstance(event.record, PrefillDone | RoundVerified):
                self.run_log.add(event.record, event.texts)

    def inspect(self, place: Place | None = None) -> None:
        self.inspecting, self.cursor = True, place or self.run_log.last()

    def close_inspector(self) -> None:
        self.inspecting, self.cursor = False, None


class Panel:
    """As much of the panel."""

    is_mounted, removed = True, False

    def __init__(self, place: object) -> None:
        self.shown: list[str] = []

    def show(self, pane: Pane, name: str) -> None:
        self.shown.append(name)

    def remove(self) -> None:
        self.removed = True

    def stand(self) -> None: ...

    def call_after_refresh(self, call: object) -> None: ...


class Screen:
    def __init__(self, *panes: Pane) -> None:
        self.all_panes: Any = panes
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
    monkeypatch.setattr("specdec_tui.tui.app.inspection.Inspector", Panel)


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
