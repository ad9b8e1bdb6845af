"""The folder of past runs: names that sort, bounds that hold, and files that other programs take away."""

import os
import stat
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from recorded import full_events, full_trace, trace_of

from specdec_tui.traces import store as store_module
from specdec_tui.traces.files import read_trace
from specdec_tui.traces.format import Trace, TraceError
from specdec_tui.traces.store import TraceStore, default_folder


def at(second: int, prompt: str = "Why?") -> Trace:
    return trace_of(full_events(), prompt, second=second)


def test_a_name_says_when_and_what(tmp_path: Path) -> None:
    path = TraceStore(tmp_path).save(full_trace("Why is the sky blue?\n\nIn ONE sentence, please; it has to be short."))
    assert path.name == "2026-11-28T12-00-00-why-is-the-sky-blue-in-one-sentence.jsonl"
    assert read_trace(path).header.prompt.startswith("Why is")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("prompt", ["", "   ", "空はなぜ青いのですか", "../../etc/passwd", "x" * 500, "a/b\\c\0d\n"])
def test_any_prompt_gives_a_name_inside_the_folder(prompt: str, tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces")
    path = store.save(full_trace(prompt))
    assert path.parent == tmp_path / "traces" and len(path.name) < 80
    assert [entry.path for entry in store.entries()] == [path]


def test_a_hostile_date_stays_inside_the_folder(tmp_path: Path) -> None:
    trace = full_trace()
    header = type(trace.header)("../../../tmp/evil", "0", "p")
    path = TraceStore(tmp_path).save(Trace(header, trace.events))
    assert path.parent == tmp_path and path.is_file()


def test_two_traces_of_the_same_second_and_prompt_are_both_kept_in_their_order(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    paths = [store.save(at(0)) for _ in range(3)]
    for age, path in enumerate(paths):
        os.utime(path, ns=(age * 10**9, age * 10**9))
    assert len(set(paths)) == 3
    assert [entry.path for entry in store.entries()] == paths[::-1]


def test_entries_come_newest_first_with_their_header_or_the_reason(tmp_path: Path) -> None:
    store = TraceStore(tmp_path)
    store.save(at(1, "old"))
    (tmp_path / "2026-11-28T12-00-02-broken.jsonl").write_text("{}\n")
    store.save(at(3, "new"))
    (tmp_path / "notes.txt").write_text("not mine")
    (tmp_path / "folder.jsonl").mkdir()
    entries = store.entries()
    assert [entry.header.prompt if entry.header else entry.problem.split(":")[-3] for entry in entries] == [
        "new",
        " not a trace",
        "old",
    ]
    assert all(entry.size > 0 for entry in entries)


def test_the_oldest_go_when_there_are_too_many(tmp_path: Path) -> None:
    store = TraceStore(tmp_path, most_files=3)
    for second in range(6):
        store.save(at(second, f"p{second}"))
    assert [entry.header.prompt for entry in store.entries() if entry.header] == ["p5", "p4", "p3"]


def test_the_oldest_go_when_they_are_too_big_but_never_the_newest(tmp_path: Path) -> None:
    size = TraceStore(tmp_path / "one").save(at(0, "p0")).stat().st_size
    store = TraceStore(tmp_path / "many", most_bytes=2 * size + 10)
    for second in range(4):
        store.save(at(second, f"p{second}"))
    assert [entry.header.prompt for entry in store.entries() if entry.header] == ["p3", "p2"]
    tiny = TraceStore(tmp_path / "many", most_bytes=1)
    newest = tiny.save(at(9, "p9"))
    assert [entry.path for entry in tiny.entries()] == [newest]


def test_a_trace_older_than_all_others_survives_its_own_saving(tmp_path: Path) -> None:
    store = TraceStore(tmp_path, most_files=2)
    for second in (5, 6):
        store.save(at(second))
    assert store.save(at(1)).is_file()


def test_only_traces_of_the_folder_can_be_deleted(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / "traces")
    path = store.save(at(0))
    outside, note = tmp_path / "other.jsonl", tmp_path / "traces" / "note.txt"
    outside.write_text("{}")
    note.write_text("mine")
    for wrong in (outside, note, tmp_path / "traces" / ".." / "other.jsonl"):
        with pytest.raises(TraceError, match="not deleted"):
            store.delete(wrong)
    assert outside.exists() and note.exists()
    store.delete(path)
    store.delete(path)  # gone already, e.g. by another program
    assert store.entries() == []


def test_a_folder_that_is_not_there_is_empty(tmp_path: Path) -> None:
    assert TraceStore(tmp_path / "none").entries() == []


def test_a_file_that_vanishes_while_the_list_is_made_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = TraceStore(tmp_path)
    kept, gone = store.save(at(0)), store.save(at(1))
    reading = store_module.read_header

    def vanishing(path: Path) -> object:
        gone.unlink(missing_ok=True)
        return reading(path)

    monkeypatch.setattr(store_module, "read_header", vanishing)
    assert [entry.path for entry in store.entries()] == [kept]


def test_a_file_that_another_program_has_just_reserved_is_not_listed_as_damaged(tmp_path: Path) -> None:
    file = tmp_path / "2026-11-28T12-00-00-why.jsonl"
    file.touch()
    assert TraceStore(tmp_path).entries() == []
    os.utime(file, (0, 0))  # nobody takes so long to fill it
    (entry,) = TraceStore(tmp_path).entries()
    assert "the file is empty" in entry.problem


def test_a_folder_that_cannot_be_made_is_said_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(TraceError, match=r"cannot keep the trace in .*: Not a directory"):
        TraceStore(tmp_path / "file" / "traces").save(at(0))


def test_a_save_that_fails_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, mode: str) -> object:
        os.close(descriptor)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    with pytest.raises(TraceError, match="No space left on device"):
        TraceStore(tmp_path).save(at(0))
    assert list(tmp_path.iterdir()) == []


def test_a_file_system_without_links_keeps_traces_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    store = TraceStore(tmp_path)
    paths = {store.save(at(0)) for _ in range(3)}
    assert len(paths) == 3 and {entry.path for entry in store.entries()} == paths
    assert {path.name for path in paths} == {path.name for path in tmp_path.iterdir()}


def test_programs_that_save_and_delete_at_once_lose_nothing_and_see_no_half_trace(tmp_path: Path) -> None:
    def work(number: int) -> list[str]:
        store, problems = TraceStore(tmp_path, most_files=5), []
        for count in range(40):
            store.save(at(count % 3, f"p{number}"))
            entries = store.entries()
            problems += [entry.problem for entry in entries if entry.header is None]
            if count % 7 == 0 and entries:
                store.delete(entries[0].path)
        return problems

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(work, range(3))) == [[], [], []]
    assert len(list(tmp_path.iterdir())) <= 5 + 3


