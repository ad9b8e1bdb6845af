"""Encoder-decoder models from their files: loaded, said and refused by name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tiny_encoder_decoders import ENCODER_DECODERS, MORE, tiny_encoder_decoder
from tiny_transformers import tiny_tokenizer
from tokenizers import processors

from specdec_tui.backends import loading, memory
from specdec_tui.backends.causal_probe import refuse_what_looks_ahead
from specdec_tui.backends.encoder_decoder import EncoderDecoderModel
from specdec_tui.backends.hub_cache import cached_models
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError, PromptError
from specdec_tui.backends.presets import PRESETS, resolve
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.records import Checked, LosslessStatus, Notice, RunEnded, Step
from specdec_tui.loaded import Loaded
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

Save = Callable[..., Path]


def reading_tokenizer(chat_template: str | None = None) -> transformers.PreTrainedTokenizerFast:
    """As T5's: it ends what is read with </s> and begins it with nothing."""
    tokenizer = tiny_tokenizer(chat_template=chat_template)
    end = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 1)])
    tokenizer._tokenizer.post_processor = end
    return tokenizer


@pytest.fixture
def save(tmp_path: Path) -> Save:
    def saved(name: str, kind: str = "t5", noise: float = 0.0, chat: str | None = None, **overrides: Any) -> Path:
        tiny_encoder_decoder(kind, noise, **overrides).save_pretrained(tmp_path / name)
        reading_tokenizer(chat).save_pretrained(tmp_path / name)
        return tmp_path / name

    return saved


def load(target: Path, drafter: Path | None = None, **choice: str) -> Pair:
    named = ModelChoice(target=str(target), drafter=str(drafter or ""), **({"device": "cpu"} | choice))
    return load_pair(named, lambda progress: None)


def change(folder: Path, name: str, **values: Any) -> Path:
    file = folder / name
    file.write_text(json.dumps(json.loads(file.read_text()) | values))
    return folder


@pytest.mark.parametrize("kind", ENCODER_DECODERS)
def test_every_family_loads_and_every_strategy_is_identical_to_the_target(save: Save, kind: str) -> None:
    engine, names = LocalEngine(), ("target", "drafter", "speculative", "ngram", "lookup")
    choice = ModelChoice(target=str(save("one", kind)), drafter=str(save("two", kind, 0.1)), device="cpu")
    info = engine.load(choice, lambda progress: None)
    assert not info.chat_template and any(
        "its encoder reads the prompt as it is, no chat" in note for note in info.notes
    )
    events = list(engine.run("the cat sat", Settings(strategies=names, max_new_tokens=12), lambda: False))
    assert {e.strategy: e.lossless.status for e in events if isinstance(e, Checked)} == dict.fromkeys(
        ("target", "speculative", "ngram", "lookup"), LosslessStatus.IDENTICAL
    ) | {"drafter": LosslessStatus.NOT_APPLICABLE}
    assert not [e for e in events if isinstance(e, Step) and isinstance(e.record, Notice) and "</s>" in str(e.record)]


def test_a_tokenizer_of_bytes_has_no_file_and_needs_none(save: Save) -> None:
    folder = save("bytes", vocab_size=384)
    for file in folder.glob("*token*"):
        file.unlink()
    transformers.ByT5Tokenizer().save_pretrained(folder)
    engine = LocalEngine()
    engine.load(ModelChoice(target=str(folder), drafter=("none",), device="cpu"), lambda progress: None)
    settings = Settings(strategies=("target", "ngram"), max_new_tokens=12)
    checks = [e for e in engine.run("the café", settings, lambda: False) if isinstance(e, Checked)]
    assert [one.lossless.status for one in checks] == [LosslessStatus.IDENTICAL] * 2
    change(folder, "tokenizer_config.json", tokenizer_class="T5Tokenizer")
    with pytest.raises(LoadError, match="there is no tokenizer"):
        load(folder)


def test_a_chat_template_is_not_applied_and_turns_do_not_add_up(save: Save) -> None:
    pair = load(save("one", chat="{% for m in messages %}<s>{{ m['content'] }}{% endfor %}"))
    assert not pair.tokenizer.has_chat_template
    given = pair.tokenizer.encode("the cat", [("the dog", "sat")], chat=True)
    assert given.text == "the cat</s>" and given.notices == ()


