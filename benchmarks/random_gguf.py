"""A GGUF file of a known model's shape with random weights: what its passes cost, without fetching the model.

    python benchmarks/random_gguf.py FILE.gguf [--shape qwen2.5-1.5b] [--seed 0]

Tensors have the names, sizes and kinds that llama.cpp's Q4_K_M gives a Qwen2 model with tied embeddings: Q4_K, and Q6_K
for the embedding and for half of `attn_v` and `ffn_down` (`uses_more_bits`, its rule of the same name). Blocks are
drawn, not quantized: every bit pattern of their small numbers is a valid one, and their float16 scales are set so that
weights have a mean near 0 and a standard deviation near 0.02, which keeps logits finite. The vocabulary is made up:
byte-level pairs with merges, as large as the real one. The same seed gives the same bytes.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Kind

DEVIATION = 0.02
"""Of a weight, as freshly initialised models have it."""
_BLOCK = 256
_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_CHAT = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")


@dataclass(frozen=True)
class Shape:
    """Sizes of a Qwen2 model with tied embeddings; `hidden` and `inner` are multiples of 256."""

    hidden: int
    inner: int
    layers: int
    heads: int
    key_heads: int
    vocabulary: int
    context: int

    def tensors(self) -> Iterator[tuple[str, tuple[int, ...], Kind]]:
        """Name, shape (rows first) and kind of each tensor, in the order of the file."""
        keys = self.hidden // self.heads * self.key_heads
        yield "token_embd.weight", (self.vocabulary, self.hidden), Kind.Q6_K
        yield "output_norm.weight", (self.hidden,), Kind.F32
        for layer in range(self.layers):
            more = Kind.Q6_K if uses_more_bits(layer, self.layers) else Kind.Q4_K
            for name, shape, kind in (
                ("attn_norm.weight", (self.hidden,), Kind.F32),
                ("attn_q.weight", (self.hidden, self.hidden), Kind.Q4_K),
                ("attn_q.bias", (self.hidden,), Kind.F32),
                ("attn_k.weight", (keys, self.hidden), Kind.Q4_K),
                ("attn_k.bias", (keys,), Kind.F32),
                ("attn_v.weight", (keys, self.hidden), more),
                ("attn_v.bias", (keys,), Kind.F32),
                ("attn_output.weight", (self.hidden, self.hidden), Kind.Q4_K),
                ("ffn_norm.weight", (self.hidden,), Kind.F32),
                ("ffn_gate.weight", (self.inner, self.hidden), Kind.Q4_K),
                ("ffn_up.weight", (self.inner, self.hidden), Kind.Q4_K),
                ("ffn_down.weight", (self.hidden, self.inner), more),
            ):
                yield f"blk.{layer}.{name}", shape, kind

    @property
    def size(self) -> int:
        """Bytes of all tensors."""
        return sum(_bytes_of(shape, kind) for _, shape, kind in self.tensors())


SHAPES = {
    "qwen2.5-1.5b": Shape(1536, 8960, 28, 12, 2, 151_936, 32_768),
    "tiny": Shape(256, 512, 8, 4, 2, 600, 1024),
}


def uses_more_bits(layer: int, layers: int) -> bool:
    """llama.cpp's `use_more_bits` (llama-quant.cpp): the first and last eighth, and of the rest every third layer."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2


