"""The tokenizer of a GGUF file as the rest of the program sees it: the part of transformers' interface that is used.

Importing transformers' own class costs more than half of a launch. Read in 5.24: what is done here is what its
`TokenizersBackend` does with the same parts, so ids and texts are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tokenizers import AddedToken, Tokenizer

_NAMES = ("bos_token", "eos_token", "unk_token", "pad_token")


class FileTokenizer:
    """A library's tokenizer with its special tokens by what they are for, and its chat template or templates.

    `special`: `bos_token`, `eos_token`, `unk_token`, `pad_token`, as far as there are such. Those that are not found
    in a text before all else are from here on.
    """

    def __init__(
        self, backend: Tokenizer, special: Mapping[str, str], chat_template: str | dict[str, str] | None
    ) -> None:
        self.backend_tokenizer = backend
        self.special_tokens_map = {name: special[name] for name in _NAMES if name in special}
        self.chat_template = chat_template
        known = self.added_tokens_encoder
        missing = [token for token in dict.fromkeys(self.special_tokens_map.values()) if token not in known]
        if missing:
            backend.add_tokens([AddedToken(token, special=True) for token in missing])

    def __call__(
        self, text: str, add_special_tokens: bool = True, split_special_tokens: bool = False
    ) -> dict[str, list[int]]:
        """`input_ids` of a text. `split_special_tokens`: those that it spells are read as any other text."""
        backend = self.backend_tokenizer
        if backend.encode_special_tokens != split_special_tokens:
            backend.encode_special_tokens = split_special_tokens
        # A batch of one: the interpreter is free meanwhile.
        (found,) = backend.encode_batch([text], add_special_tokens=add_special_tokens)
        return {"input_ids": found.ids}

    def decode(
        self, ids: Sequence[int], skip_special_tokens: bool = False, clean_up_tokenization_spaces: bool = False
    ) -> str:
        """The text of ids. Spaces are never cleaned up: of a GGUF file's tokens none wants that."""
        return str(self.backend_tokenizer.decode(list(ids), skip_special_tokens=skip_special_tokens))

    def get_vocab(self) -> dict[str, int]:
        """All tokens, added ones included."""
        return dict(self.backend_tokenizer.get_vocab(with_added_tokens=True))

    @property
    def added_tokens_decoder(self) -> dict[int, AddedToken]:
        return dict(self.backend_tokenizer.get_added_tokens_decoder())

    @property
    def added_tokens_encoder(self) -> dict[str, int]:
        return {token.content: id for id, token in sorted(self.added_tokens_decoder.items())}

    def convert_ids_to_tokens(self, ids: int) -> str | None:
        """A token as the vocabulary spells it; None for an id beyond it."""
        return self.backend_tokenizer.id_to_token(ids)

    @property
    def all_special_ids(self) -> list[int]:
        found = [self.backend_tokenizer.token_to_id(token) for token in dict.fromkeys(self.special_tokens_map.values())]
        return [id for id in found if id is not None]

    def _id(self, name: str) -> int | None:
        token = self.special_tokens_map.get(name)
        return None if token is None else self.backend_tokenizer.token_to_id(token)

    @property
    def unk_token(self) -> str | None:
        return self.special_tokens_map.get("unk_token")

    @property
    def unk_token_id(self) -> int | None:
        return self._id("unk_token")

    @property
    def bos_token_id(self) -> int | None:
        return self._id("bos_token")

    @property
    def eos_token_id(self) -> int | None:
        return self._id("eos_token")
