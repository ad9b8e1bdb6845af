"""What the tool refuses: status 2, one line that says why, and nothing lost or begun."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from distil import openings
from distil.files import Refused, load_tensors
from distil.llama import Shape, load_llama
from distil.shards import load_rows, shard_files
from distil.target import fingerprint, name_and_licence
from distil.train import Trainer, TrainingSettings, load_student
from distil_drafter import main
from safetensors.torch import load_file, save_file
from toy_settings import TOY_TRAINING

CPU = torch.device("cpu")
WRITING = ["--batch", "8", "--length", "64", "--k", "16", "--tokens", "1000"]
TRAINED = [*TOY_TRAINING, "--tokens", str(6 * 4 * 64)]
JUDGED = ["--new-tokens", "8", "--samples", "2"]
OF_CARD = ["--target-name", "maker/toy", "--target-licence", "MIT"]

Refuses = Callable[..., str]


@pytest.fixture
def refuses(capsys: pytest.CaptureFixture[str]) -> Refuses:
    """Runs a command that must end with status 2 and one line, which is returned."""

    def run(*words: object) -> str:
        capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main([str(word) for word in words])
        told = capsys.readouterr().err
        assert end.value.code == 2 and told.count("\n") == 1 and told.startswith("distil_drafter.py"), told
        return told

    return run


@pytest.fixture
def run_copy(finished_run: Path, tmp_path: Path) -> Path:
    """A finished run to be damaged."""
    return Path(shutil.copytree(finished_run, tmp_path / "run"))


@pytest.fixture
def target_copy(target_folder: Path, tmp_path: Path) -> Path:
    """A target to be changed."""
    return Path(shutil.copytree(target_folder, tmp_path / "target"))


def change_config(folder: Path, **values: Any) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    (folder / "config.json").write_text(json.dumps(config | values), encoding="utf-8")


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


@pytest.mark.parametrize(
    "words",
    [
        ["generate", "--device", "nonsense"],
        ["generate", "--device", "cuda:99"],
        ["generate", "--device", "meta"],
        *(["generate", "--tokens", bad] for bad in ("nan", "inf", "-5", "0", "0.5", "many")),
        *(["generate", "--minutes", bad] for bad in ("nan", "inf", "-5", "0")),
        *(["generate", each, "0"] for each in ("--batch", "--length", "--k", "--answer-limit")),
        *(["train", each, "0"] for each in ("--heads", "--kv-heads", "--layers", "--warmup", "--batch", "--peak")),
        *(["train", each, "-4"] for each in ("--width", "--mlp", "--held-out", "--kl", "--decay", "--seed")),
        *(["train", "--peak", bad] for bad in ("nan", "inf")),
        *(["train", "--name", bad] for bad in ("../../esc", "..", "", "a/b", "/tmp/x", "a\nb")),
        ["evaluate", "--new-tokens", "0"],
        ["evaluate", "--samples", "0"],
        ["export", "--target-licence", "MIT\nbase_model: other"],
        ["all", "--generate-minutes", "0"],
        ["all", "--generation-batch", "0"],
        ["all", "--train-tokens", "nan"],
        ["frobnicate"],
    ],
    ids=" ".join,
)
def test_a_nonsensical_argument_is_named(words: list[str], refuses: Refuses) -> None:
    told = refuses(*words, "--run", "run", "--target", "target")
    assert words[min(1, len(words) - 1)] in told


def test_what_several_arguments_must_agree_on_is_checked_first(
    target_folder: Path, refuses: Refuses, tmp_path: Path
) -> None:
    common = ["--run", tmp_path / "run", "--target", target_folder, "--device", "cpu"]
    assert "--minutes or --tokens" in refuses("generate", *common)
    assert "do not fit a width" in refuses("train", *common, "--heads", 3, "--tokens", 10)
    assert "do not fit a width" in refuses("all", *common, *OF_CARD, "--heads", 3)
    assert "above 0" in refuses("train", *common, "--kl", 0, "--tv", 0, "--top", 0, "--tokens", 10)
    assert "--k 60000" in refuses("generate", *common, *WRITING, "--k", 60000)
    assert "--length 513" in refuses("generate", *common, *WRITING, "--length", 513)
    assert "generate first" in refuses("train", *common, "--tokens", 10)
    assert "not finished" in refuses("evaluate", *common)
    assert "--target-licence" in refuses("all", *common, "--target-name", "maker/toy")
    assert "--json" in refuses("evaluate", *common, "--json", tmp_path / "missing" / "x.json")
    assert not (tmp_path / "run").exists()
    (tmp_path / "run").write_text("a file", encoding="utf-8")
    assert "not a folder" in refuses("generate", *common, *WRITING)


@pytest.mark.parametrize("text", [None, "", "root:x:0\n", "[1]\n", '{"category": "x"}\n', '{"prompt": 3}\n', b"\xff\n"])
def test_prompts_that_are_none_are_refused(
    text: str | bytes | None, target_folder: Path, refuses: Refuses, tmp_path: Path
) -> None:
    file = tmp_path / "prompts.jsonl"
    if text is not None:
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    common = ["--target", target_folder, "--device", "cpu", "--prompts", file]
    assert str(file) in refuses("generate", *common, *WRITING, "--run", tmp_path / "run")
    assert str(file) in refuses("evaluate", *common, "--drafter", target_folder)


@pytest.mark.parametrize(
    "change",
    [
        {"model_type": "mistral"},
        {"architectures": ["LlamaForSequenceClassification"]},
        {"hidden_act": "gelu"},
        {"attention_bias": True},
        {"mlp_bias": True},
        {"sliding_window": 128},
        {"rope_scaling": {"type": "linear", "factor": 2.0}},
        {"rope_parameters": {"rope_type": "llama3", "rope_theta": 1e5}},
        {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
        {"quantization_config": {"bits": 4}},
        {"num_key_value_heads": 4},
        {"hidden_size": None},
    ],
    ids=str,
)
def test_a_config_that_is_more_than_a_plain_llama_is_refused(target_folder: Path, change: dict[str, Any]) -> None:
    config = json.loads((target_folder / "config.json").read_text(encoding="utf-8"))
    assert Shape.of_config(config).width == 48
    with pytest.raises(Refused, match=r"only a plain Llama|do not fit|lacks a number"):
        Shape.of_config(config | change)


def test_every_tensor_must_be_there_fit_and_be_used(target_copy: Path) -> None:
    file = target_copy / "model.safetensors"
    state = load_file(file)
    name, norm = "model.layers.1.self_attn.q_proj", "model.layers.0.input_layernorm.weight"

    def loads(changed: dict[str, torch.Tensor]) -> None:
        save_file(changed, file)
        load_llama(target_copy, CPU, torch.float32)

    with pytest.raises(Refused, match=f"unknown {name}.bias"):
        loads(state | {f"{name}.bias": torch.zeros(48)})
    with pytest.raises(Refused, match=f"lack {name}.weight"):
        loads({key: value for key, value in state.items() if key != f"{name}.weight"})
    with pytest.raises(Refused, match=f"{norm} is"):
        loads(state | {norm: torch.zeros(47)})
    with pytest.raises(Refused, match=f"{norm} is"):
        loads(state | {norm: torch.zeros(48, dtype=torch.int8)})
    with pytest.raises(Refused, match=r"unknown lm_head.weight"):
        loads(state | {"lm_head.weight": torch.zeros(49152, 48)})
    loads(state | {"lm_head.weight": state["model.embed_tokens.weight"].clone()})
    loads(state | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(4)})
    save_file({norm: state[norm]}, target_copy / "again.safetensors")
    with pytest.raises(Refused, match="in two files"):
        loads(state)


def test_a_folder_without_a_whole_model_is_refused(target_copy: Path, refuses: Refuses, tmp_path: Path) -> None:
    def both(target: Path) -> str:
        words = ["--target", target, "--device", "cpu", "--drafter", target]
        judging = refuses("evaluate", *words, *JUDGED)
        assert refuses("generate", *words[:4], *WRITING, "--run", tmp_path / "run")
        assert not (tmp_path / "run").exists()
        return judging

    assert "no folder" in both(tmp_path / "missing")
    change_config(target_copy, vocab_size=70_000)
    assert "70,000" in refuses("generate", "--target", target_copy, *WRITING, "--run", tmp_path / "run")
    change_config(target_copy, vocab_size=49152, attention_bias=True)
    assert "attention_bias" in both(target_copy)
    change_config(target_copy, attention_bias=False)
    cut_short(target_copy / "model.safetensors")
    assert "model.safetensors is damaged" in both(target_copy)
    (target_copy / "model.safetensors").unlink()
    assert "no *.safetensors" in both(target_copy)
    (target_copy / "config.json").write_text("{", encoding="utf-8")
    assert "not JSON" in both(target_copy)
    (target_copy / "config.json").unlink()
    assert "no config.json" in both(target_copy)


def test_a_target_without_a_chat_template_or_with_another_vocabulary_is_refused(
    target_folder: Path, target_copy: Path, refuses: Refuses, tmp_path: Path
) -> None:
    words = ["generate", "--run", tmp_path / "run", "--target", target_copy, "--device", "cpu", *WRITING]
    (target_copy / "chat_template.jinja").unlink()
    assert "chat template" in refuses(*words)
    state = load_file(target_copy / "model.safetensors")
    name = "model.embed_tokens.weight"
    save_file(state | {name: state[name][:49000].clone()}, target_copy / "model.safetensors")
    change_config(target_copy, vocab_size=49000)
    shutil.copyfile(target_folder / "chat_template.jinja", target_copy / "chat_template.jinja")
    assert "49,152 tokens" in refuses(*words)
    pair = ["evaluate", "--target", target_folder, "--drafter", target_copy, "--device", "cpu"]
    assert "49,000 tokens" in refuses(*pair, *JUDGED)


def test_an_unusual_vocabulary_goes_through(target_copy: Path, suite_file: Path, tmp_path: Path) -> None:
    state = load_file(target_copy / "model.safetensors")
    name = "model.embed_tokens.weight"
    save_file(state | {name: torch.cat([state[name], state[name][:3]])}, target_copy / "model.safetensors")
    change_config(target_copy, vocab_size=49155)
    common = ["--run", str(tmp_path / "run"), "--target", str(target_copy), "--device", "cpu"]
    main(["generate", *common, "--prompts", str(suite_file), *WRITING])
    main(["train", *common, *TOY_TRAINING, "--tokens", "256"])
    assert load_student(tmp_path / "run", "drafter", target_copy).embedding.shape == (49155, 16)


@pytest.mark.large
def test_damaged_files_of_a_run_are_named(
    run_copy: Path, target_folder: Path, suite_file: Path, refuses: Refuses
) -> None:
    common = ["--run", run_copy, "--target", target_folder, "--device", "cpu"]
    generate = ["generate", *common, "--prompts", suite_file, *WRITING]
    train = ["train", *common, "--name", "toy", *TRAINED]
    judge = ["evaluate", *common, "--name", "toy", "--prompts", suite_file, *JUDGED]
    export = ["export", *common, "--name", "toy", *OF_CARD]
    models = run_copy / "models" / "toy"
    for file, commands in (
        (run_copy / "generation.json", [generate, export]),
        (run_copy / "generation-settings.json", [generate, train, judge, export]),
        (models / "settings.json", [train, judge, export]),
        (models / "training.json", [export]),
        (models / "evaluation.json", [judge, export]),
        (models / "checkpoint.pt", [judge, export]),
        (run_copy / "shards" / "00000.pt", [[*train[:-1], 256, "--name", "other"]]),
    ):
        whole = file.read_bytes()
        cut_short(file)
        for command in commands:
            told = refuses(*command)
            assert f"{file} is damaged" in told and ("delete it" in told or "start again" in told)
        file.write_bytes(whole)
    (models / "training.json").rename(run_copy / "kept")
    whole = (models / "checkpoint.pt").read_bytes()
    cut_short(models / "checkpoint.pt")
    assert "checkpoint.pt is damaged" in refuses(*train)
    (models / "checkpoint.pt").write_bytes(whole)
    (run_copy / "kept").rename(models / "training.json")
    for file, commands in (
        (run_copy / "generation.json", [export]),
        (run_copy / "generation-settings.json", [generate, train, judge, export]),
        (models / "settings.json", [train, judge, export]),
    ):
        whole = file.read_bytes()
        file.unlink()
        assert all(f"{file} is missing" in refuses(*command) for command in commands)
        file.write_bytes(whole)


def test_a_text_that_lacks_a_shard_is_not_trained_on(run_copy: Path, target_folder: Path, refuses: Refuses) -> None:
    common = ["--run", run_copy, "--target", target_folder, "--device", "cpu"]
    shard_files(run_copy / "shards")[0].unlink()
    told = refuses("train", *common, "--name", "other", *TRAINED)
    assert "holds 512 tokens of text and not the 1,024 that were written" in told and "same generate command" in told


def test_a_text_of_another_recipe_is_neither_mixed_nor_told_falsely(
    run_copy: Path, target_folder: Path, suite_file: Path, refuses: Refuses, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ["--run", str(run_copy), "--target", str(target_folder), "--device", "cpu"]
    export = ["export", *common, "--name", "toy", *OF_CARD]
    monkeypatch.setattr(openings, "MIXTURE", (("raw", 1.0),))
    told = refuses("generate", *common, "--prompts", suite_file, *WRITING[:-1], 2000)
    assert "other settings (mixture: " in told
    main(export)
    card = (run_copy / "models" / "toy" / "export" / "README.md").read_text(encoding="utf-8")
    assert "- 30%: the bare chat prefix" in card and "- 100%" not in card
    file = run_copy / "generation-settings.json"
    settings = json.loads(file.read_text(encoding="utf-8"))
    del settings["mixture"]
    file.write_text(json.dumps(settings), encoding="utf-8")
    assert "mixture missing" in refuses(*export) and "start again" in refuses(*export)


def test_a_conversation_beyond_the_context_is_not_judged(target_folder: Path, refuses: Refuses, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    file.write_text(json.dumps({"prompt": "word " * 600, "category": "x"}) + "\n", encoding="utf-8")
    told = refuses(
        "evaluate", "--target", target_folder, "--device", "cpu", "--drafter", target_folder, "--prompts", file
    )
    assert "is more than the 512 of the target's context" in told


@pytest.mark.large
def test_what_was_deleted_is_made_again(run_copy: Path, target_folder: Path, suite_file: Path) -> None:
    common = ["--run", str(run_copy), "--target", str(target_folder), "--device", "cpu"]
    first, models = shard_files(run_copy / "shards")[0], run_copy / "models" / "toy"
    tokens, weights = load_tensors(first)["tokens"], load_student(run_copy, "toy", target_folder).state_dict()
    first.unlink()
    (run_copy / "generation.json").unlink()
    (models / "checkpoint.pt").unlink()
    main(["generate", *common, "--prompts", str(suite_file), *WRITING])
    assert len(shard_files(run_copy / "shards")) == 2 and torch.equal(load_tensors(first)["tokens"], tokens)
    main(["train", *common, "--name", "toy", *TRAINED])
    again = load_student(run_copy, "toy", target_folder).state_dict()
    assert all(torch.equal(value, again[name]) for name, value in weights.items())
    assert not (models / "evaluation.json").exists()


def test_generation_by_time_is_finished_until_it_is_given_more(
    target_folder: Path, suite_file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["generate", "--run", str(tmp_path), "--target", str(target_folder), "--device", "cpu"]
    words = [*common, "--prompts", str(suite_file), "--batch", "2", "--length", "16", "--k", "4", "--minutes"]

    def written(minutes: float) -> list[int]:
        main([*words, str(minutes)])
        return [int(file.stem) for file in shard_files(tmp_path / "shards")]

    assert written(1e-6) == [0]
    main([*words[:-1], "--tokens", "64"])
    capsys.readouterr()
    assert written(1e-6) == [0, 1]
    assert json.loads((tmp_path / "generation.json").read_text(encoding="utf-8"))["tokens_per_second"] > 0
    (tmp_path / "shards" / "00000.pt").unlink()
    assert written(1e-6) == [0, 1]  # what was there before is made up for, however late it is
    assert written(1e-6) == [0, 1] and "is finished: 64 tokens" in capsys.readouterr().out
    assert len(written(0.05)) > 2


def test_a_report_that_an_interruption_left_unfinished_is_made_up_for(
    run_copy: Path, target_folder: Path, suite_file: Path
) -> None:
    file = run_copy / "generation.json"
    whole = json.loads(file.read_text(encoding="utf-8"))
    file.write_text(json.dumps(whole | {"finished": False, "tokens": 512}), encoding="utf-8")
    common = ["--run", str(run_copy), "--target", str(target_folder), "--device", "cpu"]
    main(["generate", *common, "--prompts", str(suite_file), *WRITING])
    assert json.loads(file.read_text(encoding="utf-8")) == whole


def test_another_target_is_refused_and_a_renamed_one_is_not(
    run_copy: Path, target_copy: Path, suite_file: Path, refuses: Refuses, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ["--run", run_copy, "--target", target_copy, "--device", "cpu"]
    train = ["train", *common, "--name", "toy", *TRAINED]
    main([str(word) for word in train])
    assert "is finished" in capsys.readouterr().out
    before = fingerprint(target_copy)
    state = load_file(target_copy / "model.safetensors")
    save_file(state | {"model.norm.weight": state["model.norm.weight"] + 1}, target_copy / "model.safetensors")
    assert fingerprint(target_copy) != before
    assert "target_sha256" in refuses("generate", *common, "--prompts", suite_file, *WRITING)
    for command in (train, ["evaluate", *common, "--name", "toy"], ["export", *common, "--name", "toy", *OF_CARD]):
        assert "is not the target" in refuses(*command)


def test_a_finished_training_is_not_taken_for_a_longer_one(
    run_copy: Path, target_folder: Path, refuses: Refuses
) -> None:
    common = ["train", "--run", run_copy, "--target", target_folder, "--device", "cpu", "--name", "toy"]
    assert "budget_tokens: 1536 before, 3072 now" in refuses(*common, *TOY_TRAINING, "--tokens", 3072)
    assert "budget_minutes" in refuses(*common, *TOY_TRAINING, "--minutes", 1)
    assert "too few" in refuses(*common[:-1], "big", *TOY_TRAINING, "--batch", 400, "--tokens", 10)
    assert not (run_copy / "models" / "big").exists()
    report = run_copy / "generation.json"
    report.write_text(report.read_text(encoding="utf-8").replace("true", "false"), encoding="utf-8")
    assert "not finished" in refuses(*common[:-1], "early", *TOY_TRAINING, "--tokens", 10)


def test_an_evaluation_under_other_conditions_is_done_anew(
    run_copy: Path, target_folder: Path, suite_file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = run_copy / "models" / "toy" / "evaluation.json"
    common = ["evaluate", "--run", str(run_copy), "--target", str(target_folder), "--device", "cpu", "--name", "toy"]
    words = [*common, "--prompts", str(suite_file)]
    main([*words, *JUDGED])
    assert "is finished" in capsys.readouterr().out
    main([*words, "--new-tokens", "3", "--samples", "1"])
    assert "done anew" in capsys.readouterr().out
    found = json.loads(file.read_text(encoding="utf-8"))["conditions"]
    assert (found["new_tokens"], found["samples"]) == (3, 1)
    suite = suite_file.read_text(encoding="utf-8").splitlines()
    other = run_copy / "suite.jsonl"
    other.write_text(suite[0], encoding="utf-8")
    main([*common, "--prompts", str(other), "--new-tokens", "3", "--samples", "1"])
    assert json.loads(file.read_text(encoding="utf-8"))["prompts"] == 1


def test_an_export_takes_only_the_place_of_an_export(
    run_copy: Path, target_folder: Path, refuses: Refuses, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["export", "--run", run_copy, "--target", target_folder, "--device", "cpu", "--name", "toy", *OF_CARD]
    out = tmp_path / "out"
    out.write_text("a file", encoding="utf-8")
    assert "is a file" in refuses(*words, "--out", out)
    out.unlink()
    for kept in (target_folder, run_copy, tmp_path, target_folder / ".." / target_folder.name):
        assert "name another" in refuses(*words, "--out", kept)
    shutil.copytree(target_folder, out)  # another model, with files of the same names
    assert "model.safetensors" in refuses(*words, "--out", out)
    shutil.rmtree(out)
    out.mkdir()
    main([str(word) for word in [*words, "--out", out]])
    main([str(word) for word in [*words, "--out", out]])
    assert not list(tmp_path.glob(".out*"))
    (out / "notes.txt").write_text("mine", encoding="utf-8")
    assert "(notes.txt)" in refuses(*words, "--out", out)
    (out / "notes.txt").unlink()
    before = {file.name: file.read_bytes() for file in out.iterdir()}
    monkeypatch.setattr("distil.export.MOST_BYTES", 1000)
    assert "MB" in refuses(*words, "--out", out)
    monkeypatch.undo()
    monkeypatch.setattr("distil.export.shutil.copyfile", _fails)
    assert "No space left" in refuses(*words, "--out", out)
    assert {file.name: file.read_bytes() for file in out.iterdir()} == before and not list(tmp_path.glob(".out*"))


def _fails(source: Path, target: Path) -> None:
    raise OSError(28, "No space left on device", str(target))


def test_the_card_names_only_a_target_that_is_known(target_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Refused, match="--target-name"):
        name_and_licence(target_folder, "maker/toy", None)
    assert name_and_licence(target_folder, "maker/toy", "MIT") == ("maker/toy", "MIT")
    monkeypatch.setattr("distil.target._DEMO_WEIGHTS", _sha256(target_folder / "model.safetensors"))
    assert name_and_licence(target_folder, None, None) == ("HuggingFaceTB/SmolLM2-135M-Instruct", "Apache-2.0")


def _sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def test_nothing_is_reported_of_rows_that_were_not_held_out(finished_run: Path, target_folder: Path) -> None:
    trainer = Trainer(load_student(finished_run, "toy", target_folder), TrainingSettings(), CPU, lambda part: part)
    rows = load_rows(shard_files(finished_run / "shards"), CPU)
    assert trainer.held_out(rows.pick(torch.arange(0), CPU)) == {}


def test_an_interruption_says_how_to_go_on(
    target_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("distil_drafter.generate", interrupted)
    with pytest.raises(SystemExit) as end:
        main(["generate", "--run", str(tmp_path), "--target", str(target_folder), "--device", "cpu", *WRITING])
    assert end.value.code == 130
    assert capsys.readouterr().err.endswith("stopped; the same command goes on from here\n")
