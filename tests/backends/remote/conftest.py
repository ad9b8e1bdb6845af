"""A server that fails where it is told, a client of it, and waits between tries that no test has to wait for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from faulty_server import FaultyServer
from remote_model import KEY, model

from specdec_tui.backends.remote import tries
from specdec_tui.backends.remote.client import Client


@pytest.fixture
def server() -> Iterator[FaultyServer]:
    with FaultyServer(model) as server:
        yield server


@pytest.fixture
def client(server: FaultyServer) -> Iterator[Client]:
    client = Client(server.url, KEY)
    yield client
    client.close()


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between tries hardly any time passes."""
    monkeypatch.setattr(tries, "_FIRST_WAIT", 0.005)
