"""What a model is given is what `generate` gives it; where that cannot be, the model is refused by name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_transformers import tiny_model, tiny_tokenizer
from transformers import LlamaForCausalLM, PreTrainedModel

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.generate_probe import Inputs
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.settings import ModelChoice

ROBERTA: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 128,
    "is_decoder": True,
}
XMOD = ROBERTA | {"languages": ["en_XX"], "default_language": "en_XX"}
NUMBERED = {
    "RobertaConfig": ROBERTA,
    "XLMRobertaConfig": ROBERTA,
    "CamembertConfig": ROBERTA,
    "Data2VecTextConfig": ROBERTA,
    "XmodConfig": XMOD,
}
# Classes that `generate` gives more than the text, or a text of its own, with the reason that is told.
OTHERS: dict[str, tuple[dict[str, Any], str]] = {
    "XLMConfig": (
        {"emb_dim": 32, "n_layers": 2, "n_heads": 4, "causal": True, "max_position_embeddings": 128},
        r"its own prepare_inputs_for_generation",
    ),
    "CpmAntConfig": (
        {"hidden_size": 32, "num_attention_heads": 4, "dim_head": 8, "dim_ff": 48, "num_hidden_layers": 2},
        r"looks ahead",
    ),
    "XLNetConfig": (
        {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 48, "attn_type": "uni"},
        r"prepare_inputs_for_generation|looks ahead",
    ),
    "ReformerConfig": (
        {
            "is_decoder": True,
            "hidden_size": 32,
            "num_attention_heads": 2,
            "attention_head_size": 16,
            "feed_forward_size": 48,
            "attn_layers": ["local", "lsh"],
            "axial_pos_shape": [8, 16],
            "axial_pos_embds_dim": [16, 16],
            "max_position_embeddings": 128,
            "num_buckets": 4,
            "local_attn_chunk_length": 8,
            "lsh_attn_chunk_length": 8,
        },
        r"vary from pass to pass|looks ahead",
    ),
}
# Classes with words of their own on their inputs, which change nothing that the model says.
HARMLESS: dict[str, dict[str, Any]] = {
    "CTRLConfig": {"n_embd": 32, "n_layer": 2, "n_head": 4, "dff": 48, "n_positions": 128},
    "OpenAIGPTConfig": {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128},
    "RwkvConfig": {"hidden_size": 32, "num_hidden_layers": 2, "attention_hidden_size": 32, "context_length": 64},
    "RoCBertConfig": ROBERTA,
    "MambaConfig": {"hidden_size": 32, "num_hidden_layers": 2, "state_size": 4},
}
PROMPT = [5, 9, 77, 31, 200, 8]


def made(config: str, values: dict[str, Any]) -> PreTrainedModel:
    torch.manual_seed(3)
    model = transformers.AutoModelForCausalLM.from_config(getattr(transformers, config)(vocab_size=320, **values))
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.3)
    found: PreTrainedModel = model.float().eval()
    return found


def saved(model: PreTrainedModel, folder: Path) -> Path:
    model.save_pretrained(folder)
    tiny_tokenizer(chat_template=None).save_pretrained(folder)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 1}))
    return folder


def load(folder: Path) -> Pair:
    return load_pair(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)


@pytest.mark.parametrize("config", NUMBERED | HARMLESS)
def test_texts_are_those_of_generate_whatever_a_class_does_with_its_inputs(config: str) -> None:
    network = made(config, (NUMBERED | HARMLESS)[config])
    inputs = torch.tensor([PROMPT])
    found = network.generate(
        inputs, attention_mask=torch.ones_like(inputs), max_new_tokens=12, do_sample=False, eos_token_id=None
    )
    expected = found[0, len(PROMPT) :].tolist()
    model = TransformersModel(network)
    assert model.inputs == Inputs(numbered=config in NUMBERED)
    for use_cache in (True, False):
        context, fed, told = model.open(use_cache=use_cache), PROMPT, []
        for _ in expected:
            told.append(int(context.extend(fed, 1)[-1].argmax()))
            fed = told[-1:]
        assert told == expected
    rows = [int(row.argmax()) for row in model.reference(PROMPT, expected)]
    assert rows == expected, "the reference pass numbers them alike"


@pytest.mark.parametrize("config", OTHERS)
def test_a_model_that_generate_gives_other_inputs_is_refused_by_name(config: str, tmp_path: Path) -> None:
    values, reason = OTHERS[config]
    folder = saved(made(config, values), tmp_path / "model")
    with pytest.raises(LoadError, match=rf"{folder} \(\w+\).*({reason})"):
        load(folder)


@pytest.mark.parametrize("when", ["always", "behind the prompt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_planted_token_before_every_pass_of_generate_is_found(
    when: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare = LlamaForCausalLM.prepare_inputs_for_generation

    def other(self: Any, input_ids: torch.Tensor, is_first_iteration: bool = False, **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = prepare(self, input_ids, is_first_iteration=is_first_iteration, **kwargs)
        if when == "always" or not is_first_iteration:
            found["input_ids"] = found["input_ids"].clone()
            found["input_ids"][:, -1] = 7
        return found

    assert TransformersModel(tiny_model("llama").to(dtype)).inputs == Inputs()
    monkeypatch.setattr(LlamaForCausalLM, "prepare_inputs_for_generation", other)
    refused = TransformersModel(tiny_model("llama").to(dtype)).inputs.refused
    assert refused == "generate does not give it the text as it is (its own prepare_inputs_for_generation)"


def test_a_loaded_model_with_such_a_fault_is_refused(save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, forward = save_model("target"), LlamaForCausalLM.generate

    def other(self: Any, ids: torch.Tensor, **given: Any) -> Any:
        return forward(self, torch.cat([ids[:, :-1], torch.full_like(ids[:, :1], 7)], 1), **given)

    monkeypatch.setattr(LlamaForCausalLM, "generate", other)
    with pytest.raises(LoadError, match=r"target \(llama\): generate does not give it the text as it is"):
        load(folder)


def test_a_generate_that_fails_is_told_with_every_run(save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model("target", tokenizer=tiny_tokenizer(chat_template=None), eos_token_id=1)

    def fail(*arguments: object, **given: object) -> None:
        raise KeyError("beam")

    monkeypatch.setattr(LlamaForCausalLM, "generate", fail)
    assert load(folder).info.target.caveats == (
        f"{folder}: generate fails on it ('beam' is not there, or not known): "
        "whether its texts are those of generate is not known.",
    )


def test_a_models_generation_config_and_short_contexts_do_not_disturb_the_question() -> None:
    for length in (4, 5, 23):
        assert TransformersModel(tiny_model("gpt2", n_positions=length)).inputs == Inputs()
    model = tiny_model("llama")
    model.generation_config = transformers.GenerationConfig(
        eos_token_id=list(range(320)), repetition_penalty=1.7, num_beams=3, stop_strings=["a"]
    )
    kept = model.generation_config
    assert TransformersModel(model).inputs == Inputs() and model.generation_config is kept