def write_random_gguf(path: Path, shape: Shape, seed: int = 0) -> None:
    """Write the file; it has its name only once it is whole. OSError where there is no room."""
    dice = np.random.default_rng(seed)
    part = path.with_name(path.name + ".part")
    writer = gguf.GGUFWriter(part, "qwen2")
    writer.add_name(f"random weights, seed {seed}")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.inner)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.key_heads)
    writer.add_rope_freq_base(1_000_000.0)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q4_K_M)
    tokens, merges = vocabulary(shape.vocabulary - len(_SPECIAL), dice)
    kinds = [gguf.TokenType.NORMAL] * len(tokens) + [gguf.TokenType.CONTROL] * len(_SPECIAL)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list([*tokens, *_SPECIAL])
    writer.add_token_types(kinds)
    writer.add_token_merges(merges)
    writer.add_eos_token_id(len(tokens) + 2)
    writer.add_pad_token_id(len(tokens))
    writer.add_bos_token_id(len(tokens))
    writer.add_add_bos_token(False)
    writer.add_chat_template(_CHAT)
    for name, sizes, kind in shape.tensors():
        width = _bytes_of(sizes[-1:], kind)
        if kind is Kind.F32:
            writer.add_tensor_info(name, sizes, np.dtype(np.float32), 4 * sizes[0])
        else:
            count = width * sizes[0]
            writer.add_tensor_info(name, (sizes[0], width), np.dtype(np.uint8), count, raw_dtype=kind)
    try:
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_ti_data_to_file()
        for name, sizes, kind in shape.tensors():
            writer.write_tensor_data(tensor(name, sizes, kind, dice))
        writer.close()
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def tensor(name: str, shape: tuple[int, ...], kind: Kind, dice: np.random.Generator) -> np.ndarray:
    """Float32 [n] of norms and biases; else uint8 [rows, bytes of a row]."""
    if kind is Kind.F32:
        return (1.0 * name.endswith("norm.weight") + DEVIATION * dice.standard_normal(shape)).astype(np.float32)
    rows, width = shape
    blocks = rows * width // _BLOCK
    drawn = q4_k(blocks, dice) if kind is Kind.Q4_K else q6_k(blocks, dice)
    return drawn.reshape(rows, -1)


def q4_k(blocks: int, dice: np.random.Generator) -> np.ndarray:
    """Random Q4_K blocks, uint8 [blocks, 144]: d, dmin, 12 bytes of 6-bit scales and mins, 128 of 4-bit numbers.

    A weight is d·scale·q − dmin·min: with dmin = 7.5 d its mean is 0, and its deviation 258 d.
    """
    drawn = np.frombuffer(dice.bytes(blocks * 144), np.uint8).reshape(blocks, 144).copy()
    scale = DEVIATION / 258 * dice.uniform(0.5, 1.5, blocks)
    drawn[:, :4] = np.stack([scale, 7.5 * scale], 1).astype(np.float16).view(np.uint8)
    return drawn


def q6_k(blocks: int, dice: np.random.Generator) -> np.ndarray:
    """Random Q6_K blocks, uint8 [blocks, 210]: 192 bytes of 6-bit numbers, 16 signed scales, d.

    A weight is d·scale·(q − 32): its mean is near 0, and its deviation 1366 d.
    """
    drawn = np.frombuffer(dice.bytes(blocks * 210), np.uint8).reshape(blocks, 210).copy()
    scale = DEVIATION / 1366 * dice.uniform(0.5, 1.5, (blocks, 1))
    drawn[:, 208:] = scale.astype(np.float16).view(np.uint8)
    return drawn


def vocabulary(count: int, dice: np.random.Generator) -> tuple[list[str], list[str]]:
    """`count` tokens, the 256 bytes first, and the merges that make the others of two earlier ones.

    Tokens are of lower-case letters, some behind a space, as GPT-2's byte-level alphabet writes them. ValueError below
    256.
    """
    if count < 256:
        raise ValueError(f"a byte-level vocabulary has at least 256 tokens, not {count}")
    others = iter(range(0x100, 0x200))
    alphabet = [chr(byte) if byte in _PRINTABLE else chr(next(others)) for byte in range(256)]
    letters = [chr(letter) for letter in range(ord("a"), ord("z") + 1)]
    tokens, known, merges = list(alphabet), set(alphabet), []
    begins, ends = [alphabet[ord(" ")], *letters], list(letters)
    while len(tokens) < count:
        for first, second in dice.integers(0, 1 << 31, (4096, 2)).tolist():
            left, right = begins[first % len(begins)], ends[second % len(ends)]
            joint = left + right
            if joint in known or len(tokens) == count:
                continue
            tokens.append(joint)
            known.add(joint)
            merges.append(f"{left} {right}")
            if len(joint) <= 5:
                begins.append(joint)
            if len(joint) <= 3 and joint[0] in letters:
                ends.append(joint)
    return tokens, merges


def _bytes_of(shape: tuple[int, ...], kind: Kind) -> int:
    block, size = gguf.GGML_QUANT_SIZES[kind]
    return int(np.prod(shape)) // block * size


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--shape", choices=SHAPES, default="qwen2.5-1.5b")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write_random_gguf(options.file, SHAPES[options.shape], options.seed)
    print(f"{options.file}: {options.file.stat().st_size:,} bytes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
