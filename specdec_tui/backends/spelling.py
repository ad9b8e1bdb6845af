"""How a tokenizer spells text: the bytes that each of its tokens stands for, and the tokens it reads bytes as."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache

from specdec_tui.backends import in_time

_KEPT = 4096  # short texts whose ids are remembered
_LINE = "\n"


class Spelling:
    """One tokenizer's way to spell bytes.

    `bytes_of` has the ordinary tokens alone: special ones, and added ones that a chat template writes, stand for no
    text; of several of the same bytes the first is meant. `read` is how the tokenizer makes ids of a text, `before`
    and `behind` what it puts around one.
    `keeps_spaces` is False where the tokens do not tell every space of a text (word pieces): there the space
    before a word is taken for part of it, and texts are compared without theirs.
    """

    def __init__(
        self,
        bytes_of: Mapping[int, bytes],
        read: Callable[[str], list[int]],
        keeps_spaces: bool = True,
        before: tuple[int, ...] = (),
        behind: tuple[int, ...] = (),
    ) -> None:
        self.bytes_of, self.keeps_spaces = bytes_of, keeps_spaces
        self.before, self.behind = before, behind
        self._read = read
        self.id_of = {bytes_of[token]: token for token in reversed(list(bytes_of))}
        self._longest = max(map(len, self.id_of), default=0)
        self._remembered = lru_cache(_KEPT)(self._ids)

    def text(self, ids: Sequence[int]) -> bytes:
        """What ordinary tokens among these spell."""
        return b"".join(self.bytes_of.get(token, b"") for token in ids)

    def ids(self, data: bytes, last: str = _LINE) -> tuple[int, ...]:
        """The tokens for `data` behind a text whose last character is `last`.

        As the tokenizer itself reads them, where that spells these bytes; else the longest tokens that do; else what
        the tokenizer makes of it. What it cannot read at all is left out.
        """
        last = _LINE if self.keeps_spaces else last
        return self._remembered(data, last) if len(data) < 64 else self._ids(data, last)

    def exactly(self, data: bytes) -> list[int] | None:
        """The longest tokens, from the left, that spell `data`, also within a character; None where none do."""
        found: list[int] = []
        while data:
            lengths = range(min(self._longest, len(data)), 0, -1)
            length = next((length for length in lengths if data[:length] in self.id_of), 0)
            if not length:
                return None
            found.append(self.id_of[data[:length]])
            data = data[length:]
        return found

    def spells(self, ids: Sequence[int], data: bytes) -> bool:
        """Whether tokens stand for these bytes, as far as this tokenizer can tell."""
        text = self.text(ids)
        return text == data or not (self.keeps_spaces or b"".join(text.split()) != b"".join(data.split()))

    def ids_in_time(self, data: bytes, cancelled: Callable[[], bool]) -> tuple[int, ...]:
        """The same for a text of any length. ValueError where it takes too long, Stopped once `cancelled`."""
        try:
            return in_time.in_time(lambda: self._ids(data, _LINE), cancelled)
        except in_time.TooLong:
            raise ValueError(f"the drafter's tokenizer does not read this prompt within {in_time.SECONDS} s") from None

    def _ids(self, data: bytes, last: str) -> tuple[int, ...]:
        found: list[int] = []
        for text, raw in _parts(data):
            found += self._of_text(text, last) if text else self.exactly(raw) or ()
        return tuple(found)

    def _of_text(self, text: str, last: str) -> Sequence[int]:
        data = text.encode()
        for before in ("", _LINE) if self.keeps_spaces else (last,):
            ids = self._read_behind(before, text)
            if ids is not None and self.spells(ids, data):
                return ids
        exact = self.exactly(data)
        return exact if exact is not None else self._read_behind("", text) or ()

    def _read_behind(self, before: str, text: str) -> list[int] | None:
        """The ids of a text behind another, None where they are not to be told apart or the tokenizer fails."""
        try:
            known, ids = self._read(before) if before else [], self._read(before + text)
        except Exception:  # the library raises bare exceptions
            return None
        return ids[len(known) :] if ids[: len(known)] == known else None


def _parts(data: bytes) -> Iterator[tuple[str, bytes]]:
    """Runs of whole characters, as text, and of bytes that are none."""
    while data:
        try:
            yield data.decode(), b""
            return
        except UnicodeDecodeError as error:
            if error.start:
                yield data[: error.start].decode(), b""
            yield "", data[error.start : error.end]
            data = data[error.end :]
