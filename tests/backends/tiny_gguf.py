"""Small GGUF files of any kind of weights, quick enough to write in a test."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

KIND = gguf.GGMLQuantizationType
SPECIAL = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@dataclass(frozen=True)
class Sizes:
    hidden: int = 256
    inner: int = 512
    layers: int = 2
    heads: int = 4
    kv_heads: int = 2
    head: int = 64
    context: int = 256


NARROW = Sizes(hidden=32, inner=32, layers=1, head=8, context=64)
# Where the scales of a block lie (bytes from its start, little-endian halves), the first for the weights and
# the second for their least values, and what weights of random bits then come to for a scale of 1.
_SCALES = {
    KIND.Q2_K: ((80, 82), 16.0, 1.5),
    KIND.Q3_K: ((108,), 43.0, 0.0),
    KIND.Q4_K: ((0, 2), 268.0, 7.5),
    KIND.Q5_K: ((0, 2), 578.0, 15.5),
    KIND.Q6_K: ((208,), 1370.0, 0.0),
    KIND.IQ4_NL: ((0,), 70.0, 0.0),
}
_USUAL = 0.06  # how large weights are


def write_tiny_gguf(
    path: Path,
    tokenizer_folder: Path | None = None,
    *,
    architecture: str = "llama",
    kinds: Mapping[str, Any] | None = None,
    splits: int = 1,
    seed: int = 0,
    sizes: Sizes | None = None,
    tied: bool = True,
    tokens: list[str] | None = None,
    more: Mapping[str, tuple[int, ...]] | None = None,
    numbers: Mapping[str, float] | None = None,
    base: float = 10000.0,
    integers: bool = False,
    end: int | None = 2,
    fields: Mapping[str, Any] | None = None,
) -> dict[str, np.ndarray]:
    """A model with random weights of an `architecture` (llama, qwen2, qwen3, smollm3, gemma2, gemma3, phi3).

    `kinds`: of tensors whose names begin with these patterns (`{"blk.*ffn": KIND.Q6_K, "": KIND.Q4_K}`, the first that
    fits), else Q4_1; those of one dimension are F32. `splits`: written as so many parts, `NAME-00001-of-00003.gguf`.
    `tied`: without an output matrix of its own. With a `tokenizer_folder` its tokens, and one layer of width 32;
    without, 512 tokens of a BPE over bytes, and sizes that K-quants can have.
    `more` tensors and `numbers` of metadata; `fields` take the place of those of the same names (None leaves one out).
    Returns what its weights mean, in float32.
    """
    small = sizes or (NARROW if tokenizer_folder else Sizes())
    tokenizer = tiny_bpe() if tokenizer_folder is None else _of_folder(tokenizer_folder)
    vocabulary = tokenizer["model"]["vocab"] | {t["content"]: t["id"] for t in tokenizer["added_tokens"]}
    names = tokens or sorted(vocabulary, key=vocabulary.__getitem__)
    shapes = tensor_shapes(architecture, small, len(vocabulary), tied) | dict(more or {})
    count = len(shapes) + integers
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=-(-count // splits) if splits > 1 else 0)
    _describe(writer, architecture, small, len(vocabulary), base)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(names)
    special = {t["content"] for t in tokenizer["added_tokens"] if t["special"]}
    writer.add_token_types([3 if name in special else 1 for name in names])
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in tokenizer["model"]["merges"]])
    writer.add_bos_token_id(1)
    if end is not None:
        writer.add_eos_token_id(end)
    writer.add_pad_token_id(2)
    writer.add_chat_template(tokenizer["chat_template"])
    for key, value in (numbers or {}).items():
        writer.add_float32(key, value)
    for key, value in (fields or {}).items():
        writer.kv_data[0].pop(key, None)
        if value is not None:
            writer.add_key_value(key, value, gguf.GGUFValueType.get_type(value))
    if integers:
        writer.add_tensor("blk.0.counts.weight", np.zeros((2, 32), np.int8))
    meant = {}
    dice = np.random.default_rng(seed)
    for name, shape in shapes.items():
        kind = KIND.F32
        if len(shape) > 1:
            kind = next((k for pattern, k in (kinds or {}).items() if re.match(pattern, name)), KIND.Q4_1)
        packed = random_blocks(shape, kind, dice, around=1.0 if name.endswith("norm.weight") else 0.0)
        writer.add_tensor(name, packed, raw_dtype=KIND(kind))
        meant[name] = gguf.quants.dequantize(packed, KIND(kind)).astype(np.float32).reshape(shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return meant


def parts(path: Path, splits: int) -> list[Path]:
    """What `write_tiny_gguf(path, splits=splits)` has written."""
    return [path.with_name(f"{path.stem}-{no:05d}-of-{splits:05d}.gguf") for no in range(1, splits + 1)]


def random_blocks(
    shape: tuple[int, ...], kind: Any, dice: np.random.Generator, around: float = 0.0, size: float = _USUAL
) -> np.ndarray:
    """A tensor of a kind: quantized where the library can, else valid blocks of random bits, as it is packed."""
    if kind not in _SCALES:
        values = (around + size * dice.standard_normal(shape)).astype(np.float32)
        return values if kind == KIND.F32 else gguf.quants.quantize(values, KIND(kind))
    places, spread, least = _SCALES[kind]
    block, width = gguf.GGML_QUANT_SIZES[kind]
    blocks = dice.integers(0, 256, (int(np.prod(shape)) // block, width), np.uint8)
    scales = size / spread * dice.uniform(0.5, 1.5, len(blocks))
    for place, factor in zip(places, (1.0, least), strict=False):
        blocks[:, place : place + 2] = (scales * factor).astype("<f2")[:, None].view(np.uint8)
    return blocks.reshape(*shape[:-1], -1)


def tensor_shapes(architecture: str, sizes: Sizes, vocabulary: int, tied: bool) -> dict[str, tuple[int, ...]]:
    """The tensors that llama.cpp's converter writes for a model of these sizes, rows first."""
    wide, inner, q, kv = sizes.hidden, sizes.inner, sizes.heads * sizes.head, sizes.kv_heads * sizes.head
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, wide), "output_norm.weight": (wide,)}
    if not tied:
        shapes["output.weight"] = (vocabulary, wide)
    for layer in range(sizes.layers):
        of_layer: dict[str, tuple[int, ...]] = {"attn_norm.weight": (wide,)}
        if architecture == "phi3":
            of_layer |= {"attn_qkv.weight": (q + 2 * kv, wide)}
        else:
            of_layer |= {"attn_q.weight": (q, wide), "attn_k.weight": (kv, wide), "attn_v.weight": (kv, wide)}
        of_layer |= {"attn_output.weight": (wide, q)}
        if architecture == "phi3":
            of_layer |= {"ffn_up.weight": (2 * inner, wide), "ffn_down.weight": (wide, inner)}
        else:
            of_layer |= {"ffn_gate.weight": (inner, wide), "ffn_up.weight": (inner, wide)}
            of_layer |= {"ffn_down.weight": (wide, inner)}
        if architecture == "qwen2":
            of_layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
        if architecture in ("qwen3", "gemma3"):
            of_layer |= {"attn_q_norm.weight": (sizes.head,), "attn_k_norm.weight": (sizes.head,)}
        if architecture in ("gemma2", "gemma3"):
            of_layer |= {"post_attention_norm.weight": (wide,), "post_ffw_norm.weight": (wide,)}
        of_layer |= {"ffn_norm.weight": (wide,)}
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in of_layer.items()}
    return shapes


