"""A model's small files, read with a bound on kind and size: whoever wrote the folder, reading it ends.

A name may be a pipe, a device, a folder, a link to nowhere or a gigabyte; what it holds may be cut off,
a pointer of Git LFS in place of the file, or brackets without end. No torch here.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from specdec_tui.doors import reading

MOST_BYTES = 64 << 20
"""Of a config, an index of shards, a chat template. The largest known index has 9 MB."""
MOST_TOKENIZER_BYTES = 512 << 20
_TOKENIZERS = ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt", "merges.txt", "tekken.json")
_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "chat_template.json",
    "adapter_config.json",
    "preprocessor_config.json",
    "processor_config.json",
)
_ALL_NAMES = (*_SETTINGS, *_TOKENIZERS, "chat_template.jinja")
_KINDS = (".jinja", ".model", ".spm", ".tiktoken", ".index.json")
_MOST_NAMES = 10_000

_LFS = b"version https://git-lfs.github.com/spec/"
LFS_CURE = "is a Git LFS pointer, not the file itself: run `git lfs pull` in its folder, or download it again"


class FileProblem(Exception):
    """Why a file cannot be used: words that follow its name (`is a folder`)."""


def is_there(path: Path) -> bool:
    """Whether anything has this name, also a link to nowhere; FileProblem where that may not be known."""
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: no file can have this name
        return False
    except OSError as error:
        raise FileProblem(f"cannot be read ({error.strerror})") from None
    return True


@contextmanager
def opened(path: Path, most: int | None = None) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file to read, and its size in bytes; FileProblem for anything else and what cannot be read."""
    try:
        with reading.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            if most is not None and size > most:
                raise FileProblem(f"has {size / 1e6:,.0f} MB, where at most {most / 1e6:,.0f} MB are read")
            yield file, size
    except FileNotFoundError:
        raise FileProblem("is a link to a file that is not there" if os.path.islink(path) else "is not there") from None
    except OSError as error:
        words = error.strerror or str(error)
        raise FileProblem(
            words.removeprefix("it ") if words.startswith("it ") else f"cannot be read ({words})"
        ) from None


def read_bytes(path: Path, most: int = MOST_BYTES) -> bytes:
    """The whole of a small regular file; FileProblem for anything else, and for a pointer of Git LFS."""
    with opened(path, most) as (file, _):
        content = file.read(most + 1)
    if len(content) > most:
        raise FileProblem(f"grows beyond {most / 1e6:,.0f} MB while it is read")
    if content.startswith(_LFS):
        raise FileProblem(LFS_CURE)
    return content


def read_json(path: Path, most: int = MOST_BYTES) -> Any:
    """What a JSON file says; FileProblem when it is no whole JSON."""
    content = read_bytes(path, most)
    try:
        return json.loads(content)
    except RecursionError:
        raise FileProblem("is nested too deeply") from None
    except UnicodeDecodeError:
        raise FileProblem("is no UTF-8 text") from None
    except json.JSONDecodeError as error:
        cut = "it is empty" if not content.strip() else f"line {error.lineno} column {error.colno}"
        raise FileProblem(f"is no whole JSON ({cut}): it may be cut off, download it again") from None
    except ValueError as error:  # a number of thousands of digits
        raise FileProblem(f"is no JSON that can be read ({str(error).split(';')[0]})") from None


def read_object(path: Path) -> dict[str, Any]:
    """What a JSON file says that has to be an object; else FileProblem."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise FileProblem("is no JSON object")
    return content


def is_lfs_pointer(start: bytes) -> bool:
    return start.startswith(_LFS)


def check_folder(folder: Path) -> None:
    """Look at every small file that libraries read beside a model; FileProblem, led by its name, for a bad one.

    Templates in their own folder count too. Tokenizers, which may be large, are parsed by the
    library alone; here only their ends are looked at.
    """
    for path in _small_files(folder):
        try:
            if path.name in _TOKENIZERS:
                _check_ends(path)
            elif path.name == "tokenizer_config.json":
                read_object(path)
            elif path.suffix == ".json":
                read_json(path)
            else:
                read_bytes(path, MOST_TOKENIZER_BYTES if path.suffix in (".model", ".spm", ".tiktoken") else MOST_BYTES)
        except FileProblem as problem:
            raise FileProblem(f"{path.name} {problem}") from None


def _small_files(folder: Path) -> list[Path]:
    found: list[Path] = []
    for place in (folder, folder / "additional_chat_templates"):
        try:
            with os.scandir(place) as entries:
                for count, entry in enumerate(entries):
                    if count >= _MOST_NAMES:
                        raise FileProblem(f"{place.name} has more than {_MOST_NAMES:,} files")
                    other = entry.name.endswith(_KINDS) and not entry.is_dir(follow_symlinks=False)
                    if entry.name in _ALL_NAMES or other:
                        found.append(Path(entry.path))
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise FileProblem(f"{place.name} cannot be read ({error.strerror})") from None
    return sorted(found)


def _check_ends(path: Path) -> None:
    with opened(path, MOST_TOKENIZER_BYTES) as (file, size):
        start = file.read(len(_LFS))
        file.seek(max(0, size - 64))
        end = file.read(64)
    if start.startswith(_LFS):
        raise FileProblem(LFS_CURE)
    if path.suffix == ".json" and not end.rstrip().endswith(b"}"):
        raise FileProblem("is no whole JSON: it may be cut off, download it again")
