"""Renders a chat template, in a process of its own: run by `chat_template`, which can end it at any moment.

A template is a program of the model's author. Its sandbox keeps it from files and from Python, not from
looping for ever or from filling the memory, also in single calls that no thread can break off
(`'x' * 10**11`, `10 ** 10 ** 9`). So its memory is bounded, its output, and its time.

Read from standard input, as JSON: `template`, `variables`, `conversations` (lists of messages), `longest`
(characters of an output), `seconds`. Written to standard output: a list of {"text": …} or {"error": …}.
This file stands alone and imports no more than it needs: it is started for every prompt.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

MEMORY_BYTES = 1 << 30
_LATE = 5  # seconds after which it ends by itself, where nobody is left to end it
_LONGEST_MESSAGE = 300


class _Generation(Extension):
    """`{% generation %}`: marks what an assistant wrote, for training; here it is no more than what it holds."""

    tags = {"generation"}

    def parse(self, parser: jinja2.parser.Parser) -> Any:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Dict:
    """`dict` without the attributes of a class."""

    def __call__(self, *values: Any, **named: Any) -> dict[Any, Any]:
        return dict(*values, **named)

    def fromkeys(self, *values: Any) -> dict[Any, Any]:
        return dict.fromkeys(*values)


class _Namespace(jinja2.utils.Namespace):
    """`namespace` without names that reach into Python."""

    def __init__(*values: Any, **named: Any) -> None:
        attributes = dict(*values[1:], **named)
        for name in attributes:
            _check_name(name)
        jinja2.utils.Namespace.__init__(values[0], attributes)

    def __setitem__(self, name: str, value: Any) -> None:
        _check_name(name)
        super().__setitem__(name, value)


def _check_name(name: Any) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.exceptions.SecurityError("names in a namespace cannot begin with an underscore")


def _raise(message: object) -> None:
    raise jinja2.exceptions.TemplateError(str(message))


def _json(value: Any, ensure_ascii: bool = False, indent: Any = None, separators: Any = None, sort_keys: bool = False):  # type: ignore[no-untyped-def]
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def environment() -> ImmutableSandboxedEnvironment:
    """What chat templates are written for: the environment of `apply_chat_template` in transformers."""
    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols])
    made.filters["tojson"] = _json
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda format: datetime.now().strftime(format)
    made.globals["dict"] = _Dict()
    made.globals["namespace"] = _Namespace
    return made


def render(template: jinja2.Template, messages: list[Any], variables: Mapping[str, Any], longest: int) -> str:
    """The text of a conversation. ValueError when it gets too long, and whatever the template raises."""
    pieces, length = [], 0
    for piece in template.generate(
        **{"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True} | dict(variables)
    ):
        pieces.append(piece)
        length += len(piece)
        if length > longest:
            raise ValueError(f"it writes more than {longest:,} characters")
    return "".join(pieces)


def answer(asked: Mapping[str, Any]) -> list[dict[str, str]]:
    """One {"text": …} or {"error": …} for each conversation."""
    try:
        template = environment().from_string(asked["template"])
    except Exception as error:  # whatever its compiler meets
        return [{"error": _message(error)} for _ in asked["conversations"]]
    told = []
    for messages in asked["conversations"]:
        try:
            told.append({"text": render(template, messages, asked["variables"], asked["longest"])})
        except Exception as error:  # a program of the model's author may raise anything
            told.append({"error": _message(error)})
    return told


def _message(error: BaseException) -> str:
    """What an error says, cut."""
    if isinstance(error, MemoryError):
        return f"it takes more than {MEMORY_BYTES >> 30} GB of memory"
    if isinstance(error, RecursionError):
        return "it calls itself too often"
    if "sandbox blocks ranges" in str(error):
        return f"it counts further than {jinja2.sandbox.MAX_RANGE:,}"
    if "set_int_max_str_digits" in str(error):
        return f"it writes a number of more than {sys.get_int_max_str_digits():,} digits"
    return str(error)[:_LONGEST_MESSAGE].strip() or "it gives no reason"


def _bound(seconds: int) -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
        signal.alarm(seconds + _LATE)  # its default action ends the process, whatever it is doing


def main() -> None:
    asked = json.load(sys.stdin)
    _bound(asked["seconds"])
    json.dump(answer(asked), sys.stdout)


if __name__ == "__main__":
    main()
