"""Loaded models whose quantized layers are replaced by packed ones."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from bitsandbytes import nn as bnb_nn
from tiny_transformers import tiny_model
from torch import nn

GPU = torch.cuda.is_available()
pytest.importorskip("triton", reason="needs Triton")
if not GPU and os.environ.get("TRITON_INTERPRET") != "1":
    pytest.skip("needs a GPU, or TRITON_INTERPRET=1", allow_module_level=True)

from specdec_tui.backends.causal_lm import TransformersModel  # noqa: E402
from specdec_tui.backends.gpu import model as gpu_model  # noqa: E402
from specdec_tui.backends.gpu.packed import model as packed_model  # noqa: E402
from specdec_tui.backends.gpu.packed.linear import PackedLinear  # noqa: E402
from specdec_tui.backends.gpu.packed.packing import plain_weights  # noqa: E402
from specdec_tui.backends.gpu.packed.weights import codes_of  # noqa: E402
from specdec_tui.backends.static_model import why_not_static  # noqa: E402

DEVICE = "cuda" if GPU else "cpu"
HALF = torch.float16
SIZES: dict[str, Any] = {
    "hidden_size": 128,
    "intermediate_size": 192,
    "num_attention_heads": 4,
    "head_dim": 32,
    "num_hidden_layers": 1,
}


def quantized(bits: int) -> tuple[Any, Any]:
    """A tiny model with bitsandbytes' layers, and one with the weights that these stand for."""
    network, plain = (tiny_model("llama", **SIZES).to(HALF) for _ in range(2))
    plain.load_state_dict(network.state_dict())
    for name, module in list(network.model.layers.named_modules()):
        if not isinstance(module, nn.Linear):
            continue
        shape = module.in_features, module.out_features
        if bits == 8:
            made: Any = bnb_nn.Linear8bitLt(*shape, bias=False, has_fp16_weights=False)
            made.weight = bnb_nn.Int8Params(module.weight.data, requires_grad=False, has_fp16_weights=False)
        else:
            made = bnb_nn.Linear4bit(*shape, bias=False, compute_dtype=HALF, quant_type="nf4")
            made.weight = bnb_nn.Params4bit(module.weight.data, requires_grad=False, quant_type="nf4")
        made.to(DEVICE)
        if bits == 8 and not GPU:
            made.weight = made.weight.to("cpu")
        network.model.layers.set_submodule(name, made)
        codes = codes_of(made)
        assert codes is not None
        plain.model.layers.get_submodule(name).weight.data = plain_weights(codes).to(HALF)
    network.is_quantized = True
    return network.to(DEVICE), plain.to(DEVICE)


@pytest.mark.large
@pytest.mark.parametrize("bits", [4, 8])
def test_a_packed_model_has_the_logits_of_its_dequantized_weights(bits: int) -> None:
    network, plain = quantized(bits)
    assert packed_model.pack_quantized(network) == ""
    layers = [module for module in network.modules() if isinstance(module, PackedLinear)]
    assert len(layers) == 7 * len(network.model.layers)
    attention = network.model.layers[0].self_attn
    held = [getattr(attention, name).packed_weight.untyped_storage().data_ptr() for name in ("q_proj", "k_proj")]
    assert held[0] == held[1]
    assert not network.is_quantized and why_not_static(network) == ""
    for length in (3, 40):
        ids = torch.arange(length, device=DEVICE)[None] * 7 % 300
        expected = plain(ids).logits
        assert (network(ids).logits - expected).abs().max() <= 0.02 * expected.abs().max()


@pytest.mark.skipif(not GPU, reason="takes minutes without one")
def test_passes_of_our_kernels_read_packed_weights() -> None:
    network, plain = quantized(4)
    assert packed_model.pack_quantized(network) == "" and gpu_model.why_not(network) == ""
    model = TransformersModel(network)
    context = gpu_model.opener(network, model.forward, 256)(128)
    ids = torch.arange(24, device=DEVICE) * 7 % 300
    expected = plain(ids[None]).logits[0]
    got = [context.prefill(ids[:20])]
    got += [context.extend(ids[20:23], torch.tensor([20], device=DEVICE), 3)]
    got += [context.extend(ids[23:], torch.tensor([23], device=DEVICE), 1)]
    assert (torch.cat(got) - expected[19:]).abs().max() <= 0.02 * expected.abs().max()


def test_what_is_not_packed_is_told_and_left(monkeypatch: pytest.MonkeyPatch) -> None:
    assert packed_model.pack_quantized(tiny_model("llama", **SIZES).half()) == "it has no quantized layers"
    assert "compute in torch.float32" in packed_model.pack_quantized(tiny_model("llama", **SIZES))
    experts = tiny_model("llama", **SIZES).half()
    experts.model.layers[0].gate_up_proj_precision_config = None  # as transformers' MXFP4 has it
    assert "experts are in MXFP4" in packed_model.pack_quantized(experts)
    network, _ = quantized(4)
    before = type(network.model.layers[0].mlp.down_proj)
    monkeypatch.setattr(packed_model, "plain_weights", lambda codes: plain_weights(codes).flip(0))
    assert packed_model.pack_quantized(network) == "the packed kernels do not give its products here"
    assert network.is_quantized and type(network.model.layers[0].mlp.down_proj) is before
