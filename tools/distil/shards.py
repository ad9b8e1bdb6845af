"""Training rows on disk and in memory: tokens with the target's sparse distribution after each of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from distil.files import load_tensors, save_tensors

_ID_MASK = 0xFFFF

MOST_IDS = _ID_MASK + 1
"""Largest vocabulary whose ids can be packed."""


def pack_ids(ids: Tensor) -> Tensor:
    """Ids below 65,536 as int16 bit patterns: torch can index those everywhere, unlike uint16."""
    return ids.to(torch.int16)


def unpack_ids(packed: Tensor) -> Tensor:
    """The int64 ids that `pack_ids` packed."""
    return packed.long() & _ID_MASK


@dataclass(frozen=True, slots=True)
class Rows:
    """N rows of L tokens: `tokens` [N, L] and `ids` [N, L, K] packed int16, `probabilities` [N, L, K] float16.

    `ids` and `probabilities` at a place are the target's top K, in falling order, for the token after it;
    `of_answer` [N, L] bool says whether that token is the model's own in an answer.
    """

    tokens: Tensor
    ids: Tensor
    probabilities: Tensor
    of_answer: Tensor

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def pick(self, rows: Tensor, device: torch.device) -> Rows:
        """Some rows, on `device`, which is where they are kept or a GPU."""
        there = rows.to(self.tokens.device, non_blocking=True)  # towards a GPU only: no wait for earlier steps
        return Rows(*(getattr(self, name)[there].to(device, non_blocking=True) for name in _NAMES))


_NAMES = ("tokens", "ids", "probabilities", "of_answer")


def shard_files(folder: Path) -> list[Path]:
    """The finished shards of a folder, in order."""
    return sorted(folder.glob("[0-9]*.pt"))


def save_rows(path: Path, rows: Rows) -> None:
    """Write a shard; it exists only when it is whole."""
    save_tensors(path, {name: getattr(rows, name) for name in _NAMES})


def load_rows(files: list[Path], device: torch.device) -> Rows:
    """All rows of the shards in one piece each, on the GPU when half of its free memory holds them, else in memory."""
    first = load_tensors(files[0], mmap=True)
    counts = [load_tensors(file, mmap=True)["tokens"].shape[0] for file in files]
    total = sum(counts)
    needed = sum(value.nbytes for value in first.values()) // counts[0] * total
    if device.type == "cuda" and needed > torch.cuda.mem_get_info(device)[0] // 2:
        device = torch.device("cpu")
    whole = {
        name: torch.empty((total, *value.shape[1:]), dtype=value.dtype, device=device) for name, value in first.items()
    }

    def read(n: int) -> None:
        begin = sum(counts[:n])
        for name, value in load_tensors(files[n]).items():
            whole[name][begin : begin + counts[n]].copy_(value)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(read, range(len(files))))
    return Rows(**whole)
