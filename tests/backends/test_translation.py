"""Tokens of two tokenizers by the bytes they stand for, and texts of one as the other reads them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence

import pytest
from other_tokenizers import KEEP_SPACES, KINDS, TEXT, WRITE_ALL, other_tokenizer
from slow_tokenizers import LONG, slow_to_read
from tiny_transformers import tiny_tokenizer
from tokenizers import AddedToken

from specdec_tui.backends import in_time
from specdec_tui.backends.byte_fallback import REPLACEMENT, decode
from specdec_tui.backends.spelling import Spelling
from specdec_tui.backends.token_bytes import spelling_of
from specdec_tui.backends.translation import can_write, translate
from specdec_tui.decoding.alignment import Alignment

PAIRS = list(itertools.product(KINDS, KINDS))


def spelling(kind: str) -> Spelling:
    tokenizer = other_tokenizer(kind)
    return spelling_of(tokenizer, len(tokenizer))


def never() -> bool:
    return False


def bare(data: bytes) -> bytes:
    return b"".join(data.split())


@pytest.mark.parametrize("kind", KINDS)
def test_the_bytes_of_tokens_are_the_text_that_their_tokenizer_writes(kind: str) -> None:
    tokenizer, own = other_tokenizer(kind), spelling(kind)
    dice = random.Random(kind)
    for length in (1, 2, 3, 8, 20):
        ids = [*own.ids(b" the"), *dice.choices(list(own.bytes_of), k=length)]
        text, written = own.text(ids).decode(errors="replace"), decode(tokenizer, ids)
        if REPLACEMENT in text:
            continue
        if kind in KEEP_SPACES:
            assert text.removeprefix(" ") == written.removeprefix(" ")
        assert "".join(text.split()) == "".join(written.split())


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_read_as_the_tokenizer_reads_it(kind: str) -> None:
    tokenizer, own = other_tokenizer(kind), spelling(kind)
    ids = own.ids(TEXT.encode())
    assert own.spells(ids, TEXT.encode())
    read = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    assert len(ids) - len(read) <= 2 and set(ids) >= set(read[4:])


@pytest.mark.parametrize("kind", KEEP_SPACES)
@pytest.mark.parametrize("text", ["the", " the", "ing", "  a", "\n", " ", "the cat "])
def test_a_piece_of_a_text_is_read_as_it_stands_there(kind: str, text: str) -> None:
    own = spelling(kind)
    assert own.text(own.ids(text.encode())) == text.encode()


@pytest.mark.parametrize(
    ("text", "last", "pieces"), [("the", "\n", ["the"]), (" the", "x", ["the"]), ("t", "x", ["##t"])]
)
def test_word_pieces_go_on_with_a_word_or_begin_one(text: str, last: str, pieces: list[str]) -> None:
    ids = spelling("word-piece").ids(text.encode(), last)
    assert other_tokenizer("word-piece").convert_ids_to_tokens(ids) == pieces


def test_characters_are_not_written_in_bytes_where_there_is_a_token_for_them() -> None:
    own, tokenizer = spelling("byte-fallback"), other_tokenizer("byte-fallback")
    assert tokenizer.convert_ids_to_tokens(own.id_of[b"t"]) == "t"
    assert tokenizer.convert_ids_to_tokens(own.id_of[b"\xf0"]) == "<0xF0>"


@pytest.mark.parametrize(("target", "drafter"), PAIRS)
def test_tokens_are_mapped_one_to_one_by_their_bytes(target: str, drafter: str) -> None:
    ours, theirs = spelling(target), spelling(drafter)
    both = translate(ours, theirs).to_drafter
    assert both and len(set(both.values())) == len(both)
    assert all(ours.bytes_of[token] == theirs.bytes_of[own] for token, own in both.items())
    assert len(both) == len(set(ours.bytes_of.values()) & set(theirs.bytes_of.values()))
    if target == drafter:
        assert all(token == own for token, own in both.items())


def test_special_tokens_and_those_that_a_template_writes_never_cross() -> None:
    tokenizer = tiny_tokenizer("<tool>")
    tokenizer.add_tokens([AddedToken("<|user|>"), AddedToken("   ")])
    tokenizer.chat_template = "{{ '<|user|>' }}"
    own = spelling_of(tokenizer, 400)
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<tool>", "<|user|>"]
    assert not {tokenizer.convert_tokens_to_ids(token) for token in special} & own.bytes_of.keys()
    assert own.bytes_of[tokenizer.convert_tokens_to_ids("   ")] == b"   "
    # Nor is a text that spells one read as it.
    assert own.text(own.ids(b"a</s><|im_end|>")) == b"a</s><|im_end|>"


def some_text(dice: random.Random, own: Spelling, ascii_only: bool) -> list[int]:
    """Any tokens of a vocabulary, cut within characters and words."""
    if not ascii_only:
        return dice.choices(list(own.bytes_of), k=dice.randrange(1, 9))
    begin = dice.randrange(100)
    return list(own.ids(TEXT.encode()[begin : begin + dice.randrange(1, 12)]))


@pytest.mark.each_value
@pytest.mark.parametrize("by_token", [True, False], ids=["shared", "retokenize"])
@pytest.mark.parametrize(("target", "drafter"), PAIRS)
def test_the_drafters_ids_spell_the_targets_text_whatever_was_taken_back(
    target: str, drafter: str, by_token: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(in_time, "in_time", lambda work, cancelled: work())  # a thread for each of thousands of texts
    ours, theirs = spelling(target), spelling(drafter)
    translation = translate(ours, theirs)
    exact = target in KEEP_SPACES and drafter in WRITE_ALL
    for seed in range(6):
        dice = random.Random(seed)
        prompt = [0, *ours.ids(TEXT.encode()[: dice.randrange(1, 150)])] if exact else [0, *ours.ids(b"the cat sat")]
        alignment = Alignment(translation, by_token)
        alignment.start(prompt, never)
        text = list(prompt)
        for _ in range(25):
            text += some_text(dice, ours, not exact)
            if dice.random() < 0.5:
                kept = max(len(prompt), len(text) - dice.randrange(8))
                alignment.behind(text)
                alignment.cut(kept)
                del text[kept:]
            ids = alignment.behind(text)
            if ids is None:
                continue
            assert ids == from_scratch(translation, by_token, prompt, text)
            if exact:
                assert without_begin(theirs, ids) == ours.text(text)
            elif other_tokenizer(drafter).unk_token_id not in ids:  # of a word that it has no pieces for
                assert bare(without_begin(theirs, ids)) == bare(ours.text(text))


def without_begin(own: Spelling, ids: Sequence[int]) -> bytes:
    assert tuple(ids[: len(own.before)]) == own.before
    return own.text(ids)


def from_scratch(translation, by_token: bool, prompt: list[int], text: list[int]) -> list[int] | None:
    alignment = Alignment(translation, by_token)
    alignment.start(prompt, never)
    return alignment.behind(text)


def test_no_draft_follows_part_of_a_character_that_the_drafter_cannot_write() -> None:
    ours, theirs = spelling("byte-fallback"), spelling("unigram")
    alignment = Alignment(translate(ours, theirs), True)
    prompt = list(ours.ids(b"the"))
    alignment.start(prompt, never)
    emoji = [ours.id_of[bytes([byte])] for byte in "😀".encode()]
    assert [alignment.behind([*prompt, *emoji[:n]]) is None for n in range(5)] == [False, True, True, True, False]
    assert theirs.text(alignment.behind([*prompt, *emoji]) or []).endswith("😀".encode())


@pytest.mark.parametrize("kind", KEEP_SPACES)
def test_only_tokens_that_more_text_cannot_change_are_drafted(kind: str) -> None:
    ours = spelling(kind)
    translation = translate(ours, ours)
    text = b" the cat sat on the mat and the dog sat"
    whole = list(ours.ids(text))
    for begin in range(len(whole)):
        before = ours.text(whole[:begin])
        for end in range(len(before), len(text)):
            drafts = translation.written(b"A" + before, text[len(before) : end], ended=False)
            assert drafts is None or drafts == whole[begin : begin + len(drafts)]
        assert translation.written(b"A" + before, text[len(before) :], ended=True) in (whole[begin:], None)


def test_nothing_is_drafted_where_the_target_would_merge_across_the_end_of_its_text() -> None:
    ours = spelling("byte-level")
    translation = translate(ours, ours)
    assert ours.ids(b" the") == (ours.id_of[b" the"],)
    assert translation.written(b"on th", b"e cat sat", ended=False) is None
    assert translation.written(b"on the", b" cat sat", ended=False) == [ours.id_of[b" cat"]]


def test_a_tokenizer_that_cannot_write_what_another_does_is_told_from_one_that_can() -> None:
    letters = Spelling({0: b"x", 1: b"y"}, lambda text: ["xy".index(c) for c in text])
    assert can_write(spelling("byte-level"), letters) and not can_write(letters, spelling("unigram"))


def test_a_tokenizer_that_fails_over_a_text_leaves_it_out() -> None:
    def fails(text: str) -> list[int]:
        raise RuntimeError(text)

    own = Spelling({0: b"a", 1: b"ab"}, fails)
    assert own.ids(b"aab") == (0, 1) and own.ids(b"c") == ()


def test_a_tokenizer_that_takes_minutes_over_a_prompt_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_time, "SECONDS", 0.2)
    own = spelling_of(slow_to_read(), 300)
    with pytest.raises(ValueError, match="does not read this prompt within"):
        own.ids_in_time(LONG.encode(), never)
