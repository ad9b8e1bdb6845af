"""A tokenizer whose steps can make a terabyte of a word is refused before its library fills the memory."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tiny_transformers import tiny_tokenizer
from tokenizers import Regex, decoders, normalizers, pre_tokenizers, processors

from specdec_tui.backends.growth import growth
from specdec_tui.backends.pair import PromptError
from specdec_tui.backends.tokenizer import PromptTokenizer
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

DOUBLE = normalizers.Replace("a", "aa")
TWICE = processors.TemplateProcessing(single="$A $A", special_tokens=[])
PARTS: dict[str, tuple[Any, int]] = {
    "doubling": (normalizers.Sequence([DOUBLE] * 40), 2**40),
    "a long word": (normalizers.Replace("ab", "x" * 1000), 500),
    "an expression that matches nothing": (normalizers.Replace(Regex("(?=a)"), "a"), 2),
    "sequences within sequences": (normalizers.Sequence([normalizers.Sequence([DOUBLE] * 3)] * 2), 64),
    "bytes of bytes": (pre_tokenizers.Sequence([pre_tokenizers.ByteLevel()] * 40), 2**40),
    "the text twice": (processors.Sequence([TWICE] * 3), 8),
    "of Llama": (normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), 2),
    "decoding of Llama": (decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]), 1),
    "deleting": (normalizers.Sequence([normalizers.Replace("a", ""), DOUBLE]), 2),
    "other steps": (normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()]), 1),
}


@pytest.mark.parametrize("name", PARTS)
def test_what_steps_make_of_a_character_multiplies(name: str) -> None:
    part, times = PARTS[name]
    assert growth(json.loads(part.__getstate__())) == times


@pytest.mark.parametrize("chat", [False, True])
@pytest.mark.parametrize("part", ["normalizer", "pre_tokenizer", "post_processor", "decoder"])
def test_an_exploding_tokenizer_refuses_a_prompt_at_once_in_one_line(save_model: Any, part: str, chat: bool) -> None:
    tokenizer = tiny_tokenizer()
    backend = tokenizer.backend_tokenizer
    steps = {
        "normalizer": PARTS["doubling"][0],
        "pre_tokenizer": PARTS["bytes of bytes"][0],
        "post_processor": processors.Sequence([TWICE] * 40),
        "decoder": decoders.Sequence([decoders.ByteLevel(), decoders.Fuse(), *[decoders.Replace("a", "aa")] * 40]),
    }
    setattr(backend, part, steps[part])
    folder, engine = save_model("target", tokenizer=tokenizer), LocalEngine()
    engine.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    began = time.monotonic()
    with pytest.raises(PromptError) as refused:
        list(engine.run("the cat sat", Settings(strategies=("target",), chat=chat), lambda: False))
    assert time.monotonic() - began < 30
    assert str(refused.value) == (
        f"the tokenizer of {folder} cannot read this prompt: it can make more than a trillion times as much of it, "
        "for which there is no room"
    )


def test_a_tokenizer_that_doubles_a_little_reads_short_prompts_and_refuses_long_ones() -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.backend_tokenizer.normalizer = normalizers.Sequence([DOUBLE] * 12)
    own = PromptTokenizer(tokenizer, "a/model")
    assert len(own.encode("a cat", chat=False).ids) > 1000
    with pytest.raises(ValueError, match="it can make 8,192 times as much of it, for which there is no room"):
        own.encode("a cat" * 10_000, chat=False)
