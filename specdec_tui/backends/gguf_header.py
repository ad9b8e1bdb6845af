"""What a GGUF file says of itself: its numbers and its tensors' sizes, from the header alone.

The format is llama.cpp's (ggml/docs/gguf.md). Every read is inside the file: a header that was cut off,
or that promises more than there is, ends in one sentence. No torch and no transformers here.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path

from specdec_tui.backends.small_files import LFS_CURE, FileProblem, is_lfs_pointer, opened
from specdec_tui.doors.characters import named

# Bytes of the kinds of value that have a fixed size, by their number in the format.
_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_MOST_DIMENSIONS = 4
_WHOLE = frozenset(kind for kind, form in _FIXED.items() if form in "BbHhIiQq")
# Fields that the library takes for what they should be, and what that is.
_TEXT, _LIST, _ID = (frozenset((_STRING,)), "a text"), (frozenset((_ARRAY,)), "a list"), (_WHOLE, "a whole number")
_TOKENS = "tokenizer.ggml.tokens"
_IDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "padding", "unknown"))
_NEEDED = {
    **dict.fromkeys(("general.architecture", "tokenizer.ggml.model", "tokenizer.chat_template"), _TEXT),
    **dict.fromkeys((_TOKENS, "tokenizer.ggml.merges"), _LIST),
    **dict.fromkeys(_IDS, _ID),
}
# The library turns these before it looks at their shapes.
_MATRIX = re.compile(r"blk\.\d+\.attn_(?:q|k|v|qkv|output)\.weight")
_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`numbers`: single numbers of the metadata by key; `tensors`: elements of each tensor by name."""

    numbers: dict[str, int | float]
    texts: dict[str, str]
    tensors: dict[str, int] = field(default_factory=dict)

    @property
    def parameters(self) -> int:
        return sum(self.tensors.values())

    @property
    def scaling(self) -> str:
        """How rotations are to be scaled (`rope.scaling.factor 4`), where they are; empty where not."""
        prefix = f"{self.texts.get('general.architecture', '')}."
        found = {k.removeprefix(prefix): v for k, v in self.numbers.items() if ".rope.scaling." in k and "factor" in k}
        return ", ".join(f"{key} {value:g}" for key, value in found.items() if value not in (0, 1))

    def whole(self, key: str, usual: int) -> int:
        """A whole number of the metadata; FileProblem for one that is none."""
        value = self.numbers.get(key, usual)
        if not isfinite(value):
            raise FileProblem(f"is damaged: {key} in its header is {value}, where a whole number is needed")
        return int(value)

    def config(self) -> dict[str, object]:
        """The sizes of the model under the names that a config.json has for them."""
        prefix = self.texts.get("general.architecture", "")
        names = {
            "block_count": "num_hidden_layers",
            "embedding_length": "hidden_size",
            "vocab_size": "vocab_size",
            "attention.head_count": "num_attention_heads",
            "context_length": "max_position_embeddings",
        }
        found = {ours: self.numbers.get(f"{prefix}.{theirs}") for theirs, ours in names.items()}
        return {name: value for name, value in found.items() if value is not None}


def is_split(path: Path) -> bool:
    """Whether a name is that of one part of several."""
    part = _PART.search(path.name)
    return part is not None and int(part[2]) > 1


def read_header(path: Path) -> GgufHeader:
    """Walk through the header and see that the data it promises is there; FileProblem in words that follow the name."""
    if (part := _PART.search(path.name)) and is_split(path):
        raise FileProblem(_split(int(part[2]), path))
    with opened(path) as (file, size):
        start = file.read(64)
        if not start:
            raise FileProblem("is empty: download it again")
        if is_lfs_pointer(start):
            raise FileProblem(LFS_CURE)
        if not start.startswith(b"GGUF"):
            raise FileProblem("is no GGUF file: it does not begin as one")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                header, end = _walk(_Reader(content))
            except (struct.error, IndexError):
                raise FileProblem(_cut(size)) from None
    if (parts := header.whole("split.count", 1)) > 1:
        raise FileProblem(_split(parts, path))
    if end > size:
        raise FileProblem(_cut(size, end))
    return header


