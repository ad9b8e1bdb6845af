"""The door for files on the way out: whole files, links kept, and devices, pipes and folders left as they are."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from io import FileIO
from pathlib import Path

import pytest

from specdec_tui.doors import writing


def append(path: Path) -> None:
    writing.append(path, b"new\n")


def log(path: Path) -> None:
    os.close(writing.log_descriptor(path, most=10))


WAYS: list[Callable[[Path], None]] = [lambda path: writing.place(path, ["new\n"]), append, log]


@pytest.mark.timeout(20)
@pytest.mark.parametrize("write", WAYS, ids=["place", "append", "log"])
@pytest.mark.parametrize("link", [False, True])
@pytest.mark.parametrize("kind", ["device", "pipe", "folder"])
def test_what_is_no_regular_file_stays_as_it_is(
    kind: str, link: bool, write: Callable[[Path], None], tmp_path: Path, device: Path
) -> None:
    path = {"device": device, "pipe": tmp_path / "pipe", "folder": tmp_path / "folder"}[kind]
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    before = os.stat(path)
    if link:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    with pytest.raises(OSError, match=f"it is a {kind}, not a file"):
        write(path)
    after = os.stat(path)
    assert (after.st_ino, after.st_mode, after.st_rdev) == (before.st_ino, before.st_mode, before.st_rdev)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".new")] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make devices, and replace them")
def test_a_device_in_a_folder_of_ones_own_is_not_replaced_either(tmp_path: Path) -> None:
    path = tmp_path / "null"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("no devices here")
    with pytest.raises(OSError, match="it is a device"):
        writing.place(path, ["new"])
    assert stat.S_ISCHR(path.stat().st_mode)


def test_a_file_is_replaced_as_a_whole_and_keeps_its_rights(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")
    path.chmod(0o640)

    def parts() -> Iterator[str]:
        yield "ne"
        assert path.read_text() == "old"
        yield "w\ud83d"

    writing.place(path, parts())
    assert path.read_bytes() == b"new?"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_text("old")

    def parts() -> Iterator[str]:
        yield "half"
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        writing.place(path, parts())
    assert path.read_text() == "old" and [p.name for p in tmp_path.iterdir()] == ["a"]


def test_a_new_file_is_its_owners_alone_unless_it_is_to_be_shared(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        writing.place(tmp_path / "new" / "private", ["x"])
        writing.place(tmp_path / "new" / "shared", ["x"], mode=writing.SHARED)
    finally:
        os.umask(before)
    rights = {p.name: stat.S_IMODE(p.stat().st_mode) for p in (tmp_path / "new").iterdir()}
    assert rights == {"private": 0o600, "shared": 0o644}


def test_links_stay_links_also_those_that_lead_nowhere_yet(tmp_path: Path) -> None:
    (tmp_path / "to").symlink_to("there")
    (tmp_path / "link").symlink_to("to")
    for text in ("one", "two"):
        writing.place(tmp_path / "link", [text])
        assert (tmp_path / "link").is_symlink() and (tmp_path / "to").is_symlink()
        assert (tmp_path / "there").read_text() == text


def test_where_a_file_cannot_be_replaced_its_content_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As with a file that is mounted by itself into a container."""
    path = tmp_path / "a"
    path.write_text("old and longer")

    def busy(*paths: object) -> None:
        raise OSError(16, "Device or resource busy")

    monkeypatch.setattr(os, "replace", busy)
    writing.place(path, ["new"])
    assert path.read_text() == "new" and [p.name for p in tmp_path.iterdir()] == ["a"]
    with pytest.raises(OSError, match="busy"):
        writing.place(tmp_path / "b", ["new"])


def test_a_full_disk_leaves_what_was_there_also_where_it_cannot_be_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a"
    path.write_text("old and longer")
    overwrite = writing._overwrite

    def busy(*paths: object) -> None:
        raise OSError(16, "Device or resource busy")

    def full(file: FileIO, content: bytes) -> None:
        overwrite(file, content[:3] + b"and longer than it was")
        if content.startswith(b"new"):
            raise OSError(28, "No space left on device")
        overwrite(file, content)

    monkeypatch.setattr(os, "replace", busy)
    monkeypatch.setattr(writing, "_overwrite", full)
    with pytest.raises(OSError, match="No space"):
        writing.place(path, ["new"])
    assert path.read_text() == "old and longer"


def test_lines_are_appended_behind_one_that_was_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a"
    append(path)
    path.write_bytes(b"whole\nhal")
    append(path)
    assert path.read_bytes() == b"whole\nhal\nnew\n"


def test_a_log_is_begun_anew_when_it_is_long(tmp_path: Path) -> None:
    path = tmp_path / "logs" / "a"
    log(path)
    path.write_text("12345678901")
    log(path)
    assert path.read_text() == ""
    path.write_text("123")
    log(path)
    assert path.read_text() == "123"


def test_a_device_takes_what_is_sent_to_it(device: Path) -> None:
    writing.send(device, ["x"])
    writing.check(device)
    assert stat.S_ISCHR(os.stat(device).st_mode)


@pytest.mark.timeout(20)
def test_what_could_not_be_written_is_known_before(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for bad in (tmp_path, tmp_path / "none" / "a", tmp_path / "pipe", Path("a\0b")):
        with pytest.raises(OSError):
            writing.check(bad)
    writing.check(tmp_path / "a")
    assert not (tmp_path / "a").exists()


def test_what_a_killed_writer_left_is_swept_when_it_is_old_and_nothing_else(tmp_path: Path) -> None:
    script = (
        "import os, signal\n"
        "from pathlib import Path\n"
        "from specdec_tui.doors import writing\n"
        "def parts():\n"
        "    yield b'half' * 100_000\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
        f"writing.place(Path({str(tmp_path)!r}, 'trace.jsonl'), parts())\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    others = [tmp_path / name for name in (".notes.new", "0123456789abcdef.new", ".0123456789abcdef.new.txt")]
    for path in others:
        path.write_text("of others")
        os.utime(path, (0, 0))
    (folder := tmp_path / ".fedcba9876543210.new").mkdir()
    os.utime(folder, (0, 0))
    writing.sweep(tmp_path)
    assert left.exists()  # its writer may still be at work
    os.utime(left, (left.stat().st_mtime - 2 * writing.OLD_SECONDS,) * 2)
    writing.sweep(tmp_path)
    assert {*tmp_path.iterdir()} == {*others, folder}


def test_writing_into_a_folder_sweeps_it(tmp_path: Path) -> None:
    left = tmp_path / ".0123456789abcdef.new"
    left.write_text("half")
    os.utime(left, (0, 0))
    writing.place(tmp_path / "report.html", ["whole"])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]
