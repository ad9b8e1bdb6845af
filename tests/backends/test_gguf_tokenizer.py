"""Tokenizers that are read from GGUF files: ids of the tokenizers that the files were made of, over hostile texts."""

from __future__ import annotations

import io
import json
import unicodedata
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import sentencepiece
from hostile_texts import hostile_texts
from tiny_gguf import CHAT_TEMPLATE, write_tiny_gguf
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from specdec_tui.backends.chat_template import apply_template
from specdec_tui.backends.demo import drafter_folder
from specdec_tui.backends.gguf.header import read_header
from specdec_tui.backends.gguf.pre_tokenizer import WORDS
from specdec_tui.backends.gguf.tokenizer import missing_pre, tokenizer_of
from specdec_tui.backends.small_files import FileProblem

SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
DIGIT = {"type": "Digits", "individual_digits": True}
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
NO_WORDS = BYTES | {"use_regex": False}
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
L3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + SPACES
TEKKEN = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|[^\r\n\p{L}\p{N}]?"
    r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + SPACES
)
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
    r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def split(pattern: str) -> dict[str, Any]:
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


# As the tokenizer.json of a model of each name has them: (pre_tokenizer, normalizer).
PUBLISHED: dict[str, tuple[list[dict[str, Any]], str | None]] = {
    "smollm": ([DIGIT, BYTES], None),
    "starcoder": ([DIGIT, BYTES], None),
    "command-r": ([DIGIT, BYTES], "NFC"),
    "gpt-2": ([BYTES], None),
    "olmo": ([BYTES], "NFC"),
    "llama-bpe": ([split(L3), NO_WORDS], None),
    "dbrx": ([split(L3), NO_WORDS], None),
    "qwen2": ([split(L3.replace("{1,3}", "")), NO_WORDS], "NFC"),
    "tekken": ([split(TEKKEN), NO_WORDS], None),
    "gpt-4o": ([split(O200K), NO_WORDS], None),
    "falcon": (
        [
            {"type": "Punctuation", "behavior": "Contiguous"},
            BYTES,
            DIGIT | {"individual_digits": False},
            split("[0-9][0-9][0-9]"),
        ],
        None,
    ),
    "bloom": ([split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), NO_WORDS], None),
    "deepseek-v3": (
        [
            split(r"\p{N}{1,3}"),
            split("[一-龥\u3040-ゟ゠-ヿ]+"),
            split(
                "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?"
                "[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
            ),
            NO_WORDS,
        ],
        None,
    ),
}


@cache
def trained(pre: str) -> Tokenizer:
    """A small tokenizer whose words are cut as those of the models of a name."""
    steps, normal = PUBLISHED[pre]
    tokenizer = Tokenizer(models.BPE(ignore_merges=pre in ("llama-bpe", "tekken")))
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": steps} if len(steps) > 1 else steps[0]
    state["normalizer"] = {"type": normal} if normal else None
    tokenizer = Tokenizer.from_str(json.dumps(state))
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(hostile_texts(200), trainer)
    tokenizer.add_tokens([AddedToken("<tool>", normalized=False), AddedToken("   ", normalized=False)])
    return tokenizer


def write(path: Path, tokenizer: Tokenizer, pre: str | None, **fields: Any) -> Path:
    """A GGUF file with the tokens of a BPE over bytes, and no model."""
    state = json.loads(tokenizer.to_str())
    vocabulary = tokenizer.get_vocab(with_added_tokens=True)
    kinds = {added["content"]: 3 if added["special"] else 4 for added in state["added_tokens"]}
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_tokenizer_model("gpt2")
    if pre is not None:
        writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.get(token, 1) for token in tokens])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in state["model"]["merges"]])
    return finished(writer, path, fields)


def finished(writer: gguf.GGUFWriter, path: Path, fields: Mapping[str, Any]) -> Path:
    for key, value in fields.items():
        full = f"tokenizer.{key}" if key.startswith("chat") else f"tokenizer.ggml.{key}"
        writer.kv_data[0].pop(full, None)
        writer.add_key_value(full, value, gguf.GGUFValueType.get_type(value))
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def differing(found: Any, expected: Any) -> list[str]:
    texts = [*hostile_texts(), "<|im_start|>user\nhi<|im_end|>\n", "a <tool> b    c"]
    return [text for text in texts if found(text) != expected(text)]


@pytest.mark.parametrize("pre", PUBLISHED)
def test_ids_and_texts_are_those_of_the_tokenizer_a_file_was_made_of(tmp_path: Path, pre: str) -> None:
    theirs = trained(pre)
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", theirs, pre, add_bos_token=False)))
    assert not differing(lambda text: ours(text)["input_ids"], lambda text: theirs.encode(text).ids)
    decoded = [ours.decode(theirs.encode(text).ids) for text in hostile_texts(50)]
    assert decoded == [theirs.decode(theirs.encode(text).ids, skip_special_tokens=False) for text in hostile_texts(50)]


