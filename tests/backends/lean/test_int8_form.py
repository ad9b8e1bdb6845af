"""The form `packed-int8` of a GGUF file's weights: lossless against itself, and how far from the exact one is told."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tiny_gguf import KIND, write_tiny_gguf

from specdec_tui.backends.lean.layer_parts import DOWN
from specdec_tui.backends.lean.model import LeanModel
from specdec_tui.backends.loading import Pair, load_pair
from specdec_tui.backends.pair import LoadError
from specdec_tui.benchmark.report import note_lines
from specdec_tui.decoding.form_distance import OWN, FormDistance, form_distance, together
from specdec_tui.decoding.records import Checked, LosslessStatus, RunEnded, Step
from specdec_tui.loaded import Loaded
from specdec_tui.session import LocalEngine
from specdec_tui.settings import ModelChoice, Settings

MIXED = {"blk.*ffn_down": KIND.Q6_K, "blk.*attn": KIND.Q4_K, "token_embd": KIND.Q8_0, "": KIND.Q4_1}
TEXT = [(37 * i + 5) % 300 for i in range(60)]
SETTINGS = Settings(max_new_tokens=24, gamma=3, strategies=("target", "speculative", "lookup"), chat=False)


@pytest.fixture(scope="module")
def choice(tmp_path_factory: pytest.TempPathFactory) -> ModelChoice:
    folder = tmp_path_factory.mktemp("int8")
    write_tiny_gguf(folder / "target.gguf", kinds=MIXED)
    write_tiny_gguf(folder / "drafter.gguf", kinds=MIXED, seed=1)
    names = {name: str(folder / f"{name}.gguf") for name in ("target", "drafter")}
    return ModelChoice(**names, device="cpu", weights="packed-int8")


@pytest.fixture(scope="module")
def pair(choice: ModelChoice) -> Pair:
    return load_pair(choice, lambda progress: None)


@pytest.fixture
def target(pair: Pair) -> LeanModel:
    assert isinstance(pair.target, LeanModel)
    return pair.target


def test_the_form_is_loaded_and_told_and_drafters_stay_packed(pair: Pair, target: LeanModel) -> None:
    assert target.form == pair.info.target.weights == "packed-int8"
    assert pair.info.target.weight_forms == ("packed", "expanded", "packed-int8")
    assert [drafter.weights for drafter in pair.info.drafters] == ["packed"]
    assert target.weights is target.in_form("packed").weights, "the same bytes of the file"


def test_multiply_adds_of_packed_matrices_are_of_integers_in_this_form_alone(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", kinds={"blk.*ffn_down": KIND.F16, "": KIND.Q8_0})
    pair = load_pair(ModelChoice(target=str(tmp_path / "m.gguf"), device="cpu"), lambda progress: None)
    packed = pair.target
    assert isinstance(packed, LeanModel)
    plain = sum(layer.matrices[DOWN].rows * layer.matrices[DOWN].columns for layer in packed.weights.layers)
    whole = packed.pass_cost.multiply_adds
    assert 0 < plain < whole
    assert packed.pass_cost.integer_adds == packed.in_form("expanded").pass_cost.integer_adds == 0
    assert packed.in_form("packed-int8").pass_cost == replace(packed.pass_cost, integer_adds=whole - plain)


def test_a_file_without_packed_weights_has_no_such_form(tmp_path: Path) -> None:
    write_tiny_gguf(tmp_path / "m.gguf", kinds={"": KIND.F16})
    choice = ModelChoice(target=str(tmp_path / "m.gguf"), device="cpu", weights="packed-int8")
    with pytest.raises(LoadError, match=r"weights packed-int8: it can be held in packed or expanded\.$"):
        load_pair(choice, lambda progress: None)


def cuts(lengths: tuple[int, ...]) -> Iterator[list[int]]:
    begin = 0
    for length in lengths:
        yield TEXT[begin : begin + length]
        begin += length
    assert begin == len(TEXT)


@pytest.mark.parametrize("threads", [1, 2])
def test_logits_are_the_same_bits_however_a_text_is_cut(target: LeanModel, threads: int) -> None:
    whole = target.forward(TEXT, len(TEXT))
    held, target._threads = target._threads, threads
    try:
        for lengths in ((60,), (1, 2, 3, 4, 5, 8, 9, 16, 12), (17, 1, 1, 7, 6, 28)):
            context = target.open()
            rows = [context.extend(part, len(part)) for part in cuts(lengths)]
            assert torch.equal(torch.cat(rows), whole)
    finally:
        target._threads = held
    assert torch.equal(torch.stack(list(target.reference(TEXT[:20], TEXT[20:]))), whole[19:-1])


def test_it_is_another_model_by_a_hair(target: LeanModel) -> None:
    exact = target.in_form("packed")
    one, other = exact.forward(TEXT, len(TEXT)), target.forward(TEXT, len(TEXT))
    apart = (one - other).abs().max()
    assert 0 < apart < 0.1 * one.abs().max()
    found = form_distance(target, TEXT)
    assert found is not None and found.tokens == len(TEXT)
    expected = torch.nn.functional.kl_div(
        other.log_softmax(-1), one.log_softmax(-1), reduction="none", log_target=True
    ).sum(-1)
    assert found.mean == pytest.approx(expected.mean().item(), rel=1e-3, abs=1e-7)
    assert found.most == pytest.approx(expected.max().item(), rel=1e-3, abs=1e-7)
    assert found.agreement == int((one.argmax(-1) == other.argmax(-1)).sum()) / len(TEXT)
    assert 0 < found.mean < 0.01 and found.agreement > 0.8
    assert form_distance(target, TEXT) is found, "kept"
    assert form_distance(exact, TEXT) is None, "nothing to tell"


def test_distances_of_texts_come_together_by_their_tokens() -> None:
    found = together([FormDistance(10, 0.1, 0.5, 1.0), None, FormDistance(30, 0.3, 0.4, 0.5)])
    assert found is not None and (found.tokens, found.most) == (40, 0.5)
    assert found.mean == pytest.approx(0.25) and found.agreement == pytest.approx(0.625)
    assert together([None]) is None


def run(choice: ModelChoice, settings: Settings) -> dict[str, Checked]:
    engine = LocalEngine(Loaded(lambda pair: None))
    engine.load(choice, lambda progress: None)
    events = list(engine.run("what is it", settings, lambda: False))
    ends = [e.record for e in events if isinstance(e, Step) and isinstance(e.record, RunEnded)]
    assert all(end.reason.value in ("length", "end_token") for end in ends), ends
    return {event.strategy: event for event in events if isinstance(event, Checked)}


def test_its_runs_are_lossless_against_itself_and_say_how_far_it_is(
    choice: ModelChoice, monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = run(choice, SETTINGS)
    assert [check.lossless.status for check in checks.values()] == [LosslessStatus.IDENTICAL] * 3
    for check in checks.values():
        assert f"{OWN}: KL(exact ‖ int8)" in check.lossless.detail
        assert check.lossless.distance is not None and check.lossless.distance.mean > 0
    checks = run(replace(choice, weights="packed"), SETTINGS)
    assert not any(OWN in check.lossless.detail for check in checks.values())
    # Were blocks of drafts another model than single tokens, it would be seen.
    monkeypatch.setattr(LeanModel, "run", spoilt(LeanModel.run))
    checks = run(choice, SETTINGS)
    assert checks["speculative"].lossless.status is LosslessStatus.DIFFERENT
    assert OWN in checks["speculative"].lossless.detail


def spoilt(held):  # type: ignore[no-untyped-def]
    def of_blocks(self, ids, begin, keep, keys, values):  # type: ignore[no-untyped-def]
        logits = held(self, ids, begin, keep, keys, values)
        if self.form == "packed-int8" and len(ids) == 4 and keep == 4:
            logits = logits.roll(1, -1)
        return logits

    return of_blocks


def test_the_benchmark_tells_it_in_a_line_and_in_numbers(choice: ModelChoice) -> None:
    from types import SimpleNamespace

    results = [
        SimpleNamespace(
            strategy="speculative",
            prompt_index=0,
            turn=0,
            notices=[],
            lossless=replace(
                run(choice, replace(SETTINGS, strategies=("target",)))["target"].lossless,
                distance=FormDistance(10, 0.001, 0.01, 0.9),
            ),
        )
    ]
    (line,) = note_lines(results, [])  # type: ignore[arg-type]
    assert line == (
        f"weights packed-int8: {OWN}: KL(exact ‖ int8) 0.001 on average, 0.01 at most; "
        "the same first choice at 90.0% of 10 tokens"
    )
