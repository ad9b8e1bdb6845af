"""Which files' fast passes gave the logits of transformers' layers on this machine: tried once, not at every launch.

A stamp is a small file in the cache folder, named by a hash of all that a trial depends on: the files by place, size
and times of change, versions, our code, the processor, the form of the weights. Only agreement is kept, with what else
was found out (`kept_pairs`). A stamp that is missing, damaged, or cannot be written means another trial.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from specdec_tui.backends.demo import cache_folder
from specdec_tui.doors import reading, writing
from specdec_tui.settings import SettingError

if TYPE_CHECKING:
    from specdec_tui.backends.model import CausalModel

_FOLDER = "agreed"
_MOST_STAMPS = 200
_MOST_BYTES = 1 << 20
_END = "\n--\n"  # of the facts
_PACKAGES = ("specdec-tui", "torch", "transformers", "tokenizers", "numba", "numpy")
_OWN_CODE = Path(__file__).parent


class Trial:
    """What one trial depends on, made before anything is read of it.

    `files`: all that the model is read from; a folder stands for what is in it.
    """

    def __init__(self, files: Iterable[Path], form: str) -> None:
        self._files, self._form = tuple(files), form
        self._text = self._facts()

    def is_known(self) -> bool:
        """Whether it was made before, and agreed."""
        return self.found() is not None

    def found(self) -> str | None:
        """What was kept with it; None where it was not made before, or did not agree."""
        if not self._text:
            return None
        try:
            facts, _, kept = reading.read_text(self._path(), most=_MOST_BYTES).partition(_END)
        except (OSError, ValueError, SettingError):
            return None
        digest, _, found = kept.partition("\n")
        return found if (facts, digest) == (self._text, _digest(found)) else None

    def keep(self, found: str = "") -> None:
        """It agreed. `found`: what else it found out. Nothing is kept where a file has changed meanwhile."""
        if not self._text or len(self._text) + len(found) > _MOST_BYTES // 2 or self._facts() != self._text:
            return
        with suppress(OSError, SettingError):
            path = self._path()
            path.parent.mkdir(parents=True, exist_ok=True)
            others = sorted(path.parent.glob("*.json"), key=lambda each: each.stat().st_mtime_ns)
            for old in others[: max(0, len(others) - _MOST_STAMPS + 1)]:
                old.unlink()
            writing.place(path, [self._text, _END, _digest(found), "\n", found])

    def _facts(self) -> str:
        """Empty where a file is not there."""
        code = _states([_OWN_CODE, _OWN_CODE / "lean", _OWN_CODE / "gguf"], ".py")
        try:
            files = _states(self._files, "", changed=True)
        except OSError:
            return ""
        return json.dumps([self._form, _versions(), _processor(), code, files], indent=1)

    def _path(self) -> Path:
        return cache_folder() / _FOLDER / f"{_digest(self._text)[:32]}.json"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def is_anything_kept() -> bool:
    """Whether any trial was ever kept here."""
    try:
        return os.path.isdir(cache_folder() / _FOLDER)
    except SettingError:
        return False


def wake(model: CausalModel) -> None:
    """Have its pass compiled, or read from the disk, where no trial does."""
    model.open().extend([0], 1)


def _states(places: Iterable[Path], end: str, changed: bool = False) -> list[tuple[str, int, int, int]]:
    """Files by name, size and time of writing. OSError.

    `changed`: with the time when anything of them was changed, which nobody sets: a copy may have the size and the time
    of writing of what it takes the place of. It is another where packages were put in place again.
    """
    found = []
    for place in places:
        files = sorted(place.iterdir()) if os.path.isdir(place) else [place]
        for path in files:
            if path.name.endswith(end) and os.path.isfile(path):
                status = os.stat(path)
                at = status.st_ctime_ns if changed else 0
                found.append((str(path.absolute()), status.st_size, status.st_mtime_ns, at))
    return found


def _versions() -> list[str]:
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            found.append(name)
    return found


def _processor() -> list[str]:
    from llvmlite import binding  # type: ignore[import-untyped]

    return [binding.get_host_cpu_name(), binding.get_host_cpu_features().flatten()]
