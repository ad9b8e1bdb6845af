"""Encoder-decoder pairs of two tokenizers: the drafter's encoder reads the prompt in its own."""

from __future__ import annotations

import pytest
from other_tokenizers import other_tokenizer
from test_other_tokenizer_drafters import drafter_of, played, text_of, translation
from tiny_encoder_decoders import tiny_encoder_decoder

from specdec_tui.backends.encoder_decoder import EncoderDecoderModel
from specdec_tui.backends.translation import translate
from specdec_tui.decoding.records import Notice


@pytest.mark.each_value
@pytest.mark.parametrize("way", ["shared", "retokenize", "auto"])
@pytest.mark.parametrize("kinds", [("t5", "bart"), ("bart", "t5")])
def test_the_text_is_the_targets_own(kinds: tuple[str, str], way: str) -> None:
    target, drafter = (EncoderDecoderModel(tiny_encoder_decoder(kind)) for kind in kinds)
    both = translation("unigram", "byte-level")
    both = translate(both.target, both.drafter, for_encoder=True)
    prompt = [*other_tokenizer("unigram")("the cat sat on the mat")["input_ids"], 2]
    plain = text_of(played(target, prompt, None, 0, max_new_tokens=20))
    for gamma in (1, 4):
        found = played(target, prompt, drafter_of(way, drafter, target, both), gamma, max_new_tokens=20)
        assert text_of(found) == plain
        told = [record.message for record in found if isinstance(record, Notice)]
        assert way != "auto" or "looked at 16 positions" in told[0]
