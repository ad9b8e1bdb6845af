"""Models whose files are cut off, split, pointers or no files at all: one line with the cause and the cure."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tiny_gguf import write_tiny_gguf

from specdec_tui import cli
from specdec_tui.backends import loading
from specdec_tui.backends.errors import first_line
from specdec_tui.backends.loading import load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.settings import ModelChoice

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 5368709120\n"


@pytest.fixture(autouse=True)
def _no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is refused here must be refused before any weights are read."""

    def fail(*arguments: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr(loading, "load_weights", fail)


def refusal(target: Path) -> str:
    with pytest.raises(LoadError) as caught:
        load_pair(ModelChoice(target=str(target), device="cpu"), lambda progress: None)
    text = str(caught.value)
    assert "\n" not in text and str(target) in text
    return text


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"])
def test_a_git_lfs_pointer_is_named_with_its_cure(save_model: Any, name: str) -> None:
    folder = save_model("target")
    (folder / name).write_text(POINTER)
    text = refusal(folder)
    assert f"{name} is a Git LFS pointer" in text and "git lfs pull" in text


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "config.json", "tokenizer_config.json"])
@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
def test_a_file_that_was_cut_off_is_named_with_its_cure(save_model: Any, name: str, share: float) -> None:
    folder = save_model("target")
    file = folder / name
    file.write_bytes(file.read_bytes()[: int(share * file.stat().st_size)])
    text = refusal(folder)
    assert f"{name} is cut off" in text or f"{name} is no whole JSON" in text
    assert "download it again" in text


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.5, 0.999])
def test_a_gguf_file_that_was_cut_off_is_named_with_its_cure(tiny_gguf: Path, share: float) -> None:
    tiny_gguf.write_bytes(tiny_gguf.read_bytes()[: int(share * tiny_gguf.stat().st_size)])
    assert "download it again" in refusal(tiny_gguf)


@pytest.mark.parametrize("key", ["general.alignment", "split.count"])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_of_a_gguf_header_that_is_none_is_named(tmp_path: Path, tokens: Path, key: str, value: float) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tokens, numbers={key: value})
    assert f"{key} in its header is {value}, where a whole number is needed" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("base", [float("nan"), float("inf"), 0.0, -1.0])
def test_a_gguf_file_whose_rotations_have_no_base_is_refused_with_the_field(
    tmp_path: Path, tokens: Path, base: float
) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tokens, base=base)
    assert "rope_theta in its config is " in refusal(tmp_path / "m.gguf")


def test_weights_of_a_gguf_file_that_are_whole_numbers_are_named(tmp_path: Path, tokens: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tokens, integers=True)
    assert "m.gguf holds blk.0.counts.weight as I8, which is read as the weights of no" in refusal(tmp_path / "m.gguf")


def test_a_quantization_config_that_asks_for_nothing_is_named(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"quantization_config": {}}))
    assert "quantization_config in its config is {}: its quant_method is needed" in refusal(folder)


def test_a_git_lfs_pointer_in_place_of_a_gguf_file_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_text(POINTER)
    assert "is a Git LFS pointer" in refusal(tmp_path / "model.gguf")


def test_a_part_of_a_split_gguf_file_whose_header_says_otherwise_is_named(tiny_gguf: Path) -> None:
    part = tiny_gguf.rename(tiny_gguf.with_name("model-00002-of-00003.gguf"))
    assert "of which model-00001-of-00003.gguf is not there" in refusal(part)


def test_a_gguf_file_that_names_ten_million_layers_is_refused(tiny_gguf: Path) -> None:
    content = tiny_gguf.read_bytes()
    key = b"llama.block_count" + (4).to_bytes(4, "little")
    place = content.index(key) + len(key)
    tiny_gguf.write_bytes(content[:place] + (10_000_000).to_bytes(4, "little") + content[place + 4 :])
    assert refusal(tiny_gguf).startswith("Not enough memory: ")


def test_a_header_that_promises_more_than_the_file_has_ends(tmp_path: Path) -> None:
    count = (2**60).to_bytes(8, "little")
    (tmp_path / "m.gguf").write_bytes(b"GGUF" + (3).to_bytes(4, "little") + count * 2 + b"\0" * 64)
    assert "m.gguf is " in refusal(tmp_path / "m.gguf")


