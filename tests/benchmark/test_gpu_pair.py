"""The GPU benchmark at a tiny size on the CPU: the dialled pair, the search, and all sides once."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from dialled_pair import DialledPair, dialled_pair, search_dial
from dialled_pair import main as save_main
from gpu import Contest, Outcome, main

from specdec_tui.benchmark.run import measure
from specdec_tui.benchmark.suites import Prompt
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def pair() -> DialledPair:
    return dialled_pair("tiny")


def test_at_dial_0_the_target_computes_the_drafter(pair: DialledPair) -> None:
    ids = torch.randint(pair.shape.vocab, (2, 40), generator=torch.Generator().manual_seed(0))
    pair.dial = 0.0
    with torch.no_grad():
        torch.testing.assert_close(pair.target(ids).logits, pair.drafter(ids).logits, atol=1e-4, rtol=0)


def test_agreement_falls_with_the_dial_and_the_way_back_is_exact(pair: DialledPair) -> None:
    weights = [weight.clone() for weight in pair.target.parameters()]
    agreements = [pair.agreement(dial, texts=8, prompt=32, length=32) for dial in (0.0, 0.5, 2.0)]
    assert agreements == sorted(agreements, reverse=True)
    assert agreements[0] == 1 and agreements[-1] < 0.6
    pair.dial = 0.0
    assert all(map(torch.equal, weights, pair.target.parameters()))


def test_all_matrices_have_the_size_of_the_shape(pair: DialledPair) -> None:
    target, drafter = (sum(weight.numel() for weight in model.parameters()) for model in (pair.target, pair.drafter))
    assert target == 512 * 96 + 6 * (2 * 96 * 96 + 2 * 32 * 96 + 3 * 128 * 96 + 2 * 96) + 96
    assert drafter == 512 * 64 + 3 * (2 * 64 * 64 + 2 * 16 * 64 + 3 * 128 * 64 + 2 * 64) + 64


@pytest.mark.parametrize("wish", [0.5, 0.8])
def test_the_search_turns_a_pair_to_a_wished_agreement(pair: DialledPair, wish: float) -> None:
    assert abs(pair.turn_to(wish) - wish) <= 0.1
    assert pair.dial > 0


@pytest.mark.parametrize("wish", [0.0, 0.3, 0.95, 1.0])
def test_the_search_measures_a_dial_once(wish: float) -> None:
    asked: list[float] = []

    def measure(dial: float) -> float:
        asked.append(dial)
        return 1 / (1 + dial**2)

    found = search_dial(measure, {}, wish, tolerance=0.02)
    assert abs(measure(found) - wish) <= 0.02
    assert len(asked) - 1 == len(set(asked))


def test_all_sides_write_the_targets_ids(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "gpu.json"
    size = "--shape tiny --device cpu --dtype float32 --prompts 12 --new-tokens 12 --acceptances 0.7 --gamma 2"
    assert main([*size.split(), "--repeat", "1", "--json", str(file)]) == 0
    data = json.loads(file.read_text(encoding="utf-8"))
    assert {"environment", "options", "floor", "dials", "warm_up", "parts", "runs", "skipped", "plain"} <= data.keys()
    assert [run["side"] for run in data["runs"]] == ["target", "speculative", "generate", "static", "assisted"]
    assert len(data["runs"][0]["ids"]) == 12
    assert all(run["ids"] == data["runs"][0]["ids"] and run["lossless"] == "identical" for run in data["runs"])
    passes = {run["side"]: 12 / run["tokens_per_target_call"] for run in data["runs"]}
    assert abs(passes["assisted"] - passes["speculative"]) <= 1 and passes["target"] == passes["generate"] == 12
    assert data["skipped"] == []
    assert "1 of 1" in capsys.readouterr().out


@pytest.mark.parametrize(
    "side", ["speculative", *(pytest.param(n, marks=pytest.mark.large) for n in ("generate", "assisted"))]
)
def test_a_side_that_writes_other_ids_is_told_in_the_table_and_the_json(
    side: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = Contest.call

    def wrong(self: Contest, which: str, *given: Any) -> Outcome:
        outcome = call(self, which, *given)
        return replace(outcome, ids=[*outcome.ids[:-1], outcome.ids[-1] ^ 1]) if which == side else outcome

    monkeypatch.setattr(Contest, "call", wrong)
    file = tmp_path / "gpu.json"
    size = "--shape tiny --device cpu --dtype float32 --prompts 12 --new-tokens 12 --acceptances 0.7 --gamma 2"
    sides = ",".join(("target", *[side]))
    assert main([*size.split(), "--sides", sides, "--repeat", "1", "--json", str(file)]) == 0
    told = {run["side"]: run for run in json.loads(file.read_text(encoding="utf-8"))["runs"]}
    assert told["target"]["lossless"] == "identical"
    assert (told[side]["lossless"], told[side]["first_difference"]) == ("different", 11)
    assert "0 of 1" in capsys.readouterr().out


def test_without_time_everything_is_named_as_skipped(tmp_path: Path) -> None:
    file = tmp_path / "gpu.json"
    assert main(f"--shape tiny --device cpu --dtype float32 --acceptances 1 --minutes 0 --json {file}".split()) == 0
    data = json.loads(file.read_text(encoding="utf-8"))
    assert data["runs"] == [] and len(data["skipped"]) == 3


def test_a_saved_pair_is_one_that_can_be_loaded_and_agrees(tmp_path: Path) -> None:
    where = ["--shape", "tiny", "--device", "cpu", "--dtype", "float32"]
    assert save_main([str(tmp_path), *where, "--agreement", "1"]) == 0
    choice = ModelChoice(target=str(tmp_path / "target"), drafter=str(tmp_path / "drafter"), device="cpu")
    settings = Settings(strategies=("target", "speculative"), max_new_tokens=12, ignore_eos=True)
    engine = LocalEngine()
    engine.load(choice, lambda progress: None)
    results = measure(engine, [Prompt(("the cat",))], settings, repeat=1, warmup=0)
    assert [len(result.token_ids) for result in results] == [12, 12]
    assert results[1].figures.acceptance_rate == 1
