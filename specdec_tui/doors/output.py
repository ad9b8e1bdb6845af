"""The one door for text on the way to a terminal or a pipe: standard output and standard error.

What goes through it holds nothing that a terminal obeys, whoever wrote it, and never ends in an
encoding error: an encoding that lacks a glyph of ours shows what looks like it. rich is imported
only where a table or a bar is drawn.
"""

from __future__ import annotations

import codecs
import errno
import os
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from specdec_tui.doors import writing
from specdec_tui.doors.characters import LOOKS_ALIKE, fit, json_text, one_line, visible

if TYPE_CHECKING:
    from rich.console import Console

PROGRAM = "specdec-tui"
WIDE = 140
"""Cells of a table that goes into a pipe or a file."""

ReportWork = Callable[[str, int, int | None], None]
"""Takes a stage, the steps that are done, and how many there are (None: nothing to count)."""


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of plain texts; `right` are the columns whose texts end at the right."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    title: str = ""
    caption: str = ""
    right: frozenset[str] = frozenset()


def prepare() -> None:
    """At the start of the program: streams that are closed lead nowhere, and none raises for a character.

    What ends in a traceback, in any thread, is shown through this door too.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:  # closed by the caller
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors=LOOKS_ALIKE)
    sys.excepthook = show_traceback
    threading.excepthook = lambda told: show_traceback(told.exc_type, told.exc_value, told.exc_traceback)


def say(text: str, *, error: bool = False) -> None:
    """A text and a line end, to standard output or standard error."""
    write(text + "\n", error=error)


def write(text: str, *, error: bool = False) -> None:
    """A text as it is, but for what a terminal would obey.

    OSError where standard output does not take it; where standard error does not, nobody can be told.
    """
    stream = _stream(error)
    with suppress(*(OSError, ValueError) if error else ()):
        stream.write(fit(visible(text), _encoding(stream)))
        stream.flush()


def complain(message: str) -> None:
    """One line on standard error that says what is wrong."""
    say(f"{PROGRAM}: {one_line(message)}", error=True)


def write_json(value: Any) -> None:
    """`value` as JSON on standard output; where the encoding is not UTF-8, in ASCII: it reads back to the same text.

    OSError where standard output does not take it, also where the caller closed it: nobody has the results then.
    """
    if getattr(sys.stdout, "name", "") == os.devnull:  # by `prepare`; one that is sent there has another name
        raise OSError(errno.EBADF, "it is closed")
    text = json_text(value)
    if codecs.lookup(_encoding(sys.stdout)).name != "utf-8":
        text = "".join(c if c < "\x80" else _escape(c) for c in text)
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def is_terminal() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()


def is_standard_output(path: Path) -> bool:
    """Whether `path` (`/dev/stdout`, a file it was redirected to) is where standard output goes."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(1))
    except (OSError, ValueError):
        return False


def flush() -> None:
    """What is written has arrived; OSError where it has not."""
    sys.stdout.flush()


def give_up() -> None:
    """The reader of standard output is gone, or its disk full: what is still buffered must not raise at exit."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    with suppress(OSError, ValueError):
        os.dup2(nowhere, 1)
    os.close(nowhere)


@contextmanager
def libraries_unheard() -> Iterator[None]:
    """Inside, what native libraries write past this door, also what model files say, goes to the log.

    Standard error stays ours, as `sys.stderr`. The app has its own way: all of its terminal belongs to its driver.
    """
    streams = {fd: getattr(sys, name) for fd, name in ((1, "stdout"), (2, "stderr"))}
    kept: dict[int, int] = {}
    for fd in streams:
        with suppress(OSError):  # closed by the caller
            kept[fd] = os.dup(fd)
    log = writing.log_or_nowhere(writing.log_file())
    ours = None
    if 2 in kept and _leads_to(2, sys.stderr):
        ours = open(os.dup(2), "w", encoding=_encoding(sys.stderr), errors=LOOKS_ALIKE, buffering=1)  # noqa: SIM115
    try:
        _flush(*streams.values())
        for fd in kept:
            os.dup2(log, fd)
        if ours is not None:
            sys.stderr = ours
        yield
    finally:
        sys.stderr = streams[2]
        _flush(*streams.values())
        for fd, before in kept.items():
            os.dup2(before, fd)
            os.close(before)
        os.close(log)
        if ours is not None:
            ours.close()


def show_traceback(kind: type[BaseException], error: BaseException | None, place: TracebackType | None) -> None:
    """A fault of ours, with everything that helps to find it."""
    if not issubclass(kind, SystemExit | KeyboardInterrupt):
        write("".join(traceback.format_exception(kind, error, place)), error=True)


def console(*, error: bool = False) -> Console:
    """A rich console whose texts pass through this door; what rich adds itself (colours, boxes) stays."""
    from rich.console import Console

    made = Console(
        stderr=error,
        highlight=False,
        markup=False,
        emoji=False,
        width=None if _stream(error).isatty() else WIDE,
    )
    made.push_render_hook(_Door())  # type: ignore[arg-type]  # its base class would import rich
    return made


def show(sheet: Sheet, *, error: bool = False) -> None:
    """Draw a table."""
    from rich.table import Table
    from rich.text import Text

    to = console(error=error)

    def text(written: str) -> Text:
        return Text(fit(visible(written), to.encoding))

    table = Table(title=text(sheet.title) if sheet.title else None, caption=text(sheet.caption) or None)
    for heading in sheet.headings:
        table.add_column(text(heading), justify="right" if heading in sheet.right else "left")
    for row in sheet.rows:
        table.add_row(*map(text, row))
    to.print(table)


def show_line(mark: str, style: str, name: str, detail: str) -> None:
    """A mark in its colour, a name and what is said of it, wrapped beside them."""
    from rich.table import Table
    from rich.text import Text

    to = console()
    line = Table.grid(padding=(0, 1))
    cells = (Text(fit(visible(cell), to.encoding)) for cell in (mark, f"{name:<14}", detail))
    line.add_row(*cells)
    line.columns[0].style = style
    to.print(line)


@contextmanager
def at_work(stage: str) -> Iterator[ReportWork]:
    """A bar on standard error, gone at the end; nothing is drawn where that is no terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    to = console(error=True)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=to,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        disable=not to.is_terminal,
    )
    with bar:
        task = bar.add_task(stage, total=None)
        yield lambda stage, done, total: bar.update(task, description=one_line(stage), completed=done, total=total)


class _Door:
    """Makes the text of everything that a rich console draws visible."""

    def process_renderables(self, renderables: list[Any]) -> list[Any]:
        return [_Passed(renderable) for renderable in renderables]


@dataclass(frozen=True, slots=True)
class _Passed:
    renderable: Any

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.segment import Segment

        for text, style, control in console.render(self.renderable, options):
            yield Segment(text if control else fit(visible(text), console.encoding), style, control)


def _leads_to(fd: int, stream: TextIO) -> bool:
    try:
        return stream.fileno() == fd
    except (OSError, ValueError):
        return False


def _flush(*streams: TextIO) -> None:
    for stream in streams:
        with suppress(OSError, ValueError):
            stream.flush()


def _stream(error: bool) -> TextIO:
    return sys.stderr if error else sys.stdout


def _encoding(stream: TextIO) -> str:
    return getattr(stream, "encoding", None) or "utf-8"


def _escape(character: str) -> str:
    pairs = character.encode("utf-16-be").hex()
    return "".join(f"\\u{pairs[i : i + 4]}" for i in range(0, len(pairs), 4))