@pytest.mark.parametrize(("pre", "other"), [("smollm", "gpt-2"), ("llama-bpe", "qwen2"), ("tekken", "gpt-4o")])
def test_another_way_to_cut_words_gives_other_ids(tmp_path: Path, pre: str, other: str) -> None:
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", trained(pre), other, add_bos_token=False)))
    assert differing(lambda text: ours(text)["input_ids"], lambda text: trained(pre).encode(text).ids)


@pytest.mark.parametrize("pre", sorted(WORDS))
def test_every_way_to_cut_words_keeps_the_text(tmp_path: Path, pre: str) -> None:
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", trained("gpt-2"), pre, add_bos_token=False)))
    normal = normalizers.NFC().normalize_str if WORDS[pre].composed else str
    for text in hostile_texts(50):
        assert ours.decode(ours(text)["input_ids"]) == normal(text)


def test_deepseeks_letters_are_letters_with_cases() -> None:
    """Written as ranges by its makers; those of them that normal forms change must have survived being copied."""
    (cut,) = [cut for cut in WORDS["deepseek-llm"].cuts if "A-Z" in cut]
    cuts = pre_tokenizers.Split(Regex(cut), "isolated").pre_tokenize_str
    cased = [chr(code) for code in range(0x110000) if unicodedata.category(chr(code)) in ("Lu", "Ll", "Lt")]
    found = {letter for letter in cased if len(cuts(f"1{letter}1")) == 3}
    assert {"\u1f7d", "\u1fbe", "\u1fd3", "\u1fdb", "\u2126", "\u212a", "\u212b", "K", "ß"} <= found
    assert len(found) > 1_900 and not any(len(cuts(f"1{other}1")) == 3 for other in "中ªƻʔ1!-")


@pytest.mark.parametrize(
    ("pre", "said", "begins"),
    [("llama-bpe", None, True), ("llama-bpe", False, False), ("smollm", None, False), ("smollm", True, True)],
)
def test_a_text_begins_with_a_token_where_the_file_or_its_words_say(
    tmp_path: Path, pre: str, said: bool | None, begins: bool
) -> None:
    fields = {"bos_token_id": 0, "eos_token_id": 1} | ({} if said is None else {"add_bos_token": said})
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", trained("gpt-2"), pre, **fields)))
    plain = ours("ab", add_special_tokens=False)["input_ids"]
    assert ours("ab")["input_ids"] == [0] * begins + plain
    assert ours.special_tokens_map == {"bos_token": "<s>", "eos_token": "</s>"}


def test_a_text_ends_with_a_token_where_the_file_says(tmp_path: Path) -> None:
    fields = {"bos_token_id": 0, "eos_token_id": 1, "add_bos_token": True, "add_eos_token": True}
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", **fields)))
    assert ours("ab")["input_ids"] == [0, *ours("ab", add_special_tokens=False)["input_ids"], 1]


def test_chat_templates_are_the_files(tmp_path: Path) -> None:
    named = {"chat_template": "usual", "chat_template.tool_use": "tools"}
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", **named)))
    assert ours.chat_template == {"default": "usual", "tool_use": "tools"}
    write_tiny_gguf(tmp_path / "m.gguf")
    ours = tokenizer_of(read_header(tmp_path / "m.gguf"))
    assert ours.chat_template == CHAT_TEMPLATE
    text, _ = apply_template(ours, "hi", ())
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert ours(text)["input_ids"].count(2) == 2 and ours.decode([2], skip_special_tokens=True) == ""


def test_a_file_that_does_not_say_how_words_are_cut_is_told(tmp_path: Path) -> None:
    header = read_header(write(tmp_path / "t.gguf", trained("gpt-2"), None))
    pieces = tokenizer_of(header).backend_tokenizer.pre_tokenizer.pre_tokenize_str("a+b 12345")
    assert [piece for piece, _ in pieces] == ["a", "+", "b", "Ġ", "123", "45"]
    assert "has no tokenizer.ggml.pre" in missing_pre(header)
    assert not missing_pre(read_header(write(tmp_path / "u.gguf", trained("gpt-2"), "gpt-2")))


def test_ids_are_those_of_the_drafters_own_tokenizer(tmp_path: Path) -> None:
    """A tokenizer that was not made for a test: SmolLM2's, as the demo target's GGUF file has it."""
    folder = drafter_folder()
    theirs = Tokenizer.from_file(str(folder / "tokenizer.json"))
    ours = tokenizer_of(read_header(write(tmp_path / "t.gguf", theirs, "smollm")))
    assert not differing(lambda text: ours(text)["input_ids"], lambda text: theirs.encode(text).ids)


