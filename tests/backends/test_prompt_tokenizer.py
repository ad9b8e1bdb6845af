from __future__ import annotations

import random

import pytest
from slow_tokenizers import PANICS, slow_to_write
from tiny_transformers import CHAT_TEMPLATE, tiny_tokenizer
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoTokenizer, PreTrainedTokenizerBase, PreTrainedTokenizerFast

from specdec_tui.backends.demo import drafter_folder
from specdec_tui.backends.tokenizer import IncrementalText, PromptTokenizer, decode
from specdec_tui.decoding.records import EndReason, PrefillDone, RoundVerified, RunEnded, Status, Token
from specdec_tui.strategy_run import StrategyRun
from specdec_tui.traces.played import is_answer

TEXT = "Hi 😀👩‍👩‍👧! 世界, naïve café — العربية 12345\n\n\tdéjà vu ﷽ 🇩🇪 e\u0301 x" * 3


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """As sentencepiece models of the Llama 2 kind have it: word pieces with ▁, and bytes for all else."""
    words = [
        "<unk>",
        "<s>",
        "</s>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        "▁",
        "▁the",
        "▁cat",
        "▁sat",
        "a",
        "世",
    ]
    vocabulary = {word: index for index, word in enumerate(words)}
    vocabulary |= {c: len(vocabulary) + i for i, c in enumerate("thecsdo")}
    tokenizer = Tokenizer(models.BPE(vocabulary, [], unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>")


def word_piece_tokenizer() -> PreTrainedTokenizerFast:
    words = ["[UNK]", "the", "cat", "##s", "sat", ".", "##ting"]
    tokenizer = Tokenizer(models.WordPiece({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.decoder = decoders.WordPiece()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


TOKENIZERS = {
    "byte-level": tiny_tokenizer,
    "demo": lambda: AutoTokenizer.from_pretrained(drafter_folder()),
    "byte fallback": byte_fallback_tokenizer,
    "word pieces": word_piece_tokenizer,
}


@pytest.fixture(params=TOKENIZERS, scope="module")
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerBase:
    return TOKENIZERS[request.param]()


def test_the_pieces_of_a_text_are_exactly_the_text(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tokenizer(TEXT + " the cat sat the cats")["input_ids"]
    text = IncrementalText(tokenizer)
    assert "".join(text.push(ids)) + text.rest() == decode(tokenizer, ids)


@pytest.mark.parametrize("name", TOKENIZERS)
def test_after_every_token_the_pieces_and_the_rest_are_the_text_so_far(name: str) -> None:
    tokenizer = TOKENIZERS[name]()
    ids = tokenizer(TEXT)["input_ids"]
    text, shown = IncrementalText(tokenizer), ""
    for count, token in enumerate(ids, start=1):
        shown += "".join(text.push([token]))
        assert shown + text.rest() == decode(tokenizer, ids[:count])


def test_random_ids_and_lone_bytes_come_out_exactly(tokenizer: PreTrainedTokenizerBase) -> None:
    dice = random.Random(7)
    for _ in range(60):
        ids = [dice.randrange(len(tokenizer)) for _ in range(dice.choice([3, 40, 150]))]
        text = IncrementalText(tokenizer)
        assert "".join(text.push(ids)) + text.rest() == decode(tokenizer, ids)


def test_a_long_run_of_characters_made_of_byte_tokens_comes_out_exactly() -> None:
    tokenizer = byte_fallback_tokenizer()
    ids = tokenizer("the 😀😀😀 界界界界界界界界界界界界 the cat")["input_ids"]
    text = IncrementalText(tokenizer)
    assert "".join(text.push(ids)) + text.rest() == decode(tokenizer, ids)


def test_a_token_inside_a_character_has_no_piece_and_the_last_one_carries_it() -> None:
    tokenizer = tiny_tokenizer()
    ids = tokenizer("a😀b", add_special_tokens=False)["input_ids"]
    assert IncrementalText(tokenizer).push(ids) == ("a", "", "", "", "😀", "b")


def test_an_unfinished_character_is_owed_at_the_end() -> None:
    tokenizer = tiny_tokenizer()
    text = IncrementalText(tokenizer)
    assert text.push(tokenizer("a😀", add_special_tokens=False)["input_ids"][:-1]) == ("a", "", "", "")
    assert text.rest() == "\N{REPLACEMENT CHARACTER}"


@pytest.mark.parametrize("lone", range(20, 30))
def test_a_character_behind_many_invalid_bytes_is_still_completed(lone: int) -> None:
    tokenizer = tiny_tokenizer()
    ids = [tokenizer.convert_tokens_to_ids("ĺ")] * lone + tokenizer("😀 the", add_special_tokens=False)["input_ids"]
    text = IncrementalText(tokenizer)
    assert "".join(text.push(ids)) == "\N{REPLACEMENT CHARACTER}" * lone + "😀 the" == decode(tokenizer, ids)


def test_peeking_at_drafts_changes_nothing(tokenizer: PreTrainedTokenizerBase) -> None:
    ids = tokenizer(TEXT)["input_ids"]
    text, other = IncrementalText(tokenizer), IncrementalText(tokenizer)
    for start in range(0, len(ids), 5):
        branch = ids[start : start + 3]
        assert text.peek(branch) == text.peek(branch) == text.fork().push(branch)
        text.peek(reversed(ids))
        assert text.push(ids[start : start + 5]) == other.push(ids[start : start + 5])


def test_a_draft_that_the_tokenizer_cannot_write_is_a_replacement_character_until_it_is_accepted() -> None:
    tokenizer = slow_to_write(" cat", PANICS)
    the, cat, sat = (tokenizer.convert_tokens_to_ids(tokenizer.tokenize(word))[0] for word in (" the", " cat", " sat"))
    text = IncrementalText(tokenizer)
    assert text.push([the]) == (" the",)
    assert text.peek([sat, cat, sat]) == (" sat", "\ufffd", "\ufffd")
    assert text.peek([sat]) == (" sat",)
    with pytest.raises(BaseException, match="retry-limit-in-match over"):
        text.push([cat])


def test_a_rejected_draft_that_starts_a_character_does_not_touch_the_text() -> None:
    tokenizer = tiny_tokenizer()
    text = IncrementalText(tokenizer)
    smile = tokenizer("😀", add_special_tokens=False)["input_ids"]
    assert text.push(smile[:2]) == ("", "")
    assert text.peek(tokenizer("x", add_special_tokens=False)["input_ids"]) == ("\N{REPLACEMENT CHARACTER}x",)
    assert text.push(smile[2:]) == ("", "😀")


def test_the_cost_of_a_token_does_not_grow_with_the_text(
    tokenizer: PreTrainedTokenizerBase, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    real = type(tokenizer).decode
    monkeypatch.setattr(
        type(tokenizer), "decode", lambda self, ids, **options: lengths.append(len(ids)) or real(self, ids, **options)
    )
    lone = [tokenizer.convert_tokens_to_ids(t) for t in ("ĺ", "<0xE4>") if t in tokenizer.get_vocab()]
    ids = tokenizer(TEXT)["input_ids"] * 5 + lone * 200
    IncrementalText(tokenizer).push(ids)
    # Invalid bytes are decoded again, each as the three bytes of U+FFFD.
    assert max(lengths) <= 3 * 48
    assert len(lengths) <= 4 * len(ids)


def test_the_chat_template_is_applied_once_without_a_second_beginning_of_sequence() -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer())
    ids, text, _ = tokenizer.encode("the cat", [("hi", "ho")], chat=True)
    assert text == (
        "<s><|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nho<|im_end|>\n"
        "<|im_start|>user\nthe cat<|im_end|>\n<|im_start|>assistant\n"
    )
    assert ids.count(0) == 1
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("chat", [True, False])
def test_the_exact_text_of_a_prompt_is_read_again_as_the_same_ids(chat: bool) -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer())
    prompt = tokenizer.encode("the cat, né <b>", [("hi", "ho")], chat=chat)
    assert tokenizer.read_again(prompt.text) == prompt.ids


def test_without_chat_the_prompt_gets_the_tokenizers_own_special_tokens_and_no_history() -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer())
    ids, text, _ = tokenizer.encode("the cat", [("hi", "ho")], chat=False)
    assert text == "<s>the cat"
    assert ids[0] == 0 and ids.count(0) == 1


def test_a_tokenizer_without_a_template_takes_the_plain_prompt() -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer(chat_template=None))
    assert not tokenizer.has_chat_template
    assert tokenizer.encode("the cat", [("hi", "ho")], chat=True) == tokenizer.encode("the cat", (), chat=False)


@pytest.mark.parametrize("make", [tiny_tokenizer, word_piece_tokenizer])
def test_an_empty_prompt_still_gives_the_model_a_token(make: type) -> None:
    ids = PromptTokenizer(make()).encode("", (), chat=False).ids
    assert len(ids) == 1


def test_a_template_that_refuses_says_so() -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer(chat_template="{{ raise_exception('no such role') }}"))
    with pytest.raises(ValueError, match="no such role"):
        tokenizer.encode("x")


def test_special_tokens_can_be_left_out_of_a_text() -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer())
    ids = tokenizer.encode("the cat", (), chat=False).ids
    assert tokenizer.decode([*ids, 3], skip_special_tokens=True) == "the cat"


def test_the_demo_tokenizer_splits_digits() -> None:
    tokenizer = AutoTokenizer.from_pretrained(drafter_folder())
    assert tokenizer.tokenize("12 apples")[:2] == ["1", "2"]


def test_the_piece_of_one_id_keeps_its_space_and_is_decoded_once() -> None:
    for make, word in ((byte_fallback_tokenizer, "▁the"), (tiny_tokenizer, "Ġ")):
        whole = make()
        tokenizer = PromptTokenizer(whole)
        token = whole.convert_tokens_to_ids(word)
        assert tokenizer.piece(token) == word.replace("▁", " ").replace("Ġ", " ")
        tokenizer.decode = None  # type: ignore[assignment, method-assign]
        assert tokenizer.piece(token).startswith(" ")
    part = byte_fallback_tokenizer()
    assert set(PromptTokenizer(part).piece(part.convert_tokens_to_ids("<0xE4>"))) == {"\ufffd"}


def ending(single: str) -> PreTrainedTokenizerFast:
    """A tokenizer that puts special tokens around every text."""
    tokenizer = tiny_tokenizer()
    names = [name for name in single.split() if name != "$A"]
    special = [(name, tokenizer.convert_tokens_to_ids(name)) for name in dict.fromkeys(names)]
    tokenizer._tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=special)
    return tokenizer


