"""The one door for files on the way out: whole or not at all, and never in place of a device, pipe or folder.

Links are followed and stay links. All errors are OSError; its `strerror` says in a few words what is wrong.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from io import FileIO
from pathlib import Path
from time import time

import platformdirs

from specdec_tui.doors.reading import refuse_other_kinds

LOG_BYTES = 1 << 20
PRIVATE, SHARED = 0o600, 0o666
"""Who may read a new file: its owner, or whom the umask lets."""

OLD_SECONDS = 60.0
"""Nobody works on a file that is not whole yet for so long without writing to it."""

_UNNAMED = re.compile(r"\.[0-9a-f]{16}\.new")

_FLAGS = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))
# A folder that one may not write to, and a file that is mounted by itself: what is in the file can still be changed.
_IN_PLACE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV)


def place(path: Path, parts: Iterable[str | bytes], *, mode: int = PRIVATE) -> None:
    """Put a file at `path` that is there only once it is whole; one that is there is replaced and keeps its rights.

    Text is UTF-8; half characters (lone surrogates), which no file can hold, become question marks.
    """
    path, before = _settled(path)
    if before is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "the file is read-only", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    sweep(path.parent)
    temporary = unnamed_in(path.parent)
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, mode)
    except OSError as error:
        if before is None or error.errno not in _IN_PLACE:
            raise
        _fill(path, parts)
        return
    try:
        with os.fdopen(descriptor, "wb") as file:
            if before is not None:
                _keep_rights(descriptor, before)
            file.writelines(map(_bytes, parts))
        _move(temporary, path, before)
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def unnamed_in(folder: Path) -> Path:
    """A new name for a file that is not whole yet. Hidden, and with an end of its own: no list of files shows it."""
    return folder / f".{os.urandom(8).hex()}.new"


def sweep(folder: Path) -> None:
    """Delete what writers who were killed left in a folder: files under such names that nobody has written to lately.

    By their age, as a folder may be shared with other machines, whose processes nobody can ask for here.
    """
    with suppress(OSError), os.scandir(folder) as scan:
        for item in scan:
            if _UNNAMED.fullmatch(item.name):
                with suppress(OSError):
                    status = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and time() - status.st_mtime > OLD_SECONDS:
                        os.unlink(item.path)


def send(path: Path, parts: Iterable[str | bytes]) -> None:
    """Like `place` for a file all may read; a character device (`/dev/stdout`) gets it instead of being refused."""
    if is_character_device(path):
        with os.fdopen(os.open(path, os.O_WRONLY | _FLAGS & ~getattr(os, "O_NONBLOCK", 0)), "wb") as device:
            device.writelines(map(_bytes, parts))
    else:
        place(path, parts, mode=SHARED)


def fill(descriptor: int, parts: Iterable[str | bytes]) -> None:
    """Write all of `parts` into a file that is open, and close it."""
    with os.fdopen(descriptor, "wb") as file:
        file.writelines(map(_bytes, parts))


def append(path: Path, content: bytes) -> None:
    """Add whole lines to a private file, all or none, behind what someone who was killed left of one."""
    with os.fdopen(_descriptor(path, os.O_RDWR | os.O_APPEND | os.O_CREAT), "r+b", buffering=0) as file:
        begun = False
        if size := file.seek(0, os.SEEK_END):
            file.seek(-1, os.SEEK_END)
            begun = file.read(1) != b"\n"
        content = b"\n" * begun + content
        try:
            while content:
                content = content[file.write(content) :]
        except OSError:  # the disk is full
            file.truncate(size)
            raise


def log_file() -> Path:
    """Where the output of libraries goes."""
    return platformdirs.user_log_path("specdec-tui") / "output.log"


def log_descriptor(path: Path, *, most: int = LOG_BYTES) -> int:
    """A file descriptor that appends to a private file, which is begun anew when it is longer than `most` bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = _descriptor(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    if os.fstat(descriptor).st_size > most:
        os.ftruncate(descriptor, 0)
    return descriptor


def log_or_nowhere(path: Path) -> int:
    """The same, or one that leads nowhere where the log cannot be written."""
    try:
        return log_descriptor(path)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def check(path: Path) -> None:
    """OSError where `send` could not write: minutes of work before it must not be lost."""
    if is_character_device(path):
        if not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return
    path, before = _settled(path)
    os.close(os.open(path, os.O_WRONLY | _FLAGS | (os.O_CREAT | os.O_EXCL if before is None else 0), SHARED))
    if before is None:
        os.unlink(path)


def is_character_device(path: Path) -> bool:
    try:
        return stat.S_ISCHR(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _settled(path: Path) -> tuple[Path, os.stat_result | None]:
    """Where a link leads, and what is there. OSError where that is no regular file."""
    try:
        path = Path(os.path.realpath(path))
        status = os.stat(path)
    except FileNotFoundError:
        return path, None
    except ValueError:
        raise OSError(errno.EINVAL, "no file can have this name", str(path)) from None
    refuse_other_kinds(status, path)
    return path, status


def _descriptor(path: Path, flags: int) -> int:
    path, _ = _settled(path)
    descriptor = os.open(path, flags | _FLAGS, PRIVATE)
    try:
        refuse_other_kinds(os.fstat(descriptor), path)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _keep_rights(descriptor: int, before: os.stat_result) -> None:
    if hasattr(os, "fchown"):
        with suppress(OSError):  # another's file, in a group of its own
            os.fchown(descriptor, before.st_uid, before.st_gid)
        with suppress(OSError):  # a file system without rights
            os.fchmod(descriptor, before.st_mode & 0o777)


def _move(temporary: Path, path: Path, before: os.stat_result | None) -> None:
    try:
        os.replace(temporary, path)
    except OSError as error:
        if before is None or error.errno not in _IN_PLACE:
            raise
        _fill(path, [temporary.read_bytes()])


def _fill(path: Path, parts: Iterable[str | bytes]) -> None:
    """Change what is in a file, where it cannot be replaced. Where the disk is full it has its old content again."""
    new = b"".join(map(_bytes, parts))
    with os.fdopen(_descriptor(path, os.O_RDWR), "r+b", buffering=0) as file:
        old = file.read()
        try:
            _overwrite(file, new)
        except OSError:
            _overwrite(file, old)
            raise


def _overwrite(file: FileIO, content: bytes) -> None:
    """Nothing is cut off before all is there: the old content keeps its room."""
    file.seek(0)
    rest = memoryview(content)
    while rest:
        rest = rest[file.write(rest) :]
    file.truncate(len(content))


def _bytes(part: str | bytes) -> bytes:
    return part if isinstance(part, bytes) else part.encode("utf-8", "replace")
