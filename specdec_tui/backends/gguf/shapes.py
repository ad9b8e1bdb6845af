"""Which tensors a model of a known architecture has, in which shapes: what a file must hold, told before it is read."""

from __future__ import annotations

from transformers import PreTrainedConfig

from specdec_tui.backends.gguf.files import GgufFile
from specdec_tui.backends.small_files import FileProblem
from specdec_tui.doors.characters import named

_TABLES = frozenset(("rope_freqs.weight", "rope_factors_short.weight", "rope_factors_long.weight"))


def shapes_of(architecture: str, config: PreTrainedConfig) -> dict[str, tuple[int, ...]]:
    """The tensors that llama.cpp's converter writes, by name, rows first; without those of rotations."""
    wide, inner, vocabulary = config.hidden_size, config.intermediate_size, config.vocab_size
    head, heads = config.head_dim, config.num_attention_heads
    q, kv = heads * head, config.num_key_value_heads * head
    shapes: dict[str, tuple[int, ...]] = {"token_embd.weight": (vocabulary, wide), "output_norm.weight": (wide,)}
    if not config.tie_word_embeddings:
        shapes["output.weight"] = (vocabulary, wide)
    layer: dict[str, tuple[int, ...]] = {"attn_norm.weight": (wide,), "ffn_norm.weight": (wide,)}
    layer |= {"attn_output.weight": (wide, q), "ffn_down.weight": (wide, inner)}
    if architecture == "phi3":
        layer |= {"attn_qkv.weight": (q + 2 * kv, wide), "ffn_up.weight": (2 * inner, wide)}
    else:
        layer |= {"attn_q.weight": (q, wide), "attn_k.weight": (kv, wide), "attn_v.weight": (kv, wide)}
        layer |= {"ffn_gate.weight": (inner, wide), "ffn_up.weight": (inner, wide)}
    if architecture == "qwen2" or getattr(config, "attention_bias", False):
        layer |= {"attn_q.bias": (q,), "attn_k.bias": (kv,), "attn_v.bias": (kv,)}
    if getattr(config, "attention_bias", False):
        layer |= {"attn_output.bias": (wide,)}
    if getattr(config, "mlp_bias", False):
        layer |= {"ffn_gate.bias": (inner,), "ffn_up.bias": (inner,), "ffn_down.bias": (wide,)}
    if architecture in ("qwen3", "gemma3"):
        layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
    if architecture in ("gemma2", "gemma3"):
        layer |= {"post_attention_norm.weight": (wide,), "post_ffw_norm.weight": (wide,)}
    for index in range(config.num_hidden_layers):
        shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
    return shapes


def check_tensors(file: GgufFile, config: PreTrainedConfig) -> tuple[str, ...]:
    """Names of tensors that the model does not use. FileProblem that names one which is missing or of another shape."""
    expected = shapes_of(file.header.architecture, config)
    for name, shape in expected.items():
        if name not in file.tensors:
            missing = [each for each in expected if each not in file.tensors]
            more = f" and {len(missing) - 1:,} more tensors" if len(missing) > 1 else ""
            raise FileProblem(f"has no {name}{more}, which its header asks for")
        if file.tensors[name].shape != shape:
            held, asked = (" × ".join(map(str, sizes)) for sizes in (file.tensors[name].shape, shape))
            raise FileProblem(f"is damaged: {named(name)} in it is {held}, and {asked} by its header")
    return tuple(name for name in file.tensors if name not in expected and name not in _TABLES)
