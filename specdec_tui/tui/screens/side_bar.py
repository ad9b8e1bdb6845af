"""Every setting at once, grouped and editable; made from the fields of `Settings`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.events import DescendantBlur, DescendantFocus
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Checkbox, Input, Label, Select, Static

from specdec_tui.backends.pair import PairInfo
from specdec_tui.glossary import STRATEGIES as STRATEGY_SENTENCES
from specdec_tui.setting_kinds import SWITCH, Kind, format_value
from specdec_tui.settings import CONTROLS, FIELDS, STRATEGIES, SettingError, Settings, flag_of, parse_value
from specdec_tui.several_drafters import asked_for, drafters_in, labelled, labels, running, shown
from specdec_tui.tui.commands.command import SIDE_BAR
from specdec_tui.tui.commands.header import one_row
from specdec_tui.tui.commands.table import bindings

GROUPS: dict[str, tuple[str, ...]] = {
    "Strategies": ("strategies",),
    "Drafting": ("gamma", "max_new_tokens", "rule", "tokenizers", "schedule", "added_latency"),
    "Sampling": ("processor", "temperature", "top_k", "top_p", "min_p", "typical_p", "seed"),
    "Controls": CONTROLS,
    "Beams": ("beam_width", "length_penalty", "early_stopping"),
    "N-grams": ("ngram_storage", "ngram_order", "top_k_filler", "ngram_unknown", "reset_in_between"),
    "Session": ("chat", "cache", "capture", "ignore_eos", "insight", "record"),
    "Look": ("theme",),
}


def told(name: str) -> str:
    """What a setting is, and which values it takes."""
    return f"{FIELDS[name].metadata['help']}: {FIELDS[name].metadata['kind'].allowed}"


class Tick(Checkbox):
    """A checkbox whose state shows without colours."""

    def __init__(self, label: str, value: bool, id: str) -> None:
        super().__init__("", value, id=id, compact=True)
        self._mark(value)
        self.name_it(label)

    def name_it(self, label: str) -> None:
        self.label = Content(one_row(label))

    def watch_value(self) -> None:
        self._mark(self.value)
        super().watch_value()

    def _mark(self, on_now: bool) -> None:
        self.BUTTON_INNER = "✓" if on_now else " "


def _options(kind: Kind, value: str) -> list[tuple[str, str]]:
    """What can be chosen, and what is chosen now, in any case."""
    return [(choice, choice) for choice in dict.fromkeys((*kind.choices, value))]


class SideBar(VerticalScroll, can_focus=False):
    """Shows `Settings`; posts `Changed` with valid values only, `Refused` with the reason otherwise."""

    BINDINGS: ClassVar[list[BindingType]] = [*bindings(SIDE_BAR)]

    class Changed(Message):
        def __init__(self, values: Mapping[str, Any]) -> None:
            super().__init__()
            self.values = values

    class Refused(Message):
        def __init__(self, reason: str) -> None:
            super().__init__()
            self.reason = reason

    def __init__(self, settings: Settings, asks: Mapping[str, str], pair: PairInfo | None = None) -> None:
        super().__init__(id="side-bar")
        self._settings, self._asks = settings, asks
        self._drafters, self._labels = drafters_in(pair), labels(pair)

    def compose(self) -> ComposeResult:
        for group, names in GROUPS.items():
            yield Label(group, classes="group")
            for name in names:
                yield from self._editors(name)
        yield Label("Models are chosen with m", classes="hint")
        yield Static("", id="side-bar-told", markup=False)

    def _editors(self, name: str) -> ComposeResult:
        kind: Kind = FIELDS[name].metadata["kind"]
        value = getattr(self._settings, name)
        if name == "strategies":
            for strategy in STRATEGIES:
                tick = Tick(
                    labelled(strategy, self._labels), strategy in running(value, self._drafters), f"strategy-{strategy}"
                )
                tick.display = strategy in shown(self._drafters)
                yield tick
        elif kind is SWITCH:
            box = Tick(flag_of(name), value, name)
            box.tooltip = told(name)
            yield box
        else:
            editor: Widget
            if kind.choices:
                editor = Select(_options(kind, value), value=value, allow_blank=False, id=name, compact=True)
            else:
                editor = Input(format_value(value), id=name, compact=True)
            row = Horizontal(Label(FIELDS[name].metadata.get("palette", flag_of(name))), editor, classes="setting")
            row.tooltip = told(name)
            yield row

    def on_mount(self) -> None:
        self.query(Checkbox).first().focus()

    def meet(self, pair: PairInfo | None) -> None:
        """Show what there is to set with other models."""
        self._drafters, self._labels = drafters_in(pair), labels(pair)
        self.show(self._settings)

    def show(self, settings: Settings) -> None:
        """Show other values, without announcing them as the user's changes."""
        self._settings = settings
        on_now, there = running(settings.strategies, self._drafters), shown(self._drafters)
        with self.prevent(Checkbox.Changed, Select.Changed, Input.Changed):
            for strategy in STRATEGIES:
                tick = self.query_one(f"#strategy-{strategy}", Tick)
                tick.value, tick.display = strategy in on_now, strategy in there
                tick.name_it(labelled(strategy, self._labels))
            for field in fields(Settings):
                if field.name == "strategies":
                    continue
                editor = self.query_one(f"#{field.name}")
                value = getattr(settings, field.name)
                if isinstance(editor, Input):
                    editor.value = format_value(value)
                elif isinstance(editor, Select):
                    if field.name == "theme":  # files come and go
                        editor.set_options(_options(field.metadata["kind"], value))
                    editor.value = value
                elif isinstance(editor, Checkbox):
                    editor.value = value

    @on(Checkbox.Changed)
    def _switched(self, event: Checkbox.Changed) -> None:
        event.stop()
        name = event.checkbox.id or ""
        if name.startswith("strategy-"):
            on_now = [s for s in STRATEGIES if self.query_one(f"#strategy-{s}", Checkbox).value]
            self._offer("strategies", ",".join(asked_for(on_now, self._settings.strategies, self._drafters)))
        else:
            self._offer(name, format_value(event.value))

    @on(Select.Changed)
    def _selected(self, event: Select.Changed) -> None:
        event.stop()
        self._offer(event.select.id or "", str(event.value))

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._offer(event.input.id or "", event.value)

    def on_descendant_focus(self, event: DescendantFocus) -> None:
        name = event.widget.id or ""
        if name.startswith("strategy-"):
            text = STRATEGY_SENTENCES[name.removeprefix("strategy-")]
        else:
            text = told(name) if name in FIELDS else ""
            text += f". auto is now {self._asks[name]}, from the model" if name in self._asks else ""
        self.query_one("#side-bar-told", Static).update(text)

    def on_descendant_blur(self, event: DescendantBlur) -> None:
        if isinstance(event.widget, Input):
            self._offer(event.widget.id or "", event.widget.value)

    def _offer(self, name: str, text: str) -> None:
        old = getattr(self._settings, name)
        try:
            value = parse_value(name, text)
        except SettingError as error:
            reason = "at least one strategy stays on" if name == "strategies" else str(error)
            self.post_message(self.Refused(reason))
            self.show(self._settings)
            return
        if value != old:
            self.post_message(self.Changed({name: value}))
