"""What a GGUF file says of itself: its numbers, texts and lists, and where its tensors lie, from the header alone.

The format is llama.cpp's (ggml/docs/gguf.md). Every read is inside the file: a header that was cut off,
or that promises more than there is, ends in one sentence. No torch, numpy or transformers here.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite, prod
from pathlib import Path
from threading import Lock
from typing import Any

from specdec_tui.backends.gguf.kinds import KINDS, UNREAD
from specdec_tui.backends.small_files import LFS_CURE, FileProblem, is_lfs_pointer, opened
from specdec_tui.doors import reading
from specdec_tui.doors.characters import named

# Bytes of the kinds of value that have a fixed size, by their number in the format.
_FIXED = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_LENGTH = struct.Struct("<Q")
_MOST_DIMENSIONS = 4
_LONGEST = 8 << 20  # bytes of a text that is kept; the longest chat templates have some ten thousands
_CUT = (struct.error, IndexError, OverflowError)  # what reading beyond the end raises
_WHOLE = frozenset(kind for kind, form in _FIXED.items() if form in "BbHhIiQq")
# Fields that are taken for what they should be, and what that is.
_TEXT, _LIST, _ID = (frozenset((_STRING,)), "a text"), (frozenset((_ARRAY,)), "a list"), (_WHOLE, "a whole number")
_SWITCH = frozenset((7,)), "a switch"
TOKENS = "tokenizer.ggml.tokens"
_IDS = tuple(f"tokenizer.ggml.{name}_token_id" for name in ("bos", "eos", "eot", "eom", "padding", "unknown"))
_NEEDED = {
    **dict.fromkeys(("general.architecture", "tokenizer.ggml.model", "tokenizer.chat_template"), _TEXT),
    "tokenizer.ggml.pre": _TEXT,
    **dict.fromkeys((TOKENS, "tokenizer.ggml.merges", "tokenizer.ggml.scores", "tokenizer.ggml.token_type"), _LIST),
    **dict.fromkeys((f"tokenizer.ggml.add_{name}" for name in ("bos_token", "eos_token", "space_prefix")), _SWITCH),
    **dict.fromkeys(_IDS, _ID),
}
# The library turns these before it looks at their shapes.
_MATRIX = re.compile(r"blk\.\d+\.attn_(?:q|k|v|qkv|output)\.weight")
_KEPT = 16  # headers


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """`kind`: ggml's number; `shape`: rows first, as torch has it; `offset`, `size`: bytes, from the start of its file.

    `part`: which file of a split one. A kind that is newer than our table has the size 0.
    """

    name: str
    kind: int
    shape: tuple[int, ...]
    offset: int
    size: int
    part: int = 0

    @property
    def elements(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True, slots=True)
class _Place:
    """Of a list: its file, where it begins and ends there (with the kind of its values and their count), its length."""

    path: Path
    offset: int
    end: int
    length: int


@dataclass(frozen=True, slots=True)
class GgufHeader:
    """`numbers` (switches among them) and `texts`: single values of the metadata by key; `tensors` by name."""

    numbers: dict[str, int | float]
    texts: dict[str, str]
    tensors: dict[str, GgufTensor] = field(default_factory=dict)
    lists: dict[str, _Place] = field(default_factory=dict)

    @property
    def architecture(self) -> str:
        return self.texts.get("general.architecture", "")

    @property
    def parameters(self) -> int:
        return sum(tensor.elements for tensor in self.tensors.values())

    @property
    def scaling(self) -> str:
        """How rotations are to be scaled (`rope.scaling.factor 4`), where they are; empty where not."""
        prefix = f"{self.architecture}."
        found = {k.removeprefix(prefix): v for k, v in self.numbers.items() if ".rope.scaling." in k and "factor" in k}
        return ", ".join(f"{key} {value:g}" for key, value in found.items() if value not in (0, 1))

    def whole(self, key: str, usual: int) -> int:
        """A whole number of the metadata; FileProblem for one that is none."""
        value = self.numbers.get(key, usual)
        if not isfinite(value):
            raise FileProblem(f"is damaged: {key} in its header is {value}, where a whole number is needed")
        return int(value)

    def length(self, key: str) -> int:
        """Of a list; 0 where there is none."""
        return self.lists[key].length if key in self.lists else 0

    def array(self, key: str) -> list[Any]:
        """A list of the metadata, read from the file now; FileProblem where there is none."""
        if key not in self.lists:
            raise FileProblem(f"has no {key} in its header")
        place = self.lists[key]
        try:
            with _mapped(place.path) as (content, _):
                return _Reader(content, place.offset).array()
        except _CUT:
            raise FileProblem("changed while it was read") from None

    def same(self, other: GgufHeader, start: str) -> bool:
        """Whether all that the two say under keys with a `start` is the same, lists compared byte by byte."""
        pairs = ((self.numbers, other.numbers), (self.texts, other.texts), (self.lists, other.lists))
        ours, theirs = (
            [{k: v for k, v in table.items() if k.startswith(start)} for table in side]
            for side in zip(*pairs, strict=True)
        )
        if ours[:2] != theirs[:2] or ours[2].keys() != theirs[2].keys():
            return False
        return all(_bytes(place) == _bytes(other.lists[key]) for key, place in self.lists.items() if key in ours[2])

    def config(self) -> dict[str, object]:
        """The sizes of the model under the names that a config.json has for them."""
        names = {
            "block_count": "num_hidden_layers",
            "embedding_length": "hidden_size",
            "vocab_size": "vocab_size",
            "attention.head_count": "num_attention_heads",
            "context_length": "max_position_embeddings",
        }
        found = {ours: self.numbers.get(f"{self.architecture}.{theirs}") for theirs, ours in names.items()}
        return {name: value for name, value in found.items() if value is not None}


def _bytes(place: _Place) -> bytes:
    with _mapped(place.path) as (content, _):
        return content[place.offset : place.end]


_known: OrderedDict[tuple[object, ...], GgufHeader] = OrderedDict()
_lock = Lock()


def read_header(path: Path) -> GgufHeader:
    """The header of one file, with the tensors in it, whose data is all there; FileProblem in words behind its name.

    Kept for as long as the file stays as it is: a load asks several times. Not to be changed by who has it.
    """
    try:
        status = reading.status_of(path)
    except OSError:
        return _read(path)  # which tells what is wrong
    key = (str(path), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
    with _lock:
        if key in _known:
            _known.move_to_end(key)
            return _known[key]
    header = _read(path)
    with _lock:
        _known[key] = header
        while len(_known) > _KEPT:
            _known.popitem(last=False)
    return header


def _read(path: Path) -> GgufHeader:
    with _mapped(path) as (content, size):
        try:
            header, end = _walk(_Reader(content), path)
        except _CUT:
            raise FileProblem(_cut(size)) from None
    if end > size:
        raise FileProblem(_cut(size, end))
    return header


@contextmanager
def _mapped(path: Path) -> Iterator[tuple[mmap.mmap, int]]:
    """A file that begins as a GGUF file, and its size in bytes."""
    with opened(path) as (file, size):
        start = file.read(64)
        if not start:
            raise FileProblem("is empty: download it again")
        if is_lfs_pointer(start):
            raise FileProblem(LFS_CURE)
        if not start.startswith(b"GGUF"):
            raise FileProblem("is no GGUF file: it does not begin as one")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            yield content, size


class _Reader:
    """Reads one value after the other. What it raises at the end of the file is one of `_CUT`."""

    def __init__(self, content: mmap.mmap, place: int = 4) -> None:
        self._content = content
        self.place = place

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

    def text_length(self) -> int:
        return int(_LENGTH.unpack_from(self._content, self.place)[0])

    def array(self) -> list[Any]:
        """The list that comes next: of numbers, or of texts. FileProblem for one of lists."""
        inner, count = self.whole("I"), self.whole("Q")
        if inner in _FIXED:
            start, form = self.place, _FIXED[inner]
            self.skip(count * struct.calcsize("<" + form))
            return list(struct.unpack_from(f"<{count}{form}", self._content, start))
        if inner == _STRING:
            return self._texts(count)
        raise FileProblem("has a list of lists in its header, where one of texts or numbers is needed")

    def _texts(self, count: int) -> list[str]:
        found, content, place, length_at = [], self._content, self.place, _LENGTH.unpack_from
        end = len(content)
        for _ in range(count):
            start = place + 8
            place = start + length_at(content, place)[0]
            if place > end:
                raise IndexError
            found.append(content[start:place].decode("utf-8", "replace"))
        self.place = place
        return found

    def _skip_texts(self, count: int) -> None:
        content, place, length_at = self._content, self.place, _LENGTH.unpack_from
        for _ in range(count):
            place += 8 + length_at(content, place)[0]
        self.place = min(place, len(content) + 1)

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
            if inner == _STRING:
                self._skip_texts(count)
                return
            for _ in range(count):
                self.skip_value(inner, depth + 1)
        else:
            raise FileProblem("is damaged: its header has a kind of value that the format does not know")


def _walk(reader: _Reader, path: Path) -> tuple[GgufHeader, int]:
    """The header, and the least size that a whole file has."""
    if (version := reader.whole("I")) not in (2, 3):
        raise FileProblem(f"is a GGUF file of version {version}, of which 2 and 3 are known")
    tensors, values = reader.whole("Q"), reader.whole("Q")
    header = GgufHeader({}, {})
    for _ in range(values):
        key, kind = reader.text(), reader.whole("I")
        if key in _NEEDED and kind not in _NEEDED[key][0]:
            raise FileProblem(f"is damaged: {key} in its header is {_kind(kind)}, where {_NEEDED[key][1]} is needed")
        if kind in _FIXED:
            header.numbers[key] = reader.number(_FIXED[kind])
        elif kind == _STRING and reader.text_length() <= _LONGEST:
            header.texts[key] = reader.text()
        else:
            begin, length = reader.place, reader.length() if kind == _ARRAY else 0
            reader.skip_value(kind)
            if kind == _ARRAY:
                header.lists[key] = _Place(path, begin, reader.place, length)
    for key in _IDS:
        if TOKENS in header.lists and (value := header.numbers.get(key, 0)) >= (count := header.length(TOKENS)):
            raise FileProblem(f"is damaged: {key} in its header is {value:,}, where ids end at {count - 1:,}")
    found = [_tensor(reader) for _ in range(tensors)]
    alignment = max(1, header.whole("general.alignment", 32))
    start = -(-reader.place // alignment) * alignment
    for name, kind, shape, offset, size in found:
        header.tensors[name] = GgufTensor(name, kind, shape, start + offset, size)
    # Nothing is padded behind a header without tensors: a vocabulary, or the first part of a split model.
    return header, max((start + offset + size for _, _, _, offset, size in found), default=reader.place)


def _tensor(reader: _Reader) -> tuple[str, int, tuple[int, ...], int, int]:
    """Name, kind, shape, offset into the data and size of the tensor that comes next."""
    name, dimensions = reader.text(), reader.whole("I")
    if dimensions > _MOST_DIMENSIONS:
        raise FileProblem(f"is damaged: {named(name)} in it has {dimensions} dimensions")
    if dimensions != 2 and _MATRIX.fullmatch(name):
        raise FileProblem(f"is damaged: {name} in it has {dimensions} dimensions, where 2 are needed")
    shape = tuple(reader.whole("Q") for _ in range(dimensions))[::-1]
    kind, offset = reader.whole("I"), reader.whole("Q")
    if kind in UNREAD:
        raise FileProblem(f"holds {named(name)} as {KINDS[kind].name}, which is read as the weights of no model")
    if kind not in KINDS:  # nothing is claimed of it
        return name, kind, shape, offset, 0
    kind_of, block, size = KINDS[kind]
    columns = shape[-1] if shape else 1
    if columns % block:
        raise FileProblem(
            f"is damaged: {named(name)} in it has rows of {columns:,}, which are no whole blocks of {kind_of} ({block})"
        )
    return name, kind, shape, offset, prod(shape) // block * size


def _kind(number: int) -> str:
    if number in _WHOLE:
        return "a whole number"
    return {_STRING: "a text", _ARRAY: "a list"}.get(number, "a switch" if _FIXED.get(number) == "?" else "a fraction")


def _cut(size: int, end: int = 0) -> str:
    of = f"{size:,} of {end:,} bytes are there" if end else "its header is not whole"
    return f"is cut off ({of}): download it again"
