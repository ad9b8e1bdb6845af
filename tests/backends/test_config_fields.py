"""Odd and damaged configs: a valid model runs, any other is refused in one line with its field and what would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from raw_words import raw_words
from safetensors.torch import load_file, save_file

from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.records import EMITTED, Checked, EndReason, LosslessStatus, RunEnded, Step, tokens_of
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

ROPE = {"rope_type": "default", "rope_theta": 10000.0}


def change(folder: Path, **values: Any) -> Path:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


def refusal(folder: Path, **choice: Any) -> str:
    with pytest.raises(LoadError) as caught:
        LocalEngine().load(ModelChoice(target=str(folder), device="cpu", **choice), lambda progress: None)
    text = str(caught.value)
    assert text.startswith(str(folder)), text
    assert "\n" not in text and not raw_words(text), text
    return text.removeprefix(f"{folder}: ")


OTHER_OUTPUTS: list[dict[str, Any]] = [
    {"return_dict": False},
    {"torchscript": True},
    {"output_hidden_states": True},
    {"output_attentions": True},
    {"id2label": {"0": "a"}},
    {"num_labels": 3},
    *({"dtype": name} for name in ("float64", "bfloat16", "half")),
]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        pytest.param(kind, fields, marks=[pytest.mark.large] * ((at + place) % 3 > 0), id=f"{kind}-{fields}")
        for at, kind in enumerate(("llama", "gpt2", "gemma3"))
        for place, fields in enumerate(OTHER_OUTPUTS)
    ],
)
def test_a_config_that_asks_for_other_outputs_is_a_valid_models(
    save_model: Any, kind: str, fields: dict[str, Any]
) -> None:
    folder = save_model("target", kind)
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    change(folder, **fields)
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folder), drafter=str(folder), device="cpu"), lambda progress: None)
    pair = engine._pair
    assert pair is not None
    prompt = list(pair.tokenizer.encode("the cat", (), False).ids)
    ids = torch.tensor([prompt])
    whole = model.generate(ids, max_new_tokens=8, do_sample=False, eos_token_id=1, pad_token_id=1)
    own = whole[0, len(prompt) :].tolist()
    settings = Settings(strategies=("target", "speculative", "lookup"), max_new_tokens=8, gamma=3, chat=False)
    texts: dict[str, list[int]] = {}
    for event in engine.run("the cat", settings, lambda: False):
        if isinstance(event, Step):
            emitted = [t.id for t in tokens_of(event.record) if t.status in EMITTED]
            texts.setdefault(event.strategy, []).extend(emitted)
        elif isinstance(event, Checked):
            assert event.lossless.status is LosslessStatus.IDENTICAL, event
    assert texts == dict.fromkeys(settings.strategies, own)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id2label": [1]}, "id2label in its config is [1]: a table of names by whole numbers is needed, or none."),
        ({"id2label": {"a": 1}}, "id2label in its config is {'a': 1}: a table of names by whole numbers is needed"),
        ({"num_labels": 10**30}, "num_labels in its config is 10000"),
        ({"num_labels": "x"}, "num_labels in its config is 'x': a whole number from 0 to 1,000,000 is needed."),
        *(
            (
                {field: name},
                f"{field} in its config is '{name}': a kind of number is needed: float32, bfloat16, float16",
            )
            for field in ("dtype", "torch_dtype")
            for name in ("float8_e4m3fn", "float8_e5m2", "int8", "uint4", "complex64", "storage", "", "auto")
        ),
        *(({"rms_norm_eps": eps}, "rms_norm_eps in its config is ") for eps in (float("nan"), -1, 0, 0.0, 1e308, "x")),
        *(
            ({"rope_parameters": ROPE | {"rope_theta": theta}}, "rope_parameters.rope_theta in its config is ")
            for theta in (0, -5, float("nan"), float("inf"), 1e308, 10**30, "x", [], True)
        ),
        *(
            (
                {"rope_parameters": ROPE | {"rope_type": "linear", "factor": factor}},
                "rope_parameters.factor in its config",
            )
            for factor in (0, -2.0, "2", [2.0])
        ),
        ({"rope_scaling": {"type": "linear", "factor": 0}}, "rope_scaling.factor in its config is 0: a number above 0"),
        ({"rope_theta": -5}, "rope_theta in its config is -5: a number above 0, at most 1e+15, is needed."),
        (
            {"rope_parameters": ROPE | {"rope_type": None}},
            "rope_parameters.rope_type is None: a name is needed, such as",
        ),
        ({"rope_parameters": ROPE | {"rope_type": "x"}}, "which is not known: default, dynamic, linear, "),
        ({"rope_parameters": ROPE | {"rope_theta": None}}, "rope_parameters.rope_theta is None: a number above 0, at"),
        ({"model_type": None}, "model_type in its config is None: a name is needed."),
        ({"initializer_range": 1e308}, "initializer_range is 1e+308: "),
        (
            {"rope_parameters": ROPE | {"rope_type": []}},
            "rope_parameters.rope_type in its config is []: a name",
        ),
        ({"rope_parameters": 5}, "rope_parameters in its config is 5: a group of fields is needed."),
        ({"use_cache": "x"}, "use_cache is 'x': true or false is needed"),
        ({"head_dim": 0}, "head_dim is 0: "),
        ({"num_key_value_heads": 0}, "num_key_value_heads is 0: "),
        *(
            ({part: value}, f"{part} in its config is {value!r}: leave it out, as a llama model has no such part.")
            for part, value in (("text_config", {"a": 1}), ("decoder", {"a": 1}), ("decoder", 5), ("generator", "x"))
        ),
        ({"model_type": "x"}, "model_type in its config is 'x', but its architecture is not known"),
    ],
    ids=str,
)
def test_a_field_that_no_model_can_be_made_of_is_named_with_what_would_do(
    save_model: Any, fields: dict[str, Any], said: str
) -> None:
    assert said in refusal(change(save_model("target"), **fields))


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_a_window_that_a_model_does_not_use_is_no_fault(save_model: Any, kind: str) -> None:
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(change(save_model("target", kind), sliding_window=0)), device="cpu"), print)


@pytest.mark.parametrize(
    ("kind", "fields", "said"),
    [
        (
            "gemma3",
            {"rope_parameters": {"full_attention": 5}},
            "rope_parameters.full_attention in its config is 5",
        ),
        ("gemma3", {"query_pre_attn_scalar": -1}, "query_pre_attn_scalar is -1: "),
        ("gemma3", {"sliding_window": 10**30}, "sliding_window is 1000000000000000000000000000000: "),
        ("gemma2", {"sliding_window": -1}, "sliding_window in its config is -1: a whole number from 2 up is needed."),
        ("gemma2", {"sliding_window": 1}, "sliding_window in its config is 1: a whole number from 2 up is needed."),
        *(
            (kind, {"sliding_window": window}, f"sliding_window in its config is {window}: a whole number from 2 up")
            for kind in ("mistral", "phi3", "gemma3", "mixtral")
            for window in (0, -1)
        ),
        ("mixtral", {"num_experts_per_tok": -1}, "num_experts_per_tok in its config is -1: a whole number from 0 up"),
        ("mixtral", {"num_experts_per_tok": 10**30}, "num_experts_per_tok is 1000000000000000000000000000000: "),
        ("opt", {"ffn_dim": -1}, "ffn_dim in its config is -1: a whole number from 0 up is needed."),
        ("gemma3", {"sliding_window": None}, "sliding_window is None: "),
        (
            "gemma2",
            {"final_logit_softcapping": 1e308},
            "final_logit_softcapping is 1e+308 (30.0 is usual)",
        ),
        ("gpt2", {"layer_norm_epsilon": 0}, "layer_norm_epsilon in its config is 0: a number above 0, at most 1, is"),
    ],
    ids=str,
)
def test_a_field_that_only_the_first_pass_fails_over_is_named_as_well(
    save_model: Any, kind: str, fields: dict[str, Any], said: str
) -> None:
    assert said in refusal(change(save_model("target", kind), **fields))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("tensor", ["model.layers.1.mlp.up_proj.weight", "model.norm.weight", "lm_head.weight"])
def test_weights_that_are_no_finite_numbers_are_named_and_no_dtype_is_blamed(
    save_model: Any, tensor: str, value: float
) -> None:
    folder = save_model("target")
    tensors = load_file(folder / "model.safetensors")
    tensors[tensor].view(-1)[3] = value
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    for dtype in ("float32", "bfloat16"):
        text = refusal(folder, dtype=dtype)
        assert f"NaN or infinite ones are in 1 tensor ({tensor})" in text and "dtype" not in text


@pytest.mark.parametrize("tensor", ["model.layers.0.self_attn.q_proj.weight", "model.layers.1.self_attn.k_proj.weight"])
def test_one_nan_that_attention_passes_over_is_found_too(save_model: Any, tensor: str) -> None:
    """Attention takes a score that is no number for one that it must not see: the first pass looked sound."""
    folder = save_model("target")
    tensors = load_file(folder / "model.safetensors")
    tensors[tensor].view(-1)[3] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert f"NaN or infinite ones are in 1 tensor ({tensor})" in refusal(folder)


@pytest.mark.parametrize("how", ["load_in_4bit", "load_in_8bit"])
def test_plain_weights_under_a_quantization_config_are_refused_with_the_field(save_model: Any, how: str) -> None:
    pytest.importorskip("bitsandbytes")
    folder = change(save_model("target"), quantization_config={"quant_method": "bitsandbytes", how: True})
    assert "its quantization_config does not fit it: leave that out if its files hold plain weights" in refusal(folder)


def test_a_quantization_that_is_not_done_is_told(save_model: Any) -> None:
    folder = change(save_model("target"), quantization_config={"quant_method": "fp8"})
    info = LocalEngine().load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    assert f"{folder}: its config asks for fp8 quantization, which is not done: its weights are held as float32." in (
        info.notes
    )


def test_numbers_that_float16_cannot_hold_ask_for_a_wider_dtype(save_model: Any) -> None:
    folder = save_model("target")
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] *= 1e6
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert refusal(folder, dtype="float16").endswith("in float16: try --dtype bfloat16 or float32.")
    LocalEngine().load(ModelChoice(target=str(folder), device="cpu", dtype="bfloat16"), lambda progress: None)


def test_a_text_that_meets_a_weight_that_is_no_number_fails_in_words_and_is_called_identical_nowhere(
    save_model: Any, tmp_path: Path
) -> None:
    """One embedding is none: no first pass meets it, and the text fails where it comes to it."""
    folder = save_model("target")
    pair = LocalEngine()
    pair.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    settings = Settings(strategies=("target", "lookup"), max_new_tokens=12, chat=False, ignore_eos=True)
    steps = [e for e in pair.run("the cat", settings, lambda: False) if isinstance(e, Step) and e.strategy == "target"]
    text = [t.id for step in steps for t in tokens_of(step.record)]
    tensors = load_file(folder / "model.safetensors")
    late = next(token for token in text[2:] if token not in text[:2])
    tensors["model.embed_tokens.weight"][late] = float("nan")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    events = list(engine.run("the cat", settings, lambda: False))
    ends = [e.record for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)]
    assert all(end.reason is EndReason.ERROR for end in ends)
    assert all(end.message.endswith("(NaN or infinite): its weights or its config are not right") for end in ends)
    verdicts = [e.lossless for e in events if isinstance(e, Checked)]
    assert len(verdicts) == 2
    for verdict in verdicts:
        assert verdict.status is LosslessStatus.NOT_APPLICABLE
        assert verdict.detail.startswith("failed: the first ") and verdict.detail.endswith(" the target's")
