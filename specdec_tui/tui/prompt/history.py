"""Earlier prompts, of this session and of those before: a bounded file of JSON lines, newest last.

Several apps may share the file. Every change is made under a lock: whole lines are appended, and a
file that has grown too long is replaced as a whole. Whatever is wrong with the file costs a
message and never a prompt: the prompts of this session are kept in memory first.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable
from pathlib import Path

from specdec_tui.doors.reading import read_end
from specdec_tui.doors.writing import append, place

MOST_ENTRIES = 500
LARGEST_ENTRY = 256 * 1024
"""Bytes of a line; a longer prompt is remembered for this session only."""

# Trimmed only now and then: rewriting the file for every prompt would buy nothing.
_SLACK = 100
# Of a file that others made huge, only the end is read.
_MOST_BYTES = 16 * 1024 * 1024
# Another app holds the lock for milliseconds. If not, the lines wait for the next prompt.
_PATIENCE_SECONDS = 0.2


class PromptHistory:
    """The prompts a person can go back to. `path` None: of this session only.

    With `keep` false nothing is written; what the file has can still be read. `tell` is called at
    most once, with one sentence, when the file is of no use or damaged in part.
    """

    def __init__(
        self, path: Path | None = None, *, keep: bool = True, tell: Callable[[str], None] = lambda message: None
    ) -> None:
        self.keep = keep
        self._path = path
        self._tell = tell
        self._told = False
        self._problem = ""
        self._loaded = path is None
        self._earlier: list[str] = []
        self._own: list[str] = []
        self._unsaved: list[str] = []

    @property
    def entries(self) -> list[str]:
        """All prompts, oldest first. The file is read when this is asked for the first time."""
        if not self._loaded:
            self.reload()
        return _without_repeats([*self._earlier, *self._own])

    def reload(self) -> None:
        """Read the file again: other apps may have added to it."""
        if self._path is None:
            return
        self._loaded = True
        try:
            saved = self._read()
        except OSError as error:
            self._give_up(error)
            return
        own = set(self._own)
        self._earlier = [text for text in saved if text not in own]

    def remember(self, text: str) -> None:
        """Make `text` the newest entry, unless it is that already."""
        if not text or (self._own and self._own[-1] == text):
            return
        self._own.append(text)
        del self._own[:-MOST_ENTRIES]
        if not self.keep or self._path is None:
            return
        if len(_line(text)) <= LARGEST_ENTRY:
            self._unsaved.append(text)
        from filelock import Timeout  # not at a start

        try:
            self._save()
        except Timeout:
            del self._unsaved[:-MOST_ENTRIES]
        except (OSError, NotImplementedError) as error:  # the latter: a file system without locks
            self._give_up(error)

    def why_not_kept(self, text: str) -> str:
        """Why a prompt of this session is not in the file, where it should be; else empty."""
        if not self.keep:
            return ""
        if self._path is not None and len(_line(text)) > LARGEST_ENTRY:
            return f"it is longer than {LARGEST_ENTRY // 1024} kB"
        return f"another program holds {self._path}" if text in self._unsaved else self._problem

    def _save(self) -> None:
        path = self._path
        if path is None or not self._unsaved:
            return
        from filelock import FileLock

        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with FileLock(f"{path}.lock", timeout=_PATIENCE_SECONDS, mode=0o600):
            saved = self._read()
            new = self._unsaved[1:] if saved and saved[-1] == self._unsaved[0] else self._unsaved
            grown = os.path.exists(path) and path.stat().st_size > _MOST_BYTES
            if grown or len(saved) + len(new) > MOST_ENTRIES + _SLACK:
                place(path, map(_line, _newest([*saved, *new])))
            else:
                append(path, b"".join(map(_line, new)))
        self._unsaved = []

    def _read(self) -> list[str]:
        """The prompts of the file; lines that are none are left out, and told about."""
        assert self._path is not None
        try:
            content, is_cut = read_end(self._path, most=_MOST_BYTES)
        except FileNotFoundError:
            return []
        lines = content.split(b"\n")
        if is_cut:
            del lines[0]  # the end of a line
        read = [_prompt(line) for line in lines if line.strip()]
        prompts = [prompt for prompt in read if prompt]
        if len(prompts) < len(read):
            self._say(f"{len(read) - len(prompts)} damaged lines of {self._path} are left out")
        return prompts[-MOST_ENTRIES - _SLACK :]

    def _give_up(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or error
        self._problem = f"{self._path}: {reason}"
        self._say(f"Prompts are remembered for this session only: {self._problem}")
        self._path = None
        self._unsaved = []

    def _say(self, message: str) -> None:
        if not self._told:
            self._told = True
            self._tell(message)


def _without_repeats(texts: Iterable[str]) -> list[str]:
    found: list[str] = []
    for text in texts:
        if not found or found[-1] != text:
            found.append(text)
    return found[-MOST_ENTRIES:]


def _newest(texts: list[str]) -> list[str]:
    """As many of the last ones as leave the file room to grow."""
    size, first = 0, len(texts)
    while first and len(texts) - first < MOST_ENTRIES:
        size += len(_line(texts[first - 1]))
        if size > _MOST_BYTES // 2:
            break
        first -= 1
    return texts[first:]


def _line(text: str) -> bytes:
    return json.dumps({"prompt": text}).encode("ascii") + b"\n"


def _prompt(line: bytes) -> str:
    """The prompt of a line, empty where there is none. Half characters, which no box can show, are replaced."""
    try:
        text = json.loads(line)["prompt"]
        return text.encode("utf-8", "replace").decode("utf-8") if isinstance(text, str) else ""
    except (ValueError, TypeError, LookupError, RecursionError):
        return ""
