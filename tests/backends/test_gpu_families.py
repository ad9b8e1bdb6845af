"""Passes of the GPU's kernels over every family that they compute, against transformers, in float32.

On a GPU, or with Triton and TRITON_INTERPRET=1 (slowly, in NumPy) on a CPU: `make test-gpu`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from family_variants import DENSE, VARIANTS, made
from interpreted import GPU, need_triton
from plain_pass import PlainPass
from torch import Tensor, nn
from transformers import PreTrainedModel

need_triton()

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.decoder import Decoder, describe  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu.tiles import Cut  # noqa: E402

# A GPU multiplies float32 numbers of 10 bits, so the interpreter alone proves these.
pytestmark = pytest.mark.skipif(GPU, reason="needs a processor that computes float32")
CAPACITY = 64
BOUND = 1e-4  # of the largest logit
Change = Callable[[Decoder], Decoder]


@pytest.fixture(autouse=True)
def _several_shares(monkeypatch: pytest.MonkeyPatch) -> None:
    """Attention in two shares, as in a long text."""
    monkeypatch.setattr(gpu_model, "_SHARE", CAPACITY // 2)


@pytest.fixture
def folded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The factor of an RMS norm comes behind the product that reads it."""
    monkeypatch.setattr(gpu_model, "FOLDING", (torch.float32, torch.float16))


def dense(variant: str) -> bool:
    return not any(layer.experts for layer in described(made(*VARIANTS[variant])).layers)


def described(model: PreTrainedModel) -> Decoder:
    found = describe(model)
    assert isinstance(found, Decoder), found
    return found


def text(vocabulary: int, tokens: int = CAPACITY) -> Tensor:
    return torch.tensor([(37 * i + 5) % vocabulary for i in range(tokens)])


@torch.no_grad()
def logits_of(model: PreTrainedModel, ids: Tensor) -> Tensor:
    found: Tensor = model(ids[None], use_cache=False).logits[0]
    return found.float()


def opened(model: PreTrainedModel, capacity: int = CAPACITY) -> gpu_model.GpuContext:
    return gpu_model.opener(model, TransformersModel(model).forward, capacity)(capacity)


def passed(context: gpu_model.GpuContext, ids: Tensor, begin: int, *blocks: int) -> Tensor:
    """Logits after each of `ids` from `begin` on, the text before prefilled, the rest in blocks; of other tokens first,
    which are taken back."""
    context.prefill(ids[:begin])
    rows = []
    for count in blocks:
        if count > 3:
            context.extend(ids[:count], torch.tensor([begin]), 1)
        rows.append(context.extend(ids[begin : begin + count], torch.tensor([begin]), count))
        begin += count
    return torch.cat(rows)


def distance(found: Tensor, expected: Tensor) -> float:
    """Of logits, in parts of the largest; infinite where one is not a number."""
    excess = ((found - expected).abs().max() / expected.abs().max()).item()
    return excess if excess == excess else float("inf")


# A variant of each kind: what every other one has besides is tried in the large matrix.
KINDS = ["gemma2", "gpt2", "olmo3", "cohere2", "falcon grouped", "smollm3"]


def check(variant: str, *blocks: int) -> None:
    model = made(*VARIANTS[variant])
    ids, begin = text(96), CAPACITY - sum(blocks)
    expected = logits_of(model, ids)
    assert distance(passed(opened(model), ids, begin, *blocks), expected[begin:]) < BOUND


@pytest.mark.parametrize("variant", KINDS)
def test_passes_over_a_family_give_the_logits_of_transformers(variant: str) -> None:
    check(variant, 1, 33)  # from before the border of two shares to the end of what there is


@pytest.mark.usefixtures("folded")
def test_passes_with_norms_behind_products_give_the_logits_of_transformers() -> None:
    check("granite biased", 3, 9)


@pytest.mark.large
@pytest.mark.timeout(900)
@pytest.mark.parametrize("variant", [name for name in VARIANTS if dense(name)])
@pytest.mark.parametrize("way", ["apart", "folded"])
def test_every_variant_of_a_family_gives_the_logits_of_transformers(
    variant: str, way: str, request: pytest.FixtureRequest
) -> None:
    if way == "folded":
        family = described(made(*VARIANTS[variant])).family
        if family.norm != "rms" or any(family.norms[1::2]):
            pytest.skip("its norms have factors of their own")
        request.getfixturevalue("folded")
    check(variant, 1, 3, 9, 17)


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


@pytest.mark.parametrize("window", [0, 5, 30])
def test_shares_that_are_no_whole_tiles_see_each_token_once(window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_model.launches, "attention_cut", lambda lanes: Cut(16, 4, 2))
    monkeypatch.setattr(gpu_model, "_SHARE", 24)
    model = made("MistralConfig", DENSE | SMALL | {"sliding_window": window or None})
    ids = text(97, 72)
    context = opened(model, 72)
    assert context._shares == 3
    assert distance(passed(context, ids, 50, 9, 13), logits_of(model, ids)[50:]) < BOUND


def sunk() -> tuple[PreTrainedModel, Decoder]:
    """A dense model whose attention has sinks: of the families only a mixture of experts has them."""
    model = made("LlamaConfig", DENSE | SMALL)
    decoder = described(model)
    for layer in model.model.layers:
        layer.self_attn.sinks = nn.Parameter(torch.tensor([1.5, -1.0, 3.0, 0.5]))
    return model, replace(decoder, family=replace(decoder.family, sinks="self_attn.sinks"))


@pytest.mark.parametrize("begin", [20, 58], ids=["one share", "shares"])
def test_sinks_take_their_part_of_attention_once(begin: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model, decoder = sunk()
    monkeypatch.setattr(gpu_model, "describe", lambda model: decoder)
    ids = text(97)[: begin + 5]
    expected = PlainPass(model, decoder)(ids.tolist())
    assert distance(expected, logits_of(model, ids)) > 0.01
    assert distance(passed(opened(model), ids, begin, 5), expected[begin:]) < BOUND