HARMS: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a folder": os.mkdir,
    "a link to a file that is not there": lambda path: path.symlink_to("nowhere"),
    "levels of symbolic links": lambda path: path.symlink_to(path),
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "MB": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_WRONLY), 10**9),
    "nested too deeply": lambda path: path.write_text("[" * 200_000),
    "no UTF-8": lambda path: path.write_bytes(b'{"a": "\xff\xfe"}'),
    "JSON object": lambda path: path.write_text("[]"),
    "digits": lambda path: path.write_text('{"vocab_size": ' + "9" * 5000 + "}"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_a_config_that_is_none_is_refused_in_words_and_at_once(save_model: Any, harm: str) -> None:
    folder = save_model("target")
    (folder / "config.json").unlink()
    HARMS[harm](folder / "config.json")
    assert harm in refusal(folder)


@pytest.mark.parametrize("name", ["generation_config.json", "tokenizer.json", "chat_template.jinja"])
def test_a_pipe_in_place_of_any_small_file_holds_nobody(save_model: Any, name: str) -> None:
    folder = save_model("target")
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)
    assert f"{name} is a pipe" in refusal(folder)


@pytest.mark.parametrize(
    ("index", "said"),
    [
        ("[]", "no JSON object"),
        ('{"weight_map": ["a"]}', "names no files"),
        ('{"weight_map": {"a": 5}}', "names no files"),
        ('{"weight_map": {"a": "../../secret.safetensors"}}', "no file beside it"),
        ("{", "no whole JSON"),
    ],
)
def test_a_damaged_index_of_shards_is_named(save_model: Any, index: str, said: str) -> None:
    folder = save_model("target")
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(index)
    assert said in refusal(folder)


def test_a_shard_that_was_cut_off_is_found_before_the_first_is_loaded(save_model: Any) -> None:
    folder = save_model("target")
    whole = folder / "model.safetensors"
    content = whole.read_bytes()
    names = list(load_file(whole))
    (folder / "b.safetensors").write_bytes(content[:-1])
    shutil.move(whole, folder / "a.safetensors")
    shards = {name: "ab"[index % 2] + ".safetensors" for index, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": shards}))
    text = refusal(folder)
    assert f"b.safetensors is cut off ({len(content) - 1:,} of {len(content):,} bytes are there)" in text


SIZES = ["num_hidden_layers", "hidden_size", "vocab_size"]


@pytest.mark.parametrize("field", SIZES)
@pytest.mark.parametrize("value", [-1, 0, 1.5, "many", True, [2], {"a": 1}])
def test_a_size_that_is_none_names_the_model_and_the_field(save_model: Any, field: str, value: object) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    text = refusal(folder)
    assert field in text and "a whole number from 1 up is needed" in text


@pytest.mark.parametrize("field", [*SIZES, "intermediate_size"])
@pytest.mark.parametrize("value", [10**9, 10**18, 10**30])
def test_an_absurd_size_is_not_enough_memory(save_model: Any, field: str, value: int) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    assert refusal(folder).startswith("Not enough memory: ")


def test_ten_million_layers_are_refused_before_one_is_built(save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_hidden_layers": 10_000_000}))

    def fail(*arguments: object, **options: object) -> None:
        raise AssertionError("it was built")

    monkeypatch.setattr("transformers.AutoModelForCausalLM.from_config", fail)
    text = refusal(folder)
    assert text.startswith("Not enough memory: ") and " needs about 370.5 GB" in text and "is free" in text


def test_more_layers_than_there_are_tensors_do_not_belong_together(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_hidden_layers": 300}))
    assert "names 300 layers, but its weight files hold 30 tensors" in refusal(folder)


def test_sizes_that_the_weight_files_do_not_have_are_found_before_memory_is_taken(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"intermediate_size": 100_000}))
    assert "weight files hold 43,744: they do not belong together" in refusal(folder)


@pytest.mark.parametrize("field", ["model_type", "dtype"])
def test_a_name_that_is_none_names_the_model_and_the_field(save_model: Any, field: str) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: [1]}))
    assert f"{field} in its config is [1]: a name is needed" in refusal(folder)


