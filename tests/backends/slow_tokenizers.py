"""Tokenizers that take minutes over a short text, or that their library panics over."""

from __future__ import annotations

from tiny_transformers import tiny_tokenizer
from tokenizers import Regex, decoders, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CATASTROPHIC = "(a+)+$"  # each further `a` before something else doubles the time, up to a panic at some 24 of them
SLOW = "a" * 21 + "b "
LONG = SLOW * 40  # more than a second: longer than the tests wait, and over before it slows down what comes behind them
PANICS = "a" * 40 + "b"


def slow_to_read(chat_template: str | None = None) -> PreTrainedTokenizerFast:
    """Text to tokens through a catastrophic regular expression."""
    tokenizer = tiny_tokenizer(chat_template=chat_template)
    usual = tokenizer.backend_tokenizer.pre_tokenizer
    split = pre_tokenizers.Split(Regex(CATASTROPHIC), "isolated")
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, usual])
    return tokenizer


def slow_to_write(word: str | None = None, becomes: str = "") -> PreTrainedTokenizerFast:
    """Tokens to text through one, in which a word of the text, if one is named, becomes another."""
    tokenizer = tiny_tokenizer()
    steps = [decoders.ByteLevel(), decoders.Fuse(), decoders.Replace(Regex(CATASTROPHIC), "x")]
    if word is not None:
        steps.insert(2, decoders.Replace(word, becomes))
    tokenizer.backend_tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer
