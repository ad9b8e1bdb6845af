"""The parts of a split GGUF file (`-00001-of-00003.gguf`), any of which may be named, and their joint header."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from specdec_tui.backends.gguf.header import GgufHeader, GgufTensor, read_header
from specdec_tui.backends.small_files import FileProblem
from specdec_tui.doors.characters import named

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


def parts_of(path: Path) -> tuple[Path, ...]:
    """The names of all parts of a split file, any of which may be given; the name alone of one that is not split."""
    part = _PART.search(path.name)
    if part is None or int(part[2]) < 2:
        return (path,)
    stem, ending = path.name[: part.start()], path.name[-5:]
    return tuple(path.with_name(f"{stem}-{no:05d}-of-{part[2]}{ending}") for no in range(1, int(part[2]) + 1))


def header_of(path: Path) -> GgufHeader:
    """The header of a whole model: tensors of all parts, the rest from the first. FileProblem."""
    paths = parts_of(path)
    if len(paths) == 1:
        header = read_header(path)
        if (count := header.whole("split.count", 1)) > 1:
            raise FileProblem(
                f"is part {header.whole('split.no', 0) + 1} of a split GGUF file of {count} parts, which its name does "
                f"not say: name the parts NAME-00001-of-{count:05d}.gguf and so on"
            )
        return _with_weights(header)
    read_header(path)  # what is wrong with the one that was named is told of it
    headers = [_part(path, other, no, len(paths)) for no, other in enumerate(paths)]
    tensors: dict[str, GgufTensor] = {}
    for no, (other, header) in enumerate(zip(paths, headers, strict=True)):
        if header.architecture not in ("", headers[0].architecture):
            raise FileProblem(
                f"and {other.name} are parts of different models: {headers[0].architecture} and {header.architecture}"
            )
        for name, tensor in header.tensors.items():
            if name in tensors:
                raise FileProblem(
                    f"is one of {len(paths)} parts of different models: {named(name)} is in "
                    f"{paths[tensors[name].part].name} and in {other.name}"
                )
            tensors[name] = replace(tensor, part=no)
    promised = headers[0].whole("split.tensors.count", len(tensors))
    if promised != len(tensors):
        raise FileProblem(
            f"is one of {len(paths)} parts that hold {len(tensors):,} tensors, where {paths[0].name} promises "
            f"{promised:,}: they are not those of one model"
        )
    return _with_weights(replace(headers[0], tensors=tensors))


def _with_weights(header: GgufHeader) -> GgufHeader:
    if not header.tensors:
        raise FileProblem("holds no tensors, a vocabulary at most: the file of a model is needed")
    return header


def _part(asked: Path, path: Path, no: int, count: int) -> GgufHeader:
    """The header of one part, which says the same of itself as its name."""
    whose = "" if path == asked else f"is one of {count} parts, of which {path.name} "
    try:
        header = read_header(path)
        said_no, said = header.whole("split.no", no), header.whole("split.count", 1)
    except FileProblem as problem:
        raise FileProblem(f"{whose}{problem}") from None
    if (said_no, said) != (no, count):
        what = f"part {said_no + 1} of {said}" if said > 1 else "a file of its own"
        raise FileProblem(f"{whose}is {what} by its header, and part {no + 1} of {count} by its name")
    return header
