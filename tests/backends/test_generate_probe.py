"""Models that number the tokens of a text in a way of their own write what `generate` does with them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers
from tiny_transformers import tiny_model

from specdec_tui.backends.causal_lm import TransformersModel

ROBERTA: dict[str, Any] = {
    "vocab_size": 320,
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "is_decoder": True,
}
PROMPT = [5, 9, 77, 31, 200, 8]


@pytest.mark.parametrize("config", ["RobertaConfig", "XLMRobertaConfig", "CamembertConfig", "Data2VecTextConfig"])
def test_roberta_and_its_kin_write_the_text_of_generate(config: str) -> None:
    torch.manual_seed(3)
    made = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(**ROBERTA)).eval()
    with torch.no_grad():
        made.get_submodule(made.base_model_prefix).embeddings.position_embeddings.weight.mul_(40)  # so that it matters
    inputs = torch.tensor([PROMPT])
    found = made.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    expected = found[0, len(PROMPT) :].tolist()
    model = TransformersModel(made)
    for use_cache in (True, False):
        context, fed, told = model.open(use_cache=use_cache), PROMPT, []
        for _ in expected:
            told.append(int(context.extend(fed, 1)[-1].argmax()))
            fed = told[-1:]
        assert told == expected
    rows = [int(row.argmax()) for row in model.reference(PROMPT, expected)]
    assert rows == expected, "the reference pass numbers them alike"


@pytest.mark.parametrize("kind", ["llama", "gpt2", "gemma3"])
def test_models_that_count_from_zero_are_not_asked(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made = tiny_model(kind)
    monkeypatch.setattr(type(made), "generate", None)
    assert not TransformersModel(made)._names_places
