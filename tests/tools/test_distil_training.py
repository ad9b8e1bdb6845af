"""The loss and its gradients, resuming, and what comes out."""

from __future__ import annotations

import json
from pathlib import Path, PosixPath

import pytest
import torch
from distil.card import model_card
from distil.evaluate import compare
from distil.llama import hidden_states, load_llama
from distil.loss import LossWeights, fused_head_loss
from distil.openings import recipe
from distil.speculation import replay_rounds
from distil.student import Student, principal_embedding, student_shape
from distil.train import TrainingSettings, learning_rate, load_student, rows_of_step, train
from distil_drafter import main, make_parser
from torch import Tensor
from toy_settings import TOY_TRAINING
from transformers import AutoModelForCausalLM, AutoTokenizer

pytestmark = pytest.mark.large
CPU = torch.device("cpu")
TOY = TrainingSettings(
    width=16, layers=1, heads=2, kv_heads=1, mlp=16, batch=4, warmup=2, held_out=2, peak=0.01, seed=3
)


def reference_loss(hidden: Tensor, head: Tensor, ids: Tensor, p: Tensor, w: Tensor, weights: LossWeights) -> Tensor:
    """The loss as its definition reads, for autograd."""
    log_q = (hidden @ head.t()).log_softmax(1).gather(1, ids)
    q = log_q.exp()
    tail, student_tail = 1 - p.sum(1), 1 - q.sum(1)
    kl = (p * (p.log() - log_q)).sum(1) + tail * (tail.log() - student_tail.log())
    loss = weights.kl * kl + weights.tv * (1 - torch.minimum(p, q).sum(1)) - weights.top * log_q[:, 0]
    return loss @ w


@pytest.mark.parametrize("weights", [LossWeights(1, 0, 0), LossWeights(0, 1, 0), LossWeights(0, 0, 1), LossWeights()])
def test_the_gradients_of_the_fused_loss_are_exact(weights: LossWeights) -> None:
    source = torch.Generator().manual_seed(1)
    hidden = torch.randn(11, 6, generator=source, dtype=torch.float64, requires_grad=True)
    head = torch.randn(40, 6, generator=source, dtype=torch.float64, requires_grad=True)
    teacher = (torch.randn(11, 40, generator=source, dtype=torch.float64) * 2).softmax(1)
    p, ids = teacher.topk(5)
    w = torch.rand(11, generator=source, dtype=torch.float64)
    expected = reference_loss(hidden, head, ids, p, w, weights)
    wanted = torch.autograd.grad(expected, (hidden, head))
    loss, sums = fused_head_loss(hidden, head, ids, p, w, weights, chunk=4)
    found = torch.autograd.grad(2 * loss, (hidden, head))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(found, tuple(2 * gradient for gradient in wanted))
    q = (hidden @ head.t()).softmax(1).gather(1, ids)
    torch.testing.assert_close(sums[1], torch.minimum(p, q).sum(1) @ w)


def test_the_loss_stands_a_teacher_without_a_tail_and_a_sure_student() -> None:
    hidden = torch.full((1, 1), 40.0, requires_grad=True)
    head = torch.tensor([[1.0], [0.0], [-1.0], [-1.0]], requires_grad=True)
    loss, _ = fused_head_loss(
        hidden, head, torch.tensor([[0, 1]]), torch.tensor([[1.0, 0.0]]).half(), torch.ones(1), LossWeights()
    )
    loss.backward()
    assert torch.isfinite(loss) and torch.isfinite(hidden.grad).all() and torch.isfinite(head.grad).all()


def test_the_rate_rises_and_falls_to_zero() -> None:
    settings = TrainingSettings(peak=1.0, warmup=10)
    rates = [learning_rate(step, 100, settings) for step in range(100)]
    assert rates[0] == 0.1 and rates[9] == 1.0 and rates[99] == pytest.approx(1 / 90)
    assert learning_rate(50, None, settings) == 1.0


def test_an_epoch_visits_every_row_once() -> None:
    visited = torch.cat([rows_of_step(step, 4, 2, 14, seed=1) for step in range(3)])
    assert sorted(visited.tolist()) == list(range(2, 14))
    assert not torch.equal(visited[:4], rows_of_step(3, 4, 2, 14, seed=1))


def test_the_first_embedding_keeps_the_directions_that_matter(target_folder: Path) -> None:
    source = torch.Generator().manual_seed(1)
    low = torch.randn(200, 4, generator=source) @ torch.randn(4, 12, generator=source) + 3.0
    reduced = principal_embedding(low, 4, source)
    centred = low - low.mean(0)
    scale = centred.square().sum() / reduced.square().sum()
    torch.testing.assert_close(reduced @ reduced.t() * scale, centred @ centred.t(), atol=1e-2, rtol=1e-3)
    assert principal_embedding(low, 16, source).shape == (200, 16)


