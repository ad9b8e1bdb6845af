"""What GGUF files of a folder are and how they would run, by their headers alone; a damaged one is a line too."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from specdec_tui.backends.gguf.kinds import BF16, F16, F32, KINDS, kind_name
from specdec_tui.backends.gguf.parts import header_of, parts_of
from specdec_tui.backends.small_files import FileProblem

_HELD = frozenset((F32, F16, BF16, 2, 3, 6, 7, 8, 12, 13, 14))
_PACKED = ("llama", "qwen2", "qwen3", "gemma2", "gemma3", "phi3")
_SHOWN = 3  # kinds


@dataclass(frozen=True, slots=True)
class Listed:
    """`kinds`: those of its matrices, by bytes (`Q4_K + Q6_K`); `form`: packed, expanded, or why it is refused."""

    name: str
    architecture: str = ""
    kinds: str = ""
    parameters: int = 0
    size_bytes: int = 0
    context_length: int = 0
    form: str = ""


def gguf_files(folder: Path) -> Iterator[Listed]:
    """One line for each model of a folder, split or not, or for one file. OSError where they cannot be listed."""
    named = [folder] if folder.suffix.lower() == ".gguf" and not os.path.isdir(folder) else sorted(folder.iterdir())
    seen: set[Path] = set()
    for path in named:
        first = parts_of(path)[0]
        if path.suffix.lower() == ".gguf" and not os.path.isdir(path) and first not in seen:
            seen.add(first)
            yield _listed(path)


def _listed(path: Path) -> Listed:
    parts = parts_of(path)
    row = Listed(path.name + (f" ({len(parts)} parts)" if len(parts) > 1 else ""))
    row = replace(row, size_bytes=sum(os.stat(part).st_size for part in parts if os.path.isfile(part)))
    try:
        header = header_of(path)
        sizes: dict[int, int] = {}
        for tensor in header.tensors.values():
            if len(tensor.shape) > 1:
                sizes[tensor.kind] = sizes.get(tensor.kind, 0) + max(tensor.size, 1)
        kinds = sorted(sizes, key=sizes.__getitem__, reverse=True)
        names = [kind_name(kind) for kind in kinds[:_SHOWN]] + ["…"] * (len(kinds) > _SHOWN)
        row = replace(
            row,
            architecture=header.architecture,
            kinds=" + ".join(names),
            parameters=header.parameters,
            context_length=header.whole(f"{header.architecture}.context_length", 0),
        )
        return replace(row, form=_form(path, kinds))
    except FileProblem as problem:
        return replace(row, form=f"refused: it {problem}")


def _form(path: Path, kinds: list[int]) -> str:
    """`packed` or `expanded`, with the reason. FileProblem for what is refused."""
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    from specdec_tui.backends.errors import first_line
    from specdec_tui.backends.gguf.config import config_of, is_known, kind_of
    from specdec_tui.backends.gguf.files import GgufFile
    from specdec_tui.backends.gguf.shapes import check_tensors
    from specdec_tui.backends.gguf.tokenizer import check_keys
    from specdec_tui.backends.pair import LoadError

    file = GgufFile(path)
    if unknown := next((kind for kind in kinds if kind not in KINDS), None):
        raise FileProblem(f"has weights of {kind_name(unknown)}, which is not known here")
    if file.header.architecture not in (*_PACKED, *GGUF_SUPPORTED_ARCHITECTURES):
        raise FileProblem(f"is one of {kind_of(file.header)}, which are not read from GGUF files here")
    if not is_known(file.header):
        return f"expanded: of {kind_of(file.header)} weights are not read packed"
    try:
        check_keys(file.header)
        check_tensors(file, config_of(file))
    except LoadError as error:
        raise FileProblem(f"cannot be read: {error}") from None
    except (ValueError, TypeError) as error:  # of a config class
        raise FileProblem(f"makes no config: {first_line(error)}") from None
    if other := next((kind for kind in kinds if kind not in _HELD), None):
        return f"expanded: products over {kind_name(other)} are not made here"
    return "packed"