class _Reader:
    """Reads one value after the other. IndexError or struct.error at the end of the file."""

    def __init__(self, content: mmap.mmap) -> None:
        self._content = content
        self.place = 4

    def number(self, form: str) -> int | float:
        (value,) = struct.unpack_from("<" + form, self._content, self.place)
        self.place += struct.calcsize("<" + form)
        return value

    def whole(self, form: str) -> int:
        return int(self.number(form))

    def text(self) -> str:
        length = self.whole("Q")
        self.skip(length)
        return self._content[self.place - length : self.place].decode("utf-8", "replace")

    def skip(self, count: int) -> None:
        if count > len(self._content) - self.place:
            raise IndexError
        self.place += count

    def length(self) -> int:
        """Of the list that comes next."""
        return int(struct.unpack_from("<IQ", self._content, self.place)[1])

    def skip_value(self, kind: int, depth: int = 0) -> None:
        if kind in _FIXED:
            self.skip(struct.calcsize("<" + _FIXED[kind]))
        elif kind == _STRING:
            self.skip(self.whole("Q"))
        elif kind == _ARRAY and depth < 8:
            inner, count = self.whole("I"), self.whole("Q")
            if inner in _FIXED:
                self.skip(count * struct.calcsize("<" + _FIXED[inner]))
                return
            for _ in range(count):
                self.skip_value(inner, depth + 1)
        else:
            raise FileProblem("is damaged: its header has a kind of value that the format does not know")


def _walk(reader: _Reader) -> tuple[GgufHeader, int]:
    """The header, and the least size that a whole file has."""
    if (version := reader.whole("I")) not in (2, 3):
        raise FileProblem(f"is a GGUF file of version {version}, of which 2 and 3 are known")
    tensors, values = reader.whole("Q"), reader.whole("Q")
    header = GgufHeader({}, {})
    count: int | None = None  # of tokens
    for _ in range(values):
        key, kind = reader.text(), reader.whole("I")
        if key in _NEEDED and kind not in _NEEDED[key][0]:
            raise FileProblem(f"is damaged: {key} in its header is {_kind(kind)}, where {_NEEDED[key][1]} is needed")
        if key == _TOKENS:
            count = reader.length()
        if kind in _FIXED:
            header.numbers[key] = reader.number(_FIXED[kind])
        elif kind == _STRING and key.startswith("general."):
            header.texts[key] = reader.text()
        else:
            reader.skip_value(kind)
    for key in _IDS:
        if count is not None and (value := header.numbers.get(key, 0)) >= count:
            raise FileProblem(f"is damaged: {key} in its header is {value:,}, where ids end at {count - 1:,}")
    ends = [0]
    size_of = _sizes()
    for _ in range(tensors):
        name, dimensions = reader.text(), reader.whole("I")
        if dimensions > _MOST_DIMENSIONS:
            raise FileProblem(f"is damaged: {named(name)} in it has {dimensions} dimensions")
        if dimensions != 2 and _MATRIX.fullmatch(name):
            raise FileProblem(f"is damaged: {name} in it has {dimensions} dimensions, where 2 are needed")
        elements = prod(reader.whole("Q") for _ in range(dimensions))
        kind, offset = reader.whole("I"), reader.whole("Q")
        header.tensors[name] = elements
        ends.append(offset + size_of(kind, elements, name))
    alignment = max(1, header.whole("general.alignment", 32))
    return header, -(-reader.place // alignment) * alignment + max(ends)


def _kind(number: int) -> str:
    if number in _WHOLE:
        return "a whole number"
    return {_STRING: "a text", _ARRAY: "a list"}.get(number, "a switch" if _FIXED.get(number) == "?" else "a fraction")


def _sizes() -> Callable[[int, int, str], int]:
    import gguf  # numpy comes with it

    by_kind = {int(kind): shape for kind, shape in gguf.GGML_QUANT_SIZES.items()}
    kinds = gguf.GGMLQuantizationType
    unread = {int(kind): kind.name for kind in (kinds.I8, kinds.I16, kinds.I32, kinds.I64, kinds.F64)}

    def size_of(kind: int, elements: int, name: str) -> int:
        if kind in unread:
            raise FileProblem(f"holds {named(name)} as {unread[kind]}, which is read as the weights of no model")
        block, size = by_kind.get(kind, (1, 0))  # of a kind that is newer than the library, nothing is claimed
        return elements // block * size

    return size_of


def _cut(size: int, end: int = 0) -> str:
    of = f"{size:,} of {end:,} bytes are there" if end else "its header is not whole"
    return f"is cut off ({of}): download it again"


def _split(parts: int, path: Path) -> str:
    first = _PART.sub(f"-00001-of-{parts:05d}.gguf", path.name)
    return (
        f"is one of the {parts} parts of a split GGUF file, which cannot be read in parts: join them with "
        f"`llama-gguf-split --merge {first} whole.gguf` and name that file"
    )
