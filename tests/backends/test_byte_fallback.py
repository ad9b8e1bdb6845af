"""Byte tokens: what is valid among them is shown, whatever stands beside it, and nothing shown is taken back."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from test_prompt_tokenizer import byte_fallback_tokenizer
from tiny_transformers import tiny_tokenizer

from specdec_tui.backends.byte_fallback import byte_tokens, decode
from specdec_tui.backends.tokenizer import IncrementalText, PromptTokenizer

RUNS = {
    "a character and a lone byte": ("é".encode() + b"\xe4", "é\ufffd"),
    "a lone byte and a character": (b"\xff" + "界".encode(), "\ufffd界"),
    "a character broken off by another": (b"\xe7\x95" + "😀".encode(), "\ufffd😀"),
    "overlong": (b"\xc0\x80", "\ufffd\ufffd"),
    "a surrogate": (b"\xed\xa0\x80", "\ufffd\ufffd\ufffd"),
    "the replacement character itself": ("\ufffd".encode() + b"\xff", "\ufffd\ufffd"),
    "text in bytes": (b"a\nb", "a\nb"),
}


def ids_of(content: bytes) -> list[int]:
    return [byte_fallback_tokenizer().convert_tokens_to_ids(f"<0x{byte:02X}>") for byte in content]


@pytest.mark.parametrize("name", RUNS)
def test_only_invalid_bytes_become_replacement_characters(name: str) -> None:
    content, expected = RUNS[name]
    tokenizer = byte_fallback_tokenizer()
    words = tokenizer("the cat", add_special_tokens=False)["input_ids"]
    alone = ids_of(content)
    assert decode(tokenizer, alone) == expected == content.decode(errors="replace")
    both = decode(tokenizer, [*words, *alone, *words, *alone])
    assert both == decode(tokenizer, words) + expected + " the cat" + expected


@pytest.mark.parametrize("seed", [*range(20), *(pytest.param(seed, marks=pytest.mark.large) for seed in range(20, 60))])
def test_text_in_pieces_is_the_text_and_is_never_taken_back(seed: int) -> None:
    dice = random.Random(seed)
    tokenizer = byte_fallback_tokenizer()
    ids = list(_mixed(dice, len(tokenizer)))
    text, shown = IncrementalText(tokenizer), ""
    for count, token in enumerate(ids, 1):
        shown += "".join(text.push([token]))
        assert shown + text.rest() == decode(tokenizer, ids[:count])


def _mixed(dice: random.Random, size: int) -> Iterator[int]:
    """Characters in bytes, whole and cut, lone bytes, and any other tokens."""
    for _ in range(60):
        kind = dice.randrange(4)
        if kind < 2:
            content = dice.choice("é界😀a\ufffd").encode()
            yield from ids_of(content if kind else content[: dice.randrange(1, len(content) + 1)])
        elif kind == 2:
            yield from ids_of(bytes([dice.randrange(256)]))
        else:
            yield dice.randrange(size)


def test_special_tokens_between_bytes_count_as_they_are_shown() -> None:
    tokenizer = byte_fallback_tokenizer()
    first, second, third = ids_of("界".encode())
    ids = [first, second, tokenizer.eos_token_id, third]
    assert decode(tokenizer, ids) == "\ufffd</s>\ufffd"
    assert decode(tokenizer, ids, skip_special_tokens=True) == "界"


def test_tokenizers_without_byte_tokens_are_left_alone() -> None:
    tokenizer = tiny_tokenizer()
    assert byte_tokens(tokenizer) == {}
    assert len(byte_tokens(byte_fallback_tokenizer())) == 256


def test_a_lone_byte_stands_for_itself_in_a_list_of_alternatives() -> None:
    assert PromptTokenizer(byte_fallback_tokenizer()).piece(ids_of(b"\xff")[0]) == "\ufffd"
