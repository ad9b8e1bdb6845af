"""A prompt whose text does not arrive in its tokens is refused where nothing of it is left, and told where part is."""

from __future__ import annotations

import unicodedata

import pytest
from tiny_transformers import CHAT_TEMPLATE, tiny_tokenizer
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from specdec_tui.backends.tokenizer import PromptTokenizer, chance_of

CHANGES = "the tokenizer changes the text, as it does for generate: the tokens show what the model was given"


def normalizing(*steps: normalizers.Normalizer) -> PromptTokenizer:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence(list(steps))
    return PromptTokenizer(tokenizer, "a/model")


def words(*known: str) -> PromptTokenizer:
    table = Tokenizer(models.WordLevel({word: id for id, word in enumerate(("[UNK]", "[BOS]", *known))}, "[UNK]"))
    table.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own = PreTrainedTokenizerFast(tokenizer_object=table, unk_token="[UNK]", bos_token="[BOS]")
    return PromptTokenizer(own, "a/model")


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("deletes", [r".+", r"\S", "[^ ]", "[a-z]+"])
def test_a_tokenizer_that_deletes_all_of_a_prompt_is_refused(deletes: str, chat: bool) -> None:
    own = normalizing(normalizers.Replace(Regex(deletes), ""))
    with pytest.raises(ValueError) as refused:
        own.encode("the cat sat", (), chat)
    assert str(refused.value) == "the tokenizer of a/model cannot read this prompt: it leaves nothing of it"


def test_a_prompt_that_is_unknown_to_the_last_word_is_refused_and_one_that_is_so_in_part_is_told() -> None:
    own = words("the", "cat")
    with pytest.raises(ValueError, match="it leaves nothing of it"):
        own.encode("der Kater", chat=False)
    assert own.encode("the Kater", chat=False).notices == (CHANGES,)
    assert own.encode("the cat", chat=False).notices == () == own.encode("the  cat\n", chat=False).notices
    assert own.encode("[UNK]", chat=False).ids == [0]


def test_a_tokenizer_that_deletes_part_of_a_prompt_says_how_much() -> None:
    own = normalizing(normalizers.Replace(Regex("[0-9]"), ""))
    assert own.encode("the cat sat 12 times, 345", chat=False).notices == (
        "the tokenizer drops 5 of the text's 20 characters (spaces not counted), as it does for generate: "
        "the tokens show what the model was given",
    )
    assert own.encode("the cat sat", chat=False).notices == ()


def test_with_a_chat_template_a_lost_part_is_told_as_well() -> None:
    own = normalizing(normalizers.Replace(Regex("[0-9]"), ""))
    assert own.has_chat_template
    (notice,) = own.encode("the cat sat 12 times", [("7?", "8")]).notices
    assert notice.startswith("the tokenizer drops 4 of the text's ")
    assert own.encode("the cat sat").notices == ()


def test_a_tokenizer_that_writes_another_text_says_so() -> None:
    assert normalizing(normalizers.Lowercase()).encode("The Cat", chat=False).notices == (CHANGES,)
    assert normalizing(normalizers.Lowercase()).encode("the cat", chat=False).notices == ()


@pytest.mark.parametrize(
    "prompt", ["", " \n\t", "é 界 😀 \u2028 👩‍💻", unicodedata.normalize("NFD", "é ü"), "</s>", "\x07"]
)
def test_usual_tokenizers_lose_nothing(prompt: str) -> None:
    for own in (PromptTokenizer(tiny_tokenizer(chat_template=CHAT_TEMPLATE)), normalizing(normalizers.NFC())):
        for chat in (False, True):
            assert not [notice for notice in own.encode(prompt, (), chat).notices if "special tokens" not in notice]


def test_an_empty_prompt_is_not_lost() -> None:
    assert normalizing(normalizers.Strip()).encode("  ", chat=False).ids == [0]


def test_a_tokenizer_that_leaves_merges_out_at_random_is_known() -> None:
    tokenizer = tiny_tokenizer()
    assert chance_of(tokenizer) == ""
    tokenizer.backend_tokenizer.model.dropout = 0.0
    assert chance_of(tokenizer) == ""
    tokenizer.backend_tokenizer.model.dropout = 0.1
    assert chance_of(tokenizer) == "BPE dropout 0.1"
    tokenizer = tiny_tokenizer()
    tokenizer.sp_model_kwargs = {"enable_sampling": True, "alpha": 0.1}
    assert chance_of(tokenizer) == "subword sampling"
