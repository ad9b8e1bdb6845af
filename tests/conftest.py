"""What every test may rely on, wherever the suite is started."""

import gc
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from covering import leave_out_repeated_values

from specdec_tui.backends import agreed

# Numba's first threads are as many as there are cores unless told, and are torch's from then on: two that wait for one
# another at every small product, where `make test` has asked for one, cost several times what the product does.
if "OMP_NUM_THREADS" in os.environ:
    os.environ.setdefault("NUMBA_NUM_THREADS", os.environ["OMP_NUM_THREADS"])


def pytest_configure() -> None:
    """Signals act as from a terminal: what is started under `nohup` or in a shell's background ignores some of them."""
    for number in (signal.SIGHUP, signal.SIGQUIT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    agreed._FOLDER = os.devnull  # no trial is remembered: faults are planted in what was tried before


@pytest.fixture
def device() -> Iterator[Path]:
    """A character device that nobody can replace: not even root, by a fault of ours, as the machine's `/dev/null`."""
    ends = os.openpty()
    yield Path(os.ttyname(ends[1]))
    for end in ends:
        os.close(end)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A snapshot of a test that is left out counts as unused, and a run in which all tests pass ends with status 1."""
    leave_out_repeated_values(items)
    for item in items:
        if item.get_closest_marker("large") and "snap_compare" in getattr(item, "fixturenames", ()):
            raise pytest.UsageError(f"{item.nodeid}: a test with a snapshot is never left out, so it cannot be large")


@pytest.fixture(scope="module", autouse=True)
def _young_heap() -> None:
    """What was imported and made before these tests is not walked again by each full collection of each app.

    An app leaves many objects behind: at Python's own threshold a third of its time goes into collecting them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 10, 20)
