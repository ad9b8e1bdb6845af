"""Who is next."""

from __future__ import annotations

import threading

from specdec_tui.serving.turns import Turn, Turns


def test_turns_come_in_the_order_in_which_they_were_taken_and_what_gives_way_behind_all() -> None:
    turns, done = Turns(), list[str]()
    turns.take(Turn(lambda: done.append("ahead"), gives_way=True))
    for name in "abc":
        turns.take(Turn(lambda name=name: done.append(name)))  # type: ignore[misc]
    turns.take(Turn(turns.close, gives_way=True))
    turns.work()
    assert done == ["a", "b", "c", "ahead"]


def test_everyone_in_line_hears_how_many_come_before_whenever_that_changes() -> None:
    turns = Turns()
    heard: dict[str, list[int]] = {name: [] for name in "abc"}
    begun, go_on = threading.Semaphore(0), threading.Semaphore(0)

    def work() -> None:
        begun.release()
        assert go_on.acquire(timeout=30)

    made = {name: Turn(work, heard[name].append) for name in "abc"}
    worker = threading.Thread(target=turns.work)
    worker.start()
    turns.take(made["a"])
    assert begun.acquire(timeout=30)
    turns.take(made["b"])
    turns.take(made["c"])
    assert heard == {"a": [], "b": [1], "c": [2]}
    assert turns.withdraw(made["b"]) and not turns.withdraw(made["b"]) and not turns.withdraw(made["a"])
    assert heard["c"] == [2, 1]
    turns.close()
    go_on.release()
    worker.join(30)
    assert not worker.is_alive() and not begun.acquire(blocking=False)


def test_nobody_is_said_to_wait_for_what_gives_way_and_that_is_told_to_do_so() -> None:
    turns, heard = Turns(), list[int]()
    begun, saw = threading.Event(), list[bool]()

    def ahead() -> None:
        saw.append(turns.must_give_way)
        begun.set()
        while not turns.must_give_way:
            pass
        saw.append(turns.must_give_way)

    worker = threading.Thread(target=turns.work)
    worker.start()
    turns.take(Turn(ahead, gives_way=True))
    assert begun.wait(30)
    turns.take(Turn(turns.close, heard.append))
    worker.join(30)
    assert not heard and saw == [False, True]
