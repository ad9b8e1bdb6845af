from __future__ import annotations

import gc
import weakref
from collections.abc import Callable

import pytest
from shell import make_app, until

from specdec_tui.backends.memory import give_back
from specdec_tui.tui.app import front
from specdec_tui.tui.terminal.collector import (
    begin_a_start,
    collect_everything,
    end_a_start,
    full_collections_on_request,
)


def test_young_objects_are_collected_as_ever_and_full_collections_wait() -> None:
    before = gc.get_threshold()
    with full_collections_on_request():
        assert gc.get_threshold()[:2] == before[:2]
        assert gc.get_threshold()[2] > 100_000
    assert gc.get_threshold() == before


@pytest.mark.parametrize("collect", [collect_everything, give_back])
def test_nothing_is_collected_in_a_start_and_all_with_the_first_full_collection(collect: Callable[[], None]) -> None:
    """That behind a run, or that of a pair which another one takes the place of."""

    class Node:
        pass

    try:
        begin_a_start()
        assert not gc.isenabled()
        node = Node()
        node.itself = node  # type: ignore[attr-defined]
        gone = weakref.ref(node)
        del node
        end_a_start()
        assert gc.isenabled() and gc.get_freeze_count() > 1000
        gc.collect()
        assert gone() is not None
        collect()
        assert gone() is None and gc.get_freeze_count() == 0
        end_a_start()  # no start was begun
        assert gc.get_freeze_count() == 0
    finally:
        gc.enable()
        gc.unfreeze()


async def test_a_full_collection_follows_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(front, "collect_everything", collect_everything)  # which other tests do without
    app = make_app()
    async with app.run_test() as pilot:
        await until(pilot, lambda: app.header.state == "ready")
        before = gc.get_stats()[2]["collections"]
        with full_collections_on_request():
            app.runs.submit("hello", app.prompt_box.accept)
            await until(pilot, lambda: not app.runs.running and gc.get_stats()[2]["collections"] > before)
