"""A token has the numbers in a block of drafts that it has alone, bit for bit, in every kind of family."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from family_variants import DENSE, VARIANTS, made
from gpu_passes import DEVICE, extended, halved, opened, short_cut, text, whole_cut
from interpreted import GPU, need_triton

need_triton()

from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu import streams, tiles  # noqa: E402

DTYPES = [torch.float16, torch.bfloat16] if GPU else [torch.float16]
# NumPy multiplies tiles of other sizes in another order: those of 1 to 8 tokens have one size.
BLOCKS = [3, 9, 17, 33] if GPU else [3]
# How the stream is normed.
KINDS = [
    ("gemma2", "Branched"), ("olmo3", "Branched"), ("gpt2", "Folded"), ("cohere2", "Folded"),
    ("granite biased", "Folded"), ("qwen3 wide", "Folded"), ("gemma2", "Apart"), ("falcon grouped", "Folded"),
]  # fmt: skip
# In the narrow heads of others a block of more than 16 tokens has its norms' sums in another order.
OWN = {"qwen3 wide": ("Qwen3Config", DENSE | {"head_dim": 64})}
MORE = [("gpt2", "Apart"), ("olmo3", "Apart"), ("falcon grouped", "Apart"), ("glm", "Folded"), ("phi4 mini", "Folded")]


@pytest.mark.parametrize("cut", [short_cut, whole_cut], ids=["tiles", "whole"])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("variant", "way"), [*KINDS, *(pytest.param(*kind, marks=pytest.mark.large) for kind in MORE)])
def test_a_token_in_a_block_has_the_numbers_of_a_token_alone(
    variant: str, way: str, dtype: torch.dtype, cut: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_model.launches, "attention_cut", cut)
    monkeypatch.setattr(gpu_model, "kind_of", lambda weights: getattr(streams, way))
    context, ids, begin = opened(halved(made(*(VARIANTS | OWN)[variant]), dtype)), text(), 47 - max(BLOCKS) // 2
    context.prefill(ids[:begin])  # blocks lie on both sides of the border of two shares
    blocks = [extended(context, ids, begin, count) for count in BLOCKS]
    last = context.extend(ids[begin : begin + 3], torch.tensor([begin], device=DEVICE), 2)
    single = torch.cat([extended(context, ids, place, 1) for place in range(begin, begin + max(BLOCKS))])
    assert all(torch.equal(block, single[: len(block)]) for block in blocks)
    assert torch.equal(last, single[1:3])
    assert single.isfinite().all()


def test_columns_that_are_multiplied_last_are_the_same_for_any_number_of_tokens(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    late = tiles.Tile(16, 16, 1, 4, 3, 16, 0, True)
    monkeypatch.setattr(tiles, "guess", lambda *_: late)
    model = halved(made(*OWN["qwen3 wide"]), torch.float16)
    assert min(model.config.hidden_size, model.config.intermediate_size) > late.early
    context, ids = opened(model), text()
    context.prefill(ids[:20])
    others = [extended(context, ids, 20, count) for count in BLOCKS]
    single = torch.cat([extended(context, ids, place, 1) for place in range(20, 20 + max(BLOCKS))])
    assert all(torch.equal(block, single[: len(block)]) for block in others)
    with torch.inference_mode():
        expected = model.float()(ids[None].to(DEVICE)).logits[0, 20 : 20 + max(BLOCKS)]
    assert (single - expected).abs().max() <= 0.02 * expected.abs().max()
