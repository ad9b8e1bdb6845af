from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numba
import pytest
import torch
import transformers
from numba.core import event
from safetensors.torch import load_file, save_file
from test_compatibility import NO_TEXT
from tiny_transformers import tiny_model, tiny_tokenizer

from specdec_tui.backends import loading, memory, weights
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.lean import fit
from specdec_tui.backends.lean.layer_parts import SHORT
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.backends.lean.vectors import MOST_TOKENS
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError, Progress
from specdec_tui.decoding.records import Checked, LosslessStatus
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings


def load(target: Path, drafter: Path | None = None, **choice: str) -> Pair:
    named = ModelChoice(target=str(target), drafter=str(drafter or ""), **({"device": "cpu"} | choice))
    return load_pair(named, lambda progress: None)


def change_config(folder: Path, **values: Any) -> None:
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


@pytest.fixture
def no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused here must be refused before any weights are read."""

    def fail(*arguments: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(loading, "load_weights", fail)


def test_a_pair_of_folders_loads_and_says_what_was_loaded(save_model: Any) -> None:
    steps: list[Progress] = []
    target, drafter = save_model("target"), save_model("drafter", num_hidden_layers=1)
    pair = load_pair(ModelChoice(target=str(target), drafter=str(drafter), device="cpu"), steps.append)
    info = pair.info.target
    assert (info.name, info.device, info.dtype, info.quantization) == (str(target), "cpu", "float32", "none")
    assert info.parameters == tiny_model("llama").num_parameters() and info.memory_bytes >= 4 * info.parameters
    assert info.context_length == 128 and pair.info.chat_template
    assert len(pair.drafters) == 1 and pair.info.drafter is not None
    assert pair.info.drafter.parameters < info.parameters
    assert steps[-1] == Progress("Ready", 1.0)


@pytest.mark.parametrize("compiles", [False, True])
def test_a_load_says_that_it_compiles_and_that_it_does_so_once_where_it_does(
    save_model: Any, monkeypatch: pytest.MonkeyPatch, compiles: bool
) -> None:
    """For half a minute `Trying demo drafter` stood there."""
    steps: list[Progress] = []

    class Lean(TransformersModel):
        @classmethod
        def of(cls, model: Any) -> Lean:
            if compiles:
                with event.trigger_event("numba:run_pass"):
                    pass
            return cls(model)

    monkeypatch.setattr("specdec_tui.backends.lean.model.LeanModel", Lean)
    monkeypatch.setattr(loading, "_as_held", lambda info, _: info)
    monkeypatch.setattr(loading, "agrees", lambda *_: True)
    folder = save_model("a")
    load_pair(ModelChoice(target=str(folder), drafter=str(folder), device="cpu"), steps.append)
    told = [step for step in steps if step.stage == f"First-time compiling: {folder} (up to a minute)"]
    assert bool(told) == compiles and all(step.fraction is None for step in told)  # nothing of it is counted


@pytest.mark.parametrize("kind", ["llama", "qwen3", "mistral", "gemma2", "gpt2", "mamba"])
def test_every_family_loads_as_target_and_drafter(save_model: Any, kind: str) -> None:
    folder = save_model("model", kind)
    pair = load(folder, folder)
    assert [drafter.model is pair.target for drafter in pair.drafters] == [False]
    assert isinstance(pair.target, LeanModel) == (kind not in ("gpt2", "mamba"))
    assert isinstance(pair.target, LeanModel) or pair.target.rewindable
    assert not any("cannot be rewound" in note for note in pair.info.notes)


def test_nothing_is_printed_while_models_load(save_model: Any, capfd: pytest.CaptureFixture[str]) -> None:
    target, drafter = save_model("target"), save_model("drafter")
    capfd.readouterr()
    load(target, drafter)
    assert capfd.readouterr() == ("", "")


def test_ids_of_one_side_are_masked_in_the_targets_vocabulary(save_model: Any) -> None:
    pair = load(save_model("target", vocab_size=384), save_model("drafter", tokenizer=tiny_tokenizer("<tool>")))
    shared = pair.drafters[0].shared_ids
    assert shared is not None and shared.shape == (384,)
    assert int((~shared).sum()) == 1


def test_a_dtype_that_was_asked_for_is_the_one_that_was_loaded(save_model: Any) -> None:
    pair = load(save_model("target"), dtype="bfloat16")
    assert pair.info.target.dtype == "bfloat16"
    assert isinstance(pair.target, LeanModel) and pair.target.rounded


@pytest.mark.parametrize(
    ("device", "bf16", "dtype"),
    [
        ("cpu", True, torch.float32),
        ("cuda:0", True, torch.bfloat16),
        ("cuda:0", False, torch.float16),
    ],
)
def test_the_automatic_dtype_suits_the_device(
    monkeypatch: pytest.MonkeyPatch, device: str, bf16: bool, dtype: torch.dtype
) -> None:
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation=True: bf16)
    assert weights.resolve_dtype("auto", device) is dtype


@pytest.mark.parametrize(("quantization", "share"), [("int8", 0.75), ("int4", 0.65)])
def test_quantized_models_are_smaller_and_still_rewind_exactly(
    save_model: Any, quantization: str, share: float
) -> None:
    pytest.importorskip("bitsandbytes")
    folder = save_model("target", hidden_size=64, intermediate_size=256, num_hidden_layers=4)
    plain, pair = load(folder), load(folder, quantize=quantization)
    assert pair.info.target.quantization == quantization and pair.target.rewindable
    assert pair.target.dtype is torch.int8 and plain.target.dtype is torch.float32
    assert pair.info.target.dtype == "float32"
    assert pair.info.target.memory_bytes < share * plain.info.target.memory_bytes


def test_a_gguf_file_loads_dequantized_in_the_dtype_asked_for(tiny_gguf: Path) -> None:
    pair = load(tiny_gguf, dtype="bfloat16")
    assert pair.info.target.dtype == "bfloat16"
    assert isinstance(pair.target, LeanModel) and pair.target.held_dtype == "bfloat16"


@pytest.mark.usefixtures("no_weights")
class TestRefusedBeforeWeights:
    def test_a_gguf_file_that_is_to_be_quantized_again(self, tiny_gguf: Path) -> None:
        with pytest.raises(LoadError, match="--quantize cannot"):
            load(tiny_gguf, quantize="int8")

    def test_an_encoder_decoder_model_that_reads_no_text(self, tmp_path: Path) -> None:
        transformers.WhisperConfig(d_model=8, encoder_layers=1, decoder_layers=1).save_pretrained(tmp_path)
        tiny_tokenizer().save_pretrained(tmp_path)
        with pytest.raises(LoadError, match=r"is an encoder-decoder model \(whisper\) that does not read and write"):
            load(tmp_path)

    def test_a_model_that_is_no_language_model(self, tmp_path: Path) -> None:
        transformers.ViTConfig(hidden_size=8, num_hidden_layers=1).save_pretrained(tmp_path)
        tiny_tokenizer().save_pretrained(tmp_path)
        with pytest.raises(LoadError, match="no causal language model"):
            load(tmp_path)

    def test_an_unknown_architecture(self, save_model: Any) -> None:
        folder = save_model("target")
        change_config(folder, model_type="quantum")
        with pytest.raises(LoadError, match=r"not known to transformers \d"):
            load(folder)

    def test_a_model_that_needs_program_code_of_its_own(self, save_model: Any) -> None:
        folder = save_model("target")
        change_config(folder, model_type="own", auto_map={"AutoConfig": "own.OwnConfig"})
        with pytest.raises(LoadError, match="program code"):
            load(folder)

    def test_a_damaged_config(self, save_model: Any) -> None:
        folder = save_model("target")
        (folder / "config.json").write_text("{")
        with pytest.raises(LoadError, match="config cannot be read"):
            load(folder)

    def test_a_damaged_tokenizer(self, save_model: Any) -> None:
        folder = save_model("target")
        (folder / "tokenizer.json").write_text("{")
        with pytest.raises(LoadError, match="tokenizer cannot be read"):
            load(folder)

    def test_a_drafter_of_another_family(self, save_model: Any) -> None:
        with pytest.raises(LoadError, match="do not share a tokenizer, and no token"):
            load(save_model("target"), save_model("drafter", tokenizer=NO_TEXT))

    def test_a_gpu_that_is_not_there(self, save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
        with pytest.raises(LoadError, match="no CUDA GPU"):
            load(save_model("target"), device="cuda:7")

    def test_a_model_larger_than_the_memory(self, save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(memory, "available_bytes", lambda device: 1000)
        with pytest.raises(LoadError, match="Not enough memory"):
            load(save_model("target"))

    def test_a_model_without_weights(self, save_model: Any) -> None:
        folder = save_model("target")
        (folder / "model.safetensors").unlink()
        with pytest.raises(LoadError, match="no weights"):
            load(folder)

    def test_a_checkpoint_that_is_quantized_already(self, save_model: Any) -> None:
        folder = save_model("target")
        change_config(folder, quantization_config={"quant_method": "gptq", "bits": 4})
        with pytest.raises(LoadError, match=r"quantized already \(gptq\)"):
            load(folder, quantize="int8")


def test_damaged_weights_are_one_clear_line(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000])
    with pytest.raises(LoadError, match="weights cannot be loaded") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_weights_that_do_not_belong_to_the_config_are_refused(save_model: Any) -> None:
    folder = save_model("target")
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.layers.1.self_attn.q_proj.weight"]
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(LoadError, match=r"lack model\.layers\.1\.self_attn\.q_proj\.weight"):
        load(folder)


def test_a_drafter_may_be_larger_than_the_target(save_model: Any) -> None:
    pair = load(save_model("target", num_hidden_layers=1), save_model("drafter"))
    assert pair.info.drafter is not None and pair.info.drafter.parameters > pair.info.target.parameters


def test_running_out_of_memory_is_said_plainly(save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    monkeypatch.setattr(transformers.AutoModelForCausalLM, "from_pretrained", fail)
    with pytest.raises(LoadError, match="out of memory on cpu"):
        load(save_model("target"))


def test_the_models_that_load_give_what_was_saved(save_model: Any) -> None:
    pair, saved = load(save_model("target")), TransformersModel(tiny_model("llama"))
    ids = list(range(3, 30))
    expected = saved.forward(ids, 27)
    torch.testing.assert_close(pair.target.open().extend(ids, 27), expected, atol=1e-4, rtol=1e-4)


def test_layers_that_do_not_give_the_logits_of_the_model_are_not_used(
    save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed = LeanModel.embed
    monkeypatch.setattr(LeanModel, "embed", lambda self, ids: embed(self, ids) * 1.1)
    pair = load(save_model("target"))
    assert isinstance(pair.target, TransformersModel)
    assert any("runs on plain layers" in note for note in pair.info.notes)
    ids = list(range(3, 30))
    expected = TransformersModel(tiny_model("llama")).forward(ids, 27)
    torch.testing.assert_close(pair.target.open().extend(ids, 27), expected, atol=1e-4, rtol=1e-4)


def products(length: int) -> set[int]:
    """Tokens that are multiplied at once in a pass of some length; each number has machine code of its own."""
    if length > SHORT:
        return {0}  # rows are expanded first
    rounds = -(-length // MOST_TOKENS)
    return {length // rounds, -(-length // rounds)}


@pytest.mark.parametrize("tokens", range(MOST_TOKENS + 1))
def test_a_wrong_product_of_any_number_of_tokens_is_found_before_it_is_used(
    tokens: int, save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = LeanModel.run

    def wrong(self: LeanModel, ids: Any, *rest: Any) -> torch.Tensor:
        return right(self, ids, *rest) * (1.1 if tokens in products(len(ids)) else 1)

    monkeypatch.setattr(LeanModel, "run", wrong)
    pair = load(save_model("target"))
    assert isinstance(pair.target, TransformersModel)
    assert any(note.endswith("the fast ones do not give its logits on this machine.") for note in pair.info.notes)


def test_a_state_beside_the_cache_is_found_and_the_text_recomputed(
    save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model whose config speaks of attention alone, and which adds up what it has read."""
    module = transformers.models.gpt_neox.modeling_gpt_neox.GPTNeoXModel
    forward = module.forward

    def remembering(self: Any, input_ids: torch.Tensor, **given: Any) -> Any:
        found = forward(self, input_ids=input_ids, **given)
        cache = given.get("cache", given.get("past_key_values"))
        read = input_ids.float().sin().cumsum(1) + getattr(cache, "read", 0)
        if cache is not None:
            cache.read = read[:, -1:]
        found.last_hidden_state += read[..., None] * torch.arange(found.last_hidden_state.shape[-1]).sin()
        return found

    monkeypatch.setattr(module, "forward", remembering)
    folder = save_model("target", "gpt_neox")
    settings = Settings(strategies=("target", "speculative"), max_new_tokens=24, gamma=3, ignore_eos=True)

    def outcome() -> tuple[bool, list[LosslessStatus]]:
        engine = LocalEngine()
        choice = ModelChoice(target=str(folder), drafter=str(save_model("drafter", num_hidden_layers=1)), device="cpu")
        notes = engine.load(choice, lambda progress: None).notes
        events = list(engine.run("the cat", settings, lambda: False))
        told = any(f"{folder} keeps a state that cannot be rewound" in note for note in notes)
        return told, [event.lossless.status for event in events if isinstance(event, Checked)]

    assert outcome() == (True, [LosslessStatus.IDENTICAL, LosslessStatus.IDENTICAL])
    monkeypatch.setattr(TransformersModel, "_probe_rewind", lambda self, expected: True)
    assert outcome() == (False, [LosslessStatus.IDENTICAL, LosslessStatus.DIFFERENT]), "the fault is none"


