"""What the palette lists for a text: pure functions from the text to rows, without a screen.

`gamma 8` is a parsed argument and comes first; `gamma` alone leads to a second list with its
values; a bad value is a row that says what is allowed and only complains when chosen. Behind what is
called like the words come what is told of by them, other words for it, values (`dark`) and, where
nothing else fits, what is spelled nearly so. What cannot be undone comes last among its equals.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from types import MappingProxyType
from typing import Any

from specdec_tui.setting_kinds import SWITCH, Kind, format_value
from specdec_tui.settings import (
    FIELDS,
    STRATEGIES,
    ModelChoice,
    SettingError,
    Settings,
    flag_of,
    implied_processor,
    name_of,
    parse_processor,
    parse_value,
    unused_by,
)
from specdec_tui.several_drafters import shown
from specdec_tui.tui.commands.command import Command, key_names
from specdec_tui.tui.commands.paths import NO_SUCH, is_missing_path
from specdec_tui.tui.commands.table import COMMANDS, commands_with


@dataclass(frozen=True, slots=True)
class Act:
    """Run an action of the app."""

    action: str


@dataclass(frozen=True, slots=True)
class Change:
    """Set values of `Settings` or `ModelChoice`."""

    values: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Take:
    """A token, by its id."""

    token: int


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
    does: Act | Change | Take | Ask | Refuse
    by_choice: bool = False
    """Only a guess, or not to be undone: it takes its whole name or the arrows, not its first letters and enter."""


_SUGGESTIONS = {
    "gamma": "0 1 2 3 4 5 6 8 12 16",
    "max_new_tokens": "32 64 128 256 512 1024",
    "processor": "greedy;multinomial 0.7;topk 0.7 50;nucleus 0.7 0.9;topknucleus 0.7 50 0.9",
    "temperature": "0 0.2 0.5 0.7 1 1.5",
    "top_k": "0 10 20 50 100",
    "top_p": "0.5 0.8 0.9 0.95 1",
    "min_p": "auto 0 0.05 0.1",
    "typical_p": "auto 1 0.95 0.9 0.5",
    "repetition_penalty": "auto 1 1.05 1.1 1.2 1.3",
    "presence_penalty": "0 0.5 1 1.5",
    "frequency_penalty": "0 0.5 1 1.5",
    "no_repeat_ngram": "auto 0 2 3 4",
    "min_new_tokens": "auto 0 8 32 64",
    "bad_words": "auto;[]",
    "logit_bias": "auto",
    "stop_strings": 'auto;[];["\\n"];["\\n\\n"]',
    "seed": "0 1 42",
    "added_latency": "0 10 30 100 300",
    "ngram_order": "2 3 4 5",
    "ngram_storage": "basic;onelevel;basic 3;onelevel 3;onelevel 4",
    "top_k_filler": "0 3 5 10",
    "strategies": ";".join(("target,speculative", "target,speculative,ngram,lookup", ",".join(shown(1)))),
}


# What people call a setting elsewhere.
_ALSO = {
    "gamma": "γ g k drafts num_speculative_tokens speculation lookahead",
    "max_new_tokens": "max tokens n",
    "temperature": "t temp",
    "top_k": "topk",
    "top_p": "topp nucleus",
    "repetition_penalty": "repeat penalty",
    "presence_penalty": "penalty",
    "frequency_penalty": "penalty",
    "no_repeat_ngram": "repeat",
    "min_new_tokens": "least minimum",
    "bad_words": "forbidden banned",
    "logit_bias": "favour",
    "stop_strings": "end until",
    "processor": "sampling sampler sample deterministic random",
    "theme": "colour color dark light bright look scheme",
    "insight": "entropy probabilities debug alternatives",
    "capture": "graph cuda compile",
    "schedule": "order timing",
    "added_latency": "server network distance delay round trip ms",
    "record": "keep save traces",
    "ignore_eos": "end eos",
    "chat": "template",
    "cache": "kv memory",
    "device": "gpu",
    "dtype": "precision",
    "quantize": "bits int8 int4 4bit 8bit",
    "weights": "gguf quantized form dequantize q4 q8",
}
Now = Mapping[str, str]
"""The present values of all settings, as text."""

_NEAR = 0.65
_MODELS = "target", "drafter"
_MOST_WORDS = 8  # that are looked for; more are an argument, or noise


def rows_for(
    query: str,
    settings: Settings,
    choice: ModelChoice,
    asks: Mapping[str, str] = MappingProxyType({}),
    drafters: int = 0,
) -> list[Row]:
    """The rows for what was typed, best first; nothing when no word fits.

    `asks`: what the model's files ask of settings at `auto`, in words. `drafters`: so many are loaded.
    """
    there = {command.name for command in commands_with(drafters)}
    hidden = {command.name for command in COMMANDS} - there
    return [row for row in _rows_for(query, settings, choice, asks) if row.text not in hidden]


def _rows_for(query: str, settings: Settings, choice: ModelChoice, asks: Mapping[str, str]) -> list[Row]:
    now = _texts_now(settings, choice, asks)
    words = query.split()
    if not words:
        return [*_command_rows(()), *_setting_rows((), now)]
    meant = _in_our_words(query)
    found = _argument_rows(meant, now)
    has_arguments = bool(found)
    if len(words) > _MOST_WORDS:
        return found
    if len(words) == 1 and words[0] in STRATEGIES:
        found += [row for row in _command_rows(()) if row.text == f"toggle {words[0]}"]
    listed = [
        (row, name, told)
        for row, name, told in _everything(now)
        if not (has_arguments and isinstance(row.does, Ask))  # its values are listed already
    ]
    named = [row for row, name, _ in listed if _fits(words, name)]
    told = [row for row, name, told in listed if _fits(words, f"{name} {told}")]
    found += sorted(named, key=lambda row: (row.text != query.strip(), row.by_choice))
    of_values = list(_rows_of_values(words, now))
    found += [row for row in of_values if row.text.split()[-1] == query.strip().lower()]
    found += sorted(told, key=lambda row: row.by_choice)
    found += of_values
    if not found:
        found += [replace(row, by_choice=True) for row, name, _ in listed if _is_nearly(words, name)]
    first: dict[str, Row] = {}
    for row in found:
        first.setdefault(row.text, row)
    return list(first.values())


def _everything(now: Now) -> Iterator[tuple[Row, str, str]]:
    """Every command and setting: its row, what it is called, and what is told of it in our words and in others."""
    for command in COMMANDS:
        if command.in_palette:
            yield _command_row(command), command.name, f"{command.help} {command.also}"
    for name, row in zip(FIELDS, _setting_rows((), now), strict=True):
        yield row, f"{row.text} {name}", f"{FIELDS[name].metadata['help']} {_ALSO.get(name, '')}"


def _in_our_words(query: str) -> str:
    """The text with its first word as commands and settings call it: `γ 5` means `gamma 5`."""
    head, space, rest = query.lstrip().partition(" ")
    others = {word: command.name for command in COMMANDS if command.argument for word in command.also.split()}
    others |= {word: name for name, also in _ALSO.items() for word in also.split()}
    known = head.lower() not in others or head in (*FIELDS, *(command.name for command in COMMANDS))
    return query if known or not space else f"{others[head.lower()].replace('_', '-')} {rest}"


def _argument_rows(query: str, now: Now) -> list[Row]:
    """Rows for a setting or a command with an argument behind it, or with those it could have."""
    words = query.split()
    found = _command_arguments(query)
    try:
        name = name_of(words[0])
    except SettingError:
        return found
    if len(words) > 1:
        found.append(_parsed(name, words[0], query.split(None, 1)[1].strip(), now))
    elif query[-1].isspace():
        found += _value_rows(name, words[0], now)
    return found


def _rows_of_values(words: list[str], now: Now) -> Iterator[Row]:
    """Settings one of whose values is named: `dark`, `nucleus`."""
    for name, field in FIELDS.items():
        kind: Kind = field.metadata["kind"]
        if kind is SWITCH or not kind.choices:
            continue
        for value in filter(None, kind.choices):
            if len(words) == 1 and len(words[0]) > 1 and _fits(words, value):
                word = field.metadata.get("palette", flag_of(name))
                yield _parsed(name, word, value, now)
    if len(words) == 1:
        for command in COMMANDS:
            for value in command.values:
                if value.isalpha() and _fits(words, value):
                    yield Row(f"{command.name} {value}", command.help, Act(command.action_with(value)))


def _is_nearly(words: list[str], name: str) -> bool:
    """Whether each word is spelled nearly like the beginning of a word of `name`, or stands in it with gaps."""
    return all(len(word) > 2 and any(_near(word.lower(), part) for part in _parts(name)) for word in words)


def _near(word: str, part: str) -> bool:
    letters = iter(part)
    if word[0] == part[0] and all(letter in letters for letter in word):
        return True
    matcher = SequenceMatcher(None, word, part[: len(word) + 1])
    return matcher.real_quick_ratio() >= _NEAR and matcher.ratio() >= _NEAR  # long words cost seconds


def _parsed(name: str, head: str, text: str, now: Now) -> Row:
    try:
        values = _values(name, text)
    except SettingError as error:
        return Row(f"{head} {text}", str(error), Refuse(str(error)))
    if name in _MODELS and any(map(is_missing_path, _named(values[name]))):
        why = f"{flag_of(name)}: {NO_SUCH}: give {FIELDS[name].metadata['kind'].allowed}"
        return Row(f"{head} {text}", why, Refuse(why))
    told = FIELDS[name].metadata["help"]
    if implied := implied_processor(values, now["processor"]):
        told = f"with processor {implied['processor']}, since {now['processor']} has no use for it · {told}"
    else:
        told = f"{told} · {_at_present(name, now)}"
    return Row(f"{head} {text}", told, Change(values))


def _at_present(name: str, now: Now) -> str:
    """`now 50`, or that it counts for nothing."""
    return f"{now['processor']} has no use for it" if unused_by(now["processor"], [name]) else f"now {now[name]}"


def _named(value: str | tuple[str, ...]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else value


def _values(name: str, text: str) -> dict[str, Any]:
    """Changes meant by an argument; the n-gram storage takes its order as a second word."""
    if name == "processor":
        return parse_processor(text)
    words = text.split()
    if name == "ngram_storage" and len(words) == 2:
        return {name: parse_value(name, words[0]), "ngram_order": parse_value("ngram_order", words[1])}
    return {name: parse_value(name, text)}


def _value_rows(name: str, head: str, now: Now) -> Iterator[Row]:
    kind: Kind = FIELDS[name].metadata["kind"]
    listed = _SUGGESTIONS.get(name, "")
    values = listed.split(";" if ";" in listed else None) or [value for value in kind.choices if value]
    for value in values:
        as_now = value == now[name] and not unused_by(now["processor"], [name])
        mark = "as now" if as_now else FIELDS[name].metadata["help"]
        yield Row(f"{head} {value}", mark, Change(_values(name, value)))
    if not kind.choices:
        allowed = f"type {kind.allowed} · {_at_present(name, now)}"
        yield Row(f"{head} …", allowed, Refuse(f"{flag_of(name)}: give {kind.allowed}"))


def _command_row(command: Command) -> Row:
    keys = key_names(command)
    return Row(command.name, command.help + (f" · {keys[0]}" if keys else ""), Act(command.action), command.is_final)


def _command_rows(words: tuple[str, ...] | list[str]) -> Iterator[Row]:
    for command in COMMANDS:
        if command.in_palette and _fits(words, command.name):
            yield _command_row(command)


def _command_arguments(query: str) -> list[Row]:
    """A command that takes an argument, with the one typed behind its name, or with what could be."""
    found: list[Row] = []
    for command in COMMANDS:
        typed, name = query.lstrip(), command.name
        if not command.argument or not typed.lower().startswith((f"{name} ", f"{name}:")):
            continue
        argument = typed[len(name) + 1 :].strip()
        begun = [value for value in command.values if value.startswith(argument.lower())]
        if argument and argument.lower() not in command.values:
            own = _checked(command, argument)
            if not (begun and isinstance(own.does, Refuse)):  # one that is only begun is not wrong yet
                found.append(own)
        found += [Row(f"{command.name} {v}", command.help, Act(command.action_with(v))) for v in begun]
        if not argument:
            asked = f"{command.name}: give {command.argument}"
            found.append(Row(f"{command.name} …", f"type {command.argument}", Refuse(asked)))
    return found


def _checked(command: Command, argument: str) -> Row:
    text = f"{command.name} {argument}"
    try:
        command.check(argument)
    except SettingError as error:
        return Row(text, str(error), Refuse(str(error)))
    return Row(text, command.help, Act(command.action_with(argument)))


def _setting_rows(words: tuple[str, ...] | list[str], now: Now) -> Iterator[Row]:
    for name, field in FIELDS.items():
        word = field.metadata.get("palette", flag_of(name))
        if _fits(words, word):
            help_text = f"{field.metadata['help']} · {_at_present(name, now)}"
            yield Row(word, help_text, Ask(f"{word} "))


def _fits(words: Iterable[str], text: str) -> bool:
    """Every typed word begins a word of `text`."""
    parts = _parts(text)
    return all(any(part.startswith(word.lower()) for part in parts) for word in words)


def _parts(text: str) -> list[str]:
    text = text.lower()
    return text.replace("-", " ").replace("_", " ").replace("(", " ").split() + text.split()


def _texts_now(settings: Settings, choice: ModelChoice, asks: Mapping[str, str]) -> Now:
    told: dict[str, str] = {}
    for name in FIELDS:
        owner = settings if hasattr(settings, name) else choice
        told[name] = format_value(getattr(owner, name)) or "as the preset says"
        if getattr(owner, name) is None and name in asks:
            told[name] += f" ({asks[name]}, from the model)"
    return told
