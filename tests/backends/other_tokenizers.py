"""Small tokenizers of every kind, made of one text: what they have in common is the text alone.

The trainers of the tokenizers package break ties in another way in each process: what one made is kept in a file beside
this one, written by `python tests/backends/other_tokenizers.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

from tiny_transformers import SPECIAL, tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

TEXT = (
    "the cat sat on the mat and the dog sat on the cat. A small model writes, a large one reads: 12 tokens (or 34)! "
    "def add(a, b):\n    return a + b\n The café is naïve. 你好，世界。今天天气很好。 😀 👍🏽 done\n\n"
)
KINDS = ("byte-level", "byte-fallback", "word-piece", "unigram")
KEEP_SPACES = ("byte-level", "byte-fallback", "unigram")
WRITE_ALL = ("byte-level", "byte-fallback")


_KEPT = Path(__file__).with_suffix(".json")
_SIZE = 320  # tokens, about


@cache
def other_tokenizer(kind: str) -> PreTrainedTokenizerFast:
    """A tokenizer of a kind."""
    if kind == "byte-level":
        return tiny_tokenizer()
    tokenizer = Tokenizer.from_str(json.dumps(json.loads(_KEPT.read_text(encoding="utf-8"))[kind]))
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, **tokens)
    begin = fast.convert_tokens_to_ids("<s>")
    fast._tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", begin)])
    return fast


def _byte_fallback() -> Tokenizer:
    """As sentencepiece models of the Llama 2 kind have it."""
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()  # no token of two words, as sentencepiece makes none
    first = ["<unk>", *SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256))]
    trainer = trainers.BpeTrainer(vocab_size=_SIZE + 100, special_tokens=first, limit_alphabet=40, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    # The trainer takes the byte tokens for special ones, which in models they are not.
    return _without_added(tokenizer, ["<unk>", *SPECIAL])


def _without_added(tokenizer: Tokenizer, special: list[str]) -> Tokenizer:
    content = json.loads(tokenizer.to_str())
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] in special]
    return Tokenizer.from_str(json.dumps(content))


def _word_piece() -> Tokenizer:
    tokenizer = Tokenizer(models.WordPiece(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=_SIZE, special_tokens=["<unk>", *SPECIAL], show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.decoder = decoders.WordPiece()
    return tokenizer


def _unigram() -> Tokenizer:
    """As T5 has it."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=_SIZE, special_tokens=["<unk>", *SPECIAL], unk_token="<unk>", show_progress=False
    )
    tokenizer.train_from_iterator([TEXT] * 4, trainer)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def _write() -> None:
    trained: dict[str, Callable[[], Tokenizer]] = {
        "byte-fallback": _byte_fallback, "word-piece": _word_piece, "unigram": _unigram
    }  # fmt: skip
    made = {kind: json.loads(train().to_str()) for kind, train in trained.items()}
    _KEPT.write_text(json.dumps(made, ensure_ascii=False, separators=(",", ":")) + "\n", encoding="utf-8")


if __name__ == "__main__":
    _write()
