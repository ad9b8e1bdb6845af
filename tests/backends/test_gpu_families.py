"""Passes of the GPU's kernels over every family that they compute, against transformers, in float32.

With Triton and TRITON_INTERPRET=1, slowly, in NumPy: `make test-gpu`.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from family_variants import DENSE, VARIANTS, made
from gpu_passes import (
    BOUND,
    CAPACITY,
    distance,
    extended,
    halved,
    logits_of,
    opened,
    passed,
    short_cut,
    sunk,
    text,
    whole_cut,
)
from interpreted import GPU, need_triton
from plain_pass import PlainPass

need_triton()

from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu import streams  # noqa: E402
from specdec_tui.backends.gpu.tiles import Cut  # noqa: E402

pytestmark = pytest.mark.skipif(GPU, reason="a GPU multiplies float32 with 10 bits")


@pytest.fixture(autouse=True, params=[short_cut, whole_cut], ids=["tiles", "whole"])
def _several_shares(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_model.launches, "attention_cut", request.param)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor of a norm comes behind the product that reads it."""
    monkeypatch.setattr(streams, "FOLDING", (torch.float32,))


def check(variant: str, begin: int, *blocks: int) -> None:
    model = made(*VARIANTS[variant])
    ids = text()[: begin + sum(blocks)]
    expected = logits_of(model, ids)
    assert distance(passed(opened(model), ids, begin, *blocks), expected[begin:]) < BOUND


# Norms behind and caps; learned positions; norms of all heads; in parallel, and pairs; heads in groups.
@pytest.mark.parametrize("variant", ["gemma2", "gpt2", "olmo3", "cohere2", "falcon grouped"])
def test_passes_over_a_family_give_the_logits_of_transformers(variant: str) -> None:
    check(variant, 43, 9, 1)


@pytest.mark.usefixtures("folded")
@pytest.mark.parametrize("variant", ["granite biased", "gpt2", "gemma2", "olmo3", "cohere2"])
def test_passes_with_factors_of_norms_behind_products_give_the_logits_of_transformers(variant: str) -> None:
    check(variant, 42, 9, 1)


EXPERTS = {"num_experts", "num_local_experts"}
DENSE_VARIANTS = [name for name, (_, values) in VARIANTS.items() if not EXPERTS & values.keys()]


@pytest.mark.large
@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", DENSE_VARIANTS)
@pytest.mark.parametrize("way", ["apart", "folded"])
def test_every_variant_of_a_family_gives_the_logits_of_transformers(
    variant: str, way: str, request: pytest.FixtureRequest
) -> None:
    if way == "folded":
        request.getfixturevalue("folded")
        if opened(made(*VARIANTS[variant]))._parts[0].kind is streams.Apart:
            pytest.skip("its norms are not folded")
    check(variant, CAPACITY - 20, 3, 17)  # to the end of what there is


SMALL: dict[str, Any] = {"num_hidden_layers": 1, "vocab_size": 97}
UNEVEN: dict[str, tuple[str, dict[str, Any]]] = {
    "five heads": ("Olmo2Config", {"hidden_size": 40, "num_attention_heads": 5, "num_key_value_heads": 5}),
    "groups of three": ("LlamaConfig", {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": 24}),
    "groups of seven": ("Qwen3Config", {"num_attention_heads": 7, "num_key_value_heads": 1, "head_dim": 80}),
    "width 96": ("GlmConfig", {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 96}),
    "inner 101": ("PhiConfig", {"intermediate_size": 101, "num_attention_heads": 3, "num_key_value_heads": 3}),
}


@pytest.mark.parametrize("sizes", UNEVEN)
def test_sizes_need_be_no_powers_of_two(sizes: str) -> None:
    name, values = UNEVEN[sizes]
    hidden = {"hidden_size": 12 * values["num_attention_heads"]}
    model = made(name, DENSE | SMALL | hidden | values)
    ids = text(97)
    assert distance(passed(opened(model), ids, 52, 9, 3), logits_of(model, ids)[52:]) < BOUND


@pytest.mark.usefixtures("folded")
@pytest.mark.parametrize("name", ["LlamaConfig", "Starcoder2Config", "Olmo2Config"])
def test_sums_over_long_rows_have_all_their_parts(name: str) -> None:
    model = made(name, DENSE | SMALL | {"hidden_size": 1040 if name == "LlamaConfig" else 560, "head_dim": 8})
    ids = text(97)[:52]
    context = opened(model)
    context.prefill(ids[:45])
    found = extended(context, ids, 45, 6)
    assert distance(found, logits_of(model, ids[:51])[45:]) < BOUND


def test_large_weights_of_norms_overflow_no_half_precision() -> None:
    model = made("LlamaConfig", DENSE | SMALL)
    with torch.no_grad():
        model.model.embed_tokens.weight.mul_(1e4)
        for norm in (model.model.layers[0].input_layernorm, model.model.layers[0].post_attention_layernorm):
            norm.weight.mul_(20.0)
    ids = text(97)[:49]
    expected = logits_of(model, ids)
    context = opened(halved(model, torch.float16))
    assert context._parts[0].kind is streams.Folded
    largest = max(norm.weight.abs().max().item() for norm in context._parts[0].weights.layers[0].norms[::2] if norm)
    assert 1.0 < largest <= 1 / context._parts[0].rules.shrink < 2 * largest
    assert distance(passed(context, ids, 46, 3), expected[46:]) < 0.01
    model.model.norm.weight.data[3] = 100.0
    assert opened(model)._parts[0].kind is streams.Apart


@pytest.mark.parametrize(("window", "share"), [(0, 24), (5, 24), (30, 24), (0, 32)])
def test_shares_that_are_no_whole_tiles_or_too_long_see_each_token_once(
    window: int, share: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_model.launches, "attention_cut", lambda *_: Cut(16, 4, 2, share))
    model = made("MistralConfig", DENSE | SMALL | {"sliding_window": window or None})
    ids = text(97, 72)
    context = opened(model, 72)
    assert context._parts[0].shares == 3
    assert distance(passed(context, ids, 50, 9, 13), logits_of(model, ids)[50:]) < BOUND


@pytest.mark.parametrize("begin", [8, 46], ids=["one share", "shares"])
def test_sinks_take_their_part_of_attention_once(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, decoder = sunk()
    monkeypatch.setattr(gpu_model, "describe", lambda model: decoder)
    ids = text(97)[: begin + 5]
    expected = PlainPass(model, decoder)(ids.tolist())
    assert distance(expected, logits_of(model, ids)) > 0.01
    assert distance(passed(opened(model), ids, begin, 5), expected[begin:]) < BOUND


def test_a_pass_over_what_is_no_number_ends_and_leaves_nothing_behind() -> None:
    model = made("LlamaConfig", DENSE | SMALL)
    context, ids = opened(model), text(97)
    context.prefill(ids[:46])
    expected = extended(context, ids, 46, 3)
    row = context._laid.whole.embedding[ids[47]].clone()
    context._laid.whole.embedding[ids[47]] = torch.nan
    assert extended(context, ids, 46, 3)[1:].isnan().all()
    assert not context._parts[0].arrived.any()
    context._laid.whole.embedding[ids[47]] = row
    assert torch.equal(extended(context, ids, 46, 3), expected)
