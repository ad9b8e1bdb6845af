"""What the checks of GPU passes must find: a part of the model that is left out, or taken for another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from family_variants import VARIANTS, made
from gpu_passes import BOUND, described, distance, logits_of, opened, passed, short_cut, sunk, text
from interpreted import GPU, need_triton
from plain_pass import PlainPass
from torch import Tensor

need_triton()

from specdec_tui.backends.decoder import Decoder  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu import streams, tiles  # noqa: E402
from specdec_tui.backends.gpu.launches import Branch, Read  # noqa: E402
from specdec_tui.backends.gpu.tiles import Tile  # noqa: E402
from specdec_tui.backends.gpu.weights import Affine, LayerWeights  # noqa: E402

pytestmark = pytest.mark.skipif(GPU, reason="a GPU multiplies float32 with 10 bits")
BEGIN, COUNT = 46, 3


@pytest.fixture(autouse=True)
def _several_shares_and_tiles_of_large_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_model.launches, "attention_cut", short_cut)
    # Small matrices are held: here they are streamed, as large ones are.
    monkeypatch.setattr(tiles, "guess", lambda gated, rows, columns: Tile(16 // (1 + gated), 64, 4, 4, 3, 256, 0))


def layers(decoder: Decoder, **changes: Any) -> Decoder:
    return replace(decoder, layers=tuple(replace(layer, **changes) for layer in decoder.layers))


def family(decoder: Decoder, **changes: Any) -> Decoder:
    return replace(decoder, family=replace(decoder.family, **changes))


DESCRIPTIONS: dict[str, tuple[str, Callable[[Decoder], Decoder]]] = {
    "a window wider by one": ("mistral", lambda d: layers(d, window=6)),
    "no window": ("cohere2", lambda d: layers(d, window=0)),
    "all rotated": ("smollm3", lambda d: layers(d, rotation=0)),
    "the rotations of other layers": ("gemma3", lambda d: layers(d, rotation=0)),
    "pairs for halves": ("llama", lambda d: family(d, pairs=True)),
    "halves for pairs": ("cohere", lambda d: family(d, pairs=False)),
    "rms for layer norms": ("olmo", lambda d: family(d, norm="rms")),
    "no offset": ("gemma", lambda d: family(d, norm_offset=0.0)),
    "no norm of heads": ("qwen3", lambda d: family(d, head_norms="")),
    "head by head for the whole": ("olmo2", lambda d: family(d, head_norms="head")),
    "in parallel": ("gpt_neox in turn", lambda d: family(d, parallel=True)),
    "in turn": ("gpt_neox", lambda d: family(d, parallel=False)),
    "no positions": ("gpt2", lambda d: family(d, positions="")),
    "positions from the first on": ("opt", lambda d: family(d, position_offset=0)),
    "embeddings as they are": ("granite", lambda d: replace(d, embedding_scale=1.0)),
    "what layers add as it is": ("granite", lambda d: replace(d, residual_scale=1.0)),
    "scores as they are": ("granite", lambda d: replace(d, score_scale=8**-0.5)),
    "logits as they are": ("cohere", lambda d: replace(d, logit_scale=1.0)),
    "no cap of scores": ("gemma2", lambda d: replace(d, score_cap=0.0)),
    "no cap of logits": ("gemma2", lambda d: replace(d, logit_cap=0.0)),
    "another activation": ("gpt_neox", lambda d: replace(d, activation="gelu_tanh")),
    "queries of all heads first": (
        "gpt_neox",
        lambda d: replace(d, query_group=8, key_first=32, key_group=8, value_first=64),
    ),
    "keys for values": ("falcon grouped", lambda d: replace(d, value_first=d.key_first)),
}  # fmt: skip


def distance_with(variant: str, change: Callable[[gpu_model.GpuContext], None]) -> float:
    model = made(*VARIANTS[variant])
    ids = text()[: BEGIN + COUNT]
    expected = logits_of(model, ids)
    context = opened(model)
    change(context)
    return distance(passed(context, ids, BEGIN, COUNT), expected[BEGIN:])


@pytest.mark.parametrize("mutant", DESCRIPTIONS)
def test_another_description_gives_other_logits(mutant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    variant, change = DESCRIPTIONS[mutant]
    monkeypatch.setattr(gpu_model, "describe", lambda model: change(described(model)))
    assert distance_with(variant, lambda context: None) > BOUND


def of_layers(change: Callable[[LayerWeights], LayerWeights]) -> Callable[[gpu_model.GpuContext], None]:
    def changed(context: gpu_model.GpuContext) -> None:
        part = context._parts[0]
        part.weights = replace(part.weights, layers=tuple(map(change, part.weights.layers)))

    return changed


def bare(affine: Affine) -> Affine:
    return replace(affine, bias=torch.empty(0))


def turned(layer: LayerWeights) -> LayerWeights:
    assert isinstance(layer.gate_up.weight, Tensor)
    gate, up = layer.gate_up.weight.chunk(2)
    return replace(layer, gate_up=replace(layer.gate_up, weight=torch.cat((up, gate))))


def shifted(affine: Affine | None) -> Affine | None:
    return affine and bare(affine)


WEIGHTS: dict[str, tuple[str, Callable[[LayerWeights], LayerWeights]]] = {
    "up for gate": ("llama", turned),
    "queries without bias": ("qwen2 open", lambda layer: replace(layer, qkv=bare(layer.qkv))),
    "output without bias": ("gpt2", lambda layer: replace(layer, output=bare(layer.output))),
    "gate and up without bias": ("llama biased", lambda layer: replace(layer, gate_up=bare(layer.gate_up))),
    "down without bias": ("starcoder2", lambda layer: replace(layer, down=bare(layer.down))),
    "norms without bias": ("phi", lambda layer: replace(layer, norms=tuple(map(shifted, layer.norms)))),
    "norms changed for each other": (
        "gemma2",
        lambda layer: replace(layer, norms=(layer.norms[0], layer.norms[3], layer.norms[2], layer.norms[1])),
    ),
    "a norm of queries for keys": (
        "olmo2",
        lambda layer: replace(layer, key_norm=layer.query_norm[: len(layer.key_norm)]),
    ),
}


@pytest.mark.parametrize("mutant", WEIGHTS)
def test_other_weights_give_other_logits(mutant: str) -> None:
    variant, change = WEIGHTS[mutant]
    assert distance_with(variant, of_layers(change)) > BOUND


FOLDED: dict[str, tuple[str, Callable[[LayerWeights], LayerWeights]]] = {
    "the mean stays": ("gpt2", lambda layer: replace(layer, qkv=replace(layer.qkv, lowered=0 * layer.qkv.lowered))),
    "the mean stays before the MLP": (
        "cohere2",
        lambda layer: replace(layer, gate_up=replace(layer.gate_up, lowered=0 * layer.gate_up.lowered)),
    ),
    "no bias of a norm": (
        "opt",
        lambda layer: replace(layer, gate_up=replace(layer.gate_up, lifted=layer.gate_up.bias)),
    ),
    "norms behind changed for each other": (
        "gemma2",
        lambda layer: replace(layer, norms=(layer.norms[0], layer.norms[3], layer.norms[2], layer.norms[1])),
    ),
    "norms before changed for each other": (
        "gemma2",
        lambda layer: replace(layer, norms=(layer.norms[2], layer.norms[1], layer.norms[0], layer.norms[3])),
    ),
}


@pytest.mark.parametrize("mutant", FOLDED)
def test_other_weights_give_other_logits_where_factors_come_behind(
    mutant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "FOLDING", (torch.float32,))
    variant, change = FOLDED[mutant]
    assert distance_with(variant, of_layers(change)) > BOUND


@pytest.mark.parametrize("scale", [0.0, 0.99])
def test_a_branch_of_another_size_gives_other_logits(scale: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FOLDING", (torch.float32,))
    monkeypatch.setattr(streams, "Branch", lambda stream, own, _, *rest: Branch(stream, own, scale, *rest))
    assert distance_with("olmo3", lambda context: None) > BOUND


def test_sums_of_other_tokens_give_other_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams, "FOLDING", (torch.float32,))
    monkeypatch.setattr(streams, "Read", lambda x, stream, sums: Read(x, stream, sums.flip(0)))
    assert distance_with("llama", lambda context: None) > BOUND


def test_a_share_that_is_joined_too_early_gives_other_logits() -> None:
    def arrived(context: gpu_model.GpuContext) -> None:
        context._parts[0].arrived.fill_(1)

    assert distance_with("llama", arrived) > BOUND


def test_joining_shares_without_the_sinks_gives_other_logits(monkeypatch: pytest.MonkeyPatch) -> None:
    model, decoder = sunk()
    monkeypatch.setattr(gpu_model, "describe", lambda model: decoder)
    ids = text(97)[: BEGIN + COUNT]
    context = opened(model)
    of_layers(lambda layer: replace(layer, sinks=torch.empty(0)))(context)
    expected = PlainPass(model, decoder)(ids.tolist())
    assert distance(passed(context, ids, BEGIN, COUNT), expected[BEGIN:]) > BOUND