@pytest.mark.parametrize("prompt", ["the cat", "x", "</s>", "a </s> b"])
def test_an_end_token_behind_a_plain_prompt_is_given_as_generate_gets_it_and_told(prompt: str) -> None:
    tokenizer = ending("<s> $A </s>")
    given = PromptTokenizer(tokenizer).encode(prompt, (), chat=False)
    assert given.ids == tokenizer(prompt)["input_ids"] and given.ids[-1] == 1
    assert "the tokenizer puts </s> (id 1) behind the prompt, as it does for generate" in given.notices
    with_template = PromptTokenizer(tokenizer).encode(prompt)
    assert with_template.text.endswith("assistant\n") and not [n for n in with_template.notices if "behind" in n]


def test_other_tokens_around_a_plain_prompt_are_told_and_what_begins_a_sequence_is_not() -> None:
    given = PromptTokenizer(ending("<s> <|im_start|> $A <|im_end|> </s>")).encode("the cat", (), chat=False)
    assert given.notices == (
        "the tokenizer puts <|im_start|> (id 2) before the prompt, as it does for generate",
        "the tokenizer puts <|im_end|> (id 3), </s> (id 1) behind the prompt, as it does for generate",
    )
    assert PromptTokenizer(tiny_tokenizer()).encode("the cat", (), chat=False).notices == ()


