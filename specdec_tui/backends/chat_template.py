"""A conversation as its model's chat template writes it: in bounded time and size, and with the prompt in it."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specdec_tui.backends.in_time import Stopped, TooLong, in_time
from specdec_tui.doors.characters import one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

Turn = tuple[str, str]
"""One exchange of a conversation: what the user wrote, what the model answered."""

SECONDS = 10
_ROOM = 1_000_000  # characters that a template may add to four times the conversation
_OTHER_PROMPTS = ("\N{REFERENCE MARK}", "\N{ASTERISM}")  # that nobody writes, and no template either
_CHANGED = "the chat template changes the prompt's text: the tokens show what the model was given"
_FORGETS = "the chat template leaves out the earlier turns of the conversation"
_WORD = re.compile(r"\w+")
_PRINTED = re.compile(r"""['"]type['"]: ?['"]text['"]""")  # a list of parts, written out instead of read


def apply_template(
    tokenizer: PreTrainedTokenizerBase,
    prompt: str,
    history: Sequence[Turn],
    cancelled: Callable[[], bool] = lambda: False,
) -> tuple[str, tuple[str, ...]]:
    """The text of a conversation, up to where the answer starts, and notices where it is not the conversation's.

    Contents are given as strings and, where that loses the prompt, as lists of parts, as models of
    more than text want them. ValueError, with the reason, when the template refuses, loses the prompt
    both ways, or does not keep within `SECONDS` and its room; Stopped once `cancelled`.
    """
    template = _template_of(tokenizer)
    error, end = "", time.monotonic() + SECONDS
    for in_parts in (False, True):
        told = _rendered(tokenizer, template, prompt, history, in_parts, end, cancelled)
        if "text" not in told[0]:
            error = error if in_parts else told[0]["error"]  # what a template of strings makes of parts says nothing
            continue
        text, other = told[0]["text"], told[1].get("text", "")
        if not text.isascii() and any("\ud800" <= character <= "\udfff" for character in text):
            raise ValueError("writes half a character, which is no text")
        found = 0.0 if in_parts and _PRINTED.search(other) else _share(prompt, text, other)
        if found >= 0.5:
            notices = [_CHANGED] if found < 1 else []
            if history and told[2].get("text") == text:
                notices.append(_FORGETS)
            return text, tuple(notices)
    if error:
        raise ValueError(f"cannot format this conversation: {one_line(error)}")
    raise ValueError("leaves the prompt out of what the model is given: turn the chat template off to run it")


def _template_of(tokenizer: PreTrainedTokenizerBase) -> str:
    template = tokenizer.chat_template
    if isinstance(template, dict):
        if "default" not in template:
            raise ValueError(f"is one of several ({', '.join(sorted(template))}), and none of them is the default")
        template = template["default"]
    return str(template)


def _share(prompt: str, text: str, other: str) -> float:
    """How much of a prompt is in a rendering, 0 to 1; `other` is the rendering of another prompt.

    White space does not count, as templates trim it. What the template writes anyway is not the prompt's.
    """
    if not prompt.strip():
        return 1.0
    if text == other:
        return 0.0
    whole, bare, bare_other = ("".join(part.split()) for part in (prompt, text, other))
    if bare.count(whole) > bare_other.count(whole):
        return 1.0
    words = _WORD.findall(prompt.casefold())
    if not words:
        return 0.5  # signs in another spelling: all that can be seen is that they made a difference
    there, begin, folded = 0, 0, text.casefold()
    for word in words:
        place = folded.find(word, begin)
        if place >= 0:
            there, begin = there + 1, place + len(word)
    return min(0.99, there / len(words))


def _rendered(
    tokenizer: PreTrainedTokenizerBase,
    template: str,
    prompt: str,
    history: Sequence[Turn],
    in_parts: bool,
    end: float,
    cancelled: Callable[[], bool],
) -> list[dict[str, str]]:
    """What the template makes of the conversation, of the same one with another prompt, and of the prompt alone."""
    other = next(text for text in _OTHER_PROMPTS if text != prompt.strip())
    conversations = [_messages(*words, in_parts) for words in ((prompt, history), (other, history), (prompt, ()))]
    size = len(prompt) + sum(len(question) + len(answer) for question, answer in history)
    asked = {
        "template": template,
        "variables": tokenizer.special_tokens_map,
        "conversations": conversations,
        "longest": 4 * size + _ROOM,
        "seconds": SECONDS,
    }
    return _ask(json.dumps(asked, default=str), end, cancelled)


def _messages(prompt: str, history: Sequence[Turn], in_parts: bool) -> list[dict[str, Any]]:
    turns = [(role, text) for turn in history for role, text in zip(("user", "assistant"), turn, strict=True)]
    return [
        {"role": role, "content": [{"type": "text", "text": text}] if in_parts else text}
        for role, text in (*turns, ("user", prompt))
    ]


def _ask(question: str, end: float, cancelled: Callable[[], bool]) -> list[dict[str, str]]:
    """The answer of a template process, which never outlives the question."""
    # -P: no module of the folder that the app was started in.
    command = [sys.executable, "-P", str(Path(__file__).with_name("template_process.py"))]
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # ctrl+c and ctrl+z of a shell are not for it
            encoding="utf-8",
        )
    except OSError as error:
        raise ValueError(f"needs a process of its own, which cannot be started: {error.strerror}") from error
    try:
        # In a thread: with a timeout, `communicate` loses what does not fit into the pipe at once.
        said, _ = in_time(lambda: process.communicate(question), cancelled, end - time.monotonic())
    except Stopped:
        raise Stopped("stopped while the chat template was at work") from None
    except TooLong:
        raise ValueError(f"does not end within {SECONDS} seconds") from None
    finally:
        process.kill()
        process.wait()
    try:
        told = json.loads(said)
    except ValueError:
        raise ValueError("ends the process that renders it (it may take too much memory)") from None
    return list(told)
