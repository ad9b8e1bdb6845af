"""Compiled layers: what they give, what they leave behind, and what happens where they cannot be had."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny_transformers import tiny_model
from torch._dynamo.exc import BackendCompilerFailed
from transformers import AutoModelForCausalLM, MptConfig, PreTrainedModel, StableLmConfig

from specdec_tui.backends import compiled_model
from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.compiled_model import CompiledContext, Layers, layers_of, opener, why_not_compiled
from specdec_tui.backends.gpu import model as gpu_model
from specdec_tui.backends.model import bucket
from specdec_tui.backends.static_model import StaticContext
from specdec_tui.decoding.device_run import Programs
from specdec_tui.decoding.drafters import ModelDrafter
from specdec_tui.decoding.loop import decode
from specdec_tui.decoding.records import tokens_of
from specdec_tui.decoding.sampling import Sampler

IDS = torch.tensor([(37 * i + 5) % 60 for i in range(40)])


@pytest.fixture(autouse=True)
def _triton(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled_model.launches, "kernels", lambda: compiled_model)


@pytest.fixture
def compiled(monkeypatch: pytest.MonkeyPatch) -> list[Callable[..., Any]]:
    """A compiler that gives back what it was given; the functions that it was given."""
    given: list[Callable[..., Any]] = []

    def compile(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
        assert options["fullgraph"] and not options["dynamic"]
        given.append(function)
        return function

    monkeypatch.setattr(torch, "compile", compile)
    return given


def network(family: str) -> PreTrainedModel:
    """A model of three layers or more; two of the families have no description."""
    torch.manual_seed(0)
    match family:
        case "stablelm":
            config: Any = StableLmConfig(**SIZES, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=4)
        case "mpt":
            config = MptConfig(vocab_size=64, d_model=32, n_layers=3, n_heads=4, max_seq_len=128)
        case _:
            return tiny_model(family, vocab_size=64)
    made: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    return made


SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "max_position_embeddings": 128}


def opened(family: str) -> tuple[TransformersModel, Layers, CompiledContext, StaticContext]:
    model = TransformersModel(network(family))
    layers, arguments = Layers(model.model), (model.model, model.forward, model.context_length, 64)
    return model, layers, CompiledContext(layers, *arguments), StaticContext(*arguments)


def passed(context: StaticContext, *sizes: int) -> torch.Tensor:
    """Logits of passes over so many tokens each, behind 8."""
    context.prefill(IDS[:8])
    place, found = 8, []
    for size in sizes:
        found.append(context.extend(IDS[place : place + size], torch.tensor([place]), size))
        place += size
    return torch.cat(found)


def numbers_of(model: TransformersModel) -> list[int]:
    return [module.layer_idx for module in model.model.modules() if hasattr(module, "layer_idx")]


@pytest.mark.parametrize("family", ["llama", "gemma3", "gpt_neox", "mpt", "stablelm"])
def test_compiled_layers_give_the_logits_of_the_layers(family: str, compiled: list[Any]) -> None:
    model, layers, context, plain = opened(family)
    before = numbers_of(model)
    torch.testing.assert_close(passed(context, 1, 3, 1, 3, 3), passed(plain, 1, 3, 1, 3, 3))
    assert len(compiled) == 2 and layers.why == ""
    assert layers.is_compiled((1, 64)) and layers.is_compiled((3, 64))
    assert numbers_of(model) == before
    assert not any("forward" in vars(layer) for layer in layers_of(model.model))


def test_layers_run_through_what_was_compiled_each_with_a_cache_of_its_own(compiled: list[Any]) -> None:
    model, layers, context, _ = opened("llama")
    passed(context, 1)
    seen = []

    def watched(layer: Any, given: Any, named: Any) -> Any:
        (cache,) = (each for each in named.values() if hasattr(each, "layers"))
        seen.append((layer, layer.self_attn.layer_idx, cache.layers))
        return compiled[0](layer, given, named)

    layers._compiled[1, 64] = watched
    passed(context, 1)
    assert [layer for layer, *_ in seen] == layers_of(model.model)
    assert [number for _, number, _ in seen] == [0] * len(seen)
    assert [held for *_, held in seen] == [[layer] for layer in context._layers]


def test_layers_of_one_kind_are_one_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """By torch's own reading of the layers, without a code generator behind it."""
    graphs = []

    def lookup(name: str) -> Callable[..., Any]:
        return lambda graph, inputs: graphs.append(name) or graph.forward

    monkeypatch.setattr(torch._dynamo, "lookup_backend", lookup)
    _, layers, context, plain = opened("stablelm")
    torch.testing.assert_close(passed(context, 1, 1, 3), passed(plain, 1, 1, 3))
    assert layers.why == "" and layers.is_compiled((1, 64)) and layers.is_compiled((3, 64))
    assert graphs.count("inductor") == len(graphs) == 2


