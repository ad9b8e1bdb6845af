"""A GGUF file's weights as numbers, under the names that transformers has for them.

For what runs on transformers' layers: a GPU, other dtypes. transformers reads such files too, but needs 20 s of
parsing for one of 98 MB.
"""

from __future__ import annotations

import gguf
import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig

from specdec_tui.backends.gguf.files import GgufFile

_OUTER = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
NAMED = ("llama", "qwen2", "qwen3")
"""Architectures whose tensors these are."""


def state_of(file: GgufFile, config: PreTrainedConfig, dtype: torch.dtype) -> dict[str, Tensor]:
    """All weights of a file of an architecture in `NAMED`, whose shapes were checked, by transformers' names."""
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    found: dict[str, Tensor] = {}
    for name, tensor in file.tensors.items():
        if (ours := name_of(name)) is None:
            continue
        kind = gguf.GGMLQuantizationType(tensor.kind)
        rows = gguf.quants.dequantize(file.rows(name), kind).astype(np.float32, copy=False).reshape(tensor.shape)
        part = name.split(".")[-2]
        if file.header.architecture == "llama" and part in heads:
            rows = halves(rows, heads[part])
        found[ours] = torch.from_numpy(np.array(rows, np.float32, order="C")).to(dtype)
    return found


def name_of(name: str) -> str | None:
    """None for what is no weight: tables of rotations."""
    if name in _OUTER:
        return _OUTER[name]
    outer, *inner = name.split(".")
    if outer != "blk" or len(inner) != 3 or inner[1] not in _PARTS:
        return None
    return f"model.layers.{inner[0]}.{_PARTS[inner[1]]}.{inner[2]}"


def halves(rows: np.ndarray, heads: int) -> np.ndarray:
    """Rows of queries or keys with the two numbers of a rotation half a head apart: Llama files have them side by side.

    Biases [rows] as well.
    """
    return rows.reshape(heads, -1, 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)
