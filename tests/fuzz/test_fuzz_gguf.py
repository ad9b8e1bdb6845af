"""GGUF files whose headers hold any bytes: they are described, or refused in one line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from campaign import campaign, check_refusal, check_told
from tiny_gguf import Sizes, write_tiny_gguf

from specdec_tui.backends.description import describe
from specdec_tui.backends.gguf.header import read_header
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.presets import ModelSpec

ARCHITECTURES = ("llama", "qwen2", "gemma3", "phi3")
SMALL = Sizes(hidden=64, inner=64, layers=1, head=16)
PLACES = 1_500  # bytes at both ends of a header, where single values and tensors are told of


def test_gguf_headers(tmp_path: Path) -> None:
    campaign("GGUF headers", gguf_headers(tmp_path))


def gguf_headers(root: Path) -> Callable[[Random], str]:
    wholes: list[tuple[bytes, int]] = []
    for architecture in ARCHITECTURES:
        path = root / f"{architecture}.gguf"
        write_tiny_gguf(path, architecture=architecture, sizes=SMALL)
        end = min(tensor.offset for tensor in read_header(path).tensors.values())
        wholes.append((path.read_bytes(), end))

    def try_one(dice: Random) -> str:
        whole, end = dice.choice(wholes)
        path = root / "hostile.gguf"
        path.write_bytes(hostile(dice, whole, end))
        spec = ModelSpec(source=str(path), dtype="float32", device="cpu", quantization="none")
        try:
            found = describe(spec, lambda progress: None)
            check_told(*found.told)
            return "described"
        except LoadError as error:
            check_told(str(error))
            return check_refusal(error)

    return try_one


def hostile(dice: Random, whole: bytes, end: int) -> bytes:
    """A file with some bytes of its header changed, or cut off."""
    content = bytearray(whole)
    for _ in range(dice.choice((1, 1, 2, 4))):
        first = dice.choice((0, 0, max(0, end - PLACES)))
        last = dice.choice((min(end, PLACES), end))
        place = dice.randrange(min(first, last - 1), last)
        content[place] = dice.choice((0, 1, 9, 255, content[place] ^ (1 << dice.randrange(8)), dice.randrange(256)))
    return bytes(content if dice.random() < 0.9 else content[: dice.randrange(len(content))])
