"""Text to ids and back: prompts with the chat template applied once, and text that grows token by token."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from specdec_tui.backends import growth, in_time
from specdec_tui.backends.byte_fallback import REPLACEMENT, decode, may_take_long
from specdec_tui.backends.chat_template import Turn, apply_template
from specdec_tui.backends.errors import in_words, panics_raise
from specdec_tui.backends.stop_strings import StopStrings
from specdec_tui.doors.characters import named, one_line

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

_NAMED = 5  # tokens that a notice names
_FAILS = "a rule in its files fails over it"

Result = TypeVar("Result")


def never() -> bool:
    return False


class IncrementalText:
    """The text of a growing sequence of ids, piece by piece.

    The pieces joined, and `rest()`, are `decode(all ids)`, special tokens included. A token that ends
    inside a character has the piece ""; the token that completes it carries the character.

    Ids cannot be decoded one by one: spaces, merges and characters depend on their neighbours. So a
    short window of the last ids is decoded each time, and what it adds is the piece; it starts at a
    token where the text was whole, which makes the cost of a token independent of the length.
    """

    _WINDOW = 12  # ids after which the window is shortened
    _PATIENCE = 24  # ids without a whole character after which they are taken to be invalid bytes

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._window: list[int] = []
        self._shown = 0  # characters of the window's text that were given out
        self._whole = 0  # ids of the window at the last place where its text was settled
        self._held = ""  # text that waits for the rest of a character

    def push(self, ids: Iterable[int]) -> tuple[str, ...]:
        """Append ids and return the piece of each."""
        return tuple(self._append(token) for token in ids)

    def peek(self, ids: Iterable[int]) -> tuple[str, ...]:
        """The pieces that `push` would return, without appending (drafts that were not accepted).

        From one on that the tokenizer cannot write, replacement characters: a refused draft ends no run.
        """
        ids, pieces, ahead = list(ids), [], self.fork()
        with suppress(Exception), panics_raise():
            for token in ids:
                pieces.append(ahead._append(token))
        return (*pieces, *[REPLACEMENT] * (len(ids) - len(pieces)))

    def fork(self) -> IncrementalText:
        """An independent copy."""
        copy = IncrementalText(self._tokenizer)
        copy._window = self._window.copy()
        copy._shown, copy._whole, copy._held = self._shown, self._whole, self._held
        return copy

    def rest(self) -> str:
        """What a sequence that ends here still owes: replacement characters for an unfinished character."""
        return self._held

    def _append(self, token: int) -> str:
        self._window.append(token)
        text = decode(self._tokenizer, self._window)
        if not text.endswith(REPLACEMENT):
            sure, settled = len(text), True
        elif len(self._window) - self._whole < self._PATIENCE:
            sure, settled = len(text.rstrip(REPLACEMENT)), False
        else:  # only the last of them can still become a character
            sure, settled = len(text) - 1, True
        piece, self._held = text[self._shown : sure], text[max(self._shown, sure) :]
        self._shown = max(self._shown, sure)
        if settled:
            if len(self._window) > self._WINDOW:
                self._shorten(len(text))
            self._whole = len(self._window)
        return piece

    def _shorten(self, characters: int) -> None:
        """Drop the ids before the last settled place, where a character starts, and count again what was shown."""
        ahead = characters - self._shown
        self._window = self._window[self._whole :]
        self._shown = len(decode(self._tokenizer, self._window)) - ahead


class Prompt(NamedTuple):
    """Ids of a prompt, the exact text they stand for, and what a person should know of how they came about."""

    ids: list[int]
    text: str
    notices: tuple[str, ...] = ()


class PromptTokenizer:
    """The target's tokenizer as the session uses it. Ids are the target's.

    `for_encoder`: prompts are what an encoder reads, alone and whole, never a part of a chat.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, name: str = "", for_encoder: bool = False) -> None:
        self.tokenizer = tokenizer
        self._name = name
        self._for_encoder = for_encoder
        self._pieces: dict[int, str] = {}

    @property
    def has_chat_template(self) -> bool:
        return bool(self.tokenizer.chat_template) and not self._for_encoder

    def encode(
        self, prompt: str, history: Sequence[Turn] = (), chat: bool = True, cancelled: Callable[[], bool] = never
    ) -> Prompt:
        """Ids of a prompt and the exact text they stand for.

        With `chat` and a chat template, the template is applied once to the history and the prompt,
        up to where the answer starts; the template writes the special tokens, so the tokenizer adds
        none (no second beginning-of-sequence token). Otherwise the text is the prompt alone, with
        the tokenizer's own special tokens: what `generate` is given. A prompt with no token at all
        becomes the one that begins (or ends) a sequence, since a model needs something to start from.
        ValueError when the template refuses the conversation or the tokenizer the text, or when one of
        them takes too long; `in_time.Stopped`, with what was at work, when it was `cancelled`.
        """

        def read(work: Callable[[], Result]) -> Result:
            return self._in_time(work, "read this prompt", cancelled)

        typed, notices = read(lambda: self._typed(prompt))
        if chat and self.has_chat_template:
            text, changed = self._apply_template(prompt, history, cancelled)
            ids, lost = read(lambda: self._templated(text))
            notices += [*changed, *lost]
        else:
            ids, text, added = read(lambda: self._plain(prompt, typed))
            notices += added
        if not ids:
            first = self.tokenizer.bos_token_id
            first = self.tokenizer.eos_token_id if first is None else first
            ids = [0 if first is None else first]
            text = read(lambda: self.decode(ids))
        return Prompt(ids, text, tuple(notices))

    def read_again(self, text: str, cancelled: Callable[[], bool] = never) -> list[int]:
        """Ids of the exact text of a prompt, special tokens and all, as `encode` told it. ValueError, Stopped."""
        return self._in_time(lambda: self._ids(text, add_special_tokens=False), "read this prompt", cancelled)

    def spell(self, work: Callable[[], Result], cancelled: Callable[[], bool] = never) -> Result:
        """What `work()` makes of tokens by `decode`, `piece` and streams of this tokenizer.

        ValueError, in one line, where the tokenizer fails over them or takes too long, Stopped once `cancelled`.
        """
        return self._in_time(work, "write the text of these tokens", cancelled, thread=may_take_long(self.tokenizer))

    def _in_time(
        self, work: Callable[[], Result], task: str, cancelled: Callable[[], bool], thread: bool = True
    ) -> Result:
        whose = f" of {self._name}" if self._name else ""
        try:
            with panics_raise():
                return in_time.in_time(work, cancelled) if thread else work()
        except in_time.Stopped:
            raise in_time.Stopped("stopped while the tokenizer was at work") from None
        except in_time.TooLong:
            raise ValueError(f"the tokenizer{whose} does not {task} within {in_time.SECONDS} seconds") from None
        except Exception as error:  # the library raises bare exceptions, e.g. where no token stands for unknown words
            raise ValueError(f"the tokenizer{whose} cannot {task}: {one_line(in_words(error, _FAILS))}") from error

    def _ids(self, text: str, add_special_tokens: bool = True) -> list[int]:
        growth.check_reading(self.tokenizer, text)
        return list(self.tokenizer(text, add_special_tokens=add_special_tokens)["input_ids"])

    def _typed(self, prompt: str) -> tuple[list[int], list[str]]:
        """The ids of what was typed alone, and what must be known of them. ValueError where they hold nothing of it."""
        typed = self._ids(prompt, add_special_tokens=False)
        stands_for_any = set() if str(self.tokenizer.unk_token) in prompt else {self.tokenizer.unk_token_id}
        known = [token for token in typed if token not in stands_for_any]
        if _bare(prompt) and not _bare(self.decode(known)):
            raise ValueError("it leaves nothing of it")
        return typed, self._typed_specials(known)

    def _templated(self, text: str) -> tuple[list[int], list[str]]:
        ids = self._ids(text, add_special_tokens=False)
        return ids, _lost(text, self.decode(ids))

    def _plain(self, prompt: str, typed: list[int]) -> tuple[list[int], str, list[str]]:
        """Ids of a prompt with what the tokenizer adds, their text, and what must be known of it."""
        ids = self._ids(prompt)
        return ids, self.decode(ids), [*_lost(prompt, self.decode(typed)), *self._added_specials(ids, typed)]

    def _apply_template(
        self, prompt: str, history: Sequence[Turn], cancelled: Callable[[], bool]
    ) -> tuple[str, tuple[str, ...]]:
        try:
            return apply_template(self.tokenizer, prompt, history, cancelled)
        except ValueError as error:
            whose = f" of {self._name}" if self._name else ""
            raise ValueError(f"the chat template{whose} {error}") from error

    def _typed_specials(self, typed: Sequence[int]) -> list[str]:
        """A notice where the prompt itself spells tokens that steer a model: special ones, and the template's own."""
        template = str(self.tokenizer.chat_template or "")
        steering = set(self.tokenizer.all_special_ids)
        steering |= {id for id, token in self.tokenizer.added_tokens_decoder.items() if str(token) in template}
        found = Counter(token for token in typed if token in steering)
        return [f"special tokens in the prompt are read as such: {self._named(found)}"] if found else []

    def _added_specials(self, ids: list[int], typed: list[int]) -> list[str]:
        """A notice where the tokenizer puts more around a prompt than what begins a sequence."""
        room = len(ids) - len(typed)
        begin = next((at for at in range(room + 1) if ids[at : at + len(typed)] == typed), None)
        if begin is None or not typed:
            return []
        before = Counter(token for token in ids[:begin] if token != self.tokenizer.bos_token_id)
        closing = self.tokenizer.eos_token_id if self._for_encoder else None  # every text that an encoder reads has it
        behind = Counter(token for token in ids[begin + len(typed) :] if token != closing)
        told = []
        if before:
            told.append(f"the tokenizer puts {self._named(before)} before the prompt, as it does for generate")
        if behind:
            told.append(f"the tokenizer puts {self._named(behind)} behind the prompt, as it does for generate")
        return told

    def _named(self, found: Counter[int]) -> str:
        names = [f"{named(str(self.tokenizer.convert_ids_to_tokens(id)))} (id {id})" for id in list(found)[:_NAMED]]
        counts = [f" {count} times" if count > 1 else "" for count in list(found.values())[:_NAMED]]
        rest = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        return ", ".join(map("".join, zip(names, counts, strict=True))) + rest

    def decode(self, ids: Sequence[int], skip_special_tokens: bool = False) -> str:
        return decode(self.tokenizer, ids, skip_special_tokens)

    def piece(self, token: int) -> str:
        """The text of one id as it stands inside a text; replacement characters for a part of a character.

        And for one that the tokenizer cannot write: what a model only thought of ends no run.
        """
        if token not in self._pieces:
            self._pieces[token] = REPLACEMENT
            with suppress(ValueError), panics_raise():
                # Some tokenizers drop the space that a text begins with: behind itself an id keeps it.
                alone = self.decode([token])
                self._pieces[token] = self.decode([token, token])[len(alone) :]
        return self._pieces[token]

    def completes(self, stops: Sequence[str]) -> StopStrings:
        """Where one of these strings ends a text."""
        return StopStrings(self.tokenizer, stops)

    def ids_of_word(self, word: str) -> list[list[int]]:
        """The ids that a text can be written as, at the beginning of a line and behind a space."""
        found = [self._ids(text, add_special_tokens=False) for text in (word, f" {word}")]
        return [ids for index, ids in enumerate(found) if ids and ids not in found[:index]]

    def stream(self) -> IncrementalText:
        """Text for a new sequence of ids."""
        return IncrementalText(self.tokenizer)


def chance_of(tokenizer: PreTrainedTokenizerBase) -> str:
    """What makes a tokenizer read the same text in another way each time; empty where nothing does."""
    dropout = getattr(getattr(getattr(tokenizer, "backend_tokenizer", None), "model", None), "dropout", None)
    if dropout:
        return f"BPE dropout {dropout:.3g}"
    return "subword sampling" if (getattr(tokenizer, "sp_model_kwargs", None) or {}).get("enable_sampling") else ""


def _lost(given: str, read: str) -> list[str]:
    """A notice where ids do not stand for the text that was given. Spaces are left to the tokenizer."""
    before, after = _bare(given), _bare(read)
    if before == after:
        return []
    dropped = Counter(before) - Counter(after)
    if dropped and not Counter(after) - Counter(before):
        what = f"drops {dropped.total():,} of the text's {len(before):,} characters (spaces not counted)"
    else:
        what = "changes the text"
    return [f"the tokenizer {what}, as it does for generate: the tokens show what the model was given"]


def _bare(text: str) -> str:
    """A text without white space, and without a difference between two spellings of a character."""
    return "".join(unicodedata.normalize("NFC", text).split())
