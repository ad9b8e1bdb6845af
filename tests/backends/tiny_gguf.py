"""A GGUF file with 4-bit weights like the demo target's, small enough to write in a test."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import gguf
import numpy as np


def write_tiny_gguf(
    path: Path,
    tokenizer_folder: Path,
    *,
    tokens: list[str] | None = None,
    more: Mapping[str, tuple[int, ...]] | None = None,
    numbers: Mapping[str, float] | None = None,
    base: float = 10000.0,
    integers: bool = False,
    end: int | None = 2,
    fields: Mapping[str, str | int | float | bool | list[int] | list[str]] | None = None,
) -> dict[str, np.ndarray]:
    """A Llama of one layer and width 32 with 4-bit weights, `more` tensors and `numbers` of metadata.

    `fields` take the place of those of the same names.
    Returns what its weights mean.
    """
    tokenizer = json.loads((tokenizer_folder / "tokenizer.json").read_text(encoding="utf-8"))
    vocabulary = tokenizer["model"]["vocab"] | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_vocab_size(len(vocabulary))
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_feed_forward_length(32)
    writer.add_block_count(1)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(tokens or sorted(vocabulary, key=vocabulary.__getitem__))
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    if end is not None:
        writer.add_eos_token_id(end)
    writer.add_pad_token_id(2)
    writer.add_chat_template((tokenizer_folder / "chat_template.jinja").read_text(encoding="utf-8"))
    for key, value in (numbers or {}).items():
        writer.add_float32(key, value)
    for key, value in (fields or {}).items():
        writer.kv_data[0].pop(key, None)
        writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    dice = np.random.default_rng(0)
    meant = {}
    whole = np.zeros((2, 32), np.int8) if integers else None
    if whole is not None:
        writer.add_tensor("blk.0.counts.weight", whole)
    for name, shape in {
        "token_embd.weight": (len(vocabulary), 32),
        "output_norm.weight": (32,),
        "blk.0.attn_q.weight": (32, 32),
        "blk.0.attn_k.weight": (16, 32),
        "blk.0.attn_v.weight": (16, 32),
        "blk.0.attn_output.weight": (32, 32),
        "blk.0.ffn_gate.weight": (32, 32),
        "blk.0.ffn_up.weight": (32, 32),
        "blk.0.ffn_down.weight": (32, 32),
        "blk.0.attn_norm.weight": (32,),
        "blk.0.ffn_norm.weight": (32,),
        **(more or {}),
    }.items():
        values = dice.standard_normal(shape).astype(np.float32)
        kind = gguf.GGMLQuantizationType.Q4_1 if len(shape) > 1 else gguf.GGMLQuantizationType.F32
        packed = gguf.quants.quantize(values, kind)
        writer.add_tensor(name, packed, raw_dtype=kind)
        meant[name] = gguf.quants.dequantize(packed, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant
