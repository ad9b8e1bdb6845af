"""The benchmark of captured passes at tiny sizes on the CPU: shapes, floors, distances and bars."""

import copy
import json
import os
import signal
from argparse import Namespace
from functools import partial
from pathlib import Path
from typing import Any

import gpu_step
import pytest
import torch
from gpu_forms import quantize
from gpu_memory import Memory, taken
from gpu_shapes import (
    DENSE,
    MODELS,
    build,
    expected_experts,
    filling,
    held_bytes,
    key_bytes,
    reads,
    weight_bytes,
    widened,
)
from gpu_step import main
from gpu_step_report import judged, line_of, share, summary, table
from gpu_texts import ROWS, WRITTEN, Ids, Text
from transformers import AutoModelForCausalLM

from specdec_tui.backends.cache import RewindableCache
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.gpu.laid import Laid
from specdec_tui.backends.gpu.packed.model import pack_quantized
from specdec_tui.backends.gpu.packed.packing import plain_weights
from specdec_tui.backends.gpu.packed.weights import codes_of, is_quantized
from specdec_tui.backends.gpu.tuning import worth_a_trial
from specdec_tui.backends.static_model import StaticContext

pytestmark = pytest.mark.usefixtures("one_thread")
CPU = torch.device("cpu")
SIZES = {
    "llama-3.1-8b": 8.030,
    "qwen2.5-7b": 7.616,
    "mistral-7b": 7.248,
    "llama-3.2-3b": 3.213,
    "qwen3-4b": 4.022,
    "llama-3.2-1b": 1.236,
    "qwen2.5-0.5b": 0.494,
    "smollm2-135m": 0.135,
    "phi-3-mini": 3.821,
    "smollm3-3b": 3.075,
    "pythia-1.4b": 1.415,
    "olmo2-1b": 1.485,
    "granite-3-2b": 2.534,
    "gemma2-2b": 2.614,
    "gpt2-xl": 1.558,
    "gemma3-1b": 1.000,
    "starcoder2-3b": 3.030,
    "command-r7b": 8.028,
    "falcon-7b": 6.922,
    "falcon3-7b": 7.456,
    "mixtral-8l": 11.872,
    "qwen3-30b-a3b": 30.532,
    "olmoe-1b-7b": 6.919,
    "gpt-oss-20b": 20.915,
}
"""Billions of parameters of the public models; of Mixtral with 8 of its layers."""


def tiny(name: str, dtype: torch.dtype = torch.float32) -> TransformersModel:
    return TransformersModel(build(name, CPU, dtype))


@pytest.mark.parametrize("name", [name for name in MODELS if "tiny" not in name])
def test_a_shape_has_the_size_of_the_public_model(name: str) -> None:
    shape = MODELS[name]
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape.make())
    assert sum(weight.numel() for weight in model.parameters()) / 1e9 == pytest.approx(SIZES[name], abs=6e-4)
    kinds = [getattr(model.config, n, None) or [] for n in ("layer_types", "no_rope_layers")]
    assert all(set(found) == set(found[: shape.kinds]) for found in kinds)


def test_the_dense_shapes_are_all_but_the_mixtures() -> None:
    assert set(MODELS) - set(DENSE) == {
        *("mixtral-8l", "qwen3-30b-a3b", "olmoe-1b-7b", "gpt-oss-20b"),
        *("tiny-llama", "tiny-gpt2", "tiny-gemma3", "tiny-mixtral"),
    }


def test_shares_are_asked_of_drafters_targets_and_families() -> None:
    asked = {name: (shape.needed, shape.goal) for name, shape in MODELS.items() if shape.needed}
    for name, bar in {
        "llama-3.1-8b": (0.86, 0.90),
        "llama-3.2-3b": (0.79, 0.82),
        "llama-3.2-1b": (0.72, 0.77),
        "qwen2.5-0.5b": (0.45, 0.55),
        "smollm2-135m": (0.15, 0.25),
    }.items():
        assert asked.pop(name) == bar
    assert set(asked.values()) == {(0.65, 0.0)}
    assert set(MODELS) - set(asked) == {
        *("llama-3.1-8b", "llama-3.2-3b", "llama-3.2-1b", "qwen2.5-0.5b", "smollm2-135m"),
        *("qwen2.5-7b", "mistral-7b", "qwen3-4b"),
        *("tiny-llama", "tiny-gpt2", "tiny-gemma3", "tiny-mixtral"),
    }


ATTENTION = 64 * (64 + 2 * 32 + 64)


@pytest.mark.parametrize(
    ("name", "tokens", "numbers"),
    [
        ("tiny-llama", 1, 2 * (ATTENTION + 3 * 64 * 128 + 2 * 64) + 64 + 512 * 64 + 64),
        ("tiny-llama", 4, 2 * (ATTENTION + 3 * 64 * 128 + 2 * 64) + 64 + 512 * 64 + 4 * 64),
        # The embedding is the output matrix, read once; of the places, a row for each token.
        ("tiny-gpt2", 3, 2 * (12 * 64 * 64 + 9 * 64 + 4 * 64) + 2 * 64 + 512 * 64 + 3 * 64),
        ("tiny-mixtral", 1, 2 * (ATTENTION + 8 * 64 + 2 * 3 * 64 * 128 + 2 * 64) + 64 + 512 * 64 + 64),
    ],
)
def test_a_pass_reads_each_weight_once_and_of_tables_and_experts_what_it_needs(
    name: str, tokens: int, numbers: int
) -> None:
    assert weight_bytes(build(name, CPU, torch.float32), tokens) == 4 * numbers


def test_four_tokens_choose_as_many_experts_as_chance_has_it() -> None:
    source = torch.Generator().manual_seed(0)
    chosen = torch.rand(4000, 4, 8, generator=source).topk(2).indices.reshape(4000, -1)
    counted = torch.zeros(4000, 8).scatter_(1, chosen, 1.0).sum(1).mean().item()
    assert expected_experts(8, 2, 4) == pytest.approx(counted, abs=0.05)
    assert expected_experts(8, 2, 1) == 2


def test_a_layer_with_a_window_reads_no_keys_beyond_it() -> None:
    a_token = 2 * 2 * 16 * 4
    assert held_bytes(tiny("tiny-gemma3"), 10) == 2 * 10 * a_token
    assert held_bytes(tiny("tiny-gemma3"), 100) == (16 + 100) * a_token
    assert reads(tiny("tiny-llama"), 4, 96).held == 2 * 100 * a_token


@pytest.mark.parametrize("name", ["tiny-llama", "tiny-gpt2", "tiny-gemma3", "tiny-mixtral"])
def test_widened_a_model_computes_in_float32_and_is_then_as_before(name: str) -> None:
    model = build(name, CPU, torch.bfloat16)
    weights = dict(model.named_parameters())
    ids = torch.tensor([[5, 42, 79, 116]])
    with torch.no_grad():
        before, expected = model(ids).logits, copy.deepcopy(model).float()(ids).logits
        with widened(model):
            found = model(ids).logits
    assert found.dtype is torch.float32
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-3)  # Gemma's embedding scale is rounded by dtype
    assert (before - expected).abs().max() > 1e-3
    after = dict(model.named_parameters())
    assert after.keys() == weights.keys() and all(after[n] is weights[n] for n in weights)
    assert torch.equal(model(ids).logits, before)


def test_a_model_whose_pass_fails_gets_its_weights_back() -> None:
    model = build("tiny-llama", CPU, torch.bfloat16)
    with pytest.raises(IndexError), widened(model):
        model(torch.tensor([[9999]]))
    assert {weight.dtype for weight in model.parameters()} == {torch.bfloat16}


def test_all_parameters_are_random_and_the_same_at_every_call() -> None:
    one, other = (build("tiny-gpt2", CPU, torch.float32) for _ in range(2))
    for (name, weight), again in zip(one.named_parameters(), other.parameters(), strict=True):
        assert torch.equal(weight, again) and weight.std() > 0.05, name
    assert build("tiny-llama", CPU, torch.float32, layers=1).config.num_hidden_layers == 1


