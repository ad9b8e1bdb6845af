"""A run is in the folder strategy by strategy, so that a process that is killed loses only what was at work."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from recorded import comparison, long_events, trace_of

from specdec_tui.decoding.records import Checked, Event, Lossless, LosslessStatus, RunEnded, Step
from specdec_tui.doors import writing
from specdec_tui.traces.files import read_header, read_trace
from specdec_tui.traces.format import TraceError
from specdec_tui.traces.journal import Journal
from specdec_tui.traces.store import TraceStore

FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def parts(*strategies: str) -> list[Event]:
    return [event for name in strategies for event in long_events(name, 5)]


def begun(folder: Path, problems: list[str] | None = None) -> Journal:
    header = trace_of((), "Why?").header
    return Journal(TraceStore(folder), header, ("target", "lookup"), [].append if problems is None else problems.append)


def test_each_strategy_is_written_as_it_ends_and_the_whole_takes_its_place(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    events = parts("target", "lookup", "ngram")
    for event in events:
        journal.take(event)
        ended = [e.strategy for e in events[: events.index(event) + 1] if isinstance(e, Step) and e.record == RunEnded]
        files = list(tmp_path.iterdir())
        assert not files or read_trace(files[0]).strategies[: len(ended)] == ended
    (entry,) = TraceStore(tmp_path).entries()
    assert read_trace(entry.path).events == tuple(events)
    assert entry.header is not None and entry.header.strategies["lookup"]["finish_reason"] is None  # "not ended"
    journal.settle(trace_of(tuple(events)))
    journal.settle(comparison())  # only the first counts
    journal.take(events[-1])
    assert [file.name for file in tmp_path.iterdir()] == [entry.path.name]
    assert read_trace(entry.path) == trace_of(tuple(events))


def test_strategies_that_take_turns_are_told_apart(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    pairs = zip(long_events("target", 5), long_events("lookup", 5), strict=False)
    for event in [event for pair in pairs for event in pair]:
        journal.take(event)
    (path,) = tmp_path.iterdir()
    assert read_trace(path).strategies == ["target"]  # the other one was still at work


@pytest.mark.parametrize("cut", [1, 7, 200, 3000])
def test_what_was_written_whole_is_read_where_a_kill_cut_the_last_line(cut: int, tmp_path: Path) -> None:
    journal = begun(tmp_path)
    for event in parts("target", "lookup"):
        journal.take(event)
    (path,) = tmp_path.iterdir()
    whole = read_trace(path)
    os.truncate(path, path.stat().st_size - cut)
    cut_off = read_trace(path)
    assert 0 < len(cut_off.events) <= len(whole.events) and cut_off.strategies == ["target", "lookup"]
    assert cut_off.events == whole.events[: len(cut_off.events)]


def test_a_full_disk_is_told_once_for_each_part_and_leaves_what_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems: list[str] = []
    journal = begun(tmp_path, problems)
    for event in parts("target"):
        journal.take(event)
    (path,) = tmp_path.iterdir()
    before = path.read_bytes()
    write = os.write

    class Full:
        """A file whose disk takes some bytes and no more."""

        def __init__(self, descriptor: int, *_: object, **__: object) -> None:
            self._file = open(descriptor, "r+b", buffering=0)  # noqa: SIM115
            self.room = 100

        def __enter__(self) -> Full:
            return self

        def __exit__(self, *_: object) -> None:
            self._file.close()

        def write(self, content: bytes) -> int:
            if not self.room:
                raise FULL
            done = write(self._file.fileno(), content[: self.room])
            self.room -= done
            return done

        def __getattr__(self, name: str) -> object:
            return getattr(self._file, name)

    with monkeypatch.context() as full:
        full.setattr("specdec_tui.doors.writing.os.fdopen", Full)
        for event in parts("lookup"):
            journal.take(event)
    assert problems == [f"cannot keep the trace in {tmp_path}: No space left on device"]
    assert path.read_bytes() == before and read_trace(path).strategies == ["target"]
    journal.settle(comparison())  # there is room again
    assert read_trace(path) == comparison()


def test_of_a_strategy_that_is_not_in_the_file_nothing_else_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Room for a line was left where there was none for a run: the file, and the run in it, could not be opened."""

    def refuse(*_: object, **__: object) -> None:
        raise FULL

    problems: list[str] = []
    journal = begun(tmp_path, problems)
    for event in parts("target"):
        journal.take(event)
    with monkeypatch.context() as full:
        full.setattr(writing, "append", refuse)
        for event in parts("lookup"):
            journal.take(event)
    checked = [Checked(name, Lossless(LosslessStatus.IDENTICAL)) for name in ("target", "lookup")]
    for each in checked:
        journal.take(each)
    (path,) = tmp_path.iterdir()
    assert len(problems) == 1
    assert read_trace(path).events == (*parts("target"), checked[0])


def test_a_run_that_cannot_be_kept_goes_on_and_its_end_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise FULL

    monkeypatch.setattr(writing, "place", refuse)
    problems: list[str] = []
    journal = begun(tmp_path, problems)
    for event in parts("target", "lookup"):
        journal.take(event)
    assert problems and list(tmp_path.iterdir()) == []
    with pytest.raises(TraceError, match="No space left on device"):
        journal.settle(comparison())


def test_a_run_that_is_deleted_meanwhile_does_not_come_back_in_parts(tmp_path: Path) -> None:
    journal = begun(tmp_path)
    for event in parts("target"):
        journal.take(event)
    (path,) = tmp_path.iterdir()
    path.unlink()
    for event in parts("lookup"):
        journal.take(event)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_process_leaves_what_had_ended(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from recorded import *\n"
        "from test_journal import begun, parts\n"
        "journal = begun(Path(sys.argv[1]))\n"
        "for event in parts('target', 'lookup')[:-1]: journal.take(event)\n"
        "print('ready', flush=True); time.sleep(60)\n"
    )
    paths = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGKILL)
    (path,) = tmp_path.iterdir()
    assert read_trace(path).strategies == ["target"]
    assert read_header(path).strategies["target"] == {"finish_reason": None}
    assert time.time() - path.stat().st_mtime < 60
