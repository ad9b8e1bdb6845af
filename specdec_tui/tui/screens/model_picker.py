"""Choosing a pair: presets, what is on this computer, any id or path, and how to load it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import DescendantFocus
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Button, Input, Label, OptionList, Select
from textual.widgets.option_list import Option

from specdec_tui.setting_kinds import Kind, Names, format_value
from specdec_tui.settings import FIELDS, MOST_DRAFTERS, PRESET_NAMES, ModelChoice, SettingError, flag_of, parse_value
from specdec_tui.tui.commands.dialog import Dialog
from specdec_tui.tui.commands.header import one_row, size

_HINTS = {
    "target": "hub id, folder or GGUF file",
    "drafter": "the same, or 'none'",
    "target-url": "http://host:port/v1, for a target on a server",
    "tokenizer": "of a target on a server, where its name is none",
}
_OF_A_SERVER = ("target_url", "tokenizer")
_ANOTHER = "another, to compare"
_AS_THE_PRESET = "as the preset says"


@dataclass(frozen=True, slots=True)
class Listed:
    """A model or preset in the list; one that is `damaged` cannot be chosen, and its detail says why."""

    name: str
    detail: str = ""
    damaged: bool = False


def models_on_this_computer() -> list[Listed]:
    """Causal models in the local hub cache, the damaged ones last. Slow: imports the hub's library."""
    from specdec_tui.backends.hub_cache import CachedModel, scan_cache

    return [
        Listed(model.name, size(model.size_bytes))
        if isinstance(model, CachedModel)
        else Listed(model.name, model.reason, damaged=True)
        for model in scan_cache()
    ]


def presets() -> list[Listed]:
    """The built-in pairs and what they are made of. Slow the first time, like the above."""
    from specdec_tui.backends.presets import PRESETS

    return [Listed(name, PRESETS[name].help) for name in PRESET_NAMES]


