"""The benchmark of rounds at a tiny size on the CPU, and its bars."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gpu
import gpu_rounds
import pytest
from gpu import GREEDY, Contest, Outcome
from gpu_rounds import judged, main

from specdec_tui.decoding.sampling import Sampler

pytestmark = pytest.mark.usefixtures("one_thread")
TINY = [
    *("--shape", "tiny", "--device", "cpu", "--dtype", "float32", "--prompt", "12", "--new-tokens", "12"),
    *("--gamma", "2", "--turns", "1", "--dial", "0.3"),
]


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two ways to sample, and few passes."""
    for name in ("WARM_UPS", "WARM_UP_PASSES", "IN_A_ROW"):
        monkeypatch.setattr(gpu, name, 1)
    monkeypatch.setattr(gpu_rounds, "WAYS", {way: gpu_rounds.WAYS[way] for way in ("greedy", "top-k 50")})


def test_a_round_is_told_beside_its_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rounds.json"
    assert main([*TINY, "--json", str(file)]) == 0
    data = json.loads(file.read_text(encoding="utf-8"))
    parts = data["parts"]
    assert parts["round_seconds"] == pytest.approx(2 * parts["draft_seconds"] + parts["verify_seconds"])
    greedy, sampled = data["rows"]
    assert (greedy["sampling"], sampled["sampling"]) == ("greedy", "top-k 50")
    assert greedy["of_parts"] == pytest.approx(greedy["round_seconds"] / parts["round_seconds"])
    assert sampled["of_greedy_round"] == pytest.approx(sampled["round_seconds"] / greedy["round_seconds"])
    assert greedy["of_floor"] == pytest.approx(data["floor_seconds"] / greedy["step_seconds"])
    assert 1 < greedy["τ"] <= 3 and 0 < greedy["α"] <= 1
    assert (data["turns"], data["identical"], data["near_ties"], data["different"]) == (1, 1, 0, 0)
    told = capsys.readouterr().out
    assert "ids identical in 1 of 1 turns" in told and "MET: greedy ids that differ" in told


def test_ids_that_are_not_the_targets_are_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = Contest.call

    def wrong(self: Contest, side: str, *given: Any, **more: Any) -> Outcome:
        found = call(self, side, *given, **more)
        return replace(found, ids=[*found.ids[:-1], found.ids[-1] ^ 1]) if side == "speculative" else found

    monkeypatch.setattr(Contest, "call", wrong)
    assert main(TINY) == 0
    assert "NOT MET: greedy ids that differ by more than a near-tie = 0: 1" in capsys.readouterr().out


def test_a_way_that_cannot_be_captured_costs_the_others_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    call = Contest.call

    def broken(self: Contest, *given: Any, sampler: Sampler = GREEDY, **more: Any) -> Outcome:
        if not (given[4] if len(given) > 4 else sampler).is_greedy:
            raise RuntimeError("no such kernel")
        return call(self, *given, **more)

    monkeypatch.setattr(Contest, "call", broken)
    assert main(TINY) == 0
    told = capsys.readouterr().out
    assert "FAILED: top-k 50: RuntimeError: no such kernel" in told and "| greedy |" in told


def verdicts(**figures: float) -> list[str]:
    found = {"of_floor": 0.77, "of_parts": 1.03, "of_greedy_round": 1.02, "different": 0} | figures
    rows = [
        {"sampling": "greedy", "of_floor": found["of_floor"], "of_parts": found["of_parts"]},
        {"sampling": "top-k 50", "of_greedy_round": found["of_greedy_round"]},
    ]
    return [verdict for _, _, verdict in judged({"rows": rows, "different": found["different"], "failed": {}})]


def test_each_bar_can_be_met_and_missed() -> None:
    assert verdicts() == ["met"] * 4
    assert verdicts(of_floor=0.75)[0] == "not met"
    assert verdicts(of_floor=0.79)[0] == "goal"
    assert verdicts(of_floor=1.01)[0] == "impossible"
    assert verdicts(of_parts=1.041)[1] == "not met"
    assert verdicts(different=1)[2] == "not met"
    assert verdicts(of_greedy_round=1.06)[3] == "not met"
