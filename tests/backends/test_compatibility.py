from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from other_tokenizers import other_tokenizer
from tiny_transformers import tiny_model, tiny_tokenizer
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from specdec_tui import cli
from specdec_tui.backends.compatibility import check, tokens_by_id
from specdec_tui.backends.description import ModelDescription
from specdec_tui.backends.hub import Location
from specdec_tui.backends.pair import LoadError
from specdec_tui.backends.presets import ModelSpec
from specdec_tui.backends.tokenizer import PromptTokenizer


def describing(name: str, tokenizer: PreTrainedTokenizerFast, **config: Any) -> ModelDescription:
    spec = ModelSpec(name, "auto", "cpu", "none")
    return ModelDescription(spec, Location(name, Path(name)), tiny_model("llama", **config).config, tokenizer)


def no_text_tokenizer() -> PreTrainedTokenizerFast:
    """One that has special tokens alone."""
    names = [f"<{index}>" for index in range(6)]
    fast = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel({name: i for i, name in enumerate(names)}, unk_token=names[0]))
    )
    fast.add_special_tokens({"additional_special_tokens": names})
    return fast


NO_TEXT = no_text_tokenizer()


def test_equal_tokenizers_share_everything() -> None:
    result = check(describing("t", tiny_tokenizer()), describing("d", tiny_tokenizer()))
    assert result.shared_ids(320) is None and not result.notes


def test_vocabularies_padded_to_different_sizes_are_accepted_with_a_note() -> None:
    result = check(describing("t", tiny_tokenizer(), vocab_size=384), describing("d", tiny_tokenizer()))
    assert result.shared_ids(384) is None
    assert result.notes == ("Vocabularies padded to different sizes: target 384, drafter 320.",)


@pytest.mark.parametrize("side", ["target", "drafter"])
def test_ids_of_one_side_only_are_masked_and_named(side: str) -> None:
    plain, more = tiny_tokenizer(), tiny_tokenizer("<tool>", "<image>")
    pair = (more, plain) if side == "target" else (plain, more)
    result = check(describing("t", pair[0]), describing("d", pair[1]))
    mask = result.shared_ids(320)
    assert mask is not None and mask.dtype is torch.bool and mask.shape == (320,)
    excluded = (~mask).nonzero().flatten().tolist()
    assert [tokens_by_id(more)[token] for token in excluded] == ["<tool>", "<image>"]
    assert f"2 tokens are known to the {side} only" in result.notes[0] and "<tool>" in result.notes[0]


def test_a_token_of_a_page_is_cut_where_it_is_named() -> None:
    plain, one, other = tiny_tokenizer(), tiny_tokenizer("x" * 5000), tiny_tokenizer("y" * 5000)
    [note] = check(describing("t", one), describing("d", plain)).notes
    assert note.startswith("1 token is known to the target only") and len(note) < 200
    assert all(len(note) < 500 for note in check(describing("t", one), describing("d", other)).notes)
    [notice] = PromptTokenizer(one).encode("x" * 5000).notices
    assert notice.startswith("special tokens in the prompt are read as such: xxx") and len(notice) < 200


def test_ids_beyond_the_targets_logits_need_no_mask() -> None:
    result = check(describing("t", tiny_tokenizer()), describing("d", tiny_tokenizer("<tool>")))
    assert result.shared_ids(max(result.only_one_side)) is None


def test_an_added_token_of_two_meanings_is_never_drafted_and_named() -> None:
    result = check(describing("t", tiny_tokenizer("<tool>")), describing("d", tiny_tokenizer("<image>")))
    [note] = result.notes
    assert note.startswith("1 added token means two things and is never drafted: id ")
    assert "is '<tool>' in the target and '<image>' in the drafter" in note
    mask = result.shared_ids(320)
    assert mask is not None and mask.sum() == 319 and result.translation is None


@pytest.mark.parametrize("kind", ["byte-fallback", "word-piece", "unigram"])
def test_another_tokenizer_is_translated_and_the_note_says_how_much_both_have(kind: str) -> None:
    result = check(describing("t", tiny_tokenizer()), describing("d", other_tokenizer(kind), vocab_size=500))
    [note] = result.notes
    assert result.translation is not None and not result.only_one_side
    assert note.startswith("The drafter has another tokenizer than the target: ")
    assert "id 0 is '<s>' in the target and '<unk>'" in note
    assert f"; {len(result.translation.to_drafter):,} tokens stand for the same text in both." in note


def test_tokenizers_that_cannot_read_each_other_are_refused_naming_which() -> None:
    with pytest.raises(LoadError, match=r"t and d do not share a tokenizer, and no token of d's stands for text"):
        check(describing("t", tiny_tokenizer()), describing("d", NO_TEXT))
    far = words_tokenizer("甲", "乙"), words_tokenizer("丙", "丁")
    with pytest.raises(LoadError, match="have no token in common, and neither can write what the other does"):
        check(describing("t", far[0]), describing("d", far[1]))


def words_tokenizer(*words: str) -> PreTrainedTokenizerFast:
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(dict(zip(words, range(9), strict=False))))
    )


def test_a_shorter_context_of_the_drafter_is_noted() -> None:
    result = check(describing("t", tiny_tokenizer()), describing("d", tiny_tokenizer(), max_position_embeddings=64))
    assert "ends at 64 tokens" in result.notes[0]


def test_a_tokenizer_larger_than_the_vocabulary_is_refused_naming_both_sizes() -> None:
    with pytest.raises(LoadError, match=r"small: its vocabulary has 100 ids, but its tokenizer makes [\d,]+"):
        check(describing("t", tiny_tokenizer()), describing("small", tiny_tokenizer(), vocab_size=100))


@pytest.mark.parametrize(
    ("target", "drafter", "words"),
    [
        ({}, {"tokenizer": NO_TEXT}, "do not share a tokenizer"),
        ({"vocab_size": 128}, {}, "the tokenizer belongs to another model"),
        ({}, {"vocab_size": 128}, "the tokenizer belongs to another model"),
    ],
)
def test_a_pair_that_does_not_belong_together_ends_a_benchmark_in_one_line(
    target: dict[str, Any],
    drafter: dict[str, Any],
    words: str,
    save_model: Any,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", "/nowhere/config.toml")
    pair = ["--target", str(save_model("target", **target)), "--drafter", str(save_model("drafter", **drafter))]
    capsys.readouterr()
    assert cli.main(["bench", *pair, "--device", "cpu", "--prompt", "the cat"]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and words in shown.err and shown.err.count("\n") == 1, shown