class ModelPicker(Dialog[ModelChoice]):
    """Dismisses with a valid choice, or None. Opens at `choice`; the tick is at what is `loaded`, None: nothing yet.

    With a model named in `choice` the focus is in its box, where enter loads.
    """

    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+l", "load", "Load")]

    class Found(Message):
        """The lists have been read, in a thread of their own."""

        def __init__(self, presets: Sequence[Listed], models: Sequence[Listed]) -> None:
            super().__init__()
            self.presets, self.models = presets, models

    def __init__(
        self,
        choice: ModelChoice,
        loaded: ModelChoice | None = None,
        list_presets: Callable[[], list[Listed]] = presets,
        list_models: Callable[[], list[Listed]] = models_on_this_computer,
    ) -> None:
        super().__init__()
        self._choice = choice
        self._loaded = loaded
        self._list_presets, self._list_models = list_presets, list_models
        self._preset = choice.preset
        self._fill_next = "target"
        self._presets: Sequence[Listed] = [Listed(name) for name in PRESET_NAMES]
        self._models: Sequence[Listed] | None = None

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="picker", can_focus=False) as box:
            box.border_title = "Models"
            box.border_subtitle = "enter picks · ctrl+l loads · escape closes"
            yield OptionList(id="picker-list", markup=False)
            yield self._row("target", "target", self._choice.target)
            for number, name in enumerate(self._choice.drafter or ("",)):
                yield self._drafter_row(number, name)
            for name in _OF_A_SERVER:
                yield self._row(name, flag_of(name), getattr(self._choice, name))
            yield self._row("device", "device", self._choice.device)
            for name in ("dtype", "weights", "quantize", "target_quantize", "drafter_quantize"):
                yield Horizontal(Label(flag_of(name)), self._select(name), classes="setting")
            with Horizontal(id="picker-buttons"):
                yield Button("Load", id="load", variant="primary", compact=True)
                yield Button("Cancel", id="cancel", compact=True)

    def _row(self, id: str, label: str, value: str) -> Horizontal:
        hint = _HINTS.get(label, _ANOTHER if label.startswith("drafter") else "")
        box = Input(value, placeholder=hint, id=id, compact=True)
        return Horizontal(Label(label), box, classes="setting")

    def _drafter_row(self, number: int, name: str = "") -> Horizontal:
        label = f"drafter {number + 1}" if number else "drafter"
        row = self._row(label.replace(" ", "-"), label, name)
        row.add_class("drafter-row")
        return row

    @property
    def _drafter_boxes(self) -> list[Input]:
        return [box for box in self.query(Input) if (box.id or "").startswith("drafter")]

    @on(Input.Changed)
    def _make_room(self) -> None:
        """Behind the last drafter there is room for another."""
        boxes = self._drafter_boxes
        if len(self.query(".drafter-row")) > len(boxes):  # one is on its way, its box not there yet
            return
        if boxes and boxes[-1].value.strip().lower() not in ("", "none") and len(boxes) < MOST_DRAFTERS:
            last = boxes[-1].parent
            assert isinstance(last, Widget)
            self.query_one("#picker").mount(self._drafter_row(len(boxes)), after=last)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        """A model that is picked goes into the box that a person was in last."""
        if isinstance(event.widget, Input) and event.widget.id not in ("device", *_OF_A_SERVER):
            self._fill_next = event.widget.id or ""

    def _select(self, name: str) -> Widget:
        kind: Kind = FIELDS[name].metadata["kind"]
        options = [(value or _AS_THE_PRESET, value) for value in kind.choices]
        return Select(options, value=getattr(self._choice, name), allow_blank=False, id=name, compact=True)

    def on_mount(self) -> None:
        self._fill_list()
        named = next((name for name in ("target", "drafter") if getattr(self._choice, name)), None)
        self.query_one(f"#{named}" if named else "#picker-list").focus()
        # Not a worker of Textual's: leaving the app would wait for it.
        threading.Thread(target=self._search, daemon=True).start()

    def _search(self) -> None:
        """Read both lists; a failure leaves the names that are known without reading."""
        found: list[Sequence[Listed]] = []
        for read, otherwise in ((self._list_presets, self._presets), (self._list_models, ())):
            try:
                found.append(read())
            except Exception as error:
                self.log.error(f"model list: {error!r}")
                found.append(otherwise)
        self.post_message(self.Found(*found))

    def on_model_picker_found(self, message: Found) -> None:
        self._presets, self._models = message.presets, message.models
        self._fill_list()

    def _fill_list(self) -> None:
        options = self.query_one("#picker-list", OptionList)
        kept = options.highlighted
        options.clear_options()
        options.add_option(_title("Presets"))
        options.add_options([self._option("preset", *numbered) for numbered in enumerate(self._presets)])
        options.add_option(_title("On this computer"))
        options.add_options([self._option("model", *numbered) for numbered in enumerate(self._models or ())])
        if not self._models:
            options.add_option(_title("  looking…" if self._models is None else "  no models in the hub cache"))
        options.highlighted = 1 + PRESET_NAMES.index(self._preset) if kept is None else kept

    def _is_loaded(self, kind: str, listed: Listed) -> bool:
        if self._loaded is None:
            return False
        named = {self._loaded.target, *self._loaded.drafter} - {""}
        return listed.name in named if kind == "model" else not named and listed.name == self._loaded.preset

    def _option(self, kind: str, number: int, listed: Listed) -> Option:
        mark = "✓ " if self._is_loaded(kind, listed) else "  "
        ink = "$text-muted" if listed.damaged else "bold"
        label = Content.assemble(mark, (one_row(listed.name), ink), "  ", (one_row(listed.detail), "$text-muted"))
        # Names are others' and may repeat, which ids must not.
        return Option(label, id=f"{kind}:{number}")

    @on(OptionList.OptionSelected)
    def _picked(self, event: OptionList.OptionSelected) -> None:
        kind, _, number = (event.option_id or "").partition(":")
        listed = (self._presets if kind == "preset" else self._models or ())[int(number)]
        name = listed.name
        if listed.damaged:  # not disabled: keys must reach those below the edge, to read them
            self.app.notify(one_row(f"{name}: {listed.detail}"), severity="warning", markup=False)
        elif kind == "preset":
            self._preset = name
            named = [self.query_one(f"#{name}", Input) for name in ("target", *_OF_A_SERVER)]
            for box in (*named, *self._drafter_boxes):
                box.value = ""
            for select in ("quantize", "target_quantize", "drafter_quantize"):
                self.query_one(f"#{select}", Select).value = ""
            self.query_one("#weights", Select).value = "auto"
            self._fill_list()
            self.query_one("#load").focus()
        else:
            self.query_one(f"#{self._fill_next}", Input).value = name
            self._fill_next = "drafter" if self._fill_next == "target" else "target"

    @on(Input.Submitted)
    @on(Button.Pressed, "#load")
    def action_load(self) -> None:
        """Close with the choice; a bad value gives a toast and the screen stays."""
        try:
            choice = ModelChoice(**self._values())
        except SettingError as error:
            self.app.notify(one_row(str(error)), severity="error", markup=False)
            return
        self.dismiss(choice)

    @on(Button.Pressed, "#cancel")
    def _cancelled(self) -> None:
        self.dismiss(None)

    def _values(self) -> dict[str, Any]:
        texts = {"preset": self._preset}
        named = [name for box in self._drafter_boxes if (name := box.value.strip())]
        texts["drafter"] = format_value(Names(named))
        for field in fields(ModelChoice):
            if field.name not in texts:
                texts[field.name] = str(self.query_one(f"#{field.name}", Widget).value)  # type: ignore[attr-defined]
        return {name: parse_value(name, text) for name, text in texts.items()}


def _title(text: str) -> Option:
    return Option(Content.styled(text, "bold $text-muted"), disabled=True)