def test_training_goes_on_after_an_interruption_to_the_same_weights(finished_run: Path, target_folder: Path) -> None:
    def run(name: str, **more: float) -> None:
        train(finished_run, name, target_folder, TOY, 6 * 4 * 64, None, CPU, False, lambda line: None, **more)

    run("whole")
    run("parts", checkpoint_seconds=0, stop_after=2)
    run("parts", checkpoint_seconds=1e9, stop_after=1)  # this step is lost
    run("parts")
    whole, parts = (load_student(finished_run, name, target_folder).state_dict() for name in ("whole", "parts"))
    assert all(torch.equal(value, parts[name]) for name, value in whole.items())
    log = (finished_run / "models" / "parts" / "log.jsonl").read_text(encoding="utf-8")
    assert json.loads(log.splitlines()[-1])["step"] == 6


def test_training_by_time_fixes_its_steps(
    finished_run: Path, target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    monkeypatch.setattr("distil.train._PROBE", (1, 3))
    train(finished_run, "timed", target_folder, TOY, None, 0.01, CPU, False, told.append)
    training = json.loads((finished_run / "models" / "timed" / "training.json").read_text(encoding="utf-8"))
    assert training["steps"] >= 3 and training["steps"] == training["last"]["step"]


def test_training_makes_the_student_more_like_the_target(
    finished_run: Path, target_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("distil.train._LOG_EVERY", 4)
    train(finished_run, "longer", target_folder, TOY, 16 * 4 * 64, None, CPU, False, lambda line: None)
    text = (finished_run / "models" / "longer" / "log.jsonl").read_text(encoding="utf-8")
    log = [json.loads(line) for line in text.splitlines()]
    assert [line["step"] for line in log] == [4, 8, 12, 16]
    assert log[-1]["loss"] < log[0]["loss"] and log[-1]["accepted"] > log[0]["accepted"]
    assert {"agreed", "tokens_per_second", "held_out_loss", "held_out_accepted", "held_out_agreed"} <= set(log[-1])


def test_a_finished_stage_does_nothing(
    finished_run: Path, target_folder: Path, suite_file: Path, capsys: pytest.CaptureFixture
) -> None:
    common = ["--run", str(finished_run), "--target", str(target_folder), "--device", "cpu", "--name", "toy"]
    checkpoint = finished_run / "models" / "toy" / "checkpoint.pt"
    before = checkpoint.stat().st_mtime_ns
    main(["train", *common, *TOY_TRAINING, "--tokens", "1536"])
    main(["evaluate", *common, "--prompts", str(suite_file), "--new-tokens", "8", "--samples", "2"])
    assert checkpoint.stat().st_mtime_ns == before
    assert capsys.readouterr().out.count("is finished") == 2


def test_the_exported_folder_loads_with_transformers_and_gives_the_same_logits(
    finished_run: Path, target_folder: Path
) -> None:
    folder = finished_run / "models" / "toy" / "export"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    student = load_student(finished_run, "toy", target_folder)
    ids = AutoTokenizer.from_pretrained(folder)("Tell me a story.", return_tensors="pt")["input_ids"]
    shape = student_shape(student.shape, 16, 1, 2, 1, 16)
    rounded = Student(shape, 512, 0)
    rounded.load_state_dict({name: value.bfloat16().float() for name, value in student.state_dict().items()})
    with torch.no_grad():
        expected = rounded.trunk(torch.nn.functional.embedding(ids, rounded.embedding)) @ rounded.embedding.t()
        found = model(ids).logits
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert json.loads((folder / "config.json").read_text(encoding="utf-8"))["dtype"] == "bfloat16"


def test_big_weights_are_divided_into_files_that_load_again(
    finished_run: Path, target_folder: Path, tmp_path: Path
) -> None:
    from distil.export import drafter_config, write_weights
    from distil.student import hugging_face_state

    student = load_student(finished_run, "toy", target_folder)
    size = write_weights(hugging_face_state(student), tmp_path, shard_bytes=2000)
    files = sorted(tmp_path.glob("*.safetensors"))
    assert len(files) > 2 and size == sum(file.stat().st_size for file in files)
    config = drafter_config(student, json.loads((target_folder / "config.json").read_text(encoding="utf-8")))
    (tmp_path / "config.json").write_text(json.dumps(config), encoding="utf-8")
    model = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    torch.testing.assert_close(model.model.embed_tokens.weight, student.embedding.bfloat16().float())


def test_the_card_names_licence_settings_and_figures(finished_run: Path) -> None:
    card = (finished_run / "models" / "toy" / "export" / "README.md").read_text(encoding="utf-8")
    assert "license: mit" in card and "maker/toy (MIT)" in card and "| tokens per second |" in card
    assert "greedy answers: Σ min(p, q), T = 1" in card and "sampled answers: Σ min(p, q), T = 0.7" in card
    assert "2 % of the top probability" in card


def test_the_evaluation_reports_every_kind_with_its_spread(finished_run: Path) -> None:
    result = json.loads((finished_run / "models" / "toy" / "evaluation.json").read_text(encoding="utf-8"))
    assert set(result["temperatures"]) == {"0", "0.7", "1"}
    for written, judged in {"0": {"0.7", "1"}, "0.7": {"0.7"}, "1": {"1"}}.items():
        kinds = result["temperatures"][written]
        assert set(kinds) == {"question", "multi-turn", "all"} and set(kinds["all"]["accepted"]) == judged
        for spread in kinds["all"]["accepted"].values():
            assert spread["prompts"] == 3 and 0 <= spread["low"] <= spread["mean"] <= 1
    assert set(result["temperatures"]["0"]["all"]["speculative"]) == {str(gamma) for gamma in range(1, 9)}


def test_a_model_agrees_wholly_with_itself(target_folder: Path, suite_file: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    pair = ["--target", str(target_folder), "--drafter", str(target_folder), "--device", "cpu"]
    short = ["--new-tokens", "6", "--samples", "1"]
    main(["evaluate", *pair, *short, "--prompts", str(suite_file), "--json", str(figures)])
    result = json.loads(figures.read_text(encoding="utf-8"))
    assert result["temperatures"]["0"]["all"]["agreed"]["mean"] == 1
    for written, judged in (("0", "0.7"), ("0", "1"), ("0.7", "0.7"), ("1", "1")):
        spread = result["temperatures"][written]["all"]["accepted"][judged]
        assert spread["mean"] == pytest.approx(1, abs=1e-4)


def test_acceptance_is_the_overlap_of_the_tempered_distributions(target_folder: Path) -> None:
    target = load_llama(target_folder, torch.device("cpu"), torch.float32)
    flat = target._replace(head=torch.zeros_like(target.head))
    prompt, answer = [5, 9, 2, 11], [7, 3, 8]
    ((agreed, accepted),) = compare(target, flat, [(prompt, answer)], (0.5, 1.0))
    logits = hidden_states(target, torch.tensor([prompt + answer]))[0, 3:6] @ target.head.t()
    assert agreed == (logits.argmax(1) == 0).tolist()
    for temperature in (0.5, 1.0):
        p = torch.softmax(logits / temperature, 1)
        expected = p.clamp_max(1 / p.shape[1]).sum(1)
        torch.testing.assert_close(torch.tensor(accepted[temperature]), expected)
    assert sum(accepted[0.5]) < sum(accepted[1.0])


def test_replayed_rounds_count_as_the_decoding_loop_does() -> None:
    yes, no = True, False
    found = replay_rounds([yes, yes, no, yes, no, no, yes], 2)
    # Rounds: two accepted and a bonus; one accepted, one rejected; one rejected; one accepted, then the end.
    assert found == (7, 4, 4, 2)
    assert found.acceptance == pytest.approx(4 / 6) and found.tokens_per_round == pytest.approx(7 / 4)
    assert replay_rounds([], 3) == (0, 0, 0, 0)


@pytest.mark.parametrize("stage", ["generate", "train", "evaluate", "export", "all"])
def test_every_default_of_the_command_line_is_a_plain_value(stage: str) -> None:
    given = vars(make_parser().parse_args([stage, "--target", "folder"]))
    assert {type(value) for value in given.values()} <= {int, float, str, bool, PosixPath, type(None)}


def test_the_model_card_has_both_seeds_and_not_the_folder_of_the_target() -> None:
    settings = {"k": 48, "target": "/somewhere/private", "seed": 5} | recipe()
    shape = {"seed": 7, "width": 8, "layers": 1, "heads": 1, "kv_heads": 1, "mlp": 8, "kl": 1.0, "tv": 1.0, "top": 0.2}
    card = model_card("maker/model", "Apache-2.0", settings, {"tokens": 5}, shape, {"parameters": 7}, {})
    assert "private" not in card and "Apache-2.0" in card
    text, training = card.split("| training | |")
    assert "| seed | 5 |" in text and "| seed | 7 |" in training
