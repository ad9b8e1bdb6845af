"""The GPU's kernels against the models they stand for.

On a GPU, or with Triton and TRITON_INTERPRET=1 (slowly, in NumPy) on a CPU; elsewhere there is nothing to run them.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from gpu_passes import DEVICE, halved
from interpreted import GPU, need_triton
from tiny_transformers import tiny_model

need_triton()

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.decoder import Decoder, describe  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu.weights import fuse  # noqa: E402

# The interpreter multiplies the bits of bfloat16 as if they were numbers.
DTYPES = [torch.float16, torch.bfloat16] if GPU else [torch.float16]
SIZES: dict[str, Any] = {"hidden_size": 96, "num_attention_heads": 6, "head_dim": 16, "max_position_embeddings": 512}


def opened(kind: str, dtype: torch.dtype, **overrides: Any) -> tuple[TransformersModel, gpu_model.GpuContext]:
    network = halved(tiny_model(kind, **(SIZES | overrides)), dtype)
    with torch.no_grad():
        for name, parameter in network.named_parameters():
            if parameter.dim() == 1 and not name.endswith("bias"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    assert gpu_model.fits(network)
    model = TransformersModel(network)
    return model, gpu_model.opener(network, model.forward, 512)(256)


def in_single_precision(model: TransformersModel, ids: list[int]) -> torch.Tensor:
    """Logits of the same numbers, exactly: those of half precision can be a fifth of the largest away from them."""
    network = copy.deepcopy(model.model).float()
    with torch.inference_mode():
        logits: torch.Tensor = network(torch.tensor([ids], device=DEVICE)).logits[0]
    return logits


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    ("kind", "overrides"),
    [
        ("llama", {}),
        ("llama", {"intermediate_size": 2100}),  # wide enough for sums over pieces, the last of them a short one
        ("qwen2", {}),
        ("qwen3", {}),
        ("mistral", {"sliding_window": None}),
        ("mistral", {"sliding_window": 24}),
    ],
    ids=["llama", "wide", "qwen2", "qwen3", "mistral", "window"],
)
def test_passes_give_the_logits_of_the_model(kind: str, overrides: dict[str, Any], dtype: torch.dtype) -> None:
    model, context = opened(kind, dtype, **overrides)
    ids = [(7 * i + 3) % 300 for i in range(90)]
    tokens = torch.tensor(ids, device=DEVICE)

    def extend(begin: int, end: int, keep: int) -> torch.Tensor:
        return context.extend(tokens[begin:end], torch.tensor([begin], device=DEVICE), keep)

    expected, exact = model.forward(ids, len(ids)), in_single_precision(model, ids)
    bound = 1.5 * (expected - exact).abs().max().item() + 2e-3 * exact.abs().max().item()
    rows = [context.prefill(tokens[:80]), extend(80, 85, 5)]
    context.extend(tokens[:3], torch.tensor([85], device=DEVICE), 1)  # taken back by what follows
    rows.append(extend(85, 90, 3))
    got = torch.cat(rows)
    assert (got - torch.cat((exact[79:85], exact[87:]))).abs().max().item() <= bound


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_token_in_a_block_has_the_numbers_of_a_token_alone(dtype: torch.dtype) -> None:
    # NumPy multiplies rows behind the sixth of a tile, and tiles of other sizes, in another order.
    _, context = opened("llama", dtype, **({} if GPU else {"num_key_value_heads": 6}))
    tokens = torch.tensor([(11 * i + 5) % 300 for i in range(49)], device=DEVICE)
    context.prefill(tokens[:40])
    end = 49 if GPU else 46
    block = context.extend(tokens[40:end], torch.tensor([40], device=DEVICE), end - 40)
    if GPU:
        more = torch.cat((tokens[40:], tokens[:24]))
        assert torch.equal(context.extend(more, torch.tensor([40], device=DEVICE), 33)[:9], block)
    single = [context.extend(tokens[n : n + 1], torch.tensor([n], device=DEVICE), 1) for n in range(40, end)]
    assert torch.equal(block, torch.cat(single))


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_block_of_the_most_drafts_gives_the_logits_of_the_model(dtype: torch.dtype) -> None:
    model, context = opened("llama", dtype)
    ids = [(7 * i + 3) % 300 for i in range(73)]
    tokens = torch.tensor(ids, device=DEVICE)
    expected = model.forward(ids, 34)
    got = torch.cat((context.prefill(tokens[:40]), context.extend(tokens[40:], torch.tensor([40], device=DEVICE), 33)))
    bound = (0.04 if dtype is torch.float16 else 0.15) * expected.abs().max().item()
    assert (got - expected).abs().max().item() <= bound


@pytest.mark.parametrize("dtype", DTYPES)
def test_fused_weights_are_those_of_the_model(dtype: torch.dtype) -> None:
    network = halved(tiny_model("qwen2", **SIZES), dtype)
    model = TransformersModel(network)
    before = model.forward([3, 4, 5], 3)
    bytes_before = sum(parameter.untyped_storage().nbytes() for parameter in network.parameters())
    decoder = describe(network)
    assert isinstance(decoder, Decoder)
    fuse(network, decoder, 64)
    assert torch.equal(model.forward([3, 4, 5], 3), before)
    storages = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in network.parameters()}
    assert sum(storages.values()) == bytes_before


def test_models_that_the_kernels_do_not_compute_do_not_fit() -> None:
    assert gpu_model.why_not(tiny_model("mamba").half()) == "MambaForCausalLM is no family described here"
    assert gpu_model.why_not(tiny_model("llama", **SIZES)) == "its weights are not in half precision"
    assert (
        gpu_model.why_not(tiny_model("llama", **(SIZES | {"head_dim": 264})).half()) == "its heads are wider than 256"
    )