@pytest.mark.parametrize(("name", "most"), [("MOST_NODES", 3), ("MOST_KINDS", 0)])
def test_layers_that_would_take_the_compiler_minutes_are_left_to_it_never(
    name: str, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_model, name, most)
    monkeypatch.setattr(torch._dynamo, "lookup_backend", lambda name: pytest.fail)
    _, layers, context, plain = opened("llama")
    torch.testing.assert_close(passed(context, 1, 1), passed(plain, 1, 1))
    assert layers.why == "its layers are too many things to compile" and not layers.is_compiled((1, 64))


def test_after_the_time_for_compiling_other_sizes_go_on_uncompiled(
    compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, layers, context, plain = opened("llama")
    now = [0.0]

    def clock() -> float:
        now[0] += compiled_model.MOST_SECONDS + 1
        return now[0]

    monkeypatch.setattr(compiled_model, "time", SimpleNamespace(monotonic=clock))
    torch.testing.assert_close(passed(context, 1, 3, 1, 3), passed(plain, 1, 3, 1, 3))
    assert layers.is_compiled((1, 64)) and not layers.is_compiled((3, 64))
    assert len(compiled) == 1 and layers.why == "it takes the compiler too long"


@pytest.mark.parametrize("fault", [1.1, float("nan")])
def test_compiled_layers_that_give_other_logits_are_not_used(fault: float, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(function: Any, **options: Any) -> Any:
        def call(layer: Any, given: Any, named: Any) -> Any:
            found = function(layer, given, named)
            return (found[0] * fault, *found[1:]) if isinstance(found, tuple) else found * torch.tensor([fault, 1] * 16)

        return call

    monkeypatch.setattr(torch, "compile", wrong)
    _, layers, context, plain = opened("llama")
    torch.testing.assert_close(passed(context, 1, 1), passed(plain, 1, 1))
    assert layers.why == "compiled they do not give its logits" and not layers.is_compiled((1, 64))


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_compiler_that_fails_leaves_the_layers_as_they_were(wrapped: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    error = RuntimeError("Failed to find C compiler.\nPlease give one")
    if wrapped:
        error = BackendCompilerFailed(lambda: None, error, None)

    def broken(function: Any, **options: Any) -> Any:
        return partial(failing, error)

    def failing(error: Exception, *given: Any) -> Any:
        raise error

    monkeypatch.setattr(torch, "compile", broken)
    model, layers, context, plain = opened("llama")
    before = numbers_of(model)
    torch.testing.assert_close(passed(context, 1, 1), passed(plain, 1, 1))
    assert layers.why == "the compiler fails (RuntimeError: Failed to find C compiler.)"
    assert numbers_of(model) == before and not any("forward" in vars(layer) for layer in layers_of(model.model))
    monkeypatch.setattr(torch, "compile", lambda *_, **__: partial(failing, torch.OutOfMemoryError("no room")))
    with pytest.raises(torch.OutOfMemoryError):
        passed(context, 2)


@pytest.mark.parametrize(
    ("times", "told"),
    [([0.002, 0.003], ""), ([0.003, 0.003], "compiled they are no faster (3.00 ms a token for 3.00)")],
)
def test_what_is_faster_is_taken(
    times: list[float], told: str, compiled: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = iter(times)

    def seconds(step: Callable[[], None], begin: torch.Tensor) -> float:
        step()
        return next(measured)

    monkeypatch.setattr(compiled_model, "captured_seconds", seconds)
    model = TransformersModel(tiny_model("llama", vocab_size=64))
    found, why = opener(model.model, model.forward, model.context_length, 512)
    assert why == told and (found is None) == bool(told)
    assert found is None or found(512)._compiled.is_compiled((1, 512))


def test_what_cannot_be_captured_is_told(compiled: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def seconds(step: Callable[[], None], begin: torch.Tensor) -> float:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(compiled_model, "captured_seconds", seconds)
    model = TransformersModel(tiny_model("llama", vocab_size=64))
    found, why = opener(model.model, model.forward, model.context_length, 64)
    assert found is None
    assert why.startswith("a pass of it cannot be captured (RuntimeError: operation not permitted")


def test_what_cannot_be_compiled_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("llama", vocab_size=64)
    assert why_not_compiled(model) == ""
    layers_of(model)[1].forward = layers_of(model)[1].forward
    assert why_not_compiled(model) == "its layers have hooks"
    model.config.num_hidden_layers = 7
    assert why_not_compiled(model) == "its layers are not alike"
    monkeypatch.setattr(compiled_model.launches, "kernels", lambda: None)
    assert why_not_compiled(model) == "there is no Triton"


NO_FIT = "its class is described nowhere"


@pytest.mark.parametrize(
    ("fault", "note"),
    [
        ("", f"captured over transformers' layers, compiled: {NO_FIT}"),
        (
            "there is no Triton",
            f"captured over transformers' layers, which are slower: {NO_FIT}; "
            "they are not compiled: there is no Triton",
        ),
        (NO_FIT, f"captured over transformers' layers, which are slower: {NO_FIT}"),
    ],
)
def test_the_note_says_whether_layers_are_compiled(fault: str, note: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def offered(network: Any, *given: Any) -> tuple[Any, str]:
        assert given[-1] == 512
        return (None, fault) if fault else (partial(CompiledContext, Layers(network), network, *given[:-1]), "")

    monkeypatch.setattr(compiled_model, "opener", offered)
    monkeypatch.setattr(gpu_model, "why_not", lambda model: NO_FIT)
    model = TransformersModel(tiny_model("llama", vocab_size=64).to(torch.bfloat16))
    monkeypatch.setattr(model, "_device", SimpleNamespace(type="cuda"))
    monkeypatch.setattr(model, "_difference_over", lambda open_static, length: -1.0)
    assert type(model.open_static(500)) is (StaticContext if fault else CompiledContext)
    assert model.static_note == note


def test_a_run_over_compiled_layers_writes_what_a_plain_one_does(compiled: list[Any]) -> None:
    model, small = TransformersModel(network("stablelm")), TransformersModel(tiny_model("llama", vocab_size=64))
    layers = Layers(model.model)
    settings: dict[str, Any] = {"strategy": "t", "sampler": Sampler("greedy"), "gamma": 3, "max_new_tokens": 20}

    def written(programs: Programs | None) -> list[int]:
        records = decode(model, IDS[:6].tolist(), drafter=ModelDrafter(small, 64), programs=programs, **settings)
        return [token.id for record in records for token in tokens_of(record)]

    plain = written(None)
    model._static = partial(CompiledContext, layers, model.model, model.forward, model.context_length)
    assert written(Programs()) == plain
    assert len(compiled) == 1 and layers.why == ""
    assert [size for size in layers._compiled if layers.is_compiled(size)] == [(4, bucket(26))]