@lru_cache(maxsize=1)
def tiny_bpe() -> dict[str, Any]:
    """A byte-level BPE of 512 tokens that splits digits, as its tokenizer.json, with a chat template."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(  # type: ignore[assignment]
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()  # type: ignore[assignment]
    trainer = trainers.BpeTrainer(
        vocab_size=512,
        special_tokens=SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    text = (__doc__ or "") + str(write_tiny_gguf.__doc__) + str(random_blocks.__doc__) + str(tensor_shapes.__doc__)
    here = Path(__file__).read_text(encoding="utf-8")
    tokenizer.train_from_iterator([text, *here.splitlines()], trainer)
    return json.loads(tokenizer.to_str()) | {"chat_template": CHAT_TEMPLATE}


def _of_folder(folder: Path) -> dict[str, Any]:
    template = (folder / "chat_template.jinja").read_text(encoding="utf-8")
    return json.loads((folder / "tokenizer.json").read_text(encoding="utf-8")) | {"chat_template": template}


def _describe(writer: gguf.GGUFWriter, architecture: str, sizes: Sizes, vocabulary: int, base: float) -> None:
    writer.add_vocab_size(vocabulary)
    writer.add_context_length(sizes.context)
    writer.add_embedding_length(sizes.hidden)
    writer.add_feed_forward_length(sizes.inner)
    writer.add_block_count(sizes.layers)
    writer.add_head_count(sizes.heads)
    writer.add_head_count_kv(sizes.kv_heads)
    writer.add_rope_freq_base(base)
    writer.add_layer_norm_rms_eps(1e-5)
    if sizes.head * sizes.heads != sizes.hidden:
        writer.add_key_length(sizes.head)
        writer.add_value_length(sizes.head)
    if architecture in ("llama", "phi3", "smollm3"):
        writer.add_rope_dimension_count(sizes.head)
    if architecture in ("gemma2", "gemma3"):
        writer.add_key_length(sizes.head)
        writer.add_value_length(sizes.head)
        writer.add_sliding_window(64)
    if architecture == "gemma2":
        writer.add_attn_logit_softcapping(50.0)
        writer.add_final_logit_softcapping(30.0)
    if architecture == "phi3":
        writer.add_rope_scaling_orig_ctx_len(sizes.context)
        writer.add_sliding_window(sizes.context // 2)
