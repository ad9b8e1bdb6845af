"""What the palette lists for a text: pure functions from the text to rows, without a screen.

`gamma 8` is a parsed argument and comes first; `gamma` alone leads to a second list with its
values; a bad value is a row that says what is allowed and only complains when chosen. Words are
matched by their beginnings, not fuzzily, so that an unknown word finds nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from specdec_tui.settings import (
    FIELDS,
    STRATEGIES,
    Kind,
    ModelChoice,
    SettingError,
    Settings,
    flag_of,
    format_value,
    name_of,
    parse_processor,
    parse_value,
)
from specdec_tui.tui.commands.table import COMMANDS, key_names


@dataclass(frozen=True, slots=True)
class Act:
    """Run an action of the app."""

    action: str


@dataclass(frozen=True, slots=True)
class Change:
    """Set values of `Settings` or `ModelChoice`."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Ask:
    """Put `text` into the palette, which then lists the values."""

    text: str


@dataclass(frozen=True, slots=True)
class Refuse:
    """Say why not, and do nothing."""

    message: str


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the palette: what would be typed, what it means, what it does."""

    text: str
    help: str
    does: Act | Change | Ask | Refuse


_SUGGESTIONS = {
    "gamma": "0 1 2 3 4 5 6 8 12 16",
    "max_new_tokens": "32 64 128 256 512 1024",
    "processor": "greedy;multinomial 0.7;topk 0.7 50;nucleus 0.7 0.9;topknucleus 0.7 50 0.9",
    "temperature": "0 0.2 0.5 0.7 1 1.5",
    "top_k": "0 10 20 50 100",
    "top_p": "0.5 0.8 0.9 0.95 1",
    "seed": "0 1 42",
    "ngram_order": "2 3 4 5",
    "ngram_storage": "basic;onelevel;basic 3;onelevel 3;onelevel 4",
    "top_k_filler": "0 3 5 10",
    "strategies": ";".join(("target,speculative", "target,speculative,ngram,lookup", ",".join(STRATEGIES))),
}


def rows_for(query: str, settings: Settings, choice: ModelChoice) -> list[Row]:
    """The rows for what was typed, best first; nothing when no word fits."""
    words = query.split()
    if not words:
        return [*_command_rows(()), *_setting_rows((), settings, choice)]
    head, rest = words[0], words[1:]
    wants_values = not rest and query[-1].isspace()
    try:
        name = name_of(head)
    except SettingError:
        name = ""
    found: list[Row] = list(_argument_rows(query))
    if name in FIELDS and rest:
        found.append(_parsed(name, head, " ".join(rest), settings, choice))
    elif name in FIELDS and wants_values:
        found.extend(_value_rows(name, head, settings, choice))
    if not rest and head in STRATEGIES:
        found.extend(row for row in _command_rows(()) if row.text == f"toggle {head}")
    found.extend(row for row in _command_rows(words) if row not in found)
    if not rest and not wants_values:
        found.extend(_setting_rows(words, settings, choice))
    return found


def _parsed(name: str, head: str, text: str, settings: Settings, choice: ModelChoice) -> Row:
    try:
        values = _values(name, text)
    except SettingError as error:
        return Row(f"{head} {text}", str(error), Refuse(str(error)))
    now = _now(name, settings, choice)
    return Row(f"{head} {text}", f"{FIELDS[name].metadata['help']} · now {now}", Change(values))


def _values(name: str, text: str) -> dict[str, Any]:
    """Changes meant by an argument; the n-gram storage takes its order as a second word."""
    if name == "processor":
        return parse_processor(text)
    words = text.split()
    if name == "ngram_storage" and len(words) == 2:
        return {name: parse_value(name, words[0]), "ngram_order": parse_value("ngram_order", words[1])}
    return {name: parse_value(name, text)}


def _value_rows(name: str, head: str, settings: Settings, choice: ModelChoice) -> Iterator[Row]:
    kind: Kind = FIELDS[name].metadata["kind"]
    now = _now(name, settings, choice)
    listed = _SUGGESTIONS.get(name, "")
    values = listed.split(";" if ";" in listed else None) or [value for value in kind.choices if value]
    for value in values:
        mark = "as now" if value == now else FIELDS[name].metadata["help"]
        yield Row(f"{head} {value}", mark, Change(_values(name, value)))
    if not kind.choices:
        allowed = f"type {kind.allowed} · now {now}"
        yield Row(f"{head} …", allowed, Refuse(f"{flag_of(name)}: give {kind.allowed}"))


def _command_rows(words: tuple[str, ...] | list[str]) -> Iterator[Row]:
    for command in COMMANDS:
        if command.in_palette and _fits(words, command.name):
            keys = key_names(command)
            yield Row(command.name, command.help + (f" · {keys[0]}" if keys else ""), Act(command.action))


def _argument_rows(query: str) -> Iterator[Row]:
    """A command that takes an argument, with the one typed behind its name, or with what could be."""
    for command in COMMANDS:
        typed = query.lstrip()
        if not command.argument or not typed.lower().startswith(command.name + " "):
            continue
        argument = typed[len(command.name) :].strip()
        if argument and argument not in command.values:
            yield Row(f"{command.name} {argument}", command.help, Act(command.action_with(argument)))
        for value in command.values:
            if value.startswith(argument):
                yield Row(f"{command.name} {value}", command.help, Act(command.action_with(value)))
        if not argument:
            asked = f"{command.name}: give {command.argument}"
            yield Row(f"{command.name} …", f"type {command.argument}", Refuse(asked))


def _setting_rows(words: tuple[str, ...] | list[str], settings: Settings, choice: ModelChoice) -> Iterator[Row]:
    for name, field in FIELDS.items():
        word = field.metadata.get("palette", flag_of(name))
        if _fits(words, f"{word} {name} {field.metadata['help']}" if words else word):
            help_text = f"{field.metadata['help']} · now {_now(name, settings, choice)}"
            yield Row(word, help_text, Ask(f"{word} "))


def _fits(words: tuple[str, ...] | list[str], text: str) -> bool:
    """Every typed word begins a word of `text`."""
    parts = text.lower().replace("-", " ").replace("_", " ").split() + text.lower().split()
    return all(any(part.startswith(word.lower()) for part in parts) for word in words)


def _now(name: str, settings: Settings, choice: ModelChoice) -> str:
    owner = settings if hasattr(settings, name) else choice
    return format_value(getattr(owner, name)) or "as the preset says"