def test_filled_texts_have_the_same_numbers_in_both_dtypes() -> None:
    model = tiny("tiny-llama", torch.bfloat16)
    narrow, wide = RewindableCache(), RewindableCache()
    for cache, dtype in ((narrow, torch.bfloat16), (wide, torch.float32)):
        forward = filling(model, torch.bfloat16, dtype)
        assert forward([1] * 5, 1, cache).shape == (1, 512)
        forward([1] * 3, 1, cache)
    for one, other in zip(narrow.layers, wide.layers, strict=True):
        assert one.keys.shape == other.values.shape == (1, 2, 8, 16)
        assert torch.equal(one.keys.float(), other.keys) and torch.equal(one.values.float(), other.values)
        assert not torch.equal(other.keys[:, :, :3], other.keys[:, :, 5:])


def row(shape: str = "llama-3.2-1b", text: int = 128, way: str = "ours", **other: Any) -> dict[str, Any]:
    return {
        "shape": shape,
        "form": "plain",
        "text": text,
        "way": way,
        "bytes": 10**9,
        "weight_bytes": 10**9,
        "floor": {"1": 0.0008, "4": 0.0008},
        "seconds": {"1": 0.001, "4": 0.00103},
        "off": 0.08,
        "theirs": 0.08,
        "alone": True,
        "ids": {"same": 31, "near": 1, "unlike": 0},
        "held": 310_000_000,
        "keys": 60_000_000,
        "peak": 420_000_000,
    } | other


def verdicts(*rows: dict[str, Any]) -> dict[str, str]:
    return {bar["bar"]: bar["verdict"] for bar in judged(rows)}


@pytest.mark.parametrize(
    ("floor", "told"), [(0.00071, "not met"), (0.00073, "met"), (0.00078, "goal"), (0.00101, "impossible")]
)
def test_a_share_is_judged_by_what_its_shape_needs(floor: float, told: str) -> None:
    found = row(floor={"1": floor, "4": floor})
    assert share(found) == pytest.approx(floor / 0.001)
    assert verdicts(found)["share"] == told
    assert ("1 of 1 met" in summary(judged([found])).splitlines()[0]) == (told in ("met", "goal"))
    assert ("IMPOSSIBLE" in table([found])) == (told == "impossible")


def test_a_share_above_1_is_told_also_where_nothing_is_asked() -> None:
    assert "share" not in verdicts(row("qwen2.5-7b"))
    found = row("qwen2.5-7b", floor={"1": 0.002, "4": 0.002})
    assert verdicts(found)["share"] == "impossible" and "IMPOSSIBLE: qwen2.5-7b plain" in summary(judged([found]))


def test_more_tokens_other_numbers_and_a_larger_distance_are_judged() -> None:
    bars = ("most over fewest", "alone as in a block", "off, of theirs", "ids unlike")
    assert verdicts(row()) == {"share": "goal"} | dict.fromkeys(bars, "met")
    ids = {"same": 30, "near": 1, "unlike": 1}
    bad = row(seconds={"1": 0.001, "4": 0.00105}, off=0.0801, alone=False, ids=ids)
    told = verdicts(bad)
    assert [told[bar] for bar in bars] == ["not met"] * 4
    assert verdicts(row(off=float("nan")))["off, of theirs"] == "not met"
    assert verdicts(row(way="transformers", off=0.09)) == {}


def test_a_row_is_told_as_it_comes_and_in_the_table() -> None:
    bad = row(off=0.1, alone=False, ids={"same": 30, "near": 1, "unlike": 1})
    assert line_of(row()).endswith(
        "1.000 ms, 80.0%, 4 over 1: 1.030; off 0.0800, of theirs 1.000; ids 31 + 1 near; MB 310 held, 420 peak"
    )
    assert "of theirs 1.250, UNLIKE alone; ids 30 + 1 near + 1 UNLIKE" in line_of(bad)
    assert "MB – held, – peak" in line_of(row(held=None, peak=None))
    assert "| 1.250 | unlike | 30 + 1 near + 1 UNLIKE | 310 | 60 | 420 |" in table([bad])


def test_a_long_text_is_judged_by_the_share_of_the_shortest() -> None:
    good, bad = ({"1": seconds, "4": seconds} for seconds in (0.0011, 0.0012))
    assert verdicts(row(), row(text=4096, seconds=good))["share of the shortest's"] == "met"
    assert verdicts(row(), row(text=4096, seconds=bad))["share of the shortest's"] == "not met"


