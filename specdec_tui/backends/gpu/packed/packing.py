"""Matrices of 4- and 8-bit codes in the layout that the kernels read. Plain torch.

Rows are taken ROWS at a time, columns a chunk at a time, which has BYTES bytes of each row (fewer where fewer columns
share a scale). A chunk of 8-bit codes has as many columns as bytes. One of 4-bit codes has twice as many, in two
planes: the first half of its columns, and the second. Four bytes hold four columns of each, in the order that the form
says (`codes`).

A chunk lies in memory as a tensor core wants it: each of a warp's 32 lanes reads 16 bytes that follow each other into
registers, and multiplies from there. Lane 4 · g + t has the rows g and g + 8, and a quarter t of the columns: for a row
that is h · 8 + g, and a column (of its plane) that is t · width / 4 + u · 8 + m · 4 + k · 2 + c, bytes are in the order
[u, g, t, k, h, m, c] (`arranged`). So a tensor core multiplies four of a lane's columns that follow each other at a
time: a token's numbers are in the registers where it wants them as they are loaded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from specdec_tui.backends.gpu.packed.codes import FORMS, HALVES, SPREAD, STRAIGHT, tables

ROWS = 16
"""Rows that lie together: the side of a tensor core's tile."""
BYTES = 64
"""Bytes of a row's chunk, at most."""
_LEAST = 16  # columns that may share a scale: what a step of a tensor core takes


def power(number: int) -> int:
    """The next power of two."""
    return 1 << max(0, number - 1).bit_length()


@dataclass(frozen=True)
class Codes:
    """A matrix as its file or library has it, in plain order: weight = scale · number of the code + offset.

    codes uint8 [rows, columns]; scales and offsets float32 [rows, groups], offsets empty where all are 0; `group`
    columns that follow each other share a scale. places int32 [columns]: which columns of x the columns belong to;
    empty: their own.
    """

    form: str
    codes: Tensor
    scales: Tensor
    offsets: Tensor
    group: int
    places: Tensor

    @property
    def shape(self) -> tuple[int, int]:
        return int(self.codes.shape[0]), int(self.codes.shape[1])


@dataclass(frozen=True)
class Packed:
    """A matrix for the kernels: weight uint8 [row tiles, chunks, ROWS · width], scales, offsets float32 [row tiles,
    groups, ROWS], numbers float32 [16 or 256] by code, tables int32 [256] of a form that has one (`codes.tables`);
    offsets and places as in `Codes`."""

    form: str
    weight: Tensor
    scales: Tensor
    offsets: Tensor
    numbers: Tensor
    tables: Tensor
    places: Tensor
    rows: int
    columns: int
    group: int
    half: str

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows, self.columns

    @property
    def width(self) -> int:
        return int(self.weight.shape[-1]) // ROWS

    @property
    def nbytes(self) -> int:
        """That a product reads."""
        return sum(part.numel() * part.element_size() for part in (self.weight, self.scales, self.offsets))


def packable(codes: Codes) -> bool:
    """Whether the kernels read it: groups of columns that fill steps of a tensor core, or whole rows."""
    return codes.group >= codes.shape[1] or (codes.group >= _LEAST and codes.group & (codes.group - 1) == 0)


def plain_weights(codes: Codes) -> Tensor:
    """The weights float32 [rows, columns], in the order of x's columns."""
    numbers = torch.tensor(FORMS[codes.form].numbers, device=codes.codes.device)
    group = torch.arange(codes.shape[1], device=codes.codes.device) // codes.group
    found = numbers[codes.codes.long()] * codes.scales[:, group]
    if codes.offsets.numel():
        found = found + codes.offsets[:, group]
    if not codes.places.numel():
        return found
    return torch.empty_like(found).index_copy_(1, codes.places.long(), found)


def joined(parts: Sequence[Codes]) -> Codes | None:
    """Matrices below each other; None where they differ in form, groups or the order of columns, and forms of whole
    numbers cannot make that up."""
    parts = _alike(parts)
    one = parts[0]
    if any((part.form, part.group, part.shape[1]) != (one.form, one.group, one.shape[1]) for part in parts):
        return None
    if any(part.places.shape != one.places.shape or not torch.equal(part.places, one.places) for part in parts):
        return None
    offsets = [part.offsets if part.offsets.numel() else torch.zeros_like(part.scales) for part in parts]
    if not any(part.offsets.numel() for part in parts):
        offsets = [part.offsets for part in parts]
    return Codes(
        one.form,
        torch.cat([part.codes for part in parts]),
        torch.cat([part.scales for part in parts]),
        torch.cat(offsets),
        one.group,
        one.places,
    )