def test_a_numba_that_does_not_work_leaves_plain_layers_and_says_so(
    save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit.why_not.cache_clear()
    monkeypatch.setitem(sys.modules, "specdec_tui.backends.lean.decoder_pass", None)  # importing it fails
    monkeypatch.delattr("specdec_tui.backends.lean.decoder_pass", raising=False)
    try:
        pair = load(save_model("target"))
    finally:
        fit.why_not.cache_clear()
    assert isinstance(pair.target, TransformersModel)
    note = next(note for note in pair.info.notes if "plain layers" in note)
    assert "runs on plain layers, which are slower: numba does not work (" in note


def test_a_pass_that_does_not_compile_leaves_plain_layers_and_says_so(
    save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: LeanModel, *arguments: Any) -> None:
        raise RuntimeError("no such instruction\nand a page of assembly")

    monkeypatch.setattr(LeanModel, "run", fails)
    pair = load(save_model("target"))
    assert isinstance(pair.target, TransformersModel)
    note = next(note for note in pair.info.notes if "plain layers" in note)
    assert note.endswith("the fast ones fail on this machine (RuntimeError: no such instruction).")
    assert pair.target.open().extend([1, 2, 3], 1).isfinite().all()


def test_the_number_of_threads_stays_what_the_user_asked_for(save_model: Any) -> None:
    code = (
        "import sys, torch\n"
        "from specdec_tui.backends.loading import load_pair\n"
        "from specdec_tui.settings import ModelChoice\n"
        "pair = load_pair(ModelChoice(target=sys.argv[1], drafter=sys.argv[1], device='cpu'), lambda step: None)\n"
        "print(torch.get_num_threads(), pair.target._threads, pair.drafters[0].model._threads)\n"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("NUMBA_NUM_THREADS", None)
    run = [sys.executable, "-c", code, str(save_model("target"))]
    assert subprocess.run(run, env=environment, capture_output=True, text=True, check=True).stdout == "1 1 1\n"


@pytest.mark.skipif("OMP_NUM_THREADS" not in os.environ, reason="as many threads as there are cores")
def test_these_tests_compute_with_the_threads_they_were_asked_for(save_model: Any) -> None:
    """Numba's first pass would else make torch's threads as many as there are cores: see `tests/conftest.py`."""
    pair = load(save_model("target"))
    assert isinstance(pair.target, LeanModel)
    asked = int(os.environ["OMP_NUM_THREADS"])
    assert torch.get_num_threads() == numba.config.NUMBA_NUM_THREADS == asked


@pytest.mark.large
def test_a_number_of_threads_that_another_package_decided_is_left_alone() -> None:
    code = (
        "import os, numba\n"
        "from numba.np.ufunc import parallel\n"
        "from specdec_tui.backends.lean import fit\n"
        "assert fit.why_not() == ''\n"
        "parallel._launch_threads()\n"
        "numba.config.reload_config()  # as whenever a variable has changed: it refuses another number of threads\n"
    )
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    environment.pop("NUMBA_NUM_THREADS", None)
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-500:]


def test_memory_is_that_of_the_weights_as_they_are_held(save_model: Any) -> None:
    full, half = load(save_model("full")), load(save_model("half"), dtype="bfloat16")
    assert half.info.target.memory_bytes < 0.6 * full.info.target.memory_bytes
    assert full.info.target.dtype == "float32" and half.info.target.dtype == "bfloat16"


def test_several_drafters_are_loaded_beside_one_target_each_with_its_own_ids(
    save_model: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    load_weights = loading.load_weights

    def counted(model: Any, *arguments: Any) -> Any:
        read.append(model.spec.name)
        return load_weights(model, *arguments)

    monkeypatch.setattr(loading, "load_weights", counted)
    target, small = str(save_model("target")), str(save_model("small", num_hidden_layers=1))
    padded = str(save_model("padded", vocab_size=384, max_position_embeddings=64, num_hidden_layers=1))
    engine = LocalEngine()
    info = engine.load(ModelChoice(target=target, drafter=(small, padded, target), device="cpu"), lambda progress: None)
    assert read == [target, small, padded, target]  # once as the target, once as a drafter of itself
    assert [drafter.name for drafter in info.drafters] == read[1:] and info.drafter == info.drafters[0]
    assert any(note.startswith(f"{padded}: Vocabularies padded") for note in info.notes)
    settings = Settings(strategies=("target", "speculative"), max_new_tokens=12, ignore_eos=True)
    events = list(engine.run("hello", settings, lambda: False))
    verdicts = {event.strategy: event.lossless.status for event in events if isinstance(event, Checked)}
    assert verdicts == dict.fromkeys(
        ("target", "speculative", "speculative-2", "speculative-3"), LosslessStatus.IDENTICAL
    )


def test_one_drafter_that_cannot_be_loaded_refuses_the_load_by_its_name(save_model: Any, no_weights: None) -> None:
    target, small = str(save_model("target")), str(save_model("small"))
    with pytest.raises(LoadError, match="/no/such: there is no such folder"):
        load_pair(ModelChoice(target=target, drafter=(small, "/no/such"), device="cpu"), lambda progress: None)


def test_memory_is_asked_for_all_of_them_at_once(
    save_model: Any, no_weights: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [str(save_model(name)) for name in ("target", "one", "two")]
    config = transformers.AutoConfig.from_pretrained(names[0])
    each = memory.estimate("m", config, torch.float32, "none").total_bytes
    choice = ModelChoice(target=names[0], drafter=tuple(names[1:]), device="cpu", dtype="float32")
    monkeypatch.setattr(memory, "available_bytes", lambda device: 3 * each - 1)
    with pytest.raises(LoadError, match=f"Not enough memory: {names[0]} .* {names[1]} .* {names[2]} .* needed"):
        load_pair(choice, lambda progress: None)
    monkeypatch.setattr(memory, "available_bytes", lambda device: 3 * each)
    with pytest.raises(LoadError, match="weights were loaded"):
        load_pair(choice, lambda progress: None)
