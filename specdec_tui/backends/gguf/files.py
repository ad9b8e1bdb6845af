"""A GGUF file, or all parts of a split one (`-00001-of-00003.gguf`), mapped into memory: nothing is copied.

Maps are of the file's own pages: what one process has read, all others share.
"""

from __future__ import annotations

import mmap
import os
import weakref
from pathlib import Path

import numpy as np

from specdec_tui.backends.gguf.header import GgufTensor
from specdec_tui.backends.gguf.kinds import BF16, F16, F32, KINDS, kind_name
from specdec_tui.backends.gguf.parts import header_of, parts_of
from specdec_tui.backends.memory import gigabytes
from specdec_tui.backends.pair import LoadError, Progress, ReportProgress
from specdec_tui.backends.small_files import FileProblem, opened
from specdec_tui.doors.characters import named

_CHUNK = 16 << 20  # bytes between two reports
_PAGE = 4096


class GgufFile:
    """A model's tensors where they lie on the disk. FileProblem, in words behind its name, where it cannot be read.

    `paths`: its file, or all parts of it. `header`: of the whole. `tensors`: each with its part.
    """

    def __init__(self, path: Path) -> None:
        self.header = header_of(path)
        self.paths = parts_of(path)
        self.tensors = self.header.tensors
        self._maps: list[mmap.mmap] = []
        self._open: list[tuple[int, int]] = []  # a descriptor, and when the file had last been written
        for no, each in enumerate(self.paths):
            end = max((t.offset + t.size for t in self.tensors.values() if t.part == no), default=1)
            with opened(each) as (file, size):
                if size < end:
                    raise FileProblem("became shorter while it was read")
                try:
                    self._maps.append(mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ))
                except ValueError:
                    raise FileProblem("became shorter while it was read") from None
                self._open.append((os.dup(file.fileno()), os.fstat(file.fileno()).st_mtime_ns))
                weakref.finalize(self, os.close, self._open[-1][0])
        self._parts = [np.frombuffer(memory, np.uint8) for memory in self._maps]

    @property
    def size(self) -> int:
        """Bytes on the disk."""
        return sum(part.size for part in self._parts)

    def check(self) -> None:
        """LoadError where a file has become shorter since: who reads what it held would be killed (SIGBUS).

        And where it was written to, so that its weights are others. One that took its name changes nothing.
        """
        for path, memory, (descriptor, written) in zip(self.paths, self._maps, self._open, strict=True):
            now = os.fstat(descriptor)
            if now.st_size < len(memory):
                raise LoadError(f"{path} has become shorter while it was in use: load the models again.")
            if now.st_mtime_ns != written:
                raise LoadError(f"{path} was written to while it was in use: load the models again.")

    def rows(self, name: str) -> np.ndarray:
        """A tensor as it is packed: [rows, bytes of a row] uint8, read-only, a view of the file.

        A tensor of one dimension is one row. LoadError where it is not there, or of an unknown kind.
        """
        tensor = self.tensor(name)
        if tensor.kind not in KINDS:
            raise LoadError(
                f"{self.paths[0]} holds {named(name)} as {kind_name(tensor.kind)}, which is not known here."
            )
        kind = KINDS[tensor.kind]
        width = (tensor.shape[-1] if tensor.shape else 1) // kind.block * kind.size
        rows = tensor.size // width if width else 0
        return self._parts[tensor.part][tensor.offset : tensor.offset + tensor.size].reshape(rows, width)

    def floats(self, name: str) -> np.ndarray:
        """A tensor of plain numbers (F32, F16, BF16: norms, biases, factors) as float32 in its shape. LoadError."""
        tensor = self.tensor(name)
        if tensor.kind not in (F32, F16, BF16):
            raise LoadError(
                f"{self.paths[0]} holds {named(name)} as {kind_name(tensor.kind)}, where plain numbers "
                "(F32, F16 or BF16) are needed."
            )
        content = self.rows(name).reshape(-1)
        if tensor.kind == BF16:
            values = (content.view("<u2").astype(np.uint32) << 16).view(np.float32)
        else:
            values = content.view("<f4" if tensor.kind == F32 else "<f2").astype(np.float32)
        return values.reshape(tensor.shape)

    def tensor(self, name: str) -> GgufTensor:
        """LoadError that names a tensor that is not there."""
        if name not in self.tensors:
            raise LoadError(f"{self.paths[0]} has no tensor {named(name)}.")
        return self.tensors[name]

    def expect(self, name: str, shape: tuple[int, ...]) -> None:
        """LoadError where a tensor is not there, or of another shape (rows first)."""
        if (found := self.tensor(name).shape) != shape:
            sizes, asked = (" × ".join(map(str, each)) or "a number" for each in (found, shape))
            raise LoadError(f"{self.paths[0]}: {named(name)} is {sizes}, where its sizes say {asked}.")

    def warm(self, progress: ReportProgress) -> None:
        """Have the disk read all of it into the page cache, telling the bytes; what `progress` raises ends it.

        Milliseconds for each gigabyte that is there already. LoadError as of `check`.
        """
        whole, done = self.size, 0
        name = self.paths[0].name
        for memory, part in zip(self._maps, self._parts, strict=True):
            for start in range(0, part.size, _CHUNK):
                progress(Progress(f"Reading {name}: {gigabytes(done)} of {gigabytes(whole)}", done / whole))
                self.check()
                if hasattr(memory, "madvise"):
                    memory.madvise(mmap.MADV_WILLNEED, start, min(2 * _CHUNK, part.size - start))
                chunk = part[start : start + _CHUNK]
                chunk[::_PAGE].max()  # touches each page, and lets other threads run meanwhile
                done += chunk.size
        progress(Progress(f"Reading {name}: {gigabytes(whole)}", 1.0))