_WHOLE = {"int4": -8, "uint4": 0, "int8": 0}
"""Forms of whole numbers, each of which int8 has, and what is added to their codes."""


def _alike(parts: Sequence[Codes]) -> Sequence[Codes]:
    """Matrices of whole numbers in one form, with groups of one size: the same weights, some in more bytes."""
    forms, groups = {part.form for part in parts}, {part.group for part in parts}
    if not forms <= _WHOLE.keys() or len(forms) == len(groups) == 1:
        return parts
    group = min(groups)
    if any(part.group % group or part.shape[1] % group for part in parts):
        return parts

    def widened(part: Codes) -> Codes:
        codes = part.codes if len(forms) == 1 else part.codes + (_WHOLE[part.form] & 255)
        each = part.group // group
        scales, offsets = (
            values.repeat_interleave(each, 1)[:, : part.shape[1] // group] if values.numel() else values
            for values in (part.scales, part.offsets)
        )
        return replace(
            part,
            form=part.form if len(forms) == 1 else "int8",
            codes=codes,
            scales=scales,
            offsets=offsets,
            group=group,
        )

    return [widened(part) for part in parts]


def pack(codes: Codes, dtype: torch.dtype) -> Packed:
    """For products in half precision `dtype`. Codes must be `packable`."""
    if not packable(codes):
        raise ValueError(f"groups of {codes.group} columns are not packed: {_LEAST}, 32, 64 … or whole rows")
    form, half = FORMS[codes.form], str(dtype).removeprefix("torch.")
    if half not in HALVES:
        raise ValueError(f"packed weights are for {' and '.join(HALVES)}, not for {half}")
    rows, columns = codes.shape
    width = min(BYTES, codes.group) if codes.group < columns else BYTES
    device = codes.codes.device
    chunk = form.planes * width
    tiles, chunks = -(-rows // ROWS), -(-columns // chunk)
    padded = torch.zeros(tiles * ROWS, chunks * chunk, dtype=torch.uint8, device=device)
    padded[:rows, :columns] = codes.codes
    weight = padded.view(tiles, ROWS, chunks, form.planes, width).permute(0, 2, 3, 1, 4)
    words = arranged(weight).view(tiles, chunks, form.planes, -1, 4)
    if form.planes == 2:
        nibbles = words.transpose(2, 3).flatten(-2)  # of a word: four columns of one plane, four of the other
        if form.order == SPREAD:
            nibbles = nibbles[..., list(_SPREAD)]
        words = nibbles[..., 0::2] | nibbles[..., 1::2] << 4
    weight = words.reshape(tiles, chunks, ROWS * width)
    return Packed(
        codes.form,
        weight.contiguous(),
        _of_tiles(codes.scales, tiles),
        _of_tiles(codes.offsets, tiles) if codes.offsets.numel() else codes.offsets,
        torch.tensor(form.numbers, device=device),
        _words(tables(codes.form, half), device) if form.order == STRAIGHT else codes.places[:0],
        codes.places,
        rows,
        columns,
        min(codes.group, columns),
        half,
    )


def arranged(chunks: Tensor) -> Tensor:
    """[..., ROWS, width] to [..., ROWS · width]: as the lanes of a warp read it."""
    *outer, _, width = chunks.shape
    quarter, first = width // 4, len(outer)
    inner = (2, 8, 4, max(1, quarter // 8), 2, min(2, quarter // 4), 2)  # h, g, t, u, m, k, c
    order = (first + 3, first + 1, first + 2, first + 5, first, first + 4, first + 6)
    return chunks.reshape(*outer, *inner).permute(*range(first), *order).flatten(first)


_SPREAD = (0, 2, 4, 6, 1, 3, 5, 7)
"""Of the columns 0 … 3 of one plane and 4 … 7 of the other: those of the codes 0 … 7 of a register."""


def _words(values: Sequence[int], device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=torch.int64, device=device).to(torch.int32)


def _of_tiles(values: Tensor, tiles: int) -> Tensor:
    rows, groups = values.shape
    padded = torch.zeros(tiles * ROWS, groups, dtype=torch.float32, device=values.device)
    padded[:rows] = values
    return padded.view(tiles, ROWS, groups).transpose(1, 2).contiguous()