def test_a_dtype_that_no_number_has_names_the_model_and_the_field(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"dtype": "evil\u202e"}))
    text = refusal(folder)
    assert "dtype in its config is 'evil" in text and "\u202e" not in text


def test_a_model_that_no_library_can_run_is_named(save_model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise KeyError("sliding_window")

    monkeypatch.setattr(loading, "load_weights", fail)
    text = refusal(save_model("target"))
    assert (
        "it does not run: transformers cannot make sense of it: 'sliding_window' is missing" in text
        and "KeyError" not in text
    )


def test_more_layers_than_can_be_built_while_a_person_waits_are_refused(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"num_hidden_layers": 65536}))
    assert refusal(folder).endswith("its config names 65,536 layers: at most 10,000 are built here.")


@pytest.mark.parametrize("field", ["text_config", "quantization_config"])
def test_a_part_that_is_none_names_the_model_and_the_field(save_model: Any, field: str) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: 5}))
    assert f"{field} in its config is 5: a group of fields is needed" in refusal(folder)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("tokenizer_config.json", "[]", "tokenizer_config.json is no JSON object"),
        ("tokenizer_config.json", '{"tokenizer_class": 5}', "tokenizer_class in its tokenizer must be a name, not 5"),
        ("tokenizer_config.json", '{"chat_template": [5]}', "chat_template in its tokenizer must be text, or a list"),
        ("tokenizer_config.json", '{"chat_template": [{"name": "a"}]}', "chat_template in its tokenizer must be text"),
        ("tokenizer_config.json", '{"auto_map": {"AutoTokenizer": ["a.B", null]}}', "needs program code"),
        ("tokenizer_config.json", '{"bos_token": 5}', "bos_token in its tokenizer must be a token's text, not 5"),
        ("tokenizer_config.json", '{"pad_token": {"content": 5}}', "pad_token in its tokenizer must be a token's text"),
        ("tokenizer.json", '{"added_tokens": [], "model": {"vocab": 5}}', "cannot be read: its files are damaged, or"),
        ("tokenizer.json", "{}", "its files are damaged, or not those of one tokenizer: 'added_tokens' is missing"),
    ],
)
def test_a_tokenizer_that_is_none_is_told_in_words(save_model: Any, name: str, content: str, said: str) -> None:
    folder = save_model("target")
    (folder / name).write_text(content)
    assert said in refusal(folder)


def test_a_folder_in_place_of_a_tokenizer_is_none(save_model: Any) -> None:
    folder = save_model("target")
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").mkdir()
    assert "tokenizer.json is a folder, not a file" in refusal(folder)


IDS = "tokenizer.ggml.eos_token_id", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.padding_token_id"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        *((name, [2, 3], "is a list, where a whole number is needed") for name in IDS),
        *((name, 1_000_000, "is 1,000,000, where ids end at ") for name in IDS),
        (IDS[0], "two", "is a text, where a whole number is needed"),
        (IDS[0], 2.5, "is a fraction, where a whole number is needed"),
        (IDS[0], True, "is a switch, where a whole number is needed"),
        ("tokenizer.ggml.tokens", "x", "is a text, where a list is needed"),
        ("tokenizer.ggml.merges", "x", "is a text, where a list is needed"),
        ("tokenizer.ggml.model", ["gpt2"], "is a list, where a text is needed"),
        ("tokenizer.chat_template", ["x"], "is a list, where a text is needed"),
        ("general.architecture", 5, "is a whole number, where a text is needed"),
    ],
)
def test_a_field_of_a_gguf_header_of_another_kind_is_named(
    tmp_path: Path, tokens: Path, field: str, value: Any, said: str
) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tokens, fields={field: value})
    assert f"m.gguf is damaged: {field} in its header {said}" in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize(
    ("tensor", "shape", "said"),
    [
        ("blk.0.attn_q.weight", (2, 32, 32), "blk.0.attn_q.weight in it has 3 dimensions, where 2 are needed"),
        ("blk.0.attn_k.weight", (2, 16, 32), "blk.0.attn_k.weight in it has 3 dimensions, where 2 are needed"),
        ("blk.0.attn_k.weight", (32,), "blk.0.attn_k.weight in it has 1 dimensions, where 2 are needed"),
    ],
)
def test_a_tensor_of_a_gguf_file_of_other_dimensions_is_named(
    tmp_path: Path, tokens: Path, tensor: str, shape: tuple[int, ...], said: str
) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", tokens, more={tensor: shape})
    assert said in refusal(tmp_path / "m.gguf")