def test_memory_counts_the_decoders_layers_and_the_width_of_its_heads() -> None:
    config = transformers.T5Config(num_layers=3, num_decoder_layers=2, num_heads=4, d_kv=8, d_model=64, vocab_size=99)
    need = memory.estimate("m", config, torch.float32, "none")
    assert need.cache_bytes_per_token == 2 * 2 * 4 * 8 * 4 and need.context_length is None
    bart = transformers.BartConfig(d_model=32, encoder_layers=1, decoder_layers=3, vocab_size=99)
    assert memory.estimate("m", bart, torch.float32, "none").cache_bytes_per_token == 2 * 3 * 32 * 4


@pytest.mark.parametrize("encoder_first", [True, False])
def test_a_pair_with_one_encoder_is_refused_by_name_before_weights(
    save: Save, save_model: Any, encoder_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "load_weights", lambda *_: pytest.fail("weights were loaded"))
    one, other = save("one"), save_model("other")
    first, second = (one, other) if encoder_first else (other, one)
    with pytest.raises(LoadError) as refused:
        load(first, second)
    assert str(refused.value) == (
        f"{first} and {second} do not go together: {one} is an encoder-decoder model (t5), "
        f"{other} is decoder-only (llama)."
    )


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (None, "its files name no token that its decoder begins with"),
        (320, "decoder_start_token_id is 320: one of its 320 ids is needed"),
        ([1, 2], r"decoder_start_token_id is \[1, 2\]: one of its 320 ids is needed"),
    ],
)
def test_a_decoder_that_has_nothing_to_begin_with_is_refused(save: Save, start: Any, words: str) -> None:
    folder = change(save("one"), "generation_config.json", decoder_start_token_id=start, bos_token_id=None)
    change(folder, "config.json", decoder_start_token_id=start, bos_token_id=None)
    with pytest.raises(LoadError, match=words):
        load(folder)


def test_what_a_checkpoint_forces_on_generate_is_told_as_not_applied(save: Save) -> None:
    info = load(change(save("one", "bart"), "generation_config.json", forced_bos_token_id=0, num_beams=4)).info
    assert info.target.generation_config_not_applied == {"num_beams": 4}
    assert info.target.generation_config_applied["forced_bos_token_id"] == 0


def test_a_model_that_reads_one_vocabulary_and_writes_another_is_refused(save: Save) -> None:
    folder = change(save("one", "marian"), "config.json", decoder_vocab_size=400)
    with pytest.raises(LoadError, match="reads one vocabulary and writes another"):
        load(folder)


def test_a_prompt_that_the_encoder_has_no_places_for_is_refused_before_the_run(save: Save) -> None:
    engine = LocalEngine()
    choice = ModelChoice(target=str(save("one", "bart", max_position_embeddings=16)), device="cpu")
    engine.load(choice, lambda progress: None)
    settings = Settings(strategies=("target",), max_new_tokens=99)
    engine.check_prompt(["the cat"], settings)
    with pytest.raises(PromptError, match="tokens leave no room in the target's context of 16 tokens"):
        engine.check_prompt(["a b c d e f g h i j k l m n o p"], settings)
    events = list(engine.run("the cat", settings, lambda: False))
    assert "the new tokens fill the model's context of 16 tokens" in [
        e.record.message for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)
    ]


