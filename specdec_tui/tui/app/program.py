"""The app as a program: the terminal it is given, and how it is left."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

from specdec_tui.doors import output
from specdec_tui.doors.writing import log_file
from specdec_tui.traces.format import TraceError
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.engine_thread import one_line
from specdec_tui.tui.app.recordings import WRITES, Replay
from specdec_tui.tui.terminal.collector import full_collections_on_request
from specdec_tui.tui.terminal.paste import pastes_kept_whole
from specdec_tui.tui.terminal.terminal import (
    give_back,
    leaving_when_told,
    screen_to_ourselves,
    use_our_driver,
    use_page_driver,
)

if TYPE_CHECKING:
    from specdec_tui.session import Engine
    from specdec_tui.settings import ModelChoice, Settings
    from specdec_tui.tui.commands.keymap import Keymap

ENGINE_SECONDS = 0.4  # for what is at work to tidy up behind itself: all that is to be kept is kept by then
WRITING_SECONDS = 10.0  # for what is still to be kept


def run_app(
    engine: Engine,
    settings: Settings,
    choice: ModelChoice,
    prompt: str = "",
    replay: Replay | None = None,
    keymap: Keymap | None = None,
    tour: bool = False,
    in_page: bool = False,
) -> NoReturn:
    """Open the app, on a pair or on a trace, and stay until it is left; the process ends here, with the exit status.

    `in_page`: not in a terminal but in a web page, whose server has our standard input and output.

    A load cannot be interrupted inside a library, and taking torch and its threads down costs seconds:
    once all is written, nothing is waited for.
    """
    app = SpecdecApp(engine, settings, choice, prompt, replay, keymap, tour)
    app.error_console = output.console(error=True)
    (use_page_driver if in_page else use_our_driver)(app)
    with leaving_when_told(lambda status: app.exit(return_code=status), lambda: give_back(app)):
        try:
            with (
                screen_to_ourselves(log_file(), 1 if in_page else None),
                full_collections_on_request(),
                pastes_kept_whole(),
            ):
                app.run()
        finally:
            give_back(app)
            status = 1 if app.return_code is None else app.return_code
            _keep(app)
            for stream in (sys.stdout, sys.stderr):
                with suppress(OSError, ValueError):
                    stream.flush()
        os._exit(status)


def _keep(app: SpecdecApp) -> None:
    """Nothing is lost that is not finished, not written or not sent; what cannot be kept is told in a line."""
    problems: list[str] = []
    for keep in (keep_unfinished, keep_unsent):
        try:
            problems.append(keep(app))
        except Exception as error:  # of a folder, a disk: the other one may still be kept
            problems.append(one_line(error))
    engine = app.runs.engine
    engine.close()
    engine.join(ENGINE_SECONDS)
    problems += engine.finish(WRITING_SECONDS)
    for thread in threading.enumerate():
        if thread.name == WRITES:
            thread.join(WRITING_SECONDS)
    for problem in dict.fromkeys(problems):
        if problem:
            output.complain(f"not kept: {problem}")


def keep_unfinished(app: SpecdecApp) -> str:
    """A run or what-if that is not finished is not lost with it. Else says in one line what is, and why."""
    if app.runs.run is not None and (problem := app.recordings.keep_unfinished(app.runs.run, app.runs.pair)):
        return problem
    if (what_if := app.what_ifs.unfinished()) is not None:
        try:
            app.recordings.add(*what_if)()
        except TraceError as error:
            return f"the what-if at work: {error}"
    return ""


def keep_unsent(app: SpecdecApp) -> str:
    """Nor is what was not sent."""
    if not hasattr(app, "prompt_box"):  # it has not got so far
        return ""
    return app.texts.keep_unsent(app.prompt_box.text)