@pytest.mark.parametrize("chat", [True, False])
def test_special_tokens_that_the_user_typed_are_told(chat: bool) -> None:
    tokenizer = PromptTokenizer(tiny_tokenizer())
    prompt = "the cat<|im_end|>\n<|im_start|>system\n<|im_end|>"
    (notice,) = tokenizer.encode(prompt, (), chat).notices
    assert notice == "special tokens in the prompt are read as such: <|im_end|> (id 3) 2 times, <|im_start|> (id 2)"
    assert tokenizer.encode("the <|im_end> |im_start|> cat < / s >", (), chat).notices == ()


def test_added_tokens_that_steer_a_template_count_as_special_ones() -> None:
    tokenizer = tiny_tokenizer(chat_template=CHAT_TEMPLATE + "{% if think %}<think>{% endif %}")
    tokenizer.add_tokens(["<think>", "<pear>"])
    (notice,) = PromptTokenizer(tokenizer).encode("a <think> b <pear>").notices
    assert notice == "special tokens in the prompt are read as such: <think> (id 278)"


def test_a_prompt_full_of_special_tokens_has_a_notice_of_one_line() -> None:
    tokenizer = tiny_tokenizer(*(f"<tool{number}>" for number in range(20)))
    (notice,) = PromptTokenizer(tokenizer).encode("".join(f"<tool{n}>" for n in range(20)) * 50).notices
    assert notice.endswith(" 50 times and 15 more") and len(notice) < 300


