"""What every test may rely on, wherever the suite is started."""

import signal


def pytest_configure() -> None:
    """Signals act as from a terminal: what is started under `nohup` or in a shell's background ignores some of them."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