class TestTokenizersAreRefused:
    def refused(self, path: Path, said: str) -> None:
        with pytest.raises(FileProblem) as caught:
            tokenizer_of(read_header(path))
        assert said in str(caught.value)

    def test_of_an_unknown_way_to_cut_words(self, tmp_path: Path) -> None:
        said = "has tokenizer.ggml.pre future in its header, which is not known: default, gpt-2, llama-bpe"
        self.refused(write(tmp_path / "t.gguf", trained("gpt-2"), "future"), said)

    def test_of_an_unknown_model(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", model="t5")
        self.refused(path, "has tokenizer.ggml.model t5 in its header: gpt2 and llama are read here")

    def test_with_a_token_twice(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", tokens=["a", "b", "a"], token_type=[1, 1, 1])
        self.refused(path, "tokenizer.ggml.tokens in its header has a twice")

    def test_with_a_merge_of_tokens_that_are_not_there(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", merges=["xyzzy plugh"])
        self.refused(path, "cannot be built: Error while initializing BPE: Token `xyzzy` out of vocabulary")

    def test_with_a_merge_that_is_none(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", merges=["a b", "ab"])
        self.refused(path, "tokenizer.ggml.merges in its header has ab, which is no two tokens")

    def test_with_kinds_for_fewer_tokens(self, tmp_path: Path) -> None:
        path = write(tmp_path / "t.gguf", trained("gpt-2"), "gpt-2", token_type=[1, 1])
        self.refused(path, "tokenizer.ggml.token_type in its header has 2 entries for 702 tokens")

    def test_without_tokens(self, tmp_path: Path) -> None:
        writer = gguf.GGUFWriter(tmp_path / "t.gguf", "llama")
        writer.add_tokenizer_model("gpt2")
        self.refused(finished(writer, tmp_path / "t.gguf", {}), "has no tokenizer.ggml.tokens in its header")


@cache
def sentences(prefix: bool) -> sentencepiece.SentencePieceProcessor:
    """A SentencePiece BPE that falls back to bytes, as Llama 2's (with a space before a text) and Gemma's."""
    model = io.BytesIO()
    texts = [text for text in hostile_texts(200) if "\x00" not in text]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts),
        model_writer=model,
        model_type="bpe",
        vocab_size=900,
        byte_fallback=True,
        split_digits=True,
        add_dummy_prefix=prefix,
        remove_extra_whitespaces=False,
        normalization_rule_name="identity",
        allow_whitespace_only_pieces=True,
        user_defined_symbols=[] if prefix else ["\n\n", "▁▁", "▁▁▁", "<tool>"],
        control_symbols=["<|im_start|>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def write_sentences(path: Path, prefix: bool, architecture: str = "llama", **fields: Any) -> Path:
    theirs = sentences(prefix)
    ids = range(theirs.vocab_size())
    own = ["\n\n", "▁▁", "▁▁▁", "<tool>"]
    kinds = [
        2 if theirs.is_unknown(id) else 3 if theirs.is_control(id) else 6 if theirs.is_byte(id) else 1 for id in ids
    ]
    tokens = [theirs.id_to_piece(id) for id in ids]
    kinds = [4 if token in own and not prefix else kind for token, kind in zip(tokens, kinds, strict=True)]
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(
        [token.replace("▁", " ") if kind == 4 else token for token, kind in zip(tokens, kinds, strict=True)]
    )
    writer.add_token_scores([theirs.get_score(id) for id in ids])
    writer.add_token_types(kinds)
    writer.add_add_space_prefix(prefix)
    return finished(writer, path, {"add_bos_token": False} | fields)


@pytest.mark.parametrize("prefix", [True, False], ids=["llama", "gemma"])
def test_ids_are_those_of_sentencepiece(tmp_path: Path, prefix: bool) -> None:
    ours = tokenizer_of(read_header(write_sentences(tmp_path / "t.gguf", prefix)))
    texts = [text for text in hostile_texts() if "\x00" not in text and "▁" not in text]
    theirs = sentences(prefix)
    wrong = [text for text in texts if ours(text)["input_ids"] != theirs.encode(text)]
    assert not wrong
    assert [ours.decode(theirs.encode(text)) for text in texts] == texts


def test_a_sentencepiece_model_begins_texts_and_knows_its_own_tokens(tmp_path: Path) -> None:
    path = write_sentences(tmp_path / "t.gguf", True, add_bos_token=True, unknown_token_id=0)
    ours = tokenizer_of(read_header(path))
    assert (ours.bos_token_id, ours.eos_token_id, ours.unk_token_id) == (1, 2, 0)
    assert ours("a")["input_ids"][0] == 1
    marked = ours("<|im_start|>a")["input_ids"]
    assert marked[1] == sentences(True).piece_to_id("<|im_start|>")


def test_phi_takes_the_spaces_behind_its_special_tokens(tmp_path: Path) -> None:
    ours, other = (
        tokenizer_of(read_header(write_sentences(tmp_path / f"{name}.gguf", True, name))) for name in ("phi3", "llama")
    )
    assert ours("<|im_start|>  a")["input_ids"] == ours("<|im_start|>a")["input_ids"]
    assert other("<|im_start|>  a")["input_ids"] != other("<|im_start|>a")["input_ids"]
    assert ours("<s>  a")["input_ids"] != ours("<s>a")["input_ids"]
