"""Whether weight files are what their names say, and how much is in them: headers and sizes, no weights.

A download that broke off, a pointer of Git LFS, an index that names files elsewhere: each is found here,
before minutes of loading, and told with its cure. No torch here.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path

from specdec_tui.backends.small_files import LFS_CURE, FileProblem, is_lfs_pointer, opened, read_object
from specdec_tui.doors.characters import named

SINGLE_FILES = ("model.safetensors", "pytorch_model.bin")
_MOST_HEADER = 100 << 20  # the format's own bound
_WHOLE = {"BOOL": "bool"} | {
    f"{sign}{bits}": f"{kind}{bits}" for sign, kind in (("I", "int"), ("U", "uint")) for bits in (8, 16, 32, 64)
}


@dataclass(frozen=True, slots=True)
class Contents:
    """What weight files hold together: names of tensors and how many weights. None where only loading would tell.

    `whole`: the types (int8, bool, …) of the tensors whose numbers have no fractions.
    """

    tensors: frozenset[str] | None
    parameters: int | None
    whole: Mapping[str, str] = field(default_factory=dict, hash=False)


def names_of(folder: Path) -> tuple[str, ...] | None:
    """The weight files that a folder should have; None when it has none at all. FileProblem for a damaged index."""
    for stem in SINGLE_FILES:
        index = f"{stem}.index.json"
        if os.path.lexists(folder / index):
            return _shards(folder / index)
        if os.path.lexists(folder / stem):
            return (stem,)
    return None


def _shards(index: Path) -> tuple[str, ...]:
    try:
        weight_map = read_object(index).get("weight_map")
    except FileProblem as problem:
        raise FileProblem(f"{index.name} {problem}") from None
    names = list(weight_map.values()) if isinstance(weight_map, dict) else []
    if not names or not all(isinstance(name, str) and name for name in names):
        raise FileProblem(f"{index.name} is damaged: its weight_map names no files")
    shards = sorted(set(names))
    outside = [name for name in shards if Path(name).name != name]
    if outside:
        raise FileProblem(f"{index.name} is damaged: {outside[0][:60]!r} is no file beside it")
    return tuple(shards)


def check_weights(folder: Path, names: tuple[str, ...]) -> Contents:
    """Look into every weight file's header; FileProblem, led by the file's name, for one that cannot be whole."""
    tensors: set[str] | None = set()
    whole: dict[str, str] = {}
    parameters = 0
    for name in names:
        try:
            if not name.endswith(".safetensors"):
                _check_pickled(folder / name)
                tensors = None
                continue
            inside, elements = _safetensors(folder / name)
            if odd := sorted(tensor for tensor, kind in inside.items() if kind.startswith("C")):
                raise FileProblem(f"holds complex numbers in {named(odd[0])}: no model has such weights")
            whole |= {tensor: _WHOLE[kind] for tensor, kind in inside.items() if kind in _WHOLE}
        except FileProblem as problem:
            raise FileProblem(f"{name} {problem}") from None
        tensors = None if tensors is None else tensors | inside.keys()
        parameters += elements
    return Contents(None, None) if tensors is None else Contents(frozenset(tensors), parameters, whole)


def _safetensors(path: Path) -> tuple[dict[str, str], int]:
    """Tensors' names and types, and all their elements, in a safetensors file (a length, a header, the data)."""
    with opened(path) as (file, size):
        start = file.read(64)
        if is_lfs_pointer(start):
            raise FileProblem(LFS_CURE)
        if len(start) < 8:
            raise FileProblem(f"is cut off ({size} bytes are there): download it again")
        (length,) = struct.unpack_from("<Q", start)
        if length > _MOST_HEADER or start[8:9] != b"{":
            raise FileProblem("is no safetensors file, or damaged: download it again")
        file.seek(8)
        header = file.read(length)
    if len(header) < length:
        raise FileProblem(f"is cut off ({size:,} bytes, its header is not whole): download it again")
    try:
        entries = {name: entry for name, entry in json.loads(header).items() if name != "__metadata__"}
        end = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        elements = sum(prod(entry["shape"]) for entry in entries.values())
        kinds = {name: str(entry["dtype"]) for name, entry in entries.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        raise FileProblem("has a damaged header: download it again") from None
    if end > size:
        raise FileProblem(f"is cut off ({size:,} of {end:,} bytes are there): download it again")
    if end < size:
        raise FileProblem(f"is damaged (it has {size:,} bytes where its header tells of {end:,}): download it again")
    return kinds, int(elements)


def _check_pickled(path: Path) -> None:
    """A file of torch's: an archive whose list of contents stands at its end, or an older kind that says nothing."""
    with opened(path) as (file, size):
        start = file.read(64)
        if is_lfs_pointer(start):
            raise FileProblem(LFS_CURE)
        if start.startswith(b"PK") and not zipfile.is_zipfile(file):
            raise FileProblem(f"is cut off ({size:,} bytes are there): download it again")
        if not start:
            raise FileProblem("is empty: download it again")
