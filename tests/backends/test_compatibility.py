from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_transformers import tiny_model, tiny_tokenizer
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
    with pytest.raises(LoadError) as caught:
        check(describing("t", one), describing("d", other))
    assert len(str(caught.value)) < 500
    [notice] = PromptTokenizer(one).encode("x" * 5000).notices
    assert notice.startswith("special tokens in the prompt are read as such: xxx") and len(notice) < 200


def test_ids_beyond_the_targets_logits_need_no_mask() -> None:
    result = check(describing("t", tiny_tokenizer()), describing("d", tiny_tokenizer("<tool>")))
    assert result.shared_ids(max(result.only_one_side)) is None


def test_an_id_that_means_two_things_is_refused_naming_both() -> None:
    with pytest.raises(LoadError, match=r"id \d+ is '<tool>' in the target and '<image>' in the drafter") as caught:
        check(describing("t", tiny_tokenizer("<tool>")), describing("d", tiny_tokenizer("<image>")))
    assert "1 of" in str(caught.value)


def test_a_shorter_context_of_the_drafter_is_noted() -> None:
    result = check(describing("t", tiny_tokenizer()), describing("d", tiny_tokenizer(), max_position_embeddings=64))
    assert "ends at 64 tokens" in result.notes[0]


def test_a_tokenizer_larger_than_the_vocabulary_is_refused_naming_both_sizes() -> None:
    with pytest.raises(LoadError, match=r"small: its vocabulary has 100 ids, but its tokenizer makes [\d,]+"):
        check(describing("t", tiny_tokenizer()), describing("small", tiny_tokenizer(), vocab_size=100))


@pytest.mark.parametrize(
    ("target", "drafter", "words"),
    [
        ({"tokenizer": tiny_tokenizer("<a>")}, {"tokenizer": tiny_tokenizer("<b>")}, "do not share a tokenizer"),
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