@pytest.mark.parametrize(("form", "needed"), [("int8", 1.3), ("int4", 2.0)])
def test_a_quantized_form_is_judged_by_the_plain_one(form: str, needed: float) -> None:
    good, bad = ({"1": 0.001 / times, "4": 0.001 / times} for times in (needed + 0.01, needed - 0.01))
    told = verdicts(row(), row(form=form, seconds=good))
    assert told["times as fast as plain"] == "met"
    assert verdicts(row(), row(form=form, seconds=bad))["times as fast as plain"] == "not met"
    assert "share" not in verdicts(row(form=form))


@pytest.mark.parametrize("form", ["int8", "int4"])
def test_the_twin_of_a_quantized_model_has_its_numbers(form: str) -> None:
    pytest.importorskip("bitsandbytes")
    model, twin, plain = (build("tiny-llama", CPU, torch.float32) for _ in range(3))
    quantize(model, form, twin)
    size = weight_bytes(model, 1)  # before a pass: on processors with AVX-512 the library packs weights in its own way
    ids = torch.tensor([[5, 42, 79, 116]])
    with torch.no_grad():
        found, expected, before = (network(ids).logits for network in (model, twin, plain))
    off, moved = (float((logits - expected).abs().max()) for logits in (found, before))
    # In 8 bits the library rounds what goes into a product too.
    assert off < (0.5 if form == "int8" else 1e-3) * moved
    assert TransformersModel(model).dtype is torch.int8
    numbers = 2 * (ATTENTION + 3 * 64 * 128)
    rows = 2 * (64 + 2 * 32 + 64 + 2 * 128 + 64)
    others = 4 * (2 * 2 * 64 + 64 + 512 * 64 + 64)
    assert size == others + (numbers + 4 * rows if form == "int8" else numbers // 2 + numbers // 16)


@pytest.mark.parametrize(("form", "bytes_of_a_number"), [("gptq", 0.5), ("gptq8", 1), ("fp8", 1)])
def test_a_form_of_no_library_is_read_as_its_twin_has_it(
    form: str, bytes_of_a_number: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, twin, plain = (build("tiny-llama", CPU, torch.bfloat16) for _ in range(3))
    quantize(model, form, twin)
    read = {name: codes_of(module) for name, module in model.named_modules() if is_quantized(module)}
    assert len(read) == 2 * 7
    for name, codes in read.items():
        expected, before = (network.get_submodule(name).weight.detach().float() for network in (twin, plain))
        assert codes is not None
        torch.testing.assert_close(plain_weights(codes), expected, rtol=1e-6, atol=0)
        assert 0 < float((expected - before).abs().max()) < 0.15 * float(before.abs().max())
    monkeypatch.setattr("specdec_tui.backends.gpu.packed.model.agrees", lambda *_: True)  # its products need Triton
    assert not pack_quantized(model)
    numbers, others = 2 * (ATTENTION + 3 * 64 * 128), 2 * (2 * 2 * 64 + 64 + 512 * 64 + 64)
    packed = weight_bytes(model, 1) - others
    assert (
        numbers * bytes_of_a_number < packed < numbers * bytes_of_a_number * 2
    )  # scales, and room that such small ones leave


def test_shares_of_an_earlier_run_are_told_beside(tmp_path: Path) -> None:
    told = table([row(), row(text=4096)], [row(seconds={"1": 0.002, "4": 0.002})])
    assert "before" in told and " 40.0% |" in told and "before" not in table([row()])


def measured(tmp_path: Path, *more: str) -> dict[str, Any]:
    file = tmp_path / "steps.json"
    assert main(["--device", "cpu", "--dtype", "float32", "--json", str(file), *more]) == 0
    data: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
    return data


@pytest.mark.parametrize("fill", [(), ("--fill",)])
def test_each_shape_and_text_has_a_row(
    fill: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_step, "SERIES_SECONDS", 0.0)
    data = measured(tmp_path, "--shapes", "tiny-llama,tiny-gemma3", "--tokens", "1,3", "--text", "8,300", *fill)
    assert [(r["shape"], r["text"], r["way"]) for r in data["rows"]] == [
        (name, text, "transformers") for name in ("tiny-llama", "tiny-gemma3") for text in (8, 300)
    ]
    assert all(r["off"] < 1e-4 and r["theirs"] < 1e-4 and r["seconds"].keys() == {"1", "3"} for r in data["rows"])
    assert {r["ids"] for r in data["rows"]} == {None}  # ours alone write
    assert {r["held"] for r in data["rows"]} == {None}  # no GPU's memory
    assert [f["why"] for f in data["failed"]] == ["its weights are not in half precision"] * 2
    assert "| tiny-gemma3 | plain | 300 | transformers |" in capsys.readouterr().out


def test_a_quantized_form_has_rows_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bitsandbytes")
    monkeypatch.setattr(gpu_step, "SERIES_SECONDS", 0.0)
    data = measured(tmp_path, "--shapes", "tiny-llama", "--forms", "int4", "--text", "8")
    assert [(r["form"], r["way"]) for r in data["rows"]] == [("int4", "transformers")]
    assert data["rows"][0]["off"] < 1e-4
    assert [(f["form"], f["why"]) for f in data["failed"]] == [("int4", "its layers compute in torch.float32")]


@pytest.mark.parametrize("fault", [False, True])
def test_a_way_that_computes_something_else_is_told(
    fault: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = gpu_step.opener

    def wrong(model: TransformersModel, way: str, forward: Any) -> Any:
        plain = theirs(model, "transformers", forward)

        class Wrong(StaticContext):
            def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
                return super().extend(ids, begin, keep).roll(1, dims=1)

        return (
            partial(Wrong if fault else StaticContext, model.model, forward, model.context_length)
            if way == "ours"
            else plain
        )

    monkeypatch.setattr(gpu_step, "opener", wrong)
    monkeypatch.setattr(gpu_step.gpu_model, "why_not", lambda _: "")
    monkeypatch.setattr(gpu_step, "SERIES_SECONDS", 0.0)
    data = measured(tmp_path, "--shapes", "tiny-llama", "--text", "8")
    told = capsys.readouterr().out
    ids = {"same": WRITTEN, "near": 0, "unlike": 0}
    assert [r["ids"] == ids for r in data["rows"] if r["way"] == "ours"] == [not fault]
    for bar in ("off, of theirs", "ids unlike") if fault else ():
        assert told.partition(f"{bar}: ")[2].startswith("0 of 1 met\n  NOT MET: tiny-llama plain, text 8")


def test_a_text_is_as_far_off_as_its_blocks_are() -> None:
    """Float32's logits by hand, a forward pass in bfloat16 and blocks of it: distances of the same rows."""
    model = tiny("tiny-llama", torch.bfloat16)
    text = Text(model, 8)
    text.judge(model, model.forward)
    exact = copy.deepcopy(model.model).float()(text.ids[None]).logits[0, 8:]
    torch.testing.assert_close(text.exact, exact, atol=1e-4, rtol=1e-3)
    whole = model.forward(text.ids.tolist(), ROWS)
    assert text.theirs == pytest.approx((whole - exact).square().mean().sqrt().item(), rel=0.2)
    sequence = text.open(partial(StaticContext, model.model, model.forward, model.context_length))
    assert text.off(sequence, 4) == pytest.approx(text.theirs, rel=0.2)
    assert text.theirs > 1e-3


def test_ids_are_first_choices_near_ties_or_neither() -> None:
    model = tiny("tiny-llama")
    text = Text(model, 8)
    text.judge(model, model.forward)
    sequence = text.open(partial(StaticContext, model.model, model.forward, model.context_length))
    ids = text.written(sequence)
    assert text.compared(model, model.forward, ids) == Ids(WRITTEN, 0, 0)
    second = model.forward([*text.ids[:9].tolist(), *ids[:-1]], 1)[0].topk(2)
    ids[-1] = int(second.indices[1])
    assert text.compared(model, model.forward, ids) == Ids(WRITTEN - 1, 0, 1)
    text.theirs = float(second.values[0] - second.values[1]) / 5.9
    assert text.compared(model, model.forward, ids) == Ids(WRITTEN - 1, 1, 0)


def test_memory_is_what_is_allocated_and_all_of_a_graphs_pool() -> None:
    segments = [
        {"segment_pool_id": (0, 0), "total_size": 100, "allocated_size": 60},
        {"segment_pool_id": (0, 1), "total_size": 20, "allocated_size": 5},
        {"total_size": 50, "allocated_size": 1},
    ]
    assert taken(segments) == 60 + 20 + 1
    memory = Memory(CPU)
    assert memory.held is None and memory.peak is None


def test_keys_of_a_capacity_are_counted_in_full() -> None:
    assert key_bytes(tiny("tiny-gemma3"), 100) == 2 * 100 * 2 * 2 * 16 * 4


def test_a_run_that_is_cut_off_tells_what_it_has(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    build = gpu_step.build

    def ended(name: str, *more: Any) -> Any:
        if name == "tiny-gpt2":
            os.kill(os.getpid(), signal.SIGTERM)
        return build(name, *more)

    monkeypatch.setattr(gpu_step, "build", ended)
    monkeypatch.setattr(gpu_step, "SERIES_SECONDS", 0.0)
    before = signal.getsignal(signal.SIGTERM)
    data = measured(tmp_path, "--shapes", "tiny-llama,tiny-gpt2", "--text", "8", "--ways", "transformers")
    told = capsys.readouterr().out
    assert [r["shape"] for r in data["rows"]] == ["tiny-llama"]
    assert "cut off" in told and "| tiny-llama | plain | 8 | transformers |" in told
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_fails_costs_the_others_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    build = gpu_step.build

    def broken(name: str, *more: Any) -> Any:
        if name == "tiny-llama":
            raise RuntimeError("no memory")
        return build(name, *more)

    monkeypatch.setattr(gpu_step, "build", broken)
    monkeypatch.setattr(gpu_step, "SERIES_SECONDS", 0.0)
    data = measured(tmp_path, "--shapes", "tiny-llama,tiny-gpt2", "--text", "8", "--ways", "transformers")
    assert [r["shape"] for r in data["rows"]] == ["tiny-gpt2"]
    assert data["failed"] == [{"shape": "tiny-llama", "form": "plain", "way": "", "why": "RuntimeError: no memory"}]


def test_without_time_every_shape_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_step.tuning, "MOST_SECONDS", 45.0)
    data = measured(tmp_path, "--shapes", "tiny", "--seconds", "0", "--trials", "6")
    assert gpu_step.tuning.MOST_SECONDS == 6
    assert data["rows"] == [] and [f["why"] for f in data["failed"]] == ["no time left"] * 4


@pytest.mark.parametrize("tile", [None, 3])
def test_the_kernels_of_a_shape_can_be_compiled_ahead(tile: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    opened, ran = [], []

    class Counted(StaticContext):
        def __init__(self, laid: Laid, forward: Any, capacity: int) -> None:
            opened.extend(laid.tiles)
            super().__init__(shown[0].model, forward, None, capacity)

        def extend(self, ids: torch.Tensor, begin: torch.Tensor, keep: int) -> torch.Tensor:
            ran.append(len(ids))
            return super().extend(ids, begin, keep)

    shown: list[TransformersModel] = []
    monkeypatch.setattr(gpu_step, "TransformersModel", lambda model: shown.append(TransformersModel(model)) or shown[0])
    monkeypatch.setattr(gpu_step.gpu_model, "why_not", lambda _: "")
    monkeypatch.setattr(gpu_step.gpu_model, "GpuContext", Counted)
    monkeypatch.setattr(gpu_step.tuning, "MOST_SECONDS", 1.0)
    options = Namespace(set=[], device="cpu", dtype="float16", text=[8])
    gpu_step.compiled("tiny-llama", "plain", 2, tile, options)
    assert ran == [2]
    chosen = {shape: worth_a_trial(shape) for shape in opened[0].tried}
    assert len(chosen) == (0 if tile is None else 5)
    assert all(opened[0].tried[shape] == tiles[3 % len(tiles)] for shape, tiles in chosen.items())


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (("--set", "gpu_model._NONE=3"), "'gpu_model._NONE=3' is not valid"),
        (("--set", "nothing=3"), "'nothing=3' is not valid"),
        (("--shapes", "tiny,mini"), "'mini' is not valid: give some of all, dense,"),
        (("--forms", "int2"), "'int2' is not valid: give some of plain, int8, int4"),
        (("--ways", "yours"), "'yours' is not valid: give some of transformers, ours"),
    ],
)
def test_what_is_not_there_is_refused(given: tuple[str, str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(given)
    assert stop.value.code == 2 and told in capsys.readouterr().err
