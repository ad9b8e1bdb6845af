"""The door for files on the way in: regular files of a bounded size, and nothing that hangs."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from specdec_tui.doors.reading import opened, read_bytes, read_end, read_text


def a_pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


def a_socket(path: Path) -> Path:
    # A name of a socket is short: bound from within its folder.
    here = os.getcwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)
    return path


def a_link(to: Path) -> Callable[[Path], Path]:
    def make(path: Path) -> Path:
        path.symlink_to(to)
        return path

    return make


NO_FILES: list[tuple[str, Callable[[Path], Path], str]] = [
    ("folder", lambda path: path.parent, "it is a folder"),
    ("pipe", a_pipe, "it is a pipe"),
    ("socket", a_socket, "it is a socket"),
    ("zeros", lambda path: Path("/dev/zero"), "it is a device"),
    ("null", lambda path: Path("/dev/null"), "it is a device"),
    ("link to zeros", a_link(Path("/dev/zero")), "it is a device"),
    ("link to itself", lambda path: a_link(path)(path), "Too many levels"),
    ("zero character", lambda path: Path("a\0b"), "no file can have this name"),
    ("name too long", lambda path: path.with_name("x" * 5000), "too long"),
    ("none", lambda path: path, "No such file"),
]


WAYS: list[Callable[[Path], object]] = [
    lambda path: opened(path).close(),
    lambda path: read_text(path, most=9),
    lambda path: read_end(path, most=9),
]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "read", [lambda p: opened(p).close(), lambda p: read_text(p, most=9), lambda p: read_end(p, most=9)]
)
@pytest.mark.parametrize(("make", "words"), [row[1:] for row in NO_FILES], ids=[row[0] for row in NO_FILES])
def test_what_is_no_regular_file_is_refused_at_once(
    make: Callable[[Path], Path], words: str, read: Callable[[Path], object], tmp_path: Path
) -> None:
    with pytest.raises(OSError, match=words) as error:
        read(make(tmp_path / "it"))
    assert error.value.strerror and words in error.value.strerror


def test_a_link_to_a_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "real").write_text("text")
    assert read_text(a_link(tmp_path / "real")(tmp_path / "link"), most=4) == "text"


def test_a_file_that_is_too_long_is_refused_whatever_its_size_says(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bytes(tmp_path / "a", most=5) == b"12345"
    with pytest.raises(OSError, match="longer than 0 kB"):
        read_bytes(tmp_path / "a", most=4)
    with pytest.raises(OSError, match="longer than"):
        read_bytes(Path("/proc/self/maps"), most=10)  # its size is said to be 0
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(2**40)
    with pytest.raises(OSError, match="longer than 1 MB"):
        read_bytes(tmp_path / "sparse", most=2**20)


def test_the_end_of_a_long_file_is_read_and_it_is_said_that_there_is_more(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_end(tmp_path / "a", most=5) == (b"12345", False)
    assert read_end(tmp_path / "a", most=2) == (b"45", True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le-mark"])
def test_a_byte_order_mark_is_no_part_of_a_text(encoding: str, tmp_path: Path) -> None:
    content = "\ufeffγ = 3\n".encode("utf-16-le") if encoding.endswith("mark") else "γ = 3\n".encode(encoding)
    (tmp_path / "a").write_bytes(content)
    assert read_text(tmp_path / "a", most=100) == "γ = 3\n"


def test_what_is_no_text_is_told_with_its_place(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"ab\xff")
    with pytest.raises(OSError, match="not UTF-8 text: invalid start byte at byte 2"):
        read_text(tmp_path / "a", most=100)