@pytest.mark.parametrize("chat", [False, True])
def test_a_prompt_that_the_tokenizer_cannot_read_is_refused_in_one_line(chat: bool) -> None:
    words = Tokenizer(models.WordLevel({"why": 0, "is": 1, "\x1b": 2}, unk_token="[\x1b]"))
    words.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=words)
    tokenizer.chat_template = "{{ messages[-1]['content'] }}"
    reader = PromptTokenizer(tokenizer, "model")
    assert reader.encode("why is", chat=chat).ids == [0, 1]
    with pytest.raises(ValueError) as caught:
        reader.encode("why not", chat=chat)
    assert str(caught.value).startswith("the tokenizer of model cannot read this prompt: ")
    assert str(caught.value).isprintable()


def test_a_character_that_given_tokens_begin_belongs_to_the_token_that_ends_it() -> None:
    whole = byte_fallback_tokenizer()
    tokenizer = PromptTokenizer(whole)
    begun, ended, cat = (whole.convert_tokens_to_ids(word) for word in ("<0xC3>", "<0xA9>", "▁cat"))
    for new, text in (([ended, cat], "é cat"), ([cat], "\N{REPLACEMENT CHARACTER} cat"), ([cat, 2], None)):
        tokens = [Token(id, Status.SAMPLED, 2 + place) for place, id in enumerate(new)]
        records = [PrefillDone(tokens[0], 0.1)]
        records += [RoundVerified(number, (), token, 0.0, 0.1, 0.0) for number, token in enumerate(tokens[1:])]
        records.append(RunEnded(EndReason.LENGTH))
        run = StrategyRun("target~1", iter(records), tokenizer, tokenizer.stream(), "Why?", lambda: False)
        run.begin_behind([whole.convert_tokens_to_ids("▁the"), begun])
        assert run.prompt_text.startswith("Why?") and "the" in run.prompt_text
        steps = [run.step() for _ in records]
        pieces = [piece for step in steps for piece in step.texts]
        assert is_answer(steps[-1].answer, pieces)
        if text is not None:
            assert "".join(pieces) == text
