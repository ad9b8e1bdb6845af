"""What a model's files hold beyond its config, or choose for us: done, said or refused by name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tiny_gguf import write_tiny_gguf
from tiny_transformers import CONFIGS, tiny_model, tiny_tokenizer

from specdec_tui import cli
from specdec_tui.backends.causal_probe import refuse_what_looks_ahead
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.decoding.records import Notice, Step
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings


def load(target: Path, **choice: str) -> Pair:
    return load_pair(ModelChoice(target=str(target), **({"device": "cpu"} | choice)), lambda progress: None)


def change(folder: Path, name: str = "config.json", **values: Any) -> Path:
    file = folder / name
    old = json.loads(file.read_text()) if file.exists() else {}
    file.write_text(json.dumps(old | values))
    return folder


def test_layers_that_the_config_does_not_use_are_counted_named_and_told_with_every_run(save_model: Any) -> None:
    folder = change(save_model("target"), num_hidden_layers=1)
    engine = LocalEngine()
    info = engine.load(ModelChoice(target=str(folder), device="cpu"), lambda progress: None)
    (caveat,) = info.target.caveats
    assert caveat.startswith(f"{folder}: its config does not use 18 tensors (model.layers.1.input_layernorm.weight, ")
    assert caveat in info.notes
    settings = Settings(strategies=("target", "lookup"), max_new_tokens=2)
    steps = [e for e in engine.run("the cat", settings, lambda: False) if isinstance(e, Step)]
    assert sum(step.record == Notice(caveat) for step in steps) == 2


def test_biases_that_the_config_does_not_use_are_told(save_model: Any) -> None:
    folder = change(save_model("target", attention_bias=True), attention_bias=False)
    assert "does not use 12 tensors (model.layers.0.self_attn.k_proj.bias" in load(folder).info.target.caveats[0]


def test_one_tensor_is_told_in_the_singular_and_none_is_not_told(save_model: Any) -> None:
    folder = save_model("target")
    assert load(folder).info.target.caveats == ()
    tensors = load_file(folder / "model.safetensors") | {"extra": torch.zeros(2)}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).info.target.caveats == (f"{folder}: its config does not use 1 tensor (extra) of its files.",)


def test_tensors_that_a_family_leaves_out_by_their_names_are_told_and_tables_are_not(save_model: Any) -> None:
    folder = save_model("target", "gpt2")
    tables = {"transformer.h.0.attn.bias": torch.zeros(2), "transformer.h.1.crossattention.bias": torch.zeros(2)}
    layer = {"transformer.h.7.attn.c_attn.bias": torch.zeros(96)}
    tensors = load_file(folder / "model.safetensors")
    save_file(tensors | tables, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).info.target.caveats == ()
    save_file(tensors | tables | layer, folder / "model.safetensors", metadata={"format": "pt"})
    assert "does not use 1 tensor (transformer.h.7.attn.c_attn.bias)" in load(folder).info.target.caveats[0]
    short = {name.removeprefix("transformer."): tensor for name, tensor in (tensors | layer).items()}
    save_file(short, folder / "model.safetensors", metadata={"format": "pt"})
    assert load(folder).info.target.caveats == (
        f"{folder}: its config does not use 1 tensor (h.7.attn.c_attn.bias) of its files.",
    )


@pytest.mark.parametrize("size", [40, 3000, -1])
def test_an_old_file_of_torchs_that_was_cut_off_is_told_with_its_cure(save_model: Any, size: int) -> None:
    folder = save_model("target")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    file = folder / "pytorch_model.bin"
    torch.save(tensors, file, _use_new_zipfile_serialization=False)
    file.write_bytes(file.read_bytes()[:size])
    with pytest.raises(LoadError, match="download it again"):
        load(folder)


def test_an_index_of_shards_without_metadata_is_told(save_model: Any) -> None:
    folder = save_model("target")
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    shards = dict.fromkeys(load_file(folder / "a.safetensors"), "a.safetensors")
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    with pytest.raises(LoadError, match="the index of its weight files has no metadata: download it again"):
        load(folder)


def test_a_context_without_room_for_an_answer_is_refused(save_model: Any) -> None:
    with pytest.raises(LoadError, match="a context of 1 token: there is no room for an answer"):
        load(change(save_model("target"), max_position_embeddings=1))


def test_weights_of_a_gguf_file_that_are_not_used_are_counted(tmp_path: Path, tokens: Path) -> None:
    write_tiny_gguf(tmp_path / "tiny.gguf", tokens, end=3)
    assert load(tmp_path / "tiny.gguf").info.target.caveats == ()
    more = {"blk.0.attn_odd.bias": (32,), "blk.7.ffn_up.weight": (32, 32)}
    write_tiny_gguf(tmp_path / "tiny.gguf", tokens, more=more, end=3)
    (caveat,) = load(tmp_path / "tiny.gguf").info.target.caveats
    names = "blk.0.attn_odd.bias, blk.7.ffn_up.weight"
    assert caveat.endswith(f"tiny.gguf: a llama model does not use 2 of its tensors ({names}).")
    write_tiny_gguf(tmp_path / "tiny.gguf", tokens, fields={"llama.expert_count": 8}, more=more, end=3)
    caveats = load(tmp_path / "tiny.gguf").info.target.caveats
    assert caveats[0].endswith("its config does not use 1,056 of the file's weights.")
    assert caveats[1].endswith("its weights are expanded: of llama models with experts they are not read packed.")


def test_tensors_that_are_missing_or_of_another_shape_are_named(save_model: Any) -> None:
    with pytest.raises(LoadError, match=r"lack model\.layers\.3\..* … \(18 tensors its config asks for\)"):
        load(change(save_model("more"), num_hidden_layers=5))
    with pytest.raises(LoadError, match=r"down_proj\.weight is 32 × 48 in its weight files and 32 × 64 by its config"):
        load(change(save_model("wider"), intermediate_size=64))


ENCODERS = [
    "Bert",
    "Roberta",
    "Electra",
    "XLMRoberta",
    "BertGeneration",
    "RoFormer",
    "MegatronBert",
    "RemBert",
    "Ernie",
]


@pytest.mark.parametrize("family", ENCODERS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_an_encoder_is_refused_by_name_though_a_table_lists_it(family: str, dtype: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{family}Config")(
        vocab_size=320,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        max_position_embeddings=128,
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(LoadError, match=rf"\({config.model_type}\) looks ahead") as refused:
        load(tmp_path, dtype=dtype)
    assert str(tmp_path) in str(refused.value)


def test_the_same_model_saved_as_a_decoder_is_taken(tmp_path: Path) -> None:
    config = transformers.BertConfig(
        vocab_size=320, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, is_decoder=True
    )
    transformers.AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    assert load(tmp_path).info.target.name == str(tmp_path)


def test_a_decoder_whose_config_lets_it_look_ahead_is_refused(save_model: Any) -> None:
    with pytest.raises(LoadError, match="looks ahead"):
        load(change(save_model("target", "gemma3"), use_bidirectional_attention=True))


@pytest.mark.parametrize("kind", CONFIGS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_causal_family_is_refused(kind: str, dtype: torch.dtype) -> None:
    model = tiny_model(kind).to(dtype)
    passes: list[int] = []
    model.register_forward_hook(lambda *_: passes.append(1))
    refuse_what_looks_ahead("a/model", model)
    assert passes == [1]


@pytest.mark.each_value
@pytest.mark.parametrize("name", ["attn_implementation", "_attn_implementation", "experts_implementation"])
@pytest.mark.parametrize(
    "value", ["kernels-community/flash-attn", "owner/repo:kernel", "flex_attention", "nonsense", 5]
)
def test_a_config_does_not_choose_the_code(name: str, value: Any, save_model: Any) -> None:
    pair = load(change(save_model("target", "qwen3"), **{name: value}))
    model = pair.target._shell() if isinstance(pair.target, LeanModel) else pair.target.model  # type: ignore[union-attr]
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize(
    "values", [{"fusion_config": {"rms": True}}, {"use_kernels": True}, {"auto_map": {"AutoModelForCausalLM": "a.B"}}]
)
def test_other_choices_of_code_are_not_followed(values: dict[str, Any], save_model: Any) -> None:
    folder = change(save_model("target"), **values)
    (folder / "a.py").write_text("raise SystemExit('run')")
    assert load(folder).info.target.parameters


def test_an_adapter_beside_the_weights_is_refused(save_model: Any) -> None:
    folder = change(save_model("target"), "adapter_config.json", base_model_name_or_path="x/y", peft_type="LORA")
    with pytest.raises(LoadError, match="holds an adapter"):
        load(folder)


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("was-run",)


def test_pickled_weights_are_read_as_numbers_alone(
    save_model: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    folder = save_model("target")
    tensors = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    torch.save(tensors, folder / "pytorch_model.bin")
    assert load(folder).info.target.parameters
    torch.save(tensors | {"evil": Evil()}, folder / "pytorch_model.bin")
    with pytest.raises(LoadError, match="holds more than numbers, or is damaged: such files are not opened") as refused:
        load(folder)
    assert not (tmp_path / "was-run").exists() and "weights_only" not in str(refused.value)


@pytest.mark.parametrize("value", ["abc", [[1]], True, 1.5, {"a": 1}])
def test_an_end_token_that_is_none_is_named_with_its_place(value: Any, save_model: Any) -> None:
    folder = change(save_model("target"), "generation_config.json", eos_token_id=value)
    with pytest.raises(LoadError, match="eos_token_id in its generation config must be a whole number"):
        load(folder)


@pytest.mark.parametrize("text", ["[1]", '{"early_stopping": "abc"}', '{"watermarking_config": {"x": 1}}'])
def test_a_generation_config_that_cannot_be_read_is_named(text: str, save_model: Any) -> None:
    folder = save_model("target")
    (folder / "generation_config.json").write_text(text)
    with pytest.raises(LoadError, match=r"its generation_config\.json is not valid: "):
        load(folder)


def test_the_header_says_what_weights_are_held_in(save_model: Any) -> None:
    folder = save_model("target")
    assert load(folder).info.target.precision == "float32"  # numbers that need all of it
    tensors = {name: tensor.bfloat16().float() for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    info = load(folder).info.target
    assert (info.dtype, info.held_dtype) == ("float32", "bfloat16")
    assert info.precision == "float32 (held in bfloat16)"
    assert load(folder, dtype="bfloat16").info.target.precision == "bfloat16"


@pytest.mark.parametrize("value", [5, {"default": 5}, True])
def test_a_chat_template_that_is_no_text_is_named(value: Any, save_model: Any) -> None:
    folder = save_model("target")
    (folder / "chat_template.jinja").unlink()
    with pytest.raises(LoadError, match="chat_template in its tokenizer must be text"):
        load(change(folder, "tokenizer_config.json", chat_template=value))


@pytest.mark.parametrize("value", ["long", {"a": 1}, [5]])
def test_a_longest_text_that_is_no_number_is_named(value: Any, save_model: Any) -> None:
    with pytest.raises(LoadError, match="target: model_max_length in its tokenizer must be a number, not"):
        load(change(save_model("target"), "tokenizer_config.json", model_max_length=value))


@pytest.mark.parametrize("command", ["bench", "doctor"])
def test_what_native_code_says_of_a_file_does_not_reach_the_terminal(
    command: str, save_model: Any, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = save_model("target")
    table = json.loads((folder / "tokenizer_config.json").read_text())
    special = {"content": "<s>", "special": True, "\x1b]52;c;aGVsbG8=\x07": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(table | {"added_tokens_decoder": {"0": special}}))
    for name, value in {"CONFIG": "/nowhere/config.toml", "TARGET": folder, "DRAFTER": folder, "DEVICE": "cpu"}.items():
        monkeypatch.setenv(f"SPECDEC_TUI_{name}", str(value))
    words = ["--max-new-tokens", "2", "--prompt", "why", "--repeat", "1", "--json", "-"] if command == "bench" else []
    cli.main([command, *words])
    said = capfd.readouterr().out
    assert "\x1b" not in said and "Ignored" not in said
    if command == "bench":
        assert json.loads(said)["summary"]
    else:
        assert str(folder) in said


def test_a_tokenizer_that_reads_at_random_is_told_with_every_run(save_model: Any) -> None:
    folder = save_model("target")
    table = json.loads((folder / "tokenizer.json").read_text())
    table["model"]["dropout"] = 0.9
    (folder / "tokenizer.json").write_text(json.dumps(table))
    engine = LocalEngine()
    info = engine.load(ModelChoice(target=str(folder), drafter=str(folder), device="cpu"), lambda progress: None)
    said = (
        f"{folder}: its tokenizer has BPE dropout 0.9: the same prompt becomes other tokens each time, as it does for "
        "generate."
    )
    assert info.target.caveats == (said,) and info.notes.count(said) == 1
    steps = [e for e in engine.run("the cat", Settings(max_new_tokens=2), lambda: False) if isinstance(e, Step)]
    assert Notice(said) in [step.record for step in steps if step.strategy == "target"]
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    assert len({tuple(tokenizer("the cat sat on the mat")["input_ids"]) for _ in range(20)}) > 1


@pytest.mark.parametrize("pickled", [False, True])
def test_whole_numbers_that_are_used_as_weights_are_counted_named_and_told(save_model: Any, pickled: bool) -> None:
    folder = save_model("target", "gpt2", tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    head, norm = "lm_head.weight", "transformer.ln_f.weight"

    def save(changed: dict[str, torch.Tensor]) -> None:
        if pickled:
            (folder / "model.safetensors").unlink(missing_ok=True)
            torch.save(tensors | changed, folder / "pytorch_model.bin")
        else:
            save_file(tensors | changed, folder / "model.safetensors", metadata={"format": "pt"})

    save({"transformer.h.0.attn.bias": torch.ones(1, 1, 128, 128, dtype=torch.bool)})
    assert load(folder).info.target.caveats == ()
    save({head: tensors[head].to(torch.int8)})
    (said,) = load(folder).info.target.caveats
    meaning = "and no quantization config says what that means: used as weights as"
    assert said == f"{folder}: its files hold 1 tensor (lm_head.weight) as int8, {meaning} it is."
    save({head: tensors[head] > 0, norm: tensors[norm].to(torch.int32)})
    (said,) = load(folder).info.target.caveats
    assert said == (
        f"{folder}: its files hold 2 tensors (lm_head.weight, transformer.ln_f.weight) as bool and int32, "
        f"{meaning} they are."
    )


@pytest.mark.parametrize("pickled", [False, True])
def test_complex_weights_are_refused_by_name(save_model: Any, pickled: bool) -> None:
    """Their imaginary parts were left out without a word."""
    folder = save_model("target", "gpt2", tie_word_embeddings=False)
    tensors = load_file(folder / "model.safetensors")
    tensors["lm_head.weight"] = tensors["lm_head.weight"] * (1 + 1j)
    if pickled:
        (folder / "model.safetensors").unlink()
        torch.save(tensors, folder / "pytorch_model.bin")
    else:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"holds complex numbers in lm_head\.weight: no model has such weights"):
        load(folder)


@pytest.mark.parametrize(
    ("numbers", "told"),
    [
        ({"llama.rope.scaling.factor": 4.0}, "rope.scaling.factor 4"),
        (
            {"llama.rope.scaling.factor": 8.0, "llama.rope.scaling.attn_factor": 0.5},
            "factor 8, rope.sca",
        ),
        ({"llama.rope.scaling.factor": 1.0}, ""),
        ({"llama.rope.scaling.factor": 0.0}, ""),
    ],
)
def test_rotations_that_a_gguf_file_wants_scaled_are_told(
    tmp_path: Path, tokens: Path, numbers: dict[str, float], told: str
) -> None:
    """transformers passes over these fields: the text is that of another model than the file's."""
    write_tiny_gguf(tmp_path / "m.gguf", tokens, fields={"llama.expert_count": 8}, numbers=numbers)
    notes = load_pair(ModelChoice(target=str(tmp_path / "m.gguf"), device="cpu"), lambda progress: None).info.notes
    scaled = [note for note in notes if "scales rotations" in note]
    assert len(scaled) == bool(told)
    for note in scaled:
        assert told in note and "m.gguf: its file scales rotations (" in note