@pytest.mark.parametrize("name", ["chat_template.jinja", "generation_config.json"])
def test_a_folder_in_place_of_a_file_is_not_passed_over(save_model: Any, name: str) -> None:
    folder = save_model("target")
    (folder / name).unlink(missing_ok=True)
    (folder / name).mkdir()
    assert f"{name} is a folder, not a file" in refusal(folder)


def test_what_is_no_file_in_the_place_of_a_gguf_file_is_told(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.gguf")
    (tmp_path / "device.gguf").symlink_to("/dev/zero")
    assert refusal(tmp_path / "pipe.gguf") == f"{tmp_path / 'pipe.gguf'} is a pipe, not a file."
    assert refusal(tmp_path / "device.gguf") == f"{tmp_path / 'device.gguf'} is a device, not a file."


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_model_in_a_folder_that_is_closed_is_told_so(save_model: Any) -> None:
    folder = save_model("target")
    folder.chmod(0)
    try:
        assert refusal(folder) == f"{folder} cannot be read (Permission denied)."
        assert refusal(folder / "inside") == f"{folder / 'inside'} cannot be read (Permission denied)."
        assert refusal(folder / "a.gguf") == f"{folder / 'a.gguf'} cannot be read (Permission denied)."
    finally:
        folder.chmod(0o700)


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("hidden_act", "swish\u202e", "hidden_act is 'swish\\u202e', which is not known"),
        ("rope_parameters", {"rope_type": "other"}, "rope_parameters.rope_type is 'other', which is not known"),
        ("pad_token_id", 10**6, "pad_token_id is 1000000, which is no id of its vocabulary"),
    ],
)
def test_a_value_that_the_library_does_not_know_names_its_field(
    save_model: Any, field: str, value: object, said: str
) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {field: value}))
    assert said in refusal(folder)


def test_what_a_key_error_says_in_a_sentence_is_told_as_one(save_model: Any) -> None:
    folder = save_model("target")
    file = folder / "config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"rope_parameters": {"rope_type": "longrope"}}))
    text = refusal(folder)
    assert "Missing required keys" in text and '"' not in text.split("read: ")[1]


def test_bytes_behind_what_a_weight_file_tells_of_are_damage(save_model: Any) -> None:
    folder = save_model("target")
    with (folder / "model.safetensors").open("ab") as file:
        file.write(b"x" * 7)
    text = refusal(folder)
    assert "model.safetensors is damaged (it has " in text and "download it again" in text


def test_a_tokenizer_that_its_library_panics_over_is_one_line(
    save_model: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    folder = save_model("target")
    table = json.loads((folder / "tokenizer.json").read_text())
    table["model"]["continuing_subword_prefix"] = "x" * 50  # longer than the pieces that are merged
    (folder / "tokenizer.json").write_text(json.dumps(table))
    assert "target: its tokenizer cannot be read: " in refusal(folder)
    monkeypatch.setenv("SPECDEC_TUI_CONFIG", "/nowhere/config.toml")
    capfd.readouterr()
    assert cli.main(["bench", "--target", str(folder), "--device", "cpu", "--prompt", "the cat"]) == 2
    shown = capfd.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1 and "panicked" not in shown.err, shown


def test_an_error_of_a_file_is_its_name_and_the_reason_without_a_number() -> None:
    assert first_line(PermissionError(13, "Permission denied", "/a/file")) == "/a/file: Permission denied"
    assert first_line(OSError(28, "No space left on device")) == "No space left on device"
