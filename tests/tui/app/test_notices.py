"""What the app says covers nothing, at every size, and is in no picture."""

from __future__ import annotations

from pathlib import Path

import pytest
from scripted_engine import ScriptedEngine
from shell import ask, make_app, ready, toasts, until

from specdec_tui.backends.pair import LoadError
from specdec_tui.tui.app.app import SpecdecApp


def screen_text(app: SpecdecApp) -> str:
    return "\n".join(strip.text for strip in app.screen._compositor.render_strips())


def parts(app: SpecdecApp) -> dict[str, str]:
    """What must stay readable whatever is said."""
    return {
        "prompt box": str(app.prompt_box.region),
        "panes": str(app.grid.region),
        "legend": str(app.legend.region),
        "footer": str(app.footer.region),
    }


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 18)])
async def test_a_notice_covers_neither_prompt_nor_legend_nor_settings_nor_what_has_just_changed(
    size: tuple[int, int],
) -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=size, notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.runs.running)
        before = parts(app)
        await pilot.press("escape", "plus", "4")
        await until(pilot, lambda: "ngram off from the next run; 4 brings it back" in screen_text(app))
        text = screen_text(app)
        assert "γ 5" in text and "Ask something" in text
        assert parts(app) == before  # nothing moved
        assert not app.screen.query("Toast")
        engine.step(10_000)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (60, 18)])
async def test_why_no_models_could_be_loaded_is_read_whole_until_the_next_load(size: tuple[int, int]) -> None:
    reason = "not in the local cache: " + " ".join(f"word{number}" for number in range(25)) + " end"
    engine = ScriptedEngine(load_error=LoadError(reason))
    app = make_app(engine)
    async with app.run_test(size=size, notifications=True) as pilot:
        await until(pilot, lambda: app.header.state == "failed")
        await until(pilot, lambda: "word24 end" in " ".join(screen_text(app).split()))
        assert app.notices.standing[0].until == float("inf")
        assert "no models: m loads models" in screen_text(app)
        app.front.load(app.choice)
        await ready(pilot)
        assert "word24" not in screen_text(app) and "Ask something" in screen_text(app)


async def test_over_a_dialog_it_is_a_toast_that_goes_with_the_dialog() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("f1")
        app.say("said meanwhile")
        await until(pilot, lambda: app.screen.query("Toast"))
        await pilot.pause()
        assert app.screen.query_one("Toast").region.bottom <= min(app.prompt_box.region.y, app.legend.region.y)
        await pilot.press("escape")
        await until(pilot, lambda: not app.dialog_is_open)
        await pilot.pause()
        assert not app.screen.query("Toast") and "said meanwhile" in screen_text(app)


async def test_a_picture_shows_nothing_of_what_was_said(tmp_path: Path) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.recordings.trace is not None)
        for name in ("one.json", "two.csv"):
            app.action_export(f"{name.split('.')[1]} {tmp_path / name}")
            await until(pilot, lambda name=name: any(name in text for text in toasts(app)), name)
        await until(pilot, lambda: "Exported" in screen_text(app))
        app.action_export(f"svg {tmp_path / 'three.svg'}")
        await until(pilot, (tmp_path / "three.svg").exists)
        picture = (tmp_path / "three.svg").read_text().replace("&#160;", " ")
        assert "Exported" not in picture and "why blue" in picture


async def test_escape_takes_a_notice_away_when_nothing_else_is_open() -> None:
    app = make_app()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        await pilot.press("escape", "R")
        await until(pilot, lambda: "Nothing has run yet" in screen_text(app))
        await pilot.press("escape")
        await until(pilot, lambda: "Nothing has run yet" not in screen_text(app))


async def test_a_notice_that_speaks_of_a_state_goes_when_the_state_ends() -> None:
    """It stood until the next one: "this one is still at work" after the end of the run, and of the race."""
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(120, 40), notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.runs.running)
        app.action_race()
        await until(pilot, lambda: "still at work" in screen_text(app))
        app.action_export()
        await until(pilot, lambda: "The run is still at work: export it" in screen_text(app))
        app.action_race()
        app.runs.submit("next", lambda text: None)
        await until(pilot, lambda: "the prompt runs after this one" in screen_text(app))
        app.runs.stop()
        await until(pilot, lambda: not app.runs.running)
        await pilot.pause()
        assert app.notices.standing == []
        assert "still at work" not in screen_text(app) and "after this one" not in screen_text(app)
        app.action_race_speed(1)
        await until(pilot, lambda: "No race is on" in screen_text(app))
        app.action_race("0.05")
        await until(pilot, lambda: "▶ 0.05×" in screen_text(app) and "No race is on" not in screen_text(app))


async def test_during_a_race_the_header_does_not_say_ready() -> None:
    app = make_app(max_new_tokens=200)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "why blue")
        await until(pilot, lambda: app.recordings.trace is not None)
        await pilot.press("escape", "R")
        assert app.header.state == "trace" and "race ▶ 1×" in str(app.run_line.render())
        app.action_race("100")
        await until(pilot, lambda: app.racing.race is not None and app.racing.race.over)
        assert app.header.state == "trace"
        await pilot.press("R")
        assert app.header.state == "ready"


async def test_a_waiting_prompt_and_the_one_at_work_are_both_on_the_screen() -> None:
    engine = ScriptedEngine(gated=True)
    app = make_app(engine)
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await ready(pilot)
        await ask(pilot, "the first")
        await until(pilot, lambda: app.runs.running)
        await ask(pilot, "the second")
        await pilot.press("escape", "escape")  # out of the prompt; the notice away
        await until(pilot, lambda: "the first  waiting  the second" in screen_text(app))
        engine.step(10_000)
