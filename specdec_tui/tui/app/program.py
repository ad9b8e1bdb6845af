"""The app as a program: the terminal it is given, and how it is left."""

from __future__ import annotations

import os
import sys

from specdec_tui.doors.output import complain
from specdec_tui.session import Engine
from specdec_tui.settings import ModelChoice, Settings
from specdec_tui.tui.app.app import SpecdecApp
from specdec_tui.tui.app.recordings import Replay
from specdec_tui.tui.terminal.collector import full_collections_on_request
from specdec_tui.tui.terminal.paste import pastes_kept_whole
from specdec_tui.tui.terminal.terminal import leaving_when_told, log_file, screen_to_ourselves


def run_app(
    engine: Engine, settings: Settings, choice: ModelChoice, prompt: str = "", replay: Replay | None = None
) -> int:
    """Open the app, on a pair or on a trace, and stay until it is left; returns the exit status.

    A load cannot be interrupted inside a library, so when one is still at work the process ends
    here, with the terminal restored and the output flushed, instead of waiting for it.
    """
    app = SpecdecApp(engine, settings, choice, prompt, replay)
    with leaving_when_told(lambda status: app.exit(return_code=status)):
        with screen_to_ourselves(log_file()), full_collections_on_request(), pastes_kept_whole():
            app.run()
        status = app.return_code or 0
        if problem := app.keep_unfinished():
            complain(problem)
    app.runs.engine.close()
    if not app.runs.engine.join(timeout=1.0):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return status
