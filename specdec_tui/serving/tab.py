"""The process of a tab: `python -m specdec_tui.serving.tab DESCRIPTOR`, of the connection to the models."""

from __future__ import annotations

import os
import sys
from multiprocessing.connection import Connection
from typing import NoReturn

from specdec_tui.config_table import config_file
from specdec_tui.doors import output
from specdec_tui.serving.shared_engine import SharedEngine
from specdec_tui.tui.app.program import run_app
from specdec_tui.tui.commands.keymap import read_keymap


def main() -> NoReturn:
    """The app on the shared models; ends with the process."""
    output.prepare()
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    engine = SharedEngine(Connection(descriptor))
    welcome = engine.welcome()
    keymap, _ = read_keymap(config_file())  # what is wrong in it was told by the server
    run_app(engine, welcome.settings, welcome.choice, keymap=keymap, in_page=True)


if __name__ == "__main__":
    main()
