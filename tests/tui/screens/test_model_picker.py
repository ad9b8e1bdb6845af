from __future__ import annotations

from rich.cells import cell_len
from shell import toasts, until
from textual.app import App
from textual.widgets import Button, Input, OptionList, Select

from specdec_tui.backends.presets import PRESETS
from specdec_tui.settings import ModelChoice
from specdec_tui.tui.screens.model_picker import Listed, ModelPicker

MODELS = [Listed("org/big[/x]\x1b[2J", "6.4 GB"), Listed("org/small", "0.5 GB")]


class Host(App[None]):
    answer: object = "nothing yet"

    def show(
        self, choice: ModelChoice, models: list[Listed] | Exception = MODELS, loaded: ModelChoice | None = None
    ) -> ModelPicker:
        def listed() -> list[Listed]:
            if isinstance(models, Exception):
                raise models
            return models

        picker = ModelPicker(choice, loaded, lambda: [Listed("demo", "[b]tiny[/b]"), Listed("gpt2", "two")], listed)
        self.push_screen(picker, lambda answer: setattr(self, "answer", answer))
        return picker

    @property
    def rows(self) -> list[str]:
        return [str(option.prompt) for option_list in self.screen.query(OptionList) for option in option_list.options]

    def toasts(self) -> list[str]:
        return toasts(self)  # type: ignore[arg-type]


async def test_presets_and_local_models_are_listed_as_text() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice())
        await until(pilot, lambda: any("org/small" in row for row in app.rows))
        assert any("[b]tiny[/b]" in row for row in app.rows)
        assert any("org/big[/x]␛[2J" in row for row in app.rows)


async def test_choosing_a_preset_and_load_answers_with_it() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice(target="old/one", quantize="int8", device="cpu"))
        await until(pilot, lambda: any("org/small" in row for row in app.rows))
        app.screen.query_one(OptionList).focus()
        await pilot.press("down", "enter")
        assert isinstance(app.focused, Button)
        await pilot.press("enter")
        assert app.answer == ModelChoice(preset="gpt2", device="cpu")


async def test_local_models_fill_target_then_drafter() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice())
        await until(pilot, lambda: any("org/small" in row for row in app.rows))
        await pilot.press("end", "up", "enter", "down", "enter", "ctrl+l")
        assert app.answer == ModelChoice(target=MODELS[0].name, drafter="org/small")


async def test_damaged_models_are_reached_by_keys_and_picking_one_says_why() -> None:
    bad = [Listed("org/bad", f"reason {number}", damaged=True) for number in range(60)]  # names may be alike, too
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice(), [*MODELS, *bad])
        await until(pilot, lambda: any("reason 59" in row for row in app.rows))
        await pilot.press("end", "enter")
        await until(pilot, lambda: any("org/bad: reason 59" in toast for toast in app.toasts()))
        assert app.screen.query_one("#target", Input).value == ""
        await pilot.press("ctrl+l")
        assert app.answer == ModelChoice()


async def test_any_id_and_way_of_loading_can_be_typed() -> None:
    app = Host()
    async with app.run_test() as pilot:
        screen = app.show(ModelChoice())
        await pilot.pause()
        screen.query_one("#target", Input).value = "./my-folder"
        screen.query_one("#drafter", Input).value = "none"
        screen.query_one("#device", Input).value = "cuda:1"
        screen.query_one("#dtype", Select).value = "bfloat16"
        screen.query_one("#target_quantize", Select).value = "int4"
        screen.query_one("#target", Input).focus()
        await pilot.press("enter")
        assert app.answer == ModelChoice(
            target="./my-folder", drafter="none", device="cuda:1", dtype="bfloat16", target_quantize="int4"
        )


async def test_a_bad_device_is_told_and_the_screen_stays() -> None:
    app = Host()
    async with app.run_test() as pilot:
        screen = app.show(ModelChoice())
        await pilot.pause()
        screen.query_one("#device", Input).value = "tpu[/x]"
        await pilot.press("ctrl+l")
        assert app.screen is screen
        assert any("tpu[/x]" in toast for toast in app.toasts())


async def test_escape_answers_nothing() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice())
        await pilot.press("escape")
        assert app.answer is None


async def test_an_unreadable_model_cache_leaves_the_presets() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice(), RuntimeError("broken cache"))
        await until(pilot, lambda: any("no models" in row for row in app.rows))
        assert any("demo" in row for row in app.rows)


async def test_enter_loads_the_model_that_was_named_and_keeps_its_path() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice(target="/a/folder"), loaded=ModelChoice())
        await pilot.pause()
        await pilot.press("enter")
        assert app.answer == ModelChoice(target="/a/folder")


async def test_enter_loads_a_drafter_that_was_named() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice(drafter="org/small"), loaded=ModelChoice())
        await pilot.pause()
        await pilot.press("enter")
        assert app.answer == ModelChoice(drafter="org/small")


async def test_the_tick_stands_at_what_is_loaded() -> None:
    app = Host()
    async with app.run_test() as pilot:
        app.show(ModelChoice(target="/another"), loaded=ModelChoice(target="/a/folder", drafter="org/small"))
        await until(pilot, lambda: any("org/small" in row for row in app.rows))
        assert [row.split()[1] for row in app.rows if row.startswith("✓")] == ["org/small"]
        app.pop_screen()
        app.show(ModelChoice(), loaded=ModelChoice(preset="gpt2"))
        await until(pilot, lambda: any("org/small" in row for row in app.rows))
        assert [row.split()[1] for row in app.rows if row.startswith("✓")] == ["gpt2"]
        app.pop_screen()
        app.show(ModelChoice(preset="gpt2"))  # a kept run was opened without models, or no load has ended well
        await until(pilot, lambda: any("org/small" in row for row in app.rows))
        assert not any(row.startswith("✓") for row in app.rows)


def test_at_80_columns_what_is_told_of_a_preset_is_not_cut() -> None:
    """It ended in `(gated: accept its l…`. There is room for 70 cells in a row of the list."""
    assert all(cell_len(f"✓ {preset.name}  {preset.help}") <= 70 for preset in PRESETS.values())
