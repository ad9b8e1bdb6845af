"""What the widgets of the app wear: the styles they would get if all were reckoned again."""

from __future__ import annotations

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, until
from textual.app import App
from textual.color import Color
from textual.css.stylesheet import Stylesheet
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widget import Widget

from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.commands.dialog import Dialog


def worn(app: SpecdecApp) -> dict[DOMNode, dict[str, object]]:
    """All rules of each widget, and of the app's inks."""
    found = {
        widget: dict(widget.styles.base.get_rules()) for widget in app.screen.walk_children(Widget, with_self=True)
    }
    return found | {app: {name: style.partial_rich_style for name, style in app._component_styles.items()}}


@pytest.mark.parametrize("size", [(120, 40), (80, 8)])
async def test_a_start_gives_no_widget_styles_twice_and_they_are_those_of_all_at_once(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int]
) -> None:
    again: list[DOMNode] = []
    update_nodes = Stylesheet.update_nodes

    def noted(self: Stylesheet, nodes: list[DOMNode], animate: bool = False) -> None:
        nodes = list(nodes)
        again.extend(node for node in nodes if isinstance(node, App | Screen))
        update_nodes(self, nodes, animate)

    monkeypatch.setattr(Stylesheet, "update_nodes", noted)
    engine = ScriptedEngine()
    app = make_app(engine, theme="specdec-light")
    async with app.run_test(size=size) as pilot:
        await ready(pilot)
        await ask(pilot, "why")
        await until(pilot, lambda: engine.runs and not app.runs.running)
        assert not again
        before = worn(app)
        App.refresh_css(app, animate=False)
        assert worn(app) == before

        await pilot.press("escape", "f1", "escape")  # a dialog has come and gone
        app.preferences.change({"theme": "specdec-colour-blind"})
        await pilot.resize_terminal(size[0] + 100, size[1] + 20)
        await pilot.pause()
        again.clear()
        after = worn(app)
        assert after != before
        App.refresh_css(app, animate=False)
        assert worn(app) == after and again


async def test_what_becomes_of_the_app_behind_a_dialog_that_covers_all_is_seen_when_it_is_left(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SpecdecApp, "CSS", "Dialog { background: black; } .-odd Footer { background: red; }")
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        await ready(pilot)
        app.push_screen(Dialog())
        await until(pilot, lambda: isinstance(app.screen, Dialog))
        app.add_class("-odd")
        await pilot.press("escape")
        await until(pilot, lambda: app.footer.styles.background == Color.parse("red"), "red")