def test_a_decoder_that_looks_ahead_is_refused_and_its_encoder_may(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_encoder_decoder("t5")
    refuse_what_looks_ahead("m", model)
    monkeypatch.setattr("transformers.models.t5.modeling_t5.create_causal_mask", lambda **_: None)
    for module in model.modules():
        if hasattr(module, "is_causal"):
            module.is_causal = False
    with pytest.raises(LoadError, match=r"m \(t5\) looks ahead"):
        refuse_what_looks_ahead("m", model)


@pytest.mark.parametrize(
    ("kind", "values", "words"),
    [
        ("t5", {"num_decoder_layers": 10**9}, "Not enough memory"),
        ("bart", {"decoder_layers": 10**9}, "Not enough memory"),
        ("t5", {"d_kv": "wide"}, "d_kv in its config is 'wide': a whole number from 0 up is needed"),
        ("t5", {"relative_attention_num_buckets": 0}, "relative_attention_num_buckets in its config is 0"),
        ("bart", {"decoder_attention_heads": 5}, "decoder_attention_heads"),
    ],
)
def test_sizes_that_make_no_model_are_named(save: Save, kind: str, values: dict[str, Any], words: str) -> None:
    folder = save("one", kind)
    with pytest.raises(LoadError, match=words):
        load(change(folder, "config.json", **values))


@pytest.mark.parametrize("kind", ["t5", "bart"])
def test_where_rounds_are_captured_it_goes_step_by_step_and_says_so(save: Save, kind: str) -> None:
    engine = LocalEngine(Loaded(lambda pair: Programs()))
    choice = ModelChoice(target=str(save("one", kind)), drafter=str(save("two", kind, 0.1)), device="cpu")
    engine.load(choice, lambda progress: None)
    names = ("target", "drafter", "speculative", "ngram", "lookup")
    settings = Settings(strategies=names, max_new_tokens=6)
    engine.prepare(settings, lambda: False, lambda progress: None)
    events = list(engine.run("the cat", settings, lambda: False))
    told = Notice("step by step, not captured: an encoder-decoder model is not captured")
    assert [e.strategy for e in events if isinstance(e, Step) and e.record == told] == list(names)


def test_quantized_models_run_and_are_checked(save: Save) -> None:
    pytest.importorskip("bitsandbytes")
    pair = load(save("one", d_ff=256), quantize="int8")
    assert isinstance(pair.target, EncoderDecoderModel)
    assert pair.target.dtype is torch.int8 and pair.target.rewindable
    assert pair.target.rounding([3, 4, 5], [6, 7, 8]) is not None


def test_a_marian_model_with_sentencepiece_files_is_read(save: Save, tmp_path: Path) -> None:
    import sentencepiece

    words = "the cat sat on the mat and the dog sat on the cat while a bird sang in a tree near the river"
    (tmp_path / "text").write_text("\n".join([words] * 20))
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "text"), model_prefix=str(tmp_path / "piece"), vocab_size=25, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "piece.model"))
    names = [pieces.id_to_piece(i) for i in range(25)]
    folder = save("one", "marian", vocab_size=26, pad_token_id=25, decoder_start_token_id=25, eos_token_id=2)
    for file in folder.glob("*token*"):
        file.unlink()
    for side in ("source", "target"):
        (folder / f"{side}.spm").write_bytes((tmp_path / "piece.model").read_bytes())
    (folder / "vocab.json").write_text(json.dumps({name: i for i, name in enumerate(names)} | {"<pad>": 25}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "MarianTokenizer"}))
    pair = load(folder)
    given = pair.tokenizer.encode("the cat sat")
    assert given.ids[-1] == 2 and pair.tokenizer.decode(given.ids, skip_special_tokens=True) == "the cat sat"


def test_cached_encoder_decoder_models_are_listed_and_those_that_read_no_text_are_not(
    save: Save, tmp_path: Path
) -> None:
    hub = tmp_path / "hub"
    configs = {
        "t5": {},
        "whisper": {"model_type": "whisper", "num_mel_bins": 80},
        "old": {"architectures": ["T5WithLMHeadModel"]},
    }
    for name, values in configs.items():
        repository = hub / f"models--someone--{name}"
        (repository / "refs").mkdir(parents=True)
        (repository / "refs" / "main").write_text("abc")
        (repository / "snapshots").mkdir()
        change(save(f"saved-{name}"), "config.json", **values).rename(repository / "snapshots" / "abc")
    assert {model.name for model in cached_models(hub)} == {"someone/t5", "someone/old"}


def test_the_preset_is_a_pair_of_flan_t5() -> None:
    preset = PRESETS["flan-t5"]
    assert (preset.target, preset.drafter) == ("google/flan-t5-xl", "google/flan-t5-small")
    spec = resolve(ModelChoice(preset="flan-t5"))
    assert [drafter.source for drafter in spec.drafters] == [preset.drafter]


@pytest.mark.parametrize("kind", [*ENCODER_DECODERS, *MORE])
def test_what_encoder_and_decoder_share_is_counted_once(kind: str) -> None:
    model = tiny_encoder_decoder(kind)
    need = memory.estimate(kind, model.config, torch.float32, "none")
    assert need.parameters == sum(one.numel() for one in {id(one): one for one in model.parameters()}.values())
