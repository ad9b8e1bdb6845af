"""The one door for files on the way in: a regular file or a link to one, of a bounded size.

A pipe would wait for its writer for ever, `/dev/zero` never ends, and opening a device may already
do something. So what is there is asked first, opened without waiting, and asked again.

All errors are OSError; its `strerror` says in a few words what is wrong.
"""

from __future__ import annotations

import codecs
import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO

MEGABYTE = 2**20

_KINDS = (
    (stat.S_ISDIR, errno.EISDIR, "it is a folder, not a file"),
    (stat.S_ISFIFO, errno.EINVAL, "it is a pipe, not a file"),
    (stat.S_ISSOCK, errno.EINVAL, "it is a socket, not a file"),
    (stat.S_ISCHR, errno.EINVAL, "it is a device, not a file"),
    (stat.S_ISBLK, errno.EINVAL, "it is a device, not a file"),
)
# Of these only the first is known to every system.
_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
_MARKS = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))


def refuse_other_kinds(status: os.stat_result, path: Path) -> None:
    """OSError unless `status` is that of a regular file."""
    for is_kind, number, words in _KINDS:
        if is_kind(status.st_mode):
            raise OSError(number, words, str(path))
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))


def status_of(path: Path) -> os.stat_result:
    """What is at `path`, links followed. OSError also for a name that no file can have."""
    try:
        return os.stat(path)
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None


def opened(path: Path) -> BinaryIO:
    """A regular file, for reading bytes. Whoever reads it bounds what is read."""
    refuse_other_kinds(status_of(path), path)
    file = os.fdopen(os.open(path, _FLAGS), "rb")
    try:
        refuse_other_kinds(os.fstat(file.fileno()), path)  # another may have taken its place since
    except BaseException:
        file.close()
        raise
    return file


def read_bytes(path: Path, *, most: int) -> bytes:
    """A whole file of at most `most` bytes."""
    with opened(path) as file:
        content = _read(file, most + 1, path)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is longer than {_size(most)}", str(path))
    return content


def read_end(path: Path, *, most: int) -> tuple[bytes, bool]:
    """The last `most` bytes of a file, and whether there are more before them."""
    with opened(path) as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - most))
        return _read(file, most, path), size > most


def read_text(path: Path, *, most: int) -> str:
    """A whole text of at most `most` bytes: UTF-8, or what a byte order mark names."""
    content = read_bytes(path, most=most)
    encoding = next((name for mark, name in _MARKS if content.startswith(mark)), "utf-8")
    try:
        return content.decode(encoding)
    except UnicodeDecodeError as error:
        raise OSError(errno.EILSEQ, f"it is not UTF-8 text: {error.reason} at byte {error.start}", str(path)) from None


def is_null_device(path: Path) -> bool:
    """Whether `path` is the device that holds nothing, by which people say "no file"."""
    try:
        return os.path.samefile(path, os.devnull)
    except (OSError, ValueError):
        return False


def _read(file: BinaryIO, most: int, path: Path) -> bytes:
    content: bytes | None = file.read(most)
    if content is None:  # a file of the kernel's that waits for something
        raise OSError(errno.EAGAIN, "it has nothing to read yet", str(path))
    return content


def _size(count: int) -> str:
    return f"{count // MEGABYTE} MB" if count >= MEGABYTE else f"{count // 1024} kB"
