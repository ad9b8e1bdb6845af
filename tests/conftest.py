"""What every test may rely on, wherever the suite is started."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest


def pytest_configure() -> None:
    """Signals act as from a terminal: what is started under `nohup` or in a shell's background ignores some of them."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def device() -> Iterator[Path]:
    """A character device that nobody can replace: not even root, by a fault of ours, as the machine's `/dev/null`."""
    ends = os.openpty()
    yield Path(os.ttyname(ends[1]))
    for end in ends:
        os.close(end)