def test_the_folder_can_be_named_by_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPECDEC_TUI_DATA_DIR", str(tmp_path))
    assert default_folder() == tmp_path / "traces" and TraceStore().folder == tmp_path / "traces"
    monkeypatch.delenv("SPECDEC_TUI_DATA_DIR")
    assert default_folder().name == "traces" and "specdec-tui" in str(default_folder())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda folder: None, ""),
        (lambda folder: folder.mkdir(), ""),
        (lambda folder: folder.write_text("a file"), "is no folder"),
        (lambda folder: folder.symlink_to(folder.with_name("nowhere")), ""),  # it will lead to the new folder
        (lambda folder: folder.symlink_to("/dev/null"), "is no folder"),
    ],
)
def test_a_folder_that_can_hold_nothing_says_why(make: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    make(tmp_path / "data")
    store = TraceStore(tmp_path / "data" / "traces")
    assert store.problem.endswith(message) and bool(store.problem) == bool(message)
    assert store.entries() == []
    if message:
        with pytest.raises(TraceError, match="cannot keep the trace in "):
            store.save(at(0))
    else:
        assert store.save(at(0)).is_file()


def test_a_folder_without_rights_or_room_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = TraceStore(tmp_path)
    for lacking, message in ((os.W_OK, "may not be written into"), (os.R_OK, "may not be read")):
        monkeypatch.setattr(os, "access", lambda path, rights, lacking=lacking: not rights & lacking)
        assert store.problem == f"{tmp_path} {message}"
    monkeypatch.undo()
    full = os.statvfs_result([0] * 10)
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert store.problem == f"{tmp_path} is on a disk that is full"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_folder_within_one_that_is_closed_says_so(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    store = TraceStore(tmp_path / "closed" / "data" / "traces")
    assert store.problem == f"{store.folder}: {tmp_path / 'closed'} may not be read"
    assert store.entries() == []
    with pytest.raises(TraceError, match=r"cannot keep the trace in .*: Permission denied"):
        store.save(at(0), over=store.folder / "begun.jsonl")


def test_a_folder_whose_name_is_too_long_says_why(tmp_path: Path) -> None:
    store = TraceStore(tmp_path / ("long" * 100))
    assert store.problem == ""  # what is missing would be made
    with pytest.raises(TraceError, match=r"cannot keep the trace in .*: File name too long"):
        store.save(at(0), over=store.folder / "begun.jsonl")
