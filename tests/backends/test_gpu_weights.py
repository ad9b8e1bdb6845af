"""Weights as the GPU's kernels read them are the memory of the loaded model, which goes on giving its own logits.

Nothing here runs a kernel.
"""

from __future__ import annotations

import pytest
import torch
from family_variants import IDS, VARIANTS, made
from torch import Tensor
from transformers import PreTrainedModel

from specdec_tui.backends.causal_lm import TransformersModel
from specdec_tui.backends.decoder import Decoder, describe
from specdec_tui.backends.gpu import model as gpu_model
from specdec_tui.backends.gpu.weights import Weights, fuse

# Rows of one joined matrix, weights that lie transposed, queries with keys and values head by head, several to one.
FORMS = ["llama biased", "gpt2", "gpt_neox", "phi3", "falcon grouped", "gemma3", "olmo", "opt", "cohere2"]


@torch.no_grad()
def logits_of(model: PreTrainedModel) -> Tensor:
    found: Tensor = model(torch.tensor([IDS]), use_cache=False).logits
    return found


def storages(tensors: list[Tensor]) -> dict[int, int]:
    """Bytes of the memory that some tensors lie in, by its place."""
    return {one.untyped_storage().data_ptr(): one.untyped_storage().nbytes() for one in tensors}


def matrices(weights: Weights) -> list[Tensor]:
    layers = [getattr(layer, name) for layer in weights.layers for name in ("qkv", "output", "gate_up", "down")]
    found = [weights.embedding, *(affine.weight for affine in [*layers, weights.head])]
    return [matrix for matrix in found if matrix.numel()]


@pytest.mark.parametrize("variant", FORMS)
def test_the_kernels_read_the_memory_of_the_model(variant: str) -> None:
    model = made(*VARIANTS[variant])
    before, size = logits_of(model), sum(storages(list(model.parameters())).values())
    decoder = describe(model)
    assert isinstance(decoder, Decoder)
    weights = fuse(model, decoder, 64)
    assert torch.equal(logits_of(model), before)
    held = storages(list(model.parameters()))
    assert sum(held.values()) == size
    assert storages(matrices(weights)).keys() <= held.keys()
    assert all(matrix.is_contiguous() for matrix in matrices(weights))
    weights.layers[0].output.weight.zero_()
    assert not torch.equal(logits_of(model), before)


@pytest.mark.parametrize("variant", FORMS)
def test_weights_that_are_read_again_are_the_same(variant: str) -> None:
    """As when a model is opened once more."""
    model = made(*VARIANTS[variant])
    decoder = describe(model)
    assert isinstance(decoder, Decoder)
    first, again = matrices(fuse(model, decoder, 64)), matrices(fuse(model, decoder, 64))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


@pytest.mark.parametrize("variant", ["gpt_neox", "falcon grouped", "cohere2", "phi"])
def test_what_is_in_parallel_is_read_in_one_product(variant: str) -> None:
    model = made(*VARIANTS[variant])
    decoder = describe(model)
    assert isinstance(decoder, Decoder)
    layer = fuse(model, decoder, 64).layers[0]
    of_heads = decoder.heads * decoder.width
    rows, inner = of_heads + 2 * decoder.key_heads * decoder.width, decoder.inner
    assert layer.output.weight.shape == (decoder.hidden, of_heads + inner)
    assert not layer.down.weight.numel()
    joined = 0 if decoder.family.gated else inner
    assert layer.qkv.weight.shape == (rows + joined, decoder.hidden)
    assert (layer.gate_up.weight.numel() == 0) == (joined > 0)


def test_texts_and_blocks_that_are_too_long_are_refused() -> None:
    model = made(*VARIANTS["llama"])
    open_static = gpu_model.opener(model, TransformersModel(model).forward, 300)
    with pytest.raises(ValueError, match=r"^a text of 513 tokens is too long for it$"):
        open_static(513)
    ids = torch.zeros(65, dtype=torch.int64)
    with pytest.raises(ValueError, match=r"^65 tokens are too many for one pass: at most 64$"):
        open_static(512).extend(ids, torch.tensor([0]), 1)
